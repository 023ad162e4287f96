"""A report as one page: a file that needs no network, with the rows inside and a script that shows them."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from aneforge.cost.calls import SCOPES
from aneforge.reports.document import Report
from aneforge.reports.evaluation.section import section_head, section_heads, section_rows
from aneforge.reports.pages import embedded, page_text
from aneforge.reports.plots.roofline import ABOVE_PEAK, ABOVE_SLOPE
from aneforge.reports.rows import ChipRow
from aneforge.text import human_bytes, plural

_SCRIPTS = ("theme.js", "rows.js", "base.js", "verdicts.js", "program.js", "tables.js", "panel.js")
_SECTIONS = (
    ("verdicts", "Verdicts"),
    ("matrix", "Operations by chips"),
    ("why", "Why not"),
    ("placed", "The program"),
    ("limits", "Time and memory"),
    ("help", "What if"),
    ("numbers", "Numbers"),
    ("accuracy", "Accuracy"),
    ("weights", "Weights"),
    ("ops", "Every operation"),
    ("measured", "What a Mac says"),
    ("provenance", "Provenance"),
)
_COLUMNS = (
    ("label", "chip"),
    ("verdict", "runs"),
    ("engine", "on the engine"),
    ("likely", "likely given"),
    ("us", "time"),
    ("span", "between"),
    ("energy", "mJ"),
    ("mostly", "mostly"),
    ("basis", "basis"),
)


def page(report: Report) -> str:
    """The page as text."""
    scale = _Scale(report)
    return page_text(
        "aneforge.reports",
        "page.html",
        _SCRIPTS,
        model=report.model,
        answer=_answer(report),
        sizes=_sizes(report),
        scope=SCOPES.get(report.scope, report.scope),
        sections=[row for row in _SECTIONS if row[0] not in ("measured", "accuracy") or getattr(report, row[0])],
        accuracy=None
        if report.accuracy is None
        else (section_head(report.accuracy), list(section_rows(report.accuracy))),
        accuracy_heads=section_heads(),
        chip_columns=_COLUMNS,
        right=("us", "engine", "energy"),
        chips=[_chip(chip, scale) for chip in report.chips],
        scale=scale.words,
        above_slope=ABOVE_SLOPE,
        above_peak=ABOVE_PEAK,
        **embedded(report.to_json()),
    )


_OTHERWISE = {
    "wrong": "whole with numbers that can be wrong on",
    "programs": "in several programs on",
    "part": "in part on",
    "unknown": "nobody knows of",
    "no": "not at all on",
}
"""What the first sentence says of chips that do not simply run it, by the grade of the verdict."""


def _answer(report: Report) -> tuple[str, str]:
    """Where it runs, and how long that takes."""
    count = len(report.chips)
    grades = Counter(chip.grade for chip in report.chips)
    if grades["yes"] == count:
        sentence = "It runs whole on the engine of " + ("this chip" if count == 1 else f"all {count} chips")
    elif grades["no"] == count:
        sentence = "No part of it runs on the engine of " + ("this chip" if count == 1 else f"these {count} chips")
    else:
        sentence = f"It runs whole on the engine of {grades['yes']} of {count} chips"
        sentence += "".join(f", {words} {grades[grade]}" for grade, words in _OTHERWISE.items() if grades[grade])
    known = [chip for chip in report.chips if chip.us is not None]
    sold = [chip for chip in known if chip.label != chip.target] or known  # products before names of the compiler
    timed = sorted(sold, key=lambda chip: chip.us or 0)
    if not timed:
        return sentence, ""
    fast, slow = timed[0], timed[-1]
    times = _us(fast.us) if fast is slow else f"{_us(fast.us)} ({fast.label}) to {_us(slow.us)} ({slow.label})"
    return sentence, f"; a call takes {times} by estimate"


def _sizes(report: Report) -> str:
    model = report.model
    ports = "; ".join(
        f"{port['name']} {'x'.join(map(str, port['shape']))}" for port in [*model["inputs"], *model["outputs"]][:6]
    )
    memory = max((chip.weight_bytes for chip in report.chips), default=0)
    return (
        f"{plural(model['operations'], 'operation')}, {plural(model['parameters'], 'parameter')} "
        f"({human_bytes(memory)} as stored); {ports}{_asked(model)}"
    )


def _asked(model: Mapping[str, Any]) -> str:
    """What the answers are about, as far as a report says it; older ones do not."""
    by = f"by {model['runtime']}, " if model.get("runtime") else ""
    return f"; {by}system {model['os']}" if model.get("os") else ""


class _Scale:
    """Times of very different chips on one line: by their logarithm."""

    def __init__(self, report: Report) -> None:
        ends = [end for chip in report.chips if chip.us is not None for end in (chip.us, *chip.interval) if end > 0]
        self.low, self.high = (min(ends), max(ends)) if ends else (1.0, 10.0)

    def at(self, us: float) -> float:
        """The place of a time, in percent."""
        if self.high <= self.low or us <= 0:
            return 0.0
        return round(100 * math.log(us / self.low) / math.log(self.high / self.low), 2)

    @property
    def words(self) -> str:
        return f"from {_us(self.low)} to {_us(self.high)} by factors"


def _chip(chip: ChipRow, scale: _Scale) -> dict[str, Any]:
    row: dict[str, Any] = {
        "anchor": _anchor(chip.name),
        "label": chip.label,
        "target": chip.target,
        "also": ", ".join(chip.also),
        "grade": chip.grade,
        "runs": chip.verdict.partition(":")[0],
        "on_engine": f"{chip.engine_ops:,} of {chip.ops:,}",
        "likely": chip.likely,
        "us": chip.us,
        "basis_measured": chip.basis_measured,
        "refused": chip.refused,
    }
    if chip.us is None:
        return row
    low, high = chip.interval
    return row | {
        "time": _us(chip.us),
        "low": scale.at(low),
        "high": scale.at(high),
        "at": scale.at(chip.us),
        "between": f"between {_us(low)} and {_us(high)}",
        "energy": "?" if chip.energy_mj is None else f"{chip.energy_mj:.3g}",
        "mostly": max(chip.shares, key=chip.shares.__getitem__, default=""),
        "basis_word": "fitted" if chip.basis_measured else "by law",
    }


def _anchor(name: str) -> str:
    """The end of a link to a chip, however its name was spelled: ``chip-m1-pro``."""
    return f"chip-{re.sub(r'[^a-z0-9]+', '-', name.casefold())}"


def _us(us: float | None) -> str:
    if us is None:
        return "?"
    return f"{us / 1000:,.3g} ms" if us >= 10_000 else f"{us:,.0f} µs"
