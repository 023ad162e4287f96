"""Where the cache is, how large it may grow, and whether it is used at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from aneforge.budgets import bytes_of
from aneforge.errors import AneforgeError

OFF, FOLDER, SIZE = "ANEFORGE_NO_CACHE", "ANEFORGE_CACHE_DIR", "ANEFORGE_CACHE_SIZE"
DEFAULT_BYTES = 2 << 30

_off: ContextVar[bool] = ContextVar("aneforge cache is off", default=False)


@contextmanager
def off() -> Iterator[None]:
    """No cache inside: ``with aneforge.cache.off(): af.load(...)`` imports the file, and stores nothing."""
    token = _off.set(True)
    try:
        yield
    finally:
        _off.reset(token)


def is_on() -> bool:
    return not _off.get() and os.environ.get(OFF, "") in ("", "0")


def folder() -> Path | None:
    """The folder of the cache, which need not exist yet; None where this machine has no place for one."""
    chosen = os.environ.get(FOLDER)
    if chosen:
        return Path(chosen).absolute()
    try:
        caches = os.environ.get("XDG_CACHE_HOME")
        home = Path(caches) if caches and Path(caches).is_absolute() else Path.home() / ".cache"
    except RuntimeError:  # a user without a home
        return None
    return home / "aneforge" / "graphs"


def most_bytes() -> int:
    """How many bytes the cache may hold."""
    text = os.environ.get(SIZE)
    if not text:
        return DEFAULT_BYTES
    size = bytes_of(text)
    if size is None:
        raise AneforgeError(f"{SIZE}={text!r} is not a whole number of bytes; write for instance {SIZE}=4G")
    return size
