"""Arithmetic, comparisons and logic, element by element."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from aneforge.frontends import LoadError
from aneforge.frontends.torch_rules.hosted import RANDOM
from aneforge.frontends.torch_rules.node import Node, Rule
from aneforge.frontends.torch_rules.values import LARGEST, fp16_exact, numeric, scalar, scaled, shifted
from aneforge.graph import builders as af
from aneforge.graph.ops.leaf import const
from aneforge.graph.tensor import Tensor

__all__ = ["RULES", "compared", "condition", "known_power", "truncated"]


def _unary(function: Callable[[Tensor], Tensor]) -> Rule:
    return lambda node, x, *rest: function(numeric(x))


def truncated(x: Tensor) -> Tensor:
    """The fraction cut off."""
    return x.sign() * x.abs().floor()


def condition(value: Any) -> Tensor:
    """An argument as a bool tensor: what is not zero holds."""
    if isinstance(value, Tensor):
        return value if value.dtype == "bool" else value.not_equal(0.0)
    return const(np.asarray(value).astype(bool).astype(np.float64)).greater(0.5)


# Sums and products: a number on one side is kept unrounded.


def _add(node: Node, a: Any, b: Any, alpha: Any = 1) -> Tensor:
    factor = float(node.options.get("alpha", alpha) or 0)
    if node.gives_bool:
        return af.logical_or(condition(a), condition(b))
    if (offset := scalar(b)) is not None:
        return shifted(numeric(a), factor * offset)
    right = scaled(numeric(b), factor)
    if (offset := scalar(a)) is not None:
        return shifted(right, offset)
    return numeric(a) + right


def _sub(node: Node, a: Any, b: Any, alpha: Any = 1) -> Tensor:
    factor = float(node.options.get("alpha", alpha) or 0)
    if (offset := scalar(b)) is not None:
        return shifted(numeric(a), -factor * offset)
    if (offset := scalar(a)) is not None:
        return shifted(scaled(numeric(b), -factor), offset)
    return numeric(a) - scaled(numeric(b), factor)


def _reversed_sub(node: Node, a: Any, b: Any, alpha: Any = 1) -> Tensor:
    return _sub(node, b, a, alpha)


def _mul(node: Node, a: Any, b: Any) -> Tensor:
    if node.gives_bool:
        return af.logical_and(condition(a), condition(b))
    for x, other in ((a, b), (b, a)):
        if (factor := scalar(other)) is not None:
            return scaled(numeric(x), factor)
    return numeric(a) * numeric(b)


def _div(node: Node, a: Any, b: Any, rounding_mode: str | None = None) -> Tensor:
    mode = node.options.get("rounding_mode", rounding_mode)
    divisor = scalar(b)
    if mode == "floor":
        return af.floor_div(numeric(a), numeric(b))
    if divisor is not None and divisor != 0.0:
        found = scaled(numeric(a), 1.0 / divisor)
    elif scalar(a) == 1.0:
        found = numeric(b).inverse(0.0)
    else:
        found = numeric(a) / numeric(b)
    return truncated(found) if mode == "trunc" else found


def _remainder(node: Node, a: Any, b: Any) -> Tensor:
    """With the sign of the divisor, as Python's."""
    return af.mod(numeric(a), numeric(b))


def _fmod(node: Node, a: Any, b: Any) -> Tensor:
    """With the sign of the dividend, as C's."""
    left, right = numeric(a), numeric(b)
    return left - right * truncated(left / right)


def _power(node: Node, base: Any, exponent: Any) -> Tensor:
    power, start = scalar(exponent), scalar(base)
    if power is not None:
        return known_power(numeric(base), power)
    if start is not None and start > 0:
        if start in (2.0, math.e):
            return numeric(exponent).exp2() if start == 2.0 else numeric(exponent).exp()
        return scaled(numeric(exponent), math.log2(start)).exp2()
    return numeric(base).pow(numeric(exponent))


def known_power(x: Tensor, power: float) -> Tensor:
    """Small whole powers are products, which negative numbers survive on every chip."""
    special: dict[float, Callable[[Tensor], Tensor]] = {
        0.5: Tensor.sqrt,
        -0.5: lambda t: t.rsqrt(0.0),
        -1.0: lambda t: t.inverse(0.0),
        2.0: Tensor.square,
    }
    if power in special:
        return special[power](x)
    if power == int(power) and 1 <= abs(power) <= 8:
        found, square, left = None, x, int(abs(power))
        while left:
            if left & 1:
                found = square if found is None else found * square
            square, left = (square.square() if left > 1 else square), left >> 1
        assert found is not None
        return found if power > 0 else found.inverse(0.0)
    if power == 0.0:
        return const(np.ones(x.shape))
    return x.pow(power) if fp16_exact(power) else scaled(x.log(), power).exp()


# Comparisons and choices.


def compared(x: Tensor, name: str, bound: float) -> Tensor:
    """A comparison with a number. One that fp16 lacks is rounded to the side on which no fp16 number lies between, so
    that every number that the engine can hold compares as it does with the number itself."""
    with np.errstate(over="ignore"):
        near = np.float16(bound)
    down = name in ("greater", "less_equal")
    if np.isfinite(near) and name not in ("equal", "not_equal"):
        if down and float(near) > bound:
            near = np.nextafter(near, np.float16(-np.inf))
        elif not down and float(near) < bound:
            near = np.nextafter(near, np.float16(np.inf))
    return getattr(x, name)(const(np.full((1,) * x.ndim, near)))


def _comparison(name: str) -> Rule:
    def rule(node: Node, a: Any, b: Any) -> Tensor:
        bound = scalar(b)
        return getattr(numeric(a), name)(numeric(b)) if bound is None else compared(numeric(a), name, bound)

    return rule


def _logical(function: Callable[[Tensor, Tensor], Tensor]) -> Rule:
    return lambda node, a, b: function(condition(a), condition(b))


def _negated(node: Node, x: Any) -> Tensor:
    return condition(x).logical_not()


def _where(node: Node, chosen: Any, a: Any, b: Any) -> Tensor:
    if node.gives_bool:
        holds, yes, no = condition(chosen), condition(a), condition(b)
        return af.logical_or(af.logical_and(holds, yes), af.logical_and(holds.logical_not(), no))
    return af.where(condition(chosen), numeric(a), numeric(b))


def _masked_fill(node: Node, x: Any, mask: Any, value: Any) -> Tensor:
    return _where(node, mask, value, x)


def _clamp(node: Node, x: Any, low: Any = None, high: Any = None) -> Tensor:
    """Bounds that are numbers make one op; bounds that are tensors a maximum and a minimum."""
    given = numeric(x)
    if high is None and scalar(low) == 0.0:
        return given.relu()
    least = -LARGEST if low is None else scalar(low)
    most = LARGEST if high is None else scalar(high)
    if least is None or most is None:
        given = given if low is None else af.maximum(given, numeric(low))
        return given if high is None else af.minimum(given, numeric(high))
    if (low is None or high is None) and fp16_exact(least if high is None else most):
        bound = least if high is None else most  # the other side stays open: it may be infinite
        return af.maximum(given, bound) if high is None else af.minimum(given, bound)
    return given.clip(min(max(least, -LARGEST), most), min(most, LARGEST))


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
    share = scalar(weight)
    return start + (scaled(step, share) if share is not None else step * numeric(weight))


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
            "expm1": lambda x: x.exp() - 1.0,
            "fix": truncated,
            "floor": Tensor.floor,
            "frac": lambda x: x - truncated(x),
            "isnan": lambda x: x.not_equal(x),
            "isneginf": lambda x: x.equal(const(np.float16(-np.inf))),
            "isposinf": lambda x: x.equal(const(np.float16(np.inf))),
            "log": Tensor.log,
            "log10": lambda x: scaled(x.log(), 1 / math.log(10)),
            "log1p": lambda x: x.log(1.0),
            "log2": lambda x: scaled(x.log(), 1 / math.log(2)),
            "neg": lambda x: -x,
            "positive": lambda x: x,
            "rad2deg": lambda x: scaled(x, 180 / math.pi),
            "reciprocal": lambda x: x.inverse(0.0),
            "rsqrt": lambda x: x.rsqrt(0.0),
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
    "fmod": _fmod,
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
    "remainder": _remainder,
    "round": _round,
    "rsub": _reversed_sub,
    "sinc": _sinc,
    "sub": _sub,
    "true_divide": _div,
    "where": _where,
    "xlogy": _xlogy,
    **dict.fromkeys(RANDOM, _random),
}
