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
    given = as_tensor(x)
    axes = (axis_of(int(node.attr("axis", -1)), given.ndim),)
    size = given.l1_norm(axes) if int(node.attr("p", 2)) == 1 else given.sum_square(axes).sqrt()
    return given / af.maximum(size, 2.0**-24)  # a line of zeros stays one


def _mean_variance(node: Node, x: Value) -> Tensor:
    given = as_tensor(x)
    axes = tuple(axis_of(int(each), given.ndim) for each in node.attr("axes", [0, 2, 3]))
    centred = given - given.mean(axes)
    return centred / (centred.square().mean(axes).sqrt() + 1e-9)


def _log_softmax(node: Node, x: Value) -> Tensor:
    given = as_tensor(x)
    if node.opset >= 13:
        return forms.log_softmax(given, axis_of(int(node.attr("axis", -1)), given.ndim))
    axis = axis_of(int(node.attr("axis", 1)), given.ndim)
    lines = given.reshape(int(np.prod(given.shape[:axis], dtype=int)), -1)
    return forms.log_softmax(lines, 1).reshape(*given.shape)


def _batch_norm(node: Node, x: Value, *stats: Value) -> Tensor | list[Tensor]:
    """With statistics of the training; a training run has those of its batch, and moves the others towards them."""
    gamma, beta, mean, variance = stats[:4]
    given, eps = as_tensor(x), float(node.attr("epsilon", 1e-5))
    if not node.attr("training_mode", 0):
        return forms.batch_norm(given, gamma, beta, mean, variance, eps)
    axes, shape = tuple(i for i in range(given.ndim) if i != 1), (1, -1, *(1,) * (given.ndim - 2))
    centre = given.mean(axes)
    spread = (given - centre).square().mean(axes)
    scale, shift = (as_tensor(each).reshape(*shape) for each in (gamma, beta))
    found = (given - centre) * spread.rsqrt(eps) * scale + shift
    old = float(node.attr("momentum", 0.9))
    moved = [
        as_tensor(past) * old + now.reshape(given.shape[1]) * (1 - old)
        for past, now in ((mean, centre), (variance, spread))
    ]
    return [found, *moved][: node.outputs]


def _layer_norm(node: Node, x: Value, scale: Value, bias: Value | None = None) -> Tensor | list[Tensor]:
    given = as_tensor(x)
    axes = tuple(range(axis_of(int(node.attr("axis", -1)), given.ndim), given.ndim))
    eps = float(node.attr("epsilon", 1e-5))
    if node.outputs == 1:
        return forms.layer_norm(given, axes, scale, bias, eps)
    white, mean, reciprocal = whitened(given, axes, eps)
    found = white * as_tensor(scale)
    return [found if bias is None else found + as_tensor(bias), mean, reciprocal][: node.outputs]


def _rms_norm(node: Node, x: Value, scale: Value) -> Tensor:
    given = as_tensor(x)
    axes = range(axis_of(int(node.attr("axis", -1)), given.ndim), given.ndim)
    return forms.rms_norm(given, tuple(axes), scale, float(node.attr("epsilon", 1e-5)))


def _instance_norm(node: Node, x: Value, scale: Value, bias: Value) -> Tensor:
    return forms.instance_norm(as_tensor(x), scale, bias, float(node.attr("epsilon", 1e-5)))


def _softmax(node: Node, x: Value) -> Tensor:
    given = as_tensor(x)
    if node.opset >= 13:
        return given.softmax(axis_of(int(node.attr("axis", -1)), given.ndim))
    axis = axis_of(int(node.attr("axis", 1)), given.ndim)  # everything behind the axis is one line
    lead = int(np.prod(given.shape[:axis], dtype=int))
    return given.reshape(lead, -1).softmax(-1).reshape(*given.shape)


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
