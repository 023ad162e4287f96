"""Activation functions."""

from __future__ import annotations

from typing import Any

import numpy as np

from aneforge.frontends import LoadError, forms
from aneforge.frontends.forms import scaled
from aneforge.frontends.pytorch.node import Node, Rule
from aneforge.frontends.pytorch.values import axes_of, numeric
from aneforge.graph import builders as af
from aneforge.graph.tensor import Tensor

_STRAIGHT = 10.0  # at this input softplus is 5e-5 above its asymptote


def _elu(node: Node, x: Any, alpha: Any = 1.0, scale: Any = 1.0, input_scale: Any = 1.0) -> Tensor:
    """Return scale * x above zero, scale * alpha * (exp(input_scale * x) - 1) below."""
    tensor, a, s, inner = numeric(x), float(alpha), float(scale), float(input_scale)
    if inner == 1.0:
        return scaled(forms.elu(tensor, a), s)
    return scaled(tensor.relu() + af.minimum(scaled(scaled(tensor, inner).exp() - 1.0, a), 0.0), s)


def _softplus(node: Node, x: Any, beta: Any = 1.0, threshold: Any = 20.0) -> Tensor:
    """Above the threshold PyTorch returns x. At _STRAIGHT and above, softplus and x are equal in fp16."""
    tensor, slope = numeric(x), float(beta)
    if float(threshold) < _STRAIGHT:
        raise LoadError(
            f"softplus with threshold {float(threshold):g} is not supported; it must be at least {_STRAIGHT:g}"
        )
    return forms.softplus(tensor, 1 / slope, slope)


def _prelu(node: Node, x: Any, slope: Any) -> Tensor:
    """One slope, or one for each channel."""
    tensor = numeric(x)
    if isinstance(slope, (np.ndarray, Tensor)) and slope.ndim == 1 and tensor.ndim > 1:
        slope = slope.reshape(1, slope.size, *(1,) * (tensor.ndim - 2))
    return forms.prelu(tensor, slope)


def _glu(node: Node, x: Any, dim: Any = -1) -> Tensor:
    tensor = numeric(x)
    first, second = af.split(tensor, 2, axis=axes_of(dim, tensor.ndim)[0])
    return first * second.sigmoid()


def _rrelu(node: Node, x: Any, lower: Any = 1 / 8, upper: Any = 1 / 3, training: Any = False, *_: Any) -> Tensor:
    if training:
        raise LoadError("training mode draws a random slope in every run; use module.eval() before exporting")
    return forms.leaky_relu(numeric(x), (float(lower) + float(upper)) / 2)


def _dropout(node: Node, x: Any, p: Any, train: Any) -> Any:
    if train and float(p or 0.0) > 0:
        raise LoadError("training mode drops elements at random; use module.eval() before exporting")
    return x


def _native_dropout(node: Node, x: Any, p: Any, train: Any) -> Any:
    kept = _dropout(node, x, p, train)
    return [kept, np.ones(node.shape, bool)]


RULES: dict[str, Rule] = {
    "alpha_dropout": _dropout,
    "dropout": _dropout,
    "elu": _elu,
    "feature_dropout": _dropout,
    "glu": _glu,
    "native_dropout": _native_dropout,
    "prelu": _prelu,
    "rrelu": _rrelu,
    "softplus": _softplus,
    "softshrink": lambda node, x, limit=0.5: forms.shrink(numeric(x), float(limit), float(limit)),
}
