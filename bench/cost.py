# pyright: reportMissingImports=false, reportMissingModuleSource=false
"""How far the cost model is from public measurements: ``python bench/cost.py SILICON_FOLDER`` (needs SciPy).

Three ways of leaving out: five folds, each source, and each chip (which then gets its neighbour's constants, as a chip
that nobody measured would). ``--markdown`` prints the page of the documentation. Also the time to estimate ResNet-50
for all targets. Figures only.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from networks import resnet50

from aneforge.compiler.compile import compile_all
from aneforge.cost.estimate import estimate_program
from aneforge.cost.evaluate import NOT_FITTED, read_rows
from aneforge.graph.graph import Graph

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools"))
import fit_cost

WAYS = {
    "five folds": "a fifth of the rows at a time, by their identifiers",
    "sources": "all rows of one source at a time",
    "chips": "all rows of one chip at a time; it gets the constants of its neighbour",
}


def errors_of(way: str, rows: Sequence[dict[str, Any]], x: np.ndarray) -> np.ndarray:
    if way == "chips":
        return fit_cost.unseen(rows, x)
    keys = [row["source"] if way == "sources" else sum(map(ord, row["id"])) % 5 for row in rows]
    return fit_cost.left_out(rows, keys, x, most=6)


def told(errors: np.ndarray) -> tuple[str, ...]:
    sizes = 100 * np.abs(np.expm1(errors))
    bias = 100 * np.median(np.expm1(errors))
    return f"{np.median(sizes):.1f}", f"{sizes.mean():.1f}", f"{np.quantile(sizes, 0.9):.1f}", f"{bias:+.1f}"


def table(rows: Sequence[dict[str, Any]], errors: np.ndarray, key: str, least: int = 5) -> list[str]:
    lines = [f"| {key} | rows | median % | mean % | 90th % | bias % |", "| --- | ---: | ---: | ---: | ---: | ---: |"]
    groups: dict[str, list[float]] = {}
    for row, error in zip(rows, errors, strict=True):
        groups.setdefault(str(row[key]), []).append(float(error))
    for name, found in sorted(groups.items(), key=lambda item: -len(item[1])):
        if len(found) >= least:
            lines.append(f"| {name} | {len(found)} | " + " | ".join(told(np.array(found))) + " |")
    return lines


def seconds_for_all_targets() -> tuple[float, int]:
    compiled = compile_all(Graph([resnet50()]))
    start = time.perf_counter()
    for program in compiled.values():
        estimate_program(program)
    return time.perf_counter() - start, len(compiled)


def main() -> None:
    folder = Path(next((word for word in sys.argv[1:] if not word.startswith("-")), "."))
    rows = [row for row in read_rows(folder / "train.json") if row["quality"] not in NOT_FITTED]
    x = fit_cost.Fit(rows).solved(fit_cost.FIRST, 30)
    found = {way: errors_of(way, rows, x) for way in WAYS}
    seconds, count = seconds_for_all_targets()
    if "--markdown" not in sys.argv:
        for way, errors in found.items():
            median, mean, high, bias = told(errors)
            print(f"{way} left out: median {median} %, mean {mean} %, 90th percentile {high} %, bias {bias} %")
        print(f"ResNet-50 estimated for {count} targets in {seconds:.2f} s")
        return
    print("\n".join(page(rows, found)))


def page(rows: Sequence[dict[str, Any]], found: dict[str, np.ndarray]) -> list[str]:
    lines = [
        "# How good the estimates are",
        "",
        f"Written by `python bench/cost.py FOLDER --markdown` from {len(rows)} public measurements "
        "(silicon/train.json of 2026; rows whose quality says that something else was measured are left out). The "
        "figures are errors of rows that the fit did not see.",
        "",
        "| left out | median % | mean % | 90th % | bias % |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    lines += [f"| {way}: {why} | " + " | ".join(told(found[way])) + " |" for way, why in WAYS.items()]
    for key, title in (("chip", "chip"), ("scope", "scope"), ("op_class", "kind of work")):
        lines += ["", f"## By {title}, sources left out", "", *table(rows, found["sources"], key)]
    lines += [
        "",
        "## Where the model is weak",
        "",
        "- The M1 and the M1 Max: few sources, which disagree with each other by more than the model with each.",
        "- A chip that nobody measured: its neighbour's constants may be off by a factor, above all for calls and",
        "  copies, which follow the host and the runtime more than the engine.",
        "- Planar chains on the M6, group norms over few places, and the fused attention layer.",
        "- Calls near the floor: what is measured there is the host.",
    ]
    return lines


if __name__ == "__main__":
    main()
