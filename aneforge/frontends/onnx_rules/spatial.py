"""Convolutions, pools and resampling over the spatial axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import aneforge as af
from aneforge.frontends import LoadError, forms
from aneforge.frontends.onnx_node import Node, Rule, Value
from aneforge.frontends.values import along_axis, as_tensor, axis_of, known
from aneforge.graph.tensor import Tensor

__all__ = ["RULES"]

Array = np.ndarray


def _pads(node: Node, extent: Sequence[int], size: Sequence[int]) -> list[tuple[int, int]]:
    """Zeros before and after each spatial axis."""
    rank = len(size)
    mode = node.attr("auto_pad", "NOTSET")
    if mode in ("NOTSET", ""):
        pads = node.attr("pads", [0] * (2 * rank))
        return [(int(pads[i]), int(pads[i + rank])) for i in range(rank)]
    if mode == "VALID":
        return [(0, 0)] * rank
    stride, dilation = node.attr("strides", [1] * rank), node.attr("dilations", [1] * rank)
    return forms.same_pads(extent, size, stride, dilation, lower=mode == "SAME_LOWER")


def _settings(node: Node, given: Tensor, size: Sequence[int]) -> dict[str, Any]:
    stride = node.attr("strides", [1] * len(size))
    return {"stride": stride, "pads": _pads(node, given.shape[2:], size)}


def _convolution(node: Node, x: Value, weight: Value, bias: Value | None = None) -> Tensor:
    given = as_tensor(x)
    settings = _settings(node, given, weight.shape[2:])
    groups, dilation = int(node.attr("group", 1)), node.attr("dilations")
    return forms.convolution(given, weight, bias, groups=groups, dilation=dilation, **settings)


def _transposed_convolution(node: Node, x: Value, weight: Value, bias: Value | None = None) -> Tensor:
    if node.attr("auto_pad", "NOTSET") not in ("NOTSET", "VALID") or node.attr("output_shape"):
        raise LoadError("padding of a transposed convolution that follows from its result")
    given = as_tensor(x)
    settings = _settings(node, given, weight.shape[2:])
    settings |= {"groups": int(node.attr("group", 1)), "dilation": node.attr("dilations")}
    return forms.transposed_convolution(given, weight, bias, output_padding=node.attr("output_padding"), **settings)


def _max_pool(node: Node, x: Value) -> Tensor:
    if node.outputs > 1:
        raise LoadError("positions of a pool")
    given, size = as_tensor(x), node.attr("kernel_shape")
    settings = _settings(node, given, size)
    ceil, dilation = bool(node.attr("ceil_mode", 0)), node.attr("dilations")
    return forms.max_pool(given, size, ceil=ceil, dilation=dilation, **settings)


def _average_pool(node: Node, x: Value) -> Tensor:
    given, size = as_tensor(x), node.attr("kernel_shape")
    if any(each != 1 for each in node.attr("dilations", [1])):
        raise LoadError("dilations of a pool")
    settings = _settings(node, given, size)
    ceil, count = bool(node.attr("ceil_mode", 0)), bool(node.attr("count_include_pad", 0))
    return forms.average_pool(given, size, ceil=ceil, count_pad=count, **settings)


def _power_pool(node: Node, x: Value) -> Tensor:
    """The second norm of a window: the mean of its squares, times their number, under a root."""
    if int(node.attr("p", 2)) != 2 or any(node.attr("pads", [0])) or node.attr("auto_pad", "NOTSET") != "NOTSET":
        raise LoadError("a norm pool other than the second norm of whole windows")
    mean = _average_pool(node, as_tensor(x).square())
    return (mean * float(np.prod(node.attr("kernel_shape")))).sqrt()


def _global_pool(function: Callable[[Tensor, tuple[int, ...]], Tensor]) -> Rule:
    return lambda node, x: function(as_tensor(x), tuple(range(2, as_tensor(x).ndim)))


def _resize(
    node: Node, x: Value, roi: Value | None = None, scales: Value | None = None, sizes: Value | None = None
) -> Tensor:
    """Each axis on its own: a product with the weights that the reference evaluator gives for it, whatever its way of
    counting pixels is."""
    given = as_tensor(x)
    if node.opset < 11:
        scales, sizes = roi, None
    if node.attr("coordinate_transformation_mode", "half_pixel") == "tf_crop_and_resize":
        raise LoadError("a resize of a region: cut the region out first")
    if node.attr("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise LoadError("a resize whose sizes follow from its proportions: give them")
    axes = [axis_of(int(each), given.ndim) for each in node.attr("axes", range(given.ndim))]
    by_size = sizes is not None and known(sizes, "the sizes").size > 0
    told = known(sizes, "the sizes") if by_size else known(scales, "the scales")
    for axis, each in zip(axes, told.reshape(-1).tolist(), strict=True):
        extent = given.shape[axis]
        if (by_size and int(each) == extent) or (not by_size and float(each) == 1.0):
            continue
        given = along_axis(given, axis, _resize_weights(node, extent, each, by_size))
    return given


def _resize_weights(node: Node, extent: int, told: float, by_size: bool) -> Array:
    """[out, in]: what the reference evaluator makes of every unit signal of a line."""
    from onnx import TensorProto, helper
    from onnx.reference import ReferenceEvaluator

    kept = ("mode", "coordinate_transformation_mode", "nearest_mode", "cubic_coeff_a", "exclude_outside", "antialias")
    settings = {name: node.attrs[name] for name in kept if name in node.attrs}
    if node.opset < 11:
        settings |= {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    ports = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [extent, extent])]
    told_as = np.array([extent, told], np.int64) if by_size else np.array([1.0, told], np.float32)
    stored = [helper.make_tensor("told", TensorProto.INT64 if by_size else TensorProto.FLOAT, [2], told_as)]
    inputs = ["x", "", "", "told"] if by_size else ["x", "", "told"]
    made = helper.make_node("Resize", inputs, ["y"], **settings)
    graph = helper.make_graph([made], "line", ports, [helper.make_empty_tensor_value_info("y")], stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", max(node.opset, 13))])
    lines = ReferenceEvaluator(model).run(None, {"x": np.eye(extent, dtype=np.float32)})
    return np.asarray(next(iter(lines))).T


def _depth_to_space(node: Node, x: Value) -> Tensor:
    """The blocks are the slowest part of the channels (DCR), or the fastest (CRD), which is a pixel shuffle."""
    given, block = as_tensor(x), int(node.attr("blocksize"))
    if node.attr("mode", "DCR") != "CRD":
        given = _channels_turned(given, block * block)
    return af.pixel_shuffle(given, block)


def _space_to_depth(node: Node, x: Value) -> Tensor:
    given, block = as_tensor(x), int(node.attr("blocksize"))
    found = af.pixel_unshuffle(given, block)
    return found if node.attr("mode", "DCR") == "CRD" else _channels_turned(found, given.shape[1])


def _channels_turned(x: Tensor, outer: int) -> Tensor:
    """Channels counted as outer x inner, counted as inner x outer."""
    n, c, h, w = x.shape
    return x.reshape(n, outer, c // outer, h, w).transpose([0, 2, 1, 3, 4]).reshape(n, c, h, w)


RULES: dict[str, Rule] = {
    "AveragePool": _average_pool,
    "Conv": _convolution,
    "ConvTranspose": _transposed_convolution,
    "DepthToSpace": _depth_to_space,
    "GlobalAveragePool": _global_pool(lambda x, axes: x.mean(axes)),
    "GlobalMaxPool": _global_pool(lambda x, axes: x.amax(axes)),
    "LpPool": _power_pool,
    "MaxPool": _max_pool,
    "Resize": _resize,
    "SpaceToDepth": _space_to_depth,
    "Upsample": _resize,
}
