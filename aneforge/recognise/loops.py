"""Loops that a file unrolls: each step cuts its input out and writes its result into an array, which later steps and
the rest of the model read again."""

from __future__ import annotations

from aneforge.graph import builders as af
from aneforge.graph.node import make
from aneforge.graph.tensor import Tensor
from aneforge.recognise.movement import CUTS
from aneforge.recognise.rule import Rule, Scene

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
    Rule("read-back", ("slice_by_size",), _read_back),
    Rule("part-of-joined", ("slice_by_size",), _part_of_joined),
    Rule("all-written", ("scatter",), _all_written),
    Rule("rows-of-one-product", ("linear",), _rows_of_one_product),
)
