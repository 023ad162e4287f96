"""Convolutions with strides that the engine does not have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from aneforge.compiler.facts import Facts
from aneforge.compiler.fuse.moves import inverse, pairs_of
from aneforge.compiler.fuse.scales import stored_weight
from aneforge.compiler.legal.rewrites.movement import factors, kernel_in_blocks
from aneforge.compiler.legalise.kernels import stored_names
from aneforge.compiler.legalise.relabel import Relayer, rewritten, typed, with_extents
from aneforge.compiler.passes import pass_
from aneforge.engine.ir import Module, Op, TensorType
from aneforge.graph.weights import moved_weight


@dataclass(frozen=True)
class StridedAxis:
    """A convolution along the height or the width, and how its stride is made.

    ``first`` goes to the channels before the convolution, ``second`` is the convolution's own stride; a ``step``
    above one is left to a view behind it.
    """

    extent: int
    out: int
    kernel: int
    dilation: int
    pad: tuple[int, int]
    first: int
    second: int
    step: int = 1

    @property
    def reach(self) -> int:
        """How many elements the kernel spans."""
        return self.dilation * (self.kernel - 1) + 1

    @property
    def blocks(self) -> int:
        """The kernel in blocks of the first factor."""
        return -(-self.reach // self.first)

    @property
    def needed(self) -> int:
        """Elements that the factorised convolution reads, a whole number of blocks."""
        return self.first * (self.second * (self.out - 1) + self.blocks)

    @property
    def outputs_before_view(self) -> int:
        """Outputs before the view."""
        return self.extent + sum(self.pad) - self.reach + 1 if self.step > 1 else self.out


@pass_(
    "large-strides",
    2,
    reads=["factor_list", "limit:conv_kernel_w_fp16", "limit:conv_kernel_h", "limit:channel_extent"],
    requires=["layers"],
    ensures=["native strides"],
    only=["convolution"],
)
def large_strides(module: Module, chip: Facts) -> int:
    """DecomposeConvWithLargeStride: a stride that is a product of two factors of HAL 0x730 runs in two steps.

    The first factor moves blocks of pixels to the channels (the sub-convolution with unit kernels), the second is
    the stride of a convolution with the kernel regrouped. Any other stride moves to the channels whole, which
    ``block-factors`` makes legal; one over a live kernel is computed at stride one and read by a strided view (U36).
    """
    native = (1, *chip["factor_list"])

    def large(op: Op) -> bool:
        return op.kind == "convolution" and any(step not in native for step in op.attrs["strides"][1:])

    return rewritten(module, large, lambda walk, op: _decompose(walk, op, _plan(module, op, chip)))


def _plan(module: Module, op: Op, chip: Facts) -> tuple[StridedAxis, StridedAxis]:
    """Both axes with their factors, as far as the kernel and the map can be regrouped."""
    rows, columns = (_axis(op, axis, chip["factor_list"]) for axis in (1, 2))
    channels = op.operands[0].shape[2] * rows.first * columns.first
    if not _plain(module, op) or channels > chip["limit:channel_extent"]:
        return _by_view(rows), _by_view(columns)
    tallest, widest = max(chip["limit:conv_kernel_h"]), chip["limit:conv_kernel_w_fp16"]
    return _within(rows, tallest), _within(columns, widest)


def _axis(op: Op, axis: int, allowed: Sequence[int]) -> StridedAxis:
    attrs = op.attrs
    stride = attrs["strides"][axis]
    first, second = factors(stride, allowed) or (stride, 1)
    pads = attrs["explicit_padding"]
    return StridedAxis(
        op.operands[0].shape[2 + axis],
        op.shape[2 + axis],
        attrs["kernel_sizes"][axis],
        attrs["dilation_rates"][axis],
        (pads[2 * axis], pads[2 * axis + 1]),
        first,
        second,
        stride // (first * second),
    )


def _by_view(axis: StridedAxis) -> StridedAxis:
    return axis if axis.first == 1 else replace(axis, first=1, second=1, step=axis.first * axis.second)


def _within(axis: StridedAxis, most: int) -> StridedAxis:
    """Use the view where a dilated kernel would get too long once its holes are stored."""
    return _by_view(axis) if axis.blocks > max(axis.kernel, most) else axis


def _plain(module: Module, op: Op) -> bool:
    """A stored fp16 kernel without depth, over a map padded by zeros."""
    if stored_names(op) or op.attrs["kernel_sizes"][0] != 1 or op.attrs.get("padding_mode", "Zero") != "Zero":
        return False
    return stored_weight(module, op.operands[1]) is not None


def _decompose(walk: Relayer, op: Op, axes: tuple[StridedAxis, StridedAxis]) -> None:
    rows, columns = axes
    blocks = rows.first * columns.first > 1
    walk.record(op, "stride-blocks" if blocks else "stride-view")
    x, weight, *bias = op.operands
    attrs = dict(op.attrs)
    if blocks:
        x, weight = _unshuffled(walk, op, axes), _regrouped(walk, op, axes)
        attrs.pop("channel_wise", None)
    attrs["strides"] = (attrs["strides"][0], rows.second, columns.second)
    attrs["dilation_rates"] = (attrs["dilation_rates"][0], *(1 if a.first > 1 else a.dilation for a in axes))
    attrs["kernel_sizes"] = (attrs["kernel_sizes"][0], *(a.blocks if a.first > 1 else a.kernel for a in axes))
    pads = [(0, 0) if a.first > 1 else a.pad for a in axes]
    attrs["explicit_padding"] = (*attrs["explicit_padding"][:2], *pads[0], *pads[1])
    type_ = with_extents(typed(op), {3: rows.outputs_before_view, 4: columns.outputs_before_view})
    convolution = walk.layer("convolution", [x, weight, *bias], type_, attrs, op.sources)
    if rows.step == columns.step == 1:
        walk.take_over(op, convolution)
        return
    kept = walk.recut(op)
    convolution.labels = op.labels
    last = walk.again(kept, convolution)
    result = last
    for place, axis in ((3, rows), (4, columns)):
        if axis.step > 1:
            result = walk.view(result, place, 0, axis.out, op.sources, axis.step)

    def picked(parts: list[Op]) -> Op:
        value = parts[0]
        for place, axis in ((3, rows), (4, columns)):
            if axis.step > 1:
                value = walk.ghost_view(value, place, 0, axis.out, axis.step)
        return value

    walk.settle(op, kept, result, [last], picked)


def _unshuffled(walk: Relayer, op: Op, axes: tuple[StridedAxis, StridedAxis]) -> Op:
    """The map, padded and cut to whole blocks, with the pixels of each block as channels."""
    x = op.operands[0]
    n, d, c, h, w = x.shape
    pads = [(a.pad[0], max(0, a.needed - a.pad[0] - a.extent)) if a.first > 1 else (0, 0) for a in axes]
    if any(map(any, pads)):
        sizes = ((0, 0), (0, 0), (0, 0), *pads)
        settings = {"padding_modes": "Zero", "padding_sizes": sizes, "background_value": 0.0}
        type_ = with_extents(typed(x), {3: h + sum(pads[0]), 4: w + sum(pads[1])})
        x = walk.layer("padding", [x], type_, settings, op.sources)
    for place, axis in zip((3, 4), axes, strict=True):
        if axis.first > 1:
            x = walk.view(x, place, 0, axis.needed, op.sources)
    y, u = (axis.first for axis in axes)
    type_ = TensorType((n, d, c * y * u, x.shape[3] // y, x.shape[4] // u), typed(x).dtype)
    return walk.layer("pixel_unshuffle", [x], type_, {"factors": (1, y, u)}, op.sources)


def _regrouped(walk: Relayer, op: Op, axes: tuple[StridedAxis, StridedAxis]) -> Op:
    kernel = stored_weight(walk.module, op.operands[1])
    assert kernel is not None
    outputs, _, inputs, _, _ = op.operands[1].shape
    rows, columns = axes
    heights, widths = (a.blocks if a.first > 1 else a.kernel for a in axes)
    block = rows.first * columns.first
    recipe = f"regrouped by {rows.first} and {columns.first} from steps of {rows.dilation} and {columns.dilation}"
    shape = (outputs, inputs * block, heights, widths)
    holes = (rows.dilation if rows.first > 1 else 1, columns.dilation if columns.first > 1 else 1)
    source = (outputs, inputs, rows.kernel, columns.kernel)
    blocks = (rows.first, columns.first)

    def make(numbers: np.ndarray) -> np.ndarray:
        return kernel_in_blocks(numbers.reshape(source), blocks, (heights, widths), holes)

    regrouped = moved_weight(recipe, kernel, shape, make)
    type_ = TensorType((outputs, 1, inputs * block, heights, widths), typed(op.operands[1]).dtype)
    return walk.stored(regrouped, type_, op.operands[1].sources)


# Moves between pixels and channels by factors that the engine does not have.


_TO_CHANNELS, _TO_PIXELS = "pixel_unshuffle", "pixel_shuffle"
_ROWS_IN_FRONT, _COLUMNS_IN_FRONT = (0, 1, 3, 2, 4), (0, 1, 4, 2, 3)


@pass_(
    "block-factors",
    2,
    reads=["factor_list", "limit:batch_extent"],
    requires=["layers", "native strides"],
    ensures=["native factors"],
    only=[_TO_CHANNELS, _TO_PIXELS],
)
def block_factors(module: Module, chip: Facts) -> int:
    """PixelShuffle and PixelUnshuffle take the factors of HAL 0x730 alone (table 26.1): others are views and two
    transposes, which put the rows of a block in front of the rows of blocks and then its columns in front of both."""
    native, most = (1, *chip["factor_list"]), chip["limit:batch_extent"]

    def foreign(op: Op) -> bool:
        if op.kind not in (_TO_CHANNELS, _TO_PIXELS) or "bridge" in op.labels:
            return False
        apart = op if op.kind == _TO_PIXELS else op.operands[0]
        is_listed = all(factor in native for factor in op["factors"])
        return not is_listed and apart.shape[0] * apart.shape[2] * op["factors"][1] <= most

    return rewritten(module, foreign, _turn_blocks)


def _turn_blocks(walk: Relayer, op: Op) -> None:
    x, (_, rows, columns) = op.operands[0], op["factors"]
    n, d, c, h, w = x.shape if op.kind == _TO_CHANNELS else op.shape
    blocks = h // rows, w // columns
    walk.record(op, "blocks-by-transposes")
    if op.kind == _TO_CHANNELS:
        apart = _turned(walk, op, _seen(walk, op, x, (n * c * d, 1, blocks[0], rows, w)), _ROWS_IN_FRONT)
        apart = _seen(walk, op, apart, (n * c * d * rows, 1, *blocks, columns))
        result = _turned(walk, op, apart, _COLUMNS_IN_FRONT)
    else:
        joined = _seen(walk, op, x, (n * c * d * rows, 1, columns, *blocks))
        joined = _turned(walk, op, joined, inverse(_COLUMNS_IN_FRONT))
        joined = _seen(walk, op, joined, (n * c * d, 1, rows, blocks[0], w))
        result = _turned(walk, op, joined, _ROWS_IN_FRONT)
    walk.take_over(op, _seen(walk, op, result, op.shape))


def _seen(walk: Relayer, op: Op, value: Op, shape: tuple[int, ...]) -> Op:
    return walk.layer("reshape", [value], TensorType(shape, typed(value).dtype), {"shape": shape}, op.sources)


def _turned(walk: Relayer, op: Op, value: Op, order: tuple[int, ...]) -> Op:
    type_ = TensorType(tuple(value.shape[axis] for axis in order), typed(value).dtype)
    return walk.layer("transpose", [value], type_, {"transpose_list": pairs_of(order)}, op.sources)
