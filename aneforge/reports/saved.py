"""A report that was saved as JSON, read back: to compare two versions, or to write it in another format."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypedDict

from aneforge.documents import Misshapen, read_json, typed
from aneforge.errors import AneforgeError, first_line
from aneforge.reports.document import SCHEMA, Report
from aneforge.reports.rows import (
    ChangeRow,
    ChipRow,
    DivergenceRow,
    FindingRow,
    MeasuredTable,
    OpRow,
    ProgramRow,
    RiskRow,
    StoredRow,
)

_PARTS = {
    "chips": ChipRow,
    "ops": OpRow,
    "findings": FindingRow,
    "programs": ProgramRow,
    "changes": ChangeRow,
    "risks": RiskRow,
    "divergences": DivergenceRow,
    "stored": StoredRow,
}
_MARKS = ("aneforge", "schema", *_PARTS)


def is_saved_report(path: str | Path) -> bool:
    """Whether a file is JSON that begins as a saved report does; models in JSON begin otherwise."""
    file = Path(path)
    if file.suffix.casefold() != ".json" or not file.is_file():
        return False
    try:
        with file.open(encoding="utf-8") as stream:
            start = stream.read(200)
    except (OSError, UnicodeDecodeError):
        return False
    return '"schema"' in start and '"aneforge"' in start


def read_report(path: str | Path) -> Report:
    """The report in a file that ``aneforge report MODEL -o NAME.json`` wrote."""
    file = Path(path)
    document = read_json(file)
    try:
        return report_from_json(document)
    except Misshapen as error:
        raise AneforgeError(
            f"{path}: not a saved report ({first_line(error)}). Write one with: aneforge report MODEL -o NAME.json"
        ) from None


def report_from_json(document: Any) -> Report:
    """The rows of a report again; ``Misshapen`` where the document is something else."""
    absent = [mark for mark in _MARKS if mark not in document] if isinstance(document, dict) else list(_MARKS)
    if absent:
        raise Misshapen(f"no {absent[0]!r} in it")
    if document["schema"] != SCHEMA:
        raise Misshapen(f"its schema is {document['schema']}, and this version reads {SCHEMA}")
    rows: dict[str, Any] = {
        name: typed(tuple[kind, ...], document[name], f".{name}", empty=True) for name, kind in _PARTS.items()
    }
    head = typed(_Head, {**_EMPTY_HEAD, **document})
    measured = document.get("measured")
    report = Report(
        **rows,
        model=head["model"],
        scope=head["scope"],
        risk_chips=head["risk_chips"],
        doubts=head["doubts"],
        divergence_note=head["divergence_note"] or "",
        stored_note=head["stored_note"] or "",
        max_abs=head["max_abs"],
        measured=None if measured is None else typed(MeasuredTable, measured, ".measured", empty=True),
        accuracy=head["accuracy"],
        version=head["aneforge"],
    )
    _check_numbers(report)
    return report


class _Head(TypedDict):
    aneforge: str
    model: dict[str, Any]
    scope: str
    risk_chips: tuple[str, ...]
    doubts: tuple[str, ...]
    divergence_note: str | None
    stored_note: str | None
    max_abs: float | None
    accuracy: dict[str, Any] | None


_EMPTY_HEAD = dict.fromkeys(("divergence_note", "stored_note", "max_abs", "accuracy"))


def _check_numbers(report: Report) -> None:
    """Rows name each other by number: every number must have a row."""
    counts = {"operation": len(report.ops), "program": len(report.programs), "change": len(report.changes)}
    named = [
        *(("operation", number) for op in report.ops for number in op.inputs),
        *(("operation", number) for row in report.findings for number in row.nodes),
        *(("change", number) for row in report.findings for number in row.changes),
        *(("operation", number) for row in (*report.risks, *report.divergences) for number in row.nodes),
        *(("operation", number) for row in report.changes for number in row.nodes),
        *(("program", chip.program) for chip in report.chips if chip.program is not None),
        *(("operation", number) for program in report.programs for number in _ops_of(program)),
        *(("operation", row.op) for row in (report.measured.rows if report.measured else ())),
    ]
    for what, number in named:
        if not 0 <= number < counts[what]:
            raise Misshapen(f"it names {what} {number} of {counts[what]}")
    labels = {chip.name for chip in report.chips}
    chips = [name for row in (*report.findings, *report.risks) for name in row.chips]
    lost = [name for name in chips if name not in labels]
    if lost:
        raise Misshapen(f"it names chip {lost[0]!r}, of which it has no row")


def _ops_of(program: ProgramRow) -> Iterator[int]:
    for row in (*program.layers, *program.weights):
        yield from row.sources
    for region in program.regions:
        yield from region.ops
    yield from (step.op for step in program.steps)
