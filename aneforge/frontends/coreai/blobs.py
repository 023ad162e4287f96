"""Where the weights of an asset lie in its program file, so that they are mapped from disk instead of copied.

The program is MLIR bytecode: sections of numbered kinds, in which large constants are blobs under a key. Only the two
sections about them, and the one of names, are read here; the rest is for the package that owns the format.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

__all__ = ["MAGIC", "mapped_blobs"]

MAGIC = b"ML\xefR"

_STRINGS, _RESOURCES, _OFFSETS = 0, 5, 6
_BLOB = 0
_MOST_ENTRIES = 1 << 22


class _LayoutError(Exception):
    """The bytes do not read as they should: the caller asks the package instead."""


@dataclass
class _Bytes:
    """A place in the file that moves on as it is read, and where it must end."""

    data: np.ndarray
    at: int
    end: int

    def byte(self) -> int:
        if self.at >= self.end:
            raise _LayoutError
        self.at += 1
        return int(self.data[self.at - 1])

    def number(self) -> int:
        """The zeros at the low end of the first byte say how many bytes follow; none in it means that eight do."""
        first = self.byte()
        if first & 1:
            return first >> 1
        more = 8 if first == 0 else (first & -first).bit_length() - 1
        rest = self.take(more)
        if first == 0:
            return int.from_bytes(rest, "little")
        return int.from_bytes(bytes([first]) + rest, "little") >> (more + 1)

    def take(self, count: int) -> bytes:
        if count > self.end - self.at:
            raise _LayoutError
        self.at += count
        return self.data[self.at - count : self.at].tobytes()

    def count(self) -> int:
        number = self.number()
        if number > _MOST_ENTRIES:
            raise _LayoutError
        return number

    def align(self, to: int) -> None:
        if to < 1 or to & (to - 1):
            raise _LayoutError
        self.at += -self.at % to

    def text(self) -> None:
        while self.byte():
            pass


def mapped_blobs(file: Path) -> dict[str, np.ndarray]:
    """The bytes of each stored constant by its key; nothing where the file is not laid out as known here."""
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
    table, place = sections[_OFFSETS], sections[_RESOURCES].at
    found: dict[str, np.ndarray] = {}
    outer = table.count()  # groups that belong to no dialect come first
    while table.at < table.end:
        table.number()  # whose group it is
        for _ in range(table.count()):
            key, size, kind = table.number(), table.number(), table.byte()
            if key >= len(names) or place + size > sections[_RESOURCES].end:
                raise _LayoutError
            if kind == _BLOB and outer <= 0:
                found[names[key]] = _blob(_Bytes(data, place, place + size))
            place += size
        outer -= 1
    return found


def _blob(entry: _Bytes) -> np.ndarray:
    alignment, size = entry.number(), entry.number()
    entry.align(alignment)
    if size > entry.end - entry.at:
        raise _LayoutError
    return entry.data[entry.at : entry.at + size]


def _sections(data: np.ndarray) -> dict[int, _Bytes]:
    reader = _Bytes(data, 0, len(data))
    if reader.take(len(MAGIC)) != MAGIC:
        raise _LayoutError
    reader.number()  # the version of the format
    reader.text()  # who wrote it
    found: dict[int, _Bytes] = {}
    while reader.at < reader.end:
        head, size = reader.byte(), reader.number()
        if head & 0x80:
            reader.align(reader.number())
        if size > reader.end - reader.at:
            raise _LayoutError
        found[head & 0x7F] = _Bytes(data, reader.at, reader.at + size)
        reader.at += size
    return found


def _strings(section: _Bytes) -> list[str]:
    """Lengths from the last to the first, then the strings, each with a zero at its end."""
    lengths = [section.number() for _ in range(section.count())][::-1]
    return [section.take(length)[:-1].decode("utf-8", "replace") for length in lengths]
