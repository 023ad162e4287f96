"""Sums and products that do nothing, and layers whose bias stands behind them."""

from __future__ import annotations

import numpy as np

from aneforge.graph.halves import FP16_MAX
from aneforge.graph.node import make, ops_with
from aneforge.graph.ops.leaf import const
from aneforge.graph.tensor import Tensor
from aneforge.graph.traits import GraphTrait
from aneforge.recognise.algebra import scale_of, scaled
from aneforge.recognise.rule import Rule, Scene

_SCALINGS = tuple(sorted(ops_with(GraphTrait.SCALING)))
_MOST_PRODUCT_AXES = 4  # the rule "products of rank 5" refuses more
_SMALLEST = 2.0**-24  # of fp16: a factor below it, or above its end, is several products


def _nothing(node: Tensor, scene: Scene) -> Tensor | None:
    """A sum with zeros and a product with ones are their other operand."""
    neutral = 0 if node.op == "add" else 1
    for x, other in (node.inputs, node.inputs[::-1]):
        if x.shape != node.shape or x.dtype != node.dtype or x.op == "const":
            continue
        if other.op == "const" and other.weight is not None and bool((other.weight.array == neutral).all()):
            return x
    return None


def _bias(node: Tensor, scene: Scene) -> Tensor | None:
    """A sum behind a dense layer or a convolution without bias, one number for each output, is its bias."""
    for layer, constant in (node.inputs, node.inputs[::-1]):
        if "bias?" not in layer.definition.operands or len(layer.inputs) > 2 or layer.shape != node.shape:
            continue
        if constant.op != "const" or constant.weight is None or not scene.is_private(layer):
            continue
        assert layer.definition.vector_axis is not None
        axis = layer.definition.vector_axis % layer.ndim
        shape = (*(1,) * (layer.ndim - constant.ndim), *constant.shape)
        if shape[axis] == layer.shape[axis] == constant.weight.size:
            bias = const(np.asarray(constant.weight.array).reshape(-1))
            return make(layer.definition, (*layer.inputs, bias), layer.attrs, name=layer.name)
    return None


def _scale_before_moves(node: Tensor, scene: Scene) -> Tensor | None:
    """A product with a number behind a move is done before it, next to the layer that makes the value."""
    inner = scale_of(node)
    if (
        inner is None
        or not (inner[0].is_a(GraphTrait.VIEW) or inner[0].op == "transpose")
        or not scene.is_private(inner[0])
    ):
        return None
    moved, factor = inner
    return make(moved.definition, (scaled(moved.inputs[0], factor),), moved.attrs)


def _one_scale(node: Tensor, scene: Scene) -> Tensor | None:
    """Two products with numbers, one behind the other, are one."""
    outer = scale_of(node)
    inner = None if outer is None else scale_of(outer[0])
    if outer is None or inner is None or not scene.is_private(outer[0]):
        return None
    factor = inner[1] * outer[1]
    return scaled(inner[0], factor) if _SMALLEST < abs(factor) < FP16_MAX else None


def _features_norm(node: Tensor, scene: Scene) -> Tensor | None:
    """A batch norm of [rows, features, 1, ...] is one of [rows, features]."""
    x = node.inputs[0]
    if x.op != "reshape" or node.ndim < 3 or any(extent != 1 for extent in node.shape[2:]):
        return None
    rows = x.reshape(*x.shape[:2])
    return make(node.definition, (rows, *node.inputs[1:]), node.attrs).reshape(*node.shape)


def _product_of_few_axes(node: Tensor, scene: Scene) -> Tensor | None:
    """A product of five axes, which no chip takes, is one of fewer: neighbouring axes of the batch that both factors
    have are one."""
    left, right = node.inputs
    if node.ndim <= _MOST_PRODUCT_AXES or left.ndim != right.ndim:
        return None
    batch = [(a, b) for a, b in zip(left.shape[:-2], right.shape[:-2], strict=True) if (a, b) != (1, 1)]
    merged: list[tuple[int, int]] = []
    for a, b in batch:
        if merged and (a == b) == (merged[-1][0] == merged[-1][1]) and a == b:
            merged[-1] = (merged[-1][0] * a, merged[-1][1] * b)
        else:
            merged.append((a, b))
    if len(merged) > _MOST_PRODUCT_AXES - 2:
        return None
    merged = [(1, 1)] * (_MOST_PRODUCT_AXES - 2 - len(merged)) + merged
    first = left.reshape(*(a for a, _ in merged), *left.shape[-2:])
    second = right.reshape(*(b for _, b in merged), *right.shape[-2:])
    return (first @ second).reshape(*node.shape)


def _softmax_before_view(node: Tensor, scene: Scene) -> Tensor | None:
    """A softmax along the last axis of a reshaped tensor that has the same last axis is done before the reshape."""
    view = node.inputs[0]
    if view.op != "reshape" or node.attrs["axis"] != node.ndim - 1 or not scene.is_private(view):
        return None
    x = view.inputs[0]
    return x.softmax(-1).reshape(*node.shape) if x.shape[-1] == view.shape[-1] else None


PRODUCTS = (
    Rule("nothing-added", ("add", "mul"), _nothing),
    Rule("bias", ("add",), _bias),
    Rule("one-scale", _SCALINGS, _one_scale),
    Rule("scale-before-moves", _SCALINGS, _scale_before_moves),
    Rule("product-of-few-axes", ("matmul",), _product_of_few_axes),
    Rule("softmax-before-view", ("softmax",), _softmax_before_view),
    Rule("features-norm", ("batch_norm",), _features_norm),
)
