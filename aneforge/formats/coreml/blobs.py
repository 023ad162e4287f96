"""Weight files of ML programs: storage format 2, read through a memory map.

A file is a header of 64 bytes (how many records, and the format), then records. A record is 64 bytes of metadata on a
64-byte boundary (sentinel, data type, size in bytes, where the data starts, bits of padding at the end) and its data.
A program names a record by the offset of its metadata. The format was worked out from files that coremltools writes.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from aneforge.errors import LoadError
from aneforge.formats.cache import depends_on
from aneforge.formats.records import PACKED, STORED, from_bytes

_RECORD = 64
_SENTINEL = 0xDEADBEEF
_VERSION = 2

_TYPES = "fp16 fp32 uint8 int8 bf16 int16 uint16 int4 uint1 uint2 uint4 uint3 uint6 int32 uint32 fp8e4m3fn fp8e5m2"
_CODES = dict(enumerate(_TYPES.split(), 1))


class BlobWeights:
    """The weight files of one model: those inside ``folder``, which is what ``@model_path`` stands for."""

    def __init__(self, name: str, folder: Path | None, root: Path | None = None) -> None:
        """``folder`` is None if the model is one file. Every weight file must be inside ``root``."""
        self.name = name
        self.folder = None if folder is None else folder.resolve()
        self.root = self.folder if root is None else root.resolve()
        self._files: dict[str, np.ndarray] = {}

    def array(self, path: str, offset: int, dtype: str, shape: Sequence[int]) -> np.ndarray:
        """The numbers of one record, as a view of the file unless elements share bytes."""
        data = self._mapped(path)
        where = f"{self.name}: weight at {offset:,} of {path!r}"
        if offset < 0 or offset % _RECORD or offset + _RECORD > data.size:
            raise LoadError(f"{where}: no record can start at this offset; the file has {data.size:,} bytes")
        record = data[offset : offset + 32].tobytes()
        sentinel, code, size, start, padding = struct.unpack("<IIQQQ", record)
        if sentinel != _SENTINEL:
            raise LoadError(f"{where}: not a weight record (it starts with {sentinel:#x}; expected {_SENTINEL:#x})")
        stored = _CODES.get(code, f"type {code}")
        if stored != ("uint8" if dtype == "bool" else dtype):
            raise LoadError(f"{where}: the file stores {stored}, but the program states {dtype}")
        bits = PACKED.get(stored, np.dtype(STORED[stored]).itemsize * 8)
        bits_needed = math.prod(shape) * bits
        if -(-bits_needed // 8) != size or (bits < 8 and size * 8 - padding != bits_needed):
            raise LoadError(
                f"{where}: the record has {size:,} bytes; {list(shape)} of {dtype} needs {-(-bits_needed // 8):,}"
            )
        if start + size > data.size:
            raise LoadError(f"{where}: the data ends at byte {start + size:,}, but the file has {data.size:,} bytes")
        return from_bytes(data[start : start + size], dtype, shape)

    def _mapped(self, path: str) -> np.ndarray:
        if path in self._files:
            return self._files[path]
        relative = path.removeprefix("@model_path").lstrip("/")
        if self.folder is None or self.root is None:
            raise LoadError(
                f"{self.name}: weight file {path!r} is not allowed; a model of a single file has no weight files"
            )
        file = (self.folder / relative).resolve()
        if not relative or not path.startswith("@model_path/") or not file.is_relative_to(self.root):
            raise LoadError(f"{self.name}: weight file {path!r} points outside the model; it must be inside")
        if not file.is_file():
            raise LoadError(f"{self.name}: weight file {path!r} does not exist; copy the model with its weights")
        if file.stat().st_size < _RECORD:
            raise LoadError(f"{self.name}: weight file {path!r} is truncated; it must have at least {_RECORD} bytes")
        depends_on(file)
        data = np.asarray(np.memmap(file, np.uint8, mode="r"))
        version = int(data[4:8].view(np.uint32)[0])
        if version != _VERSION:
            raise LoadError(
                f"{self.name}: weight file {path!r} has storage format {version}; only {_VERSION} is supported"
            )
        self._files[path] = data
        return data
