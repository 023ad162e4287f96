"""What differs between two sweeps: other verdicts, times, memory, rules or errors, model by model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aneforge.errors import ArgumentError, shown
from aneforge.reports.sweep.table import Row, Table, read_table
from aneforge.text import first_of, grouped, more, some

_NUMBERS = ("us", "energy_mj", "memory_bytes", "peak_l2", "weight_bytes")
_VALUES = ("verdict", "ops", "engine_ops", "rules", "error")
_ABSENT = "not there"
_CHANGES = 40


@dataclass(frozen=True)
class Change:
    """One value that two sweeps have differently for a model, and the chips on which they do."""

    model: str
    what: str
    before: Any
    after: Any
    chips: tuple[str, ...]

    def __str__(self) -> str:
        return shown(f"{self.model}: {self.what} {_text(self.before)} -> {_text(self.after)} on {some(self.chips, 6)}")

    def to_json(self) -> dict[str, Any]:
        return {**self.__dict__, "chips": list(self.chips)}


@dataclass(frozen=True)
class SweepComparison:
    """The changes from one sweep to another, in the order of the first."""

    changes: tuple[Change, ...]
    rows: int
    tolerance: float

    @property
    def ok(self) -> bool:
        return not self.changes

    def to_json(self) -> dict[str, Any]:
        changes = [change.to_json() for change in self.changes]
        return {"ok": self.ok, "rows": self.rows, "tolerance": self.tolerance, "changes": changes}

    def __str__(self) -> str:
        return self.text()

    def text(self, everything: bool = False) -> str:
        if self.ok:
            return f"the sweeps agree in {self.rows:,} rows; numbers within {self.tolerance:g} per cent"
        lines = [str(change) for change in first_of(self.changes, _CHANGES, everything)]
        return "\n".join([*lines, *more(len(self.changes), _CHANGES, "changes", everything)])


def compare(before: str | Path | Table, after: str | Path | Table, tolerance: float = 0.0) -> SweepComparison:
    """Compare two sweeps, each a folder, a file or a table. Rows are of the same model by path, sizes and function;
    revisions may differ. ``tolerance`` is how many per cent a number may change."""
    if not tolerance >= 0:
        raise ArgumentError("tolerance", f"{tolerance:g} is not a percentage. Give 0 or more.")
    left, right = (_by_question(one if isinstance(one, Table) else read_table(one)) for one in (before, after))
    differences = [
        (model, what, old, new, chip)
        for question in dict.fromkeys([*left, *right])
        for model, what, old, new, chip in _differences(left.get(question), right.get(question), tolerance)
    ]
    groups = grouped(differences, lambda one: (one[0], one[1], repr(_shown_alike(one[1], one[2], one[3]))))
    changes = [
        Change(model, what, old, new, tuple(one[4] for one in alike))
        for alike in groups.values()
        for model, what, old, new, _ in alike[:1]
    ]
    return SweepComparison(tuple(changes), len(set(left) | set(right)), tolerance)


def _by_question(table: Table) -> dict[tuple[str, ...], Row]:
    return {tuple(row[name] for name in ("model", "dims", "function", "target")): row for row in table.rows}


def _differences(old: Row | None, new: Row | None, tolerance: float) -> Iterator[tuple[str, str, Any, Any, str]]:
    row = new if old is None else old
    if row is None:
        return
    model = " ".join(str(row[key]) for key in ("model", "dims", "function") if row[key])
    if old is None or new is None:
        before, after = (_ABSENT, row["verdict"]) if old is None else (row["verdict"], _ABSENT)
        yield model, "verdict", before, after, row["chip"]
        return
    for what in _VALUES:
        if old[what] != new[what]:
            yield model, what, old[what], new[what], row["chip"]
    for what in _NUMBERS:
        if _is_other(old[what], new[what], tolerance):
            yield model, what, old[what], new[what], row["chip"]


def _is_other(old: float | None, new: float | None, tolerance: float) -> bool:
    if old is None or new is None:
        return old is not new
    return abs(new - old) > abs(old) * tolerance / 100


def _shown_alike(what: str, old: Any, new: Any) -> tuple[Any, Any]:
    """Chips share a line where what is shown is the same."""
    return (_text(old), _text(new)) if what in _NUMBERS else (old, new)


def _text(value: Any) -> str:
    if value is None:
        return "?"
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value) if str(value) else "none"
