"""Normalisations and softmax."""

from __future__ import annotations

import numpy as np

import aneforge as af
from aneforge.frontends import LoadError, forms
from aneforge.frontends.forms.norms import whitened
from aneforge.frontends.onnx_node import Node, Rule, Value
from aneforge.frontends.values import as_tensor, axis_of
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


def _batch_norm(node: Node, x: Value, *stats: Value) -> Tensor:
    if node.attr("training_mode", 0):
        raise LoadError("batch statistics of a training run: export the model for inference")
    gamma, beta, mean, variance = stats[:4]
    return forms.batch_norm(as_tensor(x), gamma, beta, mean, variance, float(node.attr("epsilon", 1e-5)))


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


RULES: dict[str, Rule] = {
    "BatchNormalization": _batch_norm,
    "GroupNormalization": _group_norm,
    "InstanceNormalization": _instance_norm,
    "LayerNormalization": _layer_norm,
    "LogSoftmax": _log_softmax,
    "LpNormalization": _lp_norm,
    "MeanVarianceNormalization": _mean_variance,
    "RMSNormalization": _rms_norm,
    "Softmax": _softmax,
}
