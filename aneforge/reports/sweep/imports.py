"""What a Python model reads when it is run: files that it opens, and modules of its own that it imports.

A result is valid as long as these are what they were. Modules of the user are forgotten afterwards: the next model may
have another of the same name beside it, and must read it for this to be seen.
"""

from __future__ import annotations

import os
import site
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib import invalidate_caches
from importlib.util import source_from_cache
from pathlib import Path
from typing import Any

_SYSTEM = ("/dev", "/proc", "/sys")
"""Folders whose files are views of the machine."""


class _Listener:
    """Hears which files Python opens, while a model is run."""

    def __init__(self) -> None:
        self.opened: set[str] | None = None
        """The paths so far; None while no model is run."""

    def start(self) -> None:
        """Once for a process: such a listener stays for good, which is why only workers have one."""
        sys.addaudithook(self._hear)

    def _hear(self, event: str, about: tuple[Any, ...]) -> None:
        if event != "open" or self.opened is None:
            return
        path, mode, flags = about
        is_written = flags & (os.O_WRONLY | os.O_RDWR) if mode is None else not str(mode).startswith("r")
        if isinstance(path, (str, bytes, os.PathLike)) and not is_written:
            self.opened.add(os.path.abspath(os.fsdecode(path)))  # now: the model may change its folder


@cache
def _listener() -> _Listener:
    listener = _Listener()
    listener.start()
    return listener


@contextmanager
def own_files_read(files: set[Path]) -> Iterator[None]:
    """Adds to ``files`` what the block reads besides what is installed, when it ends, well or not."""
    listener = _listener()
    before = set(sys.modules)
    invalidate_caches()  # a module may have been written since the folder was last listed
    opened = listener.opened = set()
    try:
        yield
    finally:
        listener.opened = None
        files.update(_own_files(opened))
        for name in [name for name in sys.modules if name not in before]:
            if any(not _is_installed(place) for place in _places(sys.modules[name])):
                del sys.modules[name]


def _own_files(paths: Iterable[str]) -> Iterator[Path]:
    for path in paths:
        source = path
        if path.endswith(".pyc"):
            try:
                source = source_from_cache(path)
            except ValueError:  # a module without its source
                source = path
        if not source.startswith(_SYSTEM) and not _is_installed(source):
            yield Path(source)


def _places(module: Any) -> list[str]:
    """Where a module comes from; a package without a file of its own has folders only."""
    file = getattr(module, "__file__", None)
    if file is not None:
        return [os.path.abspath(file)]
    return [os.path.abspath(folder) for folder in list(getattr(module, "__path__", ()))]


def _is_installed(path: str) -> bool:
    """Whether a file belongs to Python, to a package that was installed, or to this one."""
    return any(path == folder or path.startswith(folder + os.sep) for folder in _installed())


@cache
def _installed() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    folders = {paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    folders |= {*site.getsitepackages(), site.getusersitepackages(), str(Path(__file__).resolve().parents[1])}
    return tuple(sorted({form for folder in folders for form in (os.path.abspath(folder), os.path.realpath(folder))}))
