"""Constants of a graph, stored once by content.

The engine stores weights as fp16, so an array is rounded to fp16 once, here. Values that fp16 cannot hold (NaN, a
finite value beyond the fp16 range, an integer array) are refused at the line that passes the array in.
"""

from __future__ import annotations

import hashlib
import math
import mmap
from collections.abc import Callable, Iterator
from functools import partial
from threading import Lock
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from aneforge.errors import GraphError
from aneforge.graph.cache import SharedCache
from aneforge.graph.encoding import Encoded
from aneforge.graph.halves import FP16_MAX


class Weight:
    """A read-only fp16 array and the key of its content.

    A derived weight is a recipe over other weights: its numbers are computed when they are first read, so a compiler
    can fold and split gigabytes without touching one. A weight that came in a compressed form keeps it as ``encoded``.
    """

    __slots__ = ("__weakref__", "_array", "_check", "_make", "_row_peaks", "_uniform", "encoded", "key", "shape")

    def __init__(
        self,
        key: str,
        array: np.ndarray | None,
        shape: tuple[int, ...] = (),
        make: Callable[[], np.ndarray] | None = None,
        encoded: Encoded | None = None,
        check: Callable[[], None] | None = None,
    ) -> None:
        self.key = key
        self.encoded = encoded
        self.shape: tuple[int, ...] = shape if array is None else array.shape
        self._array = array
        self._check = check  # called before the array is first read, where other hands may have changed its file
        self._make = make
        self._row_peaks: np.ndarray | None = None
        self._uniform: bool | None = None

    @property
    def array(self) -> np.ndarray:
        """The numbers; those of a derived weight are computed when they are read, and the last few of them are
        kept."""
        if self._array is not None:
            if self._check is not None:
                self._check()
                self._check = None
            return self._array
        recent = _recent.get(self.key)
        return self._compute() if recent is None else recent

    def _compute(self) -> np.ndarray:
        assert self._make is not None
        with np.errstate(over="ignore"):
            array = self._make().astype(np.float16, copy=False).reshape(self.shape)
        array.setflags(write=False)
        return _recent.keep(self.key, array)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def encoding(self) -> str:
        """How its numbers are stored: ``fp16``, or the compressed form that it came in."""
        return "fp16" if self.encoded is None else self.encoded.name

    @property
    def uniform(self) -> bool:
        """All values equal (a layer-norm gamma of ones compiles where a trained one does not)."""
        if self._uniform is None:
            flat = self.array.reshape(-1)
            self._uniform = bool((flat == flat[0]).all())
        return self._uniform

    @property
    def row_peaks(self) -> np.ndarray:
        """The largest magnitude along the first axis, in float64; computed once."""
        if self._row_peaks is not None:
            return self._row_peaks
        # Without its sign bit an fp16 number orders like the integer of its bits, which compares faster.
        bits = np.ascontiguousarray(self.array).view(np.uint16) & np.uint16(0x7FFF)
        rows = bits.reshape(self.shape[0], -1) if self.shape else bits.reshape(1, 1)
        peaks = self._row_peaks = rows.max(axis=1).view(np.float16).astype(np.float64)
        return peaks

    def __repr__(self) -> str:
        return f"Weight({self.key[:8]}, {list(self.shape)})"


_table: WeakValueDictionary[str, Weight] = WeakValueDictionary()
_table_lock = Lock()
_recent: SharedCache[np.ndarray] = SharedCache(
    4
)  # the pieces of one kernel are read in turn, and each reads the whole
_AT_ONCE = 1 << 20  # numbers that are rounded at a time
_TILE_ROWS, _TILE_COLUMNS = 1024, 32
_INFINITE = 0x7C00


def intern_weight(values: Any, what: str = "weight") -> Weight:
    """The one :class:`Weight` with these contents. Numbers that are fp16 in a mapped file stay in the file."""
    if isinstance(values, Encoded):
        key = values.key
        weight = _table.get(key)
        if weight is None:
            if _peak(values.decode(np.float16)) >= _INFINITE:
                _as_fp16(values.decode(), what)  # refuses what fp16 cannot hold now, not at the first read
            frozen = values.frozen()
            weight = _interned(Weight(key, None, frozen.shape, partial(frozen.decode, np.float16), frozen))
        return weight
    if _repeats(values):
        number = np.float16(_as_fp16(values.reshape(-1)[:1], what)[0])
        key = f"repeated {list(values.shape)} {int(number.view(np.uint16)):04x}"
        return known_weight(key, np.broadcast_to(number, values.shape))
    array = _as_fp16(values, what)
    return intern_fp16(array, copy=array is values or np.may_share_memory(array, np.asarray(values)))


def _repeats(values: Any) -> bool:
    """Whether an array is large and one number in all places, as ``np.broadcast_to`` makes it: it takes no memory."""
    return (
        type(values) is np.ndarray
        and values.dtype == np.float16
        and values.size >= _AT_ONCE
        and not any(values.strides)
    )


def intern_fp16(array: np.ndarray, copy: bool = False) -> Weight:
    """The one :class:`Weight` with the contents of an fp16 array without NaN; ``copy`` if other code may write to
    it."""
    digest = hashlib.blake2b(repr(array.shape).encode(), digest_size=16)
    for part in _dense_parts(array):
        digest.update(part.data)
    key = digest.hexdigest()
    weight = _table.get(key)
    if weight is None:
        if copy and not lies_in_file(array):
            array = array.copy()
        array.setflags(write=False)
        weight = _interned(Weight(key, array))
    return weight


def known_weight(
    key: str, array: np.ndarray | None, encoded: Encoded | None = None, check: Callable[[], None] | None = None
) -> Weight:
    """The weight of a key that was computed before, from what was stored under it; its numbers are not read. ``check``
    refuses an array that is no longer what was stored."""
    weight = _table.get(key)
    if weight is None:
        if encoded is not None:
            weight = Weight(key, None, encoded.shape, partial(encoded.decode, np.float16), encoded)
        else:
            weight = Weight(key, array, check=check)
        weight = _interned(weight)
    return weight


def _interned(weight: Weight) -> Weight:
    """The weight that the table has under this key: this one, unless another thread was faster."""
    with _table_lock:
        return _table.setdefault(weight.key, weight)


def lies_in_file(array: np.ndarray) -> bool:
    """Whether an array is a view of a file that was mapped for reading, so that it cannot be written to."""
    owner: Any = array
    while isinstance(owner, np.ndarray) and owner.base is not None:
        owner = owner.base
    if isinstance(owner, memoryview):
        owner = owner.obj
    return isinstance(owner, mmap.mmap) and not array.flags.writeable


def moved_weight(
    recipe: str,
    parent: Weight,
    shape: tuple[int, ...],
    make: Callable[..., np.ndarray],
    encoded: Encoded | None = None,
) -> Weight:
    """A weight whose numbers are those of another in other places: ``make`` gets the fp16 array itself, ``encoded`` is
    the same move of the form it is stored in."""
    return _derived(recipe, (parent,), shape, lambda: make(parent.array), encoded)


def derived_weight(
    recipe: str, parents: tuple[Weight, ...], shape: tuple[int, ...], make: Callable[..., np.ndarray]
) -> Weight:
    """The weight that ``make`` gives from the parents' float64 arrays, rounded to fp16 when it is read.

    ``recipe`` says in words all that ``make`` does, so that the same recipe over the same parents is one weight.
    """

    def compute() -> np.ndarray:
        return make(*(parent.array.astype(np.float64) for parent in parents))

    return _derived(recipe, parents, shape, compute)


def _derived(
    recipe: str,
    parents: tuple[Weight, ...],
    shape: tuple[int, ...],
    compute: Callable[[], np.ndarray],
    encoded: Encoded | None = None,
) -> Weight:
    text = "|".join((recipe, repr(shape), *(parent.key for parent in parents)))
    key = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
    weight = _table.get(key)
    if weight is None:
        weight = _interned(Weight(key, None, shape, compute, encoded))
    return weight


def _as_fp16(values: Any, what: str) -> np.ndarray:
    literal = isinstance(values, (int, float, list, tuple, np.generic))
    try:
        array = np.asarray(values)
    except Exception as error:  # other libraries' arrays may raise anything when asked for their values
        raise GraphError(f"{what} is not an array: {error}") from None
    if array.dtype.kind == "b" or (array.dtype.kind in "iu" and not literal):
        raise GraphError(
            f"{what} holds {array.dtype} values; the engine's weights are fp16. Pass {what}.astype(np.float16)"
        )
    if array.dtype.kind not in "fiub":
        raise GraphError(f"{what} holds {array.dtype} values, not real numbers; give an array of numbers")
    if array.size == 0:
        raise GraphError(f"{what} of shape {list(array.shape)} is empty; every axis needs at least one element")
    if array.dtype == np.float16:
        lying = array.T if array.flags.f_contiguous else array  # in the order of the memory, which is read once
        for part in _parts(lying):
            if _peak(np.ascontiguousarray(lying[part])) > _INFINITE and np.isnan(array).any():
                raise GraphError(f"{what} holds NaN at index {_first(np.isnan(array))}")
        return array
    if array.dtype.kind == "f" and array.flags.c_contiguous and surely_fits(array.reshape(-1)):
        with np.errstate(all="ignore"):
            return array.astype(np.float16)
    half = np.empty(array.shape, np.float16)
    for part in _parts(array):
        half[part] = _rounded(array[part], what, part.start if isinstance(part, slice) else 0)
    return half


def _parts(array: np.ndarray) -> Iterator[Any]:
    """Part by part along the first axis, so that a large weight never exists a second time in a wide format."""
    if not array.ndim:
        yield ()
        return
    rows = max(1, _AT_ONCE // max(1, array.size // array.shape[0]))
    for first in range(0, array.shape[0], rows):
        yield slice(first, first + rows)


def _dense_parts(array: np.ndarray) -> Iterator[np.ndarray]:
    """An array in dense parts, in its order. A turned matrix is turned back in tiles that a near cache holds, some
    rows at a time: as a whole that takes six times as long, and as much memory as the matrix."""
    if array.flags.c_contiguous or array.ndim != 2:
        yield np.ascontiguousarray(array)
        return
    for first in range(0, len(array), _TILE_ROWS):
        rows = array[first : first + _TILE_ROWS]
        dense = np.empty(rows.shape, array.dtype)
        for column in range(0, array.shape[1], _TILE_COLUMNS):
            tile = slice(column, column + _TILE_COLUMNS)
            dense[:, tile] = rows[:, tile]
        yield dense


def _peak(half: np.ndarray) -> int:
    """The largest magnitude as its bits: those of infinity are the first beyond the finite numbers, NaN's are
    above."""
    return int((half.view(np.uint16) & np.uint16(0x7FFF)).max())


def surely_fits(numbers: np.ndarray) -> bool:
    """Whether every number of a line is finite in fp16, in one quick pass: no square is above the sum of squares.

    False does not refuse anything: :func:`intern_weight` then looks at each number.
    """
    if numbers.dtype == np.float16:
        return _peak(numbers) < _INFINITE
    with np.errstate(all="ignore"):
        return bool(np.dot(numbers, numbers) <= FP16_MAX * FP16_MAX)


def _rounded(part: np.ndarray, what: str, first: int) -> np.ndarray:
    """Numbers as fp16, rounded once; a value that fp16 cannot hold is refused by its place in the whole array."""
    numbers = part if part.dtype.kind == "f" else part.astype(np.float64)
    with np.errstate(over="ignore"):
        half = numbers.astype(np.float16)
    if _peak(np.ascontiguousarray(half)) >= _INFINITE:
        odd = ~np.isfinite(half)
        bad = np.isnan(numbers)
        lost = odd & np.isfinite(numbers)
        for mask in (bad, lost):
            if mask.any():
                where = _first(mask)
                place = (where[0] + first, *where[1:]) if where else ()
                if mask is bad:
                    raise GraphError(f"{what} holds NaN at index {place}")
                value = float(numbers[where])
                raise GraphError(f"{what} holds {value:g} at index {place}, beyond the fp16 range of {FP16_MAX:g}")
    return half


def _first(mask: np.ndarray) -> tuple[int, ...]:
    return tuple(int(i) for i in np.argwhere(mask)[0])
