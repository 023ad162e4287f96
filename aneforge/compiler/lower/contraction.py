"""Convolutions and products (listings 22.1 and 22.2)."""

from __future__ import annotations

import math
from typing import Any

from aneforge.compiler.lower.builder import MOST_CHANNELS, Builder, layout, rule
from aneforge.engine.ir import Op
from aneforge.graph.node import Shape
from aneforge.graph.tensor import Tensor

_ROWS_TO_CHANNELS = (0, 1, 3, 2, 4)  # C and H exchanged: rows on C, the inner batch on H
_MATRIX = 2


@rule("conv", "dynamic_conv", "conv_transpose")
def _conv(b: Builder, node: Tensor) -> Op:
    x, weight, *bias = node.inputs
    attrs = dict(node.signature.attrs)
    stride, dilation, pad = attrs["stride"], attrs["dilation"], attrs["pad"]
    settings: dict[str, Any] = {
        "strides": (1, *stride),
        "dilation_rates": (1, *dilation),
        "explicit_padding": (0, 0, *pad),
        "kernel_sizes": (1, *weight.shape[2:]),
        "groups": attrs["groups"],
        "weights_layout": "OIHW",
        "padding_style": "EXPLICIT",
    }
    if attrs["groups"] > 1 and attrs["groups"] == x.shape[1]:
        settings["channel_wise"] = True
    kernel, stored = (b.value(weight), {}) if node.op != "conv" else b.kernel(weight, "kernel_palettized_LUT")
    operands = [b.value(x), kernel, *(b.vector(vector) for vector in bias)]
    settings |= stored
    kind = "deconvolution" if node.op == "conv_transpose" else "convolution"
    return b.emit(kind, operands, layout(node.shape), settings)


@rule("conv3d")
def _conv3d(b: Builder, node: Tensor) -> Op:
    attrs = dict(node.signature.attrs)
    x, weight, *bias = node.inputs
    settings = {
        "strides": attrs["stride"],
        "dilation_rates": attrs["dilation"],
        "explicit_padding": attrs["pad"],
        "kernel_sizes": weight.shape[2:],
        "groups": attrs["groups"],
        "weights_layout": "OIDHW",
        "padding_style": "EXPLICIT",
    }
    operands = [b.value(x), b.value(weight), *(b.vector(vector) for vector in bias)]
    return b.emit("convolution", operands, layout(node.shape), settings)


@rule("matmul")
def _matmul(b: Builder, node: Tensor) -> Op:
    left, right = node.inputs
    batch = node.shape[:-2]
    if math.prod(right.shape[:-2]) == 1 and left.shape[:-2] in (batch, batch[len(batch) - len(left.shape) + 2 :]):
        # One right-hand matrix for every row: the rows of all batches are channels, which costs two views at most.
        inner, columns = left.shape[-1], node.shape[-1]
        shape = _in_line(node.shape)
        flags: dict[str, Any] = {}
        if _turned(left) and math.prod(left.shape[:-2]) == 1:
            flags["transpose_lhs"] = True
            shape = left.shape[-2], columns
            a = b.laid(left.inputs[0], (inner, shape[0]))
        else:
            a = b.laid(left, (*shape[:-1], inner))
        if _turned(right):
            flags["transpose_rhs"] = True
            w = b.laid(right.inputs[0], (columns, inner))
        else:
            w = b.laid(right, (inner, columns))
        product = b.emit("matmul", (a, w), layout(shape), flags)
        return b.reshaped(product, shape, node.shape)
    return _batched_product(b, node, left, right)


def _turned(node: Tensor) -> bool:
    """Whether a node is a transpose of the last two axes, for which the product has a flag."""
    if node.op != "transpose":
        return False
    perm = node.signature.attrs[0][1]
    rank = len(perm)
    return rank >= _MATRIX and perm == (*range(rank - 2), rank - 1, rank - 2)


def _in_line(shape: Shape) -> Shape:
    """A result whose rows all meet one matrix: the rows as one line of channels. Where that is too long, the shape
    stays as it is, with some of the rows on H and N."""
    rows = math.prod(shape[:-1])
    return (rows, shape[-1]) if rows <= MOST_CHANNELS or len(shape) > 4 else shape


def _batched_product(b: Builder, node: Tensor, left: Tensor, right: Tensor) -> Op:
    """The last batch axis lies on H and the one before it on N; a value stored with rows on H is transposed."""
    batch = node.shape[:-2]
    flags: dict[str, Any] = {}
    operands = []
    for operand, flag in ((left, "transpose_lhs"), (right, "transpose_rhs")):
        source = operand
        if _turned(operand):
            source, flags[flag] = operand.inputs[0], True
        operands.append(_rows_on_channels(b, source, batch))
    n, h = _folded(batch)
    product = b.emit("matmul", operands, (n, 1, node.shape[-2], h, node.shape[-1]), flags)
    back = b.transposed(product, _ROWS_TO_CHANNELS)
    return b.reshaped(back, (n, h, *node.shape[-2:]), node.shape)


def _folded(batch: Shape) -> tuple[int, int]:
    """At most three batch axes as two: depth must be one, so a volume's channels and depth go together."""
    if len(batch) < 3:
        outer, inner = (1, 1, *batch)[-2:]
        return outer, inner
    return batch[0], batch[1] * batch[2]


def _rows_on_channels(b: Builder, node: Tensor, batch: Shape) -> Op:
    own = (1,) * (len(batch) - len(node.shape) + 2) + node.shape[:-2]
    matrix = node.shape[-2:]
    if len(batch) == 3 and own[1:] != batch[1:] and own[1:] != (1, 1):
        wide = (own[0], *batch[1:], *matrix)  # one of two folded axes stretches: spell it out
        value = b.laid(node, (*own, *matrix))
        value = b.emit("broadcast", (value,), layout(wide), {"shape": layout(wide)})
        value = b.reshaped(value, wide, (own[0], batch[1] * batch[2], *matrix))
    else:
        value = b.laid(node, (*_folded(own), *matrix))
    return b.transposed(value, _ROWS_TO_CHANNELS)


@rule("linear")
def _linear(b: Builder, node: Tensor) -> Op:
    """A stored weight contracts the width; one that arrives at run time is a product with the flag instead."""
    x, weight, *bias = node.inputs
    out = node.shape[-1]
    offset = [b.vector(vector, 4) for vector in bias]
    if b.is_const(weight):
        shape = x.shape
        if len(shape) == 5:  # "ANE cannot support Linear with input rank >= 5"
            shape = (shape[0], shape[1] * shape[2], *shape[3:])
        value = b.laid(x, shape)
        kernel, stored = b.kernel(weight, "kernel_lut")
        product = b.emit("linear", (value, kernel, *offset), (*value.shape[:4], out), stored)
        return b.reshaped(product, (*shape[:-1], out), node.shape)
    shape = _in_line(node.shape)
    operands = (b.laid(x, (*shape[:-1], x.shape[-1])), b.value(weight), *offset)
    product = b.emit("matmul", operands, layout(shape), {"transpose_rhs": True})
    return b.reshaped(product, shape, node.shape)


@rule("einsum")
def _einsum(b: Builder, node: Tensor) -> Op:
    """nchw,nwhu->nchu is the product itself: channels by width, height and batch alongside."""
    left, right = node.inputs
    return b.emit("matmul", (b.value(left), b.value(right)), layout(node.shape))
