"""The same layer by another op of the engine."""

from __future__ import annotations

import numpy as np

from aneforge.graph.ops.contraction import conv, linear, matmul
from aneforge.graph.ops.leaf import const
from aneforge.graph.ops.spatial import space_to_depth
from aneforge.graph.tensor import Tensor
from aneforge.rewrites.rewrite import Rewrite, Scene, Site
from aneforge.rewrites.stored import dense_of, kernel_of

__all__ = ["ROUTE_FORMS"]


def _dense_as_conv(node: Tensor, scene: Scene) -> Site | None:
    """Features become channels and rows the width."""
    found = dense_of(node)
    if found is None:
        return None
    outputs, inputs = found.weight.shape

    def build(x: Tensor) -> Tensor:
        image = x.reshape(found.rows, inputs).transpose([1, 0]).reshape(1, inputs, 1, found.rows)
        made = conv(image, found.weight.reshape(outputs, inputs, 1, 1), bias=found.bias)
        return made.reshape(outputs, found.rows).transpose([1, 0]).reshape(*node.shape)

    return Site(node, (found.x,), build)


def _conv_as_dense(node: Tensor, scene: Scene) -> Site | None:
    """Every place of the image is a row."""
    found = kernel_of(node)
    if found is None or not found.pointwise or found.x.shape[0] != 1:
        return None
    outputs, inputs = found.weight.shape[:2]

    def build(x: Tensor) -> Tensor:
        rows = x.reshape(inputs, x.size // inputs).transpose([1, 0])
        made = linear(rows, found.weight.reshape(outputs, inputs), found.bias)
        return made.transpose([1, 0]).reshape(*node.shape)

    return Site(node, (found.x,), build)


def _patches_as_channels(node: Tensor, scene: Scene) -> Site | None:
    """A kernel that steps by its own size sees each place once, so its patch may be channels."""
    found = kernel_of(node)
    if found is None or found.groups != 1 or any(found.pad) or found.dilation != (1, 1):
        return None
    size = found.weight.shape[2]
    if size < 2 or found.weight.shape[2:] != (size, size) or found.stride != (size, size):
        return None
    if found.x.shape[2] % size or found.x.shape[3] % size:
        return None
    outputs = found.weight.shape[0]
    moved = found.weight.transpose(0, 2, 3, 1).reshape(outputs, -1, 1, 1)  # the order that space_to_depth leaves

    def build(x: Tensor) -> Tensor:
        return conv(space_to_depth(x, size), moved, bias=found.bias)

    return Site(node, (found.x,), build)


def _summed(node: Tensor) -> tuple[Tensor, int, float] | None:
    """A sum or mean along one axis: its operand, the axis, and the factor of each element. A mean over a count that
    is no power of two has no exact factor in fp16."""
    if node.op not in ("sum", "mean") or len(node.attrs["axes"]) != 1 or node.inputs[0].op == "const":
        return None
    x, axis = node.inputs[0], node.attrs["axes"][0]
    count = x.shape[axis]
    if node.op == "mean" and (count & (count - 1) or count > 2**14):
        return None
    return x, axis, 1.0 if node.op == "sum" else 1.0 / count


def _channel_sum_as_conv(node: Tensor, scene: Scene) -> Site | None:
    """A kernel of ones adds the channels."""
    found = _summed(node)
    if found is None or found[0].ndim != 4 or found[1] != 1:
        return None
    x, _, factor = found
    kernel = np.full((1, x.shape[1], 1, 1), factor, np.float16)
    return Site(node, (x,), lambda value: conv(value, kernel))


def _row_sum_as_product(node: Tensor, scene: Scene) -> Site | None:
    """A column of ones adds each row."""
    found = _summed(node)
    if found is None or found[0].ndim < 2 or found[1] != found[0].ndim - 1:
        return None
    x, _, factor = found
    column = np.full((x.shape[-1], 1), factor, np.float16)
    return Site(node, (x,), lambda value: matmul(value, const(column)))


ROUTE_FORMS = (
    Rewrite("route", "dense-as-conv", "A dense layer as a 1 x 1 convolution.", _dense_as_conv),
    Rewrite("route", "conv-as-dense", "A 1 x 1 convolution as a dense layer.", _conv_as_dense),
    Rewrite(
        "route", "patches-as-channels", "A convolution that steps by its own size as 1 x 1.", _patches_as_channels
    ),
    Rewrite("route", "channel-sum-as-conv", "A sum over channels as a convolution with ones.", _channel_sum_as_conv),
    Rewrite("route", "row-sum-as-product", "A sum along rows as a product with ones.", _row_sum_as_product),
)
