"""Activation functions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from aneforge.frontends import LoadError
from aneforge.frontends.torch_rules.elementwise import compared
from aneforge.frontends.torch_rules.node import Node, Rule
from aneforge.frontends.torch_rules.values import axes_of, numeric, scaled, shifted
from aneforge.graph import builders as af
from aneforge.graph.ops.leaf import const
from aneforge.graph.tensor import Tensor

__all__ = ["RULES"]

_STRAIGHT = 10.0  # here the curve of softplus is 5e-5 above its line


def _unary(function: Callable[[Tensor], Tensor]) -> Rule:
    return lambda node, x, *rest: function(numeric(x))


def _gelu(node: Node, x: Any) -> Tensor:
    """The engine's own is the one with the normal distribution; the one with tanh is written out."""
    given = numeric(x)
    if node.options.get("approximate", "none") == "none":
        return given.gelu()
    inner = given + scaled(given * given.square(), 0.044715)
    return scaled(given, 0.5) * (scaled(inner, math.sqrt(2 / math.pi)).tanh() + 1.0)


def _hard_sigmoid(x: Tensor) -> Tensor:
    return x.sigmoid_hard(1 / 6, 0.5)


def _elu(node: Node, x: Any, alpha: Any = 1.0, scale: Any = 1.0, input_scale: Any = 1.0) -> Tensor:
    """scale * x above zero, scale * alpha * (exp(input_scale * x) - 1) below."""
    given, a, s, inner = numeric(x), float(alpha), float(scale), float(input_scale)
    if inner == 1.0:
        return scaled(given.elu(a), s)
    return scaled(given.relu() + af.minimum(scaled(scaled(given, inner).exp() - 1.0, a), 0.0), s)


def _selu(node: Node, x: Any) -> Tensor:
    return scaled(numeric(x).elu(1.6732632423543772848170429916717), 1.0507009873554804934193349852946)


def _celu(node: Node, x: Any, alpha: Any = 1.0) -> Tensor:
    given, a = numeric(x), float(alpha)
    return given.elu(1.0) if a == 1.0 else scaled(scaled(given, 1 / a).elu(1.0), a)


def _softplus(node: Node, x: Any, beta: Any = 1.0, threshold: Any = 20.0) -> Tensor:
    """Above the threshold PyTorch takes the straight line, which the curve has met long before."""
    given, slope = numeric(x), float(beta)
    if float(threshold) < _STRAIGHT:
        raise LoadError(f"a softplus that turns straight at {float(threshold):g}, before the curve has met the line")
    return given.softplus() if slope == 1.0 else scaled(scaled(given, slope).softplus(), 1 / slope)


def _threshold(node: Node, x: Any, threshold: Any, value: Any) -> Tensor:
    given = numeric(x)
    return af.where(
        compared(given, "greater", float(threshold)), given, const(np.full((1,) * given.ndim, float(value)))
    )


def _hard_shrink(node: Node, x: Any, limit: Any = 0.5) -> Tensor:
    given = numeric(x)
    return af.where(compared(given.abs(), "greater", float(limit)), given, const(np.zeros((1,) * given.ndim)))


def _soft_shrink(node: Node, x: Any, limit: Any = 0.5) -> Tensor:
    """Both sides pulled towards zero by the limit."""
    given, far = numeric(x), float(limit)
    return shifted(given, -far).relu() - shifted(-given, -far).relu()


def _prelu(node: Node, x: Any, slope: Any) -> Tensor:
    given = numeric(x)
    if isinstance(slope, np.ndarray) and slope.size == 1:
        return given.leaky_relu(float(slope.reshape(-1)[0]))
    if isinstance(slope, np.ndarray) and given.ndim > 2:
        return given.prelu(slope.reshape(-1))
    lines = numeric(slope)
    if lines.size > 1 and lines.ndim == 1 and given.ndim > 1:
        lines = lines.reshape(1, lines.size, *(1,) * (given.ndim - 2))
    return given.relu() - lines * (-given).relu()


def _glu(node: Node, x: Any, dim: Any = -1) -> Tensor:
    given = numeric(x)
    first, second = af.split(given, 2, axis=axes_of(dim, given.ndim)[0])
    return first * second.sigmoid()


def _rrelu(node: Node, x: Any, lower: Any = 1 / 8, upper: Any = 1 / 3, training: Any = False, *_: Any) -> Tensor:
    if training:
        raise LoadError("a random slope: call module.eval() before exporting")
    return numeric(x).leaky_relu((float(lower) + float(upper)) / 2)


def _dropout(node: Node, x: Any, p: Any, train: Any) -> Any:
    if train and float(p or 0.0) > 0:
        raise LoadError("dropout that drops: call module.eval() before exporting")
    return x


def _native_dropout(node: Node, x: Any, p: Any, train: Any) -> Any:
    kept = _dropout(node, x, p, train)
    return [kept, np.ones(node.shape, bool)]


RULES: dict[str, Rule] = {
    **{
        name: _unary(function)
        for name, function in {
            "hardsigmoid": _hard_sigmoid,
            "hardswish": lambda x: x * _hard_sigmoid(x),
            "log_sigmoid": lambda x: -(-x).softplus(),
            "mish": lambda x: x * x.softplus().tanh(),
            "relu": Tensor.relu,
            "relu6": Tensor.relu6,
            "sigmoid": Tensor.sigmoid,
            "silu": Tensor.silu,
            "softsign": Tensor.softsign,
            "tanh": Tensor.tanh,
            "tanhshrink": lambda x: x - x.tanh(),
        }.items()
    },
    "alpha_dropout": _dropout,
    "celu": _celu,
    "dropout": _dropout,
    "elu": _elu,
    "feature_dropout": _dropout,
    "gelu": _gelu,
    "glu": _glu,
    "hardshrink": _hard_shrink,
    "hardtanh": lambda node, x, low=-1.0, high=1.0: numeric(x).clip(float(low), float(high)),
    "leaky_relu": lambda node, x, slope=0.01: numeric(x).leaky_relu(float(slope)),
    "native_dropout": _native_dropout,
    "prelu": _prelu,
    "rrelu": _rrelu,
    "selu": _selu,
    "softplus": _softplus,
    "softshrink": _soft_shrink,
    "threshold": _threshold,
}
