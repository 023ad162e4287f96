"""The offsets of an asset's weights in its program file, so that they are mapped from disk instead of copied.

The program is MLIR bytecode: numbered sections, in which large constants are blobs with a key. Only the two sections
about blobs and the section of strings are read here. Apple's package reads the rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

MAGIC = b"ML\xefR"

_STRINGS, _RESOURCES, _OFFSETS = 0, 5, 6
_BLOB = 0
_MOST_ENTRIES = 1 << 22


class _LayoutError(Exception):
    """The bytes do not have the expected layout: the caller asks the package instead."""


@dataclass
class _Bytes:
    """A reader of the file: the position of the next byte, and the end."""

    data: np.ndarray
    position: int
    end: int

    def byte(self) -> int:
        if self.position >= self.end:
            raise _LayoutError
        self.position += 1
        return int(self.data[self.position - 1])

    def number(self) -> int:
        """An integer of varying length. The zero bits at the low end of the first byte count the bytes that follow; a
        first byte of 0 means eight."""
        head = self.byte()
        if head & 1:
            return head >> 1
        more = 8 if head == 0 else (head & -head).bit_length() - 1
        tail = self.take(more)
        if head == 0:
            return int.from_bytes(tail, "little")
        return int.from_bytes(bytes([head]) + tail, "little") >> (more + 1)

    def take(self, count: int) -> bytes:
        if count > self.end - self.position:
            raise _LayoutError
        self.position += count
        return self.data[self.position - count : self.position].tobytes()

    def count(self) -> int:
        number = self.number()
        if number > _MOST_ENTRIES:
            raise _LayoutError
        return number

    def align(self, alignment: int) -> None:
        if alignment < 1 or alignment & (alignment - 1):
            raise _LayoutError
        self.position += -self.position % alignment

    def text(self) -> None:
        while self.byte():
            pass


def mapped_blobs(file: Path) -> dict[str, np.ndarray]:
    """The bytes of each stored constant by its key; empty if the layout of the file is not as expected."""
    try:
        data = np.memmap(file, np.uint8, "r")
        return _blobs(data)
    except (_LayoutError, OSError, ValueError, OverflowError):
        return {}


def _blobs(data: np.ndarray) -> dict[str, np.ndarray]:
    sections = _sections(data)
    if _RESOURCES not in sections or _OFFSETS not in sections or _STRINGS not in sections:
        return {}
    names = _strings(sections[_STRINGS])
    table, position = sections[_OFFSETS], sections[_RESOURCES].position
    blobs: dict[str, np.ndarray] = {}
    outer = table.count()  # groups without a dialect come first
    while table.position < table.end:
        table.number()  # the owner of the group
        for _ in range(table.count()):
            key, size, kind = table.number(), table.number(), table.byte()
            if key >= len(names) or position + size > sections[_RESOURCES].end:
                raise _LayoutError
            if kind == _BLOB and outer <= 0:
                blobs[names[key]] = _blob(_Bytes(data, position, position + size))
            position += size
        outer -= 1
    return blobs


def _blob(entry: _Bytes) -> np.ndarray:
    alignment, size = entry.number(), entry.number()
    entry.align(alignment)
    if size > entry.end - entry.position:
        raise _LayoutError
    return entry.data[entry.position : entry.position + size]


def _sections(data: np.ndarray) -> dict[int, _Bytes]:
    reader = _Bytes(data, 0, len(data))
    if reader.take(len(MAGIC)) != MAGIC:
        raise _LayoutError
    reader.number()  # the version of the format
    reader.text()  # who wrote it
    sections: dict[int, _Bytes] = {}
    while reader.position < reader.end:
        head, size = reader.byte(), reader.number()
        if head & 0x80:
            reader.align(reader.number())
        if size > reader.end - reader.position:
            raise _LayoutError
        sections[head & 0x7F] = _Bytes(data, reader.position, reader.position + size)
        reader.position += size
    return sections


def _strings(section: _Bytes) -> list[str]:
    """The lengths from last to first, then the strings, each with a zero byte at its end."""
    lengths = [section.number() for _ in range(section.count())][::-1]
    return [section.take(length)[:-1].decode("utf-8", "replace") for length in lengths]
