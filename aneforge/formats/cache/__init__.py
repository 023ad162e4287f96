"""Import once: imported graphs by the content of their model file, on the disk of this machine.

A reader is asked once for each model file; every later command gets the graph from the cache and imports no reader.
The key of an entry covers all that changes the graph (``keys``). An entry is one file in a format of our own
(``entry``). The folder is bounded and may be used by several processes (``store``). What cannot be cached is imported
again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from aneforge.formats.cache import entry
from aneforge.formats.cache.entry import off
from aneforge.formats.cache.keys import content_of, key_of, stamp_of
from aneforge.formats.cache.store import CacheReport, clear, get, put, report
from aneforge.graph.graph import Graph

__all__ = ["CacheReport", "clear", "depends_on", "files_read", "load_once", "off", "report"]

_read_files: ContextVar[set[Path] | None] = ContextVar("files of a model that is being read", default=None)


def depends_on(file: Path) -> None:
    """A reader says that it read a second file (weights beside the model): an entry is valid as long as it is the
    same."""
    files = _read_files.get()
    if files is not None:
        files.add(file)


@contextmanager
def files_read() -> Iterator[set[Path]]:
    """The second files that readers read inside, in a set that grows; empty where graphs come from the cache."""
    files: set[Path] = set()
    token = _read_files.set(files)
    try:
        yield files
    finally:
        _read_files.reset(token)


def load_once(file: Path, options: Mapping[str, Any], read: Callable[[], Graph]) -> Graph:
    """The graph of a model file; ``read`` imports it, and is not called if the cache has it.

    A graph that was just imported is given back from its entry too: so every load gives the same graph, and none maps
    the user's file, which may be overwritten while the graph lives.
    """
    folder = entry.folder()
    if folder is None or not entry.is_on():
        return read()
    entry.most_bytes()  # a setting that is no number is told now, not taken for no cache
    try:
        stamp, key = stamp_of(file), key_of(file, options, folder)
    except (OSError, ValueError):
        return read()

    def from_entry() -> Graph | None:
        return get(folder, key, lambda about: _same_files(about, file, folder))

    graph = from_entry()
    if graph is not None:
        return graph
    with files_read() as files:
        graph = read()
    if not _store(graph, file, stamp, key, files, folder):
        return graph
    del graph  # its weights map the user's file, and the table of weights would give them to the next graph
    return from_entry() or read()


def _store(graph: Graph, file: Path, stamp: str, key: str, files: set[Path], folder: Path) -> bool:
    try:
        if stamp_of(file) != stamp:
            return False  # it was overwritten while it was read
        own = file.resolve()
        others = [path for path in files if not path.is_relative_to(own)]
        beside = {path.relative_to(own.parent).as_posix(): content_of(path, folder) for path in others}
    except (OSError, ValueError):
        return False
    about = {"model": file.name, "operations": len(graph.operations), "files": beside}
    return put(folder, key, graph, about)


def _same_files(about: Mapping[str, Any], file: Path, folder: Path) -> bool:
    """Whether the other files that the graph was read from are still what they were."""
    beside = file.resolve().parent
    try:
        return all(content_of(beside / name, folder) == content for name, content in about["files"].items())
    except (OSError, ValueError):
        return False
