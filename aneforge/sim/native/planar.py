"""Planar work in C: see ``aneforge.sim.half``, ``window`` and ``fast`` for what it is."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import numpy as np

from aneforge.sim.native.library import library, path_number

if TYPE_CHECKING:
    from aneforge.sim.window import Window

__all__ = ["has_special", "narrowed", "operands", "paired", "patches", "settled_single", "vector_products", "widened"]

Array = np.ndarray
_AXES = 5
_OPERATIONS = ("add", "sub", "mult", "div")
_Steps = ctypes.c_ssize_t * _AXES


def widened(values: Array, *, path: str | None = None) -> Array:
    """``aneforge.sim.half.widened`` in C."""
    halves = np.ascontiguousarray(values)
    found = np.empty(halves.shape)
    library().aneforge_widen(halves.ctypes.data, found.ctypes.data, halves.size, path_number(path))
    return found


def narrowed(values: Array, twice: bool = False, *, path: str | None = None) -> Array:
    """``aneforge.sim.half.narrowed`` in C."""
    wide = np.ascontiguousarray(values, np.float64)
    found = np.empty(wide.shape, np.float16)
    library().aneforge_narrow(wide.ctypes.data, int(twice), found.ctypes.data, wide.size, path_number(path))
    return found


def paired(operation: str, a: Array, b: Array, *, path: str | None = None) -> Array:
    """``aneforge.sim.half.paired`` in C: arrays of at most five axes, spread as NumPy spreads them."""
    shape = np.broadcast_shapes(a.shape, b.shape)
    found = np.empty(shape, np.float16)
    filled = (1,) * (_AXES - len(shape)) + shape
    (left, left_steps), (right, right_steps) = _spread(a, filled), _spread(b, filled)
    library().aneforge_pairs(
        *(_OPERATIONS.index(operation), left.ctypes.data, left_steps, right.ctypes.data, right_steps),
        *(found.ctypes.data, _Steps(*filled), path_number(path)),
    )
    return found


def _spread(values: Array, shape: tuple[int, ...]) -> tuple[Array, ctypes.Array[Any]]:
    """An operand and its steps, in elements, over a shape that it is spread over."""
    if values.shape == shape and values.flags.c_contiguous:
        place, steps = 1, []
        for extent in reversed(shape):
            steps.append(place)
            place *= extent
        return values, _Steps(*reversed(steps))
    view = np.broadcast_to(values, shape)
    if view.strides[-1] not in (0, 2):
        view = np.broadcast_to(np.ascontiguousarray(values), shape)
    return view, _Steps(*(step // 2 for step in view.strides))


def has_special(values: Array, *, path: str | None = None) -> bool:
    """Whether any number of a dense fp16 array is infinite or NaN."""
    return bool(library().aneforge_special(values.ctypes.data, values.size, path_number(path)))


def operands(values: Array, *, path: str | None = None) -> Array:
    """``aneforge.sim.half.decoded`` in single precision."""
    halves = np.ascontiguousarray(values)
    found = np.empty(halves.shape, np.float32)
    library().aneforge_operands(halves.ctypes.data, found.ctypes.data, halves.size, path_number(path))
    return found


def patches(image: Array, window: Window, first: int, rows: int, single: bool, *, path: str | None = None) -> Array:
    """``aneforge.sim.convolution.patches`` in C."""
    dense = np.ascontiguousarray(image)
    columns = window.outputs(dense.shape[1:])[1]
    kind = np.float32 if single else np.float16
    found = np.empty((dense.shape[0] * window.size[0] * window.size[1], rows * columns), kind)
    geometry = (ctypes.c_ssize_t * 14)(
        *(*dense.shape, *window.size, *window.stride, *window.dilation),
        *(window.before[0], window.before[1], first, rows, columns),
    )
    library().aneforge_patches(dense.ctypes.data, geometry, found.ctypes.data, int(single), path_number(path))
    return found


def settled_single(sums: Array, bias: Array | None = None, *, path: str | None = None) -> Array:
    """``aneforge.sim.fast.settled_plain`` in C."""
    dense = np.ascontiguousarray(sums, np.float32)
    found = np.empty(dense.shape, np.float16)
    start, steps = None, (0, 0)
    if bias is not None:
        spread = np.broadcast_to(bias, found.shape)
        start, steps = spread.ctypes.data, (spread.strides[0] // 2, spread.strides[1] // 2)
    library().aneforge_settle_single(
        dense.ctypes.data, start, *steps, *dense.shape, found.ctypes.data, path_number(path)
    )
    return found


def vector_products(a: Array, b: Array, *, path: str | None = None) -> Array:
    """Single-precision sums of a few fp16 rows and a matrix [depth, columns], which is read where it lies."""
    left, right = operands(a), np.ascontiguousarray(b)
    found = np.zeros((left.shape[0], right.shape[1]), np.float32)
    library().aneforge_vector_products(
        left.ctypes.data, right.ctypes.data, *left.shape, right.shape[1], found.ctypes.data, path_number(path)
    )
    return found
