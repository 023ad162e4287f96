"""The table of a sweep: one row for each model and target, written as Parquet, CSV or JSON, and read back."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any, TypedDict

from aneforge.documents import parse_json, typed
from aneforge.errors import AneforgeError, first_line, install_hint
from aneforge.files import write_whole, written_file
from aneforge.reports.sweep.plan import Planned
from aneforge.reports.sweep.results import Folder, SweepPlan
from aneforge.reports.tables import csv_text, unguarded

# pyright: reportMissingImports=false


COLUMNS: dict[str, type] = {
    "model": str,
    "revision": str,
    "dims": str,
    "function": str,
    "target": str,
    "chip": str,
    "verdict": str,
    "ops": int,
    "engine_ops": int,
    "host_ops": int,
    "us": float,
    "us_low": float,
    "us_high": float,
    "energy_mj": float,
    "memory_bytes": int,
    "peak_l2": int,
    "weight_bytes": int,
    "rules": str,
    "kind": str,
    "error": str,
    "graph": str,
    "aneforge": str,
    "key": str,
}
"""The columns in their order. A number that is not known is empty, never 0."""
FORMATS = (".parquet", ".csv", ".json")
NOT_DONE = "not done"
Row = dict[str, Any]


class _TableDocument(TypedDict):
    rows: list[dict[str, Any]]


@dataclass(frozen=True)
class Table:
    """Rows of a sweep, or of several that were merged."""

    rows: Sequence[Row]

    @property
    def failed(self) -> dict[str, str]:
        """The models without an answer, each with the reason."""
        return {model_name(row): str(row["error"]) for row in self.rows if row["kind"] != "done"}

    @property
    def ok(self) -> bool:
        return not self.failed

    def to_json(self) -> dict[str, Any]:
        return {"schema": 1, "ok": self.ok, "failed": self.failed, "rows": list(self.rows)}

    def save(self, path: str | Path) -> None:
        """Write the table, whole or not at all, in the format of the suffix."""
        file = Path(path)
        suffix = require_table_name(file)
        if suffix == ".parquet":
            _write_parquet(self.rows, file)
        elif suffix == ".csv":
            write_whole(file, csv_text(COLUMNS, ([row[name] for name in COLUMNS] for row in self.rows)))
        else:
            write_whole(file, f"{json.dumps(self.to_json(), indent=1)}\n")


def require_table_name(file: Path) -> str:
    """The suffix of a file that a table can be written to; refuses what cannot be, before any work."""
    suffix = file.suffix.casefold()
    if suffix not in FORMATS:
        raise AneforgeError(f"{file}: not a format of tables. End the name in one of: {', '.join(FORMATS)}.")
    if file.is_dir():
        raise AneforgeError(f"{file}: a folder; give the name of a file, such as {file / 'results.csv'}")
    if suffix == ".parquet":
        _pyarrow(file)
    return suffix


def rows_of_plan(plan: SweepPlan, folder: Folder) -> Iterable[Row]:
    """The rows of every model of a plan on every target, in their order."""
    for planned in plan.models:
        yield from _rows(planned, plan, folder.read(planned.key) if planned.key else None)


def _rows(planned: Planned, plan: SweepPlan, result: Mapping[str, Any] | None) -> Iterable[Row]:
    model = planned.model
    head = {"model": model.path, "revision": model.revision, "dims": model.sizes, "function": model.function or ""}
    tail = {"aneforge": plan.version, "key": planned.key}
    if result is not None and result["kind"] == "done":
        for row in result["rows"]:
            own = {**row, "rules": " ".join(row["rules"]), "kind": "done", "graph": result["graph"]}
            yield _whole({**head, **own, **tail})
        return
    kind = "input" if planned.error else result["kind"] if result else NOT_DONE
    error = planned.error or (result["error"] if result else "the sweep has not come to it; run it again to go on")
    for target, chip in plan.options.targets.items():
        verdict = NOT_DONE if kind == NOT_DONE else "error"
        yield _whole(
            {**head, "target": target, "chip": chip, "verdict": verdict, "kind": kind, "error": error, **tail}
        )


def _whole(row: Mapping[str, Any]) -> Row:
    return {name: row.get(name, "" if kind is str else None) for name, kind in COLUMNS.items()}


def model_name(row: Row) -> str:
    """What tells a model from the others of a table."""
    return " ".join(str(row[key]) for key in ("model", "revision", "dims", "function") if row[key])


# Files.


def _write_parquet(rows: Sequence[Row], file: Path) -> None:
    arrow, parquet = _pyarrow(file)
    kinds = {str: arrow.string(), int: arrow.int64(), float: arrow.float64()}
    schema = arrow.schema([(name, kinds[kind]) for name, kind in COLUMNS.items()])
    columns = {name: [row[name] for row in rows] for name in COLUMNS}
    with written_file(file) as stream:
        parquet.write_table(arrow.table(columns, schema=schema), stream)


def _pyarrow(file: Path) -> tuple[Any, Any]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ModuleNotFoundError:
        raise AneforgeError(
            f"{file}: Parquet needs pyarrow. Install it with {install_hint('sweep')}, or write a .csv or .json."
        ) from None
    return pyarrow, parquet


def read_table(place: str | Path) -> Table:
    """The table of a folder of results, or of a file that was merged."""
    file = Path(place)
    if file.is_dir():
        folder = Folder(file)
        return Table([row for plan in folder.plans() for row in rows_of_plan(plan, folder)])
    if not file.is_file():
        raise AneforgeError(f"{file}: no such file or folder; give a folder of a sweep, or a table of one")
    suffix = require_table_name(file)
    try:
        if suffix == ".parquet":
            rows = _pyarrow(file)[1].read_table(file).to_pylist()
            return _table(rows)
        text = file.read_bytes().decode("utf-8")  # line ends as they are: a cell may have one
        if suffix == ".json":
            return _table(typed(_TableDocument, parse_json(text, str(file)))["rows"])
        lines = csv.DictReader(io.StringIO(text, newline=""))
        return Table([{name: _value(line[name], kind) for name, kind in COLUMNS.items()} for line in lines])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise AneforgeError(
            f"{file}: not a table of a sweep ({first_line(error)}); see aneforge sweep merge"
        ) from None


def _table(rows: Sequence[Row]) -> Table:
    """Rows of a file, each cell of the type of its column."""
    for number, row in enumerate(rows):
        for name, kind in COLUMNS.items():
            typed(
                kind if kind is str else kind | None,
                row.get(name, "" if kind is str else None),
                f"rows[{number}].{name}",
            )
    return Table([_whole(row) for row in rows])


def _value(text: str, kind: type) -> Any:
    if kind is str:
        return unguarded(text)
    value = kind(text) if text else None
    if value is not None and not isfinite(value):
        raise ValueError(f"{text[:40]!r} is not a number")
    return value


# One table of several folders of results: the shards of a sweep, or sweeps of different models.


def merge(places: Sequence[str | Path]) -> Table:
    """The rows of all folders and tables, in the order of models and targets by name.

    A row that several have alike is there once. Two different answers to one question are refused: they are of
    two versions or of a file that has changed, which is what ``compare`` is for.
    """
    rows: dict[tuple[str, ...], dict[str, Any]] = {}
    origin: dict[tuple[str, ...], str] = {}
    order: dict[str, int] = {}
    for place in places:
        for row in read_table(place).rows:
            key = tuple(row[name] for name in ("model", "revision", "dims", "function", "target"))
            order.setdefault(row["target"], len(order))
            if rows.setdefault(key, row) != row:
                raise AneforgeError(
                    f"{row['model']} on {row['target']}: {origin[key]} and {place} have different results. Leave one "
                    "of them out, or compare them with aneforge sweep compare."
                )
            origin.setdefault(key, str(place))
    ordered = sorted(rows.items(), key=lambda item: (item[0][:4], order[item[0][4]]))
    return Table([row for _, row in ordered])
