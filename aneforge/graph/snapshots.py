"""Arrays that users pass in, with the values they have at that moment.

A graph is built before its numbers are read, and rounding an array to fp16 and hashing it takes most of the time that
building takes. So an array of moderate size is checked and its bytes are copied, which is quick; the first reader
rounds and interns it. What a weight cannot hold is still refused at the line that passes it in.
"""

from __future__ import annotations

from threading import Lock
from typing import Any
from weakref import ReferenceType, WeakSet, WeakValueDictionary, ref

import numpy as np

from aneforge.graph.weights import Weight, intern_fp16, intern_weight, lies_in_file, surely_fits

_SMALL = 1 << 12  # bytes; looked up by content at once
_MODERATE = 1 << 18  # bytes; models have few larger ones, and rounded at once they take less memory
_MOST = 1 << 27  # bytes that may wait to be rounded
_LEAST = 1 << 23  # bytes of a model that turned out to be large, so that it does not stay in memory in its wide form
_FLOATS = tuple(np.dtype(dtype) for dtype in (np.float32, np.float16, np.float64))  # in this machine's order of bytes


class Snapshot:
    """Numbers that fp16 can hold and that can no longer change; becomes a :class:`Weight` when one is needed.

    Threads may ask at the same time: each result is set before its source is dropped, so a reader in the opposite
    order finds one of them, and all readers get the same weight from the table of weights.
    """

    __slots__ = ("__weakref__", "_rounded", "_weight", "content", "dtype", "shape")
    encoding = "fp16"

    def __init__(self, content: bytes, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
        self.content: bytes | None = content
        self.dtype = dtype
        self.shape = shape
        self._rounded: np.ndarray | None = None
        self._weight: Weight | None = None

    @property
    def weight(self) -> Weight:
        """The one weight with these contents."""
        if self._weight is None:
            rounded = self._round()
            if rounded is not None:
                self._weight = intern_fp16(rounded)
                self.content = self._rounded = None
        assert self._weight is not None
        return self._weight

    def shrink(self) -> None:
        """Keep the rounded numbers only."""
        if self._weight is None:
            self._rounded = self._round()
            self.content = None

    def _round(self) -> np.ndarray | None:
        content, rounded = self.content, self._rounded
        if content is None or rounded is not None:
            return rounded
        with np.errstate(all="ignore"):
            return np.frombuffer(content, self.dtype).astype(np.float16, copy=False).reshape(self.shape)


class _Waiting:
    """Snapshots by the identity of the array they were taken of.

    When ``most`` bytes wait, all but the newest are rounded; from then on ``least`` bytes may wait, until those that
    were rounded are gone or read.
    """

    def __init__(self, most: int, least: int) -> None:
        self.most, self.least = most, least
        self.limit = most
        self.size = 0
        self._entries: dict[int, tuple[ReferenceType[Snapshot], int]] = {}
        self._rounded: WeakSet[Snapshot] = WeakSet()
        self._lock = Lock()

    def get(self, source: int) -> Snapshot | None:
        entry = self._entries.get(source)
        return None if entry is None else entry[0]()

    def add(self, source: int, snapshot: Snapshot, size: int) -> None:
        late: list[Snapshot] = []
        with self._lock:
            _, replaced = self._entries.pop(source, (None, 0))
            self._entries[source] = ref(snapshot), size
            self.size += size - replaced
            if self.size > self.limit:
                late = self._make_room()
        for oldest in late:
            oldest.shrink()

    def _make_room(self) -> list[Snapshot]:
        """Forget what is gone or read; if much is left, returns the oldest, which are to be rounded."""
        left: list[tuple[int, Snapshot, int]] = []
        for source, (reference, size) in self._entries.items():
            snapshot = reference()
            if snapshot is not None and snapshot.content is not None:
                left.append((source, snapshot, size))
        self.size = sum(size for _, _, size in left)
        large = len(self._rounded) > 0 or self.size > self.most // 2
        self.limit = self.least if large else self.most
        late: list[Snapshot] = []
        for _, snapshot, size in left:
            if not large or self.size <= self.least // 2:
                break
            self.size -= size
            late.append(snapshot)
        self._entries = {source: (ref(snapshot), size) for source, snapshot, size in left[len(late) :]}
        self._rounded.update(late)
        return late


_waiting = _Waiting(_MOST, _LEAST)
_small: WeakValueDictionary[tuple[Any, ...], Weight] = WeakValueDictionary()
_small_lock = Lock()


def stored_weight(values: Any, what: str = "weight") -> Weight | Snapshot:
    """The weight with these contents, or a snapshot that becomes the weight when it is first read."""
    if type(values) not in (np.ndarray, np.float16) or values.dtype not in _FLOATS or values.nbytes > _MODERATE:
        return intern_weight(values, what)
    content = values.tobytes()
    if len(content) > _SMALL:
        return _snapshot(values, content) or intern_weight(values, what)
    key = (content, values.dtype.char, values.shape)
    weight = _small.get(key)
    if weight is None:
        weight = intern_weight(values, what)
        with _small_lock:
            _small[key] = weight
    return weight


def _snapshot(values: np.ndarray, content: bytes) -> Snapshot | None:
    """A snapshot, unless the array may hold values that are refused. Models use one array in many places: the last
    snapshot of the same object is reused as long as the array is unchanged."""
    known = _waiting.get(id(values))
    if known is not None and known.content == content and known.shape == values.shape and known.dtype == values.dtype:
        return known
    if not surely_fits(np.frombuffer(content, values.dtype)):
        return None
    if values.dtype == np.float16 and lies_in_file(values):
        return None  # it stays in its file
    snapshot = Snapshot(content, values.dtype, values.shape)
    _waiting.add(id(values), snapshot, len(content))
    return snapshot
