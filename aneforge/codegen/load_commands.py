"""The load commands of a container: segments with their sections, symbols, ports, state records and notes.

The shapes are those of Mach-O; the meanings are the vendor's (``programs.json`` container). Each command reads itself
from its bytes and gives the same bytes back.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from aneforge.codegen.bounds import Bytes, ContainerError, readable

SEGMENT, SYMBOLS, STATE, PORT, OLD_PORT, NOTE = 0x19, 0x02, 0x04, 0x40, 0x06, 0x08
_SEGMENT = struct.Struct("<16sQQQQiiII")
_WITHOUT_BYTES = (0x21, 0x23, 0x25)  # flags of inputs, outputs and scratch (programs.json segments)
_SECTION = struct.Struct("<16s16sQQIIIIIIII")


def _name(raw: bytes) -> str:
    return readable(raw.rstrip(b"\0"))


def _raw(name: str) -> bytes:
    return name.encode("utf-8")


@dataclass
class LoadCommand:
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
class ContainerSection:
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
        return self.offset != 0 and self.size != 0 and self.flags not in _WITHOUT_BYTES

    @property
    def holds_constants(self) -> bool:
        """Whether weights and tables lie in it: the constant section behind the text, or a kernel section."""
        behind_text = self.segment == "__TEXT" and self.name == "__const"
        return self.has_bytes and (behind_text or self.segment.startswith("__KERN_"))

    @classmethod
    def read(cls, body: Bytes, place: int) -> ContainerSection:
        name, segment, *numbers = body.record(_SECTION, place, "a section")
        address, size, offset, align, relocations, count, flags, *reserved = numbers
        names, words = (_name(name), _name(segment)), (reserved[0], reserved[1], reserved[2])
        return cls(*names, address, size, offset, align, relocations, count, flags, words)

    def to_bytes(self) -> bytes:
        places = (self.address, self.size, self.offset, self.align, self.relocation_offset, self.relocation_count)
        return _SECTION.pack(_raw(self.name), _raw(self.segment), *places, self.flags, *self.reserved)


@dataclass
class ContainerSegment(LoadCommand):
    """A run of addresses."""

    name: str = ""
    address: int = 0
    vm_size: int = 0
    file_offset: int = 0
    file_size: int = 0
    protection: tuple[int, int] = (0, 0)
    flags: int = 0
    sections: list[ContainerSection] = field(default_factory=list)
    tail: bytes = b""

    @property
    def is_mapped(self) -> bool:
        """Whether it has addresses: the page at 0 and notes for debugging have none."""
        return any(self.protection)

    @property
    def end(self) -> int:
        return self.address + self.vm_size

    def body(self) -> bytes:
        places = (self.address, self.vm_size, self.file_offset, self.file_size, *self.protection)
        head = _SEGMENT.pack(_raw(self.name), *places, len(self.sections), self.flags)
        return b"".join((head, *(section.to_bytes() for section in self.sections), self.tail))

    @classmethod
    def read(cls, code: int, body: Bytes, offset: int) -> ContainerSegment:
        name, address, vm_size, file_offset, file_size, most, first, count, flags = body.record(
            _SEGMENT, 0, "a segment"
        )
        room = (len(body) - _SEGMENT.size) // _SECTION.size
        if count > room:
            raise body.error(_SEGMENT.size - 8, f"the segment claims {count} sections, but has room for {room}")
        ends = [_SEGMENT.size + number * _SECTION.size for number in range(count + 1)]
        sections = [ContainerSection.read(body, place) for place in ends[:-1]]
        places = (_name(name), address, vm_size, file_offset, file_size)
        return cls(code, b"", offset, *places, (most, first), flags, sections, bytes(body.data[ends[-1] :]))


@dataclass
class SymbolTable(LoadCommand):
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
        symbols, count, strings, size = body.numbers("IIII", 0, "a symbol table")
        return cls(code, b"", offset, symbols, count, strings, size, bytes(body.data[16:]))


@dataclass
class ContainerPort(LoadCommand):
    """A name of the caller, bound to the address of a buffer: 64 bits of it, or 32 in the old form. The payload is the
    truth; both properties read it."""

    @property
    def name(self) -> str:
        where = Bytes(self.payload, self.offset + 8)
        return where.text(where.u32(0, "a port") - 8, "the name of a port")

    @property
    def address(self) -> int:
        return Bytes(self.payload, self.offset + 8).numbers("Q" if self.code == PORT else "I", 8, "a port")[0]

    @classmethod
    def read(cls, code: int, body: Bytes, offset: int) -> ContainerPort:
        port = cls(code, bytes(body.data), offset)
        _ = port.name, port.address  # both are there, or an error says where
        return port


@dataclass
class StateRecord(LoadCommand):
    """A record of words with strings behind them: a program descriptor or a tensor descriptor."""

    flavor: int = 0
    words: list[int] = field(default_factory=list)
    strings: bytes = b""

    def body(self) -> bytes:
        return struct.pack(f"<II{len(self.words)}I", self.flavor, len(self.words), *self.words) + self.strings

    @classmethod
    def read(cls, code: int, body: Bytes, offset: int) -> StateRecord:
        flavor, count = body.numbers("II", 0, "a state record")
        words = body.words(8, count, "a state record")
        return cls(code, b"", offset, flavor, list(words), bytes(body.data[8 + 4 * count :]))


@dataclass
class Note(LoadCommand):
    """What the compiler says of itself."""

    @property
    def text(self) -> str:
        return readable(self.payload.strip(b"\0"))


_READERS = {
    SEGMENT: ContainerSegment.read,
    SYMBOLS: SymbolTable.read,
    PORT: ContainerPort.read,
    OLD_PORT: ContainerPort.read,
    STATE: StateRecord.read,
}


def read_command(data: Bytes, offset: int) -> tuple[LoadCommand, int]:
    """The command at an offset, and its size."""
    code, size = data.numbers("II", offset, "a load command")
    if size < 8:
        raise data.error(offset + 4, f"a load command of {size} bytes; the least is 8")
    body = data.part(offset + 8, size - 8, f"load command {code:#x}")
    if code == NOTE:
        return Note(code, bytes(body.data), data.start + offset), size
    reader = _READERS.get(code)
    if reader is None:
        return LoadCommand(code, bytes(body.data), data.start + offset), size
    command = reader(code, body, data.start + offset)
    if command.to_bytes() != bytes(data.data[offset : offset + size]):
        raise ContainerError(data.start + offset, f"load command {code:#x} has bytes that its form does not allow")
    return command, size
