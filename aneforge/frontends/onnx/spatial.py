"""Convolutions and pools over the spatial axes, and rearrangements between channels and space."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from aneforge.errors import LoadError
from aneforge.frontends import forms
from aneforge.frontends.onnx.node import Node, Rule, Value
from aneforge.frontends.values import NoForm, as_tensor, whole_numbers
from aneforge.graph import builders as af
from aneforge.graph.tensor import Tensor

__all__ = ["RULES"]

_MOST_WEIGHTS = 1 << 24


def _pads(node: Node, extent: Sequence[int], size: Sequence[int]) -> list[tuple[int, int]]:
    """Return the padding before and after each spatial axis."""
    rank = len(size)
    mode = node.attr("auto_pad", "NOTSET")
    if mode in ("NOTSET", ""):
        pads = node.attr("pads", [0] * (2 * rank))
        return [(int(pads[i]), int(pads[i + rank])) for i in range(rank)]
    if mode == "VALID":
        return [(0, 0)] * rank
    stride, dilation = node.attr("strides", [1] * rank), node.attr("dilations", [1] * rank)
    return forms.same_pads(extent, size, stride, dilation, lower=mode == "SAME_LOWER")


def _settings(node: Node, image: Tensor, size: Sequence[int]) -> dict[str, Any]:
    return {"stride": node.attr("strides", [1] * len(size)), "pads": _pads(node, image.shape[2:], size)}


def _dilated_settings(node: Node, image: Tensor, size: Sequence[int]) -> dict[str, Any]:
    return _settings(node, image, size) | {"dilation": node.attr("dilations", [1] * len(size))}


def _convolution(node: Node, x: Value, weight: Value, bias: Value | None = None) -> Tensor:
    image = as_tensor(x)
    settings = _dilated_settings(node, image, weight.shape[2:])
    return forms.convolution(image, weight, bias, groups=int(node.attr("group", 1)), **settings)


def _transposed_convolution(node: Node, x: Value, weight: Value, bias: Value | None = None) -> Tensor:
    image, size = as_tensor(x), weight.shape[2:]
    output_padding = node.attr("output_padding", [0] * len(size))
    settings: dict[str, Any] = _dilated_settings(node, image, size) | {
        "pads": _cuts(node, image.shape[2:], size, output_padding)
    }
    groups = int(node.attr("group", 1))
    return forms.transposed_convolution(image, weight, bias, groups=groups, output_padding=output_padding, **settings)


def _cuts(
    node: Node, extent: Sequence[int], size: Sequence[int], output_padding: Sequence[int]
) -> list[tuple[int, int]]:
    """Return what is cut off a transposed convolution; it follows from output_shape if that is given."""
    rank, mode = len(size), node.attr("auto_pad", "NOTSET")
    output_shape = node.attr("output_shape")
    stride, dilation = node.attr("strides", [1] * rank), node.attr("dilations", [1] * rank)
    if output_shape is None and mode in ("NOTSET", "VALID", ""):
        return _pads(node, extent, size)
    cuts = []
    for i, length in enumerate(extent):
        target = length * stride[i] if output_shape is None else output_shape[-rank + i]
        total = stride[i] * (length - 1) + output_padding[i] + (size[i] - 1) * dilation[i] + 1 - target
        half = total // 2
        cuts.append((half, total - half) if mode == "SAME_UPPER" else (total - half, half))
    return cuts


def _max_pool(node: Node, x: Value) -> Tensor:
    if node.outputs > 1:
        raise NoForm("the output Indices is not supported; the engine's pool gives the values only. Remove the output")
    image, size = as_tensor(x), node.attr("kernel_shape")
    return forms.max_pool(image, size, ceil=bool(node.attr("ceil_mode", 0)), **_dilated_settings(node, image, size))


def _average_pool(node: Node, x: Value) -> Tensor:
    image, size = as_tensor(x), node.attr("kernel_shape")
    ceil, count = bool(node.attr("ceil_mode", 0)), bool(node.attr("count_include_pad", 0))
    return forms.average_pool(image, size, ceil=ceil, count_pad=count, **_dilated_settings(node, image, size))


def _norm_pool(node: Node, x: Value) -> Tensor:
    """The norm of each window."""
    image, size, p = as_tensor(x), node.attr("kernel_shape"), _order(node)
    settings: dict[str, Any] = _dilated_settings(node, image, size) | {"ceil": bool(node.attr("ceil_mode", 0))}
    powers = {1: Tensor.abs, 2: Tensor.square}.get(p, lambda t: t.abs().pow(float(p)))(image)
    return _root(forms.window_sum(powers, size, **settings), p)


def _order(node: Node) -> int:
    p = int(node.attr("p", 2))
    if p < 1:
        raise LoadError(f"p is {p}; it must be 1 or more")
    return p


def _root(x: Tensor, p: int) -> Tensor:
    return x if p == 1 else x.sqrt() if p == 2 else x.pow(1.0 / p)


def _global_norm_pool(node: Node, x: Value) -> Tensor:
    image, p = as_tensor(x), _order(node)
    axes = tuple(range(2, image.ndim))
    if p == 1:
        return image.l1_norm(axes)
    return _root(image.sum_square(axes) if p == 2 else image.abs().pow(float(p)).sum(axes), p)


def _global_pool(function: Callable[[Tensor, tuple[int, ...]], Tensor]) -> Rule:
    return lambda node, x: function(as_tensor(x), tuple(range(2, as_tensor(x).ndim)))


def _depth_to_space(node: Node, x: Value) -> Tensor:
    """The block is the outer part of the channels (DCR) or the inner part (CRD). CRD is a pixel shuffle."""
    image, block = as_tensor(x), int(node.attr("blocksize"))
    if block < 1 or image.ndim != 4 or image.shape[1] % (block * block):
        raise LoadError(
            f"blocksize {block} does not fit an input of shape {list(image.shape)}; the input must have rank 4, and "
            "blocksize squared must divide its channels"
        )
    if node.attr("mode", "DCR") != "CRD":
        image = _swap_channel_factors(image, block * block)
    return af.pixel_shuffle(image, block)


def _space_to_depth(node: Node, x: Value) -> Tensor:
    image, block = as_tensor(x), int(node.attr("blocksize"))
    blocks = af.pixel_unshuffle(image, block)
    return blocks if node.attr("mode", "DCR") == "CRD" else _swap_channel_factors(blocks, image.shape[1])


def _swap_channel_factors(x: Tensor, outer: int) -> Tensor:
    """Reorder channels from outer x inner to inner x outer."""
    n, c, h, w = x.shape
    return x.reshape(n, outer, c // outer, h, w).transpose([0, 2, 1, 3, 4]).reshape(n, c, h, w)


def _col2im(node: Node, x: Value, image: Value, block: Value) -> Tensor:
    """Sum overlapping blocks: a transposed convolution whose kernels each place one element."""
    columns, extent, size = (
        as_tensor(x),
        whole_numbers(image, "input 'image_shape'"),
        whole_numbers(block, "input 'block_shape'"),
    )
    rank, area = len(size), math.prod(size)
    if min(*size, *extent, *node.attr("strides", [1])) < 1 or len(extent) != rank:
        raise LoadError(
            f"block_shape {size} does not fit image_shape {extent}; both need the same rank, and sizes and strides of "
            "1 or more"
        )
    settings: dict[str, Any] = _dilated_settings(node, columns, size) | {"pads": _pads(node, extent, size)}
    stride, dilation = settings["stride"], settings["dilation"]
    reach = [dilation[i] * (size[i] - 1) + 1 for i in range(rank)]
    room = [extent[i] + sum(settings["pads"][i]) - reach[i] for i in range(rank)]
    blocks = [room[i] // stride[i] + 1 for i in range(rank)]
    channels = columns.shape[1] // area
    if area * columns.shape[1] > _MOST_WEIGHTS or min(blocks) < 1 or columns.shape[1] % area:
        raise LoadError(
            f"block_shape {size} does not fit {columns.shape[1]} channels and image_shape {extent}; a block must fit "
            "in the image, and its size must divide the channels"
        )
    kernel = np.tile(np.eye(area).reshape(area, 1, *size), (channels, 1, *(1,) * rank))
    places = columns.reshape(columns.shape[0], columns.shape[1], *blocks)
    output_padding = [room[i] % stride[i] for i in range(rank)]
    return forms.transposed_convolution(places, kernel, groups=channels, output_padding=output_padding, **settings)


RULES: dict[str, Rule] = {
    "AveragePool": _average_pool,
    "Col2Im": _col2im,
    "Conv": _convolution,
    "ConvTranspose": _transposed_convolution,
    "DepthToSpace": _depth_to_space,
    "GlobalAveragePool": _global_pool(lambda x, axes: x.mean(axes)),
    "GlobalLpPool": _global_norm_pool,
    "GlobalMaxPool": _global_pool(lambda x, axes: x.amax(axes)),
    "LpPool": _norm_pool,
    "MaxPool": _max_pool,
    "SpaceToDepth": _space_to_depth,
}
