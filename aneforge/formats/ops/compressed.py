"""Weights that a program stores in a compressed form, and numbers that it rounds to integers while it runs."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from aneforge.errors import LoadError
from aneforge.formats import forms
from aneforge.formats.importer.op import FileOp
from aneforge.formats.records import PACKED, unpack
from aneforge.formats.values import Array, Value, as_tensor, axis_of, known
from aneforge.graph.encoding import Encoded
from aneforge.graph.tensor import Tensor

_MOST_ELEMENTS = 1 << 31


def _bits(op: FileOp, name: str) -> int:
    return PACKED.get(op.dtype(name), 8)


def _affine(quantized_data: Array, scale: Array, zero_point: Array, axis: int = 0) -> Encoded:
    along = axis_of(axis, quantized_data.ndim) if max(scale.size, zero_point.size) > 1 else None
    return Encoded.affine(quantized_data, scale, zero_point, along)


def _stated_shape(extents: list[int]) -> tuple[int, ...]:
    shape = tuple(extents)
    if any(extent < 1 for extent in shape) or math.prod(shape) > _MOST_ELEMENTS:
        raise LoadError(f"shape is {list(shape)}; extents must be 1 or more, with up to {_MOST_ELEMENTS:,} elements")
    return shape


def _unpack_codes(values: Array, name: str, bits: int, shape: tuple[int, ...]) -> Array:
    data, count = values.reshape(-1), math.prod(shape)
    if data.dtype != np.uint8 or data.size != -(-count * bits // 8):
        raise LoadError(
            f"{name!r} has {data.size:,} elements; {list(shape)} of {bits} bits needs {-(-count * bits // 8):,} bytes"
        )
    return unpack(data, bits, count).reshape(shape)


def _lookup(op: FileOp, indices: Array, lut: Array, shape: list[int] | None = None, vector_axis: int = 0) -> Encoded:
    if shape is not None:
        bits = max(1, round(math.log2(lut.size))) if lut.size else 0
        if lut.size != 1 << bits:
            raise LoadError(f"the look-up table has {lut.size} entries; the number must be a power of 2")
        return Encoded.palette(_unpack_codes(indices, "indices", bits, _stated_shape(shape)), lut.reshape(-1), bits)
    return Encoded.palette(indices, lut, _bits(op, "indices"), axis_of(vector_axis, indices.ndim))


def _sparse(nonzero_data: Value, mask: Array, shape: list[int] | None = None) -> Encoded:
    if isinstance(nonzero_data, Encoded) and nonzero_data.form == "palette" and nonzero_data.scale is None:
        return Encoded.sparse(mask, nonzero_data.codes, nonzero_data.table, nonzero_data.bits)
    if shape is not None:
        mask = _unpack_codes(mask, "mask", 1, _stated_shape(shape))
    return Encoded.sparse(mask, known(nonzero_data, "'nonzero_data'"))


def repeat_blocks(values: np.ndarray, shape: tuple[int, ...], what: str) -> np.ndarray:
    """Repeat the number of each block for every element of the block."""
    if values.ndim != len(shape) or any(n % max(b, 1) for b, n in zip(values.shape, shape, strict=True)):
        raise LoadError(f"the {what} has shape {list(values.shape)}, which does not fit a weight of {list(shape)}")
    for axis, (have, want) in enumerate(zip(values.shape, shape, strict=True)):
        values = np.repeat(values, want // have, axis) if have != want else values
    return values


def shift_and_scale(codes: np.ndarray, scale: np.ndarray, offset: np.ndarray | None) -> np.ndarray:
    numbers = codes.astype(np.float64)
    numbers = numbers if offset is None else numbers - repeat_blocks(offset, codes.shape, "shift").astype(np.float64)
    return numbers * repeat_blocks(scale, codes.shape, "scale").astype(np.float64)


def _blockwise(op: FileOp, data: Value, scale: Array, offset: Array | None = None) -> Encoded | Array:
    if isinstance(data, Encoded) and data.form == "palette" and data.scale is None and offset is None:
        return Encoded.palette(data.codes, np.asarray(data.table), data.bits, data.vector_axis, scale)
    codes = known(data, "'data'")
    if isinstance(data, Encoded) or codes.dtype.kind == "f" or (offset is not None and offset.dtype.kind == "f"):
        return shift_and_scale(codes, scale, offset)  # a compressed form inside another: decode it
    return Encoded.blockwise(codes, scale, offset, _bits(op, "data"))


def _scatter_by_mask(mask: np.ndarray, values: np.ndarray) -> np.ndarray:
    places = mask.astype(bool)
    if int(places.sum()) != values.size:
        raise LoadError(
            f"the mask marks {int(places.sum())} places; it must have one for each of {values.size} values"
        )
    dense = np.zeros(places.shape, values.dtype)
    dense[places] = values.reshape(-1)
    return dense


def _sparse_blockwise(data_mask: Array, nonzero_data: Array, scale: Array, offset: Array | None = None) -> list[Array]:
    dense = shift_and_scale(_scatter_by_mask(data_mask, nonzero_data), scale, offset)
    return [data_mask, dense[data_mask.astype(bool)]]


def _sparse_lookup(
    op: FileOp, indices_mask: Array, indices_nonzero_data: Array, lut: Array, vector_axis: int = 0
) -> list[Array | Encoded]:
    bits = _bits(op, "indices_nonzero_data")
    if lut.size == lut.shape[-2]:  # one table of single numbers: the kept values stay places in it
        return [indices_mask, Encoded.palette(indices_nonzero_data, lut.reshape(-1), bits)]
    vector = axis_of(vector_axis, indices_mask.ndim)
    dense = Encoded.palette(_scatter_by_mask(indices_mask, indices_nonzero_data), lut, bits, vector).decode()
    wide = np.repeat(indices_mask, lut.shape[-1], vector) if lut.shape[-1] > 1 else indices_mask
    return [wide, dense[wide.astype(bool)]]


def _cast(source_val: Array, output_dtype: str) -> Array:
    if output_dtype not in ("fp16", "fp32"):
        raise LoadError(f"output_dtype is {output_dtype!r}; choose one: fp16, fp32")
    return source_val.astype(np.float16 if output_dtype == "fp16" else np.float32)


# Numbers that are rounded while the program runs.


def along_axis(values: Array, axis: int, rank: int) -> Array:
    numbers = values.astype(np.float64)
    if numbers.size == 1:
        return numbers.reshape(())
    along = axis_of(axis, rank)
    return numbers.reshape(tuple(-1 if i == along else 1 for i in range(rank)))


def _quantize(
    input: Value,  # noqa: A002 - the name of the argument in every format
    scale: Array,
    output_dtype: str,
    zero_point: Array | None = None,
    axis: int = 0,
) -> Tensor | Array:
    low, high = forms.range_of(output_dtype)
    zero = np.asarray(0) if zero_point is None else zero_point
    if isinstance(input, Tensor):
        return forms.quantised(input, scale, zero, output_dtype, axis if input.ndim else 0)
    step, offset = (along_axis(values, axis, input.ndim) for values in (scale, zero))
    return np.clip(np.round(np.asarray(input) / step) + offset, low, high).astype(np.int32)


def _dequantize(
    op: FileOp,
    input: Value,  # noqa: A002 - the name of the argument in every format
    scale: Array,
    zero_point: Array | None = None,
    axis: int = 0,
) -> Tensor | Encoded:
    zero = np.asarray(0) if zero_point is None else zero_point
    if isinstance(input, np.ndarray):
        along = axis_of(axis, input.ndim) if max(scale.size, zero.size) > 1 else None
        return Encoded.affine(input, scale, zero if zero.any() else None, along, _bits(op, "input"))
    return forms.dequantised(as_tensor(input), scale, zero, op.dtype("input"), axis)


OPS: dict[str, Callable[..., object]] = {
    "constexpr_affine_dequantize": _affine,
    "constexpr_blockwise_shift_scale": _blockwise,
    "constexpr_cast": _cast,
    "constexpr_lut_to_dense": _lookup,
    "constexpr_lut_to_sparse": _sparse_lookup,
    "constexpr_sparse_blockwise_shift_scale": _sparse_blockwise,
    "constexpr_sparse_to_dense": _sparse,
    "dequantize": _dequantize,
    "quantize": _quantize,
}
