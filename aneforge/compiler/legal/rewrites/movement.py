"""Ops that pick, place, join or mask elements, and blocks and windows of them, as other ops."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import numpy as np

from aneforge.compiler.legal.rewrites.context import Context
from aneforge.graph.node import MAX_RANK
from aneforge.graph.ops.elementwise import select
from aneforge.graph.ops.leaf import const
from aneforge.graph.ops.shape import concat, repeated
from aneforge.graph.ops.spatial import max_pool, pixel_shuffle, pixel_unshuffle, window_pads
from aneforge.graph.tensor import Tensor
from aneforge.graph.traits import GraphTrait

# Slices along one axis that never start inside the width.


class PieceCut:
    """A tensor laid out so that ``axis`` can be cut; :meth:`whole` restores the layout of a result."""

    def __init__(self, x: Tensor, axis: int) -> None:
        self.rank, self.swap = x.ndim, None
        self.last = axis == x.ndim - 1
        self.axis = axis
        self.x = x
        if self.last and x.ndim < MAX_RANK:
            self.x = x.reshape(*x.shape, 1)
        elif self.last:
            self.swap = [*range(x.ndim - 2), x.ndim - 1, x.ndim - 2]
            self.x = x.transpose(self.swap)
            self.axis = x.ndim - 2

    def piece(self, begin: int, size: int) -> Tensor:
        """``size`` elements from ``begin``; the tensor itself where that is all of it."""
        if size == self.x.shape[self.axis]:
            return self.x
        starts = [begin if i == self.axis else 0 for i in range(self.x.ndim)]
        sizes = [size if i == self.axis else extent for i, extent in enumerate(self.x.shape)]
        return self.x.slice_by_size(starts, sizes)

    def whole(self, result: Tensor) -> Tensor:
        """A result in the layout of ``x``, back in the user's layout."""
        if self.swap is not None:
            return result.transpose(self.swap)
        return result.reshape(result.shape[:-1]) if self.last else result

    def like(self, tensor: Tensor) -> PieceCut:
        """Another tensor of the same rank in the same layout."""
        return PieceCut(tensor, self.rank - 1 if self.last else self.axis)


def joined(parts: Sequence[Tensor], axis: int) -> Tensor:
    """Parts along one axis; a single part is itself."""
    return parts[0] if len(parts) == 1 else concat(list(parts), axis)


def runs(indices: Sequence[int]) -> list[tuple[int, int, int]]:
    """Indices as (first, step, count) with step 1, 0 or -1: one slice each, tiled or reversed."""
    result: list[tuple[int, int, int]] = []
    position = 0
    while position < len(indices):
        step, count = 1, 1
        if position + 1 < len(indices) and abs(indices[position + 1] - indices[position]) <= 1:
            step = indices[position + 1] - indices[position]
            while position + count < len(indices) and indices[position + count] == indices[position] + step * count:
                count += 1
        result.append((indices[position], step, count))
        position += count
    return result


def take(x: Tensor, indices: Sequence[int], axis: int) -> Tensor:
    """Elements along one axis by fixed indices: one slice per run, tiled where an index repeats."""
    cut = PieceCut(x, axis)
    parts = []
    for first, step, count in runs(indices):
        if step == 0:
            parts.append(cut.piece(first, 1).tile([count if i == cut.axis else 1 for i in range(cut.x.ndim)]))
        elif step < 0:
            parts.append(cut.piece(first - count + 1, count).reverse(cut.axis))
        else:
            parts.append(cut.piece(first, count))
    return cut.whole(joined(parts, cut.axis))


def gather(context: Context) -> Tensor:
    """Slices joined along the axis, consecutive indices as one slice."""
    attrs = context.node.attrs
    return take(context.inputs[0], attrs["indices"], attrs["axis"])


def scatter(context: Context) -> Tensor:
    """Slices of x and of the updates joined in order; duplicates are added one layer after the other."""
    x, updates = context.inputs
    attrs = context.node.attrs
    for layer in _layers(attrs["indices"]):
        x = _placed(x, updates, layer, attrs["axis"], attrs["mode"] == "add")
    return x


def _layers(indices: Sequence[int]) -> list[dict[int, int]]:
    """Index to update position, split so that no layer holds an index twice, first occurrences first."""
    layers: list[dict[int, int]] = []
    seen: dict[int, int] = {}
    for position, index in enumerate(indices):
        depth = seen.get(index, 0)
        seen[index] = depth + 1
        if depth == len(layers):
            layers.append({})
        layers[depth][index] = position
    return layers


def _placed(x: Tensor, updates: Tensor, positions: dict[int, int], axis: int, add: bool) -> Tensor:
    target = PieceCut(x, axis)
    source = target.like(updates)
    # One key per run: kept elements share a key, placed ones share (update position - index).
    keys = [positions[i] - i if i in positions else None for i in range(x.shape[axis])]
    parts, start = [], 0
    for key, group in groupby(keys):
        size = len(list(group))
        if key is None:
            parts.append(target.piece(start, size))
        else:
            placed = source.piece(start + key, size)
            parts.append(target.piece(start, size) + placed if add else placed)
        start += size
    return target.whole(joined(parts, target.axis))


def reverse_sequence(context: Context) -> Tensor:
    """Per run of sequences of one length: the head reversed, the tail kept, joined."""
    attrs = context.node.attrs
    x, lengths, sequence = context.inputs[0], attrs["lengths"], attrs["seq_axis"]
    if max(lengths) <= 1:
        return x
    batch = PieceCut(x, attrs["batch_axis"])
    if batch.swap is not None:  # the layout exchanged the last two axes
        sequence = batch.swap.index(sequence)
    parts, start = [], 0
    for length, group in groupby(lengths):
        size = len(list(group))
        parts.append(_head_reversed(batch.piece(start, size), length, sequence))
        start += size
    return batch.whole(joined(parts, batch.axis))


def _head_reversed(x: Tensor, length: int, axis: int) -> Tensor:
    if length <= 1:
        return x
    if length == x.shape[axis]:
        return x.reverse(axis)
    cut = PieceCut(x, axis)
    parts = [cut.piece(0, length).reverse(cut.axis), cut.piece(length, x.shape[axis] - length)]
    return cut.whole(joined(parts, cut.axis))


def one_hot(context: Context) -> Tensor:
    """Equal to a stored range, then a select."""
    attrs = context.node.attrs
    x = context.inputs[0]
    column, numbers = x.expand_dims(x.ndim), np.arange(attrs["depth"], dtype=np.float64)
    if attrs["depth"] > 2049:
        # fp16 counts in ones up to 2048 only, so the range is held as base + offset and the base taken off x.
        column = column - const(numbers - numbers % 2048)
        numbers = numbers % 2048
    return select(column.equal(const(numbers)), attrs["on"], attrs["off"])


def band_part(context: Context) -> Tensor:
    """A stored mask and a select: a product with zero would turn infinity into NaN."""
    attrs = context.node.attrs
    x, lower, upper = context.inputs[0], attrs["lower"], attrs["upper"]
    rows, columns = np.indices(x.shape[-2:])
    kept = ((lower < 0) | (rows - columns <= lower)) & ((upper < 0) | (columns - rows <= upper))
    if kept.all():
        return x
    return select(const(kept.astype(np.float16)).greater(0.5), x, 0.0)


def _before_views(x: Tensor) -> Tensor:
    """The tensor of which another is the same elements in the same order."""
    while x.is_a(GraphTrait.VIEW) or (x.op == "transpose" and _keeps_order(x)):
        x = x.inputs[0]
    return x


def _keeps_order(node: Tensor) -> bool:
    """Whether a transpose moves axes of one element only."""
    moved = [axis for axis in node.attrs["perm"] if node.inputs[0].shape[axis] > 1]
    return moved == sorted(moved)


def reads_views(context: Context) -> bool:
    """Whether the operand of a reshape is a reshape itself; what both leave out may be too large for the chip."""
    return _before_views(context.inputs[0]) is not context.inputs[0]


def reshaped_once(context: Context) -> Tensor:
    """One reshape of the tensor that the first of several reshapes reads."""
    source = _before_views(context.inputs[0])
    return source if source.shape == context.node.shape else source.reshape(*context.node.shape)


def repeats_elements(context: Context) -> bool:
    """Whether a pad repeats elements of the map; of constants there is nothing to slice."""
    return context.node.attrs["mode"] != "constant"


def pad_by_slices(context: Context) -> Tensor:
    """The tensor between slices of itself, forwards or backwards."""
    x, attrs = context.inputs[0], context.node.attrs
    for axis, widths in enumerate(attrs["widths"]):
        if any(widths):
            x = take(x, repeated(np.arange(x.shape[axis]), [widths], attrs["mode"]).tolist(), axis)
    return x


# Pixels as channels: the moves and the kernels of convolutions that read a map in blocks.


def factors(stride: int, native: Sequence[int]) -> tuple[int, int] | None:
    """A stride as at most two factors of the chip's list, the larger first; None where there is no such pair."""
    if stride == 1 or stride in native:
        return 1, stride
    pairs = ((first, stride // first) for first in sorted(native, reverse=True) if stride % first == 0)
    return next((pair for pair in pairs if pair[1] in native), None)


def kernel_in_blocks(
    kernel: np.ndarray, blocks: tuple[int, int], sizes: tuple[int, int], holes: tuple[int, int] = (1, 1)
) -> np.ndarray:
    """A kernel [O, I, H, W] over ``sizes`` blocks of pixels, each block's pixels on the channels, channel-major.

    ``holes`` are the dilation rates; the holes and the rest of the last block are zeros.
    """
    outputs, inputs, height, width = kernel.shape
    (y, u), (rows, columns) = blocks, sizes
    wide = np.zeros((outputs, inputs, rows * y, columns * u), kernel.dtype)
    wide[:, :, : holes[0] * (height - 1) + 1 : holes[0], : holes[1] * (width - 1) + 1 : holes[1]] = kernel
    split = wide.reshape(outputs, inputs, rows, y, columns, u).transpose(0, 1, 3, 5, 2, 4)
    return split.reshape(outputs, inputs * y * u, rows, columns)


def to_channels(x: Tensor, rows: int, columns: int) -> Tensor:
    """The pixels of each block of ``rows`` x ``columns`` as channels, channel-major."""
    if rows == columns:
        return x if rows == 1 else pixel_unshuffle(x, rows)
    if rows > 1:
        x = _height_to_channels(x, rows)
    return _width_to_channels(x, columns) if columns > 1 else x


def _height_to_channels(x: Tensor, factor: int) -> Tensor:
    n, c, h, w = x.shape
    if w == 1:  # four axes are enough, and a line of pixels is common
        moved = x.reshape(n, c, h // factor, factor).transpose([0, 1, 3, 2])
    else:
        moved = x.reshape(n, c, h // factor, factor, w).transpose([0, 1, 3, 2, 4])
    return moved.reshape(n, c * factor, h // factor, w)


def _width_to_channels(x: Tensor, factor: int) -> Tensor:
    n, c, h, w = x.shape
    if h == 1:
        moved = x.reshape(n, c, w // factor, factor).transpose([0, 1, 3, 2])
    else:
        moved = x.reshape(n, c, h, w // factor, factor).transpose([0, 1, 4, 2, 3])
    return moved.reshape(n, c * factor, h, w // factor)


def to_pixels(x: Tensor, rows: int, columns: int) -> Tensor:
    """The inverse of :func:`to_channels`."""
    if rows == columns:
        return x if rows == 1 else pixel_shuffle(x, rows)
    if columns > 1:
        x = _channels_to_width(x, columns)
    return _channels_to_height(x, rows) if rows > 1 else x


def _channels_to_width(x: Tensor, factor: int) -> Tensor:
    n, c, h, w = x.shape
    channels = c // factor
    if h == 1:
        moved = x.reshape(n, channels, factor, w).transpose([0, 1, 3, 2])
    else:
        moved = x.reshape(n, channels, factor, h, w).transpose([0, 1, 3, 4, 2])
    return moved.reshape(n, channels, h, w * factor)


def _channels_to_height(x: Tensor, factor: int) -> Tensor:
    n, c, h, w = x.shape
    channels = c // factor
    if w == 1:
        moved = x.reshape(n, channels, factor, h).transpose([0, 1, 3, 2])
    else:
        moved = x.reshape(n, channels, factor, h, w).transpose([0, 1, 3, 2, 4])
    return moved.reshape(n, channels, h * factor, w)


# Pooling windows beyond a chip's caps.


def pool_in_steps(context: Context) -> Tensor:
    """Narrower pools one after the other, whose widths add up; the last has the stride."""
    attrs = context.node.attrs
    (rows, columns), (down, across) = attrs["kernel"], attrs["stride"]
    x, most = context.inputs[0], context.limit("max-pool-width")
    top, bottom, left, right = window_pads(x.shape, attrs["kernel"], attrs["stride"], attrs["pad"], attrs["ceil_mode"])
    left_over = columns - 1
    while left_over:
        step = min(left_over, most - 1)
        left_over -= step
        # Padding as far as a window reaches: what lies further out would be smaller than everything anyway.
        sides = min(left, step), min(right, step)
        left, right = left - sides[0], right - sides[1]
        stride = (down, 1 if left_over else across)
        x = max_pool(x, (rows, step + 1), stride, (top, bottom, *sides))
        rows, down, top, bottom = 1, 1, 0, 0
    return x
