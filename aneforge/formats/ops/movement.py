"""Shapes, slices, joins and other ops that move numbers to known places."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from aneforge.errors import LoadError
from aneforge.formats.forms import (
    as_number,
    broadcast_to,
    gathered,
    padded,
    parts,
    placed,
    rolled,
    sliced,
    transposed,
    truth,
)
from aneforge.formats.importer.op import FileOp
from aneforge.formats.ops.known import slices, target_shape
from aneforge.formats.values import Array, NoForm, Numeric, Value, axis_of, number, shaped, without_axes
from aneforge.graph import builders as af
from aneforge.graph.tensor import Tensor


def _reshape(x: Tensor, shape: list[int]) -> Tensor:
    """One extent may be -1; it follows from the others."""
    target = target_shape(x.shape, shape)
    if target.count(-1) == 1:
        known_size = math.prod(extent for extent in target if extent != -1)
        if known_size < 1 or x.size % known_size:
            raise LoadError(f"{x.size} elements do not divide into {target}")
        target[target.index(-1)] = x.size // known_size
    return shaped(x, target)


def _reshape_like(
    x: Tensor, ref_tensors: list[Value], begins: list[Value], ends: list[Value], end_masks: list[Value]
) -> Tensor:
    first, last, is_open = ([np.asarray(value).reshape(-1)[0] for value in row] for row in (begins, ends, end_masks))
    shape: list[int] = []
    for place, reference in enumerate(ref_tensors):
        end = None if is_open[place] else int(last[place])
        shape += list(reference.shape)[int(first[place]) : end]
    return shaped(x, shape)


def _expand_dims(op: FileOp, x: Tensor, axes: list[int]) -> Tensor:
    shape = op.shape()
    rank = len(shape) + len(axes)
    places = {axis_of(axis, rank) for axis in axes}
    if len(places) != len(axes):
        raise LoadError(f"axes {axes} name one axis twice; axes must be unique")
    extents = iter(shape)
    return shaped(x, [1 if place in places else next(extents) for place in range(rank)])


def _squeeze(x: Tensor, axes: list[int] | None = None) -> Tensor:
    if axes is None:
        places = [i for i, extent in enumerate(x.shape) if extent == 1]
    else:
        places = [axis_of(axis, x.ndim) for axis in axes]
    if any(x.shape[axis] != 1 for axis in places):
        raise LoadError(f"axes {places} of {list(x.shape)} do not all have one element")
    return shaped(x, without_axes(x.shape, places))


def _transpose(x: Tensor, perm: list[int] | None = None) -> Tensor:
    """Without an order the axes are reversed."""
    return transposed(x, list(range(x.ndim))[::-1] if perm is None else [axis_of(axis, x.ndim) for axis in perm])


def _of_one_type(values: Sequence[Value]) -> list[Tensor]:
    """The values in one type: truth values unless one of them is a number."""
    computed = [value for value in values if isinstance(value, Tensor)]
    if computed and all(value.dtype == "bool" for value in computed):
        return [truth(value) for value in values]
    return [as_number(value) for value in values]


def _concat(values: list[Value], axis: int, interleave: bool = False) -> Tensor:
    """Known values without elements are left out."""
    full = _of_one_type([value for value in values if math.prod(value.shape)])
    along = axis_of(axis, full[0].ndim)
    if not interleave:
        return full[0] if len(full) == 1 else af.concat(full, axis=along)
    shape = [sum(value.shape[along] for value in full) if i == along else n for i, n in enumerate(full[0].shape)]
    return af.stack(full, axis=along + 1).reshape(*shape)


def _split(x: Tensor, axis: int, num_splits: int | None = None, split_sizes: list[int] | None = None) -> list[Tensor]:
    along = axis_of(axis, x.ndim)
    if split_sizes:
        return parts(x, along, split_sizes)
    if not num_splits or num_splits < 1 or x.shape[along] % num_splits:
        raise LoadError(f"axis {along} of {list(x.shape)} does not divide into {num_splits} parts")
    return parts(x, along, [x.shape[along] // num_splits] * num_splits)


def _stack(op: FileOp, values: list[Value], axis: int) -> Tensor:
    tensors = _of_one_type(values)
    kinds = op.types.get("values") or [None]
    if kinds[0] is not None and getattr(kinds[0], "shape", None) == ():
        tensors = [shaped(tensor, (1,)) for tensor in tensors]
        return tensors[0] if len(tensors) == 1 else af.concat(tensors, axis=0)
    return af.stack(tensors, axis=axis_of(axis, tensors[0].ndim + 1))


def _pad(x: Tensor, pad: list[int], mode: str = "constant", constant_val: Value | None = None) -> Tensor:
    """``pad`` has the places before and after each of the last axes."""
    widths = [(0, 0)] * (x.ndim - len(pad) // 2) + list(zip(pad[::2], pad[1::2], strict=True))
    fill = 0.0 if constant_val is None or mode != "constant" else number(constant_val, "'constant_val'")
    return padded(x, widths, "wrap" if mode == "circular" else mode, fill)


def _slice_axes(x: Tensor, picked: Sequence[slice]) -> Tensor:
    for axis, picked_slice in enumerate(picked):
        places = range(x.shape[axis])[picked_slice]
        if not len(places):
            raise LoadError(f"the result is empty along axis {axis}; every axis must have at least one element")
        end = places.stop if places.stop >= 0 else -x.shape[axis] - 1
        x = sliced(x, axis, places.start, end, places.step)
    return x


def _slice_by_index(
    op: FileOp,
    x: Tensor,
    begin: list[int],
    end: list[int],
    stride: list[int] | None = None,
    begin_mask: list[bool] | None = None,
    end_mask: list[bool] | None = None,
    squeeze_mask: list[bool] | None = None,
) -> Tensor:
    picked, gone = slices(op, x.shape)
    result = _slice_axes(x, picked)
    return shaped(result, without_axes(result.shape, gone)) if gone else result


def _slice_axis(x: Tensor, axis: int, begin: int = 0, end: int | None = None, step: int = 1) -> Tensor:
    """A slice along one axis, as in Python."""
    along = axis_of(axis, x.ndim)
    return sliced(x, along, begin, x.shape[along] if end is None else end, step)


def _slice_by_size(x: Tensor, begin: list[int], size: list[int]) -> Tensor:
    """A size of -1 reaches to the end."""
    first = [start + extent if start < 0 else start for start, extent in zip(begin, x.shape, strict=True)]
    ends = [x.shape[i] if size[i] == -1 else first[i] + size[i] for i in range(x.ndim)]
    return _slice_axes(x, [slice(start, end) for start, end in zip(first, ends, strict=True)])


def _slice_update(
    op: FileOp,
    x: Tensor,
    update: Tensor,
    begin: list[int],
    end: list[int],
    stride: list[int] | None = None,
    begin_mask: list[bool] | None = None,
    end_mask: list[bool] | None = None,
    squeeze_mask: list[bool] | None = None,
) -> Tensor:
    picked, _ = slices(op, x.shape)
    extents = [len(range(extent)[picked_slice]) for extent, picked_slice in zip(x.shape, picked, strict=True)]
    return placed(x, shaped(update, extents), picked)


def _tile(x: Tensor, reps: list[int]) -> Tensor:
    """Counts for the last axes, or for more axes than the input has."""
    raised = x if len(reps) <= x.ndim else x.reshape(*(1,) * (len(reps) - x.ndim), *x.shape)
    return raised.tile([1] * (raised.ndim - len(reps)) + reps)


def _reverse(x: Tensor, axes: list[int] | None = None) -> Tensor:
    places = [axis_of(axis, x.ndim) for axis in (range(x.ndim) if axes is None else axes)]
    return x.reverse(places) if places else x


def _roll(x: Tensor, shifts: list[int], axes: list[int] | None = None) -> Tensor:
    """Move elements along some axes in a circle; without axes, in the order of the whole tensor."""
    if not axes:
        return shaped(rolled(x.reshape(x.size), 0, shifts[0]), x.shape)
    for shift, axis in zip(shifts, axes, strict=True):
        x = rolled(x, axis_of(axis, x.ndim), shift)
    return x


def _repeat(x: Tensor, repeats: Array, axis: int | None = None) -> Tensor:
    """Each element along an axis several times; without an axis, of the flattened tensor."""
    if axis is None:
        x, axis = x.reshape(x.size), 0
    along, times = axis_of(axis, x.ndim), repeats.reshape(-1)
    return gathered(x, along, np.repeat(np.arange(x.shape[along]), times if times.size > 1 else int(times[0])))


def _swap_axes(x: Tensor, first: int = -2, second: int = -1) -> Tensor:
    order = list(range(x.ndim))
    a, b = axis_of(first, x.ndim), axis_of(second, x.ndim)
    order[a], order[b] = order[b], order[a]
    return transposed(x, order)


def _move_axes(x: Tensor, source: list[int], destination: list[int]) -> Tensor:
    """The extents 0, 1, 2... end where their axes go."""
    return transposed(x, np.moveaxis(np.empty(range(x.ndim)), source, destination).shape)


def _reverse_sequence(x: Tensor, lengths: list[int], seq_axis: int = 0, batch_axis: int = 0) -> Tensor:
    return af.reverse_sequence(x, lengths, axis_of(seq_axis, x.ndim), axis_of(batch_axis, x.ndim))


def _flatten(x: Tensor, axis: int = 1) -> Tensor:
    """Two axes: all before ``axis``, and the others."""
    along = axis + x.ndim if axis < 0 else axis
    return x.reshape(math.prod(x.shape[:along]), math.prod(x.shape[along:]))


def _identity(x: Value) -> Value:
    return x


def _dropout(x: Value, ratio: float = 0.5, training_mode: bool = False) -> list[Value]:
    """In inference nothing is dropped, and the mask is all True."""
    if training_mode and ratio > 0:
        raise NoForm("training_mode drops elements at random; export the model for inference")
    return [x, np.broadcast_to(np.True_, x.shape)]


def _broadcast_to(x: Tensor, shape: list[int]) -> Tensor:
    return broadcast_to(x, shape or [1])


def _shape(op: FileOp, x: Value) -> Array:
    return np.array(op.shape(), np.int32)


def _fill_like(op: FileOp, ref_tensor: Value, value: Array | None = None) -> Array:
    fill = np.zeros(1) if value is None else value
    return np.broadcast_to(fill.reshape(-1)[0], op.shape("ref_tensor"))


def _band(x: Numeric, lower: int = -1, upper: int = -1) -> Tensor:
    return af.band_part(x, lower, upper)


def _refuse_unknown_count(x: Value) -> Tensor:
    raise LoadError("the number of results depends on the data; the engine needs fixed shapes")


def _random_normal(shape: list[int], mean: float = 0.0, stddev: float = 1.0, seed: int = -1) -> Tensor:
    return af.random_normal(shape, mean, stddev, max(0, seed))


def _random_uniform(shape: list[int], low: float = 0.0, high: float = 1.0, seed: int = -1) -> Tensor:
    return af.random_uniform(shape, low, high, max(0, seed))


def _random_normal_like(x: Tensor, mean: float = 0.0, stddev: float = 1.0, seed: int = -1) -> Tensor:
    return _random_normal(list(x.shape), mean, stddev, seed)


def _random_uniform_like(x: Tensor, low: float = 0.0, high: float = 1.0, seed: int = -1) -> Tensor:
    return _random_uniform(list(x.shape), low, high, seed)


def _random_bernoulli(shape: list[int], prob: float = 0.5, seed: int = -1) -> Tensor:
    return af.random_uniform(shape, seed=max(0, seed)).less(prob).cast()


OPS: dict[str, Callable[..., object]] = {
    "band_part": _band,
    "broadcast_to": _broadcast_to,
    "concat": _concat,
    "dropout": _dropout,
    "expand_dims": _expand_dims,
    "fill_like": _fill_like,
    "flatten2d": _flatten,
    "identity": _identity,
    "move_axes": _move_axes,
    "non_zero": _refuse_unknown_count,
    "pad": _pad,
    "random_bernoulli": _random_bernoulli,
    "random_normal": _random_normal,
    "random_normal_like": _random_normal_like,
    "random_uniform": _random_uniform,
    "random_uniform_like": _random_uniform_like,
    "repeat": _repeat,
    "reshape": _reshape,
    "reshape_like": _reshape_like,
    "reverse": _reverse,
    "reverse_sequence": _reverse_sequence,
    "roll": _roll,
    "shape": _shape,
    "slice_axis": _slice_axis,
    "slice_by_index": _slice_by_index,
    "slice_by_size": _slice_by_size,
    "slice_update": _slice_update,
    "split": _split,
    "squeeze": _squeeze,
    "stack": _stack,
    "swap_axes": _swap_axes,
    "tile": _tile,
    "transpose": _transpose,
}
