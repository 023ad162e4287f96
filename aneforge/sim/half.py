"""fp16 as the engine rounds it: half away from zero (N14, N47, N53).

Between ops numbers are fp16. Inside an op they are float64, which holds every fp16 number, and every sum and product
of two of them, exactly: ``widened`` on the way in, ``narrowed`` on the way out. Each has a plain form in NumPy, whose
bits the native form must equal.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from aneforge.graph.halves import FP16_MAX

Array = np.ndarray
SMALLEST_NORMAL = 2.0**-14
_BITS = 11  # significant bits of a normal number
_GRID = -24  # the exponent of the smallest step


def round_half(values: Array) -> Array:
    """The nearest fp16 number, ties away from zero; beyond the largest, infinity. One rounding, subnormals too."""
    return _finite_range(_rounded(values, _GRID))


def round_step(values: Array) -> Array:
    """The same without the end of the range: a step inside a sum, which has more exponents than fp16 (U50)."""
    return _rounded(values, _GRID)


def round_digits(values: Array) -> Array:
    """To the 11 significant bits of fp16 at any exponent, ties away from zero: a product inside a unit."""
    return _rounded(values, None)


def rounded_away(values: Array) -> Array:
    """The nearest whole number, ties away from zero."""
    return np.trunc(values + np.copysign(0.5, values))


def round_half_twice(values: Array) -> Array:
    """The same for elementwise results: below 2^-14 first to 11 significant bits, then to the step of 2^-24 (N53)."""
    return round_half(round_digits(values))


def _rounded(values: Array, grid: int | None) -> Array:
    """To 11 significant bits, and to no finer step than 2^grid; ties away from zero."""
    size = np.abs(values)
    _, exponent = np.frexp(size)
    step = exponent - _BITS if grid is None else np.maximum(exponent - _BITS, grid)
    with np.errstate(invalid="ignore"):
        whole = np.floor(np.ldexp(size, -step) + 0.5)  # exact: twelve bits are enough for the sum
    return np.copysign(np.where(np.isfinite(size), np.ldexp(whole, step), size), values)


def _finite_range(values: Array) -> Array:
    return np.where(np.abs(values) > FP16_MAX, np.copysign(np.inf, values), values)


def exponents(values: Array) -> Array:
    """The exponent of each fp16 number, as the product rule counts it: a subnormal, and zero, has -14 (N11)."""
    field = (values.view(np.uint16) >> 10) & 31
    return np.maximum(field.astype(np.int16), 1) - 15


def decoded(values: Array, flush_subnormals: bool = False) -> Array:
    """What the multipliers read of an fp16 array, in float64.

    The largest exponent is an ordinary one there: infinity is 2^16 and a NaN a larger number (N31), which overflows
    the accumulator unless the other operand is zero. Some chips read subnormals as zero (N34, C44).
    """
    bits = values.view(np.uint16)
    special = (bits & 0x7C00) == 0x7C00
    wide = values.astype(np.float64)
    if special.any():
        size = 65536.0 * (1 + (bits & 0x3FF) / 1024.0)
        wide = np.where(special, np.where(bits >> 15, -size, size), wide)
    if flush_subnormals:
        wide = np.where((bits & 0x7C00) == 0, 0.0, wide)
    return wide


def widened(values: Array) -> Array:
    """What planar work reads of an fp16 array, in float64: a NaN is +infinity (N31)."""
    from aneforge.sim import native

    return native.widened(values) if native.available() else widened_plain(values)


def widened_plain(values: Array) -> Array:
    """The same in NumPy."""
    wide = values.astype(np.float64)
    return np.where(np.isnan(wide), np.inf, wide)


def narrowed(values: Array, twice: bool = False) -> Array:
    """Numbers as fp16, by ``round_half`` or ``round_half_twice``; an indeterminate form is +0 (N32)."""
    from aneforge.sim import native

    return native.narrowed(values, twice) if native.available() else narrowed_plain(values, twice)


def narrowed_plain(values: Array, twice: bool = False) -> Array:
    """The same in NumPy."""
    clean = np.where(np.isnan(values), 0.0, values)
    return (round_half_twice(clean) if twice else round_half(clean)).astype(np.float16)


def _divided(a: Array, b: Array) -> Array:
    """The sign of a zero is lost before a reciprocal (N33)."""
    return np.divide(a, np.where(b == 0, 0.0, b))


_PAIRS: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add,
    "sub": np.subtract,
    "mult": np.multiply,
    "div": _divided,
}


def paired(operation: str, a: Array, b: Array) -> Array:
    """An elementwise ``add``, ``sub``, ``mult`` or ``div`` of fp16 arrays: one result, rounded twice below 2^-14."""
    from aneforge.sim import native

    return native.paired(operation, a, b) if native.available() else paired_plain(operation, a, b)


def paired_plain(operation: str, a: Array, b: Array) -> Array:
    """The same in NumPy."""
    with np.errstate(all="ignore"):
        return narrowed_plain(_PAIRS[operation](widened_plain(a), widened_plain(b)), twice=True)


def gained(
    values: Array,
    scale: Array | None = None,
    offset: Array | None = None,
    gain: float = 1.0,
    bias: float = 0.0,
    ceiling: float = np.inf,
) -> Array:
    """The gain-offset unit, gain * scale * x + bias + offset: one rounding, and infinite from a ceiling on."""
    from aneforge.sim import native

    form = native.gained if native.available() else gained_plain
    return form(values, scale, offset, gain, bias, ceiling)


def gained_plain(
    values: Array, scale: Array | None, offset: Array | None, gain: float, bias: float, ceiling: float
) -> Array:
    """The same in NumPy."""
    with np.errstate(all="ignore"):
        wide = widened_plain(values) * gain
        wide = (wide if scale is None else wide * widened_plain(scale)) + bias
        wide = wide if offset is None else wide + widened_plain(offset)
        return narrowed_plain(np.where(np.abs(wide) >= ceiling, np.copysign(np.inf, wide), wide))


def has_special(values: Array) -> bool:
    """Whether any number of an fp16 array is infinite or NaN."""
    from aneforge.sim import native

    if native.available():
        if values.flags.c_contiguous:
            return native.has_special(values)
        # The order of the numbers does not matter, so a turned array is read in the order of the memory.
        ordered = values.transpose(sorted(range(values.ndim), key=lambda axis: -values.strides[axis]))
        if ordered.flags.c_contiguous:
            return native.has_special(ordered)
    return not np.isfinite(values).all()


# Scratch arrays, kept by each thread, because a fresh array costs more than its use.


class _Buffers(threading.local):
    def __init__(self) -> None:
        self.by_name: dict[str, Array] = {}


_buffers = _Buffers()


def scratch(name: str, shape: tuple[int, ...], dtype: Any = np.float32) -> Array:
    """A dense array with arbitrary content."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    buffer = _buffers.by_name.get(name)
    if buffer is None or buffer.nbytes < size:
        buffer = _buffers.by_name[name] = np.empty(size, np.uint8)
    return buffer[:size].view(dtype).reshape(shape)


# Which elements of a map a convolution or a pool reads: kernel size, stride, dilation, and zeros around the map.


Pair = tuple[int, int]


@dataclass(frozen=True)
class Window:
    """Each field is (rows, columns)."""

    size: Pair
    stride: Pair = (1, 1)
    dilation: Pair = (1, 1)
    before: Pair = (0, 0)
    after: Pair = (0, 0)

    def outputs(self, extent: tuple[int, ...]) -> Pair:
        """Rows and columns of the result for a map of that extent."""
        rows, columns = (
            (extent[axis] + self.before[axis] + self.after[axis] - self.dilation[axis] * (self.size[axis] - 1) - 1)
            // self.stride[axis]
            + 1
            for axis in (0, 1)
        )
        return rows, columns

    @property
    def reads_points(self) -> bool:
        """Whether every output reads just the element at its place."""
        return self == Window((1, 1))


def patches(image: Array, window: Window, first: int, rows: int, single: bool = False) -> Array:
    """What each output of some rows reads of an fp16 map [channels, rows, columns], zeros around it:
    [channels x kernel rows x kernel columns, outputs]. ``single`` gives what the multipliers read, as float32.

    In this layout whole rows of the map are copied, and results come out in the order of the map. The returned array
    may be scratch: the next call in this thread overwrites it.
    """
    from aneforge.sim import native

    form = native.patches if native.available() else patches_plain
    return form(image, window, first, rows, single)


def patches_plain(image: Array, window: Window, first: int, rows: int, single: bool = False) -> Array:
    """The same in NumPy."""

    around = tuple(zip(window.before, window.after, strict=True))
    padded = np.pad(image, ((0, 0), *around))
    start = first * window.stride[0]
    reach = [step * (extent - 1) + 1 for step, extent in zip(window.dilation, window.size, strict=True)]
    view = np.lib.stride_tricks.sliding_window_view(padded[:, start:], reach, axis=(1, 2))
    view = view[:, :: window.stride[0], :: window.stride[1], :: window.dilation[0], :: window.dilation[1]][:, :rows]
    flat = np.ascontiguousarray(view.transpose(0, 3, 4, 1, 2).reshape(-1, rows * view.shape[2]))
    return decoded(flat).astype(np.float32) if single else flat
