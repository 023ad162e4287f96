"""Text from a stranger's file inside Markdown: it is shown as it is, and none of it is obeyed.

A report goes into a pull request as a comment. There a name could open a code span, an image or a link, start a table
cell, or call people by ``@name``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from aneforge.errors import shortened, shown

_UNSEEN = "\u200b"
"""A space without width: it parts what a page would otherwise take for an address or for somebody's name."""
_MARKS = re.compile(r"[\\`*<>|~$]|\](?=[(\[:])|(?<![A-Za-z0-9])_+|_+(?![A-Za-z0-9])|&(?=#?\w+;)")
_ADDRESSES = re.compile(r"(?<=:)(?=//)|(?<=www)(?=\.)|(?<=@)(?=\w)|(?<=#)(?=\d)", re.IGNORECASE)


def inert(text: str) -> str:
    """Text whose marks are shown, not obeyed."""
    marked = _MARKS.sub(lambda mark: "".join(f"\\{letter}" for letter in mark[0]), shown(text))
    return _ADDRESSES.sub(_UNSEEN, marked)


def code(name: str) -> str:
    """A name as a code span, which holds any text: its fence is longer than any run of backticks in the name."""
    words = shortened(shown(name)).replace("|", "\\|")  # a table ends a cell there even inside a code span
    runs = [len(run) for run in re.findall("`+", words)]
    fence = "`" * next(size for size in range(1, len(runs) + 2) if size not in runs)
    pad = " " if words.startswith("`") or words.endswith("`") or not words.strip() else ""
    return f"{fence}{pad}{words}{pad}{fence}"


def table_row(cells: Iterable[str]) -> str:
    """A row of a table."""
    return f"| {' | '.join(cells)} |"
