"""How much commands print, and in which colours: ``-q``, ``-v``, ``--color``. Notes go to stderr."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import TextIO

from aneforge.errors import AneforgeError

__all__ = ["COLORS", "detail", "note", "paint", "progress", "set_voice", "voice"]

COLORS = ("auto", "always", "never")
_CODES = {"red": "31", "green": "32", "yellow": "33", "cyan": "36"}


@dataclass
class Voice:
    """What the options of the command say."""

    quiet: bool = False
    verbose: bool = False
    color: str = "auto"


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


def note(message: str) -> None:
    """A line beside the result, on stderr; none with ``-q``."""
    if not _VOICE.quiet:
        print(message, file=sys.stderr)


def detail(message: str) -> None:
    """A line for somebody who wants to know more, on stderr; only with ``-v``."""
    if _VOICE.verbose:
        print(message, file=sys.stderr)


def progress(message: str) -> None:
    """What is being done now, on a line of stderr that the next one takes the place of; only on a terminal."""
    if not _VOICE.quiet and sys.stderr.isatty():
        print(f"\r\x1b[K{message}", end="", file=sys.stderr, flush=True)


def paint(word: str, color: str, stream: TextIO | None = None) -> str:
    """The word in a colour, where the stream shows colours or ``--color always`` asks for them."""
    return f"\x1b[{_CODES[color]}m{word}\x1b[0m" if _shows_color(stream or sys.stdout) else word


def _shows_color(stream: TextIO) -> bool:
    if _VOICE.color != "auto":
        return _VOICE.color == "always"
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
