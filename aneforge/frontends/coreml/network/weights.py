"""Weights of neural-network layers: numbers inside the specification, plain or in one of two compressed forms."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from aneforge.frontends import LoadError
from aneforge.graph.encoding import Encoded

_CODE_BITS = (1, 2, 3, 4, 6, 8)  # widths that the graph keeps as codes; others become numbers


def numbers_of(params: Any, shape: tuple[int, ...], what: str) -> np.ndarray:
    """A weight as numbers, from any form that it is stored in."""
    return np.asarray(weight_of(params, shape, what))


def weight_of(params: Any, shape: tuple[int, ...], what: str) -> np.ndarray | Encoded:
    """A weight of a known shape, in its stored form."""
    count = math.prod(shape)
    if params.int8RawValue:
        raise LoadError(
            f"{what} is stored as int8 for inputs rounded to 8 bits, which is not supported; use float weights"
        )
    if params.HasField("quantization") and params.rawValue:
        return _decode(params, shape, what)
    if params.float16Value:
        numbers = np.frombuffer(params.float16Value, np.float16)
    else:
        numbers = np.array(params.floatValue, np.float32)
    if numbers.size != count:
        raise LoadError(f"{what} has {numbers.size:,} numbers; {list(shape)} needs {count:,}")
    return numbers.reshape(shape)


def _decode(params: Any, shape: tuple[int, ...], what: str) -> np.ndarray | Encoded:
    bits, count = int(params.quantization.numberOfBits), math.prod(shape)
    if not 1 <= bits <= 8:
        raise LoadError(f"{what} has codes of {bits} bits; expected 1 to 8")
    data = np.frombuffer(params.rawValue, np.uint8)
    if data.size != -(-count * bits // 8):
        raise LoadError(
            f"{what} has {data.size:,} bytes; {list(shape)} of {bits} bits needs {-(-count * bits // 8):,}"
        )
    codes = _unpack_codes(data, bits, count).reshape(shape)
    form = params.quantization.WhichOneof("QuantizationType")
    if form == "lookupTableQuantization":
        table = np.array(params.quantization.lookupTableQuantization.floatValue, np.float32)
        if table.size != 1 << bits:
            raise LoadError(f"{what} has a look-up table of {table.size} entries; {bits} bits need {1 << bits}")
        return Encoded.palette(codes, table, bits) if bits in _CODE_BITS else table[codes]
    if form != "linearQuantization":
        raise LoadError(f"{what} has codes, but no look-up table and no scale")
    scale, bias = (
        np.array(getattr(params.quantization.linearQuantization, name), np.float32) for name in ("scale", "bias")
    )
    bias = bias if bias.size else np.zeros(1, np.float32)
    if any(values.size not in (1, shape[0]) for values in (scale, bias)) or not (scale != 0).all():
        raise LoadError(
            f"{what} has {scale.size} scales and {bias.size} biases; expected 1 or {shape[0]} of each, no scale 0"
        )
    if bits not in _CODE_BITS:
        rows = (-1, *(1,) * (len(shape) - 1))
        return codes * scale.reshape(rows) + bias.reshape(rows)
    zero = -bias.astype(np.float64) / scale  # scale * code + bias is scale * (code - zero point)
    axis = 0 if max(scale.size, zero.size) > 1 else None
    return Encoded.affine(codes, scale, zero if zero.any() else None, axis, bits)


def _unpack_codes(data: np.ndarray, bits: int, count: int) -> np.ndarray:
    """Unpack codes that follow each other, the highest bit first."""
    if bits == 8:
        return data[:count]
    result = np.empty(count, np.uint8)
    bytes_at_once = bits << 17  # holds a whole number of codes, and needs little memory
    codes_at_once = bytes_at_once * 8 // bits
    for step in range(-(-count // codes_at_once)):
        first = step * codes_at_once
        batch = min(codes_at_once, count - first)
        part = data[step * bytes_at_once : step * bytes_at_once + -(-batch * bits // 8)]
        places = np.unpackbits(part)[: batch * bits].reshape(batch, bits)
        result[first : first + batch] = places @ (1 << np.arange(bits - 1, -1, -1, dtype=np.uint8))
    return result
