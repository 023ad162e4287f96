"""Tables as CSV that a spreadsheet shows as it is: names are strangers', and none of them may act as a formula."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from typing import Any

_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_GUARD = "'"


def csv_text(head: Iterable[str], rows: Iterable[Sequence[Any]]) -> str:
    """The table with its head. Text that a spreadsheet would take for a formula is :func:`guarded`; None is empty."""
    lines = _Lines()
    # The writer quotes what is in its line end: with both characters there, a lone one in a cell ends no line either.
    writer = csv.writer(lines, lineterminator="\r\n")
    writer.writerow(head)
    writer.writerows([guarded(cell) if isinstance(cell, str) else cell for cell in row] for row in rows)
    return "".join(f"{line[:-2]}\n" for line in lines.written)


class _Lines:
    """What a writer writes, line by line."""

    def __init__(self) -> None:
        self.written: list[str] = []

    def write(self, line: str) -> None:
        self.written.append(line)


def guarded(text: str) -> str:
    """The text, with a quote in front if it begins as a formula does; :func:`unguarded` takes the quote away."""
    return f"{_GUARD}{text}" if _is_risky(text) else text


def unguarded(text: str) -> str:
    return text[1:] if text.startswith(_GUARD) and _is_risky(text[1:]) else text


def _is_risky(text: str) -> bool:
    """Text that looks guarded already is one more, or it would be another text when it is read back."""
    return text.lstrip(_GUARD).startswith(_FORMULA)
