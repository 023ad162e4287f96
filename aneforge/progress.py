"""Progress of work that takes long: how work tells it, and the line on a terminal or in a log that shows it."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Lock, Thread
from typing import TextIO

Progress = Callable[[int, int, str], None]
"""Hears how much is done, of how much (0 where nobody knows), and what is being done now. The one protocol of all
functions that take ``progress``."""

_BAR, _ERASE = 24, "\r\x1b[K"
_FIRST, _EVERY = 1.0, 0.2  # seconds: what is over sooner is not announced
_LOG_LINES = 10


def progress_text(done: int, total: int, what: str, seconds: float, left: float | None = None) -> str:
    """``[######......] 6/12 (50 %)  what  4 s left``, or ``what ... 3 s`` where nothing can be counted.

    Until it is known how much time is left, the seconds that have passed show that something is being done.
    """
    if total <= 0:
        return f"{what} ... {_duration(seconds)}"
    done = min(done, total)
    filled = _BAR * done // total
    bar = f"[{'#' * filled}{'.' * (_BAR - filled)}] {done}/{total} ({100 * done // total} %)"
    if done == total:
        rest = ""
    elif left is not None and left >= 0.5:
        rest = f"{_duration(left)} left"
    else:
        rest = f"{_duration(seconds)} so far" if seconds >= 1 else ""
    return "  ".join(part for part in (bar, what, rest) if part)


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


class Steps:
    """Counts the steps of some work for somebody who waits."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self._progress, self._total, self._done = progress, total, 0

    def next(self, what: str) -> None:
        """Say what is done now; the step before is done."""
        if self._progress is not None:
            self._progress(self._done, self._total, what)
        self._done += 1

    def end(self) -> None:
        if self._progress is not None:
            self._progress(self._total, self._total, "")


class _State:
    """What was heard last, and how long the rest takes if it goes on as it did."""

    def __init__(self, what: str) -> None:
        self.start = time.monotonic()
        self.heard: tuple[int, int, str] = (0, 0, what)
        self._first: tuple[int, float] | None = None  # a resumed run starts with much of it done
        self._end: float | None = None

    def hear(self, done: int, total: int, what: str) -> None:
        now = time.monotonic()
        if total > 0 and (self._first is None or done < self._first[0]):
            self._first = done, now
        if self._first is not None and done > self._first[0]:
            self._end = now + (now - self._first[1]) / (done - self._first[0]) * (total - done)
        self.heard = done, total, what or self.heard[2]

    def text(self) -> str:
        now = time.monotonic()
        left = None if self._end is None or self._end <= now else self._end - now
        return progress_text(*self.heard, now - self.start, left)


class Line:
    """One line of a terminal that says how far some work is; a ``Progress`` while its block runs, gone afterwards.

    A thread redraws it, so that the seconds go on where the work tells nothing for a while. Nothing is drawn in the
    first second. Whoever prints to the same terminal meanwhile does so within ``lifted``.
    """

    def __init__(self, what: str, stream: TextIO | None = None, first: float = _FIRST) -> None:
        self._stream = stream or sys.stderr
        self._state, self._lock, self._end = _State(what), Lock(), Event()
        self._first, self._drawn = first, ""
        self._thread = Thread(target=self._redraw, daemon=True)

    def __call__(self, done: int, total: int, what: str) -> None:
        self._state.hear(done, total, what)

    def __enter__(self) -> Line:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()
        with self.lifted():
            pass

    @contextmanager
    def lifted(self) -> Iterator[None]:
        """The terminal without the line, for somebody who prints."""
        with self._lock:
            if self._drawn:
                self._write(_ERASE)
                self._drawn = ""
            yield

    def _redraw(self) -> None:
        wait = self._first
        while not self._end.wait(wait):
            wait = _EVERY
            text = self._state.text()[: self._columns() - 1]  # a line that wraps cannot be erased
            with self._lock:
                if text != self._drawn and not self._end.is_set():
                    self._write(_ERASE + text)
                    self._drawn = text

    def _columns(self) -> int:
        try:
            return os.get_terminal_size(self._stream.fileno()).columns or 80
        except (OSError, ValueError):
            return 80

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):  # the terminal is gone: the work goes on
            self._end.set()


class LogLines:
    """The same for a log: a line when something new is done, ten in all of one thing that is counted."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say, self._state = say, _State("")
        self._last: tuple[int, str] | None = None

    def __call__(self, done: int, total: int, what: str) -> None:
        self._state.hear(done, total, what)
        part = _LOG_LINES * done // total if total > 0 else 0
        if total > _LOG_LINES and self._last is not None and self._last[0] == part:
            return
        if (part, what) != self._last:
            self._last = part, what
            self._say(self._state.text() if total > 0 else what)
