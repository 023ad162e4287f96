"""Planar work in C; ``aneforge.sim.half``, ``window`` and ``fast`` describe it."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import numpy as np

from aneforge.sim.half import scratch
from aneforge.sim.native.library import library, path_number, threads

if TYPE_CHECKING:
    from aneforge.sim.half import Window

Array = np.ndarray
_AXES = 5
_OPERATIONS = {"add": 0, "sub": 1, "mult": 2, "div": 3}
_Steps = ctypes.c_ssize_t * _AXES
_DENSE, _SPREAD = _Steps(1, 1, 1, 1, 1), _Steps(0, 0, 0, 0, 0)
_ONE, _ZERO = np.ones(1, np.float16), np.zeros(1, np.float16)


def widened(values: Array, *, path: str | None = None) -> Array:
    """``aneforge.sim.half.widened`` in C."""
    halves = np.ascontiguousarray(values)
    wide = np.empty(halves.shape)
    library().aneforge_widen(halves.ctypes.data, wide.ctypes.data, halves.size, path_number(path))
    return wide


def narrowed(values: Array, twice: bool = False, *, path: str | None = None) -> Array:
    """``aneforge.sim.half.narrowed`` in C."""
    wide = np.ascontiguousarray(values, np.float64)
    result = np.empty(wide.shape, np.float16)
    library().aneforge_narrow(wide.ctypes.data, int(twice), result.ctypes.data, wide.size, path_number(path))
    return result


def paired(operation: str, a: Array, b: Array, *, path: str | None = None) -> Array:
    """``aneforge.sim.half.paired`` in C: arrays of at most five axes, spread as NumPy spreads them."""
    number = _OPERATIONS[operation]
    if a.shape == b.shape and a.flags.c_contiguous and b.flags.c_contiguous:  # most of them: one row
        result = np.empty(a.shape, np.float16)
        row = _Steps(1, 1, 1, 1, result.size)
        library().aneforge_pairs(
            *(number, a.ctypes.data, _DENSE, b.ctypes.data, _DENSE, result.ctypes.data, row),
            *(threads(), path_number(path)),
        )
        return result
    shape = np.broadcast_shapes(a.shape, b.shape)
    result = np.empty(shape, np.float16)
    filled = (1,) * (_AXES - len(shape)) + shape
    (left, left_steps), (right, right_steps) = _spread(a, filled), _spread(b, filled)
    library().aneforge_pairs(
        *(number, left.ctypes.data, left_steps, right.ctypes.data, right_steps),
        *(result.ctypes.data, _Steps(*filled), threads(), path_number(path)),
    )
    return result


def gained(
    values: Array,
    scale: Array | None,
    offset: Array | None,
    gain: float,
    bias: float,
    ceiling: float,
    *,
    path: str | None = None,
) -> Array:
    """``aneforge.sim.half.gained`` in C: arrays of five axes."""
    dense = np.ascontiguousarray(values)
    result = np.empty(dense.shape, np.float16)
    (factors, factor_steps), (starts, start_steps) = (
        (neutral, _SPREAD) if operand is None else _spread(operand, dense.shape)
        for operand, neutral in ((scale, _ONE), (offset, _ZERO))
    )
    library().aneforge_gained(
        *(dense.ctypes.data, factors.ctypes.data, factor_steps, starts.ctypes.data, start_steps),
        *(gain, bias, ceiling, result.ctypes.data, _Steps(*dense.shape), path_number(path)),
    )
    return result


def _spread(values: Array, shape: tuple[int, ...]) -> tuple[Array, ctypes.Array[Any]]:
    """An operand and its steps, in elements, over a shape that it is spread over."""
    view = np.broadcast_to(values, shape)
    if view.strides[-1] not in (0, 2):
        view = np.broadcast_to(np.ascontiguousarray(values), shape)
    return view, _Steps(*(step // 2 for step in view.strides))


def has_special(values: Array, *, path: str | None = None) -> bool:
    """Whether any number of a dense fp16 array is infinite or NaN."""
    return bool(library().aneforge_special(values.ctypes.data, values.size, path_number(path)))


def clamped(values: Array, keys: tuple[int, int], ends: tuple[int, int], *, path: str | None = None) -> Array:
    """The numbers of an fp16 array between two keys, as ``aneforge.sim.rules.moves`` makes them; others become the
    ends, which are given as bits."""
    dense = np.ascontiguousarray(values)
    result = np.empty(dense.shape, np.float16)
    limits = (ctypes.c_int * 4)(*keys, *ends)
    library().aneforge_clamped(
        *(dense.ctypes.data, result.ctypes.data, dense.size, limits, threads(), path_number(path)),
    )
    return result


def operands(values: Array, out: Array | None = None, *, path: str | None = None) -> Array:
    """``aneforge.sim.half.decoded`` in single precision, in ``out`` if given; rows of a matrix may lie apart."""
    if values.ndim != 2 or values.strides[1] != 2 or values.strides[0] % 2 or values.strides[0] < 0:
        values = np.ascontiguousarray(values)
    result = np.empty(values.shape, np.float32) if out is None else out
    rows, columns = (1, values.size) if values.ndim != 2 else values.shape
    step = values.strides[0] // 2 if values.ndim == 2 else 0
    library().aneforge_operands(values.ctypes.data, step, result.ctypes.data, rows, columns, path_number(path))
    return result


def looked_up(table: Array, values: Array) -> Array:
    """``aneforge.sim.tables.look_up`` in C."""
    dense = np.ascontiguousarray(values)
    result = np.empty(dense.shape, np.float16)
    library().aneforge_look_up(table.ctypes.data, dense.ctypes.data, result.ctypes.data, dense.size, threads())
    return result


def line_sums(lines: Array, tree: int, run: int, *, path: str | None = None) -> Array:
    """``aneforge.sim.rules.planar.line_sums`` in C, for lines of whole groups."""
    sums = np.empty(lines.shape[0])
    failed = library().aneforge_line_sums(
        lines.ctypes.data, *lines.shape, tree, run, sums.ctypes.data, path_number(path)
    )
    return _had_memory(sums, failed)


def softmax_lines(
    values: Array, powers: Array, tree: int, run: int, *, path: str | None = None, workers: int | None = None
) -> Array:
    """The softmax along the second axis of a dense array [outer, count, inner] with a table of powers, as
    ``aneforge.sim.rules.planar.weighed`` does it."""
    result = np.empty(values.shape, np.float16)
    outer, count, inner = values.shape
    failed = library().aneforge_softmax(
        *(values.ctypes.data, outer * inner, count, inner, powers.ctypes.data, tree, run, result.ctypes.data),
        *(workers or threads(), path_number(path)),
    )
    return _had_memory(result, failed)


def norm_lines(
    values: Array,
    roots: Array,
    gamma: Array | None,
    beta: Array | None,
    epsilon: np.float16,
    tree: int,
    run: int,
    *,
    path: str | None = None,
    workers: int | None = None,
) -> Array:
    """The layer norm along the second axis of a dense array [outer, count, inner] with a table of reciprocal roots, as
    ``aneforge.sim.rules.planar`` does it; gamma and beta are dense lines."""
    result = np.empty(values.shape, np.float16)
    outer, count, inner = values.shape
    operands = [None if operand is None else operand.ctypes.data for operand in (gamma, beta)]
    failed = library().aneforge_layer_norm(
        *(values.ctypes.data, outer * inner, count, inner, roots.ctypes.data, *operands),
        *(int(epsilon.view(np.uint16)), float(np.float16(1 / count)), tree, run, result.ctypes.data),
        *(workers or threads(), path_number(path)),
    )
    return _had_memory(result, failed)


def _had_memory(result: Array, failed: int) -> Array:
    if failed:
        raise MemoryError("not enough memory for a line of a reduction")
    return result


def patches(image: Array, window: Window, first: int, rows: int, single: bool) -> Array:
    """``aneforge.sim.half.patches`` in C."""
    dense = operands(image, scratch("image", image.shape)) if single else np.ascontiguousarray(image)
    columns = window.outputs(dense.shape[1:])[1]
    result = scratch("patches", (dense.shape[0] * window.size[0] * window.size[1], rows * columns), dense.dtype)
    geometry = (ctypes.c_ssize_t * 14)(
        *(*dense.shape, *window.size, *window.stride, *window.dilation),
        *(window.before[0], window.before[1], first, rows, columns),
    )
    library().aneforge_patches(dense.ctypes.data, geometry, result.ctypes.data, dense.itemsize)
    return result


def stored(values: Array, *, path: str | None = None) -> Array:
    """float32 numbers as a host stores them: fp16, ties to even."""
    dense = np.ascontiguousarray(values, np.float32)
    result = np.empty(dense.shape, np.float16)
    library().aneforge_store(dense.ctypes.data, result.ctypes.data, dense.size, path_number(path))
    return result


def settled_single(sums: Array, bias: Array | None = None, *, path: str | None = None) -> Array:
    """``aneforge.sim.fast.settled_plain`` in C."""
    dense = np.ascontiguousarray(sums, np.float32)
    result = np.empty(dense.shape, np.float16)
    start, steps = None, (0, 0)
    if bias is not None:
        spread = np.broadcast_to(bias, result.shape)
        start, steps = spread.ctypes.data, (spread.strides[0] // 2, spread.strides[1] // 2)
    library().aneforge_settle_single(
        dense.ctypes.data, start, *steps, *dense.shape, result.ctypes.data, path_number(path)
    )
    return result
