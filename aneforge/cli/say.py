"""How much commands print, and in which colours: ``-q``, ``-v``, ``--color``. Notes go to stderr."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TextIO

from aneforge.errors import AneforgeError

COLORS = ("auto", "always", "never")
_CODES = {"red": "31", "green": "32", "yellow": "33", "cyan": "36"}


@dataclass
class Voice:
    """What the options of the command say."""

    quiet: bool = False
    verbose: bool = False
    color: str = "auto"
    lifted: Callable[[], AbstractContextManager[None]] = nullcontext
    """What takes a line of progress off the terminal while something else is printed."""


_VOICE = Voice()


def voice() -> Voice:
    return _VOICE


def set_voice(quiet: bool = False, verbose: bool = False, color: str = "auto") -> None:
    """Set all three; a command starts with this."""
    if color not in COLORS:
        raise AneforgeError(f"--color takes {', '.join(COLORS)}, not {color!r}")
    if quiet and verbose:
        raise AneforgeError("-q leaves notes out and -v adds some; choose one")
    _VOICE.quiet, _VOICE.verbose, _VOICE.color = quiet, verbose, color


@contextmanager
def around(lifted: Callable[[], AbstractContextManager[None]]) -> Iterator[None]:
    """Print within ``lifted`` inside, which takes a line of progress off the terminal meanwhile."""
    _VOICE.lifted = lifted
    try:
        yield
    finally:
        _VOICE.lifted = nullcontext


def line(message: str) -> None:
    """A line on stderr, whatever the options say: errors and warnings."""
    with _VOICE.lifted():
        print(message, file=sys.stderr)


def note(message: str) -> None:
    """A line beside the result, on stderr; none with ``-q``."""
    if not _VOICE.quiet:
        line(message)


def detail(message: str) -> None:
    """A line for somebody who wants to know more, on stderr; only with ``-v``."""
    if _VOICE.verbose:
        line(message)


def paint(word: str, color: str, stream: TextIO | None = None) -> str:
    """The word in a colour, where the stream shows colours or ``--color always`` asks for them."""
    return f"\x1b[{_CODES[color]}m{word}\x1b[0m" if _shows_color(stream or sys.stdout) else word


def _shows_color(stream: TextIO) -> bool:
    if _VOICE.color != "auto":
        return _VOICE.color == "always"
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
