"""Functions the engine lacks on some or all chips, built from ops that every family from A13 up has.

Every function takes and gives graph tensors. The constraint they are written for: each op rounds its result to
fp16 and nothing is wider in between, so a formula is chosen by what survives that rounding. Three habits follow.

* No cancellation: ``log(1 + u)`` and range reduction are arranged so that the subtraction that loses digits is exact.
* Constants are few-bit numbers where a product must be exact, and pairs (value, rest) where one fp16 is too coarse.
* A branch that is not selected may hold anything, but no branch divides by zero for an argument in its domain.

The errors are measured over every fp16 argument with every node rounded (phase 0 of the compiler states them), taking
the engine's own ``exp``, ``log``, ``sqrt`` and ``atan`` as correctly rounded; a table look-up that is coarser than
that adds its own error.
"""

from __future__ import annotations

import math

from aneforge.graph.ops.elementwise import maximum, minimum, select
from aneforge.graph.ops.leaf import as_tensor
from aneforge.graph.tensor import Tensor

# What is left of pi / 2, 22 / 7 and 355 / 113 after the parts that multiply exactly, times 2^10 so that the
# constants are normal numbers.
_SCALE = 1024.0
_REST_QUARTER = (math.pi / 2 - 201 / 128 - 2.0**-11) * _SCALE  # pi/2  = 201/128 + 2^-11 + rest
_REST_22 = (22 - 7 * math.pi - 9 / 1024 - 2.0**-14) * _SCALE  # 22    = 7 pi + 9/1024 + 2^-14 + rest
_REST_710 = (710 - 226 * math.pi - 2.0**-14) * _SCALE  # 710   = 226 pi + 2^-14 + rest

# Horner coefficients on |r| <= pi/4 in r^2: fp16 numbers chosen together, so that each makes up for the rounding
# of the one before it.
_SIN = (-0.1666259765625, 0.008148193359375)
_COS = (-0.5, 0.041656494140625, -0.0013561248779296875)


class _Turn:
    """An angle as ``quarter * pi/2 + high + low``, with ``low`` below the last digit of ``high``."""

    def __init__(self, x: Tensor) -> None:
        """Reduce in three exact steps: by 710 (113 turns less 6e-5), by 22 (7 half turns less 9e-3), by pi/2.

        Each multiplier is a few-bit number and each count a small integer, so product and difference are exact;
        what the multipliers lack of a whole turn is gathered apart and added last.
        """
        wide = (x * (1 / 710)).round()
        x = x - wide * 704.0 - wide * 6.0
        half = (x * (1 / 22)).round()
        x = x - half * 22.0
        short = half * (9 / 1024)
        quarter = ((x + short) * (2 / math.pi)).round()
        exact = x - quarter * (201 / 128) + short - quarter * 2.0**-11
        coarse = (wide + half) * 2.0**-14
        fine = (half * _REST_22 + wide * _REST_710 - quarter * _REST_QUARTER) * (1 / _SCALE)
        self.high = exact + coarse
        self.low = ((exact - self.high) + coarse) + fine
        self.quarter = quarter + half * 2.0  # 22 is 14 quarters, 710 is 452: 2 and 0 modulo 4


def _sin_cos(turn: _Turn) -> tuple[Tensor, Tensor]:
    """Sine and cosine of the reduced angle; the small parts are added to the large one last."""
    angle = turn.high + turn.low
    square = angle * angle
    bend = square * _SIN[1] + _SIN[0]
    sine = turn.high + (bend * square * angle + turn.low)
    bow = (square * _COS[2] + _COS[1]) * square + _COS[0]
    return sine, bow * square + 1.0


def _quadrant(count: Tensor) -> tuple[Tensor, Tensor]:
    """Whether a count of quarter turns is odd, and the sign -1 or 1 of its half turn."""
    half = (count * 0.5).floor()
    odd = count - half * 2.0
    return odd.greater(0.5), 1.0 - (half - (half * 0.5).floor() * 2.0) * 2.0


def sin(x: Tensor) -> Tensor:
    """Sine of any finite fp16 angle."""
    turn = _Turn(x)
    sine, cosine = _sin_cos(turn)
    odd, sign = _quadrant(turn.quarter)
    return select(odd, cosine, sine) * sign


def cos(x: Tensor) -> Tensor:
    """Cosine of any finite fp16 angle."""
    turn = _Turn(x)
    sine, cosine = _sin_cos(turn)
    odd, sign = _quadrant(turn.quarter + 1.0)
    return select(odd, cosine, sine) * sign


def tan(x: Tensor) -> Tensor:
    """Tangent of any finite fp16 angle: one division, of sine by cosine or of cosine by minus sine."""
    turn = _Turn(x)
    sine, cosine = _sin_cos(turn)
    odd, _ = _quadrant(turn.quarter)
    return select(odd, cosine, sine) / select(odd, sine * -1.0, cosine)


def asin(x: Tensor) -> Tensor:
    """Arc sine by half the angle, so that x = 1 divides by one and not by zero."""
    return (x / (((1.0 - x) * (1.0 + x)).sqrt() + 1.0)).atan() * 2.0


def acos(x: Tensor) -> Tensor:
    """Arc cosine by a quarter of the angle: sine and cosine of the half angle are square roots."""
    sine, cosine = ((1.0 - x) * 0.5).sqrt(), ((1.0 + x) * 0.5).sqrt()
    return (sine / (cosine + 1.0)).atan() * 4.0


_HALF_PI = (201 / 128, math.pi / 2 - 201 / 128)
_PI = (201 / 64, math.pi - 201 / 64)


def _operand(value: Tensor | float) -> Tensor:
    """A tensor with an axis: a number has none, and only a stored value may be without."""
    tensor = as_tensor(value)
    return tensor if tensor.shape else tensor.reshape(1)


def atan2(a: Tensor | float, b: Tensor | float) -> Tensor:
    """The angle of the point (b, a): an arc tangent of at most one, turned into its octant."""
    a, b = _operand(a), _operand(b)
    rise, run = a.abs(), b.abs()
    longer = maximum(rise, run)
    slope = (minimum(rise, run) / select(longer.equal(0.0), 1.0, longer)).atan()
    steep, behind = rise.greater(run), b.less(0.0)
    upright = select(behind, slope, slope * -1.0)
    flat = select(behind, slope * -1.0, slope)
    start = select(steep, _HALF_PI[0], select(behind, _PI[0], 0.0))
    rest = select(steep, _HALF_PI[1], select(behind, _PI[1], 0.0))
    angle = start + (select(steep, upright, flat) + rest)
    return select(a.less(0.0), angle * -1.0, angle)


def cosh(x: Tensor) -> Tensor:
    """Hyperbolic cosine. exp(|x|) overflows before cosh does; there exp(|x|/2) is squared instead."""
    size = x.abs()
    power = minimum(size, 11.0).exp()
    root = (size * 0.5).exp()
    return select(size.greater(11.0), root * 0.5 * root, power * 0.5) + 0.5 / power


def sinh(x: Tensor) -> Tensor:
    """Hyperbolic sine as tanh * cosh: a difference of exponentials would cancel near zero."""
    return x.tanh() * cosh(x)


def log1p(u: Tensor) -> Tensor:
    """log(1 + u) for u >= 0: what the sum 1 + u rounded away is added back as a quotient."""
    whole = u + 1.0
    log = whole.log()
    return select(u.greater(4.0), log, log + (u - (whole - 1.0)) / whole)


def _odd(x: Tensor, magnitude: Tensor) -> Tensor:
    return select(x.less(0.0), magnitude * -1.0, magnitude)


def asinh(x: Tensor) -> Tensor:
    """Inverse hyperbolic sine: log1p below one; above, the log of a square root, which cannot overflow."""
    size = x.abs()
    near = minimum(size, 4.0)
    square = near * near
    small = log1p(near + square / ((square + 1.0).sqrt() + 1.0))
    far = maximum(size, 4.0)
    inverse = 1.0 / far
    large = (far.sqrt() * ((inverse * inverse + 1.0).sqrt() + 1.0).sqrt()).log() * 2.0
    return _odd(x, select(size.less(4.0), small, large))


def acosh(x: Tensor) -> Tensor:
    """Inverse hyperbolic cosine; below one there is none (NaN)."""
    over = minimum(x, 4.0) - 1.0
    small = log1p(over + (over * (over + 2.0)).sqrt())
    far = maximum(x, 4.0)
    inverse = 1.0 / far
    large = (far.sqrt() * (((1.0 - inverse) * (1.0 + inverse)).sqrt() + 1.0).sqrt()).log() * 2.0
    return select(x.less(4.0), small, large)


def atanh(x: Tensor) -> Tensor:
    """Inverse hyperbolic tangent: log1p(2 |x| / (1 - |x|)) / 2 with the sign of x."""
    size = x.abs()
    twice = size * 2.0
    return _odd(x, log1p(twice + twice * (size / (1.0 - size))) * 0.5)


def mod(a: Tensor | float, b: Tensor | float) -> Tensor:
    """The remainder of a / b with the sign of b; a quotient that rounded across a whole number is put right."""
    a, b = _operand(a), _operand(b)
    sign, size = b.sign(), b.abs()
    turned = a * sign
    amount = turned.abs()
    rest = amount - (amount / size).floor() * size  # of magnitudes, so that the product stays below |a|
    rest = select(rest.less(0.0), rest + size, rest)
    rest = select(turned.less(0.0), size - rest, rest)
    rest = select(rest.greater_equal(size), rest - size, rest)
    return rest * sign


def logical_and(a: Tensor, b: Tensor) -> Tensor:
    """Both of two bools."""
    return minimum(a.cast(), b.cast()).greater(0.5)


def logical_or(a: Tensor, b: Tensor) -> Tensor:
    """Either of two bools."""
    return maximum(a.cast(), b.cast()).greater(0.5)


def logical_xor(a: Tensor, b: Tensor) -> Tensor:
    """Exactly one of two bools."""
    return a.cast().not_equal(b.cast())
