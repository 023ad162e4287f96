"""A report that was saved as JSON, read back: to compare two versions, or to write it in another format."""

from __future__ import annotations

import json
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, TypeVar

from aneforge.errors import AneforgeError, first_line
from aneforge.reports.document import SCHEMA, Report
from aneforge.reports.rows import (
    ChangeRow,
    ChipRow,
    DivergenceRow,
    FactRow,
    FindingRow,
    LayerRow,
    MeasuredRow,
    MeasuredTable,
    OpRow,
    ProgramRow,
    RegionRow,
    ReportRow,
    RiskRow,
    StepRow,
    StoredRow,
    WeightRow,
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
_INSIDE: dict[type[ReportRow], dict[str, type[ReportRow]]] = {
    ProgramRow: {"regions": RegionRow, "layers": LayerRow, "weights": WeightRow, "steps": StepRow, "facts": FactRow},
    MeasuredTable: {"rows": MeasuredRow},
}
_EMPTY: dict[str, Any] = {"str": "", "tuple": (), "dict": {}, "int": 0, "float": 0.0}
_MARKS = ("aneforge", "schema", *_PARTS)
AnyRow = TypeVar("AnyRow", bound=ReportRow)


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
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise AneforgeError(f"{path}: cannot be read ({error.strerror or error})") from None
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        raise AneforgeError(f"{path}: not JSON ({first_line(error)})") from None
    try:
        return report_from_json(document)
    except (AttributeError, KeyError, TypeError, ValueError, IndexError) as error:
        raise AneforgeError(
            f"{path}: not a saved report ({first_line(error)}). Write one with: aneforge report MODEL -o NAME.json"
        ) from None


def report_from_json(document: Any) -> Report:
    """The rows of a report again; ``ValueError`` where the document is something else."""
    absent = [mark for mark in _MARKS if mark not in document] if isinstance(document, dict) else list(_MARKS)
    if absent:
        raise ValueError(f"no {absent[0]!r} in it")
    if document["schema"] != SCHEMA:
        raise ValueError(f"its schema is {document['schema']}, and this version reads {SCHEMA}")
    rows: dict[str, Any] = {name: tuple(_row(kind, row) for row in document[name]) for name, kind in _PARTS.items()}
    measured = document.get("measured")
    return Report(
        **rows,
        model=document["model"],
        scope=document["scope"],
        risk_chips=tuple(document["risk_chips"]),
        doubts=tuple(document["doubts"]),
        divergence_note=document.get("divergence_note") or "",
        stored_note=document.get("stored_note") or "",
        max_abs=document.get("max_abs"),
        measured=None if measured is None else _row(MeasuredTable, measured),
        accuracy=document.get("accuracy"),
        version=document["aneforge"],
    )


def _row(kind: type[AnyRow], values: dict[str, Any]) -> AnyRow:
    """Rows leave empty fields out when they are written; here they come back."""
    known = {part.name: part for part in fields(kind)}  # type: ignore[arg-type]
    strange = [name for name in values if name not in known]
    if strange:
        raise ValueError(f"{kind.__name__} has no {strange[0]!r}")
    inside = _INSIDE.get(kind, {})
    made = {}
    for name, part in known.items():
        if name in values and name in inside:
            made[name] = tuple(_row(inside[name], row) for row in values[name])
        elif name in values:
            made[name] = _frozen(values[name])
        elif part.default is MISSING and part.default_factory is MISSING:
            made[name] = _EMPTY.get(str(part.type).partition("[")[0].partition(" |")[0])
    return kind(**made)


def _frozen(value: Any) -> Any:
    return tuple(_frozen(item) for item in value) if isinstance(value, list) else value
