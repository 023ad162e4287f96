"""One entry: a graph as a file. A head with a checksum, two lines of JSON, then the weights, each at a multiple of 64.

There is no code in an entry, only numbers and names, and the graph is built by the same rules as every other. Weights
are mapped, not read: they keep the form they came in, and the key that was computed when they were imported.
"""

from __future__ import annotations

import hashlib
import json
import math
import mmap
import os
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import IO, Any

import numpy as np

from aneforge.errors import AneforgeError, GraphError
from aneforge.files import bytes_of
from aneforge.graph.encoding import Encoded
from aneforge.graph.graph import Graph
from aneforge.graph.weights import Weight, known_weight

_MAGIC = b"AFGRAPH1"
_HEAD = struct.Struct("<8s16sQQQ")  # magic, checksum of both lines, their lengths, length of the file
_ALIGNED = 64

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
    checksum = hashlib.blake2b(first + second, digest_size=16).digest()
    start = _start(len(first), len(second))
    total = start + end

    def write(stream: IO[bytes]) -> None:
        stream.write(_HEAD.pack(_MAGIC, checksum, len(first), len(second), total))
        stream.write(first)
        stream.write(second)
        at = _HEAD.size + len(first) + len(second)
        for begin, array in [*arrays, (end, lambda: np.empty(0, np.uint8))]:
            stream.write(bytes(start + begin - at))
            at = start + begin + stream.write(np.ascontiguousarray(array()).reshape(-1).view(np.uint8).data)

    return total, write


def read_about(path: Path) -> dict[str, Any]:
    """What an entry says about itself, without its graph."""
    with path.open("rb") as stream:
        magic, _, first, _, _ = _HEAD.unpack(stream.read(_HEAD.size))
        if magic != _MAGIC:
            raise ValueError("not an entry")
        return json.loads(stream.read(min(first, path.stat().st_size)))


def read(path: Path) -> tuple[dict[str, Any], Callable[[], Graph]]:
    """What an entry says about itself, and what builds its graph. Raises one of ``DAMAGED`` if it is not whole."""
    with path.open("rb") as stream:
        data = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    magic, checksum, first, second, total = _HEAD.unpack(data[: _HEAD.size])
    if magic != _MAGIC or total != len(data) or _start(first, second) > total:
        raise ValueError("the entry is cut off, or not an entry")
    lines = data[_HEAD.size : _HEAD.size + first + second]
    if hashlib.blake2b(lines, digest_size=16).digest() != checksum:
        raise ValueError("the entry has other bytes than were written")
    about = json.loads(lines[:first])

    def build() -> Graph:
        start = _start(first, second)
        weights = dict(_weights(about["weights"], data, start))
        return Graph.from_json(json.loads(lines[first:]), weights)

    return about, build


def _weights(places: Mapping[str, Any], data: mmap.mmap, start: int) -> Iterator[tuple[str, Weight]]:
    def mapped(dtype: str, shape: list[int], begin: int) -> np.ndarray:
        return np.frombuffer(data, np.dtype(dtype), math.prod(shape), start + begin).reshape(shape)

    for key, place in places.items():
        if isinstance(place, list):
            yield key, known_weight(key, mapped(*place))
            continue
        parts = {name: mapped(*part) for name, part in place["parts"].items()}
        shape = tuple(place["shape"])
        encoded = Encoded(place["form"], place["bits"], shape, **parts, vector_axis=place["vector_axis"])
        yield key, known_weight(key, None, encoded)


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
