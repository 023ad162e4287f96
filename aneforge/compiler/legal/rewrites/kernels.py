"""Convolutions whose kernel or stride is beyond a chip's caps: over blocks of pixels, in pieces, and in phases."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import pairwise
from operator import add

import numpy as np

from aneforge.compiler.legal.rewrites.context import Context
from aneforge.compiler.legal.rewrites.movement import PieceCut, factors, kernel_in_blocks, to_channels, to_pixels
from aneforge.graph.node import make
from aneforge.graph.ops.contraction import conv
from aneforge.graph.ops.leaf import CONST
from aneforge.graph.tensor import Tensor
from aneforge.graph.weights import Weight, moved_weight

KERNEL_RULES = ("conv-kernel-height", "conv-kernel-width")
"""The rules that cap a kernel, by axis."""
_CHANNELS = "limit:channel_extent"
BLOCK_READS = ("factor_list", _CHANNELS)
"""The facts of a chip that say which blocks it takes."""

Span = tuple[int, int]
"""Two numbers of an axis, such as where a part of a kernel starts and how long it is."""


@dataclass(frozen=True)
class KernelWindow:
    """A convolution along one axis, and the longest kernel that the chip takes there."""

    extent: int
    out: int
    kernel: int
    stride: int
    dilation: int
    pad: tuple[int, int]
    most: int | None

    @property
    def is_long(self) -> bool:
        return self.most is not None and self.kernel > self.most

    @property
    def pieces(self) -> list[Span]:
        """The kernel in the fewest parts that the chip takes, which differ by one at most."""
        count = 1 if self.most is None else -(-self.kernel // self.most)
        ends = [self.kernel * number // count for number in range(count + 1)]
        return [(start, end - start) for start, end in pairwise(ends)]

    def reads(self, span: Span) -> tuple[int, int]:
        """The part of the map that a part of the kernel reads; it may begin before the map and end behind it."""
        begin = span[0] * self.dilation - self.pad[0]
        return begin, begin + self.stride * (self.out - 1) + self.dilation * (span[1] - 1) + 1

    def meets(self, span: Span) -> bool:
        """Whether a part of the kernel reads more than padding."""
        begin, end = self.reads(span)
        return end > 0 and begin < self.extent


@dataclass(frozen=True)
class Convolution:
    """A convolution with a stored kernel while it is rewritten."""

    x: Tensor
    weight: Weight
    bias: Tensor | None
    rows: KernelWindow
    columns: KernelWindow
    groups: int

    def emit(self) -> Tensor:
        """The convolution, or the sum of several where its kernel is longer than the chip takes."""
        parts = [
            (rows, columns)
            for rows in self.rows.pieces
            for columns in self.columns.pieces
            if self.rows.meets(rows) and self.columns.meets(columns)  # a part over padding alone adds nothing
        ]
        return reduce(add, (self._part(*part, None if place else self.bias) for place, part in enumerate(parts)))

    def _part(self, rows: Span, columns: Span, bias: Tensor | None) -> Tensor:
        """The convolution by a part of the kernel, over the part of the map that it reads."""
        x, pads = self.x, []
        for axis, window, span in ((2, self.rows, rows), (3, self.columns, columns)):
            begin, end = window.reads(span)
            pads += [max(0, -begin), max(0, end - window.extent)]
            x = _cut(x, axis, max(0, begin), min(end, window.extent)) if span[1] < window.kernel else x
        return conv(
            x,
            self._kernel(rows, columns),
            stride=(self.rows.stride, self.columns.stride),
            pad=pads,
            dilation=(self.rows.dilation, self.columns.dilation),
            groups=self.groups,
            bias=bias,
        )

    def _kernel(self, rows: Span, columns: Span) -> Tensor:
        (top, height), (left, width) = rows, columns
        shape = (*self.weight.shape[:2], height, width)
        if shape == self.weight.shape:
            return _constant(self.weight)
        index = (..., slice(top, top + height), slice(left, left + width))
        recipe = f"rows from {top} and columns from {left}"
        return _constant(moved_weight(recipe, self.weight, shape, lambda kernel: kernel[index]))


def _cut(x: Tensor, axis: int, begin: int, end: int) -> Tensor:
    """A part of a map along one axis; only one that starts inside the width needs another layout."""
    if begin:
        cut = PieceCut(x, axis)
        return cut.whole(cut.piece(begin, end - begin))
    return x.slice_by_size([0] * x.ndim, [end if place == axis else size for place, size in enumerate(x.shape)])


def _constant(weight: Weight) -> Tensor:
    return make(CONST, weight=weight)


def _windows(context: Context) -> tuple[KernelWindow, KernelWindow]:
    node = context.node
    attrs, kernel = node.attrs, node.inputs[1].shape[2:]
    rows, columns = (
        KernelWindow(
            node.inputs[0].shape[2 + axis],
            node.shape[2 + axis],
            kernel[axis],
            attrs["stride"][axis],
            attrs["dilation"][axis],
            (attrs["pad"][2 * axis], attrs["pad"][2 * axis + 1]),
            context.limit(rule),
        )
        for axis, rule in enumerate(KERNEL_RULES)
    )
    return rows, columns


def _convolution(context: Context) -> Convolution:
    x, kernel, *bias = context.inputs
    assert kernel.weight is not None
    rows, columns = _windows(context)
    return Convolution(x, kernel.weight, bias[0] if bias else None, rows, columns, context.node.attrs["groups"])


# Pieces.


def has_pieces(context: Context) -> bool:
    """A stored kernel over a map of which something is read."""
    stored = context.node.inputs[1].op == "const"
    return stored and all(window.meets((0, window.kernel)) for window in _windows(context))


def kernel_in_pieces(context: Context) -> Tensor:
    """A convolution for each part of the kernel that the chip takes, added; the page has space_to_depth (U172)."""
    return _convolution(context).emit()


# Blocks.


def _blocks(context: Context) -> tuple[Span, Span]:
    """The pixels of a block, and the stride over blocks, by axis. An axis without a stride has blocks of one pixel.

    Blocks are taken where the kernel is long or the stride not native. Strides that are no product of two native
    factors go to the channels whole. With equal strides both axes take blocks: the chip moves square ones in one step.
    """
    rows, columns = _windows(context)
    native = context.chip["factor_list"]

    def block(window: KernelWindow, other: KernelWindow) -> Span:
        wanted = window.is_long or window.stride not in native or (other.is_long and window.stride == other.stride)
        if not wanted or window.dilation > 1 or window.stride == 1:
            return 1, window.stride
        pair = factors(window.stride, native)
        return (window.stride, 1) if pair is None or pair[0] == 1 else pair

    return block(rows, columns), block(columns, rows)


def has_blocks(context: Context) -> bool:
    """A stored kernel with a stride that can move to the channels, and channels within the chip's cap."""
    (rows, _), (columns, _) = _blocks(context)
    fits = context.node.inputs[0].shape[1] * rows * columns <= context.chip[_CHANNELS]
    return has_pieces(context) and rows * columns > 1 and fits


def patches_in_blocks(context: Context) -> Tensor:
    """Blocks of pixels on the channels, then a convolution of the regrouped kernel at the rest of the stride."""
    whole = _convolution(context)
    x, after = whole.x, []
    blocks = _blocks(context)
    for axis, window, (first, second) in zip((2, 3), (whole.rows, whole.columns), blocks, strict=True):
        if first == 1:
            after.append(window)
            continue
        count = -(-window.kernel // first)
        extent = second * (window.out - 1) + count
        x = _fitted(x, axis, window.pad[0], first * extent)
        after.append(replace(window, extent=extent, kernel=count, stride=second, pad=(0, 0)))
    rows, columns = after
    block, sizes = (blocks[0][0], blocks[1][0]), (rows.kernel, columns.kernel)
    outputs, inputs = whole.weight.shape[:2]
    weight = moved_weight(
        f"regrouped by {block[0]} and {block[1]}",
        whole.weight,
        (outputs, inputs * block[0] * block[1], *sizes),
        partial(kernel_in_blocks, blocks=block, sizes=sizes),
    )
    return replace(whole, x=to_channels(x, *block), weight=weight, rows=rows, columns=columns).emit()


def _fitted(x: Tensor, axis: int, before: int, extent: int) -> Tensor:
    """A map with zeros before it, and cut or filled with zeros behind to an extent."""
    behind = max(0, extent - before - x.shape[axis])
    if before or behind:
        x = x.pad([(before, behind) if place == axis else (0, 0) for place in range(x.ndim)])
    return x if x.shape[axis] == extent else _cut(x, axis, 0, extent)


# Phases of a transposed convolution.


@dataclass(frozen=True)
class _Phases:
    """A transposed convolution along one axis as ``stride`` convolutions, one for each place between two inputs.

    Output ``q * stride + r`` reads input ``q + v`` by tap ``r + before - stride * v`` of the kernel, for each ``v``
    for which there is such a tap.
    """

    kernel: int
    stride: int
    dilation: int
    before: int

    @property
    def first(self) -> int:
        """The smallest ``v``."""
        return min(0, -((self.dilation * (self.kernel - 1) - self.before) // self.stride))

    @property
    def taps(self) -> np.ndarray:
        """The tap of the kernel by phase and ``v``; -1 where there is none."""
        last = (self.stride - 1 + self.before) // self.stride
        places = np.arange(self.stride)[:, None] + self.before - self.stride * np.arange(self.first, last + 1)
        valid = (places >= 0) & (places % self.dilation == 0) & (places <= self.dilation * (self.kernel - 1))
        return np.where(valid, places // self.dilation, -1)


def has_phases(context: Context) -> bool:
    """A stored kernel and bias, and channels for all phases within the chip's cap."""
    node = context.node
    rows, columns = node.attrs["stride"]
    stored = all(operand.op == "const" for operand in node.inputs[1:])
    return stored and node.shape[1] * rows * columns <= context.chip[_CHANNELS]


def deconvolution_in_phases(context: Context) -> Tensor:
    """A convolution with an output channel for each place between two pixels, then the channels as pixels."""
    x, kernel, *bias = context.inputs
    attrs, shape = context.node.attrs, context.node.shape
    assert kernel.weight is not None
    sides = zip(kernel.shape[2:], attrs["stride"], attrs["dilation"], attrs["pad"][::2], strict=True)
    phases = [_Phases(*side) for side in sides]
    taps = [phase.taps for phase in phases]
    windows = []
    for axis, (phase, tap, rule) in enumerate(zip(phases, taps, KERNEL_RULES, strict=True)):
        extent, out = x.shape[2 + axis], -(-shape[2 + axis] // phase.stride)
        count, before = tap.shape[1], -phase.first
        behind = max(0, out + count - 1 - extent - before)
        outputs = extent + before + behind - count + 1
        windows.append(KernelWindow(extent, outputs, count, 1, 1, (before, behind), context.limit(rule)))
    groups, area = attrs["groups"], attrs["stride"][0] * attrs["stride"][1]
    sizes = (shape[1] * area, x.shape[1] // groups, *(tap.shape[1] for tap in taps))
    recipe = f"{groups} groups in phases {[tap.tolist() for tap in taps]}"
    weight = moved_weight(recipe, kernel.weight, sizes, partial(_kernel_in_phases, groups=groups, taps=taps))
    offset = _constant(_repeated(bias[0].weight, area)) if bias and bias[0].weight is not None else None
    wide = to_pixels(Convolution(x, weight, offset, windows[0], windows[1], groups).emit(), *attrs["stride"])
    return wide if wide.shape == shape else wide.slice_by_size([0, 0, 0, 0], list(shape))


def _repeated(vector: Weight, count: int) -> Weight:
    return moved_weight(f"each entry {count} times", vector, (vector.size * count,), partial(np.repeat, repeats=count))


def _kernel_in_phases(kernel: np.ndarray, groups: int, taps: list[np.ndarray]) -> np.ndarray:
    """A kernel [inputs, outputs / groups, H, W] as that of a convolution to outputs x phases, channel-major."""
    rows, columns = taps
    inputs, outputs = kernel.shape[:2]
    padded = np.pad(kernel, ((0, 0), (0, 0), (0, 1), (0, 1)))  # tap -1 is a zero
    picked = padded[:, :, rows[:, :, None, None], columns[None, None]]  # [I, O, phase y, v y, phase x, v x]
    split = picked.reshape(groups, inputs // groups, outputs, *picked.shape[2:]).transpose(0, 2, 3, 5, 1, 4, 6)
    return split.reshape(groups * outputs * rows.shape[0] * columns.shape[0], -1, rows.shape[1], columns.shape[1])
