"""The common ops on known values: values that are known when a model is read, and ops that only the host can do.

A function here takes arguments of its common op by their names, which the rows of a format bind, with arrays for
tensors. References of the graph's own ops compute what they can; NumPy computes what they lack: integers, and places
that are computed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Any

import numpy as np

from aneforge.errors import LoadError
from aneforge.formats.importer.calls import CONTEXT, Parameter, called, parameters
from aneforge.formats.importer.op import FileOp
from aneforge.formats.records import is_whole, numpy_type
from aneforge.formats.rows import Row, Rows, bound
from aneforge.formats.values import Array, Value, axis_of
from aneforge.graph.node import definition, ops_with
from aneforge.graph.traits import GraphTrait

# Ops of images and boxes that the host computes: sampling an image at points, and choosing boxes.


_PADDING_MODES = ("constant", "border", "reflection", "symmetric")


def _reflected(places: np.ndarray, extent: int, border: bool) -> np.ndarray:
    """Mirror places beyond an end back into the line; ``border`` says that the end is repeated."""
    if extent == 1:
        return np.zeros_like(places)
    period = 2 * extent if border else 2 * (extent - 1)
    folded = np.mod(places, period)
    return np.where(folded >= extent, period - folded - (1 if border else 0), folded)


def _pixel(value: np.ndarray, extent: int, mode: str, align: bool) -> np.ndarray:
    """A coordinate as a position along an axis; the centre of the first pixel is 0."""
    if mode == "unnormalized":
        return value
    share = (value + 1) / 2 if mode == "normalized_minus_one_to_one" else value
    return share * (extent - 1) if align else share * extent - 0.5


def _resample(op: FileOp) -> np.ndarray:
    x, points = op.known("x").astype(np.float64), op.known("coordinates").astype(np.float64)
    mode, align = op.text("coordinates_mode"), op.truth("align_corners")
    height, width = x.shape[2:]
    columns = _pixel(points[..., 0], width, mode, align)
    rows = _pixel(points[..., 1], height, mode, align)
    if op.text("sampling_mode") == "nearest":
        corners = [(np.rint(rows), np.rint(columns), np.ones_like(rows))]
    else:
        top, left = np.floor(rows), np.floor(columns)
        down, right = rows - top, columns - left
        corners = [
            (top + i, left + j, (down if i else 1 - down) * (right if j else 1 - right))
            for i in (0, 1)
            for j in (0, 1)
        ]
    return sum(_read_pixels(op, x, *corner) for corner in corners)  # type: ignore[return-value]


def _read_pixels(op: FileOp, x: np.ndarray, rows: np.ndarray, columns: np.ndarray, share: np.ndarray) -> np.ndarray:
    mode = op.text("padding_mode")
    if mode not in _PADDING_MODES:
        raise LoadError(f"padding_mode is {mode!r}; choose one: {', '.join(_PADDING_MODES)}")
    places, outside = [], np.zeros(rows.shape, bool)
    for line, extent in ((rows, x.shape[2]), (columns, x.shape[3])):
        outside |= (line < 0) | (line > extent - 1)
        folded = _reflected(line, extent, mode == "symmetric") if mode in ("reflection", "symmetric") else line
        places.append(np.clip(folded, 0, extent - 1).astype(int))
    batch = np.arange(x.shape[0])[:, None, None]
    pixels = np.moveaxis(x[batch, :, places[0], places[1]], -1, 1)
    if mode == "constant":
        pixels = np.where(outside[:, None], op.number("padding_value", 0.0), pixels)
    return pixels * share[:, None]


def _overlap(box: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Intersection over union of boxes (x, y, width, height) about their centres."""
    low = np.maximum(box[:2] - box[2:] / 2, others[:, :2] - others[:, 2:] / 2)
    high = np.minimum(box[:2] + box[2:] / 2, others[:, :2] + others[:, 2:] / 2)
    shared = np.clip(high - low, 0, None).prod(axis=1)
    union = box[2:].prod() + others[:, 2:].prod(axis=1) - shared
    return np.where(union > 0, shared / np.where(union > 0, union, 1), 0.0)


def _select_boxes(
    boxes: np.ndarray, scores: np.ndarray, limit: float, least: float, most: int, by_class: bool
) -> list[int]:
    best, kind = scores.max(axis=1), scores.argmax(axis=1)
    order = [int(i) for i in np.argsort(-best, kind="stable")]
    candidates = [i for i in order if best[i] >= least] or order[:1]  # at least the best box is selected
    selected: list[int] = []
    while candidates and len(selected) < most:
        best_box, *candidates = candidates
        selected.append(best_box)
        over = _overlap(boxes[best_box], boxes[candidates]) > limit
        candidates = [
            i
            for i, hit in zip(candidates, over, strict=True)
            if not (hit and (not by_class or kind[i] == kind[best_box]))
        ]
    return selected


def _suppress_boxes(op: FileOp) -> list[np.ndarray]:
    """Boxes by descending score, without those that overlap a selected box. Unused rows hold zeros and the index
    -1."""
    boxes, scores = op.known("boxes").astype(np.float64), op.known("scores").astype(np.float64)
    old = op.has("score_threshold")
    if not old:
        boxes, scores = boxes.swapaxes(1, 2), scores.swapaxes(1, 2)
    most, least = op.whole("max_boxes"), op.number("score_threshold", -math.inf)
    count = len(boxes)
    results = [np.zeros((count, most, 4)), np.zeros((count, most, scores.shape[2])), np.full((count, most), -1)]
    numbers = np.zeros(count, np.int32)
    for place in range(count):
        settings = op.number("iou_threshold"), least, most, op.truth("per_class_suppression")
        selected = _select_boxes(boxes[place], scores[place], *settings)
        numbers[place] = len(selected)
        for target, source in zip(results, (boxes[place], scores[place], np.arange(len(boxes[place]))), strict=True):
            target[place, : len(selected)] = source[selected]
    if old:
        return [*results, numbers]
    return [results[0].swapaxes(1, 2), results[1].swapaxes(1, 2), results[2]]


SAMPLING: dict[str, Callable[[FileOp], Any]] = {"non_maximum_suppression": _suppress_boxes, "resample": _resample}


MOST_ELEMENTS = 1 << 28
Function = Callable[..., Any]


@dataclass(frozen=True)
class KnownOps:
    """The ops of a format that can be computed on known values, here or on the host."""

    language: str
    """The name of the format in host ops."""
    rows: Rows
    own: Mapping[str, Function] = field(default_factory=dict)
    """Functions of the format, where it has an op that no other format has."""

    def __contains__(self, kind: str) -> bool:
        row = self.rows.get(kind)
        return kind in WITHOUT_FORM or (row is not None and (row.op in self.own or row.op in KNOWN))

    def results(self, op: FileOp) -> list[Array]:
        """The results of an op whose arguments are all known, in the types that the file states."""
        row = self.rows.get(op.kind) or WITHOUT_FORM[op.kind]
        function = self.own.get(row.op) or KNOWN[row.op]
        with np.errstate(all="ignore"):
            computed = called(function, bound(row, op), op, takes=_takes(function, row.function))
            results = computed if isinstance(computed, (list, tuple)) else [computed]
            return [_as_stated_type(op, place, np.asarray(result)) for place, result in enumerate(results)]


@lru_cache(maxsize=1024)
def _takes(function: Function, common: Function) -> tuple[Parameter, ...]:
    """The parameters of a function with the types and defaults of the common op, and arrays for tensors."""
    declared = {entry.name: entry for entry in parameters(common)}
    takes = []
    for name in (parameter.name for parameter in parameters(function)):
        entry = Parameter(name, CONTEXT) if name == "op" else declared[name]
        is_value = entry.kind in ("Tensor", "Numeric", "Value", "Value | float")
        takes.append(replace(entry, kind="Array") if is_value else entry)
    return tuple(takes)


def _as_stated_type(op: FileOp, place: int, value: Array) -> Array:
    kind = op.out_type(place)
    return value if kind is None or value.dtype.kind == "U" else value.astype(numpy_type(kind.dtype), copy=False)


def bounded(shape: Sequence[int]) -> tuple[int, ...]:
    """A shape that is small enough to be filled while a model is read."""
    if any(extent < 0 for extent in shape) or math.prod(shape) > MOST_ELEMENTS:
        raise LoadError(
            f"a known value has shape {list(shape)}; the limit is {MOST_ELEMENTS:,} elements, and no extent below 0"
        )
    return tuple(shape)


def wide(numbers: Array) -> Array:
    """Numbers to compute with. Floats become doubles, so that each op rounds once, to the type that the file states.
    NumPy's functions of fp16 numbers differ between processors."""
    return numbers.astype(np.float64) if numbers.dtype.kind == "f" else numbers


# Element by element.


def _reference(name: str) -> Function:
    reference = definition(name).reference
    assert reference is not None
    return reference


def _unary(function: Function) -> Function:
    return lambda x: function(wide(x))


def _binary(function: Function) -> Function:
    return lambda x, y: function(wide(x), wide(y))


def _divide(a: Array, b: Array) -> Array:
    """Integers stay integers, rounded towards zero."""
    if a.dtype.kind == "f" or b.dtype.kind == "f":
        return np.divide(a, b)
    quotient = np.abs(a.astype(np.int64)) // np.maximum(np.abs(b.astype(np.int64)), 1)
    return quotient * np.sign(a.astype(np.int64)) * np.sign(b.astype(np.int64))


def _power(a: Array, b: Array) -> Array:
    """Powers of integers, as sizes are computed, stay integers. NumPy refuses negative powers of them."""
    if a.dtype.kind in "iu" and b.dtype.kind in "iu" and (b >= 0).all():
        return np.power(a.astype(np.int64), b.astype(np.int64))
    return np.power(a.astype(np.float64), b.astype(np.float64))


def _gelu(x: Array, mode: str) -> Array:
    x, form = wide(x), mode.upper()
    if form.startswith("TANH"):
        return x * 0.5 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    if form.startswith("SIGMOID"):
        return x / (1 + np.exp(-1.702 * x))
    return x * 0.5 * (1 + _reference("erf")(x / math.sqrt(2)))


def _cast(x: Array, dtype: str) -> Array:
    if dtype == "bool":
        return x != 0
    if is_whole(dtype) and x.dtype.kind == "f":
        if not np.isfinite(x).all():
            raise LoadError(f"a number that is not finite cannot be cast to {dtype}")
        return np.trunc(x.astype(np.float64)).astype(np.int64)
    return x.astype(numpy_type(dtype))


def _clip(x: Array, low: Array | None, high: Array | None) -> Array:
    least, most = (None if limit is None else float(limit.reshape(-1)[0]) for limit in (low, high))
    return np.clip(x, least, most)


# Shapes, joins and slices.


def target_shape(shape: tuple[int, ...], target: list[int]) -> list[int]:
    """The shape of a reshape without its zeros. A zero keeps the extent at the same place, counted from the last
    axis."""
    shift = len(shape) - len(target)
    return [(shape[i + shift] if i + shift >= 0 else 1) if extent == 0 else extent for i, extent in enumerate(target)]


def _axes(x: Array, axes: Sequence[int] | None) -> tuple[int, ...]:
    """All of them unless the file names some."""
    return tuple(range(x.ndim)) if axes is None else tuple(axis_of(axis, x.ndim) for axis in axes)


def _expand(x: Array, axes: list[int]) -> Array:
    return np.expand_dims(x, tuple(axis_of(axis, x.ndim + len(axes)) for axis in axes))


def _concat(values: list[Value], axis: int, interleave: bool) -> Array:
    arrays = [
        np.atleast_1d(np.asarray(value)) for value in values
    ]  # single numbers, such as sizes, are joined to a line
    if not interleave:
        return np.concatenate(arrays, axis)
    shape, along = arrays[0].shape, axis % arrays[0].ndim
    return np.stack(arrays, along + 1).reshape(*shape[:along], -1, *shape[along + 1 :])


def _split(x: Array, axis: int, num_splits: int | None, split_sizes: list[int] | None) -> list[Array]:
    if split_sizes is not None:
        return np.split(x, np.cumsum(split_sizes)[:-1], axis)
    if num_splits is None:
        raise LoadError("argument 'num_splits' is missing; the op needs it")
    return np.split(x, num_splits, axis)


def _tile(x: Array, reps: list[int]) -> Array:
    counts = [1] * (x.ndim - len(reps)) + reps
    bounded([extent * count for extent, count in zip(x.shape, counts, strict=True)])
    return np.tile(x, counts)


def _pad(x: Array, pad: list[int], mode: str, constant_val: Array | None) -> Array:
    widths = [(0, 0)] * (x.ndim - len(pad) // 2) + list(zip(pad[::2], pad[1::2], strict=True))
    bounded([extent + sum(pair) for extent, pair in zip(x.shape, widths, strict=True)])
    if mode == "constant":
        return np.pad(x, widths, constant_values=0.0 if constant_val is None else constant_val.reshape(-1)[0])
    return np.pad(x, widths, mode={"replicate": "edge", "circular": "wrap"}.get(mode, mode))  # type: ignore[call-overload]


def slices(op: FileOp, shape: tuple[int, ...]) -> tuple[tuple[slice, ...], list[int]]:
    """The slice of ``slice_by_index`` along each axis, and the axes that it removes."""
    begin, end = op.numbers("begin"), op.numbers("end")
    rank = len(shape)
    if len(begin) != rank or len(end) != rank:
        raise LoadError(f"begin has {len(begin)} values and end has {len(end)}; expected {rank}, one for each axis")
    stride = op.numbers("stride", [1] * rank) or [1] * rank
    if len(stride) != rank:
        raise LoadError(f"stride has {len(stride)} values; expected {rank}, one for each axis")
    from_start, to_end, squeezed = (op.truths(name, rank) for name in ("begin_mask", "end_mask", "squeeze_mask"))
    picked = []
    for axis, extent in enumerate(shape):
        if squeezed[axis]:
            place = begin[axis] + extent if begin[axis] < 0 else begin[axis]
            if not 0 <= place < extent:
                raise LoadError(f"index {begin[axis]} is out of range for axis {axis} of {extent} elements")
            picked.append(slice(place, place + 1))
        else:
            first = None if from_start[axis] else begin[axis]
            picked.append(slice(first, None if to_end[axis] else end[axis], stride[axis]))
    return tuple(picked), [axis for axis in range(rank) if squeezed[axis]]


def _slice_by_index(op: FileOp) -> Array:
    x = op.known("x")
    picked, gone = slices(op, x.shape)
    return x[picked].squeeze(tuple(gone)) if gone else x[picked]


def _slice_by_size(x: Array, begin: list[int], size: list[int]) -> Array:
    first = [b + n if b < 0 else b for b, n in zip(begin, x.shape, strict=True)]
    return x[tuple(slice(b, n if s == -1 else b + s) for b, s, n in zip(first, size, x.shape, strict=True))]


def _slice_update(op: FileOp) -> Array:
    x, update = op.known("x").copy(), op.known("update")
    picked, gone = slices(op, x.shape)
    x[picked] = np.expand_dims(update, tuple(gone)) if gone else update
    return x


def _reverse_sequence(x: Array, lengths: list[int], seq_axis: int, batch_axis: int) -> Array:
    return _reference("reverse_sequence")(x, lengths, axis_of(seq_axis, x.ndim), axis_of(batch_axis, x.ndim))


# Values that are made.


def _fill(shape: list[int], value: Array | None = None) -> Array:
    """A view: the memory is not copied."""
    return np.broadcast_to(0.0 if value is None else value.reshape(-1)[0], bounded(shape))


def _range(start: Array, end: Array, step: Array) -> Array:
    first, last, by = (value.reshape(-1)[0] for value in (start, end, step))
    if by == 0:
        raise LoadError("step must not be 0")
    bounded([max(0, math.ceil((float(last) - float(first)) / float(by)))])
    return np.arange(first, last, by)


def _one_hot(indices: Array, one_hot_vector_size: int, axis: int, on_value: float, off_value: float) -> Array:
    bounded([*indices.shape, one_hot_vector_size])
    return np.moveaxis(_reference("one_hot")(indices, one_hot_vector_size, on_value, off_value), -1, axis)


def _band_part(x: Array, lower: int, upper: int) -> Array:
    inside = _reference("band_part")(np.ones(x.shape[-2:]), lower, upper)
    return np.where(inside != 0, x, np.zeros((), x.dtype))


# Gathers and scatters.


def _count_from_start(indices: Array, extent: int) -> Array:
    integers = indices.astype(np.int64)
    integers = np.where(integers < 0, integers + extent, integers)
    if integers.size and (integers.min() < 0 or integers.max() >= extent):
        raise LoadError(
            f"an index is out of range for an axis of {extent} elements; it must be {-extent} to {extent - 1}"
        )
    return integers


def _in_batches(x: Array, indices: Array, batch: int, pick: Callable[[Array, Array], Array]) -> Array:
    """One choice for each element of the first axes."""
    flat = x.reshape(-1, *x.shape[batch:])
    pairs = zip(flat, indices.reshape(len(flat), *indices.shape[batch:]), strict=True)
    result = np.stack([pick(values, places) for values, places in pairs])
    return result.reshape(*x.shape[:batch], *result.shape[1:])


def gather(x: Array, indices: Array, axis: int, batch_dims: int) -> Array:
    along = axis_of(axis, x.ndim)
    places = _count_from_start(indices, x.shape[along])
    if not batch_dims:
        return np.take(x, places, along)
    return _in_batches(x, places, batch_dims, partial(np.take, axis=along - batch_dims))


def _gather_along(x: Array, indices: Array, axis: int) -> Array:
    along = axis_of(axis, x.ndim)
    return np.take_along_axis(x, _count_from_start(indices, x.shape[along]), along)


def _gather_nd(x: Array, indices: Array, batch_dims: int) -> Array:
    integers = indices.astype(np.int64)
    for place in range(integers.shape[-1]):
        _count_from_start(integers[..., place], x.shape[batch_dims + place])
    return _in_batches(x, integers, batch_dims, lambda values, places: values[tuple(np.moveaxis(places, -1, 0))])


_UPDATES: dict[str, Callable[[Any, Any], Any]] = {
    "update": lambda old, new: new,
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "max": np.maximum,
    "min": np.minimum,
}


def _apply_updates(data: Array, mode: str, places: Array, updates: Array) -> Array:
    """``places`` are [rows, depth]. Each row is updated with one line of ``updates``, in order."""
    result = data.astype(np.float64 if data.dtype.kind == "f" else data.dtype)
    change = _UPDATES[mode]
    for place, update in zip(map(tuple, places), updates, strict=True):
        result[place] = change(result[place], update)
    return result


def _scatter(data: Array, indices: Array, updates: Array, axis: int, mode: str) -> Array:
    along = axis_of(axis, data.ndim)
    places = _count_from_start(indices, data.shape[along]).reshape(-1, 1)
    lines = updates.reshape(*data.shape[:along], -1, *data.shape[along + 1 :])
    result = _apply_updates(np.moveaxis(data, along, 0), mode, places, np.moveaxis(lines, along, 0))
    return np.moveaxis(result, 0, along)


def _scatter_along(data: Array, indices: Array, updates: Array, axis: int, mode: str) -> Array:
    along = axis_of(axis, data.ndim)
    places = np.indices(updates.shape)
    places[along] = _count_from_start(indices, data.shape[along])
    return _apply_updates(data, mode, places.reshape(data.ndim, -1).T, updates.reshape(-1))


def _scatter_nd(data: Array, indices: Array, updates: Array, mode: str) -> Array:
    depth = indices.shape[-1]
    places = np.stack([_count_from_start(indices[..., i], data.shape[i]) for i in range(depth)], -1)
    return _apply_updates(data, mode, places.reshape(-1, depth), updates.reshape(-1, *data.shape[depth:]))


# Along axes.


def _reduction(function: Function) -> Function:
    """A reference of the graph keeps the axes that it reduces."""

    def reduction(x: Array, axes: list[int] | None, keep_dims: bool) -> Array:
        places = _axes(x, axes)
        result = np.asarray(function(wide(x), axes=places))
        return result if keep_dims else result.squeeze(places)

    return reduction


def _truths(function: Function) -> Function:
    return lambda x, axes, keep_dims: function(x, axis=_axes(x, axes), keepdims=keep_dims)


def _position(function: Function) -> Function:
    return lambda x, axis, keep_dims: function(x, axis=axis_of(axis, x.ndim), keepdims=keep_dims).astype(np.int32)


def _cumsum(x: Array, axis: int, exclusive: bool, reverse: bool) -> Array:
    along = axis_of(axis, x.ndim)
    turned = np.flip(x, along) if reverse else x
    total = np.cumsum(turned, along)
    total = total - turned if exclusive else total
    return np.flip(total, along) if reverse else total


def _argsort(x: Array, axis: int, ascending: bool, descending: bool | None = None) -> Array:
    """Formats state either direction."""
    rises = ascending if descending is None else not descending
    numbers = x if rises else -x.astype(np.float64)
    return np.argsort(numbers, axis=axis_of(axis, x.ndim), kind="stable").astype(np.int32)


def _sort(x: Array, axis: int, ascending: bool, descending: bool | None) -> Array:
    return np.take_along_axis(x, _argsort(x, axis, ascending, descending), axis_of(axis, x.ndim))


def _topk(x: Array, k: int, axis: int, ascending: bool) -> list[Array]:
    along = axis_of(axis, x.ndim)
    order = np.take(_argsort(x, axis, ascending), np.arange(k), along)
    return [np.take_along_axis(x, order, along), order]


def _matmul(x: Array, y: Array, transpose_x: bool, transpose_y: bool) -> Array:
    left = wide(x).swapaxes(-1, -2) if transpose_x else wide(x)
    return np.matmul(left, wide(y).swapaxes(-1, -2) if transpose_y else wide(y))


def _by_reference() -> dict[str, Function]:
    """Ops that a reference of the graph computes, also on integers: functions without settings, and reductions."""
    functions: dict[str, Function] = {}
    for name in ops_with(GraphTrait.POINTWISE):
        declared, reference = definition(name), _reference(name)
        if not declared.attributes and len(declared.operands) < 3:
            functions[name] = _unary(reference) if len(declared.operands) == 1 else _binary(reference)
    for name in ops_with(GraphTrait.REDUCTION):
        common = name.removeprefix("reduce_").replace("amax", "max").replace("amin", "min")
        functions[f"reduce_{common}"] = _reduction(_reference(name))
    return functions


KNOWN: dict[str, Function] = {
    **SAMPLING,
    **_by_reference(),
    "argsort": _argsort,
    "band_part": _band_part,
    "bitwise_and": _binary(np.bitwise_and),
    "bitwise_or": _binary(np.bitwise_or),
    "bitwise_xor": _binary(np.bitwise_xor),
    "broadcast_to": lambda x, shape: np.broadcast_to(x, bounded(shape)),
    "cast": _cast,
    "clip": _clip,
    "concat": _concat,
    "cumsum": _cumsum,
    "einsum": lambda values, equation: np.einsum(equation, *(np.asarray(value) for value in values)),
    "expand_dims": _expand,
    "fill": _fill,
    "fill_like": lambda op, ref_tensor, value: _fill(op.shape("ref_tensor"), value),
    "flatten2d": lambda x, axis: x.reshape(math.prod(x.shape[: axis + x.ndim if axis < 0 else axis]), -1),
    "fmod": _binary(np.fmod),
    "gather": gather,
    "gather_along_axis": _gather_along,
    "gather_nd": _gather_nd,
    "gelu": _gelu,
    "identity": lambda x: x,
    "inverse": lambda x, eps: 1 / (wide(x) + eps),
    "log": lambda x, eps: np.log(wide(x) + eps),
    "matmul": _matmul,
    "non_zero": lambda x: np.argwhere(x).astype(np.int32),
    "one_hot": _one_hot,
    "pad": _pad,
    "pow": _binary(_power),
    "range_1d": _range,
    "real_div": _binary(_divide),
    "reduce_all": _truths(np.all),
    "reduce_any": _truths(np.any),
    "reduce_argmax": _position(np.argmax),
    "reduce_argmin": _position(np.argmin),
    "reduce_l2_norm": _reduction(lambda x, axes: np.sqrt(_reference("sum_square")(x, axes=axes))),
    "reshape": lambda x, shape: x.reshape(target_shape(x.shape, shape)),
    "reverse": lambda x, axes: np.flip(x, _axes(x, axes)),
    "reverse_sequence": _reverse_sequence,
    "rsqrt": lambda x, eps: 1 / np.sqrt(wide(x) + eps),
    "scatter": _scatter,
    "scatter_along_axis": _scatter_along,
    "scatter_nd": _scatter_nd,
    "select": lambda cond, a, b: np.where(cond.astype(bool), a, b),
    "shape": lambda x: np.array(x.shape, np.int32),
    "slice_by_index": _slice_by_index,
    "slice_by_size": _slice_by_size,
    "slice_update": _slice_update,
    "softmax": lambda x, axis: _reference("softmax")(wide(x), axis_of(axis, x.ndim)),
    "sort": _sort,
    "split": _split,
    "squeeze": lambda x, axes: x.squeeze(None if axes is None else _axes(x, axes)),
    "stack": lambda values, axis: np.stack([np.asarray(value) for value in values], axis),
    "tile": _tile,
    "topk": _topk,
    "transpose": lambda x, perm: x.transpose(perm),
}
WITHOUT_FORM = {name: Row(name, KNOWN[name]) for name in ("fill", "range_1d")}
"""Ops that exist on known values only."""
