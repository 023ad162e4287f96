"""The folder of entries: get, put, forget the least recently used, list and clear.

Several processes may use the folder. An entry is written beside its place and renamed, and never changed after that;
an entry that is removed while a graph maps it stays readable for that graph.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aneforge import text
from aneforge.errors import AneforgeError, shown
from aneforge.files import written_file
from aneforge.formats.cache import entry
from aneforge.graph.graph import Graph

_ENDING = ".graph"
_ABANDONED_S = 3600  # a part of an entry that nobody finished


def get(folder: Path, key: str, is_current: Callable[[dict[str, Any]], bool]) -> Graph | None:
    """The graph of an entry, or None: not there, not whole, or other files that it was read from have changed."""
    path = _path(folder, key)
    if not path.exists() or not entry.is_own(folder):
        return None
    try:
        about, build = entry.read(path)
        if not is_current(about):
            return None
        graph = build()
    except entry.DAMAGED:
        discard(folder, key)
        return None
    with suppress(OSError):
        os.utime(path)  # the last use
    return graph


def put(folder: Path, key: str, graph: Graph, about: dict[str, Any]) -> bool:
    """Store a graph; False if it is larger than the cache may be, or the folder cannot be written."""
    try:
        size, write = entry.plan(graph, about)
        if size > entry.most_bytes() or not entry.is_own(folder):
            return False
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _make_room(folder, size)
        with written_file(_path(folder, key), mode=entry.PRIVATE) as stream:
            write(stream)
    except (OSError, AneforgeError, TypeError, ValueError):
        return False
    return True


def discard(folder: Path, key: str) -> None:
    with suppress(OSError):
        _path(folder, key).unlink()


def clear() -> int:
    """Remove every entry; returns how many there were."""
    folder = entry.folder()
    if folder is None:
        return 0
    removed = 0
    for path in _entries(folder):
        with suppress(OSError):
            path.unlink()
            removed += 1
    for path in [*_parts(folder), folder / "files.json"]:
        with suppress(OSError):
            path.unlink()
    return removed


@dataclass(frozen=True)
class CachedModel:
    """One entry: the model file's name, its ops, its bytes, and the seconds since it was last used."""

    model: str
    operations: int
    bytes: int
    unused_s: int


@dataclass(frozen=True)
class CacheReport:
    """Where the cache is, what it holds, and what it may hold."""

    folder: str | None
    is_on: bool
    is_writable: bool
    is_own: bool
    """It belongs to this user, and nobody else can write in it."""
    most_bytes: int
    entries: tuple[CachedModel, ...]

    @property
    def bytes(self) -> int:
        return sum(item.bytes for item in self.entries)

    def __str__(self) -> str:
        state = "in use" if self.is_on else f"off ({entry.OFF} is set)"
        if self.is_on and not self.is_writable:
            state = f"off: the folder cannot be written; set {entry.FOLDER} to another"
        elif self.is_on and not self.is_own:
            state = f"off: others can write in the folder; run chmod go-w, or set {entry.FOLDER} to one of your own"
        rows = [
            ("place", self.folder or "none: this user has no home folder", ""),
            ("state", state, ""),
            ("size", f"{_megabytes(self.bytes)} of {_megabytes(self.most_bytes)}", f"{entry.SIZE} changes the limit"),
            ("models", str(len(self.entries)), ""),
        ]
        listed = [
            (item.model, f"{item.operations:,} ops, {_megabytes(item.bytes)}", f"used {_ago(item.unused_s)}")
            for item in self.entries
        ]
        return text.pairs([*rows, *listed])

    def to_json(self) -> dict[str, Any]:
        return {
            "folder": self.folder,
            "on": self.is_on,
            "writable": self.is_writable,
            "own": self.is_own,
            "bytes": self.bytes,
            "most_bytes": self.most_bytes,
            "entries": [dict(item.__dict__) for item in self.entries],
        }


def report() -> CacheReport:
    """What the cache holds now, the most recently used model first."""
    folder, now = entry.folder(), time.time()
    items = []
    for path in [] if folder is None else _entries(folder):
        with suppress(*entry.DAMAGED):
            about, stat = entry.read_about(path), path.stat()
            unused = max(0, int(now - stat.st_mtime))
            items.append(CachedModel(shown(str(about["model"])), int(about["operations"]), stat.st_size, unused))
    items.sort(key=lambda item: item.unused_s)
    return CacheReport(
        None if folder is None else str(folder),
        entry.is_on(),
        folder is not None and _is_writable(folder),
        folder is None or entry.is_own(folder),
        entry.most_bytes(),
        tuple(items),
    )


def _path(folder: Path, key: str) -> Path:
    return folder / f"{key}{_ENDING}"


def _entries(folder: Path) -> list[Path]:
    with suppress(OSError):
        return [path for path in folder.iterdir() if path.name.endswith(_ENDING)]
    return []


def _parts(folder: Path) -> Iterator[Path]:
    """What a process that was killed left half-written."""
    with suppress(OSError):
        for path in folder.iterdir():
            if path.name.startswith(".") and path.name.endswith(".part"):
                with suppress(OSError):
                    if time.time() - path.stat().st_mtime > _ABANDONED_S:
                        yield path


def _make_room(folder: Path, size: int) -> None:
    """Remove the least recently used entries until ``size`` more bytes fit."""
    for path in list(_parts(folder)):
        with suppress(OSError):
            path.unlink()
    by_use: list[tuple[int, int, Path]] = []
    for path in _entries(folder):
        with suppress(OSError):
            about = path.stat()
            by_use.append((about.st_mtime_ns, about.st_size, path))
    total = size + sum(count for _, count, _ in by_use)
    for _, count, path in sorted(by_use):
        if total <= entry.most_bytes():
            break
        with suppress(OSError):
            path.unlink()
            total -= count


def _is_writable(folder: Path) -> bool:
    """Whether the folder, or the nearest one above it that exists, takes new files."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)


def _megabytes(count: int) -> str:
    return f"{count / 1e6:,.1f} MB" if count < 1e9 else f"{count / 1e9:,.2f} GB"


def _ago(seconds: int) -> str:
    for size, unit in ((86400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= size:
            count = seconds // size
            return f"{count} {unit}{'s' if count > 1 else ''} ago"
    return "just now"
