"""Plain text for terminals and pipes: aligned columns, and JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from aneforge.errors import shown


def columns(headers: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table with aligned columns, numbers to the right."""
    cells = [[_cell(value) for value in row] for row in rows]
    widths = [max(len(line[i]) for line in [list(headers), *cells]) for i in range(len(headers))]
    numeric = [bool(cells) and all(_is_number(line[i]) for line in cells) for i in range(len(headers))]

    def line(values: Sequence[str]) -> str:
        padded = (v.rjust(w) if right else v.ljust(w) for v, w, right in zip(values, widths, numeric, strict=True))
        return "  ".join(padded).rstrip()

    return "\n".join([line(headers), line(["-" * width for width in widths]), *(line(row) for row in cells)])


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
