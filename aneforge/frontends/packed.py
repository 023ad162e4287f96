"""Numbers as files store them: in whole bytes, several to a byte, and as floats that NumPy lacks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np

from aneforge.frontends.records import BITS, NUMPY, is_whole

_HELD = ("bool", "fp16", "fp32", "fp64", "string")
_CODES: dict[str, type[np.generic]] = {"bf16": np.uint16, "fp8e4m3fn": np.uint8, "fp8e5m2": np.uint8}
"""Floats that NumPy lacks, as the integers of their bits."""

STORED: dict[str, type[np.generic]] = {
    **{
        name: kind
        for name, kind in NUMPY.items()
        if is_whole(name) or name in ("bool", "fp16", "fp32", "fp64", "string")
    },
    **_CODES,
}
"""The NumPy type that reads the bytes of an element. For bf16 and fp8, :func:`from_bytes` then converts the codes."""

PACKED = {name: bits for name, bits in BITS.items() if bits < 8}
"""The bits of types with several elements to a byte."""


def unpack(
    data: np.ndarray, bits: int, count: int, signed: bool = False, order: Literal["little", "big"] = "little"
) -> np.ndarray:
    """Unpack fields of ``bits`` bits, the first in the lowest bits (or in the highest), to one byte each."""
    result = np.empty(count, np.uint8)
    bytes_at_once = bits << 17  # holds a whole number of fields, and needs little memory
    fields_at_once = bytes_at_once * 8 // bits
    weights = 1 << np.arange(bits, dtype=np.uint8)[:: 1 if order == "little" else -1]
    for step in range(-(-count // fields_at_once)):
        first = step * fields_at_once
        batch = min(fields_at_once, count - first)
        part = data[step * bytes_at_once : step * bytes_at_once + -(-batch * bits // 8)]
        places = np.unpackbits(part, bitorder=order)[: batch * bits].reshape(batch, bits)
        result[first : first + batch] = places @ weights
    if not signed:
        return result
    half = 1 << (bits - 1)
    return ((result.astype(np.int16) ^ half) - half).astype(np.int8)


def _fp8(codes: np.ndarray, exponent_bits: int, bias: int) -> np.ndarray:
    """Decode 8-bit floats by a table of all 256."""
    fraction_bits = 7 - exponent_bits
    code = np.arange(256)
    exponent = (code >> fraction_bits) & ((1 << exponent_bits) - 1)
    fraction = (code & ((1 << fraction_bits) - 1)) / (1 << fraction_bits)
    size = np.where(exponent == 0, fraction * 2.0 ** (1 - bias), (1 + fraction) * 2.0 ** (exponent - bias))
    if exponent_bits == 4:
        size[(code & 0x7F) == 0x7F] = np.nan
    else:
        size[(code & 0x7C) == 0x7C] = np.where(fraction[(code & 0x7C) == 0x7C] == 0, np.inf, np.nan)
    return np.where(code & 0x80, -size, size).astype(np.float32)[codes]


def from_bytes(data: np.ndarray, dtype: str, shape: Sequence[int]) -> np.ndarray:
    """Bytes as an array of a type; a view of the bytes unless elements share bytes."""
    count = math.prod(shape)
    if dtype in PACKED:
        return unpack(data, PACKED[dtype], count, dtype.startswith("int")).reshape(shape)
    numbers = data.view(STORED[dtype]).reshape(shape)
    if dtype == "bf16":
        return (numbers.astype(np.uint32) << 16).view(np.float32)
    if dtype.startswith("fp8"):
        return _fp8(numbers, *((4, 7) if dtype == "fp8e4m3fn" else (5, 15)))
    return numbers
