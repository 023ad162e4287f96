"""Values that are known when a model is read, computed with NumPy: shapes, places, weights on their way to an op."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from aneforge.frontends import LoadError
from aneforge.frontends.coreai_rules.op import Op
from aneforge.frontends.coreai_rules.records import NUMPY, is_float
from aneforge.frontends.values import axis_of

__all__ = ["STATIC", "folded", "resolved", "scan_way", "slices", "split_sizes"]

Array = np.ndarray
_MOST_ELEMENTS = 1 << 28  # of a value that is made here


def folded(op: Op) -> list[Array]:
    """What an operation of known operands gives, in the file's own types."""
    with np.errstate(all="ignore"):
        found = STATIC[op.kind](op)
    results = list(found) if isinstance(found, (list, tuple)) else [found]
    if len(results) != len(op.results):
        raise LoadError(f"{len(results)} results where the file has {len(op.results)}")
    return [_held(each, kind.dtype) for each, kind in zip(results, op.results, strict=True)]


def _held(value: Any, dtype: str) -> Array:
    if dtype not in NUMPY:
        raise LoadError(f"numbers of type {dtype}")
    with np.errstate(over="ignore"):
        return np.asarray(value).astype(NUMPY[dtype], copy=False)


def _bounded(shape: Sequence[int]) -> None:
    if any(extent < 0 for extent in shape) or math.prod(shape) > _MOST_ELEMENTS:
        raise LoadError(f"a static value of shape {list(shape)}")


def _array(op: Op, place: int = 0) -> Array:
    """Floats in double, so that each operation rounds once, to the type the file says."""
    numbers = op.known(place, "an operand")
    return numbers.astype(np.float64) if numbers.dtype.kind == "f" else numbers


def _unary(function: Callable[[Array], Array]) -> Callable[[Op], Array]:
    return lambda op: function(_array(op))


def _binary(function: Callable[[Array, Array], Array]) -> Callable[[Op], Array]:
    return lambda op: function(_array(op, 0), _array(op, 1))


def _divided(a: Array, b: Array) -> Array:
    """Whole numbers are cut towards zero."""
    if a.dtype.kind == "f":
        return a / b
    whole = np.abs(a.astype(np.int64)) // np.maximum(np.abs(b.astype(np.int64)), 1)
    return whole * np.sign(a.astype(np.int64)) * np.sign(b.astype(np.int64))


def _power(a: Array, b: Array) -> Array:
    return np.power(a.astype(np.float64), b.astype(np.float64))


def _erf(x: Array) -> Array:
    return np.array([math.erf(each) for each in x.reshape(-1)]).reshape(x.shape)


def _gelu(op: Op) -> Array:
    x, way = _array(op), op.text("approximate", "none")
    if way == "tanh":
        return x * 0.5 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    if way == "sigmoid":
        return x / (1 + np.exp(-1.702 * x))
    return x * 0.5 * (1 + _erf(x / math.sqrt(2)))


def _softmax(op: Op) -> Array:
    x, axis = _array(op), op.axis(1)
    parts = np.exp(x - x.max(axis, keepdims=True))
    return parts / parts.sum(axis, keepdims=True)


def _reduction(function: Callable[..., Array]) -> Callable[[Op], Array]:
    return lambda op: function(_array(op), axis=tuple(op.axes(1)), keepdims=True)


def _cast(op: Op) -> Array:
    """Floats lose their fraction on the way to whole numbers."""
    x = _array(op)
    if op.dtype == "i1":
        return x != 0
    if x.dtype.kind == "f" and not is_float(op.dtype):
        if not np.isfinite(x).all():
            raise LoadError(f"a number that is not finite as {op.dtype}")
        return np.trunc(x).astype(np.int64)
    return x


def _range(op: Op) -> Array:
    start, stop, step = (_array(op, place).reshape(-1)[0] for place in range(3))
    if step == 0 or not all(np.isfinite([start, stop, step])):
        raise LoadError(f"a range from {start} to {stop} by {step}")
    _bounded([max(0, math.ceil((float(stop) - float(start)) / float(step)))])
    return np.arange(start, stop, step)


# Movement.


def resolved(start: int, end: int, step: int, extent: int, told: int | None = None) -> range:
    """The places that a slice names. Below its bound a place counts from the end, once; then it is cut to the axis.

    For steps backwards the language's own text and its package (1.0.0b3) differ in what an end before the first place
    is: the package stops short of that place. How many places the file says there are tells which was meant."""
    if step == 0:
        raise LoadError("a slice with steps of 0")
    low, high = (0, extent) if step > 0 else (-1, extent - 1)
    first = min(max(start + extent if start < 0 else start, 0), high)
    written = range(first, min(max(end + extent if end < low else end, low), high), step)
    if step > 0 or told in (None, len(written)):
        return written
    return range(first, min(max(end + extent if end < 0 else end, 0), extent), step)


def slices(op: Op, shape: Sequence[int], told: Sequence[int | None]) -> list[range]:
    starts, ends, steps = (op.numbers(1 + i, what) for i, what in enumerate(("the start", "the end", "the step")))
    if not len(starts) == len(ends) == len(steps) == len(shape) == len(told):
        raise LoadError(f"{len(starts)} starts, {len(ends)} ends and {len(steps)} steps over {list(shape)}")
    return [resolved(*each) for each in zip(starts, ends, steps, shape, told, strict=True)]


def _slice(op: Op) -> Array:
    x = op.known(0, "an operand")
    return x[np.ix_(*slices(op, x.shape, op.results[0].shape))]


def _slice_update(op: Op) -> Array:
    x = np.array(op.known(0, "an operand"))
    x[np.ix_(*slices(op, x.shape, op.types[4].shape))] = op.known(4, "the update")
    return x


def _reshape(op: Op) -> Array:
    return op.known(0, "an operand").reshape(op.numbers(1, "the shape"))


def _expand_dims(op: Op) -> Array:
    x, axes = op.known(0, "an operand"), op.numbers(1, "the axes")
    rank = x.ndim + len(axes)
    return np.expand_dims(x, tuple(axis_of(axis, rank) for axis in axes))


def _shrink_dims(op: Op) -> Array:
    return np.squeeze(op.known(0, "an operand"), tuple(op.axes(1)))


def _broadcast_to(op: Op) -> Array:
    """Left as it is in memory: one number stands for many."""
    shape = op.numbers(1, "the shape")
    _bounded(shape)
    return np.broadcast_to(op.known(0, "an operand"), shape)


def _broadcast_in_dims(op: Op) -> Array:
    x = op.known(0, "an operand")
    shape = list(x.shape)
    for axis, size in zip(op.axes(2), op.numbers(1, "the sizes"), strict=True):
        shape[axis] = size
    _bounded(shape)
    return np.broadcast_to(x, shape)


def _broadcast_shapes(op: Op) -> Array:
    return np.array(np.broadcast_shapes(tuple(op.numbers(0, "a shape")), tuple(op.numbers(1, "a shape"))))


def _tile(op: Op) -> Array:
    x, times = op.known(0, "an operand"), op.numbers(1, "the repetitions")
    whole = [1] * (x.ndim - len(times)) + times
    _bounded([a * b for a, b in zip(x.shape, whole, strict=True)])
    return np.tile(x, whole)


def _concat(op: Op) -> Array:
    parts = [op.known(place, "an operand") for place in range(1, len(op.given))]
    return np.concatenate(parts, axis_of(op.whole(0, "the axis"), parts[0].ndim))


def split_sizes(op: Op, extent: int) -> list[int]:
    told = op.numbers(1, "the sizes")
    if op.rank(1):
        return told
    if told[0] < 1:
        raise LoadError(f"parts of {told[0]}")
    return [min(told[0], extent - first) for first in range(0, extent, told[0])]


def _split(op: Op) -> list[Array]:
    x, axis = op.known(0, "an operand"), op.axis(2)
    return np.split(x, np.cumsum(split_sizes(op, x.shape[axis]))[:-1], axis)


def _pad(op: Op) -> Array:
    x, flat = op.known(0, "an operand"), op.numbers(1, "the padding")
    widths = list(zip(flat[::2], flat[1::2], strict=True))
    _bounded([extent + sum(pair) for extent, pair in zip(x.shape, widths, strict=True)])
    mode = op.text("padding_mode", "constant")
    if mode == "constant":
        return np.pad(x, widths, constant_values=op.known(2, "the fill").reshape(-1)[0])
    return np.pad(x, widths, mode={"replicate": "edge", "circular": "wrap"}.get(mode, mode))  # type: ignore[call-overload]


def _where(op: Op) -> Array:
    return np.where(op.known(0, "the condition").astype(bool), op.known(1, "an operand"), op.known(2, "an operand"))


def _gather_along(op: Op) -> Array:
    x = op.known(0, "an operand")
    places = op.known(1, "the places")
    return np.take_along_axis(x, places.astype(np.int64), op.axis(2))


def _gather_nd(op: Op) -> Array:
    places = op.known(1, "the places").astype(np.int64)
    return op.known(0, "an operand")[tuple(np.moveaxis(places, -1, 0))]


def _argmax(op: Op) -> Array:
    return np.argmax(_array(op), op.axis(1), keepdims=True)


def _order(op: Op) -> Array:
    x = _array(op)
    return np.argsort(-x.astype(np.float64) if op.whole(2, "the direction") else x, op.axis(1), kind="stable")


def scan_way(op: Op) -> str:
    """The file may say it by a number."""
    told = op.text("scan_op", "sum").partition(" ")[0]
    names = ("sum", "product", "min", "max")
    found = names[int(told)] if told.isdigit() and int(told) < len(names) else told
    if found not in names:
        raise LoadError(f"a running {told!r}")
    return found


def _scan(op: Op) -> Array:
    ways = {"sum": np.add, "product": np.multiply, "min": np.minimum, "max": np.maximum}
    x, axis, back = _array(op), op.axis(1), bool(op.whole(2, "the direction"))
    found = ways[scan_way(op)].accumulate(np.flip(x, axis) if back else x, axis=axis)
    return np.flip(found, axis) if back else found


_UNARY: dict[str, Callable[[Array], Array]] = {
    "abs": np.abs,
    "acos": np.arccos,
    "acosh": np.arccosh,
    "asin": np.arcsin,
    "asinh": np.arcsinh,
    "atan": np.arctan,
    "atanh": np.arctanh,
    "cos": np.cos,
    "cosh": np.cosh,
    "erf": _erf,
    "exp": np.exp,
    "log": np.log,
    "not": lambda x: ~x.astype(bool),
    "relu": lambda x: np.maximum(x, 0),
    "round": np.rint,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "sin": np.sin,
    "sinh": np.sinh,
    "sqrt": np.sqrt,
    "tan": np.tan,
    "tanh": np.tanh,
}

_BINARY: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add,
    "and": np.logical_and,
    "batch_matmul": np.matmul,
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
    "divide": _divided,
    "equal": np.equal,
    "floor_divide": np.floor_divide,
    "greater": np.greater,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "modulo": np.fmod,
    "mul": np.multiply,
    "not_equal": np.not_equal,
    "or": np.logical_or,
    "pow": _power,
    "sub": np.subtract,
    "xor": np.logical_xor,
}

STATIC: dict[str, Callable[[Op], Any]] = {
    **{kind: _unary(function) for kind, function in _UNARY.items()},
    **{kind: _binary(function) for kind, function in _BINARY.items()},
    "all": _reduction(np.all),
    "any": _reduction(np.any),
    "argmax": _argmax,
    "argsort": _order,
    "broadcast_in_dims": _broadcast_in_dims,
    "broadcast_shapes": _broadcast_shapes,
    "broadcast_to": _broadcast_to,
    "cast": _cast,
    "concat": _concat,
    "expand_dims": _expand_dims,
    "gather_along_axis": _gather_along,
    "gather_nd": _gather_nd,
    "gelu": _gelu,
    "pad": _pad,
    "range": _range,
    "reduce_max": _reduction(np.max),
    "reduce_mean": _reduction(np.mean),
    "reduce_min": _reduction(np.min),
    "reduce_product": _reduction(np.prod),
    "reduce_sum": _reduction(np.sum),
    "reshape": _reshape,
    "reverse": lambda op: np.flip(op.known(0, "an operand"), tuple(op.axes(1))),
    "scan": _scan,
    "shrink_dims": _shrink_dims,
    "slice": _slice,
    "slice_update": _slice_update,
    "softmax": _softmax,
    "sort": lambda op: np.take_along_axis(_array(op), _order(op), op.axis(1)),
    "split": _split,
    "tile": _tile,
    "transpose": lambda op: op.known(0, "an operand").transpose(op.numbers(1, "the order")),
    "where": _where,
}
