"""Plain text for terminals and pipes: aligned columns, and JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from textwrap import wrap
from typing import Any

from aneforge.errors import shown

WIDTH = 100
"""Columns that a line of a report takes at most."""

_LEAST = 24  # columns of a cell that is continued, however much is in front of it


def columns(headers: Sequence[str], rows: Iterable[Sequence[Any]], fit: bool = False) -> str:
    """A table with aligned columns, numbers to the right. ``fit`` continues the last column on further lines where it
    would pass the width of a report."""
    cells = [[_cell(value) for value in row] for row in rows]
    numeric = [bool(cells) and all(_is_number(line[i]) for line in cells) for i in range(len(headers))]
    if fit:
        cells = [line for row in cells for line in _fitted(row, _start_of_last(headers, cells))]
    widths = [max(len(line[i]) for line in [list(headers), *cells]) for i in range(len(headers))]

    def line(values: Sequence[str]) -> str:
        padded = (v.rjust(w) if right else v.ljust(w) for v, w, right in zip(values, widths, numeric, strict=True))
        return "  ".join(padded).rstrip()

    return "\n".join([line(headers), line(["-" * width for width in widths]), *(line(row) for row in cells)])


def _start_of_last(headers: Sequence[str], cells: Sequence[Sequence[str]]) -> int:
    """The column at which the last cell of a row begins."""
    places = range(len(headers) - 1)
    return sum(2 + max([len(headers[place]), *(len(row[place]) for row in cells)]) for place in places)


def _fitted(row: Sequence[str], start: int) -> list[list[str]]:
    """A row, and further ones that hold the rest of its last cell."""
    pieces = wrap(row[-1], max(_LEAST, WIDTH - start), break_long_words=False, break_on_hyphens=False) or [""]
    return [[*row[:-1], pieces[0]], *([*[""] * (len(row) - 1), piece] for piece in pieces[1:])]


def pairs(rows: Iterable[tuple[str, str, str]], indent: int = 2) -> str:
    """Lines of name, value and evidence."""
    listed = [(shown(name), shown(value), shown(label)) for name, value, label in rows]
    if not listed:
        return ""
    width = max(len(name) for name, _, _ in listed)
    value_width = min(34, max(len(value) for _, value, _ in listed))
    return "\n".join(
        f"{' ' * indent}{name.ljust(width)}  {value.ljust(value_width)}  {label}".rstrip()
        for name, value, label in listed
    )


def plural(number: int, what: str) -> str:
    """``1 layer``, ``2,000 layers``."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def human_bytes(count: int) -> str:
    """1536 as ``1.5 KB``; whole numbers below a kilobyte."""
    size = float(count)
    for unit in ("B", "KB", "MB"):
        if size < 1024:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.2f} GB"


def as_json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, default=list)


def _cell(value: Any) -> str:
    if value is None:
        return "?"
    if isinstance(value, (list, tuple)):
        return shown(", ".join(str(item) for item in value)) or "-"
    return shown(str(value))


def _is_number(text: str) -> bool:
    return text in ("?", "-", "") or text.replace(".", "", 1).isdigit()
