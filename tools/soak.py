"""Random graphs through everything that answers: ``python tools/soak.py [--graphs 10000] [--seconds 600] [--seed N]``.

Each graph is checked on chips of the 28 targets in turn: check, partition and compile must agree, the exact simulator
must be near the float64 reference, plain and native kernels, the saved program and the program read back from its
container must give the same bits, and the Core ML package must read back as the same graph. A disagreement is made as
small as it goes and written to ``--out``. Exit status 1 where there is one.
"""

from __future__ import annotations

import argparse
import multiprocessing
import re
import sys
import time
import traceback
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from campaign_counts import record
from soaking.checks import disagreements, exported
from soaking.graphs import Recipe, drawn, recipe

from aneforge.chips import all_targets

_EXPORTED = 5
"""Every so many graphs one is exported, which takes longer than all else."""
_CHIPS = 2
"""For each graph."""


def problems(of: Recipe, chips: tuple[str, ...], export: bool) -> list[str]:
    """What disagrees about a graph; a fault of ours is a disagreement too."""
    try:
        case = drawn(of)
        found = [f"{chip}: {line}" for chip in chips for line in disagreements(case, chip)]
        return [*found, *(exported(case) if export else ())]
    except Exception:
        return [traceback.format_exc(limit=-3)]


def _kind(problem: str) -> str:
    """The same for two problems of one sort."""
    return re.sub(r"[0-9]+|'[^']*'", "", problem.strip().splitlines()[-1])[:60]


def smallest(of: Recipe, chips: tuple[str, ...], export: bool, kind: str) -> Recipe:
    """The recipe without the steps that a disagreement of this sort does not need."""
    place = 0
    while place < len(of.steps):
        shorter = of.without(place)
        if kind in map(_kind, problems(shorter, chips, export)):
            of = shorter
        else:
            place += 1
    return of


def _work(order: tuple[int, float]) -> tuple[int, str, list[str], str]:
    number, deadline = order
    if time.time() > deadline:
        return number, "", [], "late"
    names = [target.name for target in all_targets(only_28=True)]
    chips = tuple(names[(number * _CHIPS + place) % len(names)] for place in range(_CHIPS))
    export = number % _EXPORTED == 0 and find_spec("coremltools") is not None
    of = recipe(number)
    found = problems(of, chips, export)
    if found:
        of = smallest(of, chips, export, _kind(found[0]))
        found = problems(of, chips, export) or found
    return number, f"{of} on {', '.join(chips)}", found, "exported" if export else "done"


def main() -> int:
    parser = argparse.ArgumentParser(description="Random graphs through everything that answers about them.")
    parser.add_argument("--graphs", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=600, help="stop after so long (default: 600)")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0, help="the first graph; the next ones follow")
    parser.add_argument("--record", action="store_true", help="keep the counts for docs/reference/reliability.md")
    parser.add_argument("--out", type=Path, default=Path("soak-findings"))
    chosen = parser.parse_args()
    deadline = time.time() + chosen.seconds
    orders = [(chosen.seed + number, deadline) for number in range(chosen.graphs)]
    counts: Counter[str] = Counter()
    findings = 0
    with multiprocessing.get_context("spawn").Pool(chosen.workers, maxtasksperchild=400) as pool:
        for number, words, found, state in pool.imap_unordered(_work, orders, chunksize=4):
            counts[state] += 1
            done = counts["done"] + counts["exported"]
            if state != "late" and done % 100 == 0:
                print(f"{done:,} graphs, {findings} findings", file=sys.stderr)
            if found:
                findings += 1
                chosen.out.mkdir(exist_ok=True)
                (chosen.out / f"graph-{number}.txt").write_text("\n".join([words, *found, ""]))
                print(f"graph {number}: {words}: {found[0].strip().splitlines()[-1]}")
    done = counts["done"] + counts["exported"]
    print(f"{done:,} graphs on {_CHIPS} of 28 targets each, {counts['exported']:,} exported; {findings} findings")
    if chosen.record:
        counted = {"graphs": done, "targets": _CHIPS, "exported": counts["exported"], "findings": findings}
        record("soak", {"seconds": chosen.seconds, "seed": chosen.seed, **counted})
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
