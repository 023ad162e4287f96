"""The multiply-accumulate path, exact: fixed-point sums of rounded products (N03, N04, N11, N12, N14).

Every product is rounded half away from zero to 2^-16, or dropped when the exponents of its operands sum to -17 or
less. The accumulator starts at the bias, adds exactly, and stays infinite once its magnitude reaches 2^15. One
rounding, half away, makes the fp16 result. This is the plain form in NumPy that any faster one has to equal.
"""

from __future__ import annotations

import numpy as np

from aneforge.sim.half import decoded, exponents, round_half

__all__ = ["CEILING", "STEP", "products"]

Array = np.ndarray
STEP = 2.0**-16
CEILING = 2.0**15
_DROPPED = -17
_UNITS = CEILING / STEP


def products(a: Array, b: Array, bias: Array | None = None, flush_subnormals: bool = False) -> Array:
    """``a @ b + bias`` for fp16 ``a`` [rows, depth] and ``b`` [depth, columns], as the engine gives it (fp16).

    Terms are added in the order of the depth; that matters only for a sum that leaves the range on its way.
    """
    left, right = decoded(a, flush_subnormals) / STEP, decoded(b, flush_subnormals)
    ea, eb = exponents(a), exponents(b)
    total = np.zeros((a.shape[0], b.shape[1]))
    if bias is not None:
        total += _away(decoded(bias) / STEP)
    watched = not _stays_inside(left, right, total)
    lost = np.abs(total) >= _UNITS
    sign = np.sign(total)
    kept = ea.min(axis=0) + eb.min(axis=1) > _DROPPED  # no product of such a term is dropped
    for term in range(a.shape[1]):
        part = left[:, term, None] * right[term]
        if not kept[term]:
            part[ea[:, term, None] + eb[term] <= _DROPPED] = 0.0
        total += _away(part)
        if watched:
            fresh = (np.abs(total) >= _UNITS) & ~lost
            sign[fresh] = np.sign(total[fresh])
            lost |= fresh
    result = round_half(total * STEP) + 0.0  # a sum of zero is +0 (N33)
    return np.where(lost, np.copysign(np.inf, sign), result).astype(np.float16)


def _away(values: Array) -> Array:
    """Whole numbers, ties away from zero; exact below 2^52."""
    return np.trunc(values + np.copysign(0.5, values))


def _stays_inside(left: Array, right: Array, start: Array) -> bool:
    """Whether no partial sum can reach the ceiling, by the sum of all magnitudes with room for every rounding."""
    most = np.abs(start).max(initial=0.0) + 0.5 * left.shape[1]
    rows, columns = np.abs(left).max(axis=0), np.abs(right).max(axis=1)
    return bool(most + float(rows @ columns) < _UNITS)
