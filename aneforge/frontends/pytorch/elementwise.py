"""Arithmetic, comparisons and logic, element by element."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from aneforge.frontends import LoadError, forms
from aneforge.frontends.forms import LARGEST, scaled, truth
from aneforge.frontends.forms.pointwise import BINARY, UNARY, is_infinite
from aneforge.frontends.pytorch.hosted import RANDOM
from aneforge.frontends.pytorch.node import Node, Rule
from aneforge.frontends.pytorch.values import numeric
from aneforge.graph import builders as af
from aneforge.graph.ops.leaf import const
from aneforge.graph.tensor import Tensor

__all__ = ["RULES"]


def _unary(function: Callable[[Tensor], Tensor]) -> Rule:
    return lambda node, x, *rest: function(numeric(x))


# Sums and products.


def _add(node: Node, a: Any, b: Any, alpha: Any = 1) -> Tensor:
    if node.gives_bool:
        return af.logical_or(truth(a), truth(b))
    return forms.added(a, _times(b, float(node.options.get("alpha", alpha) or 0)))


def _sub(node: Node, a: Any, b: Any, alpha: Any = 1) -> Tensor:
    return forms.subtracted(a, _times(b, float(node.options.get("alpha", alpha) or 0)))


def _times(value: Any, factor: float) -> Any:
    if factor == 1.0:
        return value
    return factor * value if isinstance(value, (int, float)) else scaled(numeric(value), factor)


def _mul(node: Node, a: Any, b: Any) -> Tensor:
    if node.gives_bool:
        return af.logical_and(truth(a), truth(b))
    return forms.multiplied(a, b)


def _div(node: Node, a: Any, b: Any, rounding_mode: str | None = None) -> Tensor:
    return forms.divided(a, b, node.options.get("rounding_mode", rounding_mode) or "")


# Comparisons and choices.


def _binary(function: Callable[[Any, Any], Tensor]) -> Rule:
    return lambda node, a, b: function(a, b)


def _logical_not(node: Node, x: Any) -> Tensor:
    return truth(x).logical_not()


def _where(node: Node, mask: Any, a: Any, b: Any) -> Tensor:
    return forms.chosen(mask, a, b, node.gives_bool)


def _masked_fill(node: Node, x: Any, mask: Any, value: Any) -> Tensor:
    return _where(node, mask, value, x)


def _clamp(node: Node, x: Any, low: Any = None, high: Any = None) -> Tensor:
    return forms.clamped(numeric(x), low, high)


def _nan_to_num(node: Node, x: Any, nan: Any = None, high: Any = None, low: Any = None) -> Tensor:
    """Infinities become the largest fp16 numbers."""
    tensor = numeric(x)
    upper = LARGEST if high is None else min(float(high), LARGEST)
    lower = -LARGEST if low is None else max(float(low), -LARGEST)
    numbers = af.where(tensor.equal(tensor), tensor, const(np.full((1,) * tensor.ndim, float(nan or 0.0))))
    return numbers.clip(lower, upper)


# Combined ops of PyTorch.


def _addcmul(node: Node, x: Any, a: Any, b: Any, value: Any = 1) -> Tensor:
    factor = float(node.options.get("value", value))
    return numeric(x) + scaled(numeric(a) * numeric(b), factor)


def _addcdiv(node: Node, x: Any, a: Any, b: Any, value: Any = 1) -> Tensor:
    factor = float(node.options.get("value", value))
    return numeric(x) + scaled(numeric(a) / numeric(b), factor)


def _lerp(node: Node, a: Any, b: Any, weight: Any) -> Tensor:
    start, step = numeric(a), numeric(b) - numeric(a)
    return start + forms.multiplied(step, weight)


def _log_add_exp(node: Node, a: Any, b: Any) -> Tensor:
    left, right = numeric(a), numeric(b)
    return af.maximum(left, right) + (-(left - right).abs()).softplus()


def _log_add_exp2(node: Node, a: Any, b: Any) -> Tensor:
    left, right = numeric(a), numeric(b)
    gap = scaled((left - right).abs(), -math.log(2))
    return af.maximum(left, right) + scaled(gap.softplus(), 1 / math.log(2))


def _copysign(node: Node, a: Any, b: Any) -> Tensor:
    """A zero counts as positive: fp16 comparisons do not see the sign of zero."""
    size = numeric(a).abs()
    return af.where(numeric(b).less(0.0), -size, size)


def _heaviside(node: Node, x: Any, at_zero: Any) -> Tensor:
    tensor = numeric(x)
    return af.where(tensor.equal(0.0), numeric(at_zero), tensor.greater(0.0).cast())


def _xlogy(node: Node, a: Any, b: Any) -> Tensor:
    left = numeric(a)
    return af.where(left.equal(0.0), const(np.zeros((1,) * max(left.ndim, 1))), left * numeric(b).log())


def _round(node: Node, x: Any, decimals: Any = 0) -> Tensor:
    places = int(node.options.get("decimals", decimals))
    if places == 0:
        return numeric(x).round()
    return scaled(scaled(numeric(x), 10.0**places).round(), 10.0**-places)


def _logit(node: Node, x: Any, eps: Any = None) -> Tensor:
    tensor = numeric(x) if eps is None else numeric(x).clip(float(eps), 1.0 - float(eps))
    return (tensor / (1.0 - tensor)).log()


def _sinc(node: Node, x: Any) -> Tensor:
    angle = scaled(numeric(x), math.pi)
    one = const(np.ones((1,) * angle.ndim))
    return af.where(angle.equal(0.0), one, angle.sin() / af.where(angle.equal(0.0), one, angle))


def _ldexp(node: Node, x: Any, power: Any) -> Tensor:
    return numeric(x) * numeric(power).exp2()


def _random(node: Node, *_: Any) -> Tensor:
    raise LoadError("it draws new random numbers in every run; make them an input of the model")


_UNARY = (
    "abs acos acosh asin asinh atan atanh ceil cos cosh deg2rad erf erfc exp exp2 expm1 floor frac isnan log log10 "
    "log1p log2 neg rad2deg reciprocal rsqrt sign signbit sin sinh sqrt square tan trunc"
)
_ALIASES = {"absolute": "abs", "fix": "trunc", "sgn": "sign"}
_COMPARISONS = {
    "eq": "equal",
    "ne": "not_equal",
    "lt": "less",
    "le": "less_equal",
    "gt": "greater",
    "ge": "greater_equal",
}

RULES: dict[str, Rule] = {
    **{name: _unary(UNARY[name]) for name in _UNARY.split()},
    **{name: _unary(UNARY[same]) for name, same in _ALIASES.items()},
    **{name: _binary(BINARY[same]) for name, same in _COMPARISONS.items()},
    **{name: _binary(BINARY[name]) for name in ("logical_and", "logical_or", "logical_xor", "maximum", "minimum")},
    **{f"bitwise_{name}": _binary(BINARY[f"logical_{name}"]) for name in ("and", "or", "xor")},
    **{name: _binary(BINARY["maximum"]) for name in ("fmax", "max.other")},
    **{name: _binary(BINARY["minimum"]) for name in ("fmin", "min.other")},
    **{name: _binary(function) for name, function in {"fmod": BINARY["fmod"], "remainder": BINARY["mod"]}.items()},
    "isfinite": lambda node, x: numeric(x).abs().less(const(np.float16(np.inf))),
    "isinf": lambda node, x: is_infinite(numeric(x)),
    "isneginf": lambda node, x: is_infinite(numeric(x), above=False),
    "isposinf": lambda node, x: is_infinite(numeric(x), below=False),
    "positive": lambda node, x: x,
    "pow": _binary(BINARY["pow"]),
    "add": _add,
    "addcdiv": _addcdiv,
    "addcmul": _addcmul,
    "atan2": lambda node, a, b: af.atan2(numeric(a), numeric(b)),
    "bitwise_not": _logical_not,
    "clamp": _clamp,
    "clamp_max": lambda node, x, high: _clamp(node, x, None, high),
    "clamp_min": lambda node, x, low: _clamp(node, x, low, None),
    "copysign": _copysign,
    "div": _div,
    "floor_divide": lambda node, a, b: _div(node, a, b, "floor"),
    "heaviside": _heaviside,
    "hypot": lambda node, a, b: (numeric(a).square() + numeric(b).square()).sqrt(),
    "ldexp": _ldexp,
    "lerp": _lerp,
    "logaddexp": _log_add_exp,
    "logaddexp2": _log_add_exp2,
    "logical_not": _logical_not,
    "logit": _logit,
    "masked_fill": _masked_fill,
    "mul": _mul,
    "nan_to_num": _nan_to_num,
    "round": _round,
    "rsub": lambda node, a, b, alpha=1: _sub(node, b, a, alpha),
    "sinc": _sinc,
    "sub": _sub,
    "true_divide": _div,
    "where": _where,
    "xlogy": _xlogy,
    **dict.fromkeys(RANDOM, _random),
}
