# pyright: reportMissingImports=false, reportMissingModuleSource=false
"""How far the cost model is from public measurements: ``python bench/cost.py SILICON_FOLDER`` (needs SciPy).

Leaves out five folds, each source, and each chip (which then gets its neighbour's constants, with and without what is
published of it), and predicts what was left out. ``--markdown`` prints the page of the documentation. Also the time to
estimate ResNet-50 for all targets. Figures only.
"""

from __future__ import annotations

import hashlib
import sys
import time
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
from networks import resnet50

from aneforge.compiler.compile import compile_all
from aneforge.cost.estimate import estimate_program
from aneforge.cost.evaluate import Figures, figures
from aneforge.graph.graph import Graph

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools"))
import fit_cost

WAYS = {
    "five folds": "a fifth of the rows at a time, by their identifiers",
    "sources": "all rows of one source at a time",
    "chips": "all rows of one chip at a time; it gets its neighbour's constants and what is published of it",
    "chips, nothing published": "the same with its neighbour's constants only",
}
HEAD = ("rows", "median %", "mean %", "90th %", "bias %", "rank", "equal-FLOP pairs")


def judged(rows: Sequence[dict[str, Any]], errors: np.ndarray) -> Figures:
    """Figures of predictions that are off by these logarithms."""
    made = {id(row): row["latency_us"] * float(np.exp(error)) for row, error in zip(rows, errors, strict=True)}
    return figures(rows, lambda row: made[id(row)])


def cells(found: Figures) -> str:
    right, total = found.pairs
    pairs = f"{right} of {total}" if total else "-"
    numbers = f"{found.median:.1f} | {found.mape:.1f} | {found.p90:.1f} | {found.bias:+.1f} | {found.rank:.3f}"
    return f"{found.rows} | {numbers} | {pairs}"


def table(rows: Sequence[dict[str, Any]], errors: np.ndarray, key: str, least: int = 5) -> list[str]:
    groups: dict[str, list[int]] = {}
    for i, row in enumerate(rows):
        groups.setdefault(str(row[key]), []).append(i)
    lines = [f"| {key} | {' | '.join(HEAD)} |", "| --- " + "| ---: " * len(HEAD) + "|"]
    for name, members in sorted(groups.items(), key=lambda item: -len(item[1])):
        if len(members) >= least:
            lines.append(f"| {name} | {cells(judged([rows[i] for i in members], errors[members]))} |")
    return lines


def seconds_for_all_targets() -> tuple[float, int]:
    compiled = compile_all(Graph([resnet50()]))
    start = time.perf_counter()
    for program in compiled.values():
        estimate_program(program)
    return time.perf_counter() - start, len(compiled)


def main() -> int:
    folder = Path(next((word for word in sys.argv[1:] if not word.startswith("-")), "."))
    if not (folder / "train.json").is_file():
        print("say: python bench/cost.py FOLDER, the one that holds train.json", file=sys.stderr)
        return 2
    rows = fit_cost.measured_rows(folder)
    x = fit_cost.Fit([row for row in rows if fit_cost.is_fitted(row)]).solved(fit_cost.FIRST, 30)
    found = {"nothing": fit_cost.Fit(rows).residuals(x), **fit_cost.validated(rows, x)}
    if "--markdown" in sys.argv:
        print("\n".join(page(rows, found, _dated(folder / "train.json"))))
        return 0
    for way, errors in found.items():
        told = judged(rows, errors)
        right, total = told.pairs
        print(
            f"{way} left out: median {told.median:.1f} %, mean {told.mape:.1f} %, 90th percentile {told.p90:.1f} %, "
            f"bias {told.bias:+.1f} %, rank {told.rank:.3f}, equal-FLOP pairs {right} of {total}"
        )
    seconds, count = seconds_for_all_targets()
    print(f"ResNet-50 estimated for {count} targets in {seconds:.2f} s")
    return 0


def _dated(file: Path) -> str:
    """Which data: there is no date in it, so the day of the run and the first digits of its hash."""
    digest = hashlib.sha256(file.read_bytes()).hexdigest()[:12]
    return f"silicon/train.json, sha256 {digest}, read on {datetime.now(timezone.utc).date()}"


def page(rows: Sequence[dict[str, Any]], found: dict[str, np.ndarray], data: str) -> list[str]:
    lines = [
        "# How good the estimates are",
        "",
        f"Written by `python bench/cost.py FOLDER --markdown` from {len(rows)} public measurements "
        f"({data}; rows whose quality says that something else was measured are left out). Every "
        "table but the first line of this one is about rows that the fit did not see. The rank is Spearman's within "
        "sources of at least four rows, weighted by their rows; a pair has equal FLOPs in one source, chip and scope, "
        "and times at least a tenth apart.",
        "",
        f"| left out | {' | '.join(HEAD)} |",
        "| --- " + "| ---: " * len(HEAD) + "|",
        f"| nothing: the fit itself | {cells(judged(rows, found['nothing']))} |",
    ]
    lines += [f"| {way}: {why} | {cells(judged(rows, found[way]))} |" for way, why in WAYS.items()]
    for key, title in (("chip", "chip"), ("scope", "scope"), ("op_class", "kind of work"), ("source", "source")):
        lines += ["", f"## By {title}, sources left out", "", *table(rows, found["sources"], key)]
    lines += ["", "## By chip, each left out", "", *table(rows, found["chips"], "chip"), *WEAK]
    return lines


WEAK = [
    "",
    "## Where the model is weak",
    "",
    "- **Calls near the floor.** Below about 100 us the host decides, and the same call differs by a third between",
    "  two runs of one machine. Ranks within sources suffer most from these: a handful of calls near the floor has no",
    "  order that a model could know.",
    "- **The M1 and the M2 families.** Few sources, which disagree with each other by more than the model with each;",
    "  an M2 Max copies at half the rate that the M2 Pro's rows imply, and both are one target.",
    "- **A chip that nobody measured.** Its products and weight reads may be published, its calls and copies are not;",
    "  they follow the host and the runtime more than the engine.",
    "- **Rows that are no whole lines of 64 bytes.** Calls from Python copy them one by one, at a stated cost that a",
    "  dozen calls of two chips tell; anchors of an M1 Max with large weights are still up to half slower.",
    "- **Norms.** One rate serves all norms of a chip; on an M6 layer norms are faster and softmax slower than that.",
    "- **int8 on both sides, and half sparse 3x3 kernels** on the M6: rates differ by shape in ways that the rows do",
    "  not explain.",
    "- **The native attention layer** is a line through four calls of one M5 Pro. Rows do not say if an attention",
    "  was the native layer, so `predict` takes it as products and a softmax and is half too low for three of them.",
    "- **Grouped convolutions.** No row has any: the channels of a group are rounded up to the lanes (U56).",
]


if __name__ == "__main__":
    sys.exit(main())
