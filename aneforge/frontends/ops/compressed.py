"""Weights that a program stores in a compressed form, and numbers that it rounds to integers while it runs."""

from __future__ import annotations

import math

import numpy as np

from aneforge.frontends import LoadError, forms
from aneforge.frontends.importer.op import Op, Rule
from aneforge.frontends.packed import PACKED, unpack
from aneforge.frontends.values import axis_of
from aneforge.graph.encoding import Encoded
from aneforge.graph.tensor import Tensor

__all__ = ["RULES"]

_MOST_ELEMENTS = 1 << 31


def _bits(op: Op, name: str) -> int:
    return PACKED.get(op.dtype(name), 8)


def _affine(op: Op) -> Encoded:
    codes, scale, zero = op.known("quantized_data"), op.known("scale"), op.known("zero_point")
    axis = axis_of(op.whole("axis", 0), codes.ndim)
    return Encoded.affine(codes, scale, zero, axis if max(scale.size, zero.size) > 1 else None)


def _stated_shape(op: Op) -> tuple[int, ...]:
    shape = tuple(op.numbers("shape"))
    if any(extent < 1 for extent in shape) or math.prod(shape) > _MOST_ELEMENTS:
        raise LoadError(f"shape is {list(shape)}; extents must be 1 or more, with up to {_MOST_ELEMENTS:,} elements")
    return shape


def _unpack_codes(op: Op, name: str, bits: int, shape: tuple[int, ...]) -> np.ndarray:
    data, count = op.known(name).reshape(-1), math.prod(shape)
    if data.dtype != np.uint8 or data.size != -(-count * bits // 8):
        raise LoadError(
            f"{name!r} has {data.size:,} elements; {list(shape)} of {bits} bits needs {-(-count * bits // 8):,} bytes"
        )
    return unpack(data, bits, count).reshape(shape)


def _lookup(op: Op) -> Encoded:
    table = op.known("lut")
    if op.has("shape"):
        bits = max(1, round(math.log2(table.size))) if table.size else 0
        if table.size != 1 << bits:
            raise LoadError(f"the look-up table has {table.size} entries; the number must be a power of 2")
        return Encoded.palette(_unpack_codes(op, "indices", bits, _stated_shape(op)), table.reshape(-1), bits)
    indices = op.known("indices")
    vector = op.whole("vector_axis") if op.has("vector_axis") else 0
    return Encoded.palette(indices, table, _bits(op, "indices"), axis_of(vector, indices.ndim))


def _sparse(op: Op) -> Encoded:
    kept = op.value("nonzero_data")
    if isinstance(kept, Encoded) and kept.form == "palette" and kept.scale is None:
        return Encoded.sparse(op.known("mask"), kept.codes, kept.table, kept.bits)
    values = op.known("nonzero_data")
    if op.has("shape"):
        return Encoded.sparse(_unpack_codes(op, "mask", 1, _stated_shape(op)), values)
    return Encoded.sparse(op.known("mask"), values)


def _repeat_blocks(values: np.ndarray, shape: tuple[int, ...], what: str) -> np.ndarray:
    """Repeat the number of each block for every element of the block."""
    if values.ndim != len(shape) or any(n % max(b, 1) for b, n in zip(values.shape, shape, strict=True)):
        raise LoadError(f"the {what} has shape {list(values.shape)}, which does not fit a weight of {list(shape)}")
    for axis, (have, want) in enumerate(zip(values.shape, shape, strict=True)):
        values = np.repeat(values, want // have, axis) if have != want else values
    return values


def _shift_and_scale(codes: np.ndarray, scale: np.ndarray, offset: np.ndarray | None) -> np.ndarray:
    numbers = codes.astype(np.float64)
    numbers = numbers if offset is None else numbers - _repeat_blocks(offset, codes.shape, "shift").astype(np.float64)
    return numbers * _repeat_blocks(scale, codes.shape, "scale").astype(np.float64)


def _blockwise(op: Op) -> Encoded | np.ndarray:
    data, scale = op.value("data"), op.known("scale")
    offset = op.known("offset") if op.has("offset") else None
    if isinstance(data, Encoded) and data.form == "palette" and data.scale is None and offset is None:
        return Encoded.palette(data.codes, np.asarray(data.table), data.bits, data.vector_axis, scale)
    codes = np.asarray(data)
    if isinstance(data, Encoded) or codes.dtype.kind == "f" or (offset is not None and offset.dtype.kind == "f"):
        return _shift_and_scale(codes, scale, offset)  # a compressed form inside another: decode it
    several = [axis for axis, count in enumerate(scale.shape) if count > 1]
    if len(several) < 2 and all(scale.shape[axis] == codes.shape[axis] for axis in several):
        # One scale for each element of an axis, or one for all: use the simpler form, which more chips stream.
        return Encoded.affine(codes, scale, offset, several[0] if several else None, _bits(op, "data"))
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


def _sparse_blockwise(op: Op) -> list[np.ndarray]:
    mask, values = op.known("data_mask"), op.known("nonzero_data")
    offset = op.known("offset") if op.has("offset") else None
    dense = _shift_and_scale(_scatter_by_mask(mask, values), op.known("scale"), offset)
    return [mask, dense[mask.astype(bool)]]


def _sparse_lookup(op: Op) -> list[np.ndarray | Encoded]:
    mask, table = op.known("indices_mask"), op.known("lut")
    if table.size == table.shape[-2]:  # one table of single numbers: the kept values stay places in it
        return [
            mask,
            Encoded.palette(op.known("indices_nonzero_data"), table.reshape(-1), _bits(op, "indices_nonzero_data")),
        ]
    vector = axis_of(op.whole("vector_axis") if op.has("vector_axis") else 0, mask.ndim)
    indices = _scatter_by_mask(mask, op.known("indices_nonzero_data"))
    dense = Encoded.palette(indices, table, _bits(op, "indices_nonzero_data"), vector).decode()
    wide = np.repeat(mask, table.shape[-1], vector) if table.shape[-1] > 1 else mask
    return [wide, dense[wide.astype(bool)]]


def _cast(op: Op) -> np.ndarray:
    dtype = op.text("output_dtype")
    if dtype not in ("fp16", "fp32"):
        raise LoadError(f"output_dtype is {dtype!r}; choose one: fp16, fp32")
    return op.known("source_val").astype(np.float16 if dtype == "fp16" else np.float32)


# Numbers that are rounded while the program runs.


def _along_axis(op: Op, name: str, rank: int) -> np.ndarray:
    values = op.known(name, 0).astype(np.float64)
    if values.size == 1:
        return values.reshape(())
    axis = axis_of(op.whole("axis", 0), rank)
    return values.reshape(tuple(-1 if i == axis else 1 for i in range(rank)))


def _quantize(op: Op) -> Tensor | np.ndarray:
    value, kind = op.value("input"), op.text("output_dtype")
    low, high = forms.range_of(kind)
    if not isinstance(value, Tensor):
        scale, zero = _along_axis(op, "scale", value.ndim), _along_axis(op, "zero_point", value.ndim)
        return np.clip(np.round(np.asarray(value) / scale) + zero, low, high).astype(np.int32)
    axis = op.whole("axis", 0) if value.ndim else 0
    return forms.quantised(value, op.known("scale"), op.known("zero_point", 0), kind, axis)


def _dequantize(op: Op) -> Tensor | Encoded:
    value = op.value("input")
    if isinstance(value, np.ndarray):
        scale, zero = op.known("scale"), op.known("zero_point", 0)
        axis = axis_of(op.whole("axis", 0), value.ndim) if max(scale.size, zero.size) > 1 else None
        return Encoded.affine(value, scale, zero if zero.any() else None, axis)
    scale, zero = op.known("scale"), op.known("zero_point", 0)
    return forms.dequantised(op.tensor("input"), scale, zero, op.dtype("input"), op.whole("axis", 0))


RULES: dict[str, Rule] = {
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
