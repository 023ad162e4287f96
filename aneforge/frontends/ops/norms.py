"""Normalisations and softmax."""

from __future__ import annotations

import numpy as np

from aneforge.frontends import LoadError
from aneforge.frontends.forms import batch_norm, instance_norm, layer_norm
from aneforge.frontends.importer.op import Op, Rule
from aneforge.frontends.values import Value
from aneforge.graph import builders as af
from aneforge.graph.tensor import Tensor

__all__ = ["RULES", "l2_normalised"]


def _batch_norm(op: Op) -> Tensor:
    statistics = op.value("mean"), op.value("variance")
    return batch_norm(op.tensor(), op.optional("gamma"), op.optional("beta"), *statistics, op.number("epsilon", 1e-5))


def _layer_norm(op: Op) -> Tensor:
    x = op.tensor()
    axes = sorted(op.axes(x.ndim))
    scale, bias = (_broadcastable_gain(op.optional(name), x, axes) for name in ("gamma", "beta"))
    return layer_norm(x, axes, scale, bias, op.number("epsilon", 1e-5))


def _broadcastable_gain(gain: Value | None, x: Tensor, axes: list[int]) -> Value | None:
    """A gain of the normalised axes, reshaped so that it broadcasts over the others. Along the last axis it already
    does."""
    if gain is None or axes == [x.ndim - 1]:
        return gain
    shape = [x.shape[i] if i in axes else 1 for i in range(x.ndim)]
    return gain.reshape(*shape) if isinstance(gain, Tensor) else np.asarray(gain).reshape(shape)


def _instance_norm(op: Op) -> Tensor:
    return instance_norm(op.tensor(), op.optional("gamma"), op.optional("beta"), op.number("epsilon", 1e-5))


def l2_normalised(x: Tensor, eps: float) -> Tensor:
    """Divide by the root of the sum of squares over the last three axes."""
    if x.ndim < 3:
        raise LoadError(f"the input has shape {list(x.shape)}; three axes or more are needed")
    axes = [i for i in range(x.ndim - 3, x.ndim) if x.shape[i] > 1]
    if len(axes) == 1:
        return x.l2_norm(axes[0], eps)
    return x * x.sum_square(tuple(range(x.ndim - 3, x.ndim))).rsqrt(eps)


def _l2_norm(op: Op) -> Tensor:
    return l2_normalised(op.tensor(), op.number("epsilon", 1e-6))


def _response_norm(op: Op) -> Tensor:
    settings = op.number("alpha", 1e-4), op.number("beta", 0.75), op.number("k", 1.0)
    return af.local_response_norm(op.tensor(), op.whole("size"), *settings)


def _softmax(op: Op) -> Tensor:
    x = op.tensor()
    return x.softmax(op.axis(x.ndim, -1))


RULES: dict[str, Rule] = {
    "batch_norm": _batch_norm,
    "instance_norm": _instance_norm,
    "l2_norm": _l2_norm,
    "layer_norm": _layer_norm,
    "local_response_norm": _response_norm,
    "softmax": _softmax,
}
