"""Ops of numbers and shapes where ONNX has rules of its own: many operands, types, older forms, further results."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np

from aneforge.errors import LoadError
from aneforge.formats import forms
from aneforge.formats.forms.pointwise import BINARY
from aneforge.formats.importer.op import FileOp
from aneforge.formats.ops import OPS
from aneforge.formats.values import Array, NoForm, Numeric, Value, as_tensor, axis_of, number, shaped
from aneforge.graph.tensor import Tensor

# Elementwise ops.


_FLOATS = (1, 10, 11, 16)
_WHOLE = (2, 3, 4, 5, 6, 7, 12, 13)
_BOOL = 9


def _chain(function: Callable[[Any, Any], Tensor]) -> Callable[..., Tensor]:
    def chain(values: list[Value]) -> Tensor:
        return as_tensor(reduce(function, values[1:], values[0]))

    return chain


def mean_of(values: list[Value]) -> Tensor:
    return forms.scaled(as_tensor(reduce(forms.added, values)), 1.0 / len(values))


def divide(x: Value, y: Value) -> Tensor:
    """Integers are divided towards zero. One known integer operand is enough, since all operands have one type."""
    whole = any(isinstance(value, np.ndarray) and value.dtype.kind in "iu" for value in (x, y))
    return forms.divided(x, y, "trunc" if whole else "")


def prelu_of(x: Numeric, slope: Value) -> Tensor:
    by_channel = slope.ndim == 1 and x.ndim > 2 and slope.shape[0] == x.shape[1] != x.shape[-1]
    if by_channel and isinstance(slope, np.ndarray):  # the form of files before opset 7
        slope = slope.reshape(-1, *(1,) * (x.ndim - 2))
    return forms.prelu(x, slope)


def choose(condition: Value, a: Value, b: Value) -> Tensor:
    return forms.chosen(condition, a, b, forms.are_truths(a, b))


def cast_to(x: Value, to: int = 1) -> Tensor:
    """All numbers are fp16 in the graph; a cast to integers drops the fraction."""
    if to == _BOOL:
        return forms.truth(x)
    numbers = forms.as_number(x)
    if to in _FLOATS:
        return numbers
    if to not in _WHOLE:
        raise NoForm("a cast to a type of fewer bits is not supported; the engine has fp16 rounding only")
    from_bool = isinstance(x, Tensor) and x.dtype == "bool"
    return numbers if from_bool else forms.truncated(numbers)


def cast_like(x: Value, like: Value) -> Value:
    """Cast to the type of another value."""
    if isinstance(like, Tensor):
        to = _BOOL if like.dtype == "bool" else 1
        return x.astype(bool if to == _BOOL else np.float32) if isinstance(x, np.ndarray) else cast_to(x, to)
    kind = np.asarray(like).dtype
    if kind.kind == "b":
        return cast_to(x, _BOOL)
    if kind.name in ("float16", "float32", "float64", "bfloat16"):
        return cast_to(x, 1)
    if kind.name.removeprefix("u") in ("int8", "int16", "int32", "int64"):
        return cast_to(x, 7)
    raise NoForm(f"a cast to {kind.name} is not supported; the engine has fp16 rounding only")


largest_of = _chain(BINARY["maximum"])
smallest_of = _chain(BINARY["minimum"])
sum_of = _chain(forms.added)


# Norms and softmax.


def _of_rows(function: Callable[[Tensor, int], Tensor]) -> Callable[..., Tensor]:
    """Before opset 13 the axis and all after it are one row."""

    def of_rows(x: Numeric, axis: int = 1) -> Tensor:
        rows = x.reshape(math.prod(x.shape[: axis_of(axis, x.ndim)]), -1)
        return shaped(function(rows, 1), x.shape)

    return of_rows


def batch_norm_of(
    op: FileOp,
    x: Numeric,
    gamma: Value,
    beta: Value,
    mean: Value,
    variance: Value,
    epsilon: float = 1e-5,
    training_mode: bool = False,
    momentum: float = 0.9,
) -> Tensor | list[Tensor]:
    """In inference the statistics are inputs. In training mode they come from the batch, and the running statistics
    are updated."""
    if not training_mode:
        return forms.batch_norm(x, mean, variance, gamma, beta, epsilon)
    return forms.batch_norm_in_training(x, gamma, beta, mean, variance, epsilon, momentum)


hardmax_of_rows = _of_rows(forms.hard_maximum)
log_softmax_of_rows = _of_rows(forms.log_softmax)
softmax_of_rows = _of_rows(Tensor.softmax)


# Shapes, slices and pads.


_MOST_ELEMENTS = 1 << 24  # of a constant that is created while a file is read
_MODES = {"constant": "constant", "edge": "replicate", "reflect": "reflect", "wrap": "wrap"}


def reshape_to(x: Tensor, shape: list[int], allowzero: bool = False) -> Tensor:
    """A zero keeps the extent at its place, unless ``allowzero``."""
    extents = shape if allowzero else [x.shape[i] if extent == 0 else extent for i, extent in enumerate(shape)]
    return forms.reshaped(x, extents)


def split_to(
    op: FileOp, x: Tensor, split: list[int] | None = None, axis: int = 0, num_outputs: int = 0
) -> list[Value]:
    """Without sizes all parts are equal, and the last may be shorter."""
    along, count = axis_of(axis, x.ndim), len(op.outputs)
    if split is None:
        longest = -(-x.shape[along] // count)
        split = [min(longest, x.shape[along] - i * longest) for i in range(count)]
    if sum(split) != x.shape[along]:
        raise LoadError(f"split {split} adds up to {sum(split)}; axis {along} has {x.shape[along]} elements")
    pieces = iter(forms.parts(x, along, [size for size in split if size]))
    return [next(pieces) if size else _empty_part(x, along) for size in split]


def _empty_part(x: Tensor, axis: int) -> Array:
    """Return an empty array with the shape of the part."""
    return np.zeros(tuple(0 if i == axis else extent for i, extent in enumerate(x.shape)), np.float32)


def slice_axes(
    x: Tensor, starts: list[int], ends: list[int], axes: list[int] | None = None, steps: list[int] | None = None
) -> Value:
    result = x
    places = axes or list(range(len(starts)))
    for begin, end, axis, step in zip(starts, ends, places, steps or [1] * len(starts), strict=True):
        along = axis_of(axis, x.ndim)
        if not len(range(x.shape[along])[slice(begin, end, step)]):
            return _empty_part(result, along)
        result = forms.sliced(result, along, begin, end, step)
    return result


def pad_axes(
    x: Tensor, pads: list[int], value: Value | None = None, axes: list[int] | None = None, mode: str = "constant"
) -> Tensor:
    """``pads`` has the places before all axes, then those behind them."""
    places = [axis_of(axis, x.ndim) for axis in axes] if axes is not None else list(range(x.ndim))
    widths = [(0, 0)] * x.ndim
    for place, axis in enumerate(places):
        widths[axis] = (pads[place], pads[place + len(places)])
    fill = 0.0 if value is None else value if isinstance(value, float) else number(value, "input 'constant_value'")
    if mode not in _MODES:
        raise NoForm(f"mode {mode!r} is not supported; choose one: {', '.join(_MODES)}")
    if x.dtype == "bool":
        return forms.truth(forms.padded(forms.as_number(x), widths, _MODES[mode], fill))
    return forms.padded(x, widths, _MODES[mode], fill)


def eye_like(x: Tensor, k: int = 0) -> Array:
    if x.ndim != 2 or x.size > _MOST_ELEMENTS:
        raise NoForm(
            f"an input of shape {list(x.shape)} is not supported; expected rank 2 and at most {_MOST_ELEMENTS:,} "
            "elements"
        )
    return np.eye(x.shape[0], x.shape[1], k, np.float32)


def center_crop_pad(x: Tensor, shape: list[int], axes: list[int] | None = None) -> Tensor:
    """Crop or zero-pad both sides of some axes; an odd element goes to the end."""
    widths = [(0, 0)] * x.ndim
    for axis, extent in zip(range(x.ndim) if axes is None else axes, shape, strict=True):
        growth = extent - x.shape[axis_of(axis, x.ndim)]
        before = growth // 2 if growth >= 0 else -(-growth // 2)
        widths[axis_of(axis, x.ndim)] = (before, growth - before)
    return forms.padded(x, widths)


def shape_of(x: Tensor, start: int = 0, end: int | None = None) -> Array:
    return np.array(x.shape, np.int64)[slice(start, end)]


def size_of(x: Tensor) -> Array:
    return np.array(x.size, np.int64)


# Places. The engine needs fixed indices.


def tensor_scatter(
    cache: Tensor, update: Tensor, write_indices: list[int] | None = None, axis: int = -2, mode: str = "linear"
) -> Tensor:
    """Write an update into a cache, for each sample from its own start."""
    along = axis_of(axis, cache.ndim)
    size, length = cache.shape[along], update.shape[along]
    positions = np.array(write_indices or [0] * cache.shape[0])[:, None] + np.arange(length)
    positions = positions % size if mode == "circular" else positions
    shape = [cache.shape[0] if i == 0 else length if i == along else 1 for i in range(cache.ndim)]
    indices = np.broadcast_to(positions.reshape(shape), update.shape)
    return forms.scattered_elements(cache, along, indices, update)


def compress(x: Tensor, condition: Array, axis: int | None = None) -> Tensor:
    places = np.flatnonzero(condition.reshape(-1))
    if not len(places):
        raise NoForm("condition keeps no element; empty tensors are not supported. Keep at least one")
    if axis is None:
        return forms.gathered(x.reshape(x.size), 0, places)
    return forms.gathered(x, axis_of(axis, x.ndim), places)


def one_hot_of(op: FileOp, indices: Tensor, depth: int, values: list[float], axis: int = -1) -> Tensor:
    """Computed indices as one-hot vectors on a new axis; a negative index counts from the end."""
    off, on = values
    return OPS["one_hot"](op, indices, depth, axis, on, off, from_end=True)
