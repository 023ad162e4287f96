"""Rules for operations of Core AI that are not common ops, and for operations that merge into a convolution or a pool.

The language has separate operations for padding and division; the engine's convolutions and pools do both themselves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from aneforge.errors import LoadError
from aneforge.frontends import forms, ops
from aneforge.frontends.coreai import compressed
from aneforge.frontends.coreai.known import scan_function, slice_places, split_sizes, spread_shape
from aneforge.frontends.coreai.table import REFUSED
from aneforge.frontends.coreml.table import ROWS as MIL
from aneforge.frontends.forms import as_number, sliced
from aneforge.frontends.importer.op import Op
from aneforge.frontends.records import Block, is_whole
from aneforge.frontends.rows import Row, apply
from aneforge.frontends.values import NoForm, Value
from aneforge.graph import builders as af
from aneforge.graph.encoding import Encoded
from aneforge.graph.halves import FP16_MAX
from aneforge.graph.tensor import Tensor

Array = np.ndarray
Pads = list[tuple[int, int]]

_MOST_WEIGHTS = 1 << 24
_CLOSE = 2e-3  # the error of a reciprocal in fp16 is smaller
_COMMON = {name: MIL.get(name) or Row(name, function) for name, function in ops.OPS.items() if name not in REFUSED}
"""The common ops by the names of MIL, which Core AI shares."""


# Arithmetic.


def _constant_number(value: Value) -> float | None:
    """The number that all elements of a known argument are equal to; None if there is no such number."""
    if isinstance(value, (Tensor, Encoded)) or value.size == 0:
        return None
    number = value.reshape(-1)[0] if 0 not in value.strides else value[(0,) * value.ndim]
    return float(number) if (value == number).all() else None


def _with_numbers(name: str) -> Callable[[Op], Any]:
    """Turn a constant that the file broadcasts to the full shape back into a number."""

    def collapsed(op: Op) -> Any:
        arguments = dict(op.arguments)
        for side, other in (("x", "y"), ("y", "x")):
            number, other_type = _constant_number(op.value(side)), op.type_of(other)
            if number is not None and other_type is not None and other_type.static == op.out_shape():
                arguments[side] = [np.asarray(number)]
        return apply(_COMMON[name], replace(op, arguments=arguments))

    return collapsed


def _mul(op: Op) -> Any:
    for pool, count in (("x", "y"), ("y", "x")):
        average = _average(op, pool, count, inverse=True)
        if average is not None:
            return average
    return _with_numbers("mul")(op)


def _divide(op: Op) -> Any:
    average = _average(op, "x", "y", inverse=False)
    return _with_numbers("real_div")(op) if average is None else average


def _floor_divide(op: Op) -> Tensor:
    """The language has no floor operation; models divide by 1 instead."""
    kind = op.type_of("x")
    if _constant_number(op.value("y")) == 1.0 and kind is not None and op.out_shape() == kind.static:
        return op.tensor().floor()
    return forms.divided(op.tensor(), op.tensor("y"), "floor")


def _cast(op: Op) -> Any:
    """A cast to integers removes the fraction. Casts that may wrap around are refused, since the engine does not
    wrap."""
    before, after = op.dtype("x"), op.text("dtype")
    if is_whole(after) and before != "bool":
        if is_whole(before) and not _can_hold(after, before):
            raise NoForm(f"a cast from {before} to {after} wraps around, but the engine does not; use a wider type")
        if not is_whole(before) and after not in ("int16", "int32", "int64"):
            raise NoForm(
                f"a cast of computed numbers to {after} wraps around, but the engine does not; use int16 or more bits"
            )
    return apply(_COMMON["cast"], op)


def _can_hold(outer: str, inner: str) -> bool:
    wide, narrow = (np.iinfo(f"{'u' if name[0] == 'u' else ''}int{max(8, _bits(name))}") for name in (outer, inner))
    return wide.min <= narrow.min and wide.max >= narrow.max


def _bits(dtype: str) -> int:
    return int(dtype.lstrip("uint"))


# Products, with the padding before them.


def _absorb_padding(op: Op, is_neutral: Callable[[float], bool]) -> tuple[Tensor, Pads]:
    """The first argument without its padding, and that padding, if it is only along spatial axes and nothing else
    reads it."""
    x = as_number(op.value())
    none = [(0, 0)] * (x.ndim - 2)
    pad = op.maker("x")
    if pad is None or pad.kind != "pad" or pad.text("mode", "constant") != "constant":
        return x, none
    if isinstance(pad.value("constant_val"), Tensor) or not is_neutral(pad.number("constant_val")):
        return x, none
    widths = pad.numbers("pad")
    if any(widths[:4]):  # samples or channels
        return x, none
    return as_number(pad.value()), list(zip(widths[4::2], widths[5::2], strict=True))


def _matrix(value: Value) -> Array | Encoded | None:
    """The matrix of a known argument that is one matrix, possibly broadcast over a batch."""
    if isinstance(value, Tensor):
        return None
    if value.ndim == 2:
        return value
    if isinstance(value, Encoded):
        return None
    is_spread = all(
        extent == 1 or step == 0 for extent, step in zip(value.shape[:-2], value.strides[:-2], strict=True)
    )
    return value[(0,) * (value.ndim - 2)] if is_spread else None


def _as_number(value: Value) -> Value:
    return as_number(value) if isinstance(value, Tensor) else value


def _matmul(op: Op) -> Tensor:
    matrix = _matrix(op.value("y"))
    if matrix is not None:
        product = forms.linear(as_number(op.value()), matrix.T)
        if op.out_shape() in (None, product.shape):
            return product
    return forms.matmul(_as_number(op.value()), _as_number(op.value("y")))


def _convolution(op: Op) -> Tensor:
    x, pads = _absorb_padding(op, lambda fill: fill == 0)
    return forms.convolution(
        x,
        _as_number(op.value("weight")),
        stride=op.numbers("strides"),
        pads=pads,
        dilation=op.numbers("dilations"),
        groups=op.whole("groups"),
    )


def _transposed(op: Op) -> Tensor:
    flat, rank = op.numbers("pad"), op.tensor().ndim - 2
    return forms.transposed_convolution(
        as_number(op.value()),
        _as_number(op.value("weight")),
        stride=op.numbers("strides"),
        pads=[(n, n) for n in flat] if len(flat) == rank else list(zip(flat[::2], flat[1::2], strict=True)),
        dilation=op.numbers("dilations"),
        output_padding=op.numbers("output_padding"),
        groups=op.whole("groups"),
    )


# Pools.


def _max_pool(op: Op) -> Tensor:
    x, pads = _absorb_padding(op, lambda fill: fill <= -FP16_MAX)
    size, stride, dilation = _window(op)
    return forms.max_pool(x, size, stride=stride, pads=pads, dilation=dilation, ceil=op.truth("ceil_mode"))


def _window(op: Op) -> tuple[list[int], list[int], list[int]]:
    size = op.numbers("kernel_sizes")
    return size, op.numbers("strides"), op.numbers("dilations", [1] * len(size))


def _sum_pool(op: Op) -> Tensor:
    x, pads = _absorb_padding(op, lambda fill: fill == 0)
    size, stride, dilation = _window(op)
    return forms.window_sum(x, size, stride=stride, pads=pads, dilation=dilation)


def _average(op: Op, pool: str, count: str, inverse: bool) -> Tensor | None:
    """The average pool, if a sum of windows is divided by their number of elements, with or without the padding."""
    pool_op, shape = op.maker(pool), op.out_shape()
    if (
        pool_op is None
        or pool_op.kind not in ("sum_pool_2d", "sum_pool_3d")
        or shape is None
        or pool_op.out_shape() != shape
    ):
        return None
    counts = _positive_counts(op.value(count))
    if counts is None:
        return None
    counts = 1.0 / counts if inverse else counts
    x, pads = _absorb_padding(pool_op, lambda fill: fill == 0)
    size, stride, dilation = _window(pool_op)
    inside = _elements_inside(x.shape[2:], size, stride, dilation, pads, shape[2:])
    for expected, count_pad in ((np.full(1, math.prod(size)), True), (inside, False)):
        if np.broadcast_shapes(counts.shape, expected.shape, shape) != shape:
            continue
        if (np.abs(counts / expected - 1) < _CLOSE).all():
            average = forms.average_pool(x, size, stride=stride, pads=pads, dilation=dilation, count_pad=count_pad)
            return average.named(pool_op.name)
    return None


def _positive_counts(value: Value) -> Array | None:
    if isinstance(value, (Tensor, Encoded)):
        return None
    numbers = value.astype(np.float64)
    return numbers if numbers.size and (numbers > 0).all() else None


def _elements_inside(
    extents: Sequence[int],
    size: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    pads: Pads,
    out: Sequence[int],
) -> Array:
    """The number of elements of each window that are not padding."""
    total = np.ones(1)
    for axis, extent in enumerate(extents):
        first = np.arange(out[axis])[:, None] * stride[axis] - pads[axis][0]
        places = first + np.arange(size[axis]) * dilation[axis]
        counts = ((places >= 0) & (places < extent)).sum(axis=1)
        total = total[..., None] * counts if axis else counts.astype(np.float64)
    return total


# Resampling at places that are known.


def _weights(positions: Array, extent: int, mode: str) -> Array:
    """Weights [places, extent] of each place of a line; places outside are moved to its ends."""
    count = len(positions) * extent
    if count > _MOST_WEIGHTS:
        raise NoForm(
            f"{len(positions)} results of {extent} places need {count:,} weights; the limit is {_MOST_WEIGHTS:,}"
        )
    if mode == "nearest_neighbor":
        return np.eye(extent)[np.clip(np.rint(positions), 0, extent - 1).astype(int)]
    if mode != "linear":
        raise NoForm(f"interpolation mode {mode!r} is not supported; use linear or nearest_neighbor")
    inside = np.clip(positions, 0, extent - 1)
    first = np.minimum(np.floor(inside).astype(int), max(extent - 2, 0))
    part, rows = inside - first, np.arange(len(positions))
    weights = np.zeros((len(positions), extent))
    weights[rows, first] += 1 - part
    weights[rows, np.minimum(first + 1, extent - 1)] += part
    return weights


def _interpolate(op: Op) -> Tensor:
    x, out = as_number(op.value()), op.numbers("shape")
    scale, offset = (op.known(name).astype(np.float32).reshape(-1) for name in ("scale", "offset"))
    if not len(out) == len(scale) == len(offset) == x.ndim or not (scale != 0).all():
        raise LoadError(f"shape, scale and offset must have {x.ndim} values each, and no scale may be 0")
    weights: dict[int, Array] = {}
    for axis, extent in enumerate(x.shape):
        # In single precision, as Core AI computes it: the nearest of two neighbours may depend on it.
        positions = (np.arange(out[axis], dtype=np.float32) + np.float32(0.5) - offset[axis]) / scale[
            axis
        ] - np.float32(0.5)
        matrix = _weights(positions, extent, op.text("interpolation_mode", "linear"))
        if matrix.shape != (extent, extent) or not (matrix == np.eye(extent)).all():
            weights[axis] = matrix
    return forms.resampled(x, weights)


def _interpolate_coordinates(op: Op) -> Tensor:
    x, coordinates = as_number(op.value()), op.known("coordinates").astype(np.float64)
    count = len(coordinates) * x.size
    if count > _MOST_WEIGHTS:
        raise NoForm(f"{len(coordinates)} places need {count:,} weights; the limit is {_MOST_WEIGHTS:,}")
    total = np.ones((len(coordinates), 1))
    for axis, extent in enumerate(x.shape):
        line = _weights(coordinates[:, axis], extent, op.text("interpolation_mode", "linear"))
        total = (total[:, :, None] * line[:, None, :]).reshape(len(coordinates), -1)
    return x.reshape(1, x.size).linear(total).reshape(len(coordinates))


# Slices, splits and broadcasts.


def _reshape(op: Op) -> Tensor:
    return forms.reshaped(op.tensor(), op.out_shape() or op.numbers("shape") or (1,))


def _broadcast_in_dims(op: Op) -> Tensor:
    x = as_number(op.value())
    return forms.broadcast_to(x, spread_shape(op, x.shape))


def _slice_axis(x: Tensor, axis: int, places: range) -> Tensor:
    if not len(places):
        raise LoadError(f"the result is empty along axis {axis}; every axis must have at least one element")
    if places.step == 1:
        return sliced(x, axis, places.start, places.stop)
    return x.reverse([axis]) if len(places) == x.shape[axis] else af.gather(x, list(places), axis=axis)


def _slice(op: Op) -> Tensor:
    x, kind = as_number(op.value()), op.out_type()
    for axis, places in enumerate(slice_places(op, x.shape, None if kind is None else kind.shape)):
        x = x if places == range(x.shape[axis]) else _slice_axis(x, axis, places)
    return x


def _slice_update(op: Op) -> Tensor:
    x, kind = as_number(op.value()), op.type_of("update")
    places = slice_places(op, x.shape, None if kind is None else kind.shape)
    return ops.movement.placed(x, as_number(op.value("update")), [slice(*_bounds(axis)) for axis in places])


def _bounds(places: range) -> tuple[int, int | None, int]:
    return places.start, places.stop if places.stop >= 0 else None, places.step


def _split(op: Op) -> list[Tensor]:
    x = as_number(op.value())
    axis = op.axis(x.ndim)
    return forms.parts(x, axis, split_sizes(op, x.shape[axis]))


def _scatter_nd(op: Op) -> Any:
    (block,) = op.blocks
    if list(block.operations) or len(block.inputs) != 2 or block.outputs != [block.inputs[1][0]]:
        raise NoForm("a block that combines updates with old values is not supported; use one that replaces them")
    return apply(_COMMON["scatter_nd"], op)


# Reductions with a block that combines two elements.

_REDUCTIONS: dict[
    str, tuple[Callable[[Tensor, tuple[int, ...]], Tensor], Callable[[Tensor, Tensor], Tensor], float]
] = {
    "add": (Tensor.sum, lambda a, b: a + b, 0.0),
    "mul": (Tensor.prod, lambda a, b: a * b, 1.0),
    "maximum": (Tensor.amax, af.maximum, float("-inf")),
    "minimum": (Tensor.amin, af.minimum, float("inf")),
}


def _reduce(op: Op) -> Tensor:
    (block,) = op.blocks
    kind = _only_operation(block)
    if kind not in _REDUCTIONS:
        raise NoForm("the block of a reduction must be one sum, product, maximum or minimum")
    function, join, neutral = _REDUCTIONS[kind]
    x, start = as_number(op.value()), op.number("start")
    axes = op.axes(x.ndim)
    total = function(x, tuple(sorted(axes))) if axes else x
    is_extreme = kind in ("maximum", "minimum") and abs(start) > FP16_MAX and (start < 0) == (neutral < 0)
    return total if start == neutral or is_extreme else join(total, as_number(op.value("start")))


def _only_operation(block: Block) -> str:
    """The kind of the only operation of a block; empty if there is not exactly one."""
    operations = list(block.operations)
    if len(operations) != 1 or block.outputs != [name for name, _ in operations[0].outputs]:
        return ""
    return operations[0].kind


def _reduce_index(op: Op) -> Tensor:
    (block,) = op.blocks
    best, candidate = (name for name, _ in block.inputs)
    compared = list(next(iter(block.operations)).reads())
    if _only_operation(block) != "greater" or set(compared) != {best, candidate}:
        raise NoForm("the block of a position must be one comparison")
    largest = compared == [candidate, best]
    start, x = op.number("start"), as_number(op.value())
    if (start > -FP16_MAX if largest else start < FP16_MAX) or op.whole("first") != 0:
        raise NoForm(
            f"start value {start:g} at index {op.whole('first')} is not supported; use an infinite value and index 0"
        )
    return forms.position(x, op.axis(x.ndim), keep=True, largest=largest)


def _scan(op: Op) -> Tensor:
    """Sums are a product with a triangle of ones. Other scans combine each element with those 1, 2, 4... before it."""
    x, backwards = as_number(op.value()), op.truth("reverse")
    axis, function = op.axis(x.ndim), scan_function(op)
    if function == "sum":
        return forms.cumulative_sum(x, axis, reverse=backwards)
    join = {"product": _REDUCTIONS["mul"][1], "min": af.minimum, "max": af.maximum}[function]
    running, extent, step = x.reverse([axis]) if backwards else x, x.shape[axis], 1
    while step < extent:
        joined = join(sliced(running, axis, step, extent), sliced(running, axis, 0, extent - step))
        running = af.concat([sliced(running, axis, 0, step), joined], axis=axis)
        step *= 2
    return running.reverse([axis]) if backwards else running


_SPREAD = ("add", "sub", "pow", "fmod", "equal", "not_equal", "greater")

_OWN: dict[str, Callable[[Op], Any]] = {
    **{name: _with_numbers(name) for name in _SPREAD},
    **dict.fromkeys(("conv2d", "conv3d"), _convolution),
    **dict.fromkeys(("conv_transpose2d", "conv_transpose3d"), _transposed),
    **dict.fromkeys(("max_pool_2d", "max_pool_3d"), _max_pool),
    **dict.fromkeys(("sum_pool_2d", "sum_pool_3d"), _sum_pool),
    **compressed.RULES,
    "broadcast_in_dims": _broadcast_in_dims,
    "cast": _cast,
    "floor_div": _floor_divide,
    "interpolate": _interpolate,
    "interpolate_coordinates": _interpolate_coordinates,
    "matmul": _matmul,
    "mul": _mul,
    "real_div": _divide,
    "reduce": _reduce,
    "reduce_index": _reduce_index,
    "reshape": _reshape,
    "scan": _scan,
    "scatter_nd": _scatter_nd,
    "slice": _slice,
    "slice_update": _slice_update,
    "split": _split,
}

ROWS: dict[str, Row] = {**_COMMON, **{name: Row(name, function) for name, function in _OWN.items()}}
"""By op: the common one, or a rule of this language."""
