"""One table of several folders of results: the shards of a sweep, or sweeps of different models."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from aneforge.errors import AneforgeError
from aneforge.sweep.table import Table, read_table


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
                    "of them out, or compare them with aneforge sweep diff."
                )
            origin.setdefault(key, str(place))
    ordered = sorted(rows.items(), key=lambda item: (item[0][:4], order[item[0][4]]))
    return Table([row for _, row in ordered])
