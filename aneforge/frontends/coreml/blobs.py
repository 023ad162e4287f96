"""Weight files of ML programs: storage format 2, read through a memory map.

A file is a header of 64 bytes (how many records, and the format), then records. A record is 64 bytes of metadata on a
64-byte boundary (sentinel, data type, size in bytes, where the data starts, bits of padding at the end) and its data.
A program names a record by the place of its metadata. Worked out from files that coremltools writes.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from aneforge.frontends import LoadError

__all__ = ["BITS", "NUMPY_TYPES", "Weights", "from_bytes", "unpacked"]

_RECORD = 64
_SENTINEL = 0xDEADBEEF
_VERSION = 2

NUMPY_TYPES: dict[str, type] = {
    "bool": np.bool_,
    "fp16": np.float16,
    "fp32": np.float32,
    "fp64": np.float64,
    "bf16": np.uint16,
    "fp8e4m3fn": np.uint8,
    "fp8e5m2": np.uint8,
    "int4": np.int8,
    "int8": np.int8,
    "int16": np.int16,
    "int32": np.int32,
    "int64": np.int64,
    "uint1": np.uint8,
    "uint2": np.uint8,
    "uint3": np.uint8,
    "uint4": np.uint8,
    "uint6": np.uint8,
    "uint8": np.uint8,
    "uint16": np.uint16,
    "uint32": np.uint32,
    "uint64": np.uint64,
    "string": np.str_,
}
"""How an element is held after reading; for bf16 and fp8, before :func:`from_bytes` makes numbers of it."""

BITS = {"int4": 4, "uint1": 1, "uint2": 2, "uint3": 3, "uint4": 4, "uint6": 6}
"""Types that share bytes."""

_CODES = {
    1: "fp16",
    2: "fp32",
    3: "uint8",
    4: "int8",
    5: "bf16",
    6: "int16",
    7: "uint16",
    8: "int4",
    9: "uint1",
    10: "uint2",
    11: "uint4",
    12: "uint3",
    13: "uint6",
    14: "int32",
    15: "uint32",
    16: "fp8e4m3fn",
    17: "fp8e5m2",
}


def unpacked(data: np.ndarray, bits: int, count: int, signed: bool = False) -> np.ndarray:
    """Fields of some bits, the first in the lowest bits, as one byte each."""
    result = np.empty(count, np.uint8)
    bytes_at_once = bits << 17  # a whole number of fields, and little memory beside the result
    fields_at_once = bytes_at_once * 8 // bits
    for step in range(-(-count // fields_at_once)):
        first = step * fields_at_once
        wanted = min(fields_at_once, count - first)
        part = data[step * bytes_at_once : step * bytes_at_once + -(-wanted * bits // 8)]
        places = np.unpackbits(part, bitorder="little")[: wanted * bits].reshape(wanted, bits)
        result[first : first + wanted] = places @ (1 << np.arange(bits, dtype=np.uint8))
    if not signed:
        return result
    half = 1 << (bits - 1)
    return ((result.astype(np.int16) ^ half) - half).astype(np.int8)


def _fp8(codes: np.ndarray, exponent_bits: int, bias: int) -> np.ndarray:
    """Numbers of 8 bits by a table of all 256."""
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
    """Bytes as an array of a type; a view of them wherever an element has whole bytes."""
    count = math.prod(shape)
    if dtype in BITS:
        return unpacked(data, BITS[dtype], count, dtype == "int4").reshape(shape)
    numbers = data.view(NUMPY_TYPES[dtype]).reshape(shape)
    if dtype == "bf16":
        return (numbers.astype(np.uint32) << 16).view(np.float32)
    if dtype.startswith("fp8"):
        return _fp8(numbers, *((4, 7) if dtype == "fp8e4m3fn" else (5, 15)))
    return numbers


class Weights:
    """The weight files of one model: those inside ``folder``, which is what ``@model_path`` stands for."""

    def __init__(self, name: str, folder: Path | None, root: Path | None = None) -> None:
        """``folder`` is None where the model is one file; ``root`` is what nothing may lie outside of."""
        self.name = name
        self.folder = None if folder is None else folder.resolve()
        self.root = self.folder if root is None else root.resolve()
        self._files: dict[str, np.ndarray] = {}

    def array(self, path: str, offset: int, dtype: str, shape: Sequence[int]) -> np.ndarray:
        """The numbers of one record, as a view of the file wherever an element has whole bytes."""
        data = self._mapped(path)
        where = f"{self.name}: weight at {offset:,} of {path!r}"
        if offset < 0 or offset % _RECORD or offset + _RECORD > data.size:
            raise LoadError(f"{where}: no record can start there; the file has {data.size:,} bytes")
        record = data[offset : offset + 32].tobytes()
        sentinel, code, size, start, padding = struct.unpack("<IIQQQ", record)
        if sentinel != _SENTINEL:
            raise LoadError(f"{where}: a record starts with {_SENTINEL:#x}, here is {sentinel:#x}")
        stored = _CODES.get(code, f"type {code}")
        if stored != ("uint8" if dtype == "bool" else dtype):
            raise LoadError(f"{where}: the file holds {stored}, the program says {dtype}")
        bits = BITS.get(stored, np.dtype(NUMPY_TYPES[stored]).itemsize * 8)
        needed = math.prod(shape) * bits
        if -(-needed // 8) != size or (bits < 8 and size * 8 - padding != needed):
            raise LoadError(f"{where}: {size:,} bytes, {list(shape)} of {dtype} needs {-(-needed // 8):,}")
        if start + size > data.size:
            raise LoadError(f"{where}: its data ends at {start + size:,}, the file at {data.size:,} bytes")
        return from_bytes(data[start : start + size], dtype, shape)

    def _mapped(self, path: str) -> np.ndarray:
        if path in self._files:
            return self._files[path]
        told = path.removeprefix("@model_path").lstrip("/")
        if self.folder is None or self.root is None:
            raise LoadError(f"{self.name}: weight file {path!r}: a model of one file has no weight files beside it")
        place = (self.folder / told).resolve()
        if not told or not path.startswith("@model_path/") or not place.is_relative_to(self.root):
            raise LoadError(f"{self.name}: weight file {path!r} points outside the model, which is refused")
        if not place.is_file():
            raise LoadError(f"{self.name}: weight file {path!r} is not there")
        if place.stat().st_size < _RECORD:
            raise LoadError(f"{self.name}: weight file {path!r} is cut short")
        data = np.asarray(np.memmap(place, np.uint8, mode="r"))
        version = int(data[4:8].view(np.uint32)[0])
        if version != _VERSION:
            raise LoadError(f"{self.name}: weight file {path!r} has storage format {version}; read is {_VERSION}")
        self._files[path] = data
        return data
