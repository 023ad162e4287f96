"""Results as tables: in a notebook, and as frames of pandas or pyarrow where one of them is installed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from html import escape
from importlib.util import find_spec
from typing import Any

from aneforge.errors import AneforgeError, ArgumentError, shown

MOST_ROWS = 200
"""Rows that a notebook shows of a table."""
LIBRARIES = ("pandas", "pyarrow")


class Tabular(ABC):
    """A result with rows: ``to_frame`` gives them to a library of frames, and a notebook shows them."""

    @abstractmethod
    def records(self) -> list[dict[str, Any]]:
        """The rows, each with the same names."""

    def to_frame(self, library: str | None = None) -> Any:
        """The rows as a frame of pandas, or as a table of pyarrow where only that is installed.

        ``library`` names one of the two.
        """
        return frame_of(self.records(), library)

    def _repr_html_(self) -> str:
        return html_of(str(self).partition("\n")[0], self.records())


def frame_of(records: Sequence[Mapping[str, Any]], library: str | None = None) -> Any:
    """Rows as a frame of a library that is installed."""
    if library is not None and library not in LIBRARIES:
        raise ArgumentError("library", f"{library!r} is unknown; choose one: {', '.join(LIBRARIES)}.")
    asked = LIBRARIES if library is None else (library,)
    installed = next((name for name in asked if find_spec(name) is not None), None)
    if installed is None:
        names = " or ".join(asked)
        raise AneforgeError(f"to_frame: {names} is not installed. Install it, or use records(), a list of dicts.")
    if installed == "pandas":
        import pandas  # pyright: ignore[reportMissingImports]

        return pandas.DataFrame(list(records))
    import pyarrow  # pyright: ignore[reportMissingImports]

    return pyarrow.Table.from_pylist([dict(record) for record in records])


def html_of(title: str, records: Sequence[Mapping[str, Any]]) -> str:
    """Rows as a table of a page, in the colours of the page; names are strangers', so all text is escaped."""
    head = f"<p>{escape(shown(title))}</p>"
    if not records:
        return head
    names = list(records[0])
    rows = "".join(
        "<tr>" + "".join(_cell(record.get(name)) for name in names) + "</tr>" for record in records[:MOST_ROWS]
    )
    more = len(records) - MOST_ROWS
    rest = f"<p>and {more:,} more rows; to_frame() has all</p>" if more > 0 else ""
    heads = "".join(f'<th scope="col" style="text-align:left">{escape(name)}</th>' for name in names)
    return f"{head}<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>{rest}"


def _cell(value: Any) -> str:
    if value is None:
        return "<td>?</td>"
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        text = f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"
        return f'<td style="text-align:right">{text}</td>'
    return f'<td style="text-align:left">{escape(shown(str(value)))}</td>'
