# pyright: reportMissingImports=false
"""Fit the cost model: ``python tools/fit_cost.py FACTS SKETCHES``; needs SciPy, as nothing else does.

FACTS holds ``silicon/train.json``, ``second/latency.json`` (layers) and ``silicon/models_train.json`` (networks);
SKETCHES the networks as ``bench/models.py`` builds them. One set of coefficients is fitted for all chips, and factors
of its own for each measured chip (least squares on the logarithm of the times, a soft loss against outliers, and a
pull towards plausible values that decides where nothing was measured). Then whole families of networks, sources and
chips are left out in turn, and ``cost_fit.json`` is written with the intervals that those errors give. Seal it
afterwards with ``python tools/import_facts.py --seal``.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

# Processes share the cores. Threads of a matrix library in each of them wait for one another: five times as long.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from cost_starts import COEFFICIENTS, ENGINE, GATES, MACHINE, POWER, STATED

try:
    from scipy.optimize import least_squares
except ImportError:
    sys.exit("fit_cost: it needs SciPy, which nothing else does. Install it: pip install scipy")

from aneforge.chips import store
from aneforge.chips.names import target as find_target
from aneforge.cost.constants import physique_of
from aneforge.reports.workers import cores

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "bench"))

import cost_intervals as intervals  # noqa: E402
import cost_samples as samples  # noqa: E402
from cost_samples import Sample, Timed  # noqa: E402

DATA = ROOT / "aneforge" / "chips" / "data" / "cost_fit.json"
WAYS = ("sources", "chips", "machines")
STEP = 1e-5
TELLS = 0.05  # a row tells a constant if one per cent of it moves the row's time by so much of one per cent
TELL = 3  # rows from which a machine or an engine has a factor of its own
WELL = 8  # rows from which an engine is known well: another that fewer tell must not beat it
LENT = ("weights", "spill", "host_call")  # as constants.py lends them; other calls and copies are a machine's own
AROUND = (
    "phone_call", "newer_call", "mac_call", "coreml_call", "coreai_call", "app_call", "metal_call", "host_call",
    "direct_call", "device_task", "host_in", "host_out", "host_in_published", "host_out_published", "coreml_io",
)  # fmt: skip
"""Constants of the call around the engine, whose own time they do not change."""
OF_TOOLS = ("coreml_call", "coreai_call", "direct_call", "host_call", "coreml_io")
ODD = float(np.log(2))  # calls or copies that one source alone sees this far from the law are its tool's (C73)
TIMES = ("layer", "device_task", "int8_bytes", "palette_bytes", "sparse_bytes")  # the engine is better with less
PUBLISHED = 3.0  # how strongly a machine is held to the stream that is published of it (C97)
SOFT = 0.08  # a row further off than this pulls ever less
WEIGHT = {"A": 0.7, "B": 0.55}  # of a network by the quality of its figure; a layer counts 1
"""These two were chosen among six pairs by what families, sources, chips and machines that were left out said: all of
them were better or equal with this one."""


class Fit:
    """Times of some samples as a function of the logarithms of all coefficients and factors.

    The unknowns are the coefficients, then a factor of every generation for each constant of ``ENGINE``, then one of
    every product for each of ``MACHINE``.
    """

    def __init__(self, rows: Sequence[Sample], chips: Sequence[str]) -> None:
        self.rows, self.chips = rows, list(chips)
        attention = {"attention_head": 0.0, "attention_macs": 1.0}  # no row that is fitted has the native layer
        self.timed = Timed(rows, self.chips, {name: record["v"] for name, record in STATED.items()} | attention)
        self.measured = np.log([row.us for row in rows])
        self.weight = np.array([WEIGHT.get(row.quality, 1.0) for row in rows])
        self.owner = np.array([self.chips.index(row.chip) for row in rows], int)
        self.generations = sorted({generation_of(chip) for chip in self.chips})
        self.generation = np.array([self.generations.index(generation_of(chip)) for chip in self.chips], int)
        starts = [start for start, _, _ in COEFFICIENTS.values()]
        blocks = len(ENGINE) * len(self.generations) + len(MACHINE) * len(self.chips)
        self.first = np.concatenate([np.log(starts), np.zeros(blocks)])
        pulls = [pull for _, pull, _ in COEFFICIENTS.values()]
        engine = np.repeat(list(ENGINE.values()), len(self.generations))
        machine = np.repeat(np.array(list(MACHINE.values()))[:, None], len(self.chips), axis=1)
        machine[list(MACHINE).index("weights"), np.asarray(self.timed.physique.stream) > 0] = PUBLISHED
        self.pull = np.concatenate([pulls, engine, machine.ravel()])
        self.sources = np.array([row.source for row in rows])
        self.tells = np.zeros((len(rows), len(self.first)), bool)
        """Which rows tell which unknown; from :meth:`learn`."""

    def blocks(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Views of the unknowns: coefficients, engines by generation, machines by product."""
        count, engines = len(COEFFICIENTS), len(ENGINE) * len(self.generations)
        return (
            x[:count],
            x[count : count + engines].reshape(len(ENGINE), -1),
            x[count + engines :].reshape(len(MACHINE), -1),
        )

    def constants(self, x: np.ndarray) -> tuple[dict[str, float], dict[str, np.ndarray]]:
        """The coefficients, and for each constant the factor of every chip."""
        coefficients, engines, machines = self.blocks(np.exp(x))
        own = dict(zip(ENGINE, engines[:, self.generation], strict=True)) | dict(zip(MACHINE, machines, strict=True))
        return dict(zip(COEFFICIENTS, coefficients.tolist(), strict=True)), own

    def errors(self, x: np.ndarray, engine: np.ndarray | None = None) -> np.ndarray:
        """The logarithm of predicted over measured."""
        return np.log(self.timed.us(*self.constants(x), engine)) - self.measured

    def slopes(self, x: np.ndarray) -> np.ndarray:
        """By differences. A row depends on the factors of one chip, so one step serves all chips."""
        engine = self.timed.engine_us(*self.constants(x))
        base, slopes = self.errors(x, engine), np.zeros((len(self.rows), len(x)))
        places, every = np.arange(len(x)), np.arange(len(self.rows))
        single, engines, machines = self.blocks(places)
        by_row = (engines, list(ENGINE), self.generation[self.owner]), (machines, list(MACHINE), self.owner)
        lines = [
            (name, np.array([place]), np.zeros(len(every), int))
            for name, place in zip(COEFFICIENTS, single, strict=True)
        ]
        lines += [
            (name, line, of_row) for block, names, of_row in by_row for name, line in zip(names, block, strict=True)
        ]
        for name, line, of_row in lines:
            moved = self.errors(x + STEP * np.isin(places, line), engine if name in AROUND else None)
            slopes[every, line[of_row]] = (moved - base) / STEP
        return slopes

    def solved(self, start: np.ndarray | None = None, kept: np.ndarray | None = None, most: int = 30) -> np.ndarray:
        rows = np.ones(len(self.rows), bool) if kept is None else kept

        def cost(x: np.ndarray) -> np.ndarray:
            return np.concatenate([(self.errors(x) * self.weight)[rows], self.pull * (x - self.first)])

        def slopes(x: np.ndarray) -> np.ndarray:
            return np.vstack([(self.slopes(x) * self.weight[:, None])[rows], np.diag(self.pull)])

        method: Any = slopes  # SciPy's stubs know only the names of its own
        first = self.first if start is None else start
        return least_squares(cost, first, method, loss="soft_l1", f_scale=SOFT, max_nfev=most).x

    def without(self, keys: Sequence[str], x: np.ndarray, of: np.ndarray) -> np.ndarray:
        """The error of every row among ``of`` when all rows of its key are left out of the fit."""
        owned, found = np.array(keys), np.full(len(self.rows), np.nan)
        parts = [owned == key for key in sorted(set(owned[of]))]
        parts.sort(key=np.count_nonzero, reverse=True)
        with ProcessPoolExecutor(cores(), get_context("fork")) as pool:  # a fork has the rows already
            for out, errors in zip(parts, pool.map(partial(self._errors_without, x), parts), strict=True):
                found[out] = errors[out]
        return found

    def _errors_without(self, x: np.ndarray, out: np.ndarray) -> np.ndarray:
        return self.errors(self.settled(self.solved(x, ~out, 6), ~out))

    def settled(self, fitted: np.ndarray, kept: np.ndarray | None = None) -> np.ndarray:
        """The unknowns as they are shipped: what few of the rows tell is replaced by what others tell."""
        kept = np.ones(len(self.rows), bool) if kept is None else kept
        _, engines, machines = self.blocks(fitted)  # views: what is written here changes the unknowns
        _, engine_rows, machine_rows = self.blocks(self.tells[kept].sum(axis=0))
        left = np.bincount(self.owner[kept], minlength=len(self.chips)) > 0
        self._settle_machines(machines, machine_rows, left, kept)
        self._settle_engines(engines, engine_rows, left)
        return fitted

    def _settle_machines(self, machines: np.ndarray, counts: np.ndarray, left: np.ndarray, kept: np.ndarray) -> None:
        """A machine with no row left takes its neighbour's factors of the memory and of a call from Python (U230).
        Other calls and copies are nobody's but the machine's (C73); what its rows do not tell follows the law."""
        first = len(self.first) - machines.size
        for number, chip in enumerate(self.chips):
            other = number if left[number] else self.chips.index(self._neighbour(chip, left))
            for line, key in enumerate(MACHINE):
                telling = self.tells[:, first + line * len(self.chips) + number] & kept
                is_far = key in OF_TOOLS and not physique_of(chip).phone and abs(machines[line, number]) > ODD
                is_odd = is_far and len(set(self.sources[telling])) == 1
                if other != number and key in LENT:
                    machines[line, number] = machines[line, other]
                elif counts[line, number] < TELL or is_odd:
                    machines[line, number] = 0.0

    def _settle_engines(self, engines: np.ndarray, counts: np.ndarray, left: np.ndarray) -> None:
        """An engine that few rows tell does not beat the next newer one that is known well; one without rows takes its
        neighbour's factors."""
        products = store.load("products")["products"]
        numbers = range(len(self.generations))
        years = [min(products[self.chips[i]]["year"] for i in np.flatnonzero(self.generation == n)) for n in numbers]
        for line, key in enumerate(ENGINE):
            better = -1.0 if key in TIMES else 1.0
            for number in sorted(numbers, key=years.__getitem__, reverse=True):
                newer = [n for n in numbers if years[n] > years[number] and counts[line, n] >= WELL]
                nearest = min(newer, key=years.__getitem__, default=None)
                ahead = nearest is not None and better * (engines[line, number] - engines[line, nearest]) > 0
                if counts[line, number] < WELL and ahead:
                    engines[line, number] = engines[line, nearest]
                elif not left[self.generation == number].any():
                    chip = self.chips[int(np.flatnonzero(self.generation == number)[0])]
                    other = self.chips.index(self._neighbour(chip, left))
                    engines[line, number] = engines[line, self.generation[other]]

    def _neighbour(self, chip: str, left: np.ndarray) -> str:
        products, like = store.load("products")["products"], chip
        for _ in products:
            like = products[like]["like"]
            if like in self.chips and left[self.chips.index(like)]:
                return like
        return next(name for name, has_rows in zip(self.chips, left, strict=True) if has_rows)

    def learn(self, x: np.ndarray) -> None:
        """Note which rows tell which unknown."""
        self.tells = np.abs(self.slopes(x)) > TELLS


def generation_of(chip: str) -> int:
    """The descriptor generation of a product's engine."""
    generation = find_target(chip).td_generation
    assert generation is not None
    return generation


def watts(rows: Sequence[Sample], target: str) -> dict[str, Any] | None:
    """The most that the engine of a target was seen to take."""
    if target in POWER:
        return POWER[target]
    told = [row for row in rows if row.target == target and row.watts]
    if not told:
        return None
    most = max(told, key=lambda row: row.watts)
    note = f"the most of {target}'s rows: {most.name}, {most.chip}"
    return {"v": round(most.watts, 1), "src": ["silicon"], "conf": "measured", "note": note}


def native_attention(fit: Fit, x: np.ndarray, facts: Path) -> tuple[float, float]:
    """Microseconds for a head, and multiply-adds per microsecond: a line through the published native calls."""
    chip = fit.timed.chip_constants(*fit.constants(x), "M5 Pro")
    left, right = [], []
    published = json.loads((facts / "cost_model.json").read_text(encoding="utf-8"))
    for name, record in published["m5pro_fits"]["bridge"].items():
        if not name.startswith("sdpa"):
            continue
        heads, places, width = (int(word.split("=")[1]) for word in name.split()[1:])
        size = 2.0 * heads * places * width
        call = chip["host_call"] + 3 * size / chip["host_in"] + size / chip["host_out"]
        left.append([1.0, 2.0 * places * places * width])
        right.append((record["min_us"] - call) / heads)
    head, slope = np.linalg.lstsq(np.array(left), np.array(right), rcond=None)[0]
    return float(head), float(1 / slope)


def written(fit: Fit, x: np.ndarray, left_out: dict[str, np.ndarray], facts: Path) -> dict[str, Any]:
    rows, (shared, own) = fit.rows, fit.constants(x)
    coefficients, engines, machines = fit.blocks(fit.tells.sum(axis=0))
    head, rate = native_attention(fit, x, facts)
    native = {"src": ["AF.costjson"], "conf": "inferred", "note": "a line through four native calls of an M5 Pro"}
    network, shares = np.array([row.network for row in rows]), fit.timed.shares(shared, own)

    def widths(errors: np.ndarray, of: np.ndarray) -> dict[str, float]:
        known = of & ~np.isnan(errors)
        return {part: round(width, 4) for part, width in intervals.widths(errors[known], shares[known]).items()}

    kinds = {"networks": network, "layers": ~network}

    def chip(number: int, name: str) -> dict[str, Any]:
        mine = fit.owner == number
        return {
            "own": {key: _plain(own[key][number]) for key in MACHINE},
            "informed": {key: int(machines[i, number]) for i, key in enumerate(MACHINE)},
            "rows": int(mine.sum()),
            "networks": int(sum(row.network for row, is_mine in zip(rows, mine, strict=True) if is_mine)),
            "sources": sorted({row.source for row, is_mine in zip(rows, mine, strict=True) if is_mine}),
        }

    def generation(number: int) -> dict[str, Any]:
        first = int(np.flatnonzero(fit.generation == number)[0])
        return {
            "own": {key: _plain(own[key][first]) for key in ENGINE},
            "informed": {key: int(engines[i, number]) for i, key in enumerate(ENGINE)},
        }

    return {
        "meta": {
            "title": "Constants of the cost model",
            "note": "fitted by tools/fit_cost.py to the public measurements of layers and of whole networks",
            "units": "calls and layer in us; rates per us: bytes, multiply-adds, elements; factors are plain",
            "rows": len(rows),
        },
        "evidence": [],
        "starts": {name: why for name, (*_, why) in COEFFICIENTS.items()},
        "widths": {
            way: {kind: widths(errors, of) for kind, of in kinds.items() if not np.isnan(errors[of]).all()}
            for way, errors in left_out.items()
        },
        "shared": {
            "constants": {name: _plain(value) for name, value in shared.items()},
            "informed": {name: int(coefficients[i]) for i, name in enumerate(COEFFICIENTS)},
        },
        "stated": {
            **STATED,
            "attention_head": {"v": _plain(head), **native},
            "attention_macs": {"v": _plain(rate), **native},
        },
        "gates": GATES,
        "power": {target: found for target in sorted({row.target for row in rows}) if (found := watts(rows, target))},
        "generations": {str(name): generation(number) for number, name in enumerate(fit.generations)},
        "chips": {name: chip(number, name) for number, name in enumerate(fit.chips)},
    }


def validated(fit: Fit, x: np.ndarray, only: Sequence[str] = ()) -> dict[str, np.ndarray]:
    """Errors of rows that the fit did not see, by what was left out."""
    network = np.array([row.network for row in fit.rows])
    every = np.ones(len(network), bool)
    ways: dict[str, Callable[[], np.ndarray]] = {
        "families": lambda: fit.without(samples.groups_of(fit.rows, "families"), x, network),
        **{way: partial(fit.without, samples.groups_of(fit.rows, way), x, every) for way in WAYS},
    }
    found = {}
    for way, errors in ways.items():
        if only and way not in only:
            continue
        found[way] = errors()
        for kind, mine in (("layers", ~network), ("networks", network)):
            known = found[way][mine & ~np.isnan(found[way])]
            if len(known):
                print(f"{way} left out, {kind}: {told(known)}", file=sys.stderr)
    return found


def told(errors: np.ndarray) -> str:
    sizes = 100 * np.abs(np.expm1(errors))
    return f"median {np.median(sizes):.1f} %, typically a factor of {np.exp(np.abs(errors).mean()):.3f}"


def main() -> int:
    if len(sys.argv) != 3 or not (Path(sys.argv[1]) / "silicon" / "train.json").is_file():
        print("say: python tools/fit_cost.py FACTS SKETCHES, FACTS with silicon/train.json in it", file=sys.stderr)
        return 2
    facts, sketches = Path(sys.argv[1]), Path(sys.argv[2])
    rows = [*samples.layers(facts), *(each for each in samples.networks(facts, sketches) if each.fitted)]
    fit = Fit(rows, [name for name in store.load("products")["products"] if any(row.chip == name for row in rows)])
    x = fit.solved()
    fit.learn(x)
    left_out = validated(fit, x)
    x = fit.settled(x)
    print(f"fitted to {len(rows)} rows: {told(fit.errors(x))}", file=sys.stderr)
    samples.write_errors(rows, left_out, fit.timed.shares(*fit.constants(x)))
    DATA.write_text(_lines(written(fit, x, left_out, facts)), encoding="utf-8")
    return 0


def _plain(value: float) -> float:
    return float(f"{value:.5g}")


def _lines(document: dict[str, Any]) -> str:
    """One record on one line, as the other data files are."""
    parts = []
    for key, value in document.items():
        if key in ("chips", "generations", "power", "stated", "gates"):
            inner = ",\n".join(f'"{name}":{json.dumps(each, separators=(",", ":"))}' for name, each in value.items())
            parts.append(f'"{key}":{{\n{inner}}}')
        else:
            parts.append(f'"{key}":{json.dumps(value, separators=(",", ":"))}')
    return "{" + ",\n".join(parts) + "}\n"


if __name__ == "__main__":
    sys.exit(main())
