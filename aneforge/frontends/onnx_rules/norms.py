"""Normalisations and softmax."""

from __future__ import annotations

import numpy as np

import aneforge as af
from aneforge.frontends import LoadError
from aneforge.frontends.onnx_node import Node, Rule, Value
from aneforge.frontends.onnx_rules.values import as_tensor, axis_of, known
from aneforge.graph.ops.leaf import const
from aneforge.graph.tensor import Tensor

__all__ = ["RULES"]

Array = np.ndarray


def _group_norm(node: Node, x: Value, scale: Value, bias: Value) -> Tensor:
    """Since opset 21 a scale for each channel, before for each group."""
    given, groups = as_tensor(x), int(node.attr("num_groups"))
    lines = given.reshape(given.shape[0], groups, -1)
    centred = lines - lines.mean((2,))
    white = centred * centred.square().mean((2,)).rsqrt(float(node.attr("epsilon", 1e-5)))
    gains = []
    for each in (scale, bias):
        numbers = np.asarray(known(each, "a scale"), np.float64).reshape(-1)
        numbers = numbers if numbers.size == given.shape[1] else np.repeat(numbers, given.shape[1] // groups)
        gains.append(const(numbers.reshape(1, -1, *(1,) * (given.ndim - 2))))
    return white.reshape(*given.shape) * gains[0] + gains[1]


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
        axes = (axis_of(int(node.attr("axis", -1)), given.ndim),)
        shifted = given - given.amax(axes)
        return shifted - shifted.reduce_log_sum_exp(axes)
    axis = axis_of(int(node.attr("axis", 1)), given.ndim)
    lines = given.reshape(int(np.prod(given.shape[:axis], dtype=int)), -1)
    shifted = lines - lines.amax((1,))
    return (shifted - shifted.reduce_log_sum_exp((1,))).reshape(*given.shape)


def _along_channels(values: Value | None, rank: int, what: str) -> Array:
    return np.asarray(known(values, what), np.float64).reshape(-1)


def _batch_norm(node: Node, x: Value, *stats: Value) -> Tensor:
    given = as_tensor(x)
    gamma, beta, mean, variance = (_along_channels(each, given.ndim, "a statistic") for each in stats[:4])
    if node.attr("training_mode", 0):
        raise LoadError("batch statistics of a training run: export the model for inference")
    eps = float(node.attr("epsilon", 1e-5))
    if given.ndim == 4:
        return af.batch_norm(given, gamma, beta, mean, variance, eps)
    gain = gamma / np.sqrt(variance + eps)
    shape = (1, -1, *(1,) * (given.ndim - 2))
    return given * const(gain.reshape(shape)) + const((beta - mean * gain).reshape(shape))


def _layer_norm(node: Node, x: Value, scale: Value, bias: Value | None = None) -> Tensor | list[Tensor]:
    given = as_tensor(x)
    axis = axis_of(int(node.attr("axis", -1)), given.ndim)
    eps = float(node.attr("epsilon", 1e-5))
    if _is_line(given, axis, scale) and node.outputs == 1:
        beta = np.zeros(given.shape[-1]) if bias is None else np.asarray(known(bias, "the bias"), np.float64)
        return given.layer_norm(np.asarray(scale, np.float64), np.broadcast_to(beta, (given.shape[-1],)), eps)
    axes = tuple(range(axis, given.ndim))
    mean = given.mean(axes)
    centred = given - mean
    reciprocal = centred.square().mean(axes).rsqrt(eps)
    found = centred * reciprocal * as_tensor(scale)
    return [found if bias is None else found + as_tensor(bias), mean, reciprocal][: node.outputs]


def _is_line(x: Tensor, axis: int, scale: Value) -> bool:
    """Whether a norm runs along the last axis with a known scale for each element: an op of its own here."""
    return axis == x.ndim - 1 and isinstance(scale, np.ndarray) and scale.shape == x.shape[-1:]


def _rms_norm(node: Node, x: Value, scale: Value) -> Tensor:
    given = as_tensor(x)
    axis = axis_of(int(node.attr("axis", -1)), given.ndim)
    eps = float(node.attr("epsilon", 1e-5))
    if _is_line(given, axis, scale):
        return given.rms_norm(np.asarray(scale, np.float64), eps)
    axes = tuple(range(axis, given.ndim))
    return given * given.square().mean(axes).rsqrt(eps) * as_tensor(scale)


def _instance_norm(node: Node, x: Value, scale: Value, bias: Value) -> Tensor:
    given = as_tensor(x)
    axes = tuple(range(2, given.ndim))
    shape = (1, -1, *(1,) * len(axes))
    gamma, beta = (_along_channels(each, given.ndim, "a scale").reshape(shape) for each in (scale, bias))
    centred = given - given.mean(axes)
    return centred * centred.square().mean(axes).rsqrt(float(node.attr("epsilon", 1e-5))) * const(gamma) + const(beta)


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
