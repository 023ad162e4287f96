# pyright: reportMissingImports=false
"""Fit the constants of the cost model: ``python tools/fit_cost.py SILICON_FOLDER``; needs SciPy, as nothing else does.

Reads ``train.json``, fits one set of constants for each measured target and one that all share (least squares on the
logarithm of the times, a soft loss against outliers, and a pull towards plausible starting values that decides where
nothing was measured), validates by leaving parts out, and writes ``cost_fit.json``. Seal it afterwards with
``python tools/import_facts.py --seal``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from cost_starts import CHIP, ENGINES, EXTRAPOLATION, NEAREST, POWER, PUBLISHED, SHARED, STATED, TARGETS, TIES
from scipy.optimize import least_squares

from aneforge.cost.device import Constants
from aneforge.cost.evaluate import NOT_FITTED, predict_with, read_rows
from aneforge.cost.work import work_of_row
from aneforge.targets import store
from aneforge.targets.assumed import compile_fact
from aneforge.targets.names import target as find_target

DATA = Path(__file__).resolve().parent.parent / "aneforge" / "targets" / "data" / "cost_fit.json"
TIE, SHARED_PULL = 0.3, 0.12
STEP = 1e-5
TELLS = 0.05  # a row tells a constant if one per cent of it moves the row's time by so much of one per cent
FEW = 20  # rows below which a chip's spread is that of the chip it leans on, too

FIRST = np.log(
    [*(start[0][i] for start in CHIP.values() for i in range(len(TARGETS))), *(start for start, _ in SHARED.values())]
)
OWN = len(CHIP) * len(TARGETS)
FIXED = {name: float(record["v"]) for name, record in STATED.items()}


def place(name: str, target: str) -> int:
    return list(CHIP).index(name) * len(TARGETS) + TARGETS.index(target)


def constants(x: np.ndarray, target: str, attention: tuple[float, float] = (8.0, 160e3)) -> Constants:
    values = np.exp(x)
    chip = {name: float(values[place(name, target)]) for name in CHIP}
    shared = {name: float(values[OWN + i]) for i, name in enumerate(SHARED)}
    shared |= FIXED | {"attention_head": attention[0], "attention_macs": attention[1]}
    winograd = bool(compile_fact(find_target(target), "winograd").value)
    return Constants(chip, shared, ENGINES.get(target, 1), winograd)


def _pull() -> np.ndarray:
    """One row for each constant towards its start, and one for each constant of chips that lean on another."""
    own = [strength for _, strength, _ in CHIP.values() for _ in TARGETS]
    rows = [np.diag([*own, *(SHARED_PULL for _ in SHARED)])]
    for one, other in TIES.items():
        tied = np.zeros((len(CHIP), len(FIRST)))
        for i, name in enumerate(CHIP):
            tied[i, place(name, one)], tied[i, place(name, other)] = TIE, -TIE
        rows.append(tied)
    return np.vstack(rows)


class Fit:
    def __init__(self, rows: Sequence[dict[str, Any]]) -> None:
        self.rows = [(row, work_of_row(row)) for row in rows]
        self.measured = np.log([row["latency_us"] for row in rows])
        self.owner = np.array([TARGETS.index(row["target"]) for row in rows], int)

    def residuals(self, x: np.ndarray) -> np.ndarray:
        known = {target: constants(x, target) for target in TARGETS}
        return np.log([predict_with(row, work, known[row["target"]]) for row, work in self.rows]) - self.measured

    def slopes(self, x: np.ndarray) -> np.ndarray:
        """By differences. A row depends on one chip's constants, so one step serves all chips."""
        base, found = self.residuals(x), np.zeros((len(self.rows), len(x)))
        for i in range(len(CHIP)):
            moved = x.copy()
            moved[i * len(TARGETS) : (i + 1) * len(TARGETS)] += STEP
            found[np.arange(len(base)), i * len(TARGETS) + self.owner] = (self.residuals(moved) - base) / STEP
        for i in range(OWN, len(x)):
            moved = x.copy()
            moved[i] += STEP
            found[:, i] = (self.residuals(moved) - base) / STEP
        return found

    def solved(self, start: np.ndarray, most: int) -> np.ndarray:
        pull = _pull()

        def cost(x: np.ndarray) -> np.ndarray:
            return np.concatenate([self.residuals(x), pull @ (x - FIRST)])

        def slopes(x: np.ndarray) -> np.ndarray:
            return np.vstack([self.slopes(x), pull])

        method: Any = slopes  # SciPy's stubs know only the names of its own
        return least_squares(cost, start, method, loss="soft_l1", f_scale=0.12, max_nfev=most).x

    def informed(self, x: np.ndarray) -> np.ndarray:
        """How many rows tell each constant."""
        return (np.abs(self.slopes(x)) > TELLS).sum(axis=0)


def is_fitted(row: dict[str, Any]) -> bool:
    """Rows of the engine at speed. The native attention's are told by published figures of its own."""
    return row["quality"] not in NOT_FITTED and not row["workload"].startswith("native sdpa")


def left_out(rows: Sequence[dict[str, Any]], keys: Sequence[Any], start: np.ndarray, most: int = 8) -> np.ndarray:
    """The residual of every row when all rows of its key are left out of the fit."""
    found = np.zeros(len(rows))
    for key in sorted(set(keys), key=str):
        kept = [row for row, own in zip(rows, keys, strict=True) if own != key and is_fitted(row)]
        out = [i for i, own in enumerate(keys) if own == key]
        found[out] = Fit([rows[i] for i in out]).residuals(Fit(kept).solved(start, most))
    return found


def folds(rows: Sequence[dict[str, Any]]) -> list[int]:
    return [sum(map(ord, row["id"])) % 5 for row in rows]


def unseen(rows: Sequence[dict[str, Any]], start: np.ndarray, published: bool) -> np.ndarray:
    """The residual of every row when its chip is left out of the fit and gets its neighbour's constants, with what is
    published of the chip itself if so asked."""
    found = np.zeros(len(rows))
    for target, other in NEAREST.items():
        x = Fit([row for row in rows if row["target"] != target and is_fitted(row)]).solved(start, 8)
        lent, own = constants(x, other), PUBLISHED.get(target, {}) if published else {}
        chip = {**lent.chip, **{name: each["v"] for name, each in own.items()}}
        known = Constants(chip, lent.shared, ENGINES.get(target, 1), constants(x, target).winograd)
        for i, row in enumerate(rows):
            if row["target"] == target:
                found[i] = np.log(predict_with(row, work_of_row(row), known) / row["latency_us"])
    return found


def native_attention(known: Constants) -> tuple[float, float]:
    """Microseconds for a head, and multiply-adds per microsecond: a line through the published native calls."""
    left, right = [], []
    for name, record in store.load("cost_model")["m5pro_fits"]["bridge"].items():
        if not name.startswith("sdpa"):
            continue
        heads, places, width = (int(word.split("=")[1]) for word in name.split()[1:])
        size = 2.0 * heads * places * width
        call = known.chip["host_call"] + 3 * size / known.chip["host_in"] + size / known.chip["host_out"]
        left.append([1.0, 2.0 * places * places * width])
        right.append((record["min_us"] - call) / heads)
    head, slope = np.linalg.lstsq(np.array(left), np.array(right), rcond=None)[0]
    return float(head), float(1 / slope)


def watts(rows: Sequence[dict[str, Any]], target: str) -> dict[str, Any] | None:
    """The most that the engine of a chip was seen to take."""
    if target in POWER:
        return POWER[target]
    most = max(
        (row for row in rows if row["target"] == target and row.get("ane_w")),
        key=lambda row: row["ane_w"],
        default=None,
    )
    if most is None:
        return None
    note = f"the most of {target}'s rows: {most['workload']}, {most['chip']}"
    return {"v": round(most["ane_w"], 1), "src": ["silicon"], "conf": "measured", "note": note}


def spread(errors: np.ndarray) -> list[float]:
    """Measured over predicted, its 10th and 90th percentile."""
    return [round(float(each), 3) for each in np.quantile(np.exp(-errors), (0.1, 0.9))]


def written(rows: Sequence[dict[str, Any]], x: np.ndarray, parts: dict[str, np.ndarray]) -> dict[str, Any]:
    fitted = [row for row in rows if is_fitted(row)]
    informed = Fit(fitted).informed(x)
    head, rate = native_attention(constants(x, "h17s"))
    native = {
        "src": ["AF.costjson"],
        "conf": "inferred",
        "note": "a line through four native attention calls of an M5 Pro",
    }
    owners = np.array([row["target"] for row in rows])

    def chip(target: str) -> dict[str, Any]:
        own = [row for row in fitted if row["target"] == target]
        leaning = [target, TIES[target]] if len(own) < FEW and target in TIES else [target]
        return {
            "constants": {name: _plain(each) for name, each in constants(x, target).chip.items()},
            "informed": {name: int(informed[place(name, target)]) for name in CHIP},
            "engines": ENGINES.get(target, 1),
            "rows": len(own),
            "spread": spread(parts["five folds"][np.isin(owners, leaning)]),
            "sources": sorted({row["source"] for row in own}),
        }

    return {
        "meta": {
            "title": "Constants of the cost model",
            "note": "fitted by tools/fit_cost.py to the public measurements of silicon/train.json",
            "units": "calls and layer in us; rates per us: bytes, multiply-adds, elements; factors are plain",
            "rows": len(fitted),
        },
        "evidence": [],
        "starts": {name: why for name, (*_, why) in (*CHIP.items(), *SHARED.items())},
        "spread": {"extrapolated": spread(parts["chips"])},
        "shared": {
            "constants": {name: _plain(np.exp(x[OWN + i])) for i, name in enumerate(SHARED)},
            "informed": {name: int(informed[OWN + i]) for i, name in enumerate(SHARED)},
        },
        "stated": {
            **STATED,
            "attention_head": {"v": _plain(head), **native},
            "attention_macs": {"v": _plain(rate), **native},
        },
        "power": {target: record for target in TARGETS if (record := watts(rows, target))},
        "chips": {target: chip(target) for target in TARGETS},
        "extrapolation": EXTRAPOLATION,
    }  # fmt: skip


def validated(rows: Sequence[dict[str, Any]], x: np.ndarray) -> dict[str, np.ndarray]:
    """Errors of rows that the fit did not see, by what was left out."""
    ways: dict[str, Callable[[], np.ndarray]] = {
        "five folds": lambda: left_out(rows, folds(rows), x),
        "sources": lambda: left_out(rows, [row["source"] for row in rows], x),
        "chips": lambda: unseen(rows, x, published=True),
        "chips, nothing published": lambda: unseen(rows, x, published=False),
    }
    found = {}
    for way, errors in ways.items():
        found[way] = errors()
        print(f"{way} left out: {told(found[way])}", file=sys.stderr)
    return found


def told(errors: np.ndarray) -> str:
    sizes = 100 * np.abs(np.expm1(errors))
    return (
        f"median {np.median(sizes):.1f} %, mean {sizes.mean():.1f} %, 90th percentile {np.quantile(sizes, 0.9):.1f} %"
    )


def measured_rows(folder: Path) -> list[dict[str, Any]]:
    return [row for row in read_rows(folder / "train.json") if row["quality"] not in NOT_FITTED]


def main() -> int:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    if folder is None or not (folder / "train.json").is_file():
        print("say: python tools/fit_cost.py FOLDER, the one that holds train.json", file=sys.stderr)
        return 2
    rows = measured_rows(folder)
    x = Fit([row for row in rows if is_fitted(row)]).solved(FIRST, 30)
    print(f"fitted: {told(Fit(rows).residuals(x))}", file=sys.stderr)
    DATA.write_text(_lines(written(rows, x, validated(rows, x))), encoding="utf-8")
    return 0


def _plain(value: float) -> float:
    return float(f"{value:.5g}")


def _lines(document: dict[str, Any]) -> str:
    """One record on one line, as the other data files are."""
    parts = []
    for key, value in document.items():
        if key in ("chips", "power", "stated"):
            inner = ",\n".join(f'"{name}":{json.dumps(each, separators=(",", ":"))}' for name, each in value.items())
            parts.append(f'"{key}":{{\n{inner}}}')
        elif isinstance(value, list) and value:
            inner = ",\n".join(json.dumps(each, separators=(",", ":")) for each in value)
            parts.append(f'"{key}":[\n{inner}]')
        else:
            parts.append(f'"{key}":{json.dumps(value, separators=(",", ":"))}')
    return "{" + ",\n".join(parts) + "}\n"


if __name__ == "__main__":
    sys.exit(main())
