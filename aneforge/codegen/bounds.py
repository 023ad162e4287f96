"""Numbers out of a stranger's bytes: every read is checked, and every error names the place in the file."""

from __future__ import annotations

import struct

from aneforge.errors import AneforgeError

__all__ = ["Bytes", "ContainerError", "Source"]

Source = bytes | bytearray | memoryview


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
        layout = "<" + form
        return struct.unpack(layout, self.part(offset, struct.calcsize(layout), what).data)

    def u32(self, offset: int, what: str) -> int:
        return self.numbers("I", offset, what)[0]

    def u64(self, offset: int, what: str) -> int:
        return self.numbers("Q", offset, what)[0]

    def words(self, offset: int, count: int, what: str) -> tuple[int, ...]:
        """``count`` words of 32 bits."""
        return struct.unpack(f"<{count}I", self.part(offset, 4 * count, what).data) if count else ()

    def text(self, offset: int, what: str) -> str:
        """A string up to its NUL, which must be there."""
        rest = self.part(offset, max(len(self.data) - offset, 0), what).data if offset <= len(self.data) else b""
        found = bytes(rest)
        end = found.find(b"\0")
        if offset >= len(self.data) or end < 0:
            raise self.error(offset, f"{what} has no end")
        return found[:end].decode("utf-8", "backslashreplace")

    def error(self, offset: int, message: str) -> ContainerError:
        return ContainerError(self.start + offset, message)
