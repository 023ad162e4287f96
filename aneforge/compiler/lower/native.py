"""Native layers reached by direct authoring, in the layout each layer wants."""

from __future__ import annotations

import numpy as np

from aneforge.anec import Op
from aneforge.compiler.lower.builder import AXES_OF_RANK, Builder, layout, rule
from aneforge.graph.tensor import Tensor

_HEADS_TO_HEIGHT = (0, 1, 3, 2, 4)
_POINTS_TO_WIDTH = (0, 1, 4, 3, 2)
_ONE = (1, 1, 1, 1, 1)


@rule("sdpa")
def _sdpa(b: Builder, node: Tensor) -> Op:
    """Channels hold the sequence and height the heads, so C and H change places on the way in and out.

    The scale is a stored constant of the layer, so it is an fp16 number here already.
    """
    attrs = dict(node.signature.attrs)
    q, k, v, *mask = node.inputs
    operands = [b.transposed(b.value(operand), _HEADS_TO_HEIGHT) for operand in (q, k, v)]
    operands.append(b.constant(attrs["scale"], _ONE))
    rows, columns = q.shape[2], k.shape[2]
    plane = b.laid(mask[0], (rows, columns)) if mask else None
    if attrs["is_causal"]:
        future = b.constant(np.triu(np.full((rows, columns), -np.inf), 1), layout((rows, columns)))
        plane = future if plane is None else b.emit("add", (plane, future), plane.shape)
    if plane is not None:
        operands.append(plane)
    attended = b.emit("sdpa", operands, operands[0].shape, {"subtract_max": True})
    return b.transposed(attended, _HEADS_TO_HEIGHT)


@rule("topk")
def _topk(b: Builder, node: Tensor) -> Op:
    (_, k), (_, largest) = node.signature.attrs
    kind = "Max" if largest else "Min"
    x = b.value(node.inputs[0])
    return b.unit("TopK", (x,), layout(node.shape), K=k, Type=kind, SortDimension="Width", VectorDimension="Channel")


@rule("sort")
def _sort(b: Builder, node: Tensor) -> Op:
    (_, descending), (_, indices) = node.signature.attrs
    x = b.value(node.inputs[0])
    return b.unit(
        "Sort",
        (x,),
        x.shape,
        Direction="Descending" if descending else "Ascending",
        SortDimension="Width",
        VectorDimension="Channel",
        Indices=indices,
    )


@rule("argmax")
def _argmax(b: Builder, node: Tensor) -> Op:
    x = b.value(node.inputs[0])
    place = AXES_OF_RANK[2][node.signature.attrs[0][1]]
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
    """The map and the template as planes of one channel."""
    x, template = node.inputs
    rows, columns = node.shape
    operands = (b.laid(x, (1, 1, *x.shape)), b.laid(template, (1, 1, *template.shape)))
    sizes = {"TemplateHeight": template.shape[0], "TemplateWidth": template.shape[1]}
    scores = b.unit("CrossCorrelation", operands, (1, 1, 1, rows, columns), **sizes)
    return b.reshaped(scores, (1, 1, rows, columns), node.shape)


@rule("cost_volume")
def _cost_volume(b: Builder, node: Tensor) -> Op:
    operands = [b.vector(operand, 4) for operand in node.inputs]
    reach = node.signature.attrs[0][1]
    return b.unit("CostVolume", operands, layout(node.shape), DisparityRange=reach, DisparityDirection=0)


def _points(b: Builder, node: Tensor) -> Op:
    """[N, 3] as three channels of N columns."""
    return b.transposed(b.value(node), _POINTS_TO_WIDTH)


@rule("fps")
def _fps(b: Builder, node: Tensor) -> Op:
    k = node.signature.attrs[0][1]
    shape = (1, 1, 3, 1, k)
    samples = b.unit(
        "FurthestPointSampling", (_points(b, node.inputs[0]),), shape, CentroidCount=k, DistanceMetric="L2"
    )
    return b.transposed(samples, _POINTS_TO_WIDTH)


@rule("radius_search")
def _radius_search(b: Builder, node: Tensor) -> Op:
    points, centroids = node.inputs
    operands = (_points(b, centroids), _points(b, points))
    return b.unit("RadiusSearch", operands, layout(node.shape), Radius=node.signature.attrs[0][1])


@rule("minmax_norm")
def _minmax(b: Builder, node: Tensor) -> Op:
    (_, dimension), (_, eps) = node.signature.attrs
    x = b.value(node.inputs[0])
    return b.unit("MinMaxNormalization", (x,), x.shape, Dimension=dimension, Epsilon=eps)


@rule("scaled_elementwise")
def _scaled(b: Builder, node: Tensor) -> Op:
    (_, kind), (_, scale) = node.signature.attrs
    operands = [b.value(operand) for operand in node.inputs]
    return b.emit("scaled_elementwise", operands, layout(node.shape), {"mode": kind, "scale": float(scale)})


@rule("affine")
def _affine(b: Builder, node: Tensor) -> Op:
    x, transform = node.inputs
    height, width, corners = (value for _, value in node.signature.attrs)
    sizes = {"Height": height, "Width": width, "AlignCorners": corners}
    return b.unit("AffineTransform", (b.value(x), b.value(transform)), layout(node.shape), **sizes)


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
