"""Indexing. Known indices become gathers, joins and scatters of the graph. Computed indices become a mask that the
engine selects by, or are left to the host."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from aneforge.frontends import LoadError, forms
from aneforge.frontends.importer.op import Op
from aneforge.frontends.pytorch.functions import gives_truths, typed
from aneforge.frontends.values import Array, NoForm, Numeric, Value, as_tensor, axis_of, shaped
from aneforge.graph.ops.host import host
from aneforge.graph.tensor import Tensor

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


def pick_by_strides(op: Op, x: Tensor, size: list[int], stride: list[int], offset: int = 0) -> Tensor:
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
    op: Op, x: Value, values: Value, axis: int = 0, start: int = 0, end: int | None = None, step: int = 1
) -> Tensor:
    base = typed(op, x)
    along = axis_of(axis, base.ndim)
    places = np.arange(base.shape[along])[start:end:step]
    return forms.written_rows(base, along, places, typed(op, values)) if places.size else base


def write_place(op: Op, x: Value, values: Value, axis: int, index: int) -> Tensor:
    base = typed(op, x)
    return forms.written_rows(base, axis_of(axis, base.ndim), np.array([index]), typed(op, values))


def write_rows(op: Op, x: Numeric, axis: int, indices: Value, values: Numeric) -> Tensor:
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
    op: Op, x: Numeric, indices: Sequence[Array | Tensor | None], values: Numeric, accumulate: bool = False
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


def _marked_write(op: Op, x: Tensor, axis: int, index: Tensor, values: Tensor) -> Tensor:
    """Write at computed indices along one axis. The host turns them into a mask, and the engine selects by it. So a
    cache of keys and values stays on the engine; only the mask is transferred."""
    count, size = index.size, x.shape[axis]
    is_written = _marks(op, index, size, (size,), 1)
    marks = _marks(op, index, size, (size, count), 0) if count > 1 else None
    return forms.marked_rows(x, axis, values, is_written, marks)


def _marks(op: Op, index: Tensor, size: int, shape: tuple[int, ...], output: int) -> Tensor:
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
