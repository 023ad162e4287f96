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
from typing import NamedTuple

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


def log1p(x: Tensor) -> Tensor:
    """log(1 + x) for x >= -1: what the sum 1 + x rounded away is added back as a quotient."""
    whole = x + 1.0
    log = whole.log()
    # Below 2^-11 the sum is -1 exactly, and there is nothing to add back.
    return select(x.greater(4.0), log, log + (x - (whole - 1.0)) / maximum(whole, 2.0**-11))


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


# Functions of probability and physics. Ranges and errors: ``STATED``.


def _polynomial(x: Tensor, coefficients: tuple[float, ...]) -> Tensor:
    """A polynomial from its highest coefficient down. Each is an fp16 number that makes up for those before it."""
    *rest, first = coefficients
    value = x * first + rest.pop()
    while rest:
        value = value * x + rest.pop()
    return value


def erf(x: Tensor) -> Tensor:
    """The error function: the engine has it on every chip."""
    return x.erf()


_ERFC = (0.0003707408905029297, 0.560546875, 0.56298828125, 0.427001953125, -0.96826171875, 0.42626953125)


def erfc(x: Tensor) -> Tensor:
    """1 - erf(x), without that difference where it is small.

    There it is exp(-x^2) times a polynomial of 1 / (1 + x). The square is split into one of few bits, which is exact,
    and a small rest: rounded as a whole it would cost 16 steps of the result at x = 4.
    """
    size = minimum(x.abs(), 6.0)
    coarse = (size * 8.0).round() * 0.125
    decay = (coarse * coarse * -1.0).exp() * ((coarse - size) * (coarse + size)).exp()
    tail = decay * _polynomial(1.0 / (size + 1.0), _ERFC)
    return select(x.greater(0.5), tail, select(x.less(-0.5), 2.0 - tail, 1.0 - x.erf()))


def expm1(x: Tensor) -> Tensor:
    """exp(x) - 1; near zero a polynomial, since the difference would have no digits left."""
    near = maximum(minimum(x, 0.625), -0.625)
    small = near + near * near * _polynomial(near, (0.5, 0.1666259765625, 0.04217529296875, 0.0084381103515625))
    return select(x.abs().less(0.59), small, x.exp() - 1.0)


def exp_wide(x: Tensor, splits: int = 1) -> Tensor:
    """exp(x) as a power of exp(x / 2^splits). Each square doubles the error: ``x.exp()`` is better on every chip."""
    power = (x * 0.5**splits).exp()
    for _ in range(splits):
        power = power * power
    return power


def log_wide(x: Tensor, sqrts: int = 3) -> Tensor:
    """log(x) by roots: 2^sqrts * log(x^(2^-sqrts)). ``x.log()`` is better on every chip."""
    for _ in range(sqrts):
        x = x.sqrt()
    return x.log() * 2.0**sqrts


_GAMMA = (
    *(0.88623046875, 0.032257080078125, 0.4150390625, -0.104736328125, 0.1412353515625, -0.096923828125),
    0.07611083984375,
)
_LGAMMA = (0.483154296875, -0.14599609375, 0.06268310546875, -0.0310211181640625, 0.019073486328125)
_LGAMMA += (-0.01126861572265625,)
_STEPS = 8  # from 10 down to 2


def _stepped(x: Tensor) -> tuple[Tensor, Tensor]:
    """``x`` less whole steps until it is below 2, and the product of the numbers passed: gamma is that product times
    gamma of the rest. Every difference is exact."""
    x, product = minimum(x, _STEPS + 1.9921875), None
    for _ in range(_STEPS):
        above = x.greater_equal(2.0)
        x = select(above, x - 1.0, x)
        factor = select(above, x, 1.0)
        product = factor if product is None else product * factor
    assert product is not None
    return x, product


def gamma(x: Tensor) -> Tensor:
    """The gamma function of x > 0; infinite from 9.17 on, as fp16 ends there."""
    below = x.less(1.0)
    rest, product = _stepped(select(below, x + 1.0, x))
    value = product * _polynomial(rest - 1.5, _GAMMA)
    return select(below, value / x, value)


def gamma_via_lgamma(x: Tensor) -> Tensor:
    """The gamma function as exp(lgamma(x)), which has fewer digits than :func:`gamma`."""
    return lgamma(x).exp()


def lgamma(x: Tensor) -> Tensor:
    """The logarithm of the gamma function of x > 0.

    Up to 8 by whole steps to [1, 2], where the factor (x - 1) (x - 2) keeps both zeros exact; beyond, by Stirling's
    series.
    """
    below = x.less(1.0)
    rest, product = _stepped(select(below, x + 1.0, x))
    near = product.log() + (rest - 1.0) * (rest - 2.0) * _polynomial(rest - 1.5, _LGAMMA)
    far = maximum(x, 8.0)
    log = far.log()
    series = far * (log - 1.0) + (log * -0.5 + 0.9189453125 + (1 / 12) / far)
    return select(x.less(8.0), select(below, near - x.log(), near), series)


_J0 = (-0.196533203125, -0.56591796875, 0.4794921875, -0.1309814453125, 0.01849365234375, -0.0015869140625)


def bessel_j0(x: Tensor) -> Tensor:
    """J0 of any finite fp16 argument: a polynomial of x^2 up to 4, and a wave of shrinking height beyond.

    The wave's angle is x - pi/4 less a small turn. Sine and cosine are taken of x itself, which is exact.
    """
    size = x.abs()
    near = minimum(size, 4.0)
    small = _polynomial(near * near * 0.125 - 1.0, _J0)
    far = maximum(size, 4.0)
    inverse = 1.0 / far
    turn = _Turn(far)
    sine, cosine = _sin_cos(turn)
    odd, sign = _quadrant(turn.quarter)
    up = select(odd, cosine, sine) * sign
    odd, sign = _quadrant(turn.quarter + 1.0)
    along = select(odd, cosine, sine) * sign
    square = inverse * inverse
    even_part = 1.0 - square * (9 / 128)
    odd_part = inverse * (square * (75 / 1024) - 0.125)
    wave = (inverse * (1 / math.pi)).sqrt() * (even_part * (along + up) - odd_part * (up - along))
    return select(size.less(4.0), small, wave)


_I0 = (1.0, 3.515625, 3.08984375, 1.2119140625, 0.25341796875, 0.048614501953125)
_I0_FAR = (0.39892578125, 0.052581787109375, -2.7954578399658203e-05, 0.1375732421875, -0.037261962890625)


def bessel_i0(x: Tensor) -> Tensor:
    """I0; infinite from 13.6 on, as fp16 ends there. exp(x) overflows before I0 does, so its root is taken twice."""
    size = x.abs()
    ratio = minimum(size, 3.75) * (1 / 3.75)
    far = maximum(size, 3.75)
    root = (far * 0.5).exp()
    large = root * (root * (_polynomial(1.0 / far, _I0_FAR) / far.sqrt()))
    return select(size.less(3.75), _polynomial(ratio * ratio, _I0), large)


_K0 = (-0.5771484375, 0.4228515625, 0.2308349609375, 0.03460693359375, 0.002925872802734375)
_K0_LOG = (1.0, 1.0, 0.25, 0.027618408203125, 0.0019178390502929688)
_K0_FAR = (1.2529296875, -0.1558837890625, 0.08087158203125, -0.054290771484375, 0.022552490234375)


def bessel_k0(x: Tensor) -> Tensor:
    """K0 of x > 0."""
    half = minimum(x, 2.0) * 0.5
    square = half * half
    small = _polynomial(square, _K0) - half.log() * _polynomial(square, _K0_LOG)
    far = maximum(x, 2.0)
    large = (far * -1.0).exp() * (_polynomial(1.0 / far, _K0_FAR) / far.sqrt())
    return select(x.less(2.0), small, large)


class Stated(NamedTuple):
    """Where a function may be used and how far it is from the true one there."""

    low: float
    high: float
    steps: int
    """The largest distance in fp16 steps."""
    least: float = 0.0
    """Below this magnitude the step is that of this number: the error is absolute there."""


STATED: dict[str, Stated] = {
    "erf": Stated(-65504, 65504, 1),
    "erfc": Stated(-65504, 4, 4),
    "expm1": Stated(-65504, 11, 1),
    "log1p": Stated(-1, 65504, 1),
    "exp_wide": Stated(-9, 11, 2),
    "log_wide": Stated(2.0**-14, 65504, 7, 1.0),
    "gamma": Stated(2.0**-14, 9.125, 3),
    "gamma_via_lgamma": Stated(1, 9.125, 20),
    "lgamma": Stated(2.0**-14, 8192, 2, 0.5),
    "bessel_j0": Stated(-65504, 65504, 4, 0.25),
    "bessel_i0": Stated(-13.5, 13.5, 4),
    "bessel_k0": Stated(2.0**-14, 8, 14),
}
"""Measured over every fp16 number of the range, with every node rounded."""
