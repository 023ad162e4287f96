"""Shapes, slices, joins and other ops that move numbers to known places."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from aneforge.frontends import LoadError
from aneforge.frontends.forms import as_number, broadcast_to, padded, parts, sliced, transposed, truth
from aneforge.frontends.importer.op import Op, Rule
from aneforge.frontends.ops.known import slices, target_shape
from aneforge.frontends.values import NoForm, Value, axis_of, shaped, without_axes
from aneforge.graph import builders as af
from aneforge.graph.tensor import Tensor

__all__ = ["RULES", "placed"]

_MOST_PLACES = 1 << 22  # elements of a table of places that the graph stores


def _reshape(op: Op) -> Tensor:
    """One extent may be -1; it follows from the others."""
    x = op.tensor()
    target = target_shape(x.shape, op.numbers("shape"))
    if target.count(-1) == 1:
        known_size = math.prod(extent for extent in target if extent != -1)
        if known_size < 1 or x.size % known_size:
            raise LoadError(f"{x.size} elements do not divide into {target}")
        target[target.index(-1)] = x.size // known_size
    return shaped(x, target)


def _reshape_like(op: Op) -> Tensor:
    begins, ends, open_ = (
        [np.asarray(value).reshape(-1)[0] for value in op.values(name)] for name in ("begins", "ends", "end_masks")
    )
    shape: list[int] = []
    for place, reference in enumerate(op.values("ref_tensors")):
        last = None if open_[place] else int(ends[place])
        shape += list(reference.shape)[int(begins[place]) : last]
    return shaped(op.tensor(), shape)


def _expand_dims(op: Op) -> Tensor:
    shape, axes = op.shape(), op.numbers("axes")
    rank = len(shape) + len(axes)
    places = {axis_of(axis, rank) for axis in axes}
    if len(places) != len(axes):
        raise LoadError(f"axes {axes} name one axis twice")
    extents = iter(shape)
    return shaped(op.tensor(), [1 if place in places else next(extents) for place in range(rank)])


def _squeeze(op: Op) -> Tensor:
    x = op.tensor()
    axes = op.axes(x.ndim) if op.has("axes") else [i for i, extent in enumerate(x.shape) if extent == 1]
    if any(x.shape[axis] != 1 for axis in axes):
        raise LoadError(f"axes {axes} of {list(x.shape)} do not all have one element")
    return shaped(x, without_axes(x.shape, axes))


def _transpose(op: Op) -> Tensor:
    x = op.tensor()
    return transposed(x, [axis_of(axis, x.ndim) for axis in op.numbers("perm")])


def _of_one_type(values: Sequence[Value]) -> list[Tensor]:
    """The values in one type: truth values unless one of them is a number."""
    computed = [value for value in values if isinstance(value, Tensor)]
    if computed and all(value.dtype == "bool" for value in computed):
        return [truth(value) for value in values]
    return [as_number(value) for value in values]


def _concat(op: Op) -> Tensor:
    values = _of_one_type([value for value in op.values("values") if math.prod(value.shape)])
    axis = op.axis(values[0].ndim)
    if not op.truth("interleave"):
        return values[0] if len(values) == 1 else af.concat(values, axis=axis)
    shape = [sum(value.shape[axis] for value in values) if i == axis else n for i, n in enumerate(values[0].shape)]
    return af.stack(values, axis=axis + 1).reshape(*shape)


def _split(op: Op) -> list[Tensor]:
    x = op.tensor()
    axis = op.axis(x.ndim)
    if op.has("split_sizes"):
        return parts(x, axis, op.numbers("split_sizes"))
    count = op.whole("num_splits")
    if count < 1 or x.shape[axis] % count:
        raise LoadError(f"axis {axis} of {list(x.shape)} does not divide into {count} parts")
    return parts(x, axis, [x.shape[axis] // count] * count)


def _stack(op: Op) -> Tensor:
    values = _of_one_type(op.values("values"))
    kinds = op.types.get("values") or [None]
    if kinds[0] is not None and getattr(kinds[0], "shape", None) == ():
        values = [shaped(value, (1,)) for value in values]
        return values[0] if len(values) == 1 else af.concat(values, axis=0)
    return af.stack(values, axis=axis_of(op.whole("axis"), values[0].ndim + 1))


def _pad(op: Op) -> Tensor:
    x, pad = op.tensor(), op.numbers("pad")
    widths = [(0, 0)] * (x.ndim - len(pad) // 2) + list(zip(pad[::2], pad[1::2], strict=True))
    mode = op.text("mode", "constant")
    fill = op.number("constant_val", 0.0) if mode == "constant" else 0.0
    return padded(x, widths, "wrap" if mode == "circular" else mode, fill)


def _slice_axes(x: Tensor, picked: Sequence[slice]) -> Tensor:
    for axis, picked_slice in enumerate(picked):
        places = range(x.shape[axis])[picked_slice]
        if not len(places):
            raise LoadError(f"the result is empty along axis {axis}; every axis must have at least one element")
        end = places.stop if places.stop >= 0 else -x.shape[axis] - 1
        x = sliced(x, axis, places.start, end, places.step)
    return x


def _slice_by_index(op: Op) -> Tensor:
    x = op.tensor()
    picked, gone = slices(op, x.shape)
    result = _slice_axes(x, picked)
    return shaped(result, without_axes(result.shape, gone)) if gone else result


def _slice_by_size(op: Op) -> Tensor:
    x, begin, size = op.tensor(), op.numbers("begin"), op.numbers("size")
    begin = [first + extent if first < 0 else first for first, extent in zip(begin, x.shape, strict=True)]
    ends = [x.shape[i] if size[i] == -1 else begin[i] + size[i] for i in range(x.ndim)]
    return _slice_axes(x, [slice(first, last) for first, last in zip(begin, ends, strict=True)])


def placed(x: Tensor, update: Tensor, picked: Sequence[slice]) -> Tensor:
    """Replace a block of ``x``: concatenate the part before it, the update and the part after it, along each axis that
    the block does not fill."""
    places = [range(x.shape[axis])[picked_slice] for axis, picked_slice in enumerate(picked)]
    if any(len(axis_places) != extent for axis_places, extent in zip(places, update.shape, strict=True)):
        raise LoadError(
            f"the update has shape {list(update.shape)}; expected {[len(axis_places) for axis_places in places]}"
        )
    if any(axis_places.step != 1 and len(axis_places) > 1 for axis_places in places):
        if x.size > _MOST_PLACES:
            raise NoForm(f"the input has {x.size:,} elements; the limit of an update with steps is {_MOST_PLACES:,}")
        flat = np.arange(x.size).reshape(x.shape)[tuple(picked)].reshape(-1)
        return af.scatter(x.reshape(x.size), flat.tolist(), update.reshape(update.size)).reshape(*x.shape)
    cut = [axis for axis, axis_places in enumerate(places) if len(axis_places) < x.shape[axis]]
    block = update
    for number in reversed(range(len(cut))):
        around = x
        for axis in cut[:number]:
            around = sliced(around, axis, places[axis][0], places[axis][-1] + 1)
        axis = cut[number]
        first, last = places[axis][0], places[axis][-1] + 1
        pieces = [block]
        if first > 0:
            pieces.insert(0, sliced(around, axis, 0, first))
        if last < x.shape[axis]:
            pieces.append(sliced(around, axis, last, x.shape[axis]))
        block = af.concat(pieces, axis=axis)
    return block


def _slice_update(op: Op) -> Tensor:
    x = op.tensor()
    picked, _ = slices(op, x.shape)
    extents = [len(range(extent)[picked_slice]) for extent, picked_slice in zip(x.shape, picked, strict=True)]
    return placed(x, shaped(op.tensor("update"), extents), picked)


def _tile(op: Op) -> Tensor:
    x, times = op.tensor(), op.numbers("reps")
    return x.tile([1] * (x.ndim - len(times)) + times)


def _reverse(op: Op) -> Tensor:
    x = op.tensor()
    return x.reverse(op.axes(x.ndim))


def _reverse_sequence(op: Op) -> Tensor:
    x = op.tensor()
    axes = op.axis(x.ndim, 0, "seq_axis"), op.axis(x.ndim, 0, "batch_axis")
    return af.reverse_sequence(x, op.numbers("lengths"), *axes)


def _flatten(op: Op) -> Tensor:
    x, axis = op.tensor(), op.whole("axis", 1)
    axis = axis + x.ndim if axis < 0 else axis
    return x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))


def _shape(op: Op) -> np.ndarray:
    return np.array(op.shape(), np.int32)


def _fill_like(op: Op) -> np.ndarray:
    return np.broadcast_to(op.known("value", 0.0).reshape(-1)[0], op.shape("ref_tensor"))


def _refuse_unknown_count(op: Op) -> Tensor:
    raise LoadError("the number of results depends on the data; the engine needs fixed shapes")


def _random(op: Op) -> Tensor:
    seed = max(0, op.whole("seed", -1))
    shape = op.numbers("shape")
    if op.kind == "random_normal":
        return af.random_normal(shape, op.number("mean", 0.0), op.number("stddev", 1.0), seed)
    if op.kind == "random_bernoulli":
        return af.random_uniform(shape, seed=seed).less(op.number("prob", 0.5)).cast()
    return af.random_uniform(shape, op.number("low", 0.0), op.number("high", 1.0), seed)


def _refuse_suppression(op: Op) -> list[Tensor]:
    raise NoForm("the boxes that remain depend on the data; the engine cannot choose them")


def _band(op: Op) -> Tensor:
    return af.band_part(op.tensor(), op.whole("lower", -1), op.whole("upper", -1))


RULES: dict[str, Rule] = {
    "band_part": _band,
    "broadcast_to": lambda op: broadcast_to(as_number(op.value()), op.numbers("shape") or [1]),
    "concat": _concat,
    "expand_dims": _expand_dims,
    "fill_like": _fill_like,
    "flatten2d": _flatten,
    "identity": lambda op: op.value("x"),
    "non_maximum_suppression": _refuse_suppression,
    "non_zero": _refuse_unknown_count,
    "pad": _pad,
    "random_bernoulli": _random,
    "random_normal": _random,
    "random_uniform": _random,
    "reshape": _reshape,
    "reshape_like": _reshape_like,
    "reverse": _reverse,
    "reverse_sequence": _reverse_sequence,
    "shape": _shape,
    "slice_by_index": _slice_by_index,
    "slice_by_size": _slice_by_size,
    "slice_update": _slice_update,
    "split": _split,
    "squeeze": _squeeze,
    "stack": _stack,
    "tile": _tile,
    "transpose": _transpose,
}
