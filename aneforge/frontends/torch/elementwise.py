"""Arithmetic, comparisons and logic, element by element."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from aneforge.frontends import LoadError, forms
from aneforge.frontends.forms import LARGEST, scaled, truncated, truth
from aneforge.frontends.torch.deep import Deep
from aneforge.frontends.torch.hosted import RANDOM
from aneforge.frontends.torch.node import Node, Rule
from aneforge.frontends.torch.values import numeric
from aneforge.graph import builders as af
from aneforge.graph.ops.leaf import const
from aneforge.graph.tensor import Tensor

__all__ = ["RULES"]


def _unary(function: Callable[[Tensor], Tensor]) -> Rule:
    return lambda node, x, *rest: function(numeric(x))


# Sums and products. A tensor of more axes than the engine has is refused by ``_plain``.


def _plain(value: Any) -> Any:
    return numeric(value) if isinstance(value, Deep) else value


def _add(node: Node, a: Any, b: Any, alpha: Any = 1) -> Tensor:
    if node.gives_bool:
        return af.logical_or(truth(a), truth(b))
    return forms.added(_plain(a), _times(b, float(node.options.get("alpha", alpha) or 0)))


def _sub(node: Node, a: Any, b: Any, alpha: Any = 1) -> Tensor:
    return forms.subtracted(_plain(a), _times(b, float(node.options.get("alpha", alpha) or 0)))


def _times(value: Any, factor: float) -> Any:
    if factor == 1.0:
        return _plain(value)
    return factor * value if isinstance(value, (int, float)) else scaled(numeric(value), factor)


def _mul(node: Node, a: Any, b: Any) -> Tensor:
    if node.gives_bool:
        return af.logical_and(truth(a), truth(b))
    return forms.multiplied(_plain(a), _plain(b))


def _div(node: Node, a: Any, b: Any, rounding_mode: str | None = None) -> Tensor:
    return forms.divided(_plain(a), _plain(b), node.options.get("rounding_mode", rounding_mode) or "")


def _power(node: Node, base: Any, exponent: Any) -> Tensor:
    return forms.power(_plain(base), _plain(exponent))


# Comparisons and choices.


def _comparison(name: str) -> Rule:
    return lambda node, a, b: forms.compared(name, _plain(a), _plain(b))


def _logical(function: Callable[[Tensor, Tensor], Tensor]) -> Rule:
    return lambda node, a, b: function(truth(a), truth(b))


def _negated(node: Node, x: Any) -> Tensor:
    return truth(x).logical_not()


def _where(node: Node, mask: Any, a: Any, b: Any) -> Tensor:
    return forms.chosen(_plain(mask), _plain(a), _plain(b), node.gives_bool)


def _masked_fill(node: Node, x: Any, mask: Any, value: Any) -> Tensor:
    return _where(node, mask, value, x)


def _clamp(node: Node, x: Any, low: Any = None, high: Any = None) -> Tensor:
    return forms.clamped(numeric(x), low, high)


def _is_finite(node: Node, x: Any) -> Tensor:
    return numeric(x).abs().less(const(np.float16(np.inf)))


def _is_infinite(node: Node, x: Any) -> Tensor:
    return numeric(x).abs().equal(const(np.float16(np.inf)))


def _nan_to_num(node: Node, x: Any, nan: Any = None, high: Any = None, low: Any = None) -> Tensor:
    """Infinities become the largest numbers that there are: fp16's."""
    given = numeric(x)
    most = LARGEST if high is None else min(float(high), LARGEST)
    least = -LARGEST if low is None else max(float(low), -LARGEST)
    whole = af.where(given.equal(given), given, const(np.full((1,) * given.ndim, float(nan or 0.0))))
    return whole.clip(least, most)


# Combinations that PyTorch gives a name.


def _addcmul(node: Node, x: Any, a: Any, b: Any, value: Any = 1) -> Tensor:
    factor = float(node.options.get("value", value))
    return numeric(x) + scaled(numeric(a) * numeric(b), factor)


def _addcdiv(node: Node, x: Any, a: Any, b: Any, value: Any = 1) -> Tensor:
    factor = float(node.options.get("value", value))
    return numeric(x) + scaled(numeric(a) / numeric(b), factor)


def _lerp(node: Node, a: Any, b: Any, weight: Any) -> Tensor:
    start, step = numeric(a), numeric(b) - numeric(a)
    return start + forms.multiplied(step, _plain(weight))


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
    given = numeric(x)
    return af.where(given.equal(0.0), numeric(at_zero), given.greater(0.0).cast())


def _xlogy(node: Node, a: Any, b: Any) -> Tensor:
    left = numeric(a)
    return af.where(left.equal(0.0), const(np.zeros((1,) * max(left.ndim, 1))), left * numeric(b).log())


def _round(node: Node, x: Any, decimals: Any = 0) -> Tensor:
    places = int(node.options.get("decimals", decimals))
    if places == 0:
        return numeric(x).round()
    return scaled(scaled(numeric(x), 10.0**places).round(), 10.0**-places)


def _logit(node: Node, x: Any, eps: Any = None) -> Tensor:
    given = numeric(x) if eps is None else numeric(x).clip(float(eps), 1.0 - float(eps))
    return (given / (1.0 - given)).log()


def _sinc(node: Node, x: Any) -> Tensor:
    angle = scaled(numeric(x), math.pi)
    one = const(np.ones((1,) * angle.ndim))
    return af.where(angle.equal(0.0), one, angle.sin() / af.where(angle.equal(0.0), one, angle))


def _ldexp(node: Node, x: Any, power: Any) -> Tensor:
    return numeric(x) * numeric(power).exp2()


def _random(node: Node, *_: Any) -> Tensor:
    raise LoadError("random numbers, which every run would draw anew; draw them outside and pass them as an input")


RULES: dict[str, Rule] = {
    **{
        name: _unary(function)
        for name, function in {
            "abs": Tensor.abs,
            "absolute": Tensor.abs,
            "acos": Tensor.acos,
            "acosh": Tensor.acosh,
            "asin": Tensor.asin,
            "asinh": Tensor.asinh,
            "atan": Tensor.atan,
            "atanh": Tensor.atanh,
            "ceil": Tensor.ceil,
            "cos": Tensor.cos,
            "cosh": Tensor.cosh,
            "deg2rad": lambda x: scaled(x, math.pi / 180),
            "erf": Tensor.erf,
            "erfc": lambda x: 1.0 - x.erf(),
            "exp": Tensor.exp,
            "exp2": Tensor.exp2,
            "expm1": lambda x: forms.shifted(x.exp(), -1.0),
            "fix": truncated,
            "floor": Tensor.floor,
            "frac": lambda x: x - truncated(x),
            "isnan": lambda x: x.not_equal(x),
            "isneginf": lambda x: x.equal(const(np.float16(-np.inf))),
            "isposinf": lambda x: x.equal(const(np.float16(np.inf))),
            "log": forms.log,
            "log10": lambda x: scaled(x.log(), 1 / math.log(10)),
            "log1p": lambda x: x.log(1.0),
            "log2": lambda x: scaled(x.log(), 1 / math.log(2)),
            "neg": lambda x: -x,
            "positive": lambda x: x,
            "rad2deg": lambda x: scaled(x, 180 / math.pi),
            "reciprocal": forms.inverse,
            "rsqrt": forms.rsqrt,
            "sgn": Tensor.sign,
            "sign": Tensor.sign,
            "signbit": lambda x: x.less(0.0),
            "sin": Tensor.sin,
            "sinh": Tensor.sinh,
            "sqrt": Tensor.sqrt,
            "square": Tensor.square,
            "tan": Tensor.tan,
            "trunc": truncated,
        }.items()
    },
    "add": _add,
    "addcdiv": _addcdiv,
    "addcmul": _addcmul,
    "atan2": lambda node, a, b: af.atan2(numeric(a), numeric(b)),
    "bitwise_and": _logical(af.logical_and),
    "bitwise_not": _negated,
    "bitwise_or": _logical(af.logical_or),
    "bitwise_xor": _logical(af.logical_xor),
    "clamp": _clamp,
    "clamp_max": lambda node, x, high: _clamp(node, x, None, high),
    "clamp_min": lambda node, x, low: _clamp(node, x, low, None),
    "copysign": _copysign,
    "div": _div,
    "eq": _comparison("equal"),
    "floor_divide": lambda node, a, b: _div(node, a, b, "floor"),
    "fmax": lambda node, a, b: af.maximum(numeric(a), numeric(b)),
    "fmin": lambda node, a, b: af.minimum(numeric(a), numeric(b)),
    "fmod": lambda node, a, b: forms.remainder(_plain(a), _plain(b), of_dividend=True),
    "ge": _comparison("greater_equal"),
    "gt": _comparison("greater"),
    "heaviside": _heaviside,
    "hypot": lambda node, a, b: (numeric(a).square() + numeric(b).square()).sqrt(),
    "isfinite": _is_finite,
    "isinf": _is_infinite,
    "ldexp": _ldexp,
    "le": _comparison("less_equal"),
    "lerp": _lerp,
    "logaddexp": _log_add_exp,
    "logaddexp2": _log_add_exp2,
    "logical_and": _logical(af.logical_and),
    "logical_not": _negated,
    "logical_or": _logical(af.logical_or),
    "logical_xor": _logical(af.logical_xor),
    "logit": _logit,
    "lt": _comparison("less"),
    "masked_fill": _masked_fill,
    "max.other": lambda node, a, b: af.maximum(numeric(a), numeric(b)),
    "maximum": lambda node, a, b: af.maximum(numeric(a), numeric(b)),
    "min.other": lambda node, a, b: af.minimum(numeric(a), numeric(b)),
    "minimum": lambda node, a, b: af.minimum(numeric(a), numeric(b)),
    "mul": _mul,
    "nan_to_num": _nan_to_num,
    "ne": _comparison("not_equal"),
    "pow": _power,
    "remainder": lambda node, a, b: forms.remainder(_plain(a), _plain(b)),
    "round": _round,
    "rsub": lambda node, a, b, alpha=1: _sub(node, b, a, alpha),
    "sinc": _sinc,
    "sub": _sub,
    "true_divide": _div,
    "where": _where,
    "xlogy": _xlogy,
    **dict.fromkeys(RANDOM, _random),
}
