"""Long lists in few lines: names with a count of the rest, entries grouped by what they share, lines that fit.

Every report that lists nodes uses these, so that a model of a thousand nodes is as readable as one of ten.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

from aneforge.errors import shown
from aneforge.output.text import WIDTH

Item = TypeVar("Item")
Key = TypeVar("Key", bound=Hashable)


def wrapped(text: str, indent: str = "", hanging: str = "  ") -> str:
    """Text in lines that fit, the first one behind ``indent``, the others ``hanging`` further in."""
    lines = textwrap.wrap(
        shown(text),
        WIDTH,
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
