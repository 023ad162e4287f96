"""ATen ops of which more must be decided than a row can say: numbers, shapes and indices."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from aneforge.errors import LoadError
from aneforge.formats import forms
from aneforge.formats.importer.op import FileOp
from aneforge.formats.ops import OPS
from aneforge.formats.records import is_whole
from aneforge.formats.values import Array, NoForm, Numeric, Value, as_tensor, axis_of, shaped
from aneforge.graph.ops.host import host
from aneforge.graph.tensor import Tensor

_STRAIGHT = 10.0  # at this input softplus is 5e-5 above its asymptote


def stated_shape(op: FileOp) -> tuple[int, ...]:
    """The shape of the result in the graph, which has no rank 0: a single number has shape (1,)."""
    return op.out_shape() or (1,)


def stated_dtype(op: FileOp) -> str:
    stated = op.out_type()
    return "" if stated is None else stated.dtype


def gives_truths(op: FileOp) -> bool:
    return stated_dtype(op) == "bool"


def typed(op: FileOp, value: Value | float) -> Tensor:
    """An operand in the type of the result."""
    return forms.truth(value) if gives_truths(op) else forms.as_number(value)


def refuse_training(is_training: bool, what: str) -> None:
    if is_training:
        raise LoadError(f"training mode {what}; use module.eval() before exporting")


# Arithmetic and activations.


def _times_alpha(value: Value | float, alpha: float) -> Value | float:
    if alpha == 1.0:
        return value
    return alpha * value if isinstance(value, (int, float)) else forms.scaled(forms.as_number(value), alpha)


def plus(op: FileOp, a: Value | float, b: Value | float, alpha: float = 1.0) -> Tensor:
    """a + alpha * b; a sum of truth values is their or."""
    return OPS["logical_or"](a, b) if gives_truths(op) else forms.added(a, _times_alpha(b, alpha))


def minus(a: Value | float, b: Value | float, alpha: float = 1.0) -> Tensor:
    return forms.subtracted(a, _times_alpha(b, alpha))


def times(op: FileOp, a: Value | float, b: Value | float) -> Tensor:
    return OPS["logical_and"](a, b) if gives_truths(op) else forms.multiplied(a, b)


def choose(op: FileOp, mask: Value, yes: Value, no: Value) -> Tensor:
    return forms.chosen(mask, yes, no, gives_truths(op))


def softplus_above(x: Numeric, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """Above the threshold PyTorch returns x. At _STRAIGHT and above, softplus and x are equal in fp16."""
    if threshold < _STRAIGHT:
        raise LoadError(f"softplus with threshold {threshold:g} is not supported; it must be at least {_STRAIGHT:g}")
    return forms.softplus(x, 1 / beta, beta)


def rrelu(x: Numeric, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False) -> Tensor:
    refuse_training(training, "draws a random slope in every run")
    return forms.leaky_relu(x, (lower + upper) / 2)


def dropout(x: Value, ratio: float = 0.5, training: bool = False) -> list[Value]:
    refuse_training(training and ratio > 0, "drops elements at random")
    return OPS["dropout"](x)


# Shapes.


def view(op: FileOp, x: Tensor) -> Tensor:
    """A view, a squeeze or a flatten: the same elements in the shape that PyTorch states."""
    return shaped(x, stated_shape(op))


def expand(op: FileOp, x: Value) -> Tensor:
    return forms.broadcast_to(typed(op, x), stated_shape(op))


def convert(op: FileOp, x: Tensor) -> Tensor:
    return OPS["cast"](forms.as_number(x) if x.dtype == "uint8" else x, stated_dtype(op), op)


def filled(op: FileOp, value: Value | float = 0.0) -> Value:
    """A tensor of one number, known or computed."""
    if isinstance(value, Tensor):
        return forms.broadcast_to(forms.as_number(value), stated_shape(op))
    kind = bool if gives_truths(op) else np.int64 if is_whole(stated_dtype(op)) else np.float32
    return np.full(op.out_shape() or (), float(np.asarray(value)), kind)


def split_as_stated(op: FileOp, x: Tensor, axis: int = 0) -> list[Tensor]:
    along = axis_of(axis, x.ndim)
    return forms.parts(x, along, [kind.shape[along] for _, kind in op.outputs])  # type: ignore[union-attr,misc]


def unbind(x: Tensor, axis: int = 0) -> list[Tensor]:
    along = axis_of(axis, x.ndim)
    return forms.parts(x, along, [1] * x.shape[along])


def select_place(x: Tensor, axis: int, index: int) -> Tensor:
    along = axis_of(axis, x.ndim)
    place = index % x.shape[along]
    return forms.sliced(x, along, place, place + 1)


def narrow(x: Tensor, axis: int, start: int, length: int) -> Tensor:
    return forms.sliced(x, axis_of(axis, x.ndim), start, start + length)


def windows_last(x: Tensor, axis: int, size: int, step: int) -> Tensor:
    """Sliding windows along an axis, as a new last axis."""
    along = axis_of(axis, x.ndim)
    return OPS["move_axes"](OPS["sliding_windows"](x, along, size, step), [along + 1], [-1])


def pad_last(x: Numeric, pad: list[int], mode: str = "constant", value: float = 0.0) -> Tensor:
    """PyTorch lists pads from the last axis: before, after, before, after."""
    pairs = list(zip(pad[::2], pad[1::2], strict=True))
    return forms.padded(
        x, [(0, 0)] * (x.ndim - len(pairs)) + pairs[::-1], "wrap" if mode == "circular" else mode, value
    )


def extreme_place(x: Numeric, axis: int | None = None, largest: bool = True) -> Tensor:
    """Without an axis, the place in the flattened tensor."""
    if axis is None:
        return forms.whole_position(x, largest)
    return forms.position(x, axis_of(axis, x.ndim), True, largest)


# Indexing. Known indices become gathers, joins and scatters of the graph. Computed indices become a mask that the
# engine selects by, or are left to the host.


_MOST_WRITES = 4096
_BY_INDEX = "it picks elements by a computed index; the engine takes fixed indices only (C42)"
_TABLE = "it looks up rows of a table by a computed index; the engine takes fixed indices only (C42)"
_WRITES = "it writes to computed indices; the engine takes fixed indices only (C42)"


def _known(indices: Value, reason: str = _BY_INDEX) -> Array:
    """Known indices or a known mask."""
    if isinstance(indices, Tensor):
        raise NoForm(reason)
    return np.asarray(indices)


# Reading.


def pick(x: Tensor, indices: Sequence[Value | None]) -> Tensor:
    """Advanced indexing as in NumPy."""
    known = [None if index is None else _known(index) for index in indices]
    used = [(axis, index) for axis, index in enumerate(known) if index is not None]
    if len(used) == 1 and used[0][1].dtype != bool:
        return forms.picked_rows(x, *used[0])
    return forms.picked(x, forms.element_numbers(x)[_key(known)])


def _key(indices: Sequence[Array | None]) -> tuple[Any, ...]:
    return tuple(slice(None) if index is None else index for index in indices)


def pick_rows(x: Tensor, axis: int, indices: Value) -> Tensor:
    return forms.picked_rows(x, axis_of(axis, x.ndim), _known(indices))


def look_up(x: Value, indices: Value) -> Tensor:
    places = _known(indices, _TABLE)
    return forms.gathered(as_tensor(x), 0, places)


def pick_elements(x: Tensor, axis: int, indices: Value) -> Tensor:
    """One index for each element of the result."""
    return forms.gathered_elements(x, axis_of(axis, x.ndim), _known(indices))


def pick_flat(x: Tensor, indices: Value) -> Tensor:
    return forms.picked(x, forms.element_numbers(x).reshape(-1)[_known(indices)])


def pick_diagonal(x: Tensor, offset: int = 0, first: int = 0, second: int = 1) -> Tensor:
    return forms.picked(x, np.diagonal(forms.element_numbers(x), offset, first, second))


def pick_by_strides(op: FileOp, x: Tensor, size: list[int], stride: list[int], offset: int = 0) -> Tensor:
    """Offsets in memory, for a contiguous tensor."""
    packed = tuple(math.prod(x.shape[i + 1 :]) for i in range(x.ndim))
    strides = tuple(op.attributes["strides"]) or (1,)
    if strides != packed:
        raise LoadError(
            f"strides {list(strides)} of the input are not supported; a view by strides needs a contiguous input"
        )
    steps = np.meshgrid(*(np.arange(n) * s for n, s in zip(size, stride, strict=True)), indexing="ij")
    return forms.picked(x, np.asarray(sum(steps, np.asarray(offset))))


# Writing.


def write_slice(
    op: FileOp, x: Value, values: Value, axis: int = 0, start: int = 0, end: int | None = None, step: int = 1
) -> Tensor:
    base = typed(op, x)
    along = axis_of(axis, base.ndim)
    places = np.arange(base.shape[along])[start:end:step]
    return forms.written_rows(base, along, places, typed(op, values)) if places.size else base


def write_place(op: FileOp, x: Value, values: Value, axis: int, index: int) -> Tensor:
    base = typed(op, x)
    return forms.written_rows(base, axis_of(axis, base.ndim), np.array([index]), typed(op, values))


def write_rows(op: FileOp, x: Numeric, axis: int, indices: Value, values: Numeric) -> Tensor:
    along = axis_of(axis, x.ndim)
    if isinstance(indices, Tensor):
        return _marked_write(op, x, along, indices, values)
    return forms.written_rows(x, along, np.asarray(indices), values)


def add_rows(x: Numeric, axis: int, indices: Value, values: Numeric, alpha: float = 1.0) -> Tensor:
    lines = values if alpha == 1.0 else values * alpha
    return forms.written_rows(x, axis_of(axis, x.ndim), _known(indices, _WRITES), lines, "add")


def fill_rows(x: Numeric, axis: int, indices: Value, value: Numeric) -> Tensor:
    places = _known(indices, _WRITES)
    return forms.written_rows(x, axis_of(axis, x.ndim), places, value.reshape(*(1,) * x.ndim))


def write(
    op: FileOp, x: Numeric, indices: Sequence[Array | Tensor | None], values: Numeric, accumulate: bool = False
) -> Tensor:
    used = [(axis, index) for axis, index in enumerate(indices) if index is not None]
    axis, index = used[0]
    if len(used) == 1 and not accumulate:
        if index.dtype in ("bool", np.bool_) and values.size == 1:
            return _write_by_mask(x, index, values)
        if isinstance(index, Tensor) and not gives_truths(op):
            return _marked_write(op, x, axis, index, values)
    known = [None if index is None else _known(index, _WRITES) for index in indices]
    reduction = "add" if accumulate else "none"
    if len(used) == 1 and index.ndim == 1 and index.dtype != np.bool_:
        return forms.written_rows(x, axis, np.asarray(index), values, reduction)
    return _write_numbers(x, forms.element_numbers(x)[_key(known)], values, reduction)


def _write_by_mask(x: Tensor, mask: Value, value: Tensor) -> Tensor:
    """One value where a mask over the first axes is true."""
    condition = forms.truth(mask)
    shape = (*condition.shape, *(1,) * (x.ndim - condition.ndim))
    return forms.chosen(shaped(condition, shape), value.reshape(*(1,) * x.ndim), x)


def _write_numbers(x: Tensor, numbers: Array, values: Tensor, reduction: str) -> Tensor:
    if numbers.size > _MOST_WRITES:
        raise NoForm(f"it writes {numbers.size:,} elements one by one; the limit is {_MOST_WRITES:,}")
    return forms.written(x, numbers, values, reduction)


def _marked_write(op: FileOp, x: Tensor, axis: int, index: Tensor, values: Tensor) -> Tensor:
    """Write at computed indices along one axis. The host turns them into a mask, and the engine selects by it. So a
    cache of keys and values stays on the engine; only the mask is transferred."""
    count, size = index.size, x.shape[axis]
    is_written = _marks(op, index, size, (size,), 1)
    marks = _marks(op, index, size, (size, count), 0) if count > 1 else None
    return forms.marked_rows(x, axis, values, is_written, marks)


def _marks(op: FileOp, index: Tensor, size: int, shape: tuple[int, ...], output: int) -> Tensor:
    """The mask, created once for all writes to the same indices, such as the caches of all layers."""
    shared = op.attributes["shared"]
    key = ("marks", index.uid, size, output)
    if key not in shared:
        shared[key] = host(
            [index],
            language="torch",
            kind="aneforge.marks",
            body=json.dumps({"size": size}),
            shape=shape,
            dtype="bool" if output else "fp16",
            output=output,
            reason="it turns computed indices into a mask; the engine selects by it where to write",
        )
    return shared[key]


def write_elements(x: Numeric, axis: int, indices: Value, values: Numeric, reduce: str = "none") -> Tensor:
    """One index for each element that is written."""
    places, along = _known(indices, _WRITES), axis_of(axis, x.ndim)
    if reduce not in ("none", "add"):
        raise NoForm(f"reduce {reduce!r} is not supported; the engine has 'add' only")
    window = tuple(slice(0, extent) if i != along else slice(None) for i, extent in enumerate(places.shape))
    numbers = np.take_along_axis(forms.element_numbers(x)[window], places, along)
    if values.ndim == places.ndim and values.shape != places.shape:
        values = values.slice_by_size([0] * values.ndim, places.shape)
    return _write_numbers(x, numbers, values, reduce)


def reduce_elements(
    x: Numeric, axis: int, indices: Value, values: Numeric, reduce: str, include_self: bool = True
) -> Tensor:
    if reduce == "sum" and include_self:
        return write_elements(x, axis, indices, values, "add")
    raise NoForm(f"reduce {reduce!r} is not supported; the engine has 'sum' with include_self=True only")
