"""Activation functions: the engine's own function where it is equal, otherwise the formula in a few ops."""

from __future__ import annotations

import numpy as np

from aneforge.frontends import LoadError
from aneforge.frontends.forms.arithmetic import scaled, shifted
from aneforge.frontends.forms.numbers import as_number, compared, single
from aneforge.frontends.values import Numeric, Value, axis_of
from aneforge.graph import builders as af
from aneforge.graph.ops.leaf import const
from aneforge.graph.tensor import Tensor

__all__ = [
    "SELU",
    "celu",
    "elu",
    "gelu",
    "glu",
    "hard_sigmoid",
    "hard_swish",
    "leaky_relu",
    "mish",
    "prelu",
    "selu",
    "shrink",
    "softplus",
    "swish",
    "threshold",
]

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


def hard_swish(x: Tensor) -> Tensor:
    return x * hard_sigmoid(x)


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


def mish(x: Tensor) -> Tensor:
    return x * x.softplus().tanh()


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
