"""What belongs to the whole process and is changed for a while: the garbage collector, the filters of warnings and
the settings.

The process is the user's. Whatever is changed here nests, works from several threads at a time, and is put back as it
was found.
"""

from __future__ import annotations

import gc
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Lock, RLock
from typing import TypeVar

Result = TypeVar("Result")

_warnings_lock = RLock()


class _Pause:
    """How many are inside, and what the first of them found."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.inside = 0
        self.was_on = False


_pause = _Pause()


@contextmanager
def quiet_collector() -> Iterator[None]:
    """No garbage collection inside: a compile makes many small objects, and none of them is garbage yet.

    The collector is one for all threads: the first that comes in turns it off, the last that goes out turns it on
    again, if it was on. Nothing is frozen: the caller's objects stay in the generations where they were.
    """
    with _pause.lock:
        if not _pause.inside:
            _pause.was_on = gc.isenabled()
            gc.disable()
        _pause.inside += 1
    try:
        yield
    finally:
        with _pause.lock:
            _pause.inside -= 1
            if not _pause.inside and _pause.was_on:
                gc.enable()


@contextmanager
def settings(values: Mapping[str, str | None]) -> Iterator[None]:
    """Settings of the environment inside, which worker processes take over; one that is None stays as it is."""
    changed = {name: value for name, value in values.items() if value is not None}
    before = {name: os.environ.get(name) for name in changed}
    os.environ.update(changed)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def quiet_warnings() -> Iterator[None]:
    """No warnings of other people's libraries inside.

    Filters are one list for all threads, and two that save and restore it in turns would leave the list of one to the
    other for good: so threads come in one by one.
    """
    with _warnings_lock, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


# Work that is done ahead, in a thread of its own.


def ahead(work: Callable[[], Result]) -> Iterator[Result]:
    """What some work gives, again and again until it gives nothing; the next is under way while one is used."""
    with ThreadPoolExecutor(1) as thread:
        coming = thread.submit(work)
        while result := coming.result():
            coming = thread.submit(work)
            yield result
