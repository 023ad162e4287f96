"""A comparison of two reports as Markdown, and as a page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from aneforge.reports.against import ChipChange, FindingChange, LayerChange, OpChange, ReportComparison
from aneforge.reports.commonmark import code, inert, table_row
from aneforge.reports.pages import page_text
from aneforge.text import human_bytes

_MOST_ROWS = 30
_MOST_PAGE_ROWS = 2000


def markdown(comparison: ReportComparison) -> str:
    """The whole comparison, the longest lists cut."""
    lines = [f"## {inert(title(comparison))}", "", f"**{answer(comparison)}**", ""]
    lines += ["| chip | runs | on the engine | µs before | µs after | change | on chip | weights |"]
    lines += ["| --- | --- | --- | ---: | ---: | ---: | --- | --- |"]
    lines += [table_row(_chip_cells(chip)) for chip in comparison.chips]
    for head, listed in _sections(comparison):
        if listed:
            lines += ["", f"### {head}", "", *(f"- {line}" for line in listed[:_MOST_ROWS])]
            if len(listed) > _MOST_ROWS:
                lines.append(f"- and {len(listed) - _MOST_ROWS:,} more")
    return "\n".join([*lines, ""])


def _sections(comparison: ReportComparison) -> Iterator[tuple[str, list[str]]]:
    yield "Reasons", [_finding_line(row) for row in comparison.findings]
    yield "Operations", [_op_line(row) for row in comparison.ops]
    yield "Layers, by change of time", [_layer_line(row) for row in comparison.layers]


def title(comparison: ReportComparison) -> str:
    """What is compared with what."""
    before, after = comparison.before, comparison.after
    one, other = str(before.model["name"]), str(after.model["name"])
    if one != other:
        return f"{one} and {other}"
    if before.version != after.version:
        return f"{one} by aneforge {before.version} and {after.version}"
    chips = [sorted({chip.label for chip in side.chips}) for side in (before, after)]
    if chips[0] != chips[1] and all(len(labels) == 1 for labels in chips):
        return f"{one} on {chips[0][0]} and on {chips[1][0]}"
    return f"{one}, before and after"


def answer(comparison: ReportComparison) -> str:
    """The comparison in a sentence."""
    if comparison.same:
        return "Nothing differs."
    ratios = [chip.ratio for chip in comparison.chips if chip.ratio is not None]
    parts = []
    if ratios:
        low, high = min(ratios), max(ratios)
        parts.append(f"time {_percent(low)}" + (f" to {_percent(high)}" if _percent(low) != _percent(high) else ""))
    verdicts = sum(len(set(chip.verdicts)) > 1 for chip in comparison.chips)
    chips = "1 chip" if len(comparison.chips) == 1 else f"{len(comparison.chips)} chips"
    parts.append(f"another verdict on {verdicts} of {chips}" if verdicts else "the same verdicts")
    for word in ("new", "gone"):
        count = sum(row.kind == word for row in comparison.findings)
        if count:
            parts.append(f"{count} {'reason' if count == 1 else 'reasons'} {word}")
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}."


def _percent(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.0f} %"


def _arrow(before: Any, after: Any) -> str:
    return str(after) if before == after else f"{before} → {after}"


def _us(value: float | None) -> str:
    return "?" if value is None else f"{value:,.4g}" if value < 100 else f"{value:,.0f}"


def _chip_cells(chip: ChipChange) -> list[str]:
    return [
        inert(_arrow(chip.before, chip.after)),
        inert(_arrow(*chip.verdicts)),
        _arrow(*chip.engine_ops),
        _us(chip.us[0]),
        _us(chip.us[1]),
        "?" if chip.ratio is None else _percent(chip.ratio),
        _arrow(*map(human_bytes, chip.peak_l2)),
        _arrow(*map(human_bytes, chip.weight_bytes)),
    ]


def _some(names: tuple[str, ...], most: int = 4) -> str:
    return ", ".join(map(code, names[:most])) + (f" and {len(names) - most:,} more" if len(names) > most else "")


def _finding_line(row: FindingChange) -> str:
    head = f"**{row.kind}** {inert(row.grade)} {code(row.rule)}: "
    if row.kind != "changed":
        return f"{head}{_some(row.nodes)}. {inert(row.message)} On {inert(', '.join(row.chips))}"
    parts = [
        (f"now also {_some(row.nodes)}", row.nodes),
        (f"no longer {_some(row.nodes_gone)}", row.nodes_gone),
        (f"now also on {inert(', '.join(row.chips))}", row.chips),
        (f"no longer on {inert(', '.join(row.chips_gone))}", row.chips_gone),
    ]
    return f"{head}{'; '.join(words for words, told in parts if told)}. {inert(row.message)}"


def _op_line(row: OpChange) -> str:
    return f"**{row.kind}** {code(row.name)} ({inert(row.op)}): {inert(_statuses(row))}"


def _statuses(row: OpChange) -> str:
    """What an operation is, or what it was and is by chips."""
    if row.kind != "changed":
        return ", ".join(dict.fromkeys((row.before or row.after).values()))
    changes: dict[str, list[str]] = {}
    for chip, was in row.before.items():
        changes.setdefault(f"{was} → {row.after[chip]}", []).append(chip)
    return "; ".join(f"{', '.join(chips)}: {change}" for change, chips in changes.items())


def _layer_line(row: LayerChange) -> str:
    what = _arrow(row.layers[0] or "nothing", row.layers[1] or "nothing")
    ops = _some(row.ops) or "no operation"
    return f"{inert(row.chip)}: {ops}: {_us(row.us[0])} → {_us(row.us[1])} µs ({inert(what)})"


def page(comparison: ReportComparison) -> str:
    """The comparison as one file, which needs no network."""
    return page_text(
        "aneforge.reports",
        "against.html",
        ("theme.js",),
        title=title(comparison),
        answer=answer(comparison),
        sides=[_side(comparison.before, "before"), _side(comparison.after, "after")],
        chips=[(_chip_cells(chip), _grade(chip)) for chip in comparison.chips],
        findings=comparison.findings[:_MOST_PAGE_ROWS],
        ops=[(row, _statuses(row)) for row in comparison.ops[:_MOST_PAGE_ROWS]],
        layers=[(row, _us(row.us[0]), _us(row.us[1])) for row in comparison.layers[:_MOST_PAGE_ROWS]],
        counts={"ops": len(comparison.ops), "layers": len(comparison.layers), "most": _MOST_PAGE_ROWS},
    )


def _side(report: Any, word: str) -> dict[str, Any]:
    model = report.model
    return {
        "word": word,
        "name": model["name"],
        "version": report.version,
        "operations": f"{model['operations']:,}",
        "parameters": f"{model['parameters']:,}",
        "chips": "1 chip" if len(report.chips) == 1 else f"{len(report.chips)} chips",
    }


def _grade(chip: ChipChange) -> str:
    """How a row is marked: better, worse or neither."""
    ratio = chip.ratio
    if len(set(chip.verdicts)) > 1:
        return "yes" if chip.verdicts[1] == "yes" else "no" if chip.verdicts[0] == "yes" else "part"
    if ratio is None or abs(ratio - 1) <= 0.005:
        return "plain"
    return "yes" if ratio < 1 else "part"
