"""The key of an entry: the content of the model file, the options of the load, and the code that reads it.

A large file takes about a second for each gigabyte to hash, so its digest is remembered under its path, size, times
and inode. A file that was changed in the last seconds is not remembered: a second change may leave the same times.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import time
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from aneforge import files
from aneforge.errors import AneforgeError
from aneforge.files import write_whole
from aneforge.formats.cache.entry import PRIVATE, own_file

_INDEX = "files.json"
_MOST_REMEMBERED = 1024  # digests in the index; the oldest go first
_SETTLED_NS = 2_000_000_000  # a file that is older than this has times that a later change cannot repeat
_AT_ONCE = 1 << 22  # bytes that are hashed at a time
_READERS = ("numpy", "onnx", "torch", "protobuf", "coreai")
"""Packages that take part in an import: another version may give another graph."""


def key_of(file: Path, options: Mapping[str, Any], folder: Path) -> str:
    """The name of the entry for a model file. Raises OSError or ValueError for what cannot have one."""
    digest = hashlib.blake2b(digest_size=20)
    for part in (file.name, content_of(file, folder), _code(), *_versions(), *_limits(), *_written(options)):
        digest.update(f"{len(part)}:{part}".encode())
    return digest.hexdigest()


def stamp_of(path: Path) -> str:
    """What changes when a file, or a file of a folder, changes: names, sizes, times and inodes."""
    rows = []
    for name, file in _files(path):
        about = file.stat()
        if not stat.S_ISREG(about.st_mode):
            raise ValueError(f"{name} is not a regular file")
        rows.append((name, about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns))
    return hashlib.blake2b(repr((str(path.absolute()), rows)).encode(), digest_size=20).hexdigest()


def content_of(path: Path, folder: Path) -> str:
    """The digest of a file, or of all files of a folder with their names."""
    stamp = stamp_of(path)
    index = _read_index(folder)
    if stamp in index:
        return index[stamp]
    content, is_settled = digest_of(path)
    if is_settled and stamp_of(path) == stamp:
        _remember(folder, stamp, content)
    return content


def digest_of(path: Path) -> tuple[str, bool]:
    """The digest of a file, or of all files of a folder with their names, read now; and whether they are old enough
    for their stamp to stand for it."""
    started = time.time_ns()
    digest = hashlib.blake2b(digest_size=20)
    newest = 0
    for name, file in _files(path):
        about = file.stat()
        newest = max(newest, about.st_mtime_ns, about.st_ctime_ns)
        digest.update(f"{len(name)}:{name}{about.st_size}".encode())
        _update(digest, file)
    return digest.hexdigest(), started - newest > _SETTLED_NS


def _update(digest: Any, file: Path) -> None:
    buffer = bytearray(_AT_ONCE)
    view = memoryview(buffer)
    with file.open("rb", buffering=0) as stream:
        while count := stream.readinto(buffer):
            digest.update(view[:count])


def _files(path: Path) -> Iterator[tuple[str, Path]]:
    """The files of a model by their names inside it: one without a name, or those of a folder in order."""
    if not path.is_dir():
        yield "", path
        return
    for parent, folders, names in os.walk(path):
        folders.sort()
        for name in sorted(names):
            file = Path(parent, name)
            yield file.relative_to(path).as_posix(), file


def _read_index(folder: Path) -> dict[str, str]:
    try:
        with own_file(folder / _INDEX) as stream:
            index = json.loads(stream.read())
    except (OSError, ValueError, RecursionError):
        return {}
    return {k: v for k, v in index.items() if isinstance(v, str)} if isinstance(index, dict) else {}


def _remember(folder: Path, stamp: str, content: str) -> None:
    """Two processes may write at the same time: the later file stays, and what it lacks is hashed once more."""
    index = {**_read_index(folder), stamp: content}
    kept = dict(list(index.items())[-_MOST_REMEMBERED:])
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(folder / _INDEX, json.dumps(kept), mode=PRIVATE)
    except (OSError, AneforgeError):
        return


@cache
def _code() -> str:
    """The files of this package as they are now: an import by other code may give another graph."""
    package = Path(__file__).resolve().parents[1]
    digest = hashlib.blake2b(digest_size=20)
    for parent, folders, names in os.walk(package):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        for name in sorted(names):
            about = os.stat(os.path.join(parent, name))
            digest.update(f"{name}/{about.st_size}/{about.st_mtime_ns}/".encode())
    return digest.hexdigest()


@cache
def _versions() -> tuple[str, ...]:
    return tuple(f"{name}={_version(name)}" for name in _READERS)


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _limits() -> Iterator[str]:
    """A budget that is lower than before may refuse the file, so an entry is for the budgets it was read under."""
    return (f"{name}={files.limit(name)}" for name in files.LIMITS)


def _written(options: Mapping[str, Any]) -> Iterator[str]:
    for name, value in sorted(options.items()):
        if not isinstance(value, Mapping):
            yield f"{name}={value!r}"
            continue
        for key, given in sorted(value.items()):
            array = np.asarray(given)
            if array.dtype.hasobject:
                raise ValueError("a value is not an array of numbers")
            numbers = hashlib.blake2b(np.ascontiguousarray(array).tobytes(), digest_size=20).hexdigest()
            yield f"{name}.{key}={array.dtype.str}{array.shape}{numbers}"
