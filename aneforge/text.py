"""Plain text for terminals and pipes: aligned columns, JSON, results by chip, and long lists in few lines."""

from __future__ import annotations

import json
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from textwrap import wrap
from typing import Any, Generic, TypeVar

from aneforge.errors import AneforgeError, UnknownNameError, shown

WIDTH = 100
"""Columns that a line of a report takes at most where nobody looks on: in files, in pipes, in documents."""

_LONGEST_LINE = 120  # of prose on a wide terminal
_LEAST = 24  # columns of a cell that is continued, however much is in front of it
_NARROWEST = 8  # columns of a table that is made to fit


def terminal_width() -> int | None:
    """The columns of the terminal that is written to; None where output goes elsewhere."""
    if sys.stdout is None or not sys.stdout.isatty():
        return None
    return max(40, shutil.get_terminal_size((WIDTH, 24)).columns)


def line_width() -> int:
    """Columns that a line of prose takes at most."""
    return min(terminal_width() or WIDTH, _LONGEST_LINE)


def columns(headers: Sequence[str], rows: Iterable[Sequence[Any]], fit: bool = False) -> str:
    """A table with aligned columns, numbers to the right. ``fit`` continues the last column on further lines where it
    would pass the width of a report. On a terminal every table fits: its widest columns of words are continued."""
    cells = [[_cell(value) for value in row] for row in rows]
    numeric = [bool(cells) and all(_is_number(line[i]) for line in cells) for i in range(len(headers))]
    if fit:
        cells = [line for row in cells for line in _fitted(row, _start_of_last(headers, cells))]
    widths = [max(len(line[i]) for line in [list(headers), *cells]) for i in range(len(headers))]
    heads = [list(headers)]
    limit = terminal_width()
    if limit is not None and sum(widths) + 2 * len(widths) - 2 > limit:
        widths = _narrowed(widths, numeric, limit - 2 * len(widths) + 2)
        heads, cells = _folded(heads, widths), _folded(cells, widths)

    def line(values: Sequence[str]) -> str:
        padded = (v.rjust(w) if right else v.ljust(w) for v, w, right in zip(values, widths, numeric, strict=True))
        return "  ".join(padded).rstrip()

    return "\n".join([*map(line, heads), line(["-" * width for width in widths]), *map(line, cells)])


def _narrowed(widths: Sequence[int], numeric: Sequence[bool], room: int) -> list[int]:
    """Widths that fit the room: the widest columns of words give way first, those of numbers never."""
    fitted = list(widths)
    words = [place for place, number in enumerate(numeric) if not number]
    over = sum(fitted) - room
    while over > 0 and (wide := [place for place in words if fitted[place] > _NARROWEST]):
        widest = max(wide, key=lambda place: fitted[place])
        second = max([_NARROWEST, *(fitted[place] for place in wide if place != widest)])
        taken = min(over, max(1, fitted[widest] - second))
        fitted[widest] -= taken
        over -= taken
    return fitted


def _folded(rows: Iterable[Sequence[str]], widths: Sequence[int]) -> list[list[str]]:
    """Each row as one line or several, none of whose cells is wider than its column."""
    lines = []
    for row in rows:
        cells = [wrap(value, width, break_on_hyphens=False) or [""] for value, width in zip(row, widths, strict=True)]
        for number in range(max(map(len, cells))):
            lines.append([pieces[number] if number < len(pieces) else "" for pieces in cells])
    return lines


def _start_of_last(headers: Sequence[str], cells: Sequence[Sequence[str]]) -> int:
    """The column at which the last cell of a row begins."""
    places = range(len(headers) - 1)
    return sum(2 + max([len(headers[place]), *(len(row[place]) for row in cells)]) for place in places)


def _fitted(row: Sequence[str], start: int) -> list[list[str]]:
    """A row, and further ones that hold the rest of its last cell."""
    pieces = wrap(
        row[-1], max(_LEAST, (terminal_width() or WIDTH) - start), break_long_words=False, break_on_hyphens=False
    ) or [""]
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


def whole_number(words: str) -> int | None:
    """The number that a text is, or None: digits of other scripts and numbers of many digits are none."""
    return int(words) if re.fullmatch("[0-9]{1,18}", words) else None


def plural(number: int, what: str) -> str:
    """``1 layer``, ``2,000 layers``."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def percent(share: float) -> str:
    """A share or an error in two digits, and never as a power of ten from ten per cent on."""
    value = 100 * share
    return f"{value:,.0f} %" if abs(value) >= 9.95 else f"{value:.2g} %"


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


# Results by chip: one object for one chip and for several, printed and written as JSON in one shape.


Result = TypeVar("Result")


class ByChip(Mapping[str, Result], Generic[Result]):
    """The result of each chip, by the name it was asked for, in that order.

    Where one chip was asked for, ``only`` is its result, and the result's attributes can be read from here too:
    ``af.partition(model, "m1").regions``. The JSON has the same shape for one chip and for several.
    """

    def __init__(self, results: Mapping[str, Result]) -> None:
        self._results = dict(results)

    def __getitem__(self, chip: str) -> Result:
        if chip not in self._results:
            raise UnknownNameError(f"{chip}: this chip was not asked for. Choose one: {', '.join(self._results)}.")
        return self._results[chip]

    def __iter__(self) -> Iterator[str]:
        return iter(self._results)

    def __len__(self) -> int:
        return len(self._results)

    @property
    def only(self) -> Result:
        """The result of the one chip that was asked for."""
        if len(self._results) != 1:
            raise AneforgeError(
                f"result: there are results of {len(self._results)} chips. Choose one: {', '.join(self._results)}."
            )
        return next(iter(self._results.values()))

    def __getattr__(self, name: str) -> Any:
        results = self.__dict__.get("_results", {})
        if name.startswith("_") or len(results) != 1:
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}; it has results of {list(results)}")
        return getattr(next(iter(results.values())), name)

    def to_json(self) -> dict[str, Any]:
        return {"targets": {chip: result.to_json() for chip, result in self._results.items()}}  # type: ignore[attr-defined]

    def __str__(self) -> str:
        return "\n\n".join(map(str, self._results.values()))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {', '.join(self._results) or 'no chip'}>"


# Long lists in few lines: names with a count of the rest, entries grouped by what they share, lines that fit.


Item = TypeVar("Item")
Key = TypeVar("Key", bound=Hashable)


def wrapped(text: str, indent: str = "", hanging: str = "  ") -> str:
    """Text in lines that fit, the first one behind ``indent``, the others ``hanging`` further in."""
    lines = textwrap.wrap(
        shown(text),
        line_width(),
        initial_indent=indent,
        subsequent_indent=indent + hanging,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(lines)


def some(names: Sequence[str], most: int = 3) -> str:
    """The first names, and how many there are beside them."""
    listed = ", ".join(names[:most])
    return f"{listed} and {len(names) - most:,} more" if len(names) > most else listed


def counted(names: Iterable[str]) -> tuple[str, ...]:
    """Equal names once, with their number: ``3 x add``."""
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    return tuple(name if count == 1 else f"{count} x {name}" for name, count in counts.items())


def short(name: str, most: int = 40) -> str:
    """The end of a long name: exporters put the path in front."""
    return name if len(name) <= most else f"...{name[3 - most :]}"


def first_of(items: Sequence[Item], most: int, everything: bool = False) -> Sequence[Item]:
    """The entries that a report shows: all of them where that was asked for."""
    return items if everything else items[:most]


def more(count: int, most: int, what: str, everything: bool = False) -> list[str]:
    """The line that says how much a report leaves out; none where nothing is left out."""
    return [] if everything or count <= most else [f"  and {count - most:,} more {what} (--all lists them)"]


def grouped(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    """Entries by what they share, in the order in which each group first occurs."""
    groups: dict[Key, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups
