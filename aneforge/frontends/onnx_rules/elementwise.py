"""Arithmetic, comparisons and activations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import aneforge as af
from aneforge.frontends.onnx_node import Node, Rule, Value
from aneforge.frontends.values import as_tensor, number
from aneforge.graph.ops.leaf import const
from aneforge.graph.tensor import Tensor

__all__ = ["RULES"]


def _unary(function: Callable[[Tensor], Tensor]) -> Rule:
    return lambda node, x, *rest: function(as_tensor(x))


def _binary(function: Callable[[Tensor, Tensor], Tensor]) -> Rule:
    return lambda node, a, b: function(as_tensor(a), as_tensor(b))


def _folded(function: Callable[[Any, Any], Tensor]) -> Rule:
    def rule(node: Node, *given: Value) -> Tensor:
        total = as_tensor(given[0])
        for each in given[1:]:
            total = function(total, as_tensor(each))
        return total

    return rule


def _mean_of(node: Node, *given: Value) -> Tensor:
    total = _folded(lambda a, b: a + b)(node, *given)
    assert isinstance(total, Tensor)
    return total * (1.0 / len(given))


def _clip(node: Node, x: Value, low: Value | None = None, high: Value | None = None) -> Tensor:
    least = node.attr("min", -65504.0) if low is None else number(low, "the lower bound")
    most = node.attr("max", 65504.0) if high is None else number(high, "the upper bound")
    return as_tensor(x).clip(max(float(least), -65504.0), min(float(most), 65504.0))


def _gelu(node: Node, x: Value) -> Tensor:
    return as_tensor(x).gelu()


def _hard_swish(node: Node, x: Value) -> Tensor:
    given = as_tensor(x)
    return given * given.sigmoid_hard(1 / 6, 0.5)


def _prelu(node: Node, x: Value, slope: Value) -> Tensor:
    given = as_tensor(x)
    return given.relu() - as_tensor(slope) * (-given).relu()


def _power(node: Node, x: Value, exponent: Value) -> Tensor:
    if isinstance(exponent, Tensor):
        return as_tensor(x).pow(exponent)
    if exponent.size == 1:
        power = number(exponent, "the exponent")
        special = {2.0: Tensor.square, 1.0: lambda t: t, 0.5: Tensor.sqrt}
        return special[power](as_tensor(x)) if power in special else as_tensor(x).pow(power)
    return as_tensor(x).pow(as_tensor(exponent))


def _cast(node: Node, x: Value, *_: Value) -> Tensor:
    """Every number is fp16 here; a cast to whole numbers cuts the fraction off."""
    given = as_tensor(x)
    if node.attr("to") in (2, 3, 4, 5, 6, 7, 12, 13):
        return given.sign() * given.abs().floor()
    return given


def _selu(node: Node, x: Value) -> Tensor:
    alpha, gamma = float(node.attr("alpha", 1.6732632)), float(node.attr("gamma", 1.0507009))
    return as_tensor(x).elu(alpha) * gamma


def _celu(node: Node, x: Value) -> Tensor:
    """max(0, x) + min(0, alpha * (exp(x / alpha) - 1))."""
    alpha, given = float(node.attr("alpha", 1.0)), as_tensor(x)
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
    offset = 0 if shift is None else int(number(shift, "the diagonal"))
    ones = np.ones(given.shape[-2:])
    mask = np.triu(ones, offset) if node.attr("upper", 1) else np.tril(ones, offset)
    return given * const(mask)


def _where(node: Node, condition: Value, a: Value, b: Value) -> Tensor:
    chosen = condition if isinstance(condition, Tensor) else as_tensor(condition).greater(0.5)
    return af.where(chosen, as_tensor(a), as_tensor(b))


RULES: dict[str, Rule] = {
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
            "Not": Tensor.logical_not,
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
    **{
        name: _binary(function)
        for name, function in {
            "Add": lambda a, b: a + b,
            "Sub": lambda a, b: a - b,
            "Mul": lambda a, b: a * b,
            "Div": lambda a, b: a / b,
            "Equal": lambda a, b: a.equal(b),
            "Greater": lambda a, b: a.greater(b),
            "Less": lambda a, b: a.less(b),
            "And": af.logical_and,
            "Or": af.logical_or,
            "Xor": af.logical_xor,
            "GreaterOrEqual": lambda a, b: a.greater_equal(b),
            "LessOrEqual": lambda a, b: a.less_equal(b),
        }.items()
    },
    "Cast": _cast,
    "Celu": _celu,
    "Clip": _clip,
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
    "PRelu": _prelu,
    "Pow": _power,
    "Selu": _selu,
    "Shrink": _shrink,
    "Sum": _folded(lambda a, b: a + b),
    "Swish": _swish,
    "ThresholdedRelu": _thresholded,
    "Trilu": _trilu,
    "Where": _where,
}
