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
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import least_squares

from aneforge.cost.device import Constants
from aneforge.cost.evaluate import NOT_FITTED, predict_with, read_rows
from aneforge.cost.work import work_of_row
from aneforge.targets.assumed import compile_fact
from aneforge.targets.names import target as find_target

DATA = Path(__file__).resolve().parent.parent / "aneforge" / "targets" / "data" / "cost_fit.json"
TARGETS = ("h13", "h13g", "h14g", "h17", "h17s", "h18g")
ENGINES = {"h18g": 2}

# Plausible values in the order of TARGETS: calls in us, rates per us (bytes, multiply-adds, elements).
START: dict[str, tuple[float, ...]] = {
    "host_call": (200, 200, 90, 80, 75, 170),
    "coreml_call": (200, 200, 150, 110, 110, 145),
    "direct_call": (140, 140, 100, 80, 80, 100),
    "device_task": (60, 60, 40, 30, 30, 22),
    "host_in": (8e3, 12e3, 14e3, 22e3, 24e3, 20e3),
    "host_out": (8e3, 7e3, 9e3, 22e3, 24e3, 20e3),
    "coreml_io": (20e3, 20e3, 25e3, 35e3, 40e3, 60e3),
    "macs": (3.5e6, 5e6, 7e6, 9e6, 10e6, 9.9e6),
    "weights": (60e3, 60e3, 60e3, 90e3, 150e3, 145e3),
    "planar": (20e3, 30e3, 30e3, 60e3, 80e3, 200e3),
    "norms": (20e3, 30e3, 30e3, 40e3, 50e3, 50e3),
    "spill": (20e3, 24e3, 30e3, 40e3, 40e3, 80e3),
    "layer": (3.0, 3.0, 1.0, 0.6, 0.4, 0.15),
    "int8_bytes": (2.0, 2.0, 1.1, 1.4, 2.0, 1.0),
    "palette_bytes": (2.0, 2.0, 2.0, 2.0, 2.0, 1.1),
    "sparse_bytes": (1.2, 1.2, 1.2, 1.2, 1.1, 1.0),
}
SHARED = {
    "winograd": 1.4,
    "long_contraction": 2300.0,
    "long_power": 1.3,
    "computed_operand": 0.3,
    "integers": 1.9,
    "skipped_zeros": 0.8,
    "working_set": 3e6,
    "softmax": 2.0,
    "layer_norm": 8.0,
    "rms_norm": 15.0,
    "group_norm": 2.0,
    "reduce_sum": 0.3,
    "transpose": 1.0,
    "move": 1.0,
    "second_operand": 3.0,
    "ranked_row": 70.0,
}
PLACES = {(name, target): i for i, (name, target) in enumerate((n, t) for n in START for t in TARGETS)}
COMMON = {name: len(PLACES) + i for i, name in enumerate(SHARED)}
FIRST = np.log([*(START[n][TARGETS.index(t)] for n, t in PLACES), *SHARED.values()])

EXTRAPOLATION: list[dict[str, Any]] = [
    {
        "targets": ["h16g"],
        "from": "h17",
        "constants": {"macs": 9.3e6, "weights": 67e3},
        "taken": {"coreml_call": "h18g", "device_task": "h18g", "coreml_io": "h18g", "planar": "h18g"},
        "rule": "the M5's host constants; products and weight reads as published for an M4 (18.6 TFLOPS, 67 GB/s: MX, "
        "M6.arr); the Core ML call as on an M6, which the same study measured with the same system",
    },
    {
        "targets": ["m9"],
        "generations": [1, 4, 5, 6, 7, 10, 26],
        "from": "h13",
        "rule": "the M1's constants: no nearer chip was measured",
    },
    {"generations": [8, 11], "from": "h14g", "rule": "the M2's constants: no nearer chip was measured"},
    {"generations": [17], "from": "h17", "rule": "the M5's constants: no nearer chip was measured"},
    {"generations": [19], "from": "h17", "rule": "the M5's constants: the same generation"},
    {"generations": [20, 24], "from": "h18g", "rule": "one engine of the M6: no nearer chip was measured"},
]


def constants(x: np.ndarray, target: str) -> Constants:
    values = np.exp(x)
    chip = {name: float(values[PLACES[name, target]]) for name in START}
    shared = {name: float(values[place]) for name, place in COMMON.items()}
    winograd = bool(compile_fact(find_target(target), "winograd").value)
    return Constants(chip, shared, ENGINES.get(target, 1), winograd)


class Fit:
    def __init__(self, rows: Sequence[dict[str, Any]]) -> None:
        self.rows = [(row, work_of_row(row)) for row in rows]

    def residuals(self, x: np.ndarray) -> np.ndarray:
        known = {target: constants(x, target) for target in TARGETS}
        return np.array(
            [np.log(predict_with(row, work, known[row["target"]]) / row["latency_us"]) for row, work in self.rows]
        )

    def solved(self, start: np.ndarray, most: int) -> np.ndarray:
        def cost(x: np.ndarray) -> np.ndarray:
            return np.concatenate([self.residuals(x), 0.12 * (x - FIRST)])

        return least_squares(cost, start, loss="soft_l1", f_scale=0.12, max_nfev=most).x


def left_out(rows: Sequence[dict[str, Any]], keys: Sequence[Any], start: np.ndarray, most: int = 8) -> np.ndarray:
    """The residual of every row when all rows of its key are left out of the fit."""
    found = np.zeros(len(rows))
    for key in sorted(set(keys), key=str):
        kept = [row for row, own in zip(rows, keys, strict=True) if own != key]
        out = [place for place, own in enumerate(keys) if own == key]
        x = Fit(kept).solved(start, most)
        found[out] = Fit([rows[place] for place in out]).residuals(x)
        print(f"  without {key}: {len(out)} rows", file=sys.stderr)
    return found


NEAREST = {"h13": "h13g", "h13g": "h14g", "h14g": "h17", "h17": "h17s", "h17s": "h17", "h18g": "h17s"}
"""Whose constants a target would get if nobody had measured it."""


def unseen(rows: Sequence[dict[str, Any]], start: np.ndarray) -> np.ndarray:
    """The residual of every row when its chip is left out of the fit and gets its neighbour's constants."""
    found = np.zeros(len(rows))
    for target, other in NEAREST.items():
        x = Fit([row for row in rows if row["target"] != target]).solved(start, 8)
        known = constants(x, other)
        for place, row in enumerate(rows):
            if row["target"] == target:
                found[place] = np.log(predict_with(row, work_of_row(row), known) / row["latency_us"])
    return found


def main() -> int:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    if folder is None or not (folder / "train.json").is_file():
        print("say: python tools/fit_cost.py FOLDER, the one that holds train.json", file=sys.stderr)
        return 2
    rows = [row for row in read_rows(folder / "train.json") if row["quality"] not in NOT_FITTED]
    x = Fit(rows).solved(FIRST, 30)
    folds = left_out(rows, [sum(map(ord, row["id"])) % 5 for row in rows], x)
    chips = unseen(rows, x)
    ratio, far = np.exp(-folds), np.exp(-chips)
    document = {
        "meta": {
            "title": "Constants of the cost model",
            "note": "fitted by tools/fit_cost.py to the public measurements of silicon/train.json",
            "units": "calls and layer in us; rates per us: bytes, multiply-adds, elements; factors are plain",
        },
        "spread": {
            "measured": [round(float(np.quantile(ratio, q)), 3) for q in (0.1, 0.9)],
            "extrapolated": [round(float(np.quantile(far, q)), 3) for q in (0.1, 0.9)],
        },
        "shared": {"constants": _plain(constants(x, "h13").shared), "rows": len(rows), "conf": "inferred"},
        "chips": {
            target: {
                "constants": _plain(constants(x, target).chip),
                "engines": ENGINES.get(target, 1),
                "rows": sum(row["target"] == target for row in rows),
                "sources": sorted({row["source"] for row in rows if row["target"] == target}),
                "conf": "inferred",
            }
            for target in TARGETS
        },
        "extrapolation": EXTRAPOLATION,
    }
    DATA.write_text(_lines(document), encoding="utf-8")
    for name, errors in (
        ("fitted", Fit(rows).residuals(x)),
        ("five folds", folds),
        ("chips left out, their neighbour's constants", chips),
    ):
        sizes = np.abs(np.expm1(errors))
        told = f"median {100 * np.median(sizes):.1f} %, mean {100 * sizes.mean():.1f} %"
        print(f"{name}: {told}, 90th percentile {100 * np.quantile(sizes, 0.9):.1f} %")
    return 0


def _plain(values: Any) -> dict[str, float]:
    return {name: float(f"{value:.5g}") for name, value in values.items()}


def _lines(document: dict[str, Any]) -> str:
    """One record on one line, as the other data files are."""
    parts = []
    for key, value in document.items():
        if key in ("chips",):
            inner = ",\n".join(f'"{name}":{json.dumps(each, separators=(",", ":"))}' for name, each in value.items())
            parts.append(f'"{key}":{{\n{inner}}}')
        elif isinstance(value, list):
            inner = ",\n".join(json.dumps(each, separators=(",", ":")) for each in value)
            parts.append(f'"{key}":[\n{inner}]')
        else:
            parts.append(f'"{key}":{json.dumps(value, separators=(",", ":"))}')
    return "{" + ",\n".join(parts) + "}\n"


if __name__ == "__main__":
    sys.exit(main())
