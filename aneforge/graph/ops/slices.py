"""Native layers that read a part of a tensor: the input view, the slice with a computed start, and the gather."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from aneforge.errors import GraphError
from aneforge.graph.node import Node, Shape, composed, entry, make, op
from aneforge.graph.ops.leaf import as_tensor, const
from aneforge.graph.ops.shape import gather
from aneforge.graph.shapes import axis_of, count, extent, positive, rank_is, whole_number

if TYPE_CHECKING:
    from aneforge.graph.tensor import Tensor


def _places(offset: int, size: int, step: int, length: int) -> range:
    """What a view reads along its axis."""
    last = offset + step * (size - 1)
    if size < 1 or (step == 0 and size > 1) or not (0 <= offset < length and 0 <= last < length):
        every = f", {step} apart," if step != 1 else ""
        raise GraphError(f"{size} elements from {offset}{every} do not fit {length}")
    return range(offset, last + (1 if step > 0 else -1), step or 1)


def _check_along(x: Shape, axes: Sequence[int]) -> None:
    """A file may name any axis."""
    if len(set(axes)) != len(axes) or not all(0 <= axis < len(x) for axis in axes):
        raise GraphError(f"axes {list(axes)} do not name axes of rank {len(x)}, each once")


@op("input_view", "x", "offset size step along", native_layer=True)
class INPUT_VIEW:
    """Elements at equal distances along one axis, or of the tensor as one line."""

    @staticmethod
    def shape(x, offset, size, step, along):
        _check_along(x, () if along is None else (along,))
        _places(offset, size, step, count(x) if along is None else x[along])
        return (size,) if along is None else tuple(size if i == along else own for i, own in enumerate(x))

    @staticmethod
    def reference(x, offset, size, step, along):
        line, axis = (x.reshape(-1), 0) if along is None else (x, along)
        return np.take(line, _places(offset, size, step, line.shape[axis]), axis=axis)

    @staticmethod
    @composed
    def derivative(x, offset, size, step, along):
        line, axis = (x.reshape(x.size), 0) if along is None else (x, along)
        return gather(line, _places(offset, size, step, line.shape[axis]), axis)


def _starts(starts: np.ndarray, lengths: Sequence[int], sizes: Sequence[int]) -> list[int]:
    """Whole numbers, kept so that each slice lies inside (U92)."""
    clamped = np.clip(np.trunc(starts.reshape(-1)), 0, np.subtract(lengths, sizes))
    return [int(start) for start in clamped]


@op("dynamic_slice", "x start", "sizes along", native_layer=True, diverges_as="move")
class DYNAMIC_SLICE:
    """A part of each axis, or of the tensor as one line, from a start that is computed at run time."""

    @staticmethod
    def shape(x, start, sizes, along):
        line, axes = ((count(x),), (0,)) if along is None else (x, along)
        _check_along(line, axes)
        if count(start) != len(axes) or len(sizes) != len(axes):
            raise GraphError(f"the start has {count(start)} numbers; expected {len(axes)}, one for each axis")
        for axis, size in zip(axes, sizes, strict=True):
            if size > line[axis]:
                raise GraphError(f"{size} elements do not fit {line[axis]} along axis {axis}")
        lengths = dict(zip(axes, sizes, strict=True))
        return tuple(lengths.get(axis, own) for axis, own in enumerate(line))

    @staticmethod
    def reference(x, start, sizes, along):
        line, axes = (x.reshape(-1), (0,)) if along is None else (x, along)
        begins = _starts(start, [line.shape[axis] for axis in axes], sizes)
        for axis, begin, size in zip(axes, begins, sizes, strict=True):
            line = np.take(line, range(begin, begin + size), axis=axis)
        return line

    @staticmethod
    def derivative(g, y, x, start, sizes, along):
        """Each axis spread by a matrix that has a one where an element was read from."""
        axes = (0,) if along is None else along
        lengths = [x.size if along is None else x.shape[axis] for axis in axes]
        begins = start.reshape(len(axes))
        for place, (axis, length, size) in enumerate(zip(axes, lengths, sizes, strict=True)):
            begin = begins[place : place + 1].clip(0, length - size).floor()
            steps = const(np.subtract.outer(np.arange(size), np.arange(length)).astype(np.float64))
            spread = (steps + begin).equal(0.0).cast()
            order = [i for i in range(len(g.shape)) if i != axis]
            if not order:
                g = (g.reshape(1, size) @ spread).reshape(length)
                continue
            back = np.argsort([*order, axis]).tolist()
            g = (g.transpose([*order, axis]) @ spread).transpose(back)
        return [g.reshape(x.shape), None]


def _rest(axes: Sequence[int]) -> tuple[int, ...]:
    return tuple(axis for axis in (1, 2, 3) if axis not in axes)


@op("gather_places", "x", "axes indices", gate="Gather", native_layer=True, diverges_as="move")
class GATHER_PLACES:
    """Places that stored indices name along several axes at once: [1, places, 1, what is left of each] (U89)."""

    @staticmethod
    def shape(x, axes, indices):
        rank_is(x, 4, "input")
        if x[0] != 1:
            raise GraphError(f"the batch is {x[0]}; it must be 1")
        if len(set(axes)) != len(axes) or not set(axes) <= {1, 2, 3} or len(axes) < 2:
            raise GraphError(f"axes are {list(axes)}; name two or three of 1, 2 and 3, each once")
        for place in indices:
            for axis, index in zip(axes, place, strict=True):
                if not 0 <= index < x[axis]:
                    raise GraphError(f"index {index} is out of range along axis {axis} of {x[axis]}")
        return 1, len(indices), 1, count(tuple(x[axis] for axis in _rest(axes)))

    @staticmethod
    def reference(x, axes, indices):
        lines = x[0].transpose([axis - 1 for axis in (*axes, *_rest(axes))])
        return lines[tuple(np.array(indices).T)].reshape(1, len(indices), 1, -1)

    @staticmethod
    @composed
    def derivative(x, axes, indices):
        extents = tuple(x.shape[axis] for axis in axes)
        flat = np.ravel_multi_index(tuple(np.array(indices).T), extents).tolist()
        lines = x.transpose([0, *axes, *_rest(axes)])
        picked = gather(lines.reshape(count(extents), x.size // count(extents)), flat, 0)
        return picked.reshape(1, len(indices), 1, picked.shape[1])


@entry
def input_view(x: Tensor, offset: int, size: int, step: int = 1, axis: int | None = None) -> Tensor:
    """``size`` elements from ``offset``, ``step`` apart, along an axis; of the flattened elements without one."""
    attrs = {"offset": extent(offset, "offset"), "size": positive(size, "size"), "step": whole_number(step, "step")}
    return make(INPUT_VIEW, (x,), {**attrs, "along": None if axis is None else axis_of(axis, len(x.shape))})


@entry
def dynamic_slice(x: Tensor, start: Any, size: int = 2) -> Tensor:
    """``size`` of the flattened elements from ``start``: a number, or a tensor of one number that a run computes."""
    length = positive(size, "size")
    if not isinstance(start, Node):
        begin = extent(start, "start")
        if begin + length > x.size:
            raise GraphError(f"{length} elements from {begin} do not fit {x.size}")
        if float(np.float16(begin)) != begin:
            raise GraphError(f"start {begin} is not a number of fp16, which the layer reads; use input_view")
    return slice_from(x, start, [length])


@entry
def slice_from(x: Tensor, start: Any, sizes: Sequence[int], axes: Sequence[int] | None = None) -> Tensor:
    """A part of each named axis, from a start that is a tensor with one number for each."""
    lengths = tuple(positive(size, "size") for size in sizes)
    along = None if axes is None else tuple(axis_of(axis, len(x.shape)) for axis in axes)
    begin = as_tensor(start, "start")
    return make(DYNAMIC_SLICE, (x, begin if begin.shape else begin.reshape(1)), {"sizes": lengths, "along": along})


@entry
def gather_places(x: Tensor, indices: Sequence[Sequence[int]], axes: Sequence[int]) -> Tensor:
    """Places of [1, C, H, W] by one index for each named axis, as [1, places, 1, what is left of each]."""
    along = tuple(axis_of(axis, len(x.shape)) for axis in axes)
    places = tuple(tuple(whole_number(index, "an index") for index in place) for place in indices)
    if not places or any(len(place) != len(along) for place in places):
        raise GraphError(f"each place needs {len(along)} indices, one for each axis")
    return make(GATHER_PLACES, (x,), {"axes": along, "indices": places})
