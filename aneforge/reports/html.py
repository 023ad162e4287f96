"""A report as one page: a file that needs no network, with the rows inside and a script that shows them."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from aneforge.cost.calls import SCOPES
from aneforge.reports.answer import KINDS, LINES, OTHERS, Headline, answers, asks_for_range, joined, line_of, us_text
from aneforge.reports.document import Report
from aneforge.reports.evaluation.section import section_head, section_heads, section_rows
from aneforge.reports.pages import embedded, page_text
from aneforge.reports.rows import ChipRow
from aneforge.text import human_bytes, plural

_SCRIPTS = (
    "theme.js",
    "rows.js",
    "base.js",
    "first.js",
    "reasons.js",
    "map.js",
    "program.js",
    "tables.js",
    "panel.js",
)
_SECTIONS = (
    ("verdicts", "Verdicts"),
    ("why", "Why not"),
    ("help", "What if"),
    ("matrix", "Operations by chips"),
    ("placed", "The program"),
    ("limits", "Drawings"),
    ("numbers", "Numbers"),
    ("accuracy", "Accuracy"),
    ("weights", "Weights"),
    ("ops", "Every operation"),
    ("measured", "What a Mac says"),
    ("provenance", "Provenance"),
)
_COLUMNS = (
    ("label", "chip", ""),
    ("verdict", "runs", "runs"),
    ("likely", "Core ML", "likely"),
    ("us", "time", "time"),
    ("span", "", ""),
    ("after", "best change", "after"),
)
_MOST_TICKS = 5
_MOST_DRAWN = 4_000
"""Layers, of all chips together, that are drawn in a page; ``aneforge plot`` draws any."""


def page(report: Report) -> str:
    """The page as text."""
    scale, said = _Scale(report), list(answers(report))
    model_runtime = report.model.get("runtime") or "Core ML"
    document = report.to_json() | {
        "answers": [answer.to_json() for answer in said],
        "terms": terms(),
        "drawings": dict(_drawings(report)),
        "kinds": KINDS,
    }
    return page_text(
        "aneforge.reports",
        "page.html",
        _SCRIPTS,
        model=report.model,
        answers=said,
        plain=plain,
        choices=list(_choices(report, said)),
        terms=terms(),
        sizes=_sizes(report),
        scope=SCOPES.get(report.scope, report.scope),
        sections=[row for row in _SECTIONS if row[0] not in ("measured", "accuracy") or getattr(report, row[0])],
        accuracy=None
        if report.accuracy is None
        else (section_head(report.accuracy), list(section_rows(report.accuracy))),
        accuracy_heads=section_heads(),
        chip_columns=[(key, model_runtime if key == "likely" else title, name) for key, title, name in _COLUMNS],
        right=("us",),
        groups=list(_groups(report, scale)),
        scale=scale,
        **embedded(document),
    )


@cache
def terms() -> dict[str, str]:
    """What the words of the page mean, in a sentence or two each."""
    return json.loads((files("aneforge.reports") / "page" / "terms.json").read_text(encoding="utf-8"))


def _choices(report: Report, said: Sequence[Headline]) -> Iterator[tuple[str, list[Headline]]]:
    """What the page can be about: groups of chips, and chips by their line."""
    count = len(said) - len(report.chips)
    groups, chips = list(said[:count]), list(zip(report.chips, said[count:], strict=True))
    if groups:
        yield "Groups", groups
    for line in (*LINES, OTHERS):
        own = [answer for chip, answer in chips if line_of(chip) == line]
        if own:
            yield line, own


def _groups(report: Report, scale: _Scale) -> Iterator[dict[str, Any]]:
    """The chips by line of products, those from before the published rules in a group that is folded."""
    best = {answer.key: answer.change for answer in answers(report)}
    rows = [
        (line_of(chip), chip.older, _chip(report, chip, place, best[chip.name], scale))
        for place, chip in enumerate(report.chips)
    ]
    are_mixed = len({older for _, older, _ in rows}) > 1
    for line in (*LINES, OTHERS):
        for older in (False, True):
            chips = [row for own, is_older, row in rows if (own, is_older) == (line, older)]
            if chips:
                key = line.split()[0].casefold()
                yield {"key": key, "line": line, "folded": older and are_mixed, "chips": chips}


def _drawings(report: Report) -> Iterator[tuple[str, list[str]]]:
    """By chip, its call along time and its layers under the roofline, as ``aneforge plot`` draws them."""
    from aneforge.reports.plots import roofline_svg, timeline_svg

    left = _MOST_DRAWN
    for chip in report.chips:
        estimate = report.estimates.get(chip.name)
        if estimate is not None and len(estimate.layers) <= left:
            left -= len(estimate.layers)
            shown = {chip.label: estimate}
            yield (
                chip.name,
                [timeline_svg(shown, "One call along time"), roofline_svg(shown, "Layers by what bounds them")],
            )


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
    """Times of very different chips on one axis: by their logarithm."""

    def __init__(self, report: Report) -> None:
        ends = [end for chip in report.chips if chip.us is not None for end in (chip.us, *chip.interval) if end > 0]
        low, high = (min(ends), max(ends)) if ends else (1.0, 10.0)
        self.low, self.high = low / 1.1, high * 1.1

    def at(self, us: float) -> float:
        """The place of a time, in percent."""
        return round(100 * math.log(max(us, self.low) / self.low) / math.log(self.high / self.low), 2)

    @property
    def ticks(self) -> list[tuple[float, str]]:
        """Round times along the axis, as many as can be read."""
        powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        for steps in ((1, 2, 5), (1, 3), (1,)):
            times = [step * 10.0**power for power in powers for step in steps]
            shown = [(self.at(us), _tick(us)) for us in times if self.low <= us <= self.high]
            if len(shown) <= _MOST_TICKS:
                break
        return shown


def _tick(us: float) -> str:
    return f"{us / 1000:g} ms" if us >= 300 else f"{us:g} µs"


def _chip(report: Report, chip: ChipRow, place: int, change: int | None, scale: _Scale) -> dict[str, Any]:
    risks = [row for row in report.findings if row.grade == "risk" and chip.name in row.chips]
    row: dict[str, Any] = {
        "place": place,
        "anchor": _anchor(chip.name),
        "label": chip.label,
        "target": chip.target,
        "also": ", ".join(chip.also),
        "grade": chip.grade,
        "runs": KINDS.get(chip.grade, chip.verdict),
        "programs": chip.verdict.partition(",")[0] if chip.grade == "programs" else "",
        "asks": bool(risks) and all(map(asks_for_range, risks)),
        "wrong": bool(risks) and chip.grade == "part",
        "on_engine": f"{chip.engine_ops:,} of {chip.ops:,}",
        "likely": chip.likely,
        "us": chip.us,
        "basis_measured": chip.basis_measured,
        "refused": plain(chip.refused),
    }
    if chip.us is None:
        return row
    low, high = chip.interval
    after = None if change is None else report.changes[change]
    return row | {
        "time": us_text(chip.us),
        "low": scale.at(low),
        "high": scale.at(high),
        "at": scale.at(chip.us),
        "between": joined(us_text(low), us_text(high)),
        "after": "" if after is None else us_text(after.us[chip.name]),
        "change": change,
        "what": "" if after is None else after.what,
    }


_KEY = r"[A-Z][A-Z.]*\d+(-\d+)?"
_KEYS = re.compile(rf" ?\[(measured|decoded|predicted|inferred|published|unknown)[^\]]*\]| ?\(({_KEY}[;, ]*)+\)")


def plain(words: str) -> str:
    """Prose without the keys of sources and choices."""
    return _KEYS.sub("", words)


def _anchor(name: str) -> str:
    """The end of a link to a chip, however its name was spelled: ``chip-m1-pro``."""
    return f"chip-{re.sub(r'[^a-z0-9]+', '-', name.casefold())}"
