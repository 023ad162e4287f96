"""Constants of a graph, held once by content.

The engine stores weights as fp16, so an array is rounded to fp16 once, here; what does not survive that
(NaN, a finite value beyond the fp16 range, an integer array) is refused at the line that passes it in.
"""

from __future__ import annotations

import hashlib
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from aneforge.errors import GraphError

__all__ = ["FP16_MAX", "Weight", "intern_weight"]

FP16_MAX = 65504.0


class Weight:
    """A read-only fp16 array and the key of its content."""

    __slots__ = ("__weakref__", "array", "key")

    def __init__(self, key: str, array: np.ndarray) -> None:
        self.key = key
        self.array = array

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def uniform(self) -> bool:
        """All values equal (a layer-norm gamma of ones compiles where a trained one does not)."""
        flat = self.array.reshape(-1)
        return bool((flat == flat[0]).all())

    def __repr__(self) -> str:
        return f"Weight({self.key[:8]}, {list(self.array.shape)})"


_table: WeakValueDictionary[str, Weight] = WeakValueDictionary()


def intern_weight(values: Any, what: str = "weight") -> Weight:
    """The one :class:`Weight` with these contents."""
    array = _as_fp16(values, what)
    digest = hashlib.blake2b(repr(array.shape).encode(), digest_size=16)
    digest.update(np.ascontiguousarray(array).data)
    key = digest.hexdigest()
    found = _table.get(key)
    if found is None:
        if array is values or np.may_share_memory(array, np.asarray(values)):
            array = array.copy()
        array.setflags(write=False)
        found = _table[key] = Weight(key, array)
    return found


def _as_fp16(values: Any, what: str) -> np.ndarray:
    literal = isinstance(values, (int, float, list, tuple, np.generic))
    try:
        array = np.asarray(values)
    except Exception as error:  # whatever another library's array raises when asked for its values
        raise GraphError(f"{what} is no array: {error}") from None
    if array.dtype.kind == "b" or (array.dtype.kind in "iu" and not literal):
        raise GraphError(
            f"{what} holds {array.dtype} values; the engine's weights are fp16: pass {what}.astype(np.float16)"
        )
    if array.dtype.kind not in "fiub":
        raise GraphError(f"{what} holds {array.dtype} values, not real numbers")
    if array.size == 0:
        raise GraphError(f"{what} of shape {list(array.shape)} is empty; every axis needs at least one element")
    if array.dtype == np.float16:
        if np.isnan(array).any():
            raise GraphError(f"{what} holds NaN at index {_first(np.isnan(array))}")
        return array
    wide = array.astype(np.float64, copy=False)
    bad = np.isnan(wide)
    if bad.any():
        raise GraphError(f"{what} holds NaN at index {_first(bad)}")
    with np.errstate(over="ignore"):
        half = wide.astype(np.float16)
    lost = np.isinf(half) & np.isfinite(wide)
    if lost.any():
        where = _first(lost)
        raise GraphError(f"{what} holds {wide[where]:g} at index {where}, beyond the fp16 range of {FP16_MAX:g}")
    return half


def _first(mask: np.ndarray) -> tuple[int, ...]:
    return tuple(int(i) for i in np.argwhere(mask)[0])
