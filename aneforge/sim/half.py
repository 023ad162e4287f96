"""fp16 as the engine rounds it: half away from zero (N14, N47, N53).

Values travel as float64, which holds every fp16 number and every product of two of them exactly.
"""

from __future__ import annotations

import numpy as np

__all__ = ["LARGEST", "SMALLEST_NORMAL", "decoded", "exponents", "round_half", "round_half_twice"]

Array = np.ndarray
LARGEST = 65504.0
SMALLEST_NORMAL = 2.0**-14
_BITS = 11  # significant bits of a normal number
_GRID = -24  # the exponent of the smallest step


def round_half(values: Array) -> Array:
    """The nearest fp16 number, ties away from zero; beyond the largest, infinity. One rounding, subnormals too."""
    return _finite_range(_rounded(values, _GRID))


def round_half_twice(values: Array) -> Array:
    """The same for elementwise results: below 2^-14 first to 11 significant bits, then to the step of 2^-24 (N53)."""
    return round_half(_rounded(values, None))


def _rounded(values: Array, grid: int | None) -> Array:
    """To 11 significant bits, and to no finer step than 2^grid; ties away from zero."""
    size = np.abs(values)
    _, exponent = np.frexp(size)
    step = exponent - _BITS if grid is None else np.maximum(exponent - _BITS, grid)
    with np.errstate(invalid="ignore"):
        whole = np.floor(np.ldexp(size, -step) + 0.5)  # exact: twelve bits are enough for the sum
    return np.copysign(np.where(np.isfinite(size), np.ldexp(whole, step), size), values)


def _finite_range(values: Array) -> Array:
    return np.where(np.abs(values) > LARGEST, np.copysign(np.inf, values), values)


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
