"""The three strategies of a resize (table 35.3)."""

from __future__ import annotations

import numpy as np

from aneforge.compiler.facts import Facts
from aneforge.compiler.fuse.moves import pairs_of
from aneforge.compiler.legal.bounds import REORDERED, rounded_weights
from aneforge.compiler.legal.rewrites.functions import (
    exact_upsampling,
    fits_fp16,
    interpolation,
    interpolation_kernel,
    kernel_size,
    passes_through,
    upsampling_kernel,
)
from aneforge.compiler.legalise.relabel import Relayer, rewritten, typed, with_extents
from aneforge.compiler.lower.builder import reject_string
from aneforge.compiler.passes import pass_
from aneforge.compiler.refusal import Refused
from aneforge.engine.ir import Module, Op, TensorType
from aneforge.graph.weights import Weight, derived_weight

# The two ways to resize without a texture engine: a deconvolution, or a product along each axis.


_CHANNELS, _HEIGHT, _WIDTH = 2, 3, 4
_PLAIN = {
    "dilation_rates": (1, 1, 1),
    "weights_layout": "OIHW",
    "padding_style": "EXPLICIT",
}


# Deconvolution: each element spreads its kernel over the outputs around it.


def deconvolved(walk: Relayer, op: Op, factors: tuple[int, int], linear: bool) -> Op:
    """A channel-wise deconvolution by the factors. The triangle of a linear filter reaches into the neighbours, so
    the edges are repeated once before, and what lies outside of the result is cut by the padding."""
    x = op.operands[0]
    pads: list[int] = [0, 0]
    for axis, factor in zip((_HEIGHT, _WIDTH), factors, strict=True):
        size = kernel_size(factor, linear)
        if linear and factor > 1:
            x = (_taller if axis == _HEIGHT else _wider)(walk, op, x)
            pads += [factor + factor // 2, size - factor // 2]
        else:
            pads += [0, 0]
    kernel = upsampling_kernel(x.shape[_CHANNELS], factors, linear)
    weight = walk.stored(kernel, _kernel_type(kernel), op.sources)
    attrs = _channel_wise(kernel, (1, *factors), tuple(pads))
    return walk.layer("deconvolution", [x, weight], typed(op), attrs, op.sources)


def _taller(walk: Relayer, op: Op, x: Op) -> Op:
    rows = x.shape[_HEIGHT]
    first, last = (walk.view(x, _HEIGHT, start, 1, op.sources) for start in (0, rows - 1))
    return walk.joined([first, x, last], _HEIGHT, op.sources)


def _wider(walk: Relayer, op: Op, x: Op) -> Op:
    """Repeat the outer columns. The last column is picked out of a view of the two outer ones, which begins at zero: a
    width view that begins elsewhere takes the crop data path, which saturates on these chips (N18)."""
    columns = x.shape[_WIDTH]
    first = last = walk.view(x, _WIDTH, 0, 1, op.sources)
    if columns > 1:
        outer = walk.view(x, _WIDTH, 0, 2, op.sources, columns - 1)
        kernel = _picker(x.shape[_CHANNELS])
        weight = walk.stored(kernel, _kernel_type(kernel), op.sources)
        attrs = _channel_wise(kernel, (1, 1, 1), (0,) * 6)
        last = walk.layer("convolution", [outer, weight], typed(first), attrs, op.sources)
    return walk.joined([first, x, last], _WIDTH, op.sources)


def _picker(channels: int) -> Weight:
    shape = (channels, 1, 1, 2)
    return derived_weight("the second of two", (), shape, lambda: np.broadcast_to([0.0, 1.0], shape))


def rounded_axes(op: Op) -> int:
    """Along how many axes the interpolation weights have to be rounded to fp16."""
    method, mode = op.attrs["sampling_methods"], op.attrs["sampling_modes"]
    sizes = [(op.operands[0].shape[axis], op.shape[axis]) for axis in (_HEIGHT, _WIDTH)]
    mixing = [pair for pair in sizes if not passes_through(*pair, mode)]
    return sum(not fits_fp16(interpolation(size, out, method, mode)) for size, out in mixing)


def _kernel_type(kernel: Weight) -> TensorType:
    outputs, inputs, height, width = kernel.shape
    return TensorType((outputs, 1, inputs, height, width))


def _channel_wise(kernel: Weight, strides: tuple[int, ...], pads: tuple[int, ...]) -> dict[str, object]:
    channels, _, height, width = kernel.shape
    sizes = {"strides": strides, "explicit_padding": pads, "kernel_sizes": (1, height, width), "groups": channels}
    return {**_PLAIN, **sizes, **({"channel_wise": True} if channels > 1 else {})}


# Transpose and convolution: one axis at a time lies on the channels, where a matrix mixes it.


def mixed(walk: Relayer, op: Op) -> Op:
    """The interpolation matrix of each axis as the kernel of a 1 x 1 convolution."""
    value = op.operands[0]
    method, mode = op.attrs["sampling_methods"], op.attrs["sampling_modes"]
    for axis in (_HEIGHT, _WIDTH):
        size, out = value.shape[axis], op.shape[axis]
        if passes_through(size, out, mode):
            continue
        turned = _exchanged(walk, op, value, axis)
        kernel = interpolation_kernel(size, out, method, mode)
        weight = walk.stored(kernel, _kernel_type(kernel), op.sources)
        attrs = {**_PLAIN, "strides": (1, 1, 1), "groups": 1, "explicit_padding": (0,) * 6, "kernel_sizes": (1, 1, 1)}
        type_ = with_extents(typed(turned), {_CHANNELS: out})
        product = walk.layer("convolution", [turned, weight], type_, attrs, op.sources)
        value = _exchanged(walk, op, product, axis)
    return value


def _exchanged(walk: Relayer, op: Op, x: Op, axis: int) -> Op:
    """The channels and another axis change places."""
    order = list(range(5))
    order[_CHANNELS], order[axis] = axis, _CHANNELS
    type_ = with_extents(typed(x), {_CHANNELS: x.shape[axis], axis: x.shape[_CHANNELS]})
    return walk.layer("transpose", [x], type_, {"transpose_list": pairs_of(tuple(order))}, op.sources)


_METHODS = ("NearestNeighbor", "Linear")
_GRIDS = ("Default", "UnalignedCorners", "OffsetCorners", "AlignedCorners", "StrictAlignedCorners")
_UPSAMPLES = (("NearestNeighbor", "Default"), ("NearestNeighbor", "UnalignedCorners"), ("Linear", "UnalignedCorners"))
"""Methods and grids whose kernel is the same at every output of a whole factor."""


@pass_(
    "resize-strategies",
    2,
    reads=[
        "texture_engine",
        "one_by_one_upsample",
        "max_f16_conv_kernel_dim_x",
        "max_tensor_width",
        "max_tensor_height",
        "limit:channel_extent",
    ],
    requires=["layers"],
    ensures=["mapped resizes"],
    rounds=True,
    only=["resize"],
)
def resize_strategies(module: Module, chip: Facts) -> int:
    """DecomposeResize: the texture engine (HAL 0x81d), else a deconvolution, else transposes and convolutions.

    The three round differently, so a resize gives different numbers on different chips.
    """

    def rewrite(walk: Relayer, op: Op) -> None:
        if chip["texture_engine"]:
            op.mark(data_path="texture")
            walk.changes += 1
            walk.keep(op)
        else:
            _decompose(walk, op, chip)

    return rewritten(module, lambda op: op.kind == "resize", rewrite)


def _decompose(walk: Relayer, op: Op, chip: Facts) -> None:
    """Replace a resize. A deconvolution keeps the slots behind it; behind a transpose they open a layer of their
    own."""
    mode = op.attrs["sampling_modes"]
    if op.attrs["sampling_methods"] not in _METHODS or mode not in _GRIDS:
        raise _unmapped(op, f"sampling {op.attrs['sampling_methods']} on the grid {mode} is not published")
    factors = _upsample_factors(op, chip)
    if factors is not None:
        linear = op.attrs["sampling_methods"] == "Linear"
        walk.record(op, "resize-deconvolution", REORDERED if exact_upsampling(factors, linear) else None)
        result = deconvolved(walk, op, factors, linear)
        walk.attach(walk.behind(op), result)
    else:
        _check_turned(op, chip)
        rounded = rounded_axes(op)
        walk.record(op, "resize-products", rounded_weights(rounded) if rounded else REORDERED)
        result = mixed(walk, op)
        walk.detach(walk.behind(op))
    walk.replace(op, result)


def _upsample_factors(op: Op, chip: Facts) -> tuple[int, int] | None:
    """QualifiesforUpsampleDecomposition: whole factors, a kernel of small width, and a 1 x 1 map by flag only."""
    (height, width), (rows, columns) = op.operands[0].shape[3:], op.shape[3:]
    method, mode = op.attrs["sampling_methods"], op.attrs["sampling_modes"]
    if (method, mode) not in _UPSAMPLES or (height, width) == (rows, columns):
        return None
    if rows % height or columns % width:
        return None
    if (height, width) == (1, 1) and not chip["one_by_one_upsample"]:  # U25
        return None
    factors = rows // height, columns // width
    small = all(kernel_size(factor, method == "Linear") <= chip["max_f16_conv_kernel_dim_x"] for factor in factors)
    return factors if small else None


def _check_turned(op: Op, chip: Facts) -> None:
    """Refuse a resize whose axes do not fit when each resized axis takes the place of the channels."""
    x, mode = op.operands[0], op.attrs["sampling_modes"]
    for axis, cap in ((3, chip["max_tensor_height"]), (4, chip["max_tensor_width"])):
        size, out = x.shape[axis], op.shape[axis]
        if passes_through(size, out, mode):
            continue
        if x.shape[2] > cap:
            raise _unmapped(op, f"{x.shape[2]} channels exceed the {cap} that fit on axis {'NDCHW'[axis]}")
        if max(size, out) > chip["limit:channel_extent"]:
            raise _unmapped(
                op, f"an axis of {max(size, out)} exceeds the {chip['limit:channel_extent']} channels of this target"
            )


def _unmapped(op: Op, reason: str) -> Refused:
    return Refused(
        op,
        "resize-unmapped",
        f"cannot resize without a texture engine: {reason}",
        reject_string("Resize", "failed to map"),
    )
