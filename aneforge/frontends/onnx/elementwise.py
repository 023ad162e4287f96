"""Arithmetic and activations."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np

from aneforge.frontends import forms
from aneforge.frontends.forms.pointwise import BINARY, UNARY, triangle
from aneforge.frontends.onnx import logic
from aneforge.frontends.onnx.logic import is_whole
from aneforge.frontends.onnx.node import Node, Rule, Value
from aneforge.frontends.values import as_tensor, number
from aneforge.graph import builders as af
from aneforge.graph.tensor import Tensor

__all__ = ["RULES"]


def _unary(function: Callable[[Tensor], Tensor]) -> Rule:
    return lambda node, x, *rest: function(as_tensor(x))


def _chain(function: Callable[[Any, Any], Tensor]) -> Rule:
    return lambda node, first, *rest: reduce(function, rest, first) if rest else as_tensor(first)


def _mean(node: Node, *operands: Value) -> Tensor:
    return forms.scaled(as_tensor(reduce(forms.added, operands)), 1.0 / len(operands))


def _clip(node: Node, x: Value, low: Value | None = None, high: Value | None = None) -> Tensor:
    return forms.clamped(
        as_tensor(x), node.attr("min") if low is None else low, node.attr("max") if high is None else high
    )


def _prelu(node: Node, x: Value, slope: Value) -> Tensor:
    tensor = as_tensor(x)
    by_channel = slope.ndim == 1 and tensor.ndim > 2 and slope.shape[0] == tensor.shape[1] != tensor.shape[-1]
    if by_channel and isinstance(slope, np.ndarray):  # the form of files before opset 7
        slope = slope.reshape(-1, *(1,) * (tensor.ndim - 2))
    return forms.prelu(tensor, slope)


def _random(normal: bool) -> Rule:
    def rule(node: Node, x: Value) -> Tensor:
        shape, seed = as_tensor(x).shape, int(float(node.attr("seed", 0.0)))
        if normal:
            return af.random_normal(shape, float(node.attr("mean", 0.0)), float(node.attr("scale", 1.0)), seed)
        return af.random_uniform(shape, float(node.attr("low", 0.0)), float(node.attr("high", 1.0)), seed)

    return rule


def _trilu(node: Node, x: Value, shift: Value | None = None) -> Tensor:
    diagonal = 0 if shift is None else int(number(shift, "input 'k'"))
    return triangle(as_tensor(x), not node.attr("upper", 1), diagonal)


_UNARY = (
    "Abs Acos Acosh Asin Asinh Atan Atanh Ceil Cos Cosh Erf Exp Floor HardSwish Log Mish Neg Reciprocal Relu Round "
    "Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Tan Tanh"
)

RULES: dict[str, Rule] = {
    **logic.RULES,
    **{name: _unary(UNARY[name.lower()]) for name in _UNARY.split()},
    "Add": _chain(forms.added),
    "Celu": lambda node, x: forms.celu(as_tensor(x), float(node.attr("alpha", 1.0))),
    "Clip": _clip,
    "Div": lambda node, a, b: forms.divided(a, b, "trunc" if is_whole(a, b) else ""),
    "Elu": lambda node, x: forms.elu(as_tensor(x), float(node.attr("alpha", 1.0))),
    "Gelu": lambda node, x: forms.gelu(as_tensor(x), node.attr("approximate", "none")),
    "HardSigmoid": lambda node, x: forms.hard_sigmoid(
        as_tensor(x), float(node.attr("alpha", 0.2)), float(node.attr("beta", 0.5))
    ),
    "LeakyRelu": lambda node, x: forms.leaky_relu(as_tensor(x), float(node.attr("alpha", 0.01))),
    "Max": _chain(BINARY["maximum"]),
    "Mean": _mean,
    "Min": _chain(BINARY["minimum"]),
    "Mod": lambda node, a, b: forms.remainder(a, b, bool(node.attr("fmod", 0))),
    "Mul": lambda node, a, b: forms.multiplied(a, b),
    "PRelu": _prelu,
    "Pow": lambda node, a, b: forms.power(a, b),
    "RandomNormalLike": _random(True),
    "RandomUniformLike": _random(False),
    "Selu": lambda node, x: forms.selu(
        as_tensor(x), *(float(node.attr(name, default)) for name, default in forms.SELU.items())
    ),
    "Shrink": lambda node, x: forms.shrink(
        as_tensor(x), float(node.attr("lambd", 0.5)), float(node.attr("bias", 0.0))
    ),
    "Sub": _chain(forms.subtracted),
    "Sum": _chain(forms.added),
    "Swish": lambda node, x: forms.swish(as_tensor(x), float(node.attr("alpha", 1.0))),
    "ThresholdedRelu": lambda node, x: forms.threshold(as_tensor(x), float(node.attr("alpha", 1.0))),
    "Trilu": _trilu,
}
