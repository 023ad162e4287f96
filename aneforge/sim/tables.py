"""Activation tables: 33 knots, linear between them, every step rounded to fp16 (N35, N57 to N59).

A function of one fp16 number has 65,536 results. Each is computed once, by the engine's own steps, and looked up
after that. There are two sets of tables, ``m6`` and ``m1``, which differ in tanh; the fact ``table_set`` says which
one a target reads (U40). gelu and swish are the halfwords that published programs hold, the same on every chip (C72,
U41): ``choices.json``, ``published_tables``.

There are three kinds of function:

* tables that are published, or whose published figures fix them: sigmoid, tanh, erf, exp2, log2, sqrt, r_sqrt,
  invert, gelu, swish, sin, cos;
* no table at all (N38: sign; floor is "not an ordinary table"): floor, ceil, trunc, round_nearest and sign give fp16
  numbers that need no rounding. Ties of round_nearest go away from zero, as devices round;
* an unpublished table: elu, the exact function rounded once.

relu, abs and square have no table either (N38) and are ordinary arithmetic, as are the hard forms.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np

from aneforge.chips.assumed import constant
from aneforge.chips.limits import activation_tables, numeric_record, published_table
from aneforge.chips.suppose import supposed
from aneforge.sim import native
from aneforge.sim.half import round_digits, round_half, rounded_away

Array = np.ndarray
_CHOSEN = ("table_base", "table_tail", "log_of_infinity", "half_turn")
"""The constants that tables are made with (``choices.json``)."""
_ALL = np.arange(65536, dtype=np.uint16).view(np.float16)
_LOG2_E = 1.4423828125  # log2(e) and ln 2 as fp16 holds them (N58)
_LN_2 = 0.693359375
_MINUS_INFINITY = -65536.0  # what a multiplier reads of it: the largest exponent is an ordinary one there (N31)


def look_up(table: Array, values: Array) -> Array:
    """The results of an activation for an fp16 array."""
    return native.looked_up(table, values) if native.available() else table[values.view(np.uint16)]


def activation(name: str, parameters: tuple[tuple[str, float], ...] = (), tables: str = "m6") -> Array:
    """All 65,536 results of an activation, fp16, by the tables of one set."""
    if any(key in _CHOSEN for key in supposed()):
        return _activation.__wrapped__(name, parameters, tables)
    return _activation(name, parameters, tables)


@lru_cache(maxsize=256)  # 128 KiB each
def _activation(name: str, parameters: tuple[tuple[str, float], ...], tables: str) -> Array:
    settings = dict(parameters)
    with np.errstate(all="ignore"):
        inputs = _as_read(_ALL)
        if name in _BY_SET:
            results = _BY_SET[name](activation_tables(tables)[name], inputs, **settings)
        elif name in _CONSTRUCTED:
            results = _CONSTRUCTED[name](inputs, **settings)
        else:
            results = round_half(_EXACT[name](inputs, **settings))
    return _no_nan(results).astype(np.float16)


@dataclass(frozen=True)
class Tail:
    """A function beyond its knots: a line up to ``end``, and one value from there on."""

    end: float
    value: float
    slope: float = 0.0
    start: float = 0.0
    """What the line would be at 0."""


@dataclass(frozen=True)
class Knots:
    """What an engine holds of a function: its values at equal steps, and a tail on each side."""

    first: float
    last: float
    values: Array
    below: Tail
    above: Tail


def tabulated() -> tuple[str, ...]:
    """The activations that have knots; the others are computed, or their tables are unpublished."""
    return (*_BY_SET, *_CONSTRUCTED)


def looked_up() -> tuple[str, ...]:
    """Every activation that is a table of the engine, also those that a table gives exactly."""
    return (*tabulated(), *_EXACT)


@lru_cache(maxsize=64)
def knots_of(name: str, tables: str = "m6") -> Knots:
    """The knots of an activation in one set of tables. Functions of a mantissa have them for that, odd ones from 0."""
    if name == "tanh":
        end = activation_tables(tables)[name]["end"]
        return Knots(0.0, end, _tanh_knots(end), Tail(-end, -1.0), Tail(end, 1.0))
    if name in PUBLISHED:
        return _published_knots(name)
    name = _SAME_KNOTS.get(name, name)
    first, last, count, function = _SAMPLES[name]
    values = _sampled(function, first, last, count)
    if name in _TAILS:
        return Knots(first, last, values, *_TAILS[name](values))
    return Knots(first, last, values, Tail(first, values[0]), Tail(last, values[-1]))


def constructed(name: str) -> bool:
    """Whether the table is published or follows a published construction, and reproduces measured digits (N58, C72).
    How an angle leads to the table of the sine is our reading of its errors (U43)."""
    return name not in ("sin", "cos") and (name in _CONSTRUCTED or name in _BY_SET)


def differs_by_set(name: str) -> bool:
    """Whether the table of an activation is not the same on every chip (U40)."""
    return name in _BY_SET


def _as_read(values: Array) -> Array:
    """A NaN is read as +infinity (N31)."""
    wide = values.astype(np.float64)
    return np.where(np.isnan(wide), np.inf, wide)


def _no_nan(values: Array) -> Array:
    """Indeterminate forms give +0 (N32); no NaN is ever produced."""
    return np.where(np.isnan(values), 0.0, values)


# Interpolation.


def _between(knots: Array, place: Array, zero: float = 0.0) -> Array:
    """The value at a place counted in knots, from the knot toward that of zero: the difference of the two knots is
    rounded to fp16, then its product with the fraction to as many digits, then the sum (N57, N82). The nearer knot as
    base misses 3 of the 17 words of N81; a difference that is not rounded misses the gelu norms (C72) by 2e-4."""
    inward = np.where(place < zero, np.ceil(place), np.floor(place))
    if constant("table_base") == "nearest":
        inward = np.rint(place)
        return _from_base(knots, place, inward, np.where(place < inward, -1, 1))
    return _from_base(knots, place, inward, np.where(place < zero, -1, 1))


def _from_base(knots: Array, place: Array, inward: Array, toward: Array) -> Array:
    """The value at a place, from a base knot and its neighbour on one side."""
    base = np.minimum(inward, len(knots) - 1).astype(np.intp)
    neighbour = np.clip(base + toward, 0, len(knots) - 1)
    start = knots[base]
    part = round_digits(round_half(knots[neighbour] - start) * np.abs(place - base))
    return round_half(start + part)


def _sampled(function: Callable[[Array], Array], low: float, high: float, count: int = 33) -> Array:
    """Knots that are the exact function, rounded to fp16."""
    return round_half(function(np.linspace(low, high, count)))


def _only(where: Array, otherwise: Array | float, function: Callable[..., Array], *operands: Array) -> Array:
    """The function at some places and another value at the rest: most of fp16 lies outside a table's domain."""
    results = np.array(np.broadcast_to(otherwise, where.shape), np.float64)
    results[where] = function(*(operand[where] for operand in operands))
    return results


def _split(values: Array) -> tuple[Array, Array]:
    """Mantissa in [0.5, 1) and the power of two that goes with it, both for positive numbers."""
    mantissa, exponent = np.frexp(values)
    return mantissa, exponent.astype(np.float64)


# Functions with ends.


def _with_tails(name: str, x: Array) -> Array:
    """33 knots about zero; beyond them a line on each side up to its end: that of sigmoid to 0 at -9.9375 and to 1 at
    8.3203125."""
    table = knots_of(name)
    tails = np.where(x < 0, _in_tail(table.below, x), _in_tail(table.above, x))
    scale = (len(table.values) - 1) / (table.last - table.first)
    inside = (table.first <= x) & (x <= table.last)
    return _only(inside, tails, lambda z: _between(table.values, (z - table.first) * scale, -table.first * scale), x)


def _sigmoid_tails(knots: Array) -> tuple[Tail, Tail]:
    """From the last knot to the ends of N37, continuously. With slopes and starts in fp16 this gives the table of the
    published programs for h16 and h18 to the bit (U42)."""
    low, high = (float(np.float16(end)) for end in numeric_record("N37")["value"]["domain"])
    slopes = round_half(np.array([knots[0] / (-8 - low), (1 - knots[-1]) / (high - 8)]))
    starts = round_half(np.array([-slopes[0] * low, 1 - slopes[1] * high]))
    return Tail(low, 0.0, slopes[0], starts[0]), Tail(high, 1.0, slopes[1], starts[1])


def _in_tail(tail: Tail, x: Array) -> Array:
    """The value is that of the end from the end on; the line is rounded once (U42)."""
    product = tail.slope * x
    rounded = round_digits(product) if constant("table_tail") == "product first" else product
    return np.where(np.abs(x) >= abs(tail.end), tail.value, round_half(rounded + tail.start))


def _odd(x: Array, knots: Array, end: float, beyond: Array | float) -> Array:
    size = np.abs(x)
    step = end / (len(knots) - 1)
    return np.copysign(_only(size <= end, beyond, lambda z: _between(knots, z / step), size), x)


def _tanh(record: Mapping[str, Any], x: Array, alpha: float = 1.0, beta: float = 1.0) -> Array:
    """One from the end of the table on, which is more than its last knot (N81)."""
    end = record["end"]
    entering = round_half(x * beta) if beta != 1.0 else x
    inside = _odd(entering, _tanh_knots(end), end, 1.0)
    result = np.where(np.abs(entering) < end, inside, np.copysign(1.0, entering))
    return result if alpha == 1.0 else round_half(alpha * result)


def _tanh_knots(end: float) -> Array:
    return _sampled(np.tanh, 0, end)


def _erf_values(z: Array) -> Array:
    return np.array([math.erf(value) for value in z])


def _erf(x: Array) -> Array:
    """33 knots on [0, 2]. The tail is not constant (N58): we take a line (U42), cut at 1."""
    beyond = _in_tail(knots_of("erf").above, np.abs(x))
    return _odd(x, knots_of("erf").values, 2.0, beyond)


def _erf_tails(_: Array) -> tuple[Tail, Tail]:
    """The least-squares line through erf at the fp16 numbers from 2 to 2.4375, which is where that line reaches 1."""
    z = np.arange(2, 2.4375, 2.0**-9)
    slope, start = (float(number) for number in np.polyfit(z, _erf_values(z), 1))
    end = (1 - start) / slope
    return Tail(-end, -1.0, slope, -start), Tail(end, 1.0, slope, start)


def _published_knots(name: str) -> Knots:
    """The halfwords of a program's constants, laid out as ``codegen/tables.py`` says."""
    words = [int(word, 16) for word in published_table(name)["halfwords"].split()]
    halves = np.array(words, np.uint16).view(np.float16).astype(np.float64)
    knots = halves[4:37]
    end = (len(knots) - 1) / 2 / 2.0 ** words[41]
    below, above = Tail(halves[0], halves[2], *halves[37:39]), Tail(halves[1], halves[3], *halves[39:41])
    return Knots(-end, end, knots, below, above)


# Functions of an exponent and a mantissa.


def _power_of_two(exponent: Array) -> Array:
    knots = knots_of("exp2").values

    def scaled(z: Array) -> Array:
        whole = np.floor(z)
        return round_half(_between(knots, (z - whole) * 32) * np.exp2(whole))

    return _only(np.abs(exponent) < 32, np.where(exponent > 0, np.inf, 0.0), scaled, exponent)


def _exp(x: Array, base_e: float = 0.0) -> Array:
    return _power_of_two(round_half(x * _LOG2_E) if base_e else x)


def _log(x: Array, epsilon: float = 0.0, base_e: float = 0.0) -> Array:
    """log2 of zero is minus infinity; times ln 2 the multiplier reads that as -2^16, hence the -45440 of N43.

    A negative argument is indeterminate (N32). So is, as we read it, an infinite one (U44): softplus and logsumexp
    give 0 from where their sums overflow.
    """
    shifted = round_half(x + epsilon) if epsilon else x
    knots = knots_of("log2").values

    def base2(z: Array) -> Array:
        mantissa, exponent = _split(z)
        return round_half(_between(knots, (mantissa - 0.5) * 64) + exponent)

    outside = np.where(shifted == 0, _MINUS_INFINITY, 0.0)
    if constant("log_of_infinity") == "infinite":
        outside = np.where(shifted == np.inf, np.inf, outside)
    result = _only((shifted > 0) & np.isfinite(shifted), outside, base2, shifted)
    return round_half(result * _LN_2 if base_e else result)


def _roots(x: Array, name: str, power: float) -> Array:
    """Mantissa in [0.5, 2) with an even exponent, knots 1/16 apart, scaled by half the exponent."""
    mantissa, exponent = _split(x)
    odd = exponent % 2 != 0
    mantissa, exponent = np.where(odd, mantissa * 2, mantissa), np.where(odd, exponent - 1, exponent)
    knots = knots_of(name).values
    return round_half(_between(knots, (mantissa - 0.5) * 16) * np.exp2(exponent * power))


def _sqrt(x: Array) -> Array:
    return _only((x > 0) & np.isfinite(x), np.where(x > 0, x, 0.0), lambda z: _roots(z, "sqrt", 0.5), x)


def _rsqrt(x: Array, epsilon: float = 0.0) -> Array:
    """The sign of a zero is lost before the root (N33)."""
    shifted = round_half(x + epsilon) if epsilon else x
    outside = np.where(shifted == 0, np.inf, 0.0)
    return _only((shifted > 0) & np.isfinite(shifted), outside, lambda z: _roots(z, "r_sqrt", -0.5), shifted)


def _inverse(x: Array, epsilon: float = 0.0) -> Array:
    """The sign of a zero is lost before the reciprocal (N33)."""
    shifted = round_half(x + epsilon) if epsilon else x
    knots = knots_of("invert").values

    def reciprocal(z: Array) -> Array:
        mantissa, exponent = _split(np.abs(z))
        result = round_half(_between(knots, (mantissa - 0.5) * 64) * np.exp2(-exponent))
        return np.copysign(result, z)

    outside = np.where(shifted == 0, np.inf, 0.0)
    return _only((shifted != 0) & np.isfinite(shifted), outside, reciprocal, shifted)


# Sine and cosine.


def _half_turn() -> float:
    """Pi, cut to 15 bits of fraction: 2.16e-5 too small, as the M6's errors near multiples of pi show (U43)."""
    return np.pi if constant("half_turn") == "exact" else 102943 / 32768


def _half_wave(angle: Array) -> Array:
    """Sine from -pi/2 to pi/2: 33 knots from 0 to pi/2, step pi/64 (N38), odd."""
    knots = knots_of("sin").values
    return np.copysign(_between(knots, np.minimum(np.abs(angle) * (64 / np.pi), 32.0)), angle)


def _wave(angle: Array, half_turns: Array) -> Array:
    """Sine of an angle that is some half turns away from the table: these are taken off, and each changes the sign.

    The table is published, the way to it is not (U43). The whole fraction of the turn is kept, as N57 found for the
    other tables: a product with 2/pi that is rounded to fp16, or a 2/pi held in fp16, misses the printed worst error
    of 0.00063 even between -pi/2 and pi/2 (0.00071 to 0.00076, and 0.00056).
    """
    return np.where(half_turns % 2 == 0, 1.0, -1.0) * _half_wave(angle)


def _sin(x: Array) -> Array:
    def wave(z: Array) -> Array:
        turns = np.rint(z / _half_turn())
        return _wave(z - turns * _half_turn(), turns)

    return _only(np.isfinite(x), 0.0, wave, x)


def _cos(x: Array) -> Array:
    """The same table, a quarter turn on."""

    def wave(z: Array) -> Array:
        turns = np.floor(z / _half_turn())
        return _wave((turns + 0.5) * _half_turn() - z, turns)

    return _only(np.isfinite(x), 0.0, wave, np.abs(x))


_SAMPLES: dict[str, tuple[float, float, int, Callable[[Array], Array]]] = {
    "sigmoid": (-8.0, 8.0, 33, lambda z: 1 / (1 + np.exp(-z))),
    "erf": (0.0, 2.0, 33, _erf_values),
    "exp2": (0.0, 1.0, 33, np.exp2),
    "log2": (0.5, 1.0, 33, np.log2),
    "sqrt": (0.5, 2.0, 25, lambda z: z**0.5),
    "r_sqrt": (0.5, 2.0, 25, lambda z: z**-0.5),
    "invert": (0.5, 1.0, 33, lambda z: 1 / z),
    "sin": (0.0, math.pi / 2, 33, np.sin),
}
"""First knot, last knot, their number, and the function that they are exact samples of (N38, N58)."""

_SAME_KNOTS = {"high_precision_sigmoid": "sigmoid", "cos": "sin"}

_TAILS: dict[str, Callable[[Array], tuple[Tail, Tail]]] = {"sigmoid": _sigmoid_tails, "erf": _erf_tails}

_BY_SET: dict[str, Callable[..., Array]] = {"tanh": _tanh}

PUBLISHED = ("gelu", "swish")
"""Activations whose halfwords are published (``choices.json``, ``published_tables``)."""

_CONSTRUCTED: dict[str, Callable[..., Array]] = {
    "sigmoid": partial(_with_tails, "sigmoid"),
    "high_precision_sigmoid": partial(_with_tails, "sigmoid"),
    **{name: partial(_with_tails, name) for name in PUBLISHED},
    "erf": _erf,
    "exp2": _exp,
    "log2": _log,
    "sqrt": _sqrt,
    "r_sqrt": _rsqrt,
    "invert": _inverse,
    "sin": _sin,
    "cos": _cos,
}

_EXACT: dict[str, Callable[..., Array]] = {
    "elu": lambda x, alpha: np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0.0))),
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "round_nearest": rounded_away,
    "sign": np.sign,
}
