"""The verdicts of a network on several chips as a table of layers by chips, with the reasons below it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from aneforge import text
from aneforge.chips.names import chip_label, chip_labels, with_label
from aneforge.text import plural, some, wrapped

if TYPE_CHECKING:
    from aneforge.study.validate.network import LayerVerdicts, NetworkVerdict

_MOST_ROWS, _MOST_REASONS = 40, 12


@dataclass
class _Column:
    """Chips that answer alike for every layer."""

    letter: str
    verdict: NetworkVerdict
    chips: list[str] = field(default_factory=list)

    @property
    def rows(self) -> tuple[LayerVerdicts, ...]:
        return (*self.verdict.network, *self.verdict.rows)

    @cached_property
    def by_name(self) -> dict[str, LayerVerdicts]:
        return {row.name: row for row in reversed(self.rows)}  # what is wrong with the whole network comes first


def report(verdicts: Mapping[str, NetworkVerdict], model: str, everything: bool = False) -> str:
    """The whole report. Layers that every chip answers alike share a row, unless ``everything`` is listed."""
    columns = _columns(verdicts)
    routes = sorted({verdict.route for verdict in verdicts.values()})
    count = len(next(iter(verdicts.values())).rows)
    head = f"{model}: {plural(count, 'layer')} by the {' and '.join(routes)} route"
    legend = "\n".join(wrapped(f"{column.letter}  {chip_labels(column.chips)}", "  ", "   ") for column in columns)
    reasons = list(_reasons(columns, everything))
    refused = [chip for column in columns if not column.verdict.accepted for chip in column.chips]
    end = f"rejected on: {chip_labels(refused)}" if refused else "accepted on every chip"
    return "\n\n".join([f"{head}\n{legend}", _table(columns, everything), *reasons, wrapped(end)])


def _columns(verdicts: Mapping[str, NetworkVerdict]) -> list[_Column]:
    columns: dict[tuple[object, ...], _Column] = {}
    for chip, verdict in verdicts.items():
        rows = (*verdict.network, *verdict.rows)
        key = tuple((row.name, row.accepted, row.stage, _unnamed(row, verdict), row.reason == "") for row in rows)
        column = columns.setdefault(key, _Column(_letter(len(columns)), verdict))
        column.chips.append(chip)
    return list(columns.values())


def _letter(number: int) -> str:
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    return letters[number % 26] * (number // 26 + 1)


def _unnamed(row: LayerVerdicts, verdict: NetworkVerdict) -> str:
    return with_label(row.message, verdict.target, "?")


def _table(columns: list[_Column], everything: bool) -> str:
    """A row for each layer, or for layers of one type that every chip answers alike."""
    named = {row.name: row for column in columns for row in column.rows}
    groups: dict[tuple[str, tuple[str, ...], str], list[str]] = {}
    for name, row in named.items():
        cells = tuple(_cell(column.by_name.get(name)) for column in columns)
        kinds = ", ".join(row.layers) or "network"
        groups.setdefault((kinds, cells, name if everything else ""), []).append(name)
    rows: list[tuple[str, ...]] = []
    for (kinds, cells, _), names in groups.items():
        shown = names[0] if len(names) == 1 else f"{len(names):,} layers: {some(names, 2)}"
        rows.append((kinds, *cells, shown))
    cut = len(rows) if everything else _MOST_ROWS
    more = f"\n{len(rows) - cut} more rows (--all lists them)" if len(rows) > cut else ""
    return text.columns(("type", *(column.letter for column in columns), "layer"), rows[:cut]) + more


def _cell(row: LayerVerdicts | None) -> str:
    """One word: ``runs`` (seen to run there), ``accept`` (its validator takes it, or nothing is wrong with the
    network), ``rewritten``, ``wrong`` (it runs, and its numbers can be wrong) or ``reject``."""
    if row is None:
        return "accept"
    if not row.accepted:
        return "reject"
    verdicts = {finding.verdict for finding in row.findings}
    if "wrong_result" in verdicts:
        return "wrong"
    if "decompose" in verdicts:
        return "rewritten"
    return "runs" if row.stage == "measured run" else "accept"


def _reasons(columns: list[_Column], everything: bool) -> Iterator[str]:
    """Each reason once, with the layers and chips that it concerns."""
    reasons: dict[tuple[object, ...], tuple[LayerVerdicts, dict[str, None], dict[str, None], NetworkVerdict]] = {}
    for column in columns:
        for row in column.rows:
            if row.accepted:
                continue
            alike = _unnamed(row, column.verdict) if everything or not row.findings else row.findings[0].rule
            key = (row.layers, row.stage, alike)
            _, names, chips, _ = reasons.setdefault(key, (row, {}, {}, column.verdict))
            names[row.name] = None
            chips |= dict.fromkeys(column.chips)
    most = len(reasons) if everything else _MOST_REASONS
    for row, names, chips, verdict in list(reasons.values())[:most]:
        yield _reason(row, list(names), list(chips), verdict)
    if len(reasons) > most:
        yield f"reject: {len(reasons) - most} more reasons (--all lists them)"


def _reason(row: LayerVerdicts, names: list[str], chips: list[str], verdict: NetworkVerdict) -> str:
    label = chip_label(chips[0])
    kinds = ", ".join(row.layers)
    lines = [wrapped(f"reject at {row.stage}, {row.route} route: {some(names)}{f' ({kinds})' if kinds else ''}")]
    message = with_label(row.message, verdict.target, label)
    reason = with_label(row.reason, verdict.target, label)
    lines.append(wrapped(message, "  "))
    if reason != message:
        lines.append(wrapped(f"{reason} {row.evidence.label()}", "  "))
    else:
        lines.append(wrapped(row.evidence.label(), "  "))
    hint = next((finding.hint for finding in row.findings if finding.hint), "")
    if hint:
        lines.append(wrapped(f"do: {hint}", "  "))
    lines.append(wrapped(f"on: {chip_labels(chips)}", "  "))
    return "\n".join(lines)
