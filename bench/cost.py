"""How far the cost model is from public measurements that it did not see: ``python bench/cost.py FACTS``.

Prints figures of what was left out of the fit only: whole families of networks, sources and chips, as
``tools/fit_cost.py`` recorded them (``bench/left_out.json``). FACTS holds the measurements. ``--markdown`` prints the
page of the documentation, ``--plot FILE.svg`` draws its picture. Also the time to estimate ResNet-50 for all targets.
Figures only.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import cost_intervals as intervals
import cost_samples as samples
import numpy as np
from cost_samples import LeftOutErrors, Sample
from networks import resnet50
from peer_times import KEPT

from aneforge.cost.constants import physique_of
from aneforge.cost.estimate import estimate_program
from aneforge.graph.graph import Graph
from aneforge.study.programs import compile_all
from aneforge.svg import GREY, MARGIN, SMALL, WIDTH, Log, Spot, sheet

WAYS = {
    "families": "all networks of one family",
    "sources": "all rows of one source",
    "machines": "all rows of one machine",
    "chips": "all rows of one chip, which then takes its neighbour's factors",
}
HEAD = ("rows", "mean %", "median %", "typical factor", "90th %", "bias %", "in the interval %")
COLLECTIONS = ("silicon", "second", "third")
Key = Callable[[Sample], str]


class LeftOut:
    """Rows and the logarithm of estimated over measured for each, where its kind was left out of the fit."""

    def __init__(self, rows: Sequence[Sample], errors: Mapping[str, LeftOutErrors], way: str) -> None:
        self.way = way
        self.rows = [row for row in rows if row.id in errors and way in errors[row.id].by_way]
        self.errors = np.array([errors[row.id].by_way[way] for row in self.rows])
        self.inside = np.full(len(self.rows), np.nan)
        shares = np.array([errors[row.id].shares for row in self.rows]).reshape(-1, 2)
        groups = samples.groups_of(self.rows, way)
        for network in (True, False):
            mine = np.array([row.network == network for row in self.rows], bool)
            if mine.any():
                own = [group for group, is_mine in zip(groups, mine, strict=True) if is_mine]
                self.inside[mine] = intervals.inside(self.errors[mine], shares[mine], own)

    def of(self, wanted: Callable[[Sample], bool]) -> LeftOut:
        some = LeftOut([], {}, self.way)
        kept = [place for place, row in enumerate(self.rows) if wanted(row)]
        some.rows, some.errors = [self.rows[place] for place in kept], self.errors[kept]
        some.inside = self.inside[kept]
        return some

    def figures(self) -> str:
        inside = "-" if np.isnan(self.inside).all() else f"{100 * np.nanmean(self.inside):.0f}"
        return f"{_figures(self.errors)} | {100 * np.median(np.expm1(self.errors)):+.1f} | {inside}"

    def table(self, title: str, key: Key, least: int = 3) -> list[str]:
        lines = [f"| {title} | {' | '.join(HEAD)} |", "| --- " + "| ---: " * len(HEAD) + "|"]
        counts = Counter(map(key, self.rows))
        for name in sorted(counts, key=lambda name: (-counts[name], name)):
            mine = self.of(lambda row, name=name: key(row) == name)
            if len(mine.rows) >= least:
                lines.append(f"| {name} | {mine.figures()} |")
        return lines

    def worst(self, count: int = 12) -> list[str]:
        """The rows that are furthest off."""
        order = np.argsort(-np.abs(self.errors))[:count]
        lines = ["| row | chip | source | measured ms | estimated ms |", "| --- | --- | --- | ---: | ---: |"]
        for place in order:
            row, ms = self.rows[place], self.rows[place].us / 1000
            estimate = ms * np.exp(self.errors[place])
            lines.append(f"| {row.name} | {row.chip} | {row.source} | {ms:.3g} | {estimate:.3g} |")
        return lines


def _figures(errors: np.ndarray) -> str:
    sizes = 100 * np.abs(np.expm1(errors))
    return (
        f"{len(errors)} | {sizes.mean():.1f} | {np.median(sizes):.1f} | {np.exp(np.abs(errors).mean()):.2f} | "
        f"{np.quantile(sizes, 0.9):.1f}"
    )


START_US = 100.0
"""What the roofline takes for starting a call, where the scope has one."""


def roofline(row: Sample) -> float | None:
    """Microseconds by the sheet of specifications alone: announced operations, and the memory's bandwidth."""
    us = _bare_roofline(row)
    return us if us is None or row.scope in ("slope", "device_task") else START_US + us


def _bare_roofline(row: Sample) -> float | None:
    chip, record = physique_of(row.chip), row.row
    if row.network:
        macs, moved = (record["flops_g"] or 0) * 1e9, (record["params_m"] or 0) * 2e6
        macs = macs if record["flops_kind"] == "MACs" else macs / 2
        return max(macs / chip.macs, moved / chip.memory) if macs else None
    double = 2.0 if any(work.integers for work in row.works) else 1.0
    macs = sum(work.repeat * work.macs for work in row.works)
    weights = sum(work.weight_bytes * (1 if work.shared else work.repeat) for work in row.works)
    return max(macs / chip.macs / double, (weights + row.ports.read + row.ports.written) / chip.memory) or None


def beside_roofline(left_out: LeftOut) -> list[str]:
    """The same rows by a spec-sheet roofline, and those of them that the other package estimates, by collection."""
    lines = [
        f"| collection | {' | '.join(HEAD[:5])} | roofline (rows) | other package (rows) | ours on these |",
        "| --- " + "| ---: " * 8 + "|",
    ]
    peer = json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.is_file() else {}
    for network, words in ((False, "layers"), (True, "networks")):
        for name in COLLECTIONS:
            mine = left_out.of(
                lambda row, name=name, network=network: (row.collection, row.network) == (name, network)
            )
            if mine.rows:
                sheet = [(roofline(row), row.us) for row in mine.rows]
                sizes = [abs(math.log(us / measured)) for us, measured in sheet if us]
                factor = f"{math.exp(sum(sizes) / len(sizes)):.2f} ({len(sizes)})" if sizes else "-"
                lines.append(f"| {name}: {words} | {_figures(mine.errors)} | {factor} | {_beside(mine, peer)} |")
    return lines


def _beside(mine: LeftOut, peer: Mapping[str, float]) -> str:
    """The typical factor of the other package on the rows that it estimates, and ours on these."""
    both = [
        (error, math.log(peer[row.id] / row.us))
        for row, error in zip(mine.rows, mine.errors, strict=True)
        if row.id in peer
    ]
    if not both:
        return "- | -"
    ours, theirs = (math.exp(sum(map(abs, errors)) / len(both)) for errors in zip(*both, strict=True))
    return f"{theirs:.2f} ({len(both)}) | {ours:.2f}"


def page(rows: Sequence[Sample], errors: Mapping[str, LeftOutErrors]) -> list[str]:
    ways = {way: LeftOut(rows, errors, way) for way in WAYS}

    def layers(way: str) -> LeftOut:
        return ways[way].of(lambda row: not row.network)

    def networks(way: str) -> LeftOut:
        return ways[way].of(lambda row: row.network)

    lines = [
        "<!-- Generated by `python bench/cost.py FACTS --markdown`: change its source, not this page. -->",
        "",
        "# How good the estimates are",
        "",
        f"The cost model is fitted to {sum(not row.network for row in rows)} public measurements of layers and "
        f"{sum(row.network for row in rows)} of whole networks. Every figure on this page is about rows that a fit "
        "did not see: all networks of a family, all rows of a source or of a chip were left out, the rest was fitted "
        "again, and what was left out was estimated. The typical factor is the exponential of the mean absolute "
        "logarithm of estimated over measured; two sources that measured the same network on the same chip differ by "
        "1.16 in the median. An interval should hold eight rows of ten: its width for a row comes from what was left "
        "out of the other sources, machines, chips or families. " + _about_rows(rows),
        "",
        f"| left out | {' | '.join(HEAD)} |",
        "| --- " + "| ---: " * len(HEAD) + "|",
    ]
    for way, words in WAYS.items():
        for kind, mine in (("layers", layers(way)), ("networks", networks(way))):
            if mine.rows:
                lines.append(f"| {words}: {kind} | {mine.figures()} |")
    undisputed = layers("sources").of(lambda row: row.source not in samples.DISPUTED)
    lines += [
        f"| {WAYS['sources']}, without the disputed sources: layers | {undisputed.figures()} |",
        "",
        "## By collection, the source left out, beside a roofline",
        "",
        f"The roofline is the longer of announced operations and published memory bandwidth, and {START_US:.0f} us to "
        "start a call, on the same rows. The other package is the public one of the same name (0.4.0), on the layers "
        "that can be written with its functions (`bench/peer_times.py`).",
        "",
        *beside_roofline(ways["sources"]),
        "",
        "![Measured and estimated times of whole networks](pictures/networks.svg)",
        "",
        "## Networks by family, the family left out",
        "",
        *networks("families").table("family", lambda row: row.family, 1),
        "",
        "## Networks by chip, the family left out",
        "",
        *networks("families").table("chip", lambda row: row.chip, 1),
        "",
        "## The networks that are furthest off",
        "",
        *networks("families").worst(),
        "",
        "## Layers by source, the source left out",
        "",
        *layers("sources").table("source", lambda row: row.source),
        "",
        "## Layers by kind of work, the source left out",
        "",
        *layers("sources").table("kind of work", lambda row: row.family),
        "",
        "## Rows by chip, the source left out",
        "",
        *ways["sources"].table("chip", lambda row: row.chip, 1),
        "",
        "## All rows by chip, the chip left out",
        "",
        *ways["chips"].table("chip", lambda row: row.chip, 1),
        *WEAK,
    ]
    return lines


def _about_rows(rows: Sequence[Sample]) -> str:
    """How many rows are disputed, and why."""
    disputed = sum(row.source in samples.DISPUTED for row in rows)
    why = "; ".join(f"{source}: {reason}" for source, reason in samples.DISPUTED.items())
    return f"Of these rows {disputed} are of disputed sources ({why}), which count where nothing else is said."


_PHONE, _MAC = "#0072b2", "#d55e00"


def picture(left_out: LeftOut) -> str:
    """Measured along, estimated up; a dot for each network whose family was left out of the fit."""
    drawing, top = sheet("Whole networks: measured and estimated", "Milliseconds of one call on logarithmic axes")
    top = drawing.legend(top, [(_PHONE, _PHONE, "phones"), (_MAC, _MAC, "Macs and iPads")])
    left, right, bottom = 80.0, WIDTH - MARGIN, top + 520.0
    along, up = Log(0.2, 3000.0, left, right), Log(0.2, 3000.0, bottom, top)
    for scale, is_along in ((along, True), (up, False)):
        for value, words in scale.ticks():
            place = scale(value)
            ends = ((place, top), (place, bottom)) if is_along else ((left, place), (right, place))
            drawing.line(*ends, stroke="#dddddd")
            spot = Spot(place, bottom + 16, "middle") if is_along else Spot(left - 6, place + 4, "end")
            drawing.text(spot, words, SMALL)
    drawing.line((along(0.2), up(0.2)), (along(3000.0), up(3000.0)), stroke=GREY)
    for row, error in zip(left_out.rows, left_out.errors, strict=True):
        ms, estimate = row.us / 1000, row.us / 1000 * math.exp(error)
        fill = _PHONE if row.chip.startswith("A") else _MAC
        hover = f"{row.name} on {row.chip}: {ms:g} ms measured, {estimate:.2f} estimated"
        drawing.mark("circle", hover, cx=along(ms), cy=up(estimate), r=3.5, fill=fill, fill_opacity=0.7)
    words = "Measured ms along, estimated ms up, with all networks of the family left out of the fit."
    return drawing.svg(drawing.paragraph(bottom + 26, words) + 8)


WEAK = [
    "",
    "## Where the model is weak",
    "",
    "- **The call.** Phones of 2019 took 3 ms to start one (iOS 13), those of 2023 a fifth of a millisecond. A call",
    "  of a chip that nobody measured follows the year of the chip, and small networks are mostly call.",
    "- **Channel shuffles.** ShuffleNets are half slower than estimated, and more so the wider they are.",
    "- **Stable Diffusion.** The published times are those of a network that was rewritten for the engine",
    "  (split attention); what is estimated is the network as the library writes it.",
    "- **Norms along the width.** Authored directly they are measured eight times slower than networks that were",
    "  converted imply; the estimate follows the scope of the call.",
    "- **The M3.** All its rows are of one source, which started the engine by its registers; with that source left",
    "  out the start of its tasks is estimated too short.",
    "- **Large Macs.** Rows of an M2 Max and an M1 Ultra are few, and their sources disagree.",
    "- **The native attention layer** is a line through four calls of one M5 Pro.",
    "- **What is not on the engine** (an embedding, a vocabulary of 50,000 words on an M1) is a wide band of assumed",
    "  rates (U75); such networks are not among these rows.",
]


def estimate_seconds() -> float:
    """To estimate a compiled ResNet-50 for all targets."""
    programs = compile_all(Graph([resnet50()]))
    start = time.perf_counter()
    for program in programs.values():
        estimate_program(program, "coreml_call")
    return time.perf_counter() - start


def main() -> int:
    parser = argparse.ArgumentParser(description="Errors of the cost model on measurements that it did not see.")
    parser.add_argument("facts", type=Path, help="the folder that holds silicon/train.json and second/latency.json")
    parser.add_argument("--markdown", action="store_true", help="print docs/reference/cost-accuracy.md")
    parser.add_argument("--plot", type=Path, help="write the picture of the page to this SVG file")
    chosen = parser.parse_args()
    if not (chosen.facts / "silicon" / "train.json").is_file():
        parser.error(f"{chosen.facts}: no silicon/train.json in this folder")
    errors = samples.read_errors()
    rows = [*samples.layers(chosen.facts), *samples.judged_networks(chosen.facts, errors)]
    rows = [row for row in rows if row.fitted]
    if chosen.plot:
        networks = LeftOut([row for row in rows if row.network], errors, "families")
        chosen.plot.write_text(picture(networks), encoding="utf-8")
    print("\n".join(page(rows, errors)))
    if not chosen.markdown:
        print(f"\nResNet-50 on all targets, compiled: {estimate_seconds():.3f} s to estimate")
    return 0


if __name__ == "__main__":
    sys.exit(main())
