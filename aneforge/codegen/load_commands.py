"""The load commands of a container: segments with their sections, symbols, ports, state records and notes.

The shapes are those of Mach-O; the meanings are the vendor's (``programs.json`` container). Each command reads itself
from its bytes and gives the same bytes back.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from aneforge.codegen.bounds import Bytes, ContainerError

__all__ = ["Command", "Note", "Port", "Section", "Segment", "State", "SymbolTable", "read_command"]

SEGMENT, SYMBOLS, STATE, PORT, OLD_PORT, NOTE = 0x19, 0x02, 0x04, 0x40, 0x06, 0x08
_SEGMENT = "16sQQQQiiII"
_SECTION = "16s16sQQIIIIIIII"


def _name(raw: bytes) -> str:
    return raw.rstrip(b"\0").decode("utf-8", "backslashreplace")


def _raw(name: str) -> bytes:
    return name.encode("utf-8")


@dataclass
class Command:
    """A command whose meaning is not published: its bytes as they are."""

    code: int
    payload: bytes
    offset: int = 0
    """Where it lies in the file."""

    def to_bytes(self) -> bytes:
        body = self.body()
        return struct.pack("<II", self.code, 8 + len(body)) + body

    def body(self) -> bytes:
        return self.payload


@dataclass
class Section:
    """A section of a segment."""

    name: str
    segment: str
    address: int
    size: int
    offset: int
    align: int
    """As a power of two."""
    relocation_offset: int = 0
    relocation_count: int = 0
    flags: int = 0
    reserved: tuple[int, int, int] = (0, 0, 0)

    @property
    def has_bytes(self) -> bool:
        """Whether the file holds its contents. Buffers of the caller and scratch have an address only."""
        return self.offset != 0 and self.size != 0


@dataclass
class Segment(Command):
    """A run of addresses."""

    name: str = ""
    address: int = 0
    vm_size: int = 0
    file_offset: int = 0
    file_size: int = 0
    protection: tuple[int, int] = (0, 0)
    flags: int = 0
    sections: list[Section] = field(default_factory=list)
    tail: bytes = b""

    def body(self) -> bytes:
        head = (_raw(self.name), self.address, self.vm_size, self.file_offset, self.file_size)
        parts = [struct.pack("<" + _SEGMENT, *head, *self.protection, len(self.sections), self.flags)]
        for section in self.sections:
            names = (_raw(section.name), _raw(section.segment))
            places = (section.address, section.size, section.offset, section.align)
            relocations = (section.relocation_offset, section.relocation_count)
            parts.append(struct.pack("<" + _SECTION, *names, *places, *relocations, section.flags, *section.reserved))
        return b"".join(parts) + self.tail

    @classmethod
    def read(cls, code: int, body: Bytes, offset: int) -> Segment:
        values = body.numbers(_SEGMENT, 0, "a segment")
        name, address, vm_size, file_offset, file_size, most, first, count, flags = values
        size, start = struct.calcsize("<" + _SECTION), struct.calcsize("<" + _SEGMENT)
        if count * size > len(body) - start:
            raise body.error(start - 8, f"the segment claims {count} sections, but has room for {len(body)} bytes")
        sections = []
        for number in range(count):
            part = body.numbers(_SECTION, start + number * size, "a section")
            sections.append(Section(_name(part[0]), _name(part[1]), *part[2:9], reserved=tuple(part[9:])))  # type: ignore[arg-type]
        tail = bytes(body.data[start + count * size :])
        return cls(
            code,
            b"",
            offset,
            _name(name),  # type: ignore[arg-type]
            address,
            vm_size,
            file_offset,
            file_size,
            (most, first),
            flags,
            sections,
            tail,
        )


@dataclass
class SymbolTable(Command):
    """Where symbols and their names lie."""

    symbol_offset: int = 0
    symbol_count: int = 0
    string_offset: int = 0
    string_size: int = 0
    tail: bytes = b""

    def body(self) -> bytes:
        places = (self.symbol_offset, self.symbol_count, self.string_offset, self.string_size)
        return struct.pack("<IIII", *places) + self.tail

    @classmethod
    def read(cls, code: int, body: Bytes, offset: int) -> SymbolTable:
        return cls(code, b"", offset, *body.numbers("IIII", 0, "a symbol table"), bytes(body.data[16:]))


@dataclass
class Port(Command):
    """A name of the caller, bound to the address of a buffer."""

    name: str = ""
    address: int = 0

    @classmethod
    def read(cls, code: int, body: Bytes, offset: int) -> Port:
        where = body.u32(0, "a port") - 8
        address = body.u64(8, "a port") if code == PORT else body.u32(8, "a port")
        return cls(code, bytes(body.data), offset, body.text(where, "the name of a port"), address)


@dataclass
class State(Command):
    """A record of words with strings behind them: a program descriptor or a tensor descriptor."""

    flavor: int = 0
    words: list[int] = field(default_factory=list)
    strings: bytes = b""

    def body(self) -> bytes:
        return struct.pack(f"<II{len(self.words)}I", self.flavor, len(self.words), *self.words) + self.strings

    @classmethod
    def read(cls, code: int, body: Bytes, offset: int) -> State:
        flavor, count = body.numbers("II", 0, "a state record")
        words = body.words(8, count, "a state record")
        return cls(code, b"", offset, flavor, list(words), bytes(body.data[8 + 4 * count :]))


@dataclass
class Note(Command):
    """What the compiler says of itself."""

    @property
    def text(self) -> str:
        return self.payload.rstrip(b"\0").decode("utf-8", "backslashreplace").strip("\0")


_READERS = {SEGMENT: Segment.read, SYMBOLS: SymbolTable.read, PORT: Port.read, OLD_PORT: Port.read, STATE: State.read}


def read_command(data: Bytes, offset: int) -> tuple[Command, int]:
    """The command at an offset, and its size."""
    code, size = data.numbers("II", offset, "a load command")
    if size < 8 or size % 4:
        raise data.error(offset + 4, f"a load command of {size} bytes; the least is 8, in steps of 4")
    body = data.part(offset + 8, size - 8, f"load command {code:#x}")
    if code == NOTE:
        return Note(code, bytes(body.data), data.start + offset), size
    reader = _READERS.get(code)
    if reader is None:
        return Command(code, bytes(body.data), data.start + offset), size
    command = reader(code, body, data.start + offset)
    if command.to_bytes() != bytes(data.data[offset : offset + size]):
        raise ContainerError(data.start + offset, f"load command {code:#x} has bytes that its form does not allow")
    return command, size
