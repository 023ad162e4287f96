"""Forms of a layer by another op of the engine."""

from __future__ import annotations

import numpy as np

from aneforge.graph.ops.contraction import conv, linear, matmul
from aneforge.graph.ops.leaf import const
from aneforge.graph.ops.spatial import space_to_depth
from aneforge.graph.tensor import Tensor
from aneforge.rewrites.rewrite import Rewrite, Scene, Site
from aneforge.rewrites.stored import dense_of, kernel_of

__all__ = ["OP_FORMS"]


def _dense_as_conv(node: Tensor, scene: Scene) -> Site | None:
    """Features become channels and rows the width."""
    dense = dense_of(node)
    if dense is None:
        return None
    outputs, inputs = dense.weight.shape

    def build(x: Tensor) -> Tensor:
        image = x.reshape(dense.rows, inputs).transpose([1, 0]).reshape(1, inputs, 1, dense.rows)
        product = conv(image, dense.weight.reshape(outputs, inputs, 1, 1), bias=dense.bias)
        return product.reshape(outputs, dense.rows).transpose([1, 0]).reshape(*node.shape)

    return Site(node, (dense.x,), build)


def _conv_as_dense(node: Tensor, scene: Scene) -> Site | None:
    """Every place of the image is a row."""
    kernel = kernel_of(node)
    if kernel is None or not kernel.pointwise or kernel.x.shape[0] != 1:
        return None
    outputs, inputs = kernel.weight.shape[:2]

    def build(x: Tensor) -> Tensor:
        rows = x.reshape(inputs, x.size // inputs).transpose([1, 0])
        product = linear(rows, kernel.weight.reshape(outputs, inputs), kernel.bias)
        return product.transpose([1, 0]).reshape(*node.shape)

    return Site(node, (kernel.x,), build)


def _patches_as_channels(node: Tensor, scene: Scene) -> Site | None:
    """A kernel that steps by its own size reads each place once, so its patch can become channels."""
    kernel = kernel_of(node)
    if kernel is None or kernel.groups != 1 or any(kernel.pad) or kernel.dilation != (1, 1):
        return None
    size = kernel.weight.shape[2]
    if size < 2 or kernel.weight.shape[2:] != (size, size) or kernel.stride != (size, size):
        return None
    if kernel.x.shape[2] % size or kernel.x.shape[3] % size:
        return None
    outputs = kernel.weight.shape[0]
    moved = kernel.weight.transpose(0, 2, 3, 1).reshape(outputs, -1, 1, 1)  # the order that space_to_depth leaves

    def build(x: Tensor) -> Tensor:
        return conv(space_to_depth(x, size), moved, bias=kernel.bias)

    return Site(node, (kernel.x,), build)


def _summed(node: Tensor) -> tuple[Tensor, int, float] | None:
    """A sum or mean along one axis: its operand, the axis, and the factor of each element. A mean over a count that is
    not a power of two has no exact factor in fp16."""
    if node.op not in ("sum", "mean") or len(node.attrs["axes"]) != 1 or node.inputs[0].op == "const":
        return None
    x, axis = node.inputs[0], node.attrs["axes"][0]
    count = x.shape[axis]
    if node.op == "mean" and (count & (count - 1) or count > 2**14):
        return None
    return x, axis, 1.0 if node.op == "sum" else 1.0 / count


def _channel_sum_as_conv(node: Tensor, scene: Scene) -> Site | None:
    """A kernel of ones adds the channels."""
    total = _summed(node)
    if total is None or total[0].ndim != 4 or total[1] != 1:
        return None
    x, _, factor = total
    kernel = np.full((1, x.shape[1], 1, 1), factor, np.float16)
    return Site(node, (x,), lambda value: conv(value, kernel))


def _row_sum_as_product(node: Tensor, scene: Scene) -> Site | None:
    """A column of ones adds each row."""
    total = _summed(node)
    if total is None or total[0].ndim < 2 or total[1] != total[0].ndim - 1:
        return None
    x, _, factor = total
    column = np.full((x.shape[-1], 1), factor, np.float16)
    return Site(node, (x,), lambda value: matmul(value, const(column)))


OP_FORMS = (
    Rewrite("form", "dense-as-conv", "A dense layer as a 1 x 1 convolution.", _dense_as_conv),
    Rewrite("form", "conv-as-dense", "A 1 x 1 convolution as a dense layer.", _conv_as_dense),
    Rewrite("form", "patches-as-channels", "A convolution that steps by its own size as 1 x 1.", _patches_as_channels),
    Rewrite("form", "channel-sum-as-conv", "A sum over channels as a convolution with ones.", _channel_sum_as_conv),
    Rewrite("form", "row-sum-as-product", "A sum along rows as a product with ones.", _row_sum_as_product),
)
