"""The two ways to resize without a texture engine, as ops of the graph: a deconvolution, or a product along each axis.

Phase 2 does the same in the engine's language (``legalise/upsampling.py``), from the same numbers.
"""

from __future__ import annotations

from aneforge.compiler.legal.rewrites.context import Context
from aneforge.compiler.legal.rewrites.interpolation import (
    interpolation_kernel,
    kernel_size,
    passes_through,
    upsampling_kernel,
)
from aneforge.compiler.legal.rewrites.pieces import Cut, joined
from aneforge.graph.node import make, ops_with
from aneforge.graph.ops.contraction import conv, conv_transpose
from aneforge.graph.ops.leaf import CONST
from aneforge.graph.tensor import Tensor
from aneforge.graph.traits import GraphTrait

RESIZES = tuple(sorted(ops_with(GraphTrait.RESIZE)))


def resized_by_deconvolution(context: Context) -> Tensor:
    """A channel-wise deconvolution by whole factors, with its edges repeated once for linear sampling."""
    x, shape = context.inputs[0], context.node.shape
    linear = "bilinear" in context.node.op
    factors = shape[2] // x.shape[2], shape[3] // x.shape[3]
    kernel = make(CONST, weight=upsampling_kernel(x.shape[1], factors, linear))
    pads: list[int] = []
    for axis, factor in zip((2, 3), factors, strict=True):
        if linear and factor > 1:
            cut = Cut(x, axis)
            x = cut.whole(joined([cut.piece(0, 1), cut.x, cut.piece(x.shape[axis] - 1, 1)], cut.axis))
            pads += [factor + factor // 2, kernel_size(factor, linear) - factor // 2]
        else:
            pads += [0, 0]
    return conv_transpose(x, kernel, stride=factors, pad=pads, groups=x.shape[1])


def resized_by_products(context: Context) -> Tensor:
    """Each resized axis in turn on the channels, mixed there by a 1 x 1 convolution."""
    node, value = context.node, context.inputs[0]
    linear = "bilinear" in node.op
    method = "Linear" if linear else "NearestNeighbor"
    mode = "Default" if not linear else "StrictAlignedCorners" if node.attrs["align_corners"] else "UnalignedCorners"
    for axis in (2, 3):
        size, out = value.shape[axis], node.shape[axis]
        if not passes_through(size, out, mode):
            order = [0, 2, 1, 3] if axis == 2 else [0, 3, 2, 1]
            kernel = make(CONST, weight=interpolation_kernel(size, out, method, mode))
            value = conv(value.transpose(order), kernel).transpose(order)
    return value
