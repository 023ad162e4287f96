"""Activation tables: 33 knots, linear between them, every step rounded to fp16 (N35, N57 to N59).

A function of one fp16 number is 65,536 results. Each is worked out once, by the engine's own steps, and looked up
from then on. Tables whose knots nobody has published are the exact function, rounded once; they say so.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

from aneforge.sim.half import round_half
from aneforge.targets.numeric_facts import numeric_record

__all__ = ["activation", "constructed", "look_up"]

Array = np.ndarray
_ALL = np.arange(65536, dtype=np.uint16).view(np.float16)
_LOG2_E = 1.4423828125  # log2(e) and ln 2 as fp16 holds them (N58)
_LN_2 = 0.693359375


def look_up(table: Array, values: Array) -> Array:
    """The results of an activation for an fp16 array."""
    return table[values.view(np.uint16)]


@cache
def activation(name: str, parameters: tuple[tuple[str, float], ...] = ()) -> Array:
    """All 65,536 results of an activation, fp16."""
    steps = _CONSTRUCTED.get(name)
    settings = dict(parameters)
    with np.errstate(all="ignore"):
        inputs = _as_read(_ALL)
        found = steps(inputs, **settings) if steps else round_half(_EXACT[name](inputs, **settings))
    return _no_nan(found).astype(np.float16)


def constructed(name: str) -> bool:
    """Whether the table follows a published construction that reproduces measured digits."""
    return name in _CONSTRUCTED


def _as_read(values: Array) -> Array:
    """A NaN is read as +infinity (N31)."""
    wide = values.astype(np.float64)
    return np.where(np.isnan(wide), np.inf, wide)


def _no_nan(values: Array) -> Array:
    """Indeterminate forms give +0 (N32); no NaN is ever produced."""
    return np.where(np.isnan(values), 0.0, values)


# Interpolation.


def _between(knots: Array, place: Array) -> Array:
    """The value at a place counted in knots, from the nearer knot: the difference times the fraction is rounded,
    then the sum (N57). Only the nearer knot gives the published worst error of gelu, 6.159e-3."""
    place = np.clip(place, 0, len(knots) - 1)
    base = np.floor(place + 0.5).astype(int)
    other = np.clip(np.where(place < base, base - 1, base + 1), 0, len(knots) - 1)
    part = round_half((knots[other] - knots[base]) * np.abs(place - base))
    return round_half(knots[base] + part)


def _sampled(function: Callable[[Array], Array], low: float, high: float, count: int = 33) -> Array:
    """Knots that are the exact function, rounded to fp16."""
    return round_half(function(np.linspace(low, high, count)))


def _split(values: Array, low: float) -> tuple[Array, Array]:
    """Mantissa in [low, 2 low) and exponent."""
    mantissa, exponent = np.frexp(values)  # [0.5, 1)
    doubled = round(np.log2(low / 0.5))
    return np.ldexp(mantissa, doubled), exponent - doubled


# Published constructions.


def _sigmoid(x: Array) -> Array:
    """33 knots on [-8, 8]. Between its ends and those of N37 the tails are taken as exact: nothing else is known."""

    def exact(z: Array) -> Array:
        return 1 / (1 + np.exp(-z))

    lowest = numeric_record("N37")["value"]["domain"][0]  # 0 below it, which also gives the printed 810.8 ulp (N40)
    inside = _between(_sampled(exact, -8, 8), (x + 8) * 2)
    return np.where(x < lowest, 0.0, np.where(np.abs(x) > 8, round_half(exact(x)), inside))


def _odd(x: Array, knots: Array, step: float, beyond: float) -> Array:
    size = np.abs(x)
    inside = _between(knots, np.minimum(size / step, len(knots) - 1))
    return np.copysign(np.where(size > step * (len(knots) - 1), beyond, inside), x)


def _tanh(x: Array, alpha: float = 1.0, beta: float = 1.0) -> Array:
    knots = _sampled(np.tanh, 0, 4)
    found = _odd(round_half(x * beta) if beta != 1.0 else x, knots, 0.125, 1.0)
    return found if alpha == 1.0 else round_half(alpha * found)


def _erf_values(z: Array) -> Array:
    from math import erf

    return np.vectorize(erf)(z)


def _erf(x: Array) -> Array:
    return _odd(x, _sampled(_erf_values, 0, 2), 0.0625, 1.0)


def _power_of_two(exponent: Array) -> Array:
    usable = np.clip(exponent, -60, 60)
    whole = np.floor(usable)
    knots = _sampled(np.exp2, 0, 1)
    found = _between(knots, (usable - whole) * 32)
    scaled = round_half(np.ldexp(found, whole.astype(int)))
    return np.where(np.isposinf(exponent), np.inf, np.where(np.isneginf(exponent), 0.0, scaled))


def _exp(x: Array, base_e: float = 0.0) -> Array:
    return _power_of_two(round_half(x * _LOG2_E) if base_e else x)


def _log(x: Array, epsilon: float = 0.0, base_e: float = 0.0) -> Array:
    """log(0) collapses to a large finite number (N43), and a negative argument is indeterminate (N32)."""
    shifted = round_half(x + epsilon) if epsilon else x
    mantissa, exponent = _split(np.where((shifted > 0) & np.isfinite(shifted), shifted, 1.0), 0.5)
    knots = round_half(np.log2(0.5 + np.arange(33) / 64))
    base2 = round_half(_between(knots, (mantissa - 0.5) * 64) + exponent)
    found = round_half(base2 * _LN_2) if base_e else base2
    found = np.where(shifted == 0, -45440.0, found)
    return np.where(shifted < 0, 0.0, np.where(np.isposinf(shifted), np.inf, found))


def _roots(x: Array, power: float) -> Array:
    """Mantissa in [0.5, 2) with an even exponent, knots 1/16 apart, scaled by half the exponent."""
    usable = np.where((x > 0) & np.isfinite(x), x, 1.0)
    mantissa, exponent = _split(usable, 0.5)
    odd = exponent % 2 != 0
    mantissa, exponent = np.where(odd, mantissa * 2, mantissa), np.where(odd, exponent - 1, exponent)
    knots = round_half((0.5 + np.arange(25) / 16) ** power)
    found = _between(knots, (mantissa - 0.5) * 16)
    return round_half(np.ldexp(found, (exponent * power).astype(int)))


def _sqrt(x: Array) -> Array:
    found = np.where(np.isposinf(x), np.inf, _roots(x, 0.5))
    return np.where(x > 0, found, 0.0)


def _rsqrt(x: Array, epsilon: float = 0.0) -> Array:
    shifted = round_half(x + epsilon) if epsilon else x
    found = np.where(np.isposinf(shifted), 0.0, _roots(shifted, -0.5))
    return np.where(shifted > 0, found, np.where(shifted == 0, np.inf, 0.0))


def _inverse(x: Array, epsilon: float = 0.0) -> Array:
    """The sign of a zero is lost before the reciprocal (N33)."""
    shifted = round_half(x + epsilon) if epsilon else x
    usable = np.where((shifted != 0) & np.isfinite(shifted), np.abs(shifted), 1.0)
    mantissa, exponent = _split(usable, 0.5)
    knots = round_half(1 / (0.5 + np.arange(33) / 64))
    found = round_half(np.ldexp(_between(knots, (mantissa - 0.5) * 64), -exponent))
    found = np.where(np.isinf(shifted), 0.0, np.copysign(found, shifted))
    return np.where(shifted == 0, np.inf, found)


def _fitted(name: str) -> Callable[[Array], Array]:
    """gelu and silu: the least-squares knots of N59; the argument itself above the domain, zero below it."""

    def steps(x: Array) -> Array:
        record = numeric_record("N59")["value"][name]
        low, high = record["domain"]
        knots = np.array(record["knots"])
        inside = _between(knots, (x - low) * ((len(knots) - 1) / (high - low)))
        return np.where(x >= high, x, np.where(x < low, 0.0, inside))

    return steps


_CONSTRUCTED: dict[str, Callable[..., Array]] = {
    "sigmoid": _sigmoid,
    "high_precision_sigmoid": _sigmoid,
    "tanh": _tanh,
    "erf": _erf,
    "exp2": _exp,
    "log2": _log,
    "sqrt": _sqrt,
    "r_sqrt": _rsqrt,
    "invert": _inverse,
    "gelu": _fitted("gelu"),
    "swish": _fitted("silu"),
}

_EXACT: dict[str, Callable[..., Array]] = {
    "sin": np.sin,
    "cos": np.cos,
    "elu": lambda x, alpha: np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0.0))),
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "round_nearest": np.rint,
    "sign": np.sign,
}
