"""Numbers out of a stranger's bytes: every read is checked, and every error names the place in the file."""

from __future__ import annotations

import struct
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from aneforge.errors import AneforgeError

Source = bytes | bytearray | memoryview
LONGEST_NAME = 1 << 14
"""Names of files from strangers are read so far; published ones have a few hundred bytes."""


def readable(raw: bytes) -> str:
    """A name of a file, with what is not UTF-8 shown as it is."""
    return raw.decode("utf-8", "backslashreplace")


def file_bytes(path: str | Path) -> bytes:
    """What a file holds, if it is a regular one and within the budget ``program_bytes``."""
    from aneforge import files

    file = files.regular_file(path, Path(path).name)
    files.spend("program_bytes", file.stat().st_size, Path(path).name)
    return file.read_bytes()


class ContainerError(AneforgeError, ValueError):
    """A container that is damaged or not one; ``offset`` is the place in the file."""

    def __init__(self, offset: int, message: str) -> None:
        self.offset = offset
        super().__init__(f"offset {offset:#x}: {message}")


class Bytes:
    """A run of bytes of a file, which knows where in the file it lies."""

    __slots__ = ("data", "start")

    def __init__(self, data: Source, start: int = 0) -> None:
        self.data = memoryview(data)
        self.start = start

    def __len__(self) -> int:
        return len(self.data)

    def part(self, offset: int, size: int, what: str) -> Bytes:
        """``size`` bytes from ``offset``."""
        if offset < 0 or size < 0 or offset + size > len(self.data):
            raise self.error(offset, f"{what} claims {size} bytes, but {max(len(self.data) - offset, 0)} are left")
        return Bytes(self.data[offset : offset + size], self.start + offset)

    def numbers(self, form: str, offset: int, what: str) -> tuple[int, ...]:
        """Little-endian numbers by their ``struct`` form, without the mark of the order."""
        return self.record(struct.Struct("<" + form), offset, what)

    def record(self, layout: struct.Struct, offset: int, what: str) -> tuple[Any, ...]:
        """The fields of a record: numbers, and bytes where the layout has a run of them."""
        return layout.unpack(self.part(offset, layout.size, what).data)

    def u32(self, offset: int, what: str) -> int:
        return self.numbers("I", offset, what)[0]

    def u64(self, offset: int, what: str) -> int:
        return self.numbers("Q", offset, what)[0]

    def words(self, offset: int, count: int, what: str) -> Sequence[int]:
        """``count`` words of 32 bits, as a view where the machine has the order of the file."""
        found = self.part(offset, 4 * count, what).data
        return found.cast("I") if sys.byteorder == "little" else struct.unpack(f"<{count}I", found)

    def text(self, offset: int, what: str) -> str:
        """A string up to its NUL, which must be there and within :data:`LONGEST_NAME` bytes."""
        found = bytes(self.data[max(offset, 0) : max(offset, 0) + LONGEST_NAME + 1])
        end = found.find(b"\0")
        if not 0 <= offset < len(self.data) or (end < 0 and len(found) <= LONGEST_NAME):
            raise self.error(offset, f"{what} has no end")
        if end < 0:
            raise self.error(offset, f"{what} has more than {LONGEST_NAME} bytes")
        return readable(found[:end])

    def error(self, offset: int, message: str) -> ContainerError:
        return ContainerError(self.start + offset, message)
