"""Layers with a stored weight in one common shape, and their forms by another op of the engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from aneforge.graph.encoding import Encoded
from aneforge.graph.forms import FormContext, OtherForm, Site
from aneforge.graph.graph import Graph
from aneforge.graph.ops.contraction import conv, linear, matmul
from aneforge.graph.ops.layers import (
    attention,
    kernel_rasterizer,
    native_pixel_shuffle,
    native_pixel_unshuffle,
    native_unflatten,
)
from aneforge.graph.ops.leaf import const
from aneforge.graph.ops.ranking import arg_min_max, global_arg, sort_vectors, topk_vectors
from aneforge.graph.ops.sampling import native_crop_resize, native_resample
from aneforge.graph.ops.slices import gather_places, slice_from
from aneforge.graph.ops.spatial import space_to_depth
from aneforge.graph.ops.volume import over_planes
from aneforge.graph.tensor import Tensor
from aneforge.graph.traits import GraphTrait

__all__ = [
    "arg_min_max",
    "attention",
    "gather_places",
    "global_arg",
    "kernel_rasterizer",
    "native_crop_resize",
    "native_pixel_shuffle",
    "native_pixel_unshuffle",
    "native_resample",
    "native_unflatten",
    "slice_from",
    "sort_vectors",
    "topk_vectors",
]


class _Sliding(NamedTuple):
    """How a convolution goes over its image."""

    stride: tuple[int, int]
    pad: tuple[int, int, int, int]
    dilation: tuple[int, int]
    groups: int


@dataclass(frozen=True, eq=False)
class StoredLayer:
    """A layer with a stored weight of fp16, however the user wrote it: ``x @ weight.T + bias`` over the last axis, or
    a convolution."""

    node: Tensor
    x: Tensor
    weight: np.ndarray
    """Outputs first."""
    bias: np.ndarray | None
    steps: _Sliding | None = None
    """Of a convolution; None for a dense layer."""

    @property
    def is_pointwise(self) -> bool:
        """Whether it is a convolution of 1 x 1 over all channels: every place by itself."""
        plain = self.steps == _Sliding((1, 1), (0, 0, 0, 0), (1, 1), 1)
        return plain and self.weight.shape[2:] == (1, 1)

    @property
    def groups(self) -> int:
        return 1 if self.steps is None else self.steps.groups

    def build(self, x: Tensor, weight: object, bias: np.ndarray | None) -> Tensor:
        """The same layer with another input, weight or bias."""
        return linear(x, weight, bias) if self.steps is None else conv(x, weight, *self.steps, bias)

    def stored_as(self, stored: Callable[[], Encoded | Tensor], traits: object = None) -> Site:
        """The layer with its weight in another form, which is made when the layer is built."""
        return Site(self.node, (self.x,), lambda x: self.build(x, stored(), self.bias), traits=traits)


def layer_of(node: Tensor) -> StoredLayer | None:
    """The layer of a node; None where it is no layer, or its weight is computed, trained or encoded already."""
    if not node.is_a(GraphTrait.STORED_KERNEL) or node.op == "conv_transpose" or node.inputs[0].op == "const":
        return None
    x, weight, *rest = node.inputs
    numbers, bias = _numbers(weight), _numbers(rest[0]) if rest else None
    if numbers is None or (rest and bias is None):
        return None
    if node.op == "matmul":
        return StoredLayer(node, x, numbers.T, None) if weight.ndim == 2 else None
    attrs = node.attrs
    steps = [_Sliding(*(attrs[name] for name in _Sliding._fields))] if node.op == "conv" else []
    return StoredLayer(node, x, numbers, bias, *steps)


def stored_layers(graph: Graph) -> dict[str, StoredLayer]:
    """The layers of a graph whose weight is stored in fp16, by name, in the order of the graph."""
    names = graph.names()
    return {names[node.uid]: layer for node in graph.nodes if (layer := layer_of(node)) is not None}


def _numbers(node: Tensor) -> np.ndarray | None:
    """The numbers of a constant; None for a value that is computed, trained or stored in an encoded form."""
    if node.op != "const" or node.weight is None or node.weight.encoded is not None:
        return None
    return node.weight.array


def _dense_as_conv(node: Tensor, context: FormContext) -> Site | None:
    """Features become channels and rows the width."""
    layer = layer_of(node)
    if layer is None or layer.steps is not None:
        return None
    outputs, inputs = layer.weight.shape
    rows = layer.x.size // inputs

    def build(x: Tensor) -> Tensor:
        image = x.reshape(rows, inputs).transpose([1, 0]).reshape(1, inputs, 1, rows)
        product = conv(image, layer.weight.reshape(outputs, inputs, 1, 1), bias=layer.bias)
        return product.reshape(outputs, rows).transpose([1, 0]).reshape(*node.shape)

    return Site(node, (layer.x,), build)


def _conv_as_dense(node: Tensor, context: FormContext) -> Site | None:
    """Every place of the image is a row."""
    layer = layer_of(node)
    if layer is None or not layer.is_pointwise or layer.x.shape[0] != 1:
        return None
    outputs, inputs = layer.weight.shape[:2]

    def build(x: Tensor) -> Tensor:
        rows = x.reshape(inputs, x.size // inputs).transpose([1, 0])
        product = linear(rows, layer.weight.reshape(outputs, inputs), layer.bias)
        return product.transpose([1, 0]).reshape(*node.shape)

    return Site(node, (layer.x,), build)


def _patches_as_channels(node: Tensor, context: FormContext) -> Site | None:
    """A kernel that steps by its own size reads each place once, so its patch can become channels."""
    layer = layer_of(node)
    if layer is None or layer.steps is None:
        return None
    size = layer.weight.shape[2]
    if size < 2 or layer.weight.shape[2:] != (size, size) or layer.steps != ((size, size), (0, 0, 0, 0), (1, 1), 1):
        return None
    if layer.x.shape[2] % size or layer.x.shape[3] % size:
        return None
    outputs = layer.weight.shape[0]
    moved = layer.weight.transpose(0, 2, 3, 1).reshape(outputs, -1, 1, 1)  # the order that space_to_depth leaves

    def build(x: Tensor) -> Tensor:
        return conv(space_to_depth(x, size), moved, bias=layer.bias)

    return Site(node, (layer.x,), build)


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


def _channel_sum_as_conv(node: Tensor, context: FormContext) -> Site | None:
    """A kernel of ones adds the channels."""
    total = _summed(node)
    if total is None or total[0].ndim != 4 or total[1] != 1:
        return None
    x, _, factor = total
    kernel = np.full((1, x.shape[1], 1, 1), factor, np.float16)
    return Site(node, (x,), lambda value: conv(value, kernel))


def _row_sum_as_product(node: Tensor, context: FormContext) -> Site | None:
    """A column of ones adds each row."""
    total = _summed(node)
    if total is None or total[0].ndim < 2 or total[1] != total[0].ndim - 1:
        return None
    x, _, factor = total
    column = np.full((x.shape[-1], 1), factor, np.float16)
    return Site(node, (x,), lambda value: matmul(value, const(column)))


def _volume_as_planes(node: Tensor, context: FormContext) -> Site | None:
    """The planes that a kernel meets along the depth become channels."""
    if node.op != "conv3d":
        return None
    x, *weights = node.inputs
    return Site(node, (x,), lambda value: over_planes(value, *weights, **node.attrs))


OP_FORMS = (
    OtherForm("form", "conv3d-as-planes", "A 3-D convolution as 2-D convolutions over its planes.", _volume_as_planes),
    OtherForm("form", "dense-as-conv", "A dense layer as a 1 x 1 convolution.", _dense_as_conv),
    OtherForm("form", "conv-as-dense", "A 1 x 1 convolution as a dense layer.", _conv_as_dense),
    OtherForm(
        "form", "patches-as-channels", "A convolution that steps by its own size as 1 x 1.", _patches_as_channels
    ),
    OtherForm("form", "channel-sum-as-conv", "A sum over channels as a convolution with ones.", _channel_sum_as_conv),
    OtherForm("form", "row-sum-as-product", "A sum along rows as a product with ones.", _row_sum_as_product),
)
