"""Ops that pick, place or mask elements by rules fixed in the program: slices, joins and selects."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import numpy as np

from aneforge.compiler.legal.rewrites.context import Context
from aneforge.compiler.legal.rewrites.pieces import Cut, joined
from aneforge.graph.ops.elementwise import select
from aneforge.graph.ops.leaf import const
from aneforge.graph.ops.shape import repeated
from aneforge.graph.tensor import Tensor
from aneforge.graph.traits import GraphTrait


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
    cut = Cut(x, axis)
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
    target = Cut(x, axis)
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
    batch = Cut(x, attrs["batch_axis"])
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
    cut = Cut(x, axis)
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
