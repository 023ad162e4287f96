"""A report as Markdown, for a pull request: a block that says it all, then the table, reasons and changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from aneforge.compiler.legal.findings import BASES
from aneforge.reports.answer import answers
from aneforge.reports.commonmark import code, inert, table_row
from aneforge.reports.document import Report
from aneforge.reports.evaluation.section import section_head, section_heads, section_rows
from aneforge.reports.rows import ChangeRow, ChipRow, FindingRow
from aneforge.study.plan_files import DEVICES
from aneforge.text import human_bytes, percent

_MOST_FINDINGS, _MOST_CHANGES, _MOST_NODES, _MOST_MEASURED = 20, 8, 4, 30
_MOST_COLUMNS = 8


def markdown(report: Report) -> str:
    """The whole report; what one chip says for many is said once."""
    parts = [f"## {inert(report.model['name'])} on the Apple Neural Engine", *_head(report), "", *_chips(report)]
    sections = (
        ("Why not", _findings(report)),
        ("What if", _changes(report)),
        ("Numbers that can be lost", _risks(report)),
        ("Accuracy on a data set", _accuracy(report)),
        ("Weights", _stored(report)),
        ("What a Mac says", _measured(report)),
    )
    for title, lines in sections:
        listed = list(lines)
        if listed:
            parts += ["", f"### {title}", "", *listed]
    return "\n".join([*parts, ""])


def _head(report: Report) -> Iterator[str]:
    """The block at the top: what to do, operations on engine and host, time, memory."""
    chips = [chip for chip in report.chips if chip.us is not None]
    first = next(answers(report))
    yield ""
    yield f"**{inert(first.act)}:** {inert(first.says)}"
    if not chips:
        return
    fast, slow = min(chips, key=_time), max(chips, key=_time)
    fewest = min(chips, key=lambda chip: chip.engine_ops)
    yield ""
    most = max(chips, key=lambda chip: chip.engine_ops)
    yield f"- operations: {_span(fewest.engine_ops, most.engine_ops)} on the engine, " + (
        f"{_span(most.ops - most.engine_ops, fewest.ops - fewest.engine_ops)} on the host"
    )
    slowest = "" if fast is slow else f" to {_us(slow)} on {slow.label}"
    yield f"- time of one call: {_us(fast)} on {fast.label}{slowest}"
    memory = max(chip.memory_bytes for chip in chips)
    yield f"- memory: {human_bytes(max(chip.weight_bytes for chip in chips))} of weights, " + (
        f"at most {human_bytes(max(chip.peak_l2 for chip in chips))} on chip and {human_bytes(memory)} beside it"
    )


def _span(low: int, high: int) -> str:
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _time(chip: ChipRow) -> float:
    return chip.us or 0.0


def _us(chip: ChipRow) -> str:
    low, high = chip.interval
    return f"{_count(chip.us)} µs ({_count(low)} to {_count(high)})"


def _count(value: float | None) -> str:
    return "?" if value is None else f"{value:,.0f}"


def _chips(report: Report) -> Iterator[str]:
    yield "| chip | runs | on the engine | likely given | µs | from | to | mJ | mostly | basis |"
    yield "| --- | --- | ---: | --- | ---: | ---: | ---: | ---: | --- | --- |"
    for chip in report.chips:
        on_engine = f"{chip.engine_ops:,} of {chip.ops:,} | {chip.likely}"
        if chip.us is None:
            yield f"| {chip.label} | {chip.verdict} | {on_engine} | | | | | | |"
            continue
        energy = "?" if chip.energy_mj is None else f"{chip.energy_mj:g}"
        most = max(chip.shares, key=chip.shares.__getitem__, default="")
        basis = "fitted" if chip.basis_measured else "by law"
        times = " | ".join(map(_count, (chip.us, *chip.interval)))
        verdict = chip.verdict.partition(":")[0]
        yield f"| {chip.label} | {verdict} | {on_engine} | {times} | {energy} | {most} | {basis} |"


def _findings(report: Report) -> Iterator[str]:
    refused = [[report.findings[place] for place in places] for places in report.reasons]
    refused = [rows for rows in refused if rows[0].grade != "decompose"]
    for rows in refused[:_MOST_FINDINGS]:
        yield from _reason(report, rows)
    if len(refused) > _MOST_FINDINGS:
        yield f"- and {len(refused) - _MOST_FINDINGS} more reasons"


def _reason(report: Report, rows: Sequence[FindingRow]) -> Iterator[str]:
    """What one rule refuses on the same chips: the first of it, and how much more there is."""
    row = rows[0]
    nodes = list(dict.fromkeys(number for finding in rows for number in finding.nodes))
    names = [code(report.ops[number].name) for number in nodes[:_MOST_NODES]]
    more = f" and {len(nodes) - _MOST_NODES} more" if len(nodes) > _MOST_NODES else ""
    alike = f" ({len(rows) - 1} more like it)" if len(rows) > 1 else ""
    reason = f"{inert(row.message)}{alike} {inert(row.evidence)}"
    yield f"- **{row.grade}** `{row.rule}`: {', '.join(names)}{more}. {reason}"
    if isinstance(row.limit, (int, float, tuple)) and row.extent is not None:
        yield f"  - limit {row.limit}, {'reaches' if row.basis else 'here'} {row.extent}"
    if row.basis:
        yield f"  - rests on {BASES[row.basis]}"
    if row.hint:
        yield f"  - do: {inert(row.hint)}"
    labels = _labels(report)
    helping = [report.changes[place] for place in row.changes if set(report.changes[place].us) & set(row.chips)]
    for change in helping[:1]:
        best = max((name for name in change.us if name in row.chips), key=change.saved.__getitem__)
        yield f"  - {inert(change.what)}: {_after(change, best, labels)}"
    yield f"  - on {', '.join(labels[name] for name in row.chips)}"


def _labels(report: Report) -> dict[str, str]:
    return {chip.name: chip.label for chip in report.chips}


def _after(change: ChangeRow, chip: str, labels: Mapping[str, str]) -> str:
    way = "less" if change.saved[chip] >= 0 else "more"
    return f"{change.us[chip]:,.0f} µs on {labels[chip]}, {abs(100 * change.saved[chip]):.0f} % {way}"


def _changes(report: Report) -> Iterator[str]:
    labels = _labels(report)
    for change in report.changes[:_MOST_CHANGES]:
        best = max(change.saved, key=change.saved.__getitem__)
        chips = "1 chip" if len(change.us) == 1 else f"{len(change.us)} chips"
        after = f"{_after(change, best, labels)}; known for {chips}; {change.numbers}"
        yield f"- {inert(change.what)} ({change.kind}): {after}"


def _stored(report: Report) -> Iterator[str]:
    """The call with the weights in other forms, on the chips that have a product."""
    chips = [chip for chip in report.chips if chip.us is not None and chip.label != chip.target][:_MOST_COLUMNS]
    chips = chips or [chip for chip in report.chips if chip.us is not None][:_MOST_COLUMNS]
    if len(report.stored) < 2 or not chips:
        return
    yield f"| weights as | layers | in the file | rounding | {' | '.join(f'{chip.label}, µs' for chip in chips)} |"
    yield f"| --- | ---: | ---: | ---: | {' | '.join('---:' for _ in chips)} |"
    for row in report.stored:
        times = (_count(row.us.get(chip.name)) for chip in chips)
        rounding = "?" if row.rounding is None else percent(row.rounding) if row.rounding else "-"
        yield f"| {row.name} | {row.layers:,} | {human_bytes(row.bytes)} | {rounding} | {' | '.join(times)} |"


def _risks(report: Report) -> Iterator[str]:
    labels = _labels(report)
    for risk in report.risks[:_MOST_FINDINGS]:
        names = [code(report.ops[number].name) for number in risk.nodes[:_MOST_NODES]] or [risk.op]
        more = f" and {len(risk.nodes) - _MOST_NODES} more" if len(risk.nodes) > _MOST_NODES else ""
        chips = ", ".join(labels[name] for name in risk.chips)
        yield f"- **{risk.kind}** {', '.join(names)}{more}: {inert(risk.message)}, on {chips} ({risk.basis})"
        if risk.suggestion:
            yield f"  - do: {inert(risk.suggestion)}"
    if len(report.risks) > _MOST_FINDINGS:
        yield f"- and {len(report.risks) - _MOST_FINDINGS} more"


def _accuracy(report: Report) -> Iterator[str]:
    """Figures of an evaluation, where there are some."""
    if report.accuracy is None:
        return
    yield f"{inert(section_head(report.accuracy))}."
    yield ""
    yield from (table_row(section_heads()), table_row(["---"] * len(section_heads())))
    for cells in section_rows(report.accuracy):
        yield table_row(map(inert, cells))


def _measured(report: Report) -> Iterator[str]:
    """How many operations are where they were predicted, and those that are elsewhere."""
    table = report.measured
    if table is None:
        return
    label = next(chip.label for chip in report.chips if chip.name == table.chip)
    system = f", {table.os}" if table.os else ""
    origin = " The file was written by aneforge: nothing in it was measured." if table.predicted else ""
    agreeing = f"{table.agreeing:,} of {len(table.rows):,} operations are on the predicted device."
    yield f"{code(table.file)} ({label}{inert(system)}): {agreeing}{origin}"
    elsewhere = [row for row in table.rows if row.predicted != row.measured]
    if elsewhere:
        yield ""
        yield "| operation | predicted | there | cost % predicted | cost % there | µs there |"
        yield "| --- | --- | --- | ---: | ---: | ---: |"
    for row in elsewhere[:_MOST_MEASURED]:
        places = " | ".join((DEVICES[row.predicted], DEVICES[row.measured]))
        shares = " | ".join(
            "?" if share is None else f"{100 * share:.1f}" for share in (row.predicted_share, row.share)
        )
        yield f"| {code(report.ops[row.op].name)} | {places} | {shares} | {_count(row.us)} |"
    if len(elsewhere) > _MOST_MEASURED:
        yield f"| and {len(elsewhere) - _MOST_MEASURED:,} more | | | | | |"
