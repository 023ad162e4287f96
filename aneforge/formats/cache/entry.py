"""One entry: a graph as a file. A head with a checksum, two lines of JSON, the weights, each at a multiple of 64, and
a digest of each.

There is no code in an entry, only numbers and names, and the graph is built by the same rules as every other. Weights
are mapped, not read: they keep the form they came in, and the key that was computed when they were imported. The
checksum covers lines and digests; a weight is compared with its digest when its numbers are first read.
"""

from __future__ import annotations

import hashlib
import json
import math
import mmap
import os
import stat
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import IO, Any

import numpy as np

from aneforge.errors import AneforgeError, GraphError, LoadError, shown
from aneforge.files import bytes_of
from aneforge.graph.encoding import LARGE_PARTS, Encoded
from aneforge.graph.graph import Graph
from aneforge.graph.weights import Weight, known_weight

_MAGIC = b"AFGRAPH2"
_HEAD = struct.Struct("<8s16sQQQ")  # magic, checksum of lines and digests, the lines' lengths, length of the file
_ALIGNED = 64
_DIGEST = 16

DAMAGED = (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, struct.error, GraphError)
"""What reading an entry raises if it is not whole."""


def plan(graph: Graph, about: Mapping[str, Any]) -> tuple[int, Callable[[IO[bytes]], None]]:
    """The bytes that a graph needs, and what writes them. Raises TypeError or ValueError for what JSON cannot hold."""
    places: dict[str, Any] = {}
    arrays: list[tuple[int, Callable[[], np.ndarray]]] = []
    end = 0

    def place(dtype: str, shape: tuple[int, ...], array: Callable[[], np.ndarray]) -> list[Any]:
        nonlocal end
        begin = end + -end % _ALIGNED
        end = begin + math.prod(shape) * np.dtype(dtype).itemsize
        arrays.append((begin, array))
        return [dtype, list(shape), begin]

    for key, weight in graph.weights.items():
        if weight.encoded is None:
            places[key] = place("<f2", weight.shape, lambda weight=weight: weight.array)
        else:
            parts = weight.encoded.parts.items()
            stored = {name: place(part.dtype.str, part.shape, lambda part=part: part) for name, part in parts}
            places[key] = {**weight.encoded.to_json(), "parts": stored}
    first = json.dumps({**about, "weights": places}, default=_plain).encode()
    second = json.dumps(graph.to_json(weights=False), default=_plain).encode()
    start = _start(len(first), len(second))
    total = start + end + _DIGEST * len(arrays)

    def write(stream: IO[bytes]) -> None:
        stream.write(bytes(_HEAD.size) + first + second)
        digests = b""
        at = _HEAD.size + len(first) + len(second)
        for begin, array in arrays:
            stream.write(bytes(start + begin - at))
            numbers = np.ascontiguousarray(array()).reshape(-1).view(np.uint8).data
            at = start + begin + stream.write(numbers)
            digests += _digest(numbers)
        stream.write(bytes(start + end - at) + digests)
        stream.seek(0)
        stream.write(_HEAD.pack(_MAGIC, _digest(first + second + digests), len(first), len(second), total))

    return total, write


def read_about(path: Path) -> dict[str, Any]:
    """What an entry says about itself, without its graph."""
    with own_file(path) as stream:
        magic, _, first, _, _ = _HEAD.unpack(stream.read(_HEAD.size))
        if magic != _MAGIC:
            raise ValueError("not an entry")
        return json.loads(stream.read(min(first, path.stat().st_size)))


def read(path: Path) -> tuple[dict[str, Any], Callable[[], Graph]]:
    """What an entry says about itself, and what builds its graph. Raises one of ``DAMAGED`` if it is not whole."""
    with own_file(path) as stream:
        data = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    magic, checksum, first, second, total = _HEAD.unpack(data[: _HEAD.size])
    if magic != _MAGIC or total != len(data) or _start(first, second) > total:
        raise ValueError("the entry is cut off, or not an entry")
    lines = data[_HEAD.size : _HEAD.size + first + second]
    about = json.loads(lines[:first])
    records = list(_records(about["weights"]))
    digests = data[total - _DIGEST * len(records) :]
    if _digest(lines + digests) != checksum:
        raise ValueError("the entry has other bytes than were written")

    def build() -> Graph:
        stored = _Stored(path, str(about.get("model", path.name)), data, _start(first, second), digests)
        return Graph.from_json(json.loads(lines[first:]), dict(stored.weights(about["weights"])))

    return about, build


def _records(places: Mapping[str, Any]) -> Iterator[list[Any]]:
    """The place of every array, in the order of the file."""
    for place in places.values():
        yield from [place] if isinstance(place, list) else place["parts"].values()


@dataclass(frozen=True)
class _Stored:
    """The weights of an entry, as they lie in its file."""

    path: Path
    model: str
    data: mmap.mmap
    start: int
    digests: bytes

    def weights(self, places: Mapping[str, Any]) -> Iterator[tuple[str, Weight]]:
        numbers = count()
        for key, place in places.items():
            if isinstance(place, list):
                array = self._mapped(*place)
                yield key, known_weight(key, array, check=partial(self._check, {next(numbers): array}))
                continue
            parts = {name: self._mapped(*part) for name, part in place["parts"].items()}
            by_number = {name: (next(numbers), part) for name, part in parts.items()}
            large = dict(by_number.pop(name) for name in LARGE_PARTS if name in by_number)
            if not all(self._is_whole(*part) for part in by_number.values()):
                raise ValueError("a weight has other bytes than were written")
            shape, check = tuple(place["shape"]), partial(self._check, large)
            settings = {"vector_axis": place["vector_axis"], "check": check}
            yield key, known_weight(key, None, Encoded(place["form"], place["bits"], shape, **parts, **settings))

    def _mapped(self, dtype: str, shape: list[int], begin: int) -> np.ndarray:
        return np.frombuffer(self.data, np.dtype(dtype), math.prod(shape), self.start + begin).reshape(shape)

    def _is_whole(self, number: int, array: np.ndarray) -> bool:
        return _digest(array.reshape(-1).view(np.uint8).data) == self.digests[_DIGEST * number :][:_DIGEST]

    def _check(self, arrays: Mapping[int, np.ndarray]) -> None:
        """Refuse arrays with other bytes than were written. The entry goes, so that the next load imports anew."""
        if not all(self._is_whole(number, array) for number, array in arrays.items()):
            with suppress(OSError):
                self.path.unlink()
            raise LoadError(
                f"{shown(self.model)}: its copy in the cache is damaged: a weight has other bytes than were written. "
                "The copy was removed; load the model again"
            )


def _digest(data: Any) -> bytes:
    return hashlib.blake2b(data, digest_size=_DIGEST).digest()


# An entry can give any numbers, so that only its owner may have written it.


def is_own(place: Path) -> bool:
    """Whether a folder belongs to this user and nobody else can write in it."""
    try:
        about = place.stat()
    except OSError:
        return True  # it will be made
    return not _HAS_OWNERS or (about.st_uid == os.geteuid() and not about.st_mode & _OPEN)


@contextmanager
def own_file(path: Path) -> Iterator[IO[bytes]]:
    """A regular file of this user's, opened to be read. Nothing here waits: a pipe in its place is refused."""
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    with os.fdopen(handle, "rb") as stream:
        about = os.fstat(handle)
        if not stat.S_ISREG(about.st_mode):
            raise ValueError("not a regular file")
        if _HAS_OWNERS and (about.st_uid != os.geteuid() or about.st_mode & _OPEN):
            raise ValueError("another user's file, or one that others may write")
        yield stream


_HAS_OWNERS = hasattr(os, "geteuid")
_OPEN = stat.S_IWGRP | stat.S_IWOTH
PRIVATE = 0o600
"""What is written here can be written by its owner alone, whatever the process lets others do."""


def _start(first: int, second: int) -> int:
    """Where the weights begin."""
    end = _HEAD.size + first + second
    return end + -end % _ALIGNED


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"a {type(value).__name__} cannot be stored")


# Where the cache is, how large it may grow, and whether it is used at all.


OFF, FOLDER, SIZE = "ANEFORGE_NO_CACHE", "ANEFORGE_CACHE_DIR", "ANEFORGE_CACHE_SIZE"
DEFAULT_BYTES = 2 << 30

_off: ContextVar[bool] = ContextVar("aneforge cache is off", default=False)


@contextmanager
def off() -> Iterator[None]:
    """No cache inside: ``with aneforge.formats.cache.off(): af.load(...)`` imports the file, and stores nothing."""
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
