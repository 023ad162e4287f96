"""Native layers reached by direct authoring, in the layout each layer wants."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from aneforge.compiler.lower.builder import Builder, laid_at, layout, places_of, rule
from aneforge.engine.ir import Op
from aneforge.engine.native import AXES, AXIS_NAMES, PLACES_OF_RANK
from aneforge.graph.ops.layers import attention_axes
from aneforge.graph.tensor import Tensor

_HEADS_TO_HEIGHT = (0, 1, 3, 2, 4)
_AS_IT_IS = (0, 1, 2, 3, 4)
_POINTS_TO_WIDTH = (0, 1, 4, 3, 2)
_ONE = (1, 1, 1, 1, 1)


@rule("sdpa")
def _sdpa(b: Builder, node: Tensor) -> Op:
    """Channels hold the sequence and height the heads: where the heads come first, C and H change places on the way
    in and out.

    The scale is a stored constant of the layer, so it is an fp16 number here already.
    """
    attrs = dict(node.signature.attrs)
    q, k, v, *mask = node.inputs
    order = _HEADS_TO_HEIGHT if attrs["heads_first"] else _AS_IT_IS
    operands = [b.transposed(b.value(operand), order) for operand in (q, k, v)]
    operands.append(b.constant(attrs["scale"], _ONE))
    _, sequence = attention_axes(attrs["heads_first"])
    rows, columns = q.shape[sequence], k.shape[sequence]
    plane = b.laid(mask[0], (rows, columns)) if mask else None
    if attrs["is_causal"]:
        future = b.constant(np.triu(np.full((rows, columns), -np.inf), 1), layout((rows, columns)))
        plane = future if plane is None else b.emit("add", (plane, future), plane.shape)
    if plane is not None:
        operands.append(plane)
    settings = {"subtract_max": True} if attrs["subtract_max"] else {}
    attended = b.emit("sdpa", operands, operands[0].shape, settings)
    return b.transposed(attended, order)


def _named(b: Builder, node: Tensor, axis: int) -> str:
    """The name that parameters have for an axis of the first operand."""
    place = places_of(node.inputs[0].shape)[axis]
    if AXIS_NAMES[place] not in AXES:
        raise b.refuse(node, "the batch axis has no name in the layer's parameters; lay it on another axis")
    return AXIS_NAMES[place]


def _ranking(b: Builder, node: Tensor, layer: str, indices: bool, **settings: Any) -> Op:
    """Vectors along one axis in the order of their key lanes. Rows that are ordered on their own are vectors of one:
    their height."""
    attrs = dict(node.signature.attrs)
    lanes = "Height" if attrs["lanes"] is None else _named(b, node, attrs["lanes"])
    order = {"SortDimension": _named(b, node, attrs["axis"]), "VectorDimension": lanes, "SortIndices": attrs["keys"]}
    x = b.value(node.inputs[0])
    shape = laid_at(node.shape, places_of(node.inputs[0].shape))
    return b.unit(layer, (x,), shape, **settings, **order, Indices=indices)


@rule("topk")
def _topk(b: Builder, node: Tensor) -> Op:
    attrs = dict(node.signature.attrs)
    kind = "Max" if attrs["largest"] else "Min"
    return _ranking(b, node, "TopK", attrs["indices"], K=attrs["k"], Type=kind)


@rule("sort")
def _sort(b: Builder, node: Tensor) -> Op:
    attrs = dict(node.signature.attrs)
    direction = "Descending" if attrs["descending"] else "Ascending"
    return _ranking(b, node, "Sort", attrs["return_indices"], Direction=direction)


@rule("arg_min_max")
def _arg_min_max(b: Builder, node: Tensor) -> Op:
    attrs = dict(node.signature.attrs)
    settings = {
        "axes": (2,) if attrs["mode"].startswith("Channel") else (3, 4),
        "kernel_size": attrs["kernel"],
        "stride_values": attrs["stride"],
        "pad_values": attrs["pad"],
        "mode": attrs["mode"],
    }
    return b.emit("arg_min_max", (b.value(node.inputs[0]),), layout(node.shape), settings)


@rule("global_arg")
def _global_arg(b: Builder, node: Tensor) -> Op:
    attrs = dict(node.signature.attrs)
    places = places_of(node.inputs[0].shape)
    settings = {
        "axis": places[attrs["axis"]],
        "mode": "Max" if attrs["largest"] else "Min",
    }
    return b.emit("global_arg_min_max", (b.value(node.inputs[0]),), laid_at(node.shape, places), settings)


@rule("argmax")
def _argmax(b: Builder, node: Tensor) -> Op:
    x = b.value(node.inputs[0])
    place = PLACES_OF_RANK[2][node.signature.attrs[0][1]]
    channel = place == 2
    attrs = {
        "axes": (place,),
        "kernel_size": (1, 1) if channel else (1, x.shape[4]),
        "stride_values": (1, 1),
        "pad_values": (0, 0, 0, 0),
        "mode": "ChannelArgMax" if channel else "SpatialArgMax",
    }
    return b.emit("arg_min_max", (x,), layout(node.shape), attrs)


@rule("cross_product")
def _cross_product(b: Builder, node: Tensor) -> Op:
    """Three channels on each side (layers.json CrossProduct)."""
    product = b.unit("CrossProduct", [b.vector(operand) for operand in node.inputs], (1, 1, 3, 1, 1))
    return b.stored_reshape(product, layout(node.shape))


@rule("cross_correlation")
def _cross_correlation(b: Builder, node: Tensor) -> Op:
    """Maps and templates on the channels; rank 2 is one of each."""
    attrs = dict(node.signature.attrs)
    operands = [b.laid(operand, (1,) * (4 - len(operand.shape)) + operand.shape) for operand in node.inputs]
    *_, height, width = node.inputs[1].shape
    shape = (1,) * (4 - len(node.shape)) + node.shape
    settings = {"TemplateHeight": height, "TemplateWidth": width, "NumGroups": attrs["groups"]}
    sides = dict(zip(("PadTop", "PadBot", "PadLeft", "PadRight"), attrs["pad"], strict=True))
    scores = b.unit("CrossCorrelation", operands, layout(shape), **settings, **sides)
    return b.reshaped(scores, shape, node.shape)


@rule("cost_volume")
def _cost_volume(b: Builder, node: Tensor) -> Op:
    rows = len(node.shape) == 4
    operands = [b.value(operand) if rows else b.vector(operand, 4) for operand in node.inputs]
    reach = node.signature.attrs[0][1]
    return b.unit("CostVolume", operands, layout(node.shape), DisparityRange=reach, DisparityDirection=0)


def _points(b: Builder, node: Tensor) -> Op:
    """Three channels of N columns: [1, 3, 1, N] as it is, [N, 3] transposed."""
    value = b.value(node)
    return value if len(node.shape) == 4 else b.transposed(value, _POINTS_TO_WIDTH)


@rule("fps")
def _fps(b: Builder, node: Tensor) -> Op:
    k = node.signature.attrs[0][1]
    shape = (1, 1, 3, 1, k)
    points = _points(b, node.inputs[0])
    samples = b.unit("FurthestPointSampling", (points,), shape, CentroidCount=k, DistanceMetric="L2")
    return samples if len(node.shape) == 4 else b.transposed(samples, _POINTS_TO_WIDTH)


@rule("radius_search")
def _radius_search(b: Builder, node: Tensor) -> Op:
    points, centroids = node.inputs
    operands = (_points(b, centroids), _points(b, points))
    return b.unit("RadiusSearch", operands, layout(node.shape), Radius=node.signature.attrs[0][1])


@rule("dynamic_slice")
def _dynamic_slice(b: Builder, node: Tensor) -> Op:
    """A start for each axis, in the order in which the axes are named; the flattened elements lie along the width."""
    x, start = node.inputs
    (_, sizes), (_, axes) = node.signature.attrs
    line = b.laid(x, (math.prod(x.shape),)) if axes is None else b.value(x)
    names = ["Width"] if axes is None else [_named(b, node, axis) for axis in axes]
    info = [{"Coordinate": name, "SliceSize": size} for name, size in zip(names, sizes, strict=True)]
    operands = (line, b.vector(start, 4))
    settings = {"DynamicSliceAxisOrder": names, "DynamicSliceInfo": info}
    shape = layout(node.shape) if axes is None else laid_at(node.shape, places_of(x.shape))
    return b.unit("DynamicSlice", operands, shape, **settings)


@rule("gather_places")
def _gather_places(b: Builder, node: Tensor) -> Op:
    """The channels of the index hold one index for each axis, its height the places; the op gives the places first and
    the rest of each behind them (U89)."""
    (_, axes), (_, indices) = node.signature.attrs
    lines = np.array(indices, np.float64).T
    if (lines.astype(np.float16) != lines).any():
        raise b.refuse(node, f"index {int(lines.max())} is not a number of fp16; indices must be 2048 or less")
    index = b.constant(lines, (1, 1, len(axes), len(indices), 1))
    attrs = {"axes": tuple(PLACES_OF_RANK[4][axis] for axis in axes)}
    return b.emit("gather_nd", (b.value(node.inputs[0]), index), layout(node.shape), attrs)


@rule("ring_write")
def _ring_write(b: Builder, node: Tensor) -> Op:
    x, state = (b.value(operand) for operand in node.inputs)
    offset = node.signature.attrs[0][1] % state.shape[4]
    return b.emit("ring_buffer_writer", (x, state), state.shape, {"offset": offset})


@rule("ring_read")
def _ring_read(b: Builder, node: Tensor) -> Op:
    (_, offset), (_, size) = node.signature.attrs
    state = b.value(node.inputs[0])
    attrs = {"offset": offset % state.shape[4], "size": size}
    return b.emit("ring_buffer_reader", (state,), layout(node.shape), attrs)


@rule("dropout")
def _dropout(b: Builder, node: Tensor) -> Op:
    """Rate zero is the identity, as the layer has it; the seed and the shape repeat the graph's own choice."""
    (_, rate), (_, seed) = node.signature.attrs
    x = b.value(node.inputs[0])
    return x if rate == 0 else b.unit("Dropout", (x,), x.shape, Rate=rate, Seed=seed, Shape=node.shape)


@rule("random_uniform")
def _random(b: Builder, node: Tensor) -> Op:
    _, (_, low), (_, high), (_, seed) = node.signature.attrs
    shape = layout(node.shape)
    return b.unit("RandomGenerator", (), shape, Low=low, High=high, Seed=seed, Shape=node.shape, Layout=shape)
