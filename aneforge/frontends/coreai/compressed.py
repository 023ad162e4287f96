"""Weights that an asset stores in a compressed form, and numbers that it rounds to integers while it runs."""

from __future__ import annotations

import numpy as np

from aneforge.errors import LoadError
from aneforge.frontends import forms
from aneforge.frontends.importer.op import Op, Rule
from aneforge.frontends.records import BITS, numpy_type
from aneforge.frontends.values import NoForm, Value, axis_of
from aneforge.graph.encoding import Encoded
from aneforge.graph.ops.leaf import const
from aneforge.graph.tensor import Tensor

Array = np.ndarray


def _bits(op: Op, name: str) -> int:
    bits = BITS.get(op.dtype(name), 8)
    if bits > 8:
        raise LoadError(f"codes of {bits} bits are not supported; the limit is 8 bits")
    return bits


def _stated_dtype(op: Op) -> type[np.generic]:
    kind = op.out_type()
    return numpy_type("fp32" if kind is None else kind.dtype)


def _repeat_blocks(values: Array, shape: tuple[int, ...], what: str) -> Array:
    """Repeat the number of each block for every element of the block."""
    if values.ndim != len(shape) or any(n % max(b, 1) for b, n in zip(values.shape, shape, strict=True)):
        raise LoadError(f"the {what} has shape {list(values.shape)}, which does not fit a weight of {list(shape)}")
    for axis, (have, want) in enumerate(zip(values.shape, shape, strict=True)):
        values = np.repeat(values, want // have, axis) if have != want else values
    return values.astype(np.float64)


def _blockwise(op: Op) -> Value:
    """(data - offset) * scale + more. The engine's forms have no second offset and no codes that are floats."""
    codes, value = op.known("data"), op.value("data")
    scale, offset, more = (op.known(name) for name in ("scale", "offset", "more"))
    if isinstance(value, Encoded) and value.form == "palette" and not (offset.any() or more.any()):
        return Encoded.palette(value.codes, np.asarray(value.table), value.bits, value.vector_axis, scale)
    has_codes = isinstance(value, np.ndarray) and codes.dtype.kind != "f" and offset.dtype.kind != "f"
    if not has_codes or more.any() or BITS.get(op.dtype("data"), 16) > 8:
        centred = codes.astype(np.float64) - _repeat_blocks(offset, codes.shape, "offset")
        numbers = centred * _repeat_blocks(scale, codes.shape, "scale")
        return (numbers + _repeat_blocks(more, codes.shape, "offset")).astype(_stated_dtype(op))
    zero = offset if offset.any() else None
    several = [axis for axis, count in enumerate(scale.shape) if count > 1]
    if len(several) < 2 and all(scale.shape[axis] == codes.shape[axis] for axis in several):
        # One scale for each element of an axis, or one for all: use the simpler form, which more chips stream.
        return Encoded.affine(codes, scale, zero, several[0] if several else None, _bits(op, "data"))
    return Encoded.blockwise(codes, scale, zero, _bits(op, "data"))


def _along_axis(op: Op, name: str, rank: int) -> Array:
    """One number, or one for each element of the axis."""
    values = op.known(name).astype(np.float64)
    if values.size == 1:
        return values.reshape(())
    return values.reshape(tuple(-1 if i == op.axis(rank) else 1 for i in range(rank)))


def _dequantize(op: Op) -> Value:
    value = op.value("input")
    rank = len(value.shape)
    scale, zero, more = (_along_axis(op, name, rank) for name in ("scale", "zero_point", "more"))
    by_axis = max(scale.size, zero.size) > 1
    if isinstance(value, Tensor):
        axis = op.whole("axis") if by_axis else 0
        x = forms.dequantised(value, op.known("scale"), op.known("zero_point"), op.dtype("input"), axis)
        return x + const(more) if more.any() else x
    codes = np.asarray(value)
    if codes.dtype.kind == "f" or more.any() or BITS.get(op.dtype("input"), 16) > 8:
        return ((codes.astype(np.float64) - zero) * scale + more).astype(_stated_dtype(op))
    stored, offset = op.known("scale"), op.known("zero_point")
    axis = axis_of(op.whole("axis"), rank) if by_axis else None
    return Encoded.affine(codes, stored, offset if zero.any() else None, axis, _bits(op, "input"))


def _quantize(op: Op) -> Value:
    kind = op.out_type()
    dtype = "fp32" if kind is None else kind.dtype
    if BITS.get(dtype, 16) > 8:
        raise NoForm(f"rounding to {dtype} is not supported; the engine has integers of up to 8 bits")
    low, high = forms.range_of(dtype)
    value = op.value("input")
    rank = len(value.shape)
    scale, zero, less = (_along_axis(op, name, rank) for name in ("scale", "zero_point", "more"))
    if not isinstance(value, Tensor):
        return np.clip(np.rint((np.asarray(value) - less) / scale) + zero, low, high).astype(_stated_dtype(op))
    x = value - const(less) if less.any() else value
    axis = op.whole("axis") if max(scale.size, zero.size) > 1 else 0
    return forms.quantised(x, op.known("scale"), op.known("zero_point"), dtype, axis)


def _sparse_palette(op: Op) -> Value:
    """Look up entries where the mask is set. An entry of several numbers fills that many places along the axis."""
    weight, table = op.value("indices"), op.known("lut")
    if not isinstance(weight, Encoded) or weight.mask is None:
        raise LoadError("the indices must be a sparse weight")
    axis, numbers = op.axis(weight.ndim, name="vector_axis"), table.shape[-1]
    if table.size == table.shape[-2] <= 1 << 8:  # one table of single numbers has a stored form
        bits = next(width for width in (1, 2, 3, 4, 6, 8) if table.size <= 1 << width)
        return Encoded.sparse(weight.mask, weight.codes, table, bits)
    indices = np.zeros(weight.shape, np.int64)
    indices[weight.mask] = weight.codes
    dense = Encoded.palette(indices, table, 8, axis).decode()
    mask = np.repeat(weight.mask, numbers, axis) if numbers > 1 else weight.mask
    return Encoded.sparse(mask, dense[mask].astype(table.dtype))


RULES: dict[str, Rule] = {
    "blockwise_shift_scale": _blockwise,
    "dequantize": _dequantize,
    "lut_to_sparse_with_bitmask": _sparse_palette,
    "quantize": _quantize,
}
