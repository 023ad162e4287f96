"""Arithmetic and activations."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np

from aneforge.errors import LoadError
from aneforge.frontends import forms
from aneforge.frontends.forms import as_number
from aneforge.frontends.onnx import logic
from aneforge.frontends.onnx.logic import is_whole
from aneforge.frontends.onnx.node import Node, Rule, Value
from aneforge.frontends.values import as_tensor, number
from aneforge.graph import builders as af
from aneforge.graph.ops.leaf import const
from aneforge.graph.tensor import Tensor

__all__ = ["RULES"]


def _unary(function: Callable[[Tensor], Tensor]) -> Rule:
    return lambda node, x, *rest: function(as_tensor(x))


def _folded(function: Callable[[Any, Any], Tensor]) -> Rule:
    return lambda node, first, *rest: reduce(function, rest, first) if rest else as_tensor(first)


def _mean_of(node: Node, *given: Value) -> Tensor:
    return forms.scaled(as_tensor(reduce(forms.added, given)), 1.0 / len(given))


def _largest(a: Value, b: Value) -> Tensor:
    return af.maximum(as_number(a), as_number(b))


def _smallest(a: Value, b: Value) -> Tensor:
    return af.minimum(as_number(a), as_number(b))


def _clip(node: Node, x: Value, low: Value | None = None, high: Value | None = None) -> Tensor:
    return forms.clamped(
        as_tensor(x), node.attr("min") if low is None else low, node.attr("max") if high is None else high
    )


def _prelu(node: Node, x: Value, slope: Value) -> Tensor:
    given = as_tensor(x)
    by_channel = slope.ndim == 1 and given.ndim > 2 and slope.shape[0] == given.shape[1] != given.shape[-1]
    if by_channel and isinstance(slope, np.ndarray):  # as files before opset 7 have it
        slope = slope.reshape(-1, *(1,) * (given.ndim - 2))
    return forms.prelu(given, slope)


def _random(normal: bool) -> Rule:
    def rule(node: Node, x: Value) -> Tensor:
        shape, seed = as_tensor(x).shape, int(float(node.attr("seed", 0.0)))
        if normal:
            return af.random_normal(shape, float(node.attr("mean", 0.0)), float(node.attr("scale", 1.0)), seed)
        return af.random_uniform(shape, float(node.attr("low", 0.0)), float(node.attr("high", 1.0)), seed)

    return rule


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
            "Log": forms.log,
            "Reciprocal": forms.inverse,
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
    "Add": _folded(forms.added),
    "Celu": lambda node, x: forms.celu(as_tensor(x), float(node.attr("alpha", 1.0))),
    "Clip": _clip,
    "Div": lambda node, a, b: forms.divided(a, b, "trunc" if is_whole(a, b) else ""),
    "Elu": lambda node, x: forms.elu(as_tensor(x), float(node.attr("alpha", 1.0))),
    "Gelu": lambda node, x: forms.gelu(as_tensor(x), node.attr("approximate", "none")),
    "HardSigmoid": lambda node, x: forms.hard_sigmoid(
        as_tensor(x), float(node.attr("alpha", 0.2)), float(node.attr("beta", 0.5))
    ),
    "HardSwish": _unary(forms.hard_swish),
    "LeakyRelu": lambda node, x: forms.leaky_relu(as_tensor(x), float(node.attr("alpha", 0.01))),
    "Max": _folded(_largest),
    "Mean": _mean_of,
    "Min": _folded(_smallest),
    "Mish": _unary(forms.mish),
    "Mod": lambda node, a, b: forms.remainder(a, b, bool(node.attr("fmod", 0))),
    "Mul": lambda node, a, b: forms.multiplied(a, b),
    "PRelu": _prelu,
    "Pow": lambda node, a, b: forms.power(a, b),
    "RandomNormalLike": _random(True),
    "RandomUniformLike": _random(False),
    "Selu": lambda node, x: forms.selu(
        as_tensor(x), float(node.attr("alpha", 1.6732632)), float(node.attr("gamma", 1.0507009))
    ),
    "Shrink": lambda node, x: forms.shrink(
        as_tensor(x), float(node.attr("lambd", 0.5)), float(node.attr("bias", 0.0))
    ),
    "Sub": _folded(forms.subtracted),
    "Sum": _folded(forms.added),
    "Swish": lambda node, x: forms.swish(as_tensor(x), float(node.attr("alpha", 1.0))),
    "ThresholdedRelu": lambda node, x: forms.threshold(as_tensor(x), float(node.attr("alpha", 1.0))),
    "Trilu": _trilu,
}
