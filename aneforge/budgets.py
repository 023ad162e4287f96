"""How much a model file may ask of this machine while it is read: one set of limits for every reader.

A file is a stranger's, and a few hundred bytes can describe terabytes. Each limit has a name, a default far above what
real models need, and two ways to raise it: the environment variable ``ANEFORGE_MAX_<NAME>`` (``512M`` and ``8G`` are
understood), and ``with budgets.allow(name=value):`` around the load. docs/guide/budgets.md lists them.
"""

from __future__ import annotations

import os
import re
import stat
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

from aneforge.errors import AneforgeError, LoadError


@dataclass(frozen=True)
class Limit:
    """One limit: its default, and what it counts."""

    default: int
    counts: str


LIMITS: dict[str, Limit] = {
    "unpacked_bytes": Limit(32 << 30, "bytes that one archive (saved graph, .npz, .pt2) unpacks to"),
    "archive_ratio": Limit(200, "bytes that one byte of a compressed entry of an archive unpacks to"),
    "folded_bytes": Limit(2 << 30, "bytes of constants computed while a file is read, beyond 8 times its size"),
    "folded_work": Limit(10_000_000_000, "numbers read, multiplied or written to compute constants"),
    "nodes": Limit(250_000, "nodes walked, with functions, branches and loops written out"),
    "rounds": Limit(4096, "rounds of one loop that is written out"),
    "plist_bytes": Limit(256 << 20, "bytes of one netplist, without its weights"),
    "plist_values": Limit(5_000_000, "values of one netplist, each counted wherever it is used"),
    "program_bytes": Limit(8 << 30, "bytes of one compiled program (.hwx, .anec)"),
    "depth": Limit(16, "functions within functions, loops within loops"),
}
"""Every limit by name."""

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_allowed: ContextVar[dict[str, int] | None] = ContextVar("budgets", default=None)


@contextmanager
def allow(**limits: int) -> Iterator[None]:
    """Other limits for what is loaded inside: ``with budgets.allow(nodes=1_000_000): af.load(...)``."""
    for name, value in limits.items():
        if name not in LIMITS:
            raise AneforgeError(f"{name}: not a budget; choose one: {', '.join(LIMITS)}.")
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise AneforgeError(f"budget {name}: {value!r} is not a whole number of 0 or more")
    token = _allowed.set({**(_allowed.get() or {}), **limits})
    try:
        yield
    finally:
        _allowed.reset(token)


def limit(name: str) -> int:
    """The limit that holds now."""
    inside = (_allowed.get() or {}).get(name)
    if inside is not None:
        return inside
    variable = _variable(name)
    text = os.environ.get(variable)
    if text is None:
        return LIMITS[name].default
    number = bytes_of(text)
    if number is None:
        raise AneforgeError(f"{variable}={text!r} is not a whole number; write for instance {variable}=8G")
    return number


def bytes_of(text: str) -> int | None:
    """A whole number as people write sizes (``8192``, ``512M``, ``8G``), or None."""
    number = re.fullmatch(r"(\d{1,18})([KMGT]?)", text.strip().upper())
    return None if number is None else int(number[1]) * _UNITS[number[2]]


def spend(name: str, amount: int, where: str, free: int = 0) -> None:
    """Refuse what is over a limit; ``free`` is what the file's own size allows beyond it."""
    most = limit(name)
    if amount > most + free:
        raise LoadError(
            f"{where}: {amount:,} is over the budget {name} of {most + free:,} ({LIMITS[name].counts}). If you trust "
            f"the file, set {_variable(name)}={amount - free} or use aneforge.budgets.allow({name}={amount - free})"
        )


def check_archive(archive: zipfile.ZipFile, where: str) -> None:
    """What an archive says that it unpacks to, before anything is unpacked; reading stops at what it says."""
    total = 0
    for info in archive.infolist():
        total += info.file_size
        if info.file_size > 1 << 20:
            ratio = -(-info.file_size // max(1, info.compress_size))
            spend("archive_ratio", ratio, f"{where}: entry {info.filename!r}")
    spend("unpacked_bytes", total, where)


def regular_file(path: str | Path, where: str) -> Path:
    """A file to read: a device, a pipe or a socket could block, or never end."""
    file = Path(path)
    try:
        kind = file.stat().st_mode
    except (OSError, ValueError) as error:
        raise LoadError(f"{where}: cannot be read ({getattr(error, 'strerror', None) or error})") from None
    if not stat.S_ISREG(kind):
        raise LoadError(f"{where}: not a regular file; copy its content to one")
    return file


def _variable(name: str) -> str:
    return f"ANEFORGE_MAX_{name.upper()}"
