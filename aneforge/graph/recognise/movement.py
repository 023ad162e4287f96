"""Moves without arithmetic: equal ones in one spelling, needless ones gone, and cuts made before turns.

Exporters differ most here: a squeeze or a reshape, one transpose or two, a slice, a gather of neighbours or a split.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from aneforge.graph import builders as af
from aneforge.graph.node import make, ops_with
from aneforge.graph.recognise.algebra import Scene, SpellingRule
from aneforge.graph.tensor import Tensor
from aneforge.graph.traits import GraphTrait

CUTS = ("slice_by_size", "slice_by_index", "gather")


def _as_reshape(node: Tensor, scene: Scene) -> Tensor | None:
    """A squeeze, new axes of one and a flattening are reshapes."""
    return node.inputs[0].reshape(*node.shape)


def _one_reshape(node: Tensor, scene: Scene) -> Tensor | None:
    """A reshape of a reshape is one; a reshape to the same shape is none."""
    x = node.inputs[0]
    if x.shape == node.shape:
        return x
    return x.inputs[0].reshape(*node.shape) if x.op == "reshape" else None


def _one_transpose(node: Tensor, scene: Scene) -> Tensor | None:
    """A transpose of a transpose is one; one that keeps the order of all axes longer than one is a reshape."""
    x, perm = node.inputs[0], node.attrs["perm"]
    if _keeps_order(x.shape, perm):
        return x if x.shape == node.shape else x.reshape(*node.shape)
    if x.op != "transpose":
        return None
    inner = x.attrs["perm"]
    return x.inputs[0].transpose([inner[axis] for axis in perm])


def _keeps_order(shape: Sequence[int], perm: Sequence[int]) -> bool:
    long = [axis for axis in perm if shape[axis] != 1]
    return all(first < second for first, second in pairwise(long))


def _turn_behind_view(node: Tensor, scene: Scene) -> Tensor | None:
    """A transpose whose result only gains or loses axes of one: they are gained or lost before it."""
    turned = node.inputs[0]
    if turned.op != "transpose" or not scene.is_private(turned) or _long(turned.shape) != _long(node.shape):
        return None
    view = turned.inputs[0]
    base = view.inputs[0] if view.op == "reshape" else view
    if base.ndim != node.ndim or _long(base.shape) != _long(view.shape):
        long = _long(view.shape)
        base = base.reshape(*(1,) * (node.ndim - len(long)), *long)
    sources = [axis for axis, extent in enumerate(base.shape) if extent != 1]
    places = [axis for axis, extent in enumerate(view.shape) if extent != 1]
    order = iter([sources[places.index(axis)] for axis in turned.attrs["perm"] if view.shape[axis] != 1])
    units = iter([axis for axis, extent in enumerate(base.shape) if extent == 1])
    return base.transpose([next(units) if extent == 1 else next(order) for extent in node.shape])


def _long(shape: Sequence[int]) -> list[int]:
    return [extent for extent in shape if extent != 1]


def _cut(node: Tensor, scene: Scene) -> Tensor | None:
    """A strided slice that leaves nothing out, and a gather of neighbours, are plain slices."""
    x = node.inputs[0]
    if node.op == "slice_by_index":
        begin, end, stride = (node.attrs[key] for key in ("begin", "end", "stride"))
        if any(step != 1 and stop - start > 1 for start, stop, step in zip(begin, end, stride, strict=True)):
            return None
        return x.slice_by_size(list(begin), list(node.shape))
    if node.op == "gather":
        indices, axis = node.attrs["indices"], node.attrs["axis"]
        if list(indices) != list(range(indices[0], indices[0] + len(indices))):
            return None
        begin = [indices[0] if place == axis else 0 for place in range(x.ndim)]
        return x.slice_by_size(begin, list(node.shape))
    return x if node.shape == x.shape else None


def _cut_before_turn(node: Tensor, scene: Scene) -> Tensor | None:
    """Slices of a transposed tensor, which nothing else reads, are transposed slices: the parts of one projection are
    cut out of it as they lie, and each is turned once."""
    turned = node.inputs[0]
    if turned.op != "transpose" or not scene.is_read_by(turned, CUTS):
        return None
    perm = turned.attrs["perm"]
    begin, size = [0] * node.ndim, [0] * node.ndim
    for place, axis in enumerate(perm):
        begin[axis], size[axis] = node.attrs["begin"][place], node.attrs["size"][place]
    x = turned.inputs[0]
    scene.reads_instead(x, "transpose", "slice_by_size")
    return _sliced(x, begin, size).transpose(list(perm))


def _cut_before_view(node: Tensor, scene: Scene) -> Tensor | None:
    """A slice of a reshaped tensor along one axis is a reshaped slice, where its elements lie side by side. It never
    becomes a slice of the last axis, which some chips read through a path that cuts magnitudes off (N20)."""
    view = node.inputs[0]
    if view.op != "reshape" or not scene.is_read_by(view, CUTS):
        return None
    cut = [axis for axis in range(node.ndim) if node.shape[axis] != view.shape[axis]]
    if len(cut) != 1:
        return None
    axis, x = cut[0], view.inputs[0]
    found = _axis_that_holds(x.shape, view.shape, axis)
    if found is None:
        return None
    source, inner = found
    if source == x.ndim - 1 and axis != view.ndim - 1:
        return None
    begin, size = [0] * x.ndim, list(x.shape)
    begin[source] = node.attrs["begin"][axis] * inner
    size[source] = node.attrs["size"][axis] * inner
    return _sliced(x, begin, size).reshape(*node.shape)


def _axis_that_holds(source: Sequence[int], view: Sequence[int], axis: int) -> tuple[int, int] | None:
    """The axis of the source that an axis of its view is the outermost part of, and the elements of that axis in one
    step of the view's."""
    before = math.prod(view[:axis])
    covered = 1
    for place, extent in enumerate(source):
        if covered == before and extent > 1:
            rest = 1
            for inner in view[axis + 1 :]:
                if view[axis] * rest == extent:
                    break
                rest *= inner
            return (place, rest) if view[axis] * rest == extent else None
        covered *= extent
    return None


def _sliced(x: Tensor, begin: Sequence[int], size: Sequence[int]) -> Tensor:
    """A slice; of a transpose or a view of something, the rules above apply to it in turn."""
    if list(size) == list(x.shape):
        return x
    return x.slice_by_size(list(begin), list(size))


def _needless_copies(node: Tensor, scene: Scene) -> Tensor | None:
    """An operand that is repeated only to have the shape of the other: arithmetic repeats it by itself."""
    operands = [operand.inputs[0] if _only_repeats(operand) else operand for operand in node.inputs]
    if all(new is old for new, old in zip(operands, node.inputs, strict=True)):
        return None
    if np.broadcast_shapes(*(operand.shape for operand in operands)) != node.shape:
        return None
    return make(node.definition, operands, node.attrs)


def _only_repeats(node: Tensor) -> bool:
    """Whether a node repeats axes of one element."""
    if node.op != "tile":
        return False
    x = node.inputs[0]
    return all(extent == 1 or times == 1 for extent, times in zip(x.shape, node.attrs["reps"], strict=True))


MOVEMENT = (
    SpellingRule("needless-copies", tuple(sorted(ops_with(GraphTrait.ARITHMETIC))), _needless_copies),
    SpellingRule("reshape-by-other-names", tuple(sorted(ops_with(GraphTrait.VIEW) - {"reshape"})), _as_reshape),
    SpellingRule("one-reshape", ("reshape",), _one_reshape),
    SpellingRule("turn-behind-view", ("reshape",), _turn_behind_view),
    SpellingRule("one-transpose", ("transpose",), _one_transpose),
    SpellingRule("plain-slice", CUTS, _cut),
    SpellingRule("cut-before-turn", ("slice_by_size",), _cut_before_turn),
    SpellingRule("cut-before-view", ("slice_by_size",), _cut_before_view),
)


# Loops that a file unrolls: each step cuts its input out and writes its result into an array, which later steps and
# the rest of the model read again.


_MANY = 3  # rows from which one product of all of them is worth more than a product of each


def _written(node: Tensor) -> tuple[Tensor, int, int, Tensor] | None:
    """An array, and the axis, first place and rows that a scatter of neighbours writes into it."""
    if node.op != "scatter" or node.attrs["mode"] not in ("set", "add"):
        return None
    indices, axis = node.attrs["indices"], node.attrs["axis"]
    if list(indices) != list(range(indices[0], indices[0] + len(indices))):
        return None
    array, rows = node.inputs
    if node.attrs["mode"] == "add" and not _is_zero(array, axis, indices[0], len(indices)):
        return None
    return array, axis, indices[0], rows


def _is_zero(array: Tensor, axis: int, begin: int, size: int) -> bool:
    """Whether nothing is written yet in these places of an array of zeros."""
    while array.op == "scatter":
        taken = array.attrs["indices"]
        if array.attrs["axis"] != axis or any(begin <= place < begin + size for place in taken):
            return False
        array = array.inputs[0]
    return array.op == "const" and array.weight is not None and not array.weight.array.any()


def _read_back(node: Tensor, scene: Scene) -> Tensor | None:
    """A slice of an array that rows were written into: the rows, or a slice of the array before."""
    found = _written(node.inputs[0])
    if found is None:
        return None
    array, axis, begin, rows = found
    start, size = node.attrs["begin"], node.attrs["size"]
    if start[axis] >= begin + rows.shape[axis] or start[axis] + size[axis] <= begin:
        return array.slice_by_size(list(start), list(size))
    if start[axis] < begin or start[axis] + size[axis] > begin + rows.shape[axis]:
        return None
    inner = [place - begin if number == axis else place for number, place in enumerate(start)]
    return rows if tuple(size) == rows.shape else rows.slice_by_size(inner, list(size))


def _all_written(node: Tensor, scene: Scene) -> Tensor | None:
    """An array behind its last row is its rows, joined, with what it held before in the places between."""
    if scene.count(node, ("scatter",)):
        return None
    axis, rows_at, array = node.attrs["axis"], {}, node
    while (found := _written(array)) is not None and found[1] == axis:
        array, _, begin, rows = found
        rows_at.setdefault(begin, rows)
    if array.op != "const" or len(rows_at) < _MANY:
        return None
    parts, place = [], 0
    for begin in [*sorted(rows_at), node.shape[axis]]:
        if begin > place:
            starts = [place if number == axis else 0 for number in range(node.ndim)]
            sizes = [begin - place if number == axis else extent for number, extent in enumerate(node.shape)]
            parts.append(array.slice_by_size(starts, sizes))
        if begin < place:
            return None
        if begin in rows_at:
            parts.append(rows_at[begin])
            place = begin + rows_at[begin].shape[axis]
    return af.concat(parts, axis=axis)


def _part_of_joined(node: Tensor, scene: Scene) -> Tensor | None:
    """A slice of joined parts along their axis: the parts that lie inside."""
    joined = node.inputs[0]
    if joined.op != "concat":
        return None
    axis = joined.attrs["axis"]
    begin, size = node.attrs["begin"], node.attrs["size"]
    if any(node.shape[place] != joined.shape[place] for place in range(node.ndim) if place != axis):
        return None
    inside, place = [], 0
    for part in joined.inputs:
        if begin[axis] <= place and place + part.shape[axis] <= begin[axis] + size[axis]:
            inside.append(part)
        place += part.shape[axis]
    if sum(part.shape[axis] for part in inside) != size[axis]:
        return None
    return inside[0] if len(inside) == 1 else af.concat(inside, axis=axis)


def _rows_of_one_product(node: Tensor, scene: Scene) -> Tensor | None:
    """A dense layer of one row of many, each of which has the same layer: one product of all rows, then the row."""
    x = node.inputs[0]
    view = x.inputs[0] if x.op == "reshape" else x
    if view.op != "slice_by_size" or any(operand.op != "const" for operand in node.inputs[1:]):
        return None
    whole = view.inputs[0]
    cut = [axis for axis in range(whole.ndim) if view.shape[axis] != whole.shape[axis]]
    rows = [extent for extent in whole.shape[:-1] if extent != 1]
    if len(cut) != 1 or cut[0] == whole.ndim - 1 or rows != [whole.shape[cut[0]]] or x.shape[-1] != whole.shape[-1]:
        return None
    if scene.count(whole, CUTS) < _MANY:
        return None
    every = make(node.definition, (whole.reshape(rows[0], whole.shape[-1]), *node.inputs[1:]), node.attrs)
    place, size = view.attrs["begin"][cut[0]], view.attrs["size"][cut[0]]
    return every.slice_by_size([place, 0], [size, every.shape[1]]).reshape(*node.shape)


LOOPS = (
    SpellingRule("read-back", ("slice_by_size",), _read_back),
    SpellingRule("part-of-joined", ("slice_by_size",), _part_of_joined),
    SpellingRule("all-written", ("scatter",), _all_written),
    SpellingRule("rows-of-one-product", ("linear",), _rows_of_one_product),
)
