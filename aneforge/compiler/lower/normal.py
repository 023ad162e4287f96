"""Reductions, softmax and the normalisations."""

from __future__ import annotations

from typing import Any

import numpy as np

from aneforge.compiler.lower.builder import Builder, C, D, H, N, W, has_room, layout, places_of, rule
from aneforge.compiler.lower.pointwise import pointwise
from aneforge.engine.ir import Op
from aneforge.engine.spec import POINT_CONVOLUTION
from aneforge.graph.node import Shape, definition, ops_with
from aneforge.graph.tensor import Tensor
from aneforge.graph.traits import GraphTrait


def _axes(node: Tensor) -> tuple[int, ...]:
    """The reduced axes in NDCHW."""
    attrs = dict(node.signature.attrs)
    reduced = attrs["axes"] if "axes" in attrs else (attrs["axis"],)
    places = places_of(node.inputs[0].shape)
    return tuple(sorted(places[axis] for axis in reduced))


def _reduce(b: Builder, kind: str, x: Op, axes: tuple[int, ...], **attrs: Any) -> Op:
    """One reduction, every reduced axis kept as one; where the batch is reduced, it lies on another axis.

    Where no such layout fits, the batch comes last: a sum of sums, a mean of means of equal length.
    """
    shape = _without(x.shape, axes)
    if axes[0] == N:
        moved = _off_batch(b, x, axes)
        if moved is None:
            return _reduce(b, kind, _reduce(b, kind, x, axes[1:], **attrs), (N,))
        x, axes = moved
    reduced = b.emit(kind, (x,), _without(x.shape, axes), {"axes": axes, **attrs})
    return b.stored_reshape(reduced, shape)


def _without(shape: Shape, axes: tuple[int, ...]) -> Shape:
    return tuple(1 if i in axes else extent for i, extent in enumerate(shape))


def _off_batch(b: Builder, x: Op, axes: tuple[int, ...]) -> tuple[Op, tuple[int, ...]] | None:
    """The layer reduces D, C, H and W (layers.json Reduction), so the batch joins a neighbour in another layout.

    Neighbours that are both reduced or both kept become one axis; no element moves unless a volume keeps its depth
    between reduced axes. The result has a batch of one, so its elements lie as those of the user's own result do.
    None where a joined axis is longer than every chip has room for.
    """
    n, d, c, h, w = x.shape
    rest = axes[1:]
    if not rest:
        return b.off_batch(x)[0], (C,)
    if n == 1:
        return x, rest
    if d > 1 and D not in rest and (C in rest or H in rest):
        return b.transposed(x, (D, N, C, H, W)), (D, *rest)
    if d > 1 and D not in rest:
        shape, places = (1, 1, n, d * c * h, w), (C, *rest)
    else:
        shape, places = _led((n * d, c, h, w), tuple(axis for axis in rest if axis != D))
    return (b.stored_reshape(x, shape), places) if has_room(shape) else None


def _led(image: Shape, rest: tuple[int, ...]) -> tuple[Shape, tuple[int, ...]]:
    """A leading axis that is reduced, and some of C, H and W behind it: a layout, and where the reduced axes lie."""
    lead, c, h, w = image
    if C in rest:
        return (1, 1, lead * c, h, w), rest
    if H not in rest:
        return (1, 1, lead, c * h, w), (C, *rest)
    if W in rest:
        return (1, 1, lead, c, h * w), (C, W)
    return (1, lead, c, h, w), (D, H)


@rule(*(name for name in ops_with(GraphTrait.REDUCTION) if definition(name).backend))
def _reduction(b: Builder, node: Tensor) -> Op:
    row = node.definition.in_backend
    assert row is not None
    return _reduce(b, row.name, b.value(node.inputs[0]), _axes(node), **row.constants)


@rule("l1_norm")
def _l1_norm(b: Builder, node: Tensor) -> Op:
    return _reduce(b, "reduce_sum", pointwise(b, "abs", b.value(node.inputs[0])), _axes(node))


@rule("log_sum")
def _log_sum(b: Builder, node: Tensor) -> Op:
    total = _reduce(b, "reduce_sum", b.value(node.inputs[0]), _axes(node))
    return pointwise(b, "log2", total, base_e=True)


@rule("reduce_log_sum_exp")
def _log_sum_exp(b: Builder, node: Tensor) -> Op:
    """log(sum(exp(x))) without subtracting the maximum: chips were seen to overflow where the sum does (U49)."""
    powers = pointwise(b, "exp2", b.value(node.inputs[0]), base_e=True)
    return pointwise(b, "log2", _reduce(b, "reduce_sum", powers, _axes(node)), base_e=True)


@rule("softmax")
def _softmax(b: Builder, node: Tensor) -> Op:
    """Along D, C, H or W (layers.json Softmax). A softmax over the batch has the batch laid on the channels."""
    x, axes = b.value(node.inputs[0]), _axes(node)
    if axes != (N,):
        return b.emit("softmax", (x,), x.shape, {"axes": axes})
    flat, shape = b.off_batch(x)
    return b.stored_reshape(b.emit("softmax", (flat,), flat.shape, {"axes": (C,)}), shape)


def _eps(node: Tensor) -> float:
    return float(dict(node.signature.attrs)["eps"])


@rule("layer_norm")
def _layer_norm(b: Builder, node: Tensor) -> Op:
    """The last axis of any rank lies on W, and so do the gain and the offset."""
    x, gamma, beta = node.inputs
    operands = (b.value(x), b.vector(gamma, 4), b.vector(beta, 4))
    return b.emit("layer_norm", operands, layout(node.shape), {"axes": (4,), "epsilon": _eps(node)})


@rule("channel_layer_norm")
def _channel_layer_norm(b: Builder, node: Tensor) -> Op:
    return _per_channel(b, node, "layer_norm", {"axes": (2,), "epsilon": _eps(node)})


@rule("instance_norm")
def _instance_norm(b: Builder, node: Tensor) -> Op:
    axes = (1, 3, 4) if len(node.shape) == 5 else (3, 4)
    return _per_channel(b, node, "instance_norm", {"axes": axes, "epsilon": _eps(node)})


@rule("batch_norm")
def _batch_norm(b: Builder, node: Tensor) -> Op:
    return _per_channel(b, node, "batch_norm", {"epsilon": _eps(node)})


def _per_channel(b: Builder, node: Tensor, kind: str, attrs: dict[str, Any]) -> Op:
    x, shape = b.channels_first(node.inputs[0])
    normalised = b.emit(kind, (x, *(b.vector(operand) for operand in node.inputs[1:])), x.shape, attrs)
    return b.reshaped(normalised, shape, node.shape)


@rule("group_norm")
def _group_norm(b: Builder, node: Tensor) -> Op:
    """Layer norm with groups on the channels, which needs depth one: a volume's depth joins its rows."""
    x, gamma, beta = node.inputs
    shape = x.shape
    if len(shape) == 5:
        shape = (shape[0], shape[1], shape[2] * shape[3], shape[4])
        value = b.laid(x, shape)
    else:
        value, shape = b.channels_first(x)
    groups = dict(node.signature.attrs)["num_groups"]
    attrs = {"axes": (2, 3, 4), "epsilon": _eps(node), "groups": groups}
    normalised = b.emit("layer_norm", (value, b.vector(gamma), b.vector(beta)), value.shape, attrs)
    return b.reshaped(normalised, shape, node.shape)


@rule("rms_norm")
def _rms_norm(b: Builder, node: Tensor) -> Op:
    x = b.value(node.inputs[0])
    mean = _reduce(b, "reduce_avg", x, (4,), square_input=True)
    scaled = pointwise(b, "mult", x, pointwise(b, "r_sqrt", mean, epsilon=_eps(node)))
    return pointwise(b, "mult", scaled, b.vector(node.inputs[1], 4))


@rule("l2_norm")
def _l2_norm(b: Builder, node: Tensor) -> Op:
    x = b.value(node.inputs[0])
    total = _reduce(b, "reduce_sum", x, _axes(node), square_input=True)
    return pointwise(b, "mult", x, pointwise(b, "r_sqrt", total, epsilon=_eps(node)))


@rule("lrn")
def _native_response_norm(b: Builder, node: Tensor) -> Op:
    """The native layer; its window is as many channels as it normalises."""
    attrs = dict(node.signature.attrs)
    x, shape = b.channels_first(node.inputs[0])
    settings = {"Alpha": attrs["alpha"], "Beta": attrs["beta"], "K": attrs["k"]}
    normalised = b.unit(
        "LocalResponseNormalization", (x,), x.shape, Type="Channel", KernelChannel=attrs["channels"], **settings
    )
    return b.reshaped(normalised, shape, node.shape)


@rule("local_response_norm")
def _response_norm(b: Builder, node: Tensor) -> Op:
    """No backend op of its own: squares, their sums over a band of channels as a product, and a power of these.

    The sums have ones for weights and take alpha and k behind them, because alpha over the window is often below what
    a kernel of fp16 holds.
    """
    attrs = dict(node.signature.attrs)
    x, shape = b.channels_first(node.inputs[0])
    channels, size = x.shape[C], attrs["size"]
    before = (size - 1) // 2
    rows, columns = np.indices((channels, channels))
    band = (columns >= rows - before) & (columns <= rows + size - 1 - before)
    kernel = b.constant(band.astype(np.float16), (channels, 1, channels, 1, 1))
    total = b.emit("convolution", (pointwise(b, "square", x), kernel), x.shape, POINT_CONVOLUTION)
    shifted = pointwise(b, "gain_offset_control", total, gain=attrs["alpha"] / size, bias=attrs["k"])
    exponent = pointwise(b, "gain_offset_control", pointwise(b, "log2", shifted), gain=-attrs["beta"], bias=0.0)
    normalised = pointwise(b, "mult", x, pointwise(b, "exp2", exponent))
    return b.reshaped(normalised, shape, node.shape)
