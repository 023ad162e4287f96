"""Rules of Core AI for what a row cannot say: operations that merge into a convolution or a pool, and operations that
no other format has.

The language has separate operations for padding and division; the engine's convolutions and pools do both themselves.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from aneforge.errors import LoadError
from aneforge.formats import forms
from aneforge.formats.forms import as_number, sliced
from aneforge.formats.forms.pointwise import BINARY
from aneforge.formats.forms.reductions import REDUCTIONS
from aneforge.formats.importer.calls import called
from aneforge.formats.importer.op import FileOp
from aneforge.formats.ops import OPS
from aneforge.formats.ops.compressed import along_axis, repeat_blocks, shift_and_scale
from aneforge.formats.ops.images import mixing_weights, resample_changed_axes
from aneforge.formats.ops.known import bounded, wide
from aneforge.formats.ops.movement import placed
from aneforge.formats.records import BITS, Block, is_whole, numpy_type
from aneforge.formats.values import Array, NoForm, Numeric, Value, as_tensor, axis_of, known
from aneforge.graph.encoding import Encoded
from aneforge.graph.halves import FP16_MAX
from aneforge.graph.tensor import Tensor
from aneforge.text import whole_number

Rule = Callable[..., Any]
Pads = list[tuple[int, int]]

_MOST_WEIGHTS = 1 << 24
_CLOSE = 2e-3  # the error of a reciprocal in fp16 is smaller


# Arithmetic.


def _constant_number(value: Value) -> float | None:
    """The number that all elements of a known argument are equal to; None if there is no such number."""
    if isinstance(value, (Tensor, Encoded)) or value.size == 0:
        return None
    number = value.reshape(-1)[0] if 0 not in value.strides else value[(0,) * value.ndim]
    return float(number) if (value == number).all() else None


def _with_numbers(name: str) -> Rule:
    """Turn a constant that the file broadcasts to the full shape back into a number."""

    def collapsed(op: FileOp, x: Value, y: Value) -> Tensor:
        sides: dict[str, Any] = {"x": x, "y": y}
        for side, value, other in (("x", x, "y"), ("y", y, "x")):
            number, other_type = _constant_number(value), op.type_of(other)
            if number is not None and other_type is not None and other_type.static == op.out_shape():
                sides[side] = np.asarray(number)
        return OPS[name](**sides)

    return collapsed


def _mul(op: FileOp, x: Value, y: Value) -> Tensor:
    for pool, count in (("x", y), ("y", x)):
        average = _average(op, pool, count, inverse=True)
        if average is not None:
            return average
    return _with_numbers("mul")(op, x, y)


def _divide(op: FileOp, x: Value, y: Value) -> Tensor:
    average = _average(op, "x", y, inverse=False)
    return _with_numbers("real_div")(op, x, y) if average is None else average


def _floor_divide(op: FileOp, x: Tensor, y: Value) -> Tensor:
    """The language has no floor operation; models divide by 1 instead."""
    kind = op.type_of("x")
    if _constant_number(y) == 1.0 and kind is not None and op.out_shape() == kind.static:
        return x.floor()
    return forms.divided(x, as_tensor(y), "floor")


def _cast(op: FileOp, x: Value, dtype: str) -> Tensor:
    """A cast to integers removes the fraction. Casts that may wrap around are refused, since the engine does not
    wrap."""
    before = op.dtype("x")
    if is_whole(dtype) and before != "bool":
        if is_whole(before):
            wide_type, narrow = (
                np.iinfo(f"{'u' if name[0] == 'u' else ''}int{max(8, BITS[name])}") for name in (dtype, before)
            )
            if wide_type.min > narrow.min or wide_type.max < narrow.max:
                raise NoForm(
                    f"a cast from {before} to {dtype} wraps around, but the engine does not; use a wider type"
                )
        elif dtype not in ("int16", "int32", "int64"):
            raise NoForm(
                f"a cast of computed numbers to {dtype} wraps around, but the engine does not; use int16 or more bits"
            )
    return called(OPS["cast"], {"x": x, "dtype": dtype}, op)


# Products, with the padding before them.


def _absorb_padding(op: FileOp, is_neutral: Callable[[float], bool]) -> tuple[Tensor, Pads]:
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


def _factor(value: Value) -> Value:
    return as_number(value) if isinstance(value, Tensor) else value


def _matmul(op: FileOp, x: Value, y: Value) -> Tensor:
    matrix = _matrix(y)
    if matrix is not None:
        product = forms.linear(as_number(x), matrix.T)
        if op.out_shape() in (None, product.shape):
            return product
    return forms.matmul(_factor(x), _factor(y))


def _convolution(op: FileOp, x: Value, weight: Value, strides: list[int], dilations: list[int], groups: int) -> Tensor:
    bare, pads = _absorb_padding(op, lambda fill: fill == 0)
    return forms.convolution(bare, _factor(weight), stride=strides, pads=pads, dilation=dilations, groups=groups)


def _transposed(
    x: Numeric,
    weight: Value,
    strides: list[int],
    pad: list[int],
    dilations: list[int],
    output_padding: list[int],
    groups: int,
) -> Tensor:
    return forms.transposed_convolution(
        x,
        _factor(weight),
        stride=strides,
        pads=[(n, n) for n in pad] if len(pad) == x.ndim - 2 else list(zip(pad[::2], pad[1::2], strict=True)),
        dilation=dilations,
        output_padding=output_padding,
        groups=groups,
    )


# Pools.


def _max_pool(
    op: FileOp,
    x: Value,
    kernel_sizes: list[int],
    strides: list[int],
    dilations: list[int] | None = None,
    ceil_mode: bool = False,
) -> Tensor:
    bare, pads = _absorb_padding(op, lambda fill: fill <= -FP16_MAX)
    return forms.max_pool(bare, forms.PoolWindow(kernel_sizes, strides, pads, dilations or (), ceil_mode))


def _sum_pool(
    op: FileOp, x: Value, kernel_sizes: list[int], strides: list[int], dilations: list[int] | None = None
) -> Tensor:
    bare, pads = _absorb_padding(op, lambda fill: fill == 0)
    return forms.window_sum(bare, forms.PoolWindow(kernel_sizes, strides, pads, dilations or ()))


def _average(op: FileOp, pool: str, count: Value, inverse: bool) -> Tensor | None:
    """The average pool, if a sum of windows is divided by their number of elements, with or without the padding."""
    pool_op, shape = op.maker(pool), op.out_shape()
    if pool_op is None or pool_op.kind not in ("sum_pool_2d", "sum_pool_3d") or pool_op.out_shape() != shape:
        return None
    if shape is None or isinstance(count, (Tensor, Encoded)):
        return None
    counts = count.astype(np.float64)
    if not counts.size or not (counts > 0).all():
        return None
    counts = 1.0 / counts if inverse else counts
    x, pads = _absorb_padding(pool_op, lambda fill: fill == 0)
    size, stride = pool_op.numbers("kernel_sizes"), pool_op.numbers("strides")
    dilation = pool_op.numbers("dilations", [1] * len(size))
    inside = np.ones(1)  # the number of elements of each window that are not padding
    for axis, extent in enumerate(x.shape[2:]):
        first = np.arange(shape[2 + axis])[:, None] * stride[axis] - pads[axis][0]
        places = first + np.arange(size[axis]) * dilation[axis]
        elements = ((places >= 0) & (places < extent)).sum(axis=1)
        inside = inside[..., None] * elements if axis else elements.astype(np.float64)
    for expected, count_pad in ((np.full(1, math.prod(size)), True), (inside, False)):
        if np.broadcast_shapes(counts.shape, expected.shape, shape) != shape:
            continue
        if (np.abs(counts / expected - 1) < _CLOSE).all():
            box = forms.PoolWindow(size, stride, pads, dilation)
            return forms.average_pool(x, box, count_pad).named(pool_op.name)
    return None


# Resampling at places that are known.


def _weights(positions: Array, extent: int, mode: str) -> Array:
    """Weights [places, extent] of each place of a line; places outside are moved to its ends."""
    if mode not in ("linear", "nearest_neighbor"):
        raise NoForm(f"interpolation mode {mode!r} is not supported; use linear or nearest_neighbor")
    return mixing_weights(positions if mode == "linear" else np.rint(positions), extent)


def _interpolate(
    x: Numeric, shape: list[int], scale: Array, offset: Array, interpolation_mode: str = "linear"
) -> Tensor:
    factors, shifts = (values.astype(np.float32).reshape(-1) for values in (scale, offset))
    if not len(shape) == len(factors) == len(shifts) == x.ndim or not (factors != 0).all():
        raise LoadError(f"shape, scale and offset must have {x.ndim} values each, and no scale may be 0")
    weights, half = {}, np.float32(0.5)
    for axis, extent in enumerate(x.shape):
        # In single precision, as Core AI computes it: the nearest of two neighbours may depend on it.
        positions = (np.arange(shape[axis], dtype=np.float32) + half - shifts[axis]) / factors[axis] - half
        weights[axis] = _weights(positions, extent, interpolation_mode)
    return resample_changed_axes(x, weights)


def _interpolate_coordinates(x: Numeric, coordinates: Array, interpolation_mode: str = "linear") -> Tensor:
    places = len(coordinates)
    if places * x.size > _MOST_WEIGHTS:
        raise NoForm(f"{places} places need {places * x.size:,} weights; the limit is {_MOST_WEIGHTS:,}")
    total = np.ones((places, 1))
    for axis, extent in enumerate(x.shape):
        line = _weights(coordinates[:, axis].astype(np.float64), extent, interpolation_mode)
        total = (total[:, :, None] * line[:, None, :]).reshape(places, -1)
    return x.reshape(1, x.size).linear(total).reshape(places)


# Slices, splits and broadcasts, of tensors and of known values.


def _reshape(op: FileOp, x: Tensor, shape: list[int]) -> Tensor:
    return forms.reshaped(x, op.out_shape() or shape or (1,))


def _broadcast_in_dims(x: Value, sizes: list[int], axes: list[int] | None = None) -> Value:
    shape = list(x.shape)
    for axis, size in zip(range(len(shape)) if axes is None else axes, sizes, strict=True):
        shape[axis_of(axis, len(shape))] = size
    return np.broadcast_to(x, bounded(shape)) if isinstance(x, Array) else forms.broadcast_to(as_number(x), shape)


def _broadcast_shapes(x: list[int], y: list[int]) -> Array:
    return np.array(np.broadcast_shapes(tuple(x), tuple(y)))


def _places(start: int, end: int, step: int, extent: int, count: int | None) -> range:
    """The places that a slice names. A negative place counts from the end; then it is clipped to the axis.

    For negative steps the documentation of the language and its package (1.0.0b3) differ on an end before the first
    place: the package stops before that place. The number of places that the file states shows which one applies."""
    if step == 0:
        raise LoadError("the step of a slice must not be 0")
    low, high = (0, extent) if step > 0 else (-1, extent - 1)
    first = min(max(start + extent if start < 0 else start, 0), high)
    places = range(first, min(max(end + extent if end < low else end, low), high), step)
    if step > 0 or count in (None, len(places)):
        return places
    return range(first, min(max(end + extent if end < 0 else end, 0), extent), step)


def _slice_places(shape: Sequence[int], begin: list[int], end: list[int], stride: list[int], kind: Any) -> list[range]:
    """The places along each axis; ``kind`` is the type of the slice in the file."""
    counts = [None] * len(shape) if kind is None else list(kind.shape)
    if not len(begin) == len(end) == len(stride) == len(shape) == len(counts):
        raise LoadError(f"{len(begin)} starts, {len(end)} ends and {len(stride)} steps do not fit {list(shape)}")
    return [_places(*axis) for axis in zip(begin, end, stride, shape, counts, strict=True)]


def _slice(op: FileOp, x: Value, begin: list[int], end: list[int], stride: list[int]) -> Value:
    places = _slice_places(x.shape, begin, end, stride, op.out_type())
    if isinstance(x, Array):
        return x[np.ix_(*places)]
    result = as_number(x)
    for axis, picked in enumerate(places):
        result = result if picked == range(result.shape[axis]) else _slice_axis(result, axis, picked)
    return result


def _slice_axis(x: Tensor, axis: int, places: range) -> Tensor:
    if not len(places):
        raise LoadError(f"the result is empty along axis {axis}; every axis must have at least one element")
    if places.step == 1:
        return sliced(x, axis, places.start, places.stop)
    return x.reverse([axis]) if len(places) == x.shape[axis] else forms.gathered(x, axis, np.array(places))


def _slice_update(op: FileOp, x: Value, begin: list[int], end: list[int], stride: list[int], update: Value) -> Value:
    places = _slice_places(x.shape, begin, end, stride, op.type_of("update"))
    if isinstance(x, Array) and isinstance(update, Array):
        changed = np.array(x)
        changed[np.ix_(*places)] = update
        return changed
    picked = [slice(axis.start, axis.stop if axis.stop >= 0 else None, axis.step) for axis in places]
    return placed(as_number(x), as_number(update), picked)


def _split(op: FileOp, x: Value, split_sizes: list[int], axis: int) -> Sequence[Value]:
    """``split_sizes`` has the size of each part, or is one size for all of them."""
    along = axis_of(axis, len(x.shape))
    sizes, extent = split_sizes, x.shape[along]
    if not op.shape("split_sizes"):
        if sizes[0] < 1:
            raise LoadError(f"the size of a part is {sizes[0]}; it must be 1 or more")
        sizes = [min(sizes[0], extent - first) for first in range(0, extent, sizes[0])]
    if isinstance(x, Array):
        return np.split(x, np.cumsum(sizes)[:-1], along)
    return forms.parts(as_number(x), along, sizes)


def _scatter_nd(op: FileOp, data: Tensor, indices: Array, updates: Value, mode: str) -> Tensor:
    (block,) = op.blocks
    if list(block.operations) or len(block.inputs) != 2 or block.outputs != [block.inputs[1][0]]:
        raise NoForm("a block that combines updates with old values is not supported; use one that replaces them")
    return OPS["scatter_nd"](data, indices, updates, mode)


# Reductions with a block that combines two elements, and scans.

_JOINS: dict[str, tuple[str, Callable[[Tensor, Tensor], Tensor], float]] = {
    "add": ("sum", operator.add, 0.0),
    "mul": ("prod", operator.mul, 1.0),
    "maximum": ("max", BINARY["maximum"], -math.inf),
    "minimum": ("min", BINARY["minimum"], math.inf),
}
"""By the operation of the block: the reduction, the function of two tensors, and the number that changes nothing."""


def _reduce(op: FileOp, x: Numeric, axes: list[int], start: Array) -> Tensor:
    (block,) = op.blocks
    kind = _only_operation(block)
    if kind not in _JOINS:
        raise NoForm("the block of a reduction must be one sum, product, maximum or minimum")
    reduction, join, neutral = _JOINS[kind]
    first = float(start.reshape(-1)[0])
    total = REDUCTIONS[reduction](x, tuple(sorted(axis_of(axis, x.ndim) for axis in axes))) if axes else x
    is_extreme = math.isinf(neutral) and abs(first) > FP16_MAX and (first < 0) == (neutral < 0)
    return total if first == neutral or is_extreme else join(total, as_number(start))


def _only_operation(block: Block) -> str:
    """The kind of the only operation of a block; empty if there is not exactly one."""
    operations = list(block.operations)
    if len(operations) != 1 or block.outputs != [name for name, _ in operations[0].outputs]:
        return ""
    return operations[0].kind


def _reduce_index(op: FileOp, x: Numeric, axis: int, start: float, first: int) -> Tensor:
    (block,) = op.blocks
    best, candidate = (name for name, _ in block.inputs)
    compared = list(next(iter(block.operations)).reads())
    if _only_operation(block) != "greater" or set(compared) != {best, candidate}:
        raise NoForm("the block of a position must be one comparison")
    largest = compared == [candidate, best]
    if (start > -FP16_MAX if largest else start < FP16_MAX) or first != 0:
        raise NoForm(f"start value {start:g} at index {first} is not supported; use an infinite value and index 0")
    return forms.position(x, axis_of(axis, x.ndim), keep=True, largest=largest)


_SCANS: dict[str, tuple[np.ufunc, str]] = {
    "sum": (np.add, "add"),
    "product": (np.multiply, "mul"),
    "min": (np.minimum, "minimum"),
    "max": (np.maximum, "maximum"),
}


def _scan(x: Value, axis: int, reverse: bool = False, scan_op: str = "sum") -> Value:
    """Sums are a product with a triangle of ones. Other scans combine each element with those 1, 2, 4... before it."""
    word, along = scan_op.partition(" ")[0], axis_of(axis, len(x.shape))
    number = whole_number(word)
    name = list(_SCANS)[number] if number is not None and number < len(_SCANS) else word  # a name, or its number
    if name not in _SCANS:
        raise LoadError(f"scan_op is {word!r}; choose one: {', '.join(_SCANS)}")
    function, join = _SCANS[name]
    if isinstance(x, Array):
        totals = function.accumulate(np.flip(wide(x), along) if reverse else wide(x), axis=along)
        return np.flip(totals, along) if reverse else totals
    if name == "sum":
        return forms.cumulative_sum(as_number(x), along, reverse=reverse)
    running, extent, step = as_number(x), x.shape[along], 1
    running = running.reverse([along]) if reverse else running
    while step < extent:
        later = _JOINS[join][1](sliced(running, along, step, extent), sliced(running, along, 0, extent - step))
        running = forms.joined([sliced(running, along, 0, step), later], along)
        step *= 2
    return running.reverse([along]) if reverse else running


# Weights in a compressed form, and numbers that are rounded to integers. The language adds a second offset, ``more``.


def _stated_dtype(op: FileOp) -> type[np.generic]:
    kind = op.out_type()
    return numpy_type("fp32" if kind is None else kind.dtype)


def _blockwise(op: FileOp, data: Value, scale: Array, offset: Array, more: Array) -> Value:
    """(data - offset) * scale + more. The engine's forms have no second offset and no codes that are floats."""
    codes = known(data, "'data'")
    is_palette = isinstance(data, Encoded) and data.form == "palette" and not offset.any()
    if not more.any() and (is_palette or BITS.get(op.dtype("data"), 16) <= 8):
        value = OPS["constexpr_blockwise_shift_scale"](op, data, scale, offset if offset.any() else None)
        return value if isinstance(value, Encoded) else value.astype(_stated_dtype(op))
    numbers = shift_and_scale(codes, scale, offset) + repeat_blocks(more, codes.shape, "offset").astype(np.float64)
    return numbers.astype(_stated_dtype(op))


def _dequantize(op: FileOp, input: Value, scale: Array, zero_point: Array, more: Array, axis: int = 0) -> Value:  # noqa: A002
    rank = len(input.shape)
    shift = along_axis(more, axis, rank)
    if isinstance(input, Tensor):
        x = OPS["dequantize"](op, input, scale, zero_point, axis)
        return x + as_tensor(shift) if shift.any() else x
    codes = np.asarray(input)
    if codes.dtype.kind == "f" or shift.any() or BITS.get(op.dtype("input"), 16) > 8:
        step, zero = (along_axis(values, axis, rank) for values in (scale, zero_point))
        return ((codes.astype(np.float64) - zero) * step + shift).astype(_stated_dtype(op))
    return OPS["dequantize"](op, codes, scale, zero_point, axis)


def _quantize(op: FileOp, input: Value, scale: Array, zero_point: Array, more: Array, axis: int = 0) -> Value:  # noqa: A002
    kind = op.out_type()
    dtype = "fp32" if kind is None else kind.dtype
    if BITS.get(dtype, 16) > 8:
        raise NoForm(f"rounding to {dtype} is not supported; the engine has integers of up to 8 bits")
    less = along_axis(more, axis, len(input.shape))
    if not isinstance(input, Tensor):
        codes = OPS["quantize"](np.asarray(input) - less, scale, dtype, zero_point, axis)
        return codes.astype(_stated_dtype(op))
    return OPS["quantize"](input - as_tensor(less) if less.any() else input, scale, dtype, zero_point, axis)


def _sparse_palette(indices: Value, lut: Array, vector_axis: int) -> Encoded:
    """Look up entries where the mask is set. An entry of several numbers fills that many places along the axis."""
    if not isinstance(indices, Encoded) or indices.mask is None:
        raise LoadError("the indices must be a sparse weight")
    axis, numbers = axis_of(vector_axis, indices.ndim), lut.shape[-1]
    if lut.size == lut.shape[-2] <= 1 << 8:  # one table of single numbers has a stored form
        bits = next(width for width in (1, 2, 3, 4, 6, 8) if lut.size <= 1 << width)
        return Encoded.sparse(indices.mask, indices.codes, lut, bits)
    places = np.zeros(indices.shape, np.int64)
    places[indices.mask] = indices.codes
    dense = Encoded.palette(places, lut, 8, axis).decode()
    mask = np.repeat(indices.mask, numbers, axis) if numbers > 1 else indices.mask
    return Encoded.sparse(mask, dense[mask].astype(lut.dtype))


ON_KNOWN: dict[str, Rule] = {
    "broadcast_in_dims": _broadcast_in_dims,
    "broadcast_shapes": _broadcast_shapes,
    "scan": _scan,
    "slice": _slice,
    "slice_update": _slice_update,
    "split": _split,
}
"""Rules that compute known values too."""

RULES: dict[str, Rule] = {
    **{name: _with_numbers(name) for name in ("add", "sub", "pow", "fmod", "equal", "not_equal", "greater")},
    **dict.fromkeys(("conv2d", "conv3d"), _convolution),
    **dict.fromkeys(("conv_transpose2d", "conv_transpose3d"), _transposed),
    **dict.fromkeys(("max_pool_2d", "max_pool_3d"), _max_pool),
    **dict.fromkeys(("sum_pool_2d", "sum_pool_3d"), _sum_pool),
    **ON_KNOWN,
    "blockwise_shift_scale": _blockwise,
    "cast": _cast,
    "dequantize": _dequantize,
    "floor_div": _floor_divide,
    "interpolate": _interpolate,
    "interpolate_coordinates": _interpolate_coordinates,
    "lut_to_sparse_with_bitmask": _sparse_palette,
    "matmul": _matmul,
    "mul": _mul,
    "quantize": _quantize,
    "real_div": _divide,
    "reduce": _reduce,
    "reduce_index": _reduce_index,
    "reshape": _reshape,
    "scatter_nd": _scatter_nd,
}
"""By common name, before the common op of that name."""
