"""What a report answers first: one sentence for a group of chips or one of them, with the worst reason and the best
change. Every figure in it is a row of the report."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aneforge.compiler.legal.findings import ANY_FINITE
from aneforge.reports.document import Report
from aneforge.reports.rows import ChangeRow, ChipRow, FindingRow
from aneforge.text import plural

KINDS = {
    "yes": "runs",
    "programs": "runs",
    "wrong": "numbers can be wrong",
    "unknown": "not known",
    "part": "in part",
    "no": "no",
}
"""The verdict of a chip in a word or two, by the grade of the report's row."""

LINES = {"Macs": "M", "iPhones": "A"}
"""The lines of products, with the letter that their chips begin with."""
OTHERS = "Other engines"
LIKELY_CUT = "likely cut"  # what the runtime does by itself is no change that somebody makes

_GRAVEST = ("no", "part", "unknown", "wrong", "programs", "yes")
_CAUSES: Mapping[str, tuple[str, ...]] = {
    "no": ("reject", "oversize", "placement"),
    "part": ("reject", "oversize", "placement"),
    "unknown": ("unknown",),
    "wrong": ("risk",),
}
"""Which findings are behind a verdict, the gravest first."""
_PLACED = ("coreml_call", "coreai_call", "app_call")  # calls of runtimes that place operations themselves
_WORTH = 0.1  # of a call: a change that saves less is not part of the first sentence


@dataclass(frozen=True)
class Headline:
    """The sentence of a group of chips, or of one chip."""

    key: str
    """``all``, ``macs``, ``iphones``, ``other`` or the name of a chip."""
    label: str
    chip: str
    """The chip that the sentence is about: the worst of the group."""
    act: str
    """What to do, in a few words."""
    says: str
    """Why, and what it gains."""
    finding: int | None = None
    """The place of the worst reason in the report."""
    change: int | None = None
    """The place of the best change."""

    @property
    def sentence(self) -> str:
        return f"{self.act}: {self.says}"

    def to_json(self) -> dict[str, Any]:
        return dict(self.__dict__)


def line_of(chip: ChipRow) -> str:
    """``Macs``, ``iPhones`` or :data:`OTHERS`."""
    return next((line for line, letter in LINES.items() if re.match(rf"{letter}\d", chip.label)), OTHERS)


def answers(report: Report) -> Iterator[Headline]:
    """The sentence of all chips, of each line of products that has several, and of each chip. Chips from before those
    that the rules begin with have no part in the sentence of a group that has newer ones."""
    groups = {"all": ("All chips", report.chips)}
    for line in (*LINES, OTHERS):
        chips = tuple(chip for chip in report.chips if line_of(chip) == line)
        if 1 < len(chips) < len(report.chips):
            groups[line.split()[0].casefold()] = (line, chips)
    for key, (label, chips) in groups.items():
        if len(report.chips) > 1:
            newer = [chip for chip in chips if not chip.older]
            yield _answer(report, key, label, newer or chips)
    for chip in report.chips:
        yield _answer(report, chip.name, chip.label, (chip,))


def _answer(report: Report, key: str, label: str, chips: Sequence[ChipRow]) -> Headline:
    worst = min(chips, key=lambda chip: _GRAVEST.index(chip.grade) if chip.grade in _GRAVEST else 0).grade
    alike = [chip for chip in chips if chip.grade == worst]
    # Of chips that fare alike the slowest that was measured speaks for them.
    lead = max(alike, key=lambda chip: (chip.basis_measured, chip.us or 0.0))
    place, reason = _reason(report, lead, worst)
    number, change = _best(report, lead, reason)
    where = _names(alike, len(chips))
    act, says = _words(report, worst, chips, lead, where, reason, change)
    return Headline(key, label, lead.name, act, says, place, number)


def _words(
    report: Report,
    grade: str,
    chips: Sequence[ChipRow],
    lead: ChipRow,
    where: str,
    reason: FindingRow | None,
    change: ChangeRow | None,
) -> tuple[str, str]:
    gain = "" if change is None else f"{_first_words(change)}, {_gain(change, lead)}"
    faster = f" Faster: {gain}." if gain else ""
    name, words = ("", "") if reason is None else reason_text(report, reason, lead.label)
    why = f"{name}: {words}." if name else f"{words}." if words else ""
    if grade != "no" and lead.ops and lead.likely == "none" and report.scope in _PLACED:
        runtime = report.model.get("runtime") or "Core ML"
        could = f"the engine of {lead.label} could run {lead.engine_ops:,} of {plural(lead.ops, 'operation')}"
        return f"{runtime} would likely keep it off the engine", f"{could} in {us_text(lead.us)} a call.{faster}"
    if grade in ("yes", "programs"):
        count = report.model["operations"]
        whole = f"all {count:,} operations run" if count != 1 else "it runs"
        return "Ship it", f"{whole} on the Neural Engine of {_names(chips, len(chips))}, {_times(chips)}.{faster}"
    if grade == "no":
        return "Change it first", f"nothing of it runs on the Neural Engine of {where}. {why or lead.refused}"
    if grade == "unknown":
        return "Try it on a device first", f"nobody has seen whether it runs on {where}. {why}{faster}"
    if grade == "wrong":
        if reason is not None and asks_for_range(reason):
            return "Say how large the inputs are", f"on {where} large numbers can be lost. {why}{faster}"
        return "Check the numbers first", f"they can be wrong on {where}. {why}{faster}"
    if change is not None and reason is not None and set(change.nodes) & set(reason.nodes):
        return "Ship after one change", f"{gain}. Without it, {name or 'a part'} runs on the CPU of {where}: {words}."
    return "Part of it runs on the CPU", f"{name or 'a part'}, on {where}: {words}.{faster}"


def asks_for_range(finding: FindingRow) -> bool:
    """Whether a finding about numbers would go, or be sure, if somebody said how large the inputs are."""
    return finding.basis == ANY_FINITE


def reason_text(report: Report, finding: FindingRow, chip: str) -> tuple[str, str]:
    """The operation that a reason is about, and the reason. The compiler's own words are shorter than ours."""
    words = (finding.says or finding.message).rstrip(".").replace(" on this chip", "").replace("this chip", chip)
    if not finding.nodes:
        return "", words
    name = report.ops[finding.nodes[0]].name
    more = f" and {plural(len(finding.nodes) - 1, 'more operation')}" if len(finding.nodes) > 1 else ""
    return f"“{name}”{more}", words


def _reason(report: Report, chip: ChipRow, grade: str) -> tuple[int | None, FindingRow | None]:
    causes = _CAUSES.get(grade, ())
    fitting = [
        (causes.index(row.grade), place) for place, row in enumerate(report.findings)
        if row.grade in causes and chip.name in row.chips
    ]  # fmt: skip
    if not fitting:
        return None, None
    place = min(fitting)[1]
    return place, report.findings[place]


def _best(report: Report, chip: ChipRow, reason: FindingRow | None) -> tuple[int | None, ChangeRow | None]:
    """The change that helps the chip most: one that is about the reason first, one that gives several inputs to a call
    last, since the first of them waits."""
    about = set() if reason is None else set(reason.nodes)
    helping = [
        (bool(about & set(row.nodes)), row.kind != "call", row.saved[chip.name], -place)
        for place, row in enumerate(report.changes)
        if row.name != LIKELY_CUT and row.saved.get(chip.name, 0.0) >= _WORTH
    ]
    if not helping:
        return None, None
    place = -max(helping)[3]
    return place, report.changes[place]


def _first_words(change: ChangeRow) -> str:
    return change.what.partition(":")[0]


def _gain(change: ChangeRow, chip: ChipRow) -> str:
    before, after = us_text(chip.us), us_text(change.us[chip.name])
    return f"{joined(before, after)}{' for each' if change.kind == 'call' else ''} on {chip.label}"


def joined(first: str, last: str) -> str:
    """Two times with their unit once, where it is the same."""
    number, _, unit = first.partition(" ")
    return f"{number if last.endswith(unit) else first} to {last}"


def _names(chips: Sequence[ChipRow], of: int) -> str:
    """The chips by name, or how many they are."""
    if len(chips) > 3:
        return f"all {of} chips" if len(chips) == of else f"{len(chips)} of {of} chips"
    return " and ".join(filter(None, (", ".join(chip.label for chip in chips[:-1]), chips[-1].label)))


def _times(chips: Sequence[ChipRow]) -> str:
    times = sorted(chip.us for chip in chips if chip.us is not None)
    if not times:
        return "in a time that nobody knows"
    first, last = us_text(times[0]), us_text(times[-1])
    return f"{first} a call" if first == last else f"{joined(first, last)} a call"


def us_text(us: float | None) -> str:
    """A time as people say it."""
    if us is None:
        return "?"
    return f"{us / 1000:,.3g} ms" if us >= 10_000 else f"{us:,.0f} µs"
