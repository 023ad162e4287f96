"""SVG by hand: marks, scales with ticks, text that knows its size, and names that cannot break the file.

Nothing here knows what is drawn. There is no font to ask, so widths of text are guessed, and guessed wide.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from html import escape
from math import ceil, floor, log10
from pathlib import Path
from typing import NamedTuple
from unicodedata import east_asian_width

from aneforge.errors import AneforgeError
from aneforge.files import write_whole

_INK = "#222222"
# What XML 1.0 does not allow in any form, not even as a reference.
_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True)
class Picture:
    """A finished drawing: a notebook shows it, ``save`` writes it."""

    kind: str
    svg: str = field(repr=False)
    """The text of the SVG file."""

    def _repr_svg_(self) -> str:
        return self.svg

    def save(self, path: str | Path) -> Path:
        """Write the drawing to a file whose name ends in ``.svg``, whole or not at all."""
        file = Path(path)
        if file.suffix.casefold() != ".svg":
            raise AneforgeError(f"{path}: pictures are SVG; give a name that ends in .svg.")
        write_whole(file, self.svg)
        return file


class Box(NamedTuple):
    left: float
    top: float
    right: float
    bottom: float

    def overlaps(self, other: Box) -> bool:
        return (
            self.left < other.right and other.left < self.right and self.top < other.bottom and other.top < self.bottom
        )

    def inside(self, other: Box) -> bool:
        return (
            self.left >= other.left
            and self.right <= other.right
            and self.top >= other.top
            and self.bottom <= other.bottom
        )

    def nearest(self, point: tuple[float, float]) -> tuple[float, float]:
        """The point of the box that is nearest to another."""
        return min(max(point[0], self.left), self.right), min(max(point[1], self.top), self.bottom)

    def crossed(self, start: tuple[float, float], end: tuple[float, float]) -> bool:
        """Whether a short line runs through the box; one that starts in it only leaves it."""
        points = [
            (start[0] + (end[0] - start[0]) * i / 12, start[1] + (end[1] - start[1]) * i / 12) for i in range(13)
        ]
        inside = [self.left < x < self.right and self.top < y < self.bottom for x, y in points]
        return any(inside) and not inside[0]


class Spot(NamedTuple):
    """Where a line of text stands: its baseline, and which end of it is meant."""

    x: float
    y: float
    anchor: str = "start"

    def box(self, words: str, size: float) -> Box:
        width = text_width(words, size)
        left = self.x - {"start": 0.0, "middle": width / 2, "end": width}[self.anchor]
        return Box(left, self.y - 0.8 * size, left + width, self.y + 0.25 * size)


# Text.


def text_width(words: str, size: float) -> float:
    """Pixels that a line of text takes at most in the usual sans-serif fonts; bold is about an eighth wider."""
    return size * sum(_em(letter) for letter in words)


def _em(letter: str) -> float:
    if letter in "ijlI.,:;'| ":
        return 0.34
    if letter in "mwMW@%…" or east_asian_width(letter) in ("W", "F"):
        return 1.0
    return 0.64 if letter.isascii() and letter not in "#&+<=>^~" and not letter.isupper() else 0.85


def shortened(words: str, size: float, width: float, keep: str = "start") -> str:
    """A line that fits a width; ``keep`` says which end of a long one stays."""
    if text_width(words, size) <= width:
        return words
    kept, left = [], width - size  # the dots take one em
    for letter in words if keep == "start" else reversed(words):
        left -= size * _em(letter)
        if left < 0:
            break
        kept.append(letter)
    return "".join([*kept, "…"] if keep == "start" else ["…", *reversed(kept)])


def wrapped(words: str, size: float, width: float) -> list[str]:
    """A paragraph as lines of at most a width; a word that is longer than a line is cut."""
    lines: list[str] = []
    for word in words.split():
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and text_width(longer, size) <= width:
            lines[-1] = longer
        else:
            lines.append(shortened(word, size, width))
    return lines


class Room:
    """The free part of a frame: it hands out places for text, so that no two overlap and none leaves the frame."""

    def __init__(self, frame: Box) -> None:
        self.frame = frame
        self.taken: list[Box] = []

    def take(self, box: Box) -> None:
        self.taken.append(box)

    def place(
        self,
        words: str,
        size: float,
        spots: Iterable[Spot],
        avoid: Iterable[Box] = (),
        origin: tuple[float, float] | None = None,
        uncrossed: Iterable[Box] = (),
    ) -> Spot | None:
        """The first spot where the words are free of others and of what to avoid; taken from then on.

        With an origin, a line from there to the words crosses no other words and none of ``uncrossed``.
        """
        others, between = [*self.taken, *avoid], [*self.taken, *uncrossed]
        for spot in spots:
            box = spot.box(words, size)
            if not box.inside(self.frame) or any(box.overlaps(other) for other in others):
                continue
            if origin and any(other.crossed(origin, box.nearest(origin)) for other in between):
                continue
            self.take(box)
            return spot
        return None


# Scales.


@dataclass(frozen=True)
class Linear:
    """Values from zero on a straight axis."""

    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        return self.start + (self.end - self.start) * value / self.high

    def ticks(self, count: int = 8) -> Iterator[tuple[float, str]]:
        """At most about ``count`` round values, with their words."""
        step = nice_step(self.high / count)
        digits = max(0, -floor(log10(step)))
        for number in range(floor(self.high / step * (1 + 1e-9)) + 1):
            yield number * step, f"{number * step:,.{digits}f}" if number else "0"


def nice_step(least: float) -> float:
    """The smallest of 1, 2 and 5 times a power of ten that is not below ``least``."""
    power = 10.0 ** floor(log10(least))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= least * (1 - 1e-9))


@dataclass(frozen=True)
class Log:
    """Positive values on a logarithmic axis."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        return self.start + (self.end - self.start) * log10(value / self.low) / log10(self.high / self.low)

    def ticks(self, count: int = 8) -> Iterator[tuple[float, str]]:
        """Powers of ten, fewer where there are many; 1, 2 and 5 times them where there are few."""
        first, last = floor(log10(self.low)), ceil(log10(self.high))
        stride = max(1, ceil((last - first) / count))
        steps = (1, 2, 5) if self.high / self.low < 300 else (1,)
        for power in range(first, last + 1):
            if power % stride:
                continue
            for step in steps:
                value = step * 10.0**power
                if self.low <= value <= self.high:
                    yield value, _power_words(value, step, power)


def _power_words(value: float, step: int, power: int) -> str:
    if -4 <= power <= 5:
        return f"{value:,.{max(0, -power)}f}"
    raised = f"10{str(power).translate(_SUPERSCRIPTS)}"
    return raised if step == 1 else f"{step}·{raised}"


# The file.


class Drawing:
    """A white sheet of a fixed width that grows downwards; what is drawn later lies above."""

    def __init__(self, width: float, title: str, description: str) -> None:
        self.width = width
        self._head = f"<title>{_words(title)}</title>\n<desc>{_words(description)}</desc>\n"
        self._marks: list[str] = []

    def mark(self, tag: str, hover: str = "", **attributes: float | str) -> None:
        """Any element: ``class_`` is the attribute ``class``, ``stroke_width`` is ``stroke-width``."""
        written = _attributes(attributes)
        self._marks.append(
            f"<{tag}{written}><title>{_words(hover)}</title></{tag}>\n" if hover else f"<{tag}{written}/>\n"
        )

    def rect(self, box: Box, fill: str, hover: str = "", **attributes: float | str) -> None:
        size = {"width": box.right - box.left, "height": box.bottom - box.top}
        self.mark("rect", hover, x=box.left, y=box.top, **size, fill=fill, **attributes)

    def line(self, start: tuple[float, float], end: tuple[float, float], **attributes: float | str) -> None:
        self.mark("line", x1=start[0], y1=start[1], x2=end[0], y2=end[1], **{"stroke": _INK, **attributes})

    def text(self, spot: Spot, words: str, size: float = 12, hover: str = "", **attributes: float | str) -> None:
        anchor = {} if spot.anchor == "start" else {"text_anchor": spot.anchor}
        written = _attributes({"x": spot.x, "y": spot.y, "font_size": size, **anchor, **attributes})
        more = f"<title>{_words(hover)}</title>" if hover else ""
        self._marks.append(f"<text{written}>{_words(words)}{more}</text>\n")

    def paragraph(self, top: float, words: str, size: float = 12, left: float = 20) -> float:
        """Lines from ``top`` down, across the sheet; returns where they end."""
        for line in wrapped(words, size, self.width - 2 * left):
            self.text(Spot(left, top + size), line, size, fill="#555555")
            top += 1.4 * size
        return top

    def legend(self, top: float, entries: Iterable[tuple[str, str, str]], left: float = 20) -> float:
        """Squares (fill, stroke) with words, in one line or more; returns where they end."""
        x = left
        for fill, stroke, words in entries:
            wide = 18 + text_width(words, 12)
            if x > left and x + wide > self.width - left:
                x, top = left, top + 20
            self.rect(Box(x, top + 3, x + 12, top + 15), fill, stroke=stroke)
            self.text(Spot(x + 18, top + 13), words, class_="legend")
            x += wide + 16
        return top + 24

    def svg(self, height: float) -> str:
        """The whole file. It is ASCII: any terminal, pipe and reader takes it, in any locale."""
        width, tall = _number(self.width), _number(ceil(height))
        document = (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{tall}" viewBox="0 0 {width} {tall}" '
            f'role="img" font-family="sans-serif" fill="{_INK}">\n{self._head}'
            f'<rect width="{width}" height="{tall}" fill="#ffffff"/>\n{"".join(self._marks)}</svg>\n'
        )
        return document.encode("ascii", "xmlcharrefreplace").decode("ascii")


def _attributes(attributes: dict[str, float | str]) -> str:
    return "".join(f' {name.rstrip("_").replace("_", "-")}="{_value(value)}"' for name, value in attributes.items())


def _value(value: float | str) -> str:
    return _words(value) if isinstance(value, str) else _number(value)


def _number(value: float) -> str:
    digits = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if digits == "-0" else digits


def _words(text: str) -> str:
    return escape(_FORBIDDEN.sub("\ufffd", text))


# The sheet that all pictures are drawn on: its size, its title, and what small text looks like.


WIDTH = 900.0
MARGIN = 20.0
GREY = "#555555"
SMALL = 11.0
BOLD = 1.13  # how much wider bold text is


def sheet(title: str, description: str) -> tuple[Drawing, float]:
    drawing = Drawing(WIDTH, title, description)
    drawing.text(Spot(MARGIN, 32), shortened(title, 18 * BOLD, WIDTH - 2 * MARGIN), 18, font_weight="bold")
    return drawing, 44.0
