"""Elementwise functions and activations, by the names that most formats share."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from aneforge.errors import LoadError
from aneforge.formats.forms.numbers import (
    added,
    as_number,
    compared,
    divided,
    inverse,
    log,
    multiplied,
    power,
    remainder,
    rsqrt,
    scaled,
    shifted,
    single,
    subtracted,
    truncated,
    truth,
)
from aneforge.formats.values import Numeric, Value, axis_of
from aneforge.graph import builders as af
from aneforge.graph.halves import FP16_MAX
from aneforge.graph.ops.leaf import const
from aneforge.graph.tensor import Tensor

# Activation functions: the engine's own function where it is equal, otherwise the formula in a few ops.


_GELU = {"none": "exact", "exact": "exact", "tanh": "tanh", "tanh_approximation": "tanh"}
_GELU |= {"sigmoid": "sigmoid", "sigmoid_approximation": "sigmoid"}


def gelu(x: Numeric, mode: str = "exact") -> Tensor:
    """The exact gelu and the one by tanh are the same table on the engine: identical bits on an M6 (N42), the same
    value at zero on an M5 Pro (N84). So both are the graph's gelu. The sigmoid approximation is a different
    function."""
    if mode.lower() not in _GELU:
        raise LoadError(f"approximation {mode!r} is not supported; choose one: {', '.join(_GELU)}")
    return swish(x, 1.702) if _GELU[mode.lower()] == "sigmoid" else x.gelu()


def swish(x: Numeric, beta: float = 1.0) -> Tensor:
    """x * sigmoid(beta * x). The engine has a table for beta 1."""
    return x.silu() if beta == 1.0 else x * scaled(x, beta).sigmoid()


def hard_sigmoid(x: Numeric, alpha: float = 1 / 6, beta: float = 0.5) -> Tensor:
    return x.sigmoid_hard(single(alpha), single(beta))


def elu(x: Numeric, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Tensor:
    """scale * x above zero, and scale * alpha * (exp(input_scale * x) - 1) below."""
    if input_scale == 1.0:
        return scaled(x.elu(single(alpha)), scale)
    return scaled(x.relu() + af.minimum(scaled(scaled(x, input_scale).exp() - 1.0, alpha), 0.0), scale)


def glu(x: Numeric, axis: int = -1) -> Tensor:
    """The first half along the axis, times the sigmoid of the second half."""
    first, second = af.split(x, 2, axis=axis_of(axis, x.ndim))
    return first * second.sigmoid()


def leaky_relu(x: Numeric, alpha: float = 0.01) -> Tensor:
    return x.leaky_relu(single(alpha))


SELU = {"alpha": 1.6732632423543772, "gamma": 1.0507009873554805}
"""The constants of selu, the same in every format."""


def selu(x: Numeric, alpha: float = SELU["alpha"], gamma: float = SELU["gamma"]) -> Tensor:
    return elu(x, alpha, gamma)


def celu(x: Numeric, alpha: float = 1.0) -> Tensor:
    """max(0, x) + min(0, alpha * (exp(x / alpha) - 1)), which is alpha * elu(x / alpha)."""
    if alpha == 0.0:
        raise LoadError("alpha must not be 0")
    return scaled(scaled(x, 1 / alpha).elu(1.0), alpha)


def softplus(x: Tensor, alpha: float = 1.0, beta: float = 1.0) -> Tensor:
    """alpha * log(1 + exp(beta * x))."""
    return scaled(scaled(x, beta).softplus(), alpha)


def prelu(x: Numeric, slope: Value) -> Tensor:
    """The slope of negative inputs is one number, one for each channel (a line, or an array that broadcasts to one),
    or any tensor."""
    if isinstance(slope, np.ndarray) and slope.size == 1:
        return leaky_relu(x, float(slope.reshape(-1)[0]))
    if isinstance(slope, np.ndarray) and x.ndim > 2:
        lined = slope.reshape(*(1,) * (x.ndim - slope.ndim), *slope.shape)
        if slope.size == x.shape[1] and lined.shape[1] == slope.size:
            return x.prelu(slope.reshape(-1))
    return x.relu() - as_number(slope) * (-x).relu()


def threshold(x: Numeric, limit: float, value: float = 0.0) -> Tensor:
    """``x`` where it is greater than the limit, otherwise ``value``."""
    return af.where(compared("greater", x, limit), x, const(np.full((1,) * x.ndim, value)))


def shrink(x: Numeric, limit: float = 0.5, bias: float = 0.0) -> Tensor:
    """Zero within the limit on both sides; numbers beyond it move towards zero by ``bias``."""
    if bias == limit:
        return shifted(x, -limit).relu() - shifted(-x, -limit).relu()
    nothing = const(np.zeros((1,) * x.ndim))
    if bias == 0.0:
        return af.where(compared("greater", x.abs(), limit), x, nothing)
    upper = af.where(compared("greater", x, limit), shifted(x, -bias), nothing)
    return af.where(compared("less", x, -limit), shifted(x, bias), upper)


_MOST_MASKED = 1 << 26

UNARY: dict[str, Callable[[Tensor], Tensor]] = {
    "abs": Tensor.abs,
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
    "expm1": lambda x: shifted(x.exp(), -1.0),
    "floor": Tensor.floor,
    "frac": lambda x: x - truncated(x),
    "hardsigmoid": hard_sigmoid,
    "hardswish": lambda x: x * hard_sigmoid(x),
    "isfinite": lambda x: x.abs().less(const(np.float16(np.inf))),
    "isnan": lambda x: x.not_equal(x),
    "log": log,
    "log10": lambda x: scaled(x.log(), 1 / math.log(10)),
    "log1p": lambda x: x.log(1.0),
    "log2": lambda x: scaled(x.log(), 1 / math.log(2)),
    "log_sigmoid": lambda x: -(-x).softplus(),
    "mish": lambda x: x * x.softplus().tanh(),
    "neg": lambda x: -x,
    "rad2deg": lambda x: scaled(x, 180 / math.pi),
    "reciprocal": inverse,
    "relu": Tensor.relu,
    "relu6": Tensor.relu6,
    "round": Tensor.round,
    "rsqrt": rsqrt,
    "sigmoid": Tensor.sigmoid,
    "sign": Tensor.sign,
    "signbit": lambda x: x.less(0.0),
    "silu": Tensor.silu,
    "sin": Tensor.sin,
    "sinc": lambda x: _sinc(scaled(x, math.pi)),
    "sinh": Tensor.sinh,
    "softplus": Tensor.softplus,
    "softsign": Tensor.softsign,
    "sqrt": Tensor.sqrt,
    "square": Tensor.square,
    "tan": Tensor.tan,
    "tanh": Tensor.tanh,
    "tanhshrink": lambda x: x - x.tanh(),
    "trunc": truncated,
}


def _copysign(a: Tensor, b: Tensor) -> Tensor:
    """A zero counts as positive: fp16 comparisons do not see the sign of zero."""
    size = a.abs()
    return af.where(b.less(0.0), -size, size)


def _log_add_exp2(a: Tensor, b: Tensor) -> Tensor:
    gap = scaled((a - b).abs(), -math.log(2))
    return af.maximum(a, b) + scaled(gap.softplus(), 1 / math.log(2))


_OF_NUMBERS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "atan2": af.atan2,
    "copysign": _copysign,
    "heaviside": lambda x, at_zero: af.where(x.equal(0.0), at_zero, x.greater(0.0).cast()),
    "hypot": lambda a, b: (a.square() + b.square()).sqrt(),
    "ldexp": lambda a, b: a * b.exp2(),
    "logaddexp": lambda a, b: af.maximum(a, b) + (-(a - b).abs()).softplus(),
    "logaddexp2": _log_add_exp2,
    "maximum": af.maximum,
    "minimum": af.minimum,
    "xlogy": lambda a, b: af.where(a.equal(0.0), const(np.zeros((1,) * max(a.ndim, 1))), a * b.log()),
}
_OF_TRUTHS = {"logical_and": af.logical_and, "logical_or": af.logical_or, "logical_xor": af.logical_xor}

BINARY: dict[str, Callable[[Any, Any], Tensor]] = {
    **{
        name: lambda a, b, name=name: compared(name, a, b)
        for name in ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
    },
    **{name: lambda a, b, form=form: form(as_number(a), as_number(b)) for name, form in _OF_NUMBERS.items()},
    **{name: lambda a, b, form=form: form(truth(a), truth(b)) for name, form in _OF_TRUTHS.items()},
    "add": added,
    "floor_div": lambda a, b: divided(a, b, "floor"),
    "fmod": lambda a, b: remainder(a, b, of_dividend=True),
    "mod": remainder,
    "mul": multiplied,
    "pow": power,
    "real_div": divided,
    "sub": subtracted,
}


def _sinc(angle: Tensor) -> Tensor:
    one = const(np.ones((1,) * angle.ndim))
    return af.where(angle.equal(0.0), one, angle.sin() / af.where(angle.equal(0.0), one, angle))


def is_infinite(x: Numeric, above: bool = True, below: bool = True) -> Tensor:
    """Whether each element is infinite, with a positive sign if ``above`` and a negative one if ``below``."""
    limit = const(np.float16(np.inf))
    if above and below:
        return x.abs().equal(limit)
    if above or below:
        return x.equal(limit if above else const(np.float16(-np.inf)))
    return x.abs().less(0.0)  # neither side: false everywhere


def logit(x: Numeric, eps: float | None = None) -> Tensor:
    """log(x / (1 - x)), with ``x`` kept ``eps`` away from 0 and 1."""
    x = x if eps is None else x.clip(eps, 1.0 - eps)
    return (x / (1.0 - x)).log()


def rounded(x: Numeric, decimals: int = 0) -> Tensor:
    return scaled(scaled(x, 10.0**decimals).round(), 10.0**-decimals) if decimals else x.round()


def without_nan(x: Numeric, nan: float = 0.0) -> Tensor:
    """``x``, and a number in the place of each NaN."""
    return af.where(x.equal(x), x, const(np.full((1,) * x.ndim, nan)))


def nan_to_num(x: Numeric, nan: float = 0.0, high: float = FP16_MAX, low: float = -FP16_MAX) -> Tensor:
    """Finite numbers only; infinities become ``high`` and ``low``, or the largest fp16 numbers."""
    return without_nan(x, nan).clip(max(low, -FP16_MAX), min(high, FP16_MAX))


def triangle(x: Tensor, lower: bool, diagonal: int = 0) -> Tensor:
    """Set the other triangle to zero. It selects, because a product with 0 would not clear infinities."""
    if x.ndim < 2 or x.shape[-2] * x.shape[-1] > _MOST_MASKED:
        raise LoadError(f"the input has shape {list(x.shape)}; it must be a matrix of up to {_MOST_MASKED:,} elements")
    ones = np.ones(x.shape[-2:])
    mask = np.tril(ones, diagonal) if lower else np.triu(ones, diagonal)
    if x.dtype == "bool":
        return af.logical_and(x, truth(np.broadcast_to(mask, x.shape)))
    return af.where(truth(mask), x, const(np.zeros((1,) * x.ndim)))
