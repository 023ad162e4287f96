"""Weights that a program stores in a compressed form, and numbers that it rounds to whole ones while it runs."""

from __future__ import annotations

import numpy as np

from aneforge.frontends import LoadError, forms
from aneforge.frontends.coreai_rules.op import Op, Rule
from aneforge.frontends.coreai_rules.records import BITS
from aneforge.frontends.values import Value, axis_of
from aneforge.graph.encoding import Encoded
from aneforge.graph.ops.leaf import const
from aneforge.graph.tensor import Tensor

__all__ = ["RULES"]

Array = np.ndarray


def _bits(op: Op, place: int) -> int:
    bits = BITS.get(op.types[place].dtype, 8)
    if bits > 8:
        raise LoadError(f"codes of {bits} bits")
    return bits


def _spread(values: Array, shape: tuple[int, ...], what: str) -> Array:
    """One number for each block, at every place of it."""
    if values.ndim != len(shape) or any(n % max(b, 1) for b, n in zip(values.shape, shape, strict=True)):
        raise LoadError(f"{what} of shape {list(values.shape)} for a weight of {list(shape)}")
    for axis, (have, want) in enumerate(zip(values.shape, shape, strict=True)):
        values = np.repeat(values, want // have, axis) if have != want else values
    return values.astype(np.float64)


def _blockwise(op: Op) -> Value:
    """(data - offset1) * scale + offset2. The engine's forms have no second offset, nor codes that are floats."""
    codes = op.known(0, "the weight")
    scale, offset, more = (op.known(place, "a scale or offset") for place in (1, 2, 3))
    given = op.value(0)
    if isinstance(given, Encoded) and given.form == "palette" and not (offset.any() or more.any()):
        return Encoded.palette(given.codes, np.asarray(given.table), given.bits, given.vector_axis, scale)
    plain = isinstance(given, np.ndarray) and codes.dtype.kind != "f" and offset.dtype.kind != "f"
    if not plain or more.any() or BITS.get(op.types[0].dtype, 16) > 8:
        centred = codes.astype(np.float64) - _spread(offset, codes.shape, "an offset")
        numbers = centred * _spread(scale, codes.shape, "a scale")
        return (numbers + _spread(more, codes.shape, "an offset")).astype(op.numpy)
    zero = offset if offset.any() else None
    several = [axis for axis, count in enumerate(scale.shape) if count > 1]
    if len(several) < 2 and all(scale.shape[axis] == codes.shape[axis] for axis in several):
        # One scale for each place of an axis, or one for all: the simpler form, which more chips stream.
        return Encoded.affine(codes, scale, zero, several[0] if several else None, _bits(op, 0))
    return Encoded.blockwise(codes, scale, zero, _bits(op, 0))


def _along(op: Op, place: int, rank: int) -> Array:
    """A number, or one for each place of the axis that the last operand names."""
    values = op.known(place, "a scale or offset").astype(np.float64)
    if values.size == 1:
        return values.reshape(())
    axis = axis_of(op.whole(4, "the axis"), rank)
    return values.reshape(tuple(-1 if i == axis else 1 for i in range(rank)))


def _dequantize(op: Op) -> Value:
    given = op.value(0)
    rank = len(given.shape)
    scale, zero, more = (_along(op, place, rank) for place in (1, 2, 3))
    if isinstance(given, Tensor):
        axis = op.whole(4, "the axis") if max(scale.size, zero.size) > 1 else 0
        known = op.known(1, "the scale"), op.known(2, "the offset")
        x = forms.dequantised(op.tensor(0), *known, _code_type(op.types[0].dtype), axis)
        return x + const(more) if more.any() else x
    codes = np.asarray(given)
    if codes.dtype.kind == "f" or more.any() or BITS.get(op.types[0].dtype, 16) > 8:
        return ((codes.astype(np.float64) - zero) * scale + more).astype(op.numpy)
    axis = axis_of(op.whole(4, "the axis"), rank) if max(scale.size, zero.size) > 1 else None
    stored = op.known(1, "the scale")
    offset = op.known(2, "the offset")
    return Encoded.affine(codes, stored, offset if zero.any() else None, axis, _bits(op, 0))


def _code_type(dtype: str) -> str:
    """The file's ``si8`` as other readers say it, ``int8``."""
    return dtype.replace("si", "int").replace("ui", "uint") if dtype[:2] in ("si", "ui") else dtype


def _quantize(op: Op) -> Value:
    if BITS.get(op.dtype, 16) > 8:
        raise LoadError(f"numbers rounded to {op.dtype}; the engine holds whole numbers of up to 8 bits")
    kind = _code_type(op.dtype)
    low, high = forms.range_of(kind)
    given = op.value(0)
    rank = len(given.shape)
    scale, zero, less = (_along(op, place, rank) for place in (1, 2, 3))
    if not isinstance(given, Tensor):
        return np.clip(np.rint((np.asarray(given) - less) / scale) + zero, low, high).astype(op.numpy)
    x = op.tensor(0)
    x = x - const(less) if less.any() else x
    axis = op.whole(4, "the axis") if max(scale.size, zero.size) > 1 else 0
    return forms.quantised(x, op.known(1, "the scale"), op.known(2, "the offset"), kind, axis)


def _palette(op: Op) -> Value:
    indices, table = op.known(0, "the indices"), op.known(1, "the look-up table")
    return Encoded.palette(indices, table, _bits(op, 0), axis_of(op.whole(2, "the axis"), indices.ndim))


def _sparse(op: Op) -> Value:
    return Encoded.sparse(op.known(1, "the mask"), op.known(0, "the values"))


def _sparse_palette(op: Op) -> Value:
    """Looked up where the mask is set; an entry of several numbers takes as many places along the axis."""
    given, table = op.value(0), op.known(1, "the look-up table")
    if not isinstance(given, Encoded) or given.mask is None:
        raise LoadError("its indices are no sparse weight")
    axis, numbers = axis_of(op.whole(2, "the axis"), given.ndim), table.shape[-1]
    indices = np.zeros(given.shape, np.int64)
    indices[given.mask] = given.codes
    dense = Encoded.palette(indices, table, 8, axis).decoded()
    mask = np.repeat(given.mask, numbers, axis) if numbers > 1 else given.mask
    return Encoded.sparse(mask, dense[mask].astype(table.dtype))


RULES: dict[str, Rule] = {
    "blockwise_shift_scale": _blockwise,
    "build_sparse_with_bitmask": _sparse,
    "dequantize": _dequantize,
    "lut_to_dense": _palette,
    "lut_to_sparse_with_bitmask": _sparse_palette,
    "quantize": _quantize,
    "sparse_with_bitmask_to_dense": lambda op: op.value(0),
}
