"""Arithmetic and activations."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from aneforge.frontends import LoadError
from aneforge.frontends.onnx_node import Node, Rule, Value
from aneforge.frontends.onnx_rules import logic
from aneforge.frontends.onnx_rules.logic import cut_off, is_whole, masks, numbers
from aneforge.frontends.values import as_tensor, number
from aneforge.graph import builders as af
from aneforge.graph.ops.leaf import const
from aneforge.graph.tensor import Tensor

__all__ = ["RULES"]


def _unary(function: Callable[[Tensor], Tensor]) -> Rule:
    return lambda node, x, *rest: function(as_tensor(x))


def _folded(function: Callable[[Any, Any], Tensor]) -> Rule:
    def rule(node: Node, *given: Value) -> Tensor:
        total = masks(given[0])
        for each in given[1:]:
            total = function(total, masks(each))
        return total

    return rule


def _mean_of(node: Node, *given: Value) -> Tensor:
    total = _folded(lambda a, b: a + b)(node, *given)
    assert isinstance(total, Tensor)
    return total * (1.0 / len(given))


def _divided(node: Node, a: Value, b: Value) -> Tensor:
    """Whole numbers divide to whole numbers, towards zero."""
    found = numbers(a) / numbers(b)
    return cut_off(found) if is_whole(a, b) else found


def _remainder(node: Node, a: Value, b: Value) -> Tensor:
    """With the sign of the divisor, or as C has it (``fmod``) that of the dividend."""
    left, right = numbers(a), numbers(b)
    return left.sign() * af.mod(left.abs(), right.abs()) if node.attr("fmod", 0) else af.mod(left, right)


def _clip(node: Node, x: Value, low: Value | None = None, high: Value | None = None) -> Tensor:
    """Where the bounds cross, the upper one holds."""
    given = as_tensor(x)
    if isinstance(low, Tensor) or isinstance(high, Tensor):
        given = given if low is None else af.maximum(given, numbers(low))
        return given if high is None else af.minimum(given, numbers(high))
    least = node.attr("min", -65504.0) if low is None else number(low, "the lower bound")
    most = node.attr("max", 65504.0) if high is None else number(high, "the upper bound")
    bottom, top = max(float(least), -65504.0), min(float(most), 65504.0)
    return given.clip(min(bottom, top), top)


def _gelu(node: Node, x: Value) -> Tensor:
    given = as_tensor(x)
    return gelu_by_tanh(given) if node.attr("approximate", "none") == "tanh" else given.gelu()


def gelu_by_tanh(x: Tensor) -> Tensor:
    """The older way to say gelu, which differs from it by up to 0.0005."""
    inner = x * (x.square().linear_activation(0.044715, 1.0))
    return x * (inner.linear_activation(math.sqrt(2 / math.pi)).tanh() + 1.0) * 0.5


def _hard_swish(node: Node, x: Value) -> Tensor:
    given = as_tensor(x)
    return given * given.sigmoid_hard(1 / 6, 0.5)


def _prelu(node: Node, x: Value, slope: Value) -> Tensor:
    """An op of the graph where the slope is one number for each channel."""
    given = as_tensor(x)
    if not isinstance(slope, Tensor) and given.ndim >= 3:
        lined = np.asarray(slope).reshape(*(1,) * (given.ndim - slope.ndim), *slope.shape)
        if slope.ndim == 1 and slope.size == given.shape[1] != given.shape[-1]:  # as files before opset 7 have it
            lined = lined.reshape(1, -1, *(1,) * (given.ndim - 2))
        if lined.ndim == given.ndim and lined.size == lined.shape[1] and lined.size in (1, given.shape[1]):
            return given.prelu(np.broadcast_to(lined.reshape(-1), (given.shape[1],)))
    return given.relu() - as_tensor(slope) * (-given).relu()


_POWERS: dict[float, Callable[[Tensor], Tensor]] = {
    -1.0: lambda x: x.inverse(0.0),
    -0.5: lambda x: x.rsqrt(0.0),
    0.5: Tensor.sqrt,
    1.0: lambda x: x,
    2.0: Tensor.square,
    3.0: lambda x: x.square() * x,
    4.0: lambda x: x.square().square(),
}


def _power(node: Node, x: Value, exponent: Value) -> Tensor:
    """A known whole exponent is a product, which holds for numbers below zero too."""
    given = numbers(x)
    if isinstance(exponent, Tensor) or exponent.size != 1 or exponent.ndim > given.ndim:
        return given.pow(numbers(exponent))
    power = number(exponent, "the exponent")
    return _POWERS[power](given) if power in _POWERS else given.pow(power)


def _random(normal: bool) -> Rule:
    def rule(node: Node, x: Value) -> Tensor:
        shape, seed = as_tensor(x).shape, int(float(node.attr("seed", 0.0)))
        if normal:
            return af.random_normal(shape, float(node.attr("mean", 0.0)), float(node.attr("scale", 1.0)), seed)
        return af.random_uniform(shape, float(node.attr("low", 0.0)), float(node.attr("high", 1.0)), seed)

    return rule


def _selu(node: Node, x: Value) -> Tensor:
    alpha, gamma = float(node.attr("alpha", 1.6732632)), float(node.attr("gamma", 1.0507009))
    return as_tensor(x).elu(alpha) * gamma


def _celu(node: Node, x: Value) -> Tensor:
    """max(0, x) + min(0, alpha * (exp(x / alpha) - 1))."""
    alpha, given = float(node.attr("alpha", 1.0)), as_tensor(x)
    if alpha == 0.0:
        raise LoadError("an exponential with a slope of zero")
    return given.relu() + af.minimum((given * (1 / alpha)).exp() * alpha - alpha, 0.0)


def _mish(node: Node, x: Value) -> Tensor:
    return as_tensor(x) * as_tensor(x).softplus().tanh()


def _shrink(node: Node, x: Value) -> Tensor:
    bias, limit, given = float(node.attr("bias", 0.0)), float(node.attr("lambd", 0.5)), as_tensor(x)
    upper = af.where(given.greater(limit), given - bias, given * 0.0)
    return af.where(given.less(-limit), given + bias, upper)


def _swish(node: Node, x: Value) -> Tensor:
    alpha, given = float(node.attr("alpha", 1.0)), as_tensor(x)
    return given.silu() if alpha == 1.0 else given * (given * alpha).sigmoid()


def _thresholded(node: Node, x: Value) -> Tensor:
    """Strictly above the threshold."""
    given = as_tensor(x)
    return af.where(given.greater(float(node.attr("alpha", 1.0))), given, given * 0.0)


def _trilu(node: Node, x: Value, shift: Value | None = None) -> Tensor:
    """The part that falls away is zero: a product with a known mask."""
    given = as_tensor(x)
    if given.ndim < 2 or given.shape[-2] * given.shape[-1] > 1 << 26:
        raise LoadError(f"a triangle of {list(given.shape)}")
    offset = 0 if shift is None else int(number(shift, "the diagonal"))
    ones = np.ones(given.shape[-2:])
    mask = np.triu(ones, offset) if node.attr("upper", 1) else np.tril(ones, offset)
    return given * const(mask)


RULES: dict[str, Rule] = {
    **logic.RULES,
    **{
        name: _unary(function)
        for name, function in {
            "Abs": Tensor.abs,
            "Acos": Tensor.acos,
            "Acosh": Tensor.acosh,
            "Asin": Tensor.asin,
            "Asinh": Tensor.asinh,
            "Atan": Tensor.atan,
            "Atanh": Tensor.atanh,
            "Ceil": Tensor.ceil,
            "Cos": Tensor.cos,
            "Cosh": Tensor.cosh,
            "Erf": Tensor.erf,
            "Exp": Tensor.exp,
            "Floor": Tensor.floor,
            "Log": Tensor.log,
            "Reciprocal": lambda x: x.inverse(0.0),
            "Relu": Tensor.relu,
            "Round": Tensor.round,
            "Sigmoid": Tensor.sigmoid,
            "Sign": Tensor.sign,
            "Sin": Tensor.sin,
            "Sinh": Tensor.sinh,
            "Softplus": Tensor.softplus,
            "Softsign": Tensor.softsign,
            "Sqrt": Tensor.sqrt,
            "Tan": Tensor.tan,
            "Tanh": Tensor.tanh,
            "Neg": lambda x: -x,
        }.items()
    },
    "Add": _folded(lambda a, b: a + b),
    "Celu": _celu,
    "Clip": _clip,
    "Div": _divided,
    "Elu": lambda node, x: as_tensor(x).elu(float(node.attr("alpha", 1.0))),
    "Gelu": _gelu,
    "HardSigmoid": lambda node, x: as_tensor(x).sigmoid_hard(
        float(node.attr("alpha", 0.2)), float(node.attr("beta", 0.5))
    ),
    "HardSwish": _hard_swish,
    "LeakyRelu": lambda node, x: as_tensor(x).leaky_relu(float(node.attr("alpha", 0.01))),
    "Max": _folded(af.maximum),
    "Mean": _mean_of,
    "Min": _folded(af.minimum),
    "Mish": _mish,
    "Mod": _remainder,
    "Mul": lambda node, a, b: numbers(a) * numbers(b),
    "PRelu": _prelu,
    "Pow": _power,
    "RandomNormalLike": _random(True),
    "RandomUniformLike": _random(False),
    "Selu": _selu,
    "Shrink": _shrink,
    "Sub": _folded(lambda a, b: a - b),
    "Sum": _folded(lambda a, b: a + b),
    "Swish": _swish,
    "ThresholdedRelu": _thresholded,
    "Trilu": _trilu,
}
