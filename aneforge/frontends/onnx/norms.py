"""Normalisations and softmax."""

from __future__ import annotations

import numpy as np

from aneforge.frontends import forms
from aneforge.frontends.forms.norms import whitened
from aneforge.frontends.onnx.node import Node, Rule, Value
from aneforge.frontends.values import as_tensor, axis_of
from aneforge.graph import builders as af
from aneforge.graph.tensor import Tensor

__all__ = ["RULES"]


def _group_norm(node: Node, x: Value, scale: Value, bias: Value) -> Tensor:
    return forms.group_norm(as_tensor(x), int(node.attr("num_groups")), scale, bias, float(node.attr("epsilon", 1e-5)))


def _lp_norm(node: Node, x: Value) -> Tensor:
    tensor = as_tensor(x)
    axes = (axis_of(int(node.attr("axis", -1)), tensor.ndim),)
    size = tensor.l1_norm(axes) if int(node.attr("p", 2)) == 1 else tensor.sum_square(axes).sqrt()
    return tensor / af.maximum(size, 2.0**-24)  # a row of zeros stays zero


def _mean_variance(node: Node, x: Value) -> Tensor:
    tensor = as_tensor(x)
    axes = tuple(axis_of(int(axis), tensor.ndim) for axis in node.attr("axes", [0, 2, 3]))
    centred = tensor - tensor.mean(axes)
    return centred / (centred.square().mean(axes).sqrt() + 1e-9)


def _log_softmax(node: Node, x: Value) -> Tensor:
    tensor = as_tensor(x)
    if node.opset >= 13:
        return forms.log_softmax(tensor, axis_of(int(node.attr("axis", -1)), tensor.ndim))
    axis = axis_of(int(node.attr("axis", 1)), tensor.ndim)
    lines = tensor.reshape(int(np.prod(tensor.shape[:axis], dtype=int)), -1)
    return forms.log_softmax(lines, 1).reshape(*tensor.shape)


def _batch_norm(node: Node, x: Value, *stats: Value) -> Tensor | list[Tensor]:
    """In inference the statistics are inputs. In training mode they come from the batch, and the running statistics
    are updated."""
    gamma, beta, mean, variance = stats[:4]
    tensor, eps = as_tensor(x), float(node.attr("epsilon", 1e-5))
    if not node.attr("training_mode", 0):
        return forms.batch_norm(tensor, gamma, beta, mean, variance, eps)
    axes, shape = tuple(i for i in range(tensor.ndim) if i != 1), (1, -1, *(1,) * (tensor.ndim - 2))
    centre = tensor.mean(axes)
    spread = (tensor - centre).square().mean(axes)
    scale, shift = (as_tensor(parameter).reshape(*shape) for parameter in (gamma, beta))
    result = (tensor - centre) * spread.rsqrt(eps) * scale + shift
    momentum = float(node.attr("momentum", 0.9))
    moved = [
        as_tensor(running) * momentum + batch.reshape(tensor.shape[1]) * (1 - momentum)
        for running, batch in ((mean, centre), (variance, spread))
    ]
    return [result, *moved][: node.outputs]


def _layer_norm(node: Node, x: Value, scale: Value, bias: Value | None = None) -> Tensor | list[Tensor]:
    tensor = as_tensor(x)
    axes = tuple(range(axis_of(int(node.attr("axis", -1)), tensor.ndim), tensor.ndim))
    eps = float(node.attr("epsilon", 1e-5))
    if node.outputs == 1:
        return forms.layer_norm(tensor, axes, scale, bias, eps)
    white, mean, reciprocal = whitened(tensor, axes, eps)
    scaled = white * as_tensor(scale)
    return [scaled if bias is None else scaled + as_tensor(bias), mean, reciprocal][: node.outputs]


def _rms_norm(node: Node, x: Value, scale: Value) -> Tensor:
    tensor = as_tensor(x)
    axes = range(axis_of(int(node.attr("axis", -1)), tensor.ndim), tensor.ndim)
    return forms.rms_norm(tensor, tuple(axes), scale, float(node.attr("epsilon", 1e-5)))


def _instance_norm(node: Node, x: Value, scale: Value, bias: Value) -> Tensor:
    return forms.instance_norm(as_tensor(x), scale, bias, float(node.attr("epsilon", 1e-5)))


def _softmax(node: Node, x: Value) -> Tensor:
    tensor = as_tensor(x)
    if node.opset >= 13:
        return tensor.softmax(axis_of(int(node.attr("axis", -1)), tensor.ndim))
    axis = axis_of(int(node.attr("axis", 1)), tensor.ndim)  # the axis and all after it are one row
    lead = int(np.prod(tensor.shape[:axis], dtype=int))
    return tensor.reshape(lead, -1).softmax(-1).reshape(*tensor.shape)


def _local_response(node: Node, x: Value) -> Tensor:
    alpha, beta = float(node.attr("alpha", 1e-4)), float(node.attr("beta", 0.75))
    return af.local_response_norm(as_tensor(x), int(node.attr("size")), alpha, beta, float(node.attr("bias", 1.0)))


RULES: dict[str, Rule] = {
    "BatchNormalization": _batch_norm,
    "GroupNormalization": _group_norm,
    "InstanceNormalization": _instance_norm,
    "LayerNormalization": _layer_norm,
    "LRN": _local_response,
    "LogSoftmax": _log_softmax,
    "LpNormalization": _lp_norm,
    "MeanVarianceNormalization": _mean_variance,
    "RMSNormalization": _rms_norm,
    "Softmax": _softmax,
}
