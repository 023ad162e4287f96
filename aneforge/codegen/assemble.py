"""A container from its parts: tensors of the caller, tasks and constants, placed as the vendor's compiler places them.

The order of segments is that of compiler 9.509 (``programs.json`` segment_order): scratch, the caller's tensors, the
text with its constants, kernels. Base-address registers number the tensors in the order of their names.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from aneforge.chips import store
from aneforge.codegen.container import MAGIC, Container, FileRegion, Header
from aneforge.codegen.dialect import dialect_of
from aneforge.codegen.load_commands import (
    PORT,
    SEGMENT,
    STATE,
    SYMBOLS,
    ContainerPort,
    ContainerSection,
    ContainerSegment,
    LoadCommand,
    StateRecord,
    SymbolTable,
)
from aneforge.codegen.registers import register_map
from aneforge.codegen.stream import is_indexed
from aneforge.codegen.tasks import Task

VM_BASE, PAGE = 0x30000000, 0x4000
EMPTY_CONSTANTS = 0x4000
"""A program without constants has a page of zeros in their place."""
_RELOCATION = 0x05000002
_TEXT_BAR, _CONSTANT_BAR, _SCRATCH_BAR = 0, 1, 3


@dataclass(frozen=True)
class CallerTensor:
    """A tensor of the caller, as its buffer has it."""

    name: str
    role: str
    """``input`` or ``output``."""
    shape: tuple[int, int, int, int]
    element: int = 5
    """The element code; 5 is fp16."""
    element_bytes: int = 2
    row_bytes: int | None = None
    """Bytes of a row where they are not rounded up to 64."""

    @property
    def strides(self) -> tuple[int, int, int, int]:
        _, c, h, w = self.shape
        row = _up(w * self.element_bytes, 64) if self.row_bytes is None else self.row_bytes
        return row * h * c, row * h, row, self.element_bytes

    @property
    def total_bytes(self) -> int:
        return self.strides[0]

    @property
    def spanned_bytes(self) -> int:
        return self.strides[0] * self.shape[0]


@dataclass
class Parts:
    """What a container is made of."""

    generation: str
    tensors: Sequence[CallerTensor]
    tasks: Sequence[Task]
    constants: bytes = b""
    scratch_bytes: int = 0
    procedure: str = "main"
    cycles: int = 0
    tiles: Sequence[tuple[int, int]] = field(default_factory=tuple)
    """Offset and size of each stream of coefficients in the constants, for the symbols."""
    debug: bytes = b""
    """A section that no loader reads: what our own reader needs beside the registers."""
    rows: bytes = b""
    """Constants that tasks read as tensors, where kernels have a section of their own."""


def _up(value: int, step: int) -> int:
    return -(-value // step) * step


def first_tensor_bar(generation: str) -> int:
    """The number of the first tensor among the base-address registers."""
    return dialect_of(generation).first_tensor_bar


def has_kernel_section(generation: str) -> bool:
    """Whether weights and tables have a segment of their own."""
    return dialect_of(generation).kernel_section


def bar_numbers(generation: str, names: Sequence[str]) -> dict[str, int]:
    """The base-address register of each tensor: in the order of their names."""
    first = first_tensor_bar(generation)
    return {name: first + place for place, name in enumerate(sorted(names))}


class _Layout:
    """Addresses of everything, worked out once."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        place = VM_BASE
        self.scratch = place if parts.scratch_bytes else 0
        place += _up(parts.scratch_bytes, PAGE)
        self.surfaces: dict[str, int] = {}
        for tensor in sorted(parts.tensors, key=lambda tensor: tensor.name):
            self.surfaces[tensor.name] = place
            place += _up(tensor.spanned_bytes, PAGE)
        self.text_address = place
        self.text = _text(parts)
        apart = has_kernel_section(parts.generation)
        self.constants = (parts.rows if apart else parts.constants) or bytes(EMPTY_CONSTANTS)
        self.kernels = parts.constants if apart else b""
        self.constant_address = place + _up(len(self.text), 64)
        self.kernel_address = _up(self.constant_address + len(self.constants), PAGE) if self.kernels else 0

    @property
    def bars(self) -> dict[int, int]:
        generation = self.parts.generation
        numbers = bar_numbers(generation, list(self.surfaces))
        bars = {_TEXT_BAR: self.text_address, _CONSTANT_BAR: self.constant_address}
        bars |= {number: self.surfaces[name] for name, number in numbers.items()}
        if self.scratch:
            bars[_SCRATCH_BAR] = self.scratch
        if self.kernels:
            bars[max(numbers.values(), default=first_tensor_bar(generation) - 1) + 1] = self.kernel_address
        return bars


def _text(parts: Parts) -> bytes:
    """The tasks in their places. Generations from h14 on have a frame of 16 zero bytes in front."""
    if is_indexed(parts.generation):
        pieces = [bytes(16)]
        for task in parts.tasks:
            place = _up(sum(map(len, pieces)), 16)
            pieces.append(bytes(place - sum(map(len, pieces))))
            pieces.append(_packed(task))
        return b"".join(pieces)
    text = bytearray()
    for task in parts.tasks:
        text += bytes(task.offset - len(text))
        text += _packed(task)
    return bytes(text)


def _packed(task: Task) -> bytes:
    words = task.words
    return struct.pack(f"<{len(words)}I", *words)


def assemble(parts: Parts) -> Container:
    """The container of a program."""
    layout = _Layout(parts)
    relocations = _relocations(parts)
    symbols, strings = _symbols(layout)
    commands: list[LoadCommand] = [*_segments(layout, len(relocations))]
    commands += [_port(tensor.name, layout.surfaces[tensor.name]) for tensor in parts.tensors]
    commands.append(_program(layout))
    commands += [_tensor(tensor, parts.procedure) for tensor in parts.tensors]
    table = SymbolTable(SYMBOLS, b"", 0, 0, len(symbols) // 16, 0, len(strings))
    commands.append(table)
    command_bytes = sum(len(command.to_bytes()) for command in commands)
    regions = _place_in_file(layout, commands, table, 32 + command_bytes, (relocations, symbols, strings))
    container = store.load("programs")["container"]
    header = Header(
        MAGIC,
        0x80,
        register_map(parts.generation).cpusubtype,
        2,
        len(commands),
        command_bytes,
        int(container["header"]["fields"][6]["value"], 16),
    )
    return Container(header, commands, regions)


def _segments(layout: _Layout, relocation_bytes: int) -> list[ContainerSegment]:
    parts = layout.parts
    segments = [_segment("__PAGEZERO", 0, PAGE, (0, 0), 4, [])]
    if parts.debug:
        section = ContainerSection("__debug_info", "__DEBUG", 0, len(parts.debug), 0, 6, flags=0x32)
        segments.append(_segment("__DEBUG", 0, 0, (0, 0), 4, [section]))
    if parts.scratch_bytes:
        size = _up(parts.scratch_bytes, PAGE)
        section = ContainerSection("__bss", "__DATA", layout.scratch, parts.scratch_bytes, 0, 14, flags=0x25)
        segments.append(_segment("__DATA", layout.scratch, size, (3, 3), 4, [section]))
    for tensor in sorted(parts.tensors, key=lambda tensor: tensor.name):
        segments.append(_surface(tensor, layout.surfaces[tensor.name]))
    text = ContainerSection("__text", "__TEXT", layout.text_address, len(layout.text), 0, 14)
    text.relocation_count = relocation_bytes // 8
    text.flags = 0x128 if relocation_bytes else 0x28
    constants = ContainerSection("__const", "__TEXT", layout.constant_address, len(layout.constants), 0, 6, flags=0x26)
    size = _up(layout.constant_address + len(layout.constants) - layout.text_address, PAGE)
    flags = 0 if relocation_bytes else 4
    segments.append(_segment("__TEXT", layout.text_address, size, (5, 5), flags, [text, constants]))
    if layout.kernels:
        kernel = ContainerSection("__kern_0", "__KERN_0", layout.kernel_address, len(layout.kernels), 0, 6, flags=0x26)
        size = _up(len(layout.kernels), PAGE)
        segments.append(_segment("__KERN_0", layout.kernel_address, size, (1, 1), 4, [kernel]))
    return segments


def _segment(
    name: str, address: int, size: int, protection: tuple[int, int], flags: int, sections: list[ContainerSection]
) -> ContainerSegment:
    return ContainerSegment(SEGMENT, b"", 0, name, address, size, 0, 0, protection, flags, sections)


def _surface(tensor: CallerTensor, address: int) -> ContainerSegment:
    """The segment of a tensor: an address and a size, no bytes of the file."""
    reads = tensor.role == "input"
    name, protection, flags = ("__const", 1, 0x21) if reads else ("__data", 2, 0x23)
    section = ContainerSection(name, "__FVMLIB", address, tensor.spanned_bytes, 0, 14, flags=flags)
    return _segment("__FVMLIB", address, _up(tensor.spanned_bytes, PAGE), (protection, protection), 6, [section])


def _port(name: str, address: int) -> ContainerPort:
    text = name.encode("utf-8") + b"\0"
    payload = struct.pack("<IIQ", 0x18, 0, address) + text
    return ContainerPort(PORT, payload + bytes(-len(payload) % 8))


def _put(words: list[int], offset: int, value: int, size: int = 1) -> None:
    """A number of one word or of two at its offset in the command of a state record."""
    for place in range(size):
        words[(offset - 0x10) // 4 + place] = value >> 32 * place & 0xFFFFFFFF


def _program(layout: _Layout) -> StateRecord:
    """The program descriptor, with the words that every published one has."""
    parts = layout.parts
    indexed = is_indexed(parts.generation)
    late = has_kernel_section(parts.generation)
    words = [0] * ((0x222 if late else 0x21E) if indexed else 0x21A)

    put = partial(_put, words)
    stride = 16 if indexed else 8
    for number, address in layout.bars.items():
        put(0x10 + number * stride, address, 2)
    name_offset = 0x10 + 4 * len(words)
    tensors = len(parts.tensors)
    if indexed:
        put(0x810, layout.text_address, 2)
        put(0x820, 4)
        put(0x824, len(layout.text) // 4)
        put(0x830, len(parts.tasks))
        put(0x838, 0xFFFFFFFFFFFFFFFF, 2)
        put(0x844, 0xFFFF)
        put(0x848, name_offset)
        put(0x868, dialect_of(parts.generation).program_format or 0)
        put(0x870, 2 if late else 1)
        places = (0x888, 0x88C, 0x890) if late else (0x878, 0x87C, 0x880)
        if late:
            put(0x878, 7)
            put(0x87C, 8)
            put(0x880, 0x461C4000)
    else:
        put(0x810, layout.text_address + parts.tasks[0].offset, 2)
        put(0x818, len(parts.tasks[0].words) - 1)
        put(0x81C, len(parts.tasks))
        put(0x824, 0xFFFF)
        put(0x83C, name_offset)
        put(0x850, 0x11 if len(parts.tasks) == 1 else 0x40 + len(parts.tasks))
        put(0x858, tensors + 1 if tensors < 8 else 0xB)
        put(0x860, 1)
        places = (0x868, 0x86C, 0x870)
    for place, value in zip(places, (9, 8, parts.cycles), strict=True):
        put(place, value)
    strings = parts.procedure.encode("utf-8") + b"\0"
    return StateRecord(STATE, b"", 0, 4 if indexed else 1, words, strings + bytes(-len(strings) % 8))


def _tensor(tensor: CallerTensor, procedure: str) -> StateRecord:
    """The descriptor of a tensor of the caller."""
    words = [0] * 0x1E
    strings = [text.encode("utf-8") + b"\0" for text in (procedure, tensor.name, tensor.name)]
    first = 0x10 + 4 * len(words)
    offsets = [first, first + len(strings[0]), first + len(strings[0]) + len(strings[1])]

    put = partial(_put, words)
    put(0x10, 3)
    put(0x14, 1 if tensor.role == "input" else 2)
    put(0x18, offsets[0])
    put(0x20, offsets[1])
    put(0x24, tensor.element)
    for place, extent in enumerate((*tensor.shape, 1)):
        put(0x28 + 4 * place, extent)
    for place, stride in enumerate(tensor.strides):
        put(0x50 + 8 * place, stride, 2)
    put(0x70, tensor.total_bytes, 2)
    put(0x78, 1)
    put(0x7C, offsets[2])
    put(0x80, tensor.spanned_bytes, 2)
    text = b"".join(strings)
    return StateRecord(STATE, b"", 0, 3, words, text + bytes(-len(text) % 8))


def _relocations(parts: Parts) -> bytes:
    """Of h13: one for each stream of coefficients that a task reads, at its base address in the text. Later
    generations name the base-address register in the command."""
    if is_indexed(parts.generation):
        return b""
    registers = register_map(parts.generation).by_address
    entries = []
    for task in parts.tasks:
        place = task.offset + 4 * len(task.header_words)
        enabled: dict[str, bool] = {}
        for command in task.commands:
            for number, (address, value) in enumerate(command.writes()):
                name = registers[address].name if address in registers else ""
                if name.startswith("CoeffDMAConfig"):
                    enabled[name.removeprefix("CoeffDMAConfig")] = bool(value & 1)
                if name.startswith("CoeffBaseAddr") and enabled.get(name.removeprefix("CoeffBaseAddr")):
                    entries.append(struct.pack("<II", place + 4 * (1 + number), _RELOCATION))
            place += 4 * (1 + len(command.values))
    return b"".join(entries)


def _symbols(layout: _Layout) -> tuple[bytes, bytes]:
    """Symbols for the tiles of kernels and for the ports."""
    parts = layout.parts
    digest = hashlib.sha256(parts.constants).hexdigest()
    base = layout.kernel_address or layout.constant_address
    named = [(f"K{digest}_ne_{number}", base + offset, 2) for number, (offset, _) in enumerate(parts.tiles)]
    named += [(tensor.name, layout.surfaces[tensor.name], 0) for tensor in parts.tensors]
    strings, entries = bytearray(b"\0"), []
    for name, value, description in named:
        entries.append(struct.pack("<IBBHQ", len(strings), 0xF, 0, description, value))
        strings += name.encode("utf-8") + b"\0"
    return b"".join(entries), bytes(strings) + bytes(-len(strings) % 8)


def _place_in_file(
    layout: _Layout, commands: list[LoadCommand], table: SymbolTable, start: int, tail: tuple[bytes, bytes, bytes]
) -> list[FileRegion]:
    """The offsets of everything in the file, written into the commands, and the runs in their order."""
    segments = {command.name: command for command in commands if isinstance(command, ContainerSegment)}
    place = _up(start, PAGE)
    regions = [FileRegion(start, "gap", bytes(place - start))]
    text_segment = segments["__TEXT"]
    text, constants = text_segment.sections
    text_segment.file_offset = text.offset = place
    constants.offset = place + (layout.constant_address - layout.text_address)
    text_segment.file_size = constants.offset + len(layout.constants) - place
    between = bytes(constants.offset - place - len(layout.text))
    regions += [FileRegion(place, "text", layout.text), FileRegion(place + len(layout.text), "gap", between)]
    regions.append(FileRegion(constants.offset, "constants", layout.constants))
    place = constants.offset + len(layout.constants)
    if layout.kernels:
        aligned = _up(place, PAGE)
        regions.append(FileRegion(place, "gap", bytes(aligned - place)))
        kernel = segments["__KERN_0"]
        kernel.file_offset = kernel.sections[0].offset = aligned
        kernel.file_size = len(layout.kernels)
        regions.append(FileRegion(aligned, "kernels", layout.kernels))
        place = aligned + len(layout.kernels)
    if layout.parts.debug:
        debug = segments["__DEBUG"]
        debug.file_offset = debug.sections[0].offset = place
        debug.file_size = len(layout.parts.debug)
        regions.append(FileRegion(place, "debug", layout.parts.debug))
        place += len(layout.parts.debug)
    relocations, symbols, strings = tail
    for kind, data in (("relocations", relocations), ("symbols", symbols), ("strings", strings)):
        if kind == "relocations" and data:
            text.relocation_offset = place
        if kind == "symbols":
            table.symbol_offset = place
        if kind == "strings":
            table.string_offset = place
        regions.append(FileRegion(place, kind, data))
        place += len(data)
    return [region for region in regions if len(region.data)]
