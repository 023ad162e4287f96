"""The fast form of the multiply-accumulate path: single-precision sums in any order, one rounding.

Products are not rounded and none is dropped; a sum is infinite from 2^15 on at its end, not on its way. The order of
the sums is that of the instruction set, so the last digits may differ between machines. ``bench/sim.py`` measures how
far the fast form is from the exact one.

The C library does these sums for finite numbers (``aneforge.sim.stored``). The form here does the others, and all
where there is no C library: with the matrix library of the machine.
"""

from __future__ import annotations

import numpy as np

from aneforge.sim import native
from aneforge.sim.half import decoded, round_half, scratch
from aneforge.sim.mac import CEILING

Array = np.ndarray
_BAND = 1 << 19  # elements of a matrix that are in single precision at a time: what a near cache holds


def to_single(matrix: Array) -> Array:
    """fp16 operands in single precision, to be kept between runs."""
    return native.operands(matrix) if native.available() else decoded(matrix).astype(np.float32)


def fast_products(a: Array, b: Array, bias: Array | None = None) -> Array:
    """``a @ b + bias`` for [rows, depth] and [depth, columns], each fp16 or already in single precision (fp16)."""
    left = _single(a, "left")
    if b.dtype != np.float16 or b.size <= _BAND:
        return _settled(_product(left, _single(b, "right")), bias)
    result = np.empty((a.shape[0], b.shape[1]), np.float16)
    width = max(1, _BAND // b.shape[0])
    for first in range(0, b.shape[1], width):
        band = slice(first, first + width)
        start = bias if bias is None or bias.shape[-1] == 1 else bias[..., band]
        result[:, band] = _settled(_product(left, _single(b[:, band], "right")), start)
    return result


def stacked_fast(a: Array, b: Array) -> Array:
    """The products of two fp16 stacks of matrices."""
    sums = _product(_single(a, "left"), _single(b, "right"))
    return _settled(sums.reshape(-1, sums.shape[-1]), None).reshape(sums.shape)


def _product(a: Array, b: Array) -> Array:
    return np.matmul(a, b, out=scratch("sums", (*a.shape[:-1], b.shape[-1])))


def _single(matrix: Array, name: str) -> Array:
    if matrix.dtype != np.float16:
        return matrix
    return native.operands(matrix, scratch(name, matrix.shape)) if native.available() else to_single(matrix)


def _settled(sums: Array, bias: Array | None) -> Array:
    return native.settled_single(sums, bias) if native.available() else settled_plain(sums, bias)


def settled_plain(sums: Array, bias: Array | None = None) -> Array:
    """Single-precision sums on top of a bias as fp16: half away, infinite from 2^15 on; a sum of zero is +0."""
    start = np.float32(0) if bias is None else decoded(bias).astype(np.float32)
    totals = (sums + start).astype(np.float64)
    rounded = round_half(totals) + 0.0
    return np.where(np.abs(totals) < CEILING, rounded, np.copysign(np.inf, totals)).astype(np.float16)
