"""Known numbers and truth values, and arithmetic with them: how a constant is rounded, when a value is true."""

from __future__ import annotations

import math

import numpy as np

from aneforge.formats.values import Numeric, Value, as_tensor
from aneforge.graph import builders as af
from aneforge.graph.encoding import Encoded
from aneforge.graph.halves import FP16_MAX
from aneforge.graph.ops.leaf import const
from aneforge.graph.recognise import algebra
from aneforge.graph.tensor import Tensor

Array = np.ndarray

MASKED = -30000.0
"""Added to a score that must not count, where the file gives truth values and leaves the number to us. Far enough
below any score that its exponential is zero, and above -32768, where sums in the accumulators are infinite (N04)."""

_SURELY = FP16_MAX * 2.0**24  # its product with any fp16 number except zero is infinite


def fp16_exact(number: float) -> bool:
    with np.errstate(over="ignore"):
        return float(np.float16(number)) == number


def single(number: float) -> float:
    """A number rounded to single precision, as files store attributes and as PyTorch computes. The last digits of a
    double would change the bits of some functions."""
    with np.errstate(over="ignore"):
        return float(np.float32(number))


def known_number(value: object, rank: int) -> float | None:
    """The number that a known value of one element stands for; None for other values, and for values with more axes
    than ``rank``."""
    if isinstance(value, (bool, int, float)):
        return float(value)
    if isinstance(value, np.ndarray) and value.size == 1 and value.ndim <= rank and value.dtype.kind in "fiub":
        return float(value.reshape(-1)[0])
    return None


def as_fp16(value: Value, limit: float = FP16_MAX) -> Value:
    """A known array as the engine reads it: a finite number beyond ``limit`` becomes infinite, as in rounding to fp16.

    A user's number is never moved to another finite one: a mask of -1e9 is minus infinity to the chip, and ``risks``
    says so. ``limit`` is larger than fp16's own where the result may still be in range."""
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "fiu" or not value.size:
        return value
    if max(float(value.max()), -float(value.min())) <= limit:
        return value
    wide = value.astype(np.float64)
    return np.where(np.abs(wide) > limit, np.copysign(np.inf, wide), wide)


def as_number(value: Value | bool | float, limit: float = FP16_MAX) -> Tensor:
    """A value to compute with: truth values are 0 and 1, and constants go through :func:`as_fp16`."""
    if isinstance(value, Tensor):
        return value.cast() if value.dtype in ("bool", "uint8") else value
    constant = value if isinstance(value, Encoded) else as_fp16(np.asarray(value), limit)
    return as_tensor(constant)


def as_factor(value: Value | bool | float) -> Tensor:
    """A value to multiply or divide with. A constant beyond fp16 stays as it is, because its product may be in range;
    the graph refuses it."""
    return as_number(value, _SURELY)


def truth(value: Value | bool | float) -> Tensor:
    """Anything but zero is true, as every format defines it."""
    if isinstance(value, Tensor):
        return value if value.dtype == "bool" else value.not_equal(0.0)
    return const((np.asarray(value) != 0).astype(np.float64)).not_equal(0.0)


def are_truths(*values: object) -> bool:
    """Whether one of the values, computed or known, holds truth values."""
    return any(value.dtype == ("bool" if isinstance(value, Tensor) else np.bool_)
               for value in values if isinstance(value, (Tensor, np.ndarray)))  # fmt: skip


def chosen(mask: Value, yes: Value, no: Value, truths: bool = False) -> Tensor:
    """``yes`` where the mask is true, otherwise ``no``. The engine selects only numbers, so truth values use logical
    ops."""
    condition = truth(mask)
    if not truths:
        return af.where(condition, as_number(yes), as_number(no))
    return af.logical_or(af.logical_and(condition, truth(yes)), af.logical_and(condition.logical_not(), truth(no)))


_MIRRORED = {"greater": "less", "less": "greater", "greater_equal": "less_equal", "less_equal": "greater_equal"}


def compared(name: str, a: Value | float, b: Value | float) -> Tensor:
    """A comparison by the name of the graph's op. A known number that fp16 lacks is rounded to the neighbour that
    gives the same answer for every fp16 number."""
    for x, other, kind in ((a, b, name), (b, a, _MIRRORED.get(name, name))):
        if isinstance(x, Tensor) and (bound := known_number(other, x.ndim)) is not None:
            return getattr(as_number(x), kind)(_round_bound(kind, bound))
    return getattr(as_number(a), name)(as_number(b))


def _round_bound(name: str, bound: float) -> float:
    with np.errstate(over="ignore"):
        near = np.float16(bound)
    down = name in ("greater", "less_equal")
    if np.isfinite(near) and name not in ("equal", "not_equal"):
        if down and float(near) > bound:
            near = np.nextafter(near, np.float16(-np.inf))
        elif not down and float(near) < bound:
            near = np.nextafter(near, np.float16(np.inf))
    return float(near)


def truncated(x: Tensor) -> Tensor:
    """The integer part, as a cast to an integer type gives it. It is exact: the integer part of an fp16 number is an
    fp16 number."""
    return x.sign() * x.abs().floor()


def added_mask(mask: Value) -> Tensor:
    """The mask that is added to the scores of attention. True means that a score counts; numbers are added as they
    are."""
    if isinstance(mask, Tensor) and mask.dtype == "bool":
        return af.where(mask, const(np.zeros((1,) * mask.ndim)), const(np.full((1,) * mask.ndim, MASKED)))
    if isinstance(mask, np.ndarray) and mask.dtype.kind == "b":
        return const(np.where(mask, 0.0, MASKED))
    return as_number(mask)


# Sums, products, powers, remainders and bounds. A number that fp16 would round is kept as the file has it, as an
# attribute of the op.


_STEP = 32768.0
_ENDLESS = _STEP**3  # its product with the smallest fp16 number is infinite
_SMALLEST = 2.0**-24  # above zero in fp16
_NOTHING = 2.0**-25  # a smaller number is 0 in fp16, and changes no fp16 number that it is added to


def scaled(x: Tensor, factor: float) -> Tensor:
    """``x`` times a number. A number that fp16 rounds stays an attribute. One that fp16 cannot hold becomes several
    products, so that zero stays zero and results in range stay in range: (1 - mask) * -1e9 is 0 or minus infinity."""
    if factor == 1.0:
        return x
    if math.isfinite(factor) and abs(factor) > FP16_MAX:
        factor = math.copysign(min(abs(factor), _ENDLESS), factor)
        while abs(factor) > FP16_MAX:
            x, factor = x * _STEP, factor / _STEP
    return algebra.scaled(x, single(factor))


def shifted(x: Tensor, offset: float) -> Tensor:
    """``x`` plus a number. A number that makes every sum infinite is replaced by infinity."""
    if offset == 0.0:
        return x
    offset = math.copysign(math.inf, offset) if abs(offset) > 2 * FP16_MAX else offset
    offset = single(offset)
    return x + offset if fp16_exact(offset) else x.linear_activation(1.0, offset)


def added(a: Value | float, b: Value | float) -> Tensor:
    for x, other in ((a, b), (b, a)):
        if isinstance(x, Tensor) and (offset := known_number(other, x.ndim)) is not None:
            return shifted(as_number(x), offset)
    return as_number(a, 2 * FP16_MAX) + as_number(b, 2 * FP16_MAX)


def subtracted(a: Value | float, b: Value | float) -> Tensor:
    if isinstance(a, Tensor) and (offset := known_number(b, a.ndim)) is not None:
        return shifted(as_number(a), -offset)
    if isinstance(b, Tensor) and (offset := known_number(a, b.ndim)) is not None and abs(offset) <= FP16_MAX:
        return offset - as_number(b) if fp16_exact(offset) else as_number(b).linear_activation(-1.0, single(offset))
    return as_number(a, 2 * FP16_MAX) - as_number(b, 2 * FP16_MAX)


def multiplied(a: Value | float, b: Value | float) -> Tensor:
    for x, other in ((a, b), (b, a)):
        if isinstance(x, Tensor) and (factor := known_number(other, x.ndim)) is not None:
            return scaled(as_number(x), factor)
    return as_factor(a) * as_factor(b)


def add_product(x: Numeric, a: Numeric, b: Numeric, factor: float = 1.0) -> Tensor:
    return x + scaled(a * b, factor)


def add_quotient(x: Numeric, a: Numeric, b: Numeric, factor: float = 1.0) -> Tensor:
    return x + scaled(a / b, factor)


def lerp(a: Numeric, b: Numeric, weight: Value | float) -> Tensor:
    """``a`` for weight 0, ``b`` for weight 1."""
    return a + multiplied(b - a, weight)


def divided(a: Value | float, b: Value | float, rounding: str = "") -> Tensor:
    """Division by a known number is a product; 1 divided by a tensor is a reciprocal. With ``rounding`` (``floor`` or
    ``trunc``) the engine divides, because a product with a rounded reciprocal may fall below an integer."""
    if rounding == "floor":
        return af.floor_div(as_factor(a), as_factor(b))
    if rounding == "trunc":
        return truncated(as_factor(a) / as_factor(b))
    if isinstance(a, Tensor) and (divisor := known_number(b, a.ndim)):
        return scaled(as_number(a), 1.0 / divisor)
    if isinstance(b, Tensor) and known_number(a, b.ndim) == 1.0:
        return as_number(b).inverse(0.0)
    return as_factor(a) / as_factor(b)


def remainder(a: Value | float, b: Value | float, of_dividend: bool = False) -> Tensor:
    """The remainder with the sign of the divisor, as in Python, or of the dividend, as fmod in C. The op of the graph
    corrects a quotient that was rounded across an integer."""
    left, right = (operand if operand.ndim else operand.reshape(1) for operand in (as_factor(a), as_factor(b)))
    return left.sign() * af.mod(left.abs(), right.abs()) if of_dividend else af.mod(left, right)


def power(base: Value | float, exponent: Value | float) -> Tensor:
    """A known exponent becomes products or a root where possible, which are also right for negative numbers."""
    if isinstance(base, Tensor) and (number := known_number(exponent, base.ndim)) is not None:
        return _known_power(as_number(base), number)
    if isinstance(exponent, Tensor) and (start := known_number(base, exponent.ndim)) is not None and start > 0:
        if start in (2.0, math.e):
            return as_number(exponent).exp2() if start == 2.0 else as_number(exponent).exp()
        return scaled(as_number(exponent), math.log2(start)).exp2()
    return as_number(base).pow(as_number(exponent))


def _known_power(x: Tensor, exponent: float) -> Tensor:
    if exponent in (0.5, -0.5):
        return x.sqrt() if exponent > 0 else x.rsqrt(0.0)
    if exponent == 0.0:
        return const(np.ones(x.shape))
    if exponent == int(exponent) and abs(exponent) <= 8:
        product, square, remaining = None, x, int(abs(exponent))
        while remaining:
            if remaining & 1:
                product = square if product is None else product * square
            square, remaining = (square.square() if remaining > 1 else square), remaining >> 1
        assert product is not None
        return product if exponent > 0 else product.inverse(0.0)
    return x.pow(exponent) if fp16_exact(exponent) else scaled(x.log(), exponent).exp()


# Functions with a small number added to their argument. A number too small for fp16 counts as 0.


def _visible_epsilon(eps: float) -> float:
    return 0.0 if abs(eps) < _NOTHING else single(eps)


def norm_epsilon(eps: float) -> float:
    """The epsilon of a norm, as coremltools stores it in fp16: one that would round to zero is the smallest step, so
    that a row of equal numbers divides by something."""
    return max(single(eps), _SMALLEST) if eps > 0.0 else single(eps)


def log(x: Numeric, eps: float = 0.0) -> Tensor:
    return x.log(_visible_epsilon(eps))


def rsqrt(x: Numeric, eps: float = 0.0) -> Tensor:
    return x.rsqrt(_visible_epsilon(eps))


def inverse(x: Numeric, eps: float = 0.0) -> Tensor:
    return x.inverse(_visible_epsilon(eps))


def clamped(x: Numeric, low: Value | float | None = None, high: Value | float | None = None) -> Tensor:
    """Both bounds make one op. A side without a bound, or with a bound beyond fp16, stays open, so infinite numbers
    pass. If the bounds cross, the upper one wins. Computed bounds are a maximum and a minimum."""
    bounds = [_bound(low, x.ndim), _bound(high, x.ndim)]
    if any(bound is not None and not isinstance(bound, float) for bound in bounds):
        x = x if low is None else af.maximum(x, as_number(low))
        return x if high is None else af.minimum(x, as_number(high))
    least, most = (bound if isinstance(bound, float) and abs(bound) <= FP16_MAX else None for bound in bounds)
    for bound, side in ((bounds[0], 1.0), (bounds[1], -1.0)):
        if isinstance(bound, float) and abs(bound) > FP16_MAX and bound * side > 0:
            return const(np.full(x.shape, bound * math.inf))  # no number is inside the bounds
    if least is None and most is None:
        return x
    if most is None:
        return x.relu() if least == 0.0 else _one_side(x, least, None)
    if least is None:
        return _one_side(x, None, most)
    return x.relu6() if (least, most) == (0.0, 6.0) else x.clip(min(least, most), most)


def _bound(bound: Value | float | None, rank: int) -> Value | float | None:
    number = known_number(bound, max(rank, 1))
    return bound if number is None else single(number)


def _one_side(x: Tensor, low: float | None, high: float | None) -> Tensor:
    if low is not None:
        return af.maximum(x, low) if fp16_exact(low) else x.clip(low, FP16_MAX)
    assert high is not None
    return af.minimum(x, high) if fp16_exact(high) else x.clip(-FP16_MAX, high)
