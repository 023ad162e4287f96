"""The container of a compiled program: read with every bound checked, written back to the same bytes."""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aneforge.codegen.bounds import Bytes, ContainerError, Source, file_bytes
from aneforge.codegen.descriptors import PROGRAM_FLAVORS, TENSOR_FLAVOR, ProgramDescriptor, TensorDescriptor
from aneforge.codegen.load_commands import (
    ContainerPort,
    ContainerSection,
    ContainerSegment,
    LoadCommand,
    Note,
    StateRecord,
    SymbolTable,
    read_command,
)
from aneforge.codegen.registers import generation_of
from aneforge.codegen.stream import is_indexed
from aneforge.codegen.tasks import Task, header_fields, read_tasks

if TYPE_CHECKING:
    from aneforge.codegen.record import BuildRecord

MAGIC = 0xBEEFFACE
_HEADER = "8I"
_SYMBOL = struct.Struct("<IBBHQ")
_RELOCATION = struct.Struct("<II")
_NAMES_OVER_STRINGS = 4  # names of symbols may share their ends, but not so that a small file becomes gigabytes


@dataclass
class Header:
    """The first 32 bytes."""

    magic: int
    cputype: int
    cpusubtype: int
    filetype: int
    command_count: int
    command_bytes: int
    flags: int
    reserved: int = 0

    @property
    def generation(self) -> str | None:
        """``h13``; None where the number is not published."""
        return generation_of(self.cpusubtype)

    def to_bytes(self) -> bytes:
        return struct.pack("<" + _HEADER, *vars(self).values())


@dataclass(frozen=True)
class Symbol:
    """A name with an address."""

    name: str
    kind: int
    section: int
    description: int
    value: int
    name_offset: int = 0

    @property
    def is_kernel_tile(self) -> bool:
        """Whether it names the coefficients of one core (``K<sha256>_ne_<number>``)."""
        return self.name.startswith("K") and "_ne_" in self.name


@dataclass(frozen=True)
class Relocation:
    """A word of a section that the loader adjusts."""

    offset: int
    """In the section."""
    info: int


@dataclass(frozen=True)
class FileRegion:
    """A run of the file and what it holds."""

    offset: int
    kind: str
    data: memoryview | bytes

    @property
    def end(self) -> int:
        return self.offset + len(self.data)


_OUTPUT = "@output"


def _plain_name(name: str) -> str:
    return name.removesuffix(_OUTPUT)


class Container:
    """A program in the engine's own form. ``to_bytes`` gives the file."""

    def __init__(self, header: Header, commands: list[LoadCommand], regions: Sequence[FileRegion]) -> None:
        self.header = header
        self.commands = commands
        self._regions = list(regions)
        """Everything behind the load commands, in the order of the file, with nothing left out between."""
        self._offsets = [region.offset for region in regions]
        self.record: BuildRecord | None = None
        """What each task rests on, where the container was written here."""

    # Parts by their meaning.

    @property
    def generation(self) -> str:
        """The generation of the chip that it is for."""
        generation = self.header.generation
        if generation is None:
            raise ContainerError(8, f"cpusubtype {self.header.cpusubtype} is not a published generation")
        return generation

    @property
    def segments(self) -> list[ContainerSegment]:
        """The segments, in the order of the file."""
        return [command for command in self.commands if isinstance(command, ContainerSegment)]

    @property
    def sections(self) -> list[ContainerSection]:
        """The sections of all segments."""
        return [section for segment in self.segments for section in segment.sections]

    def section(self, name: str, segment: str | None = None) -> ContainerSection | None:
        """The first section of a name."""
        return next(
            (part for part in self.sections if part.name == name and segment in (None, part.segment)),
            None,
        )

    @property
    def bindings(self) -> list[ContainerPort]:
        """Names of the caller with their addresses."""
        return [command for command in self.commands if isinstance(command, ContainerPort)]

    @cached_property
    def program(self) -> ProgramDescriptor:
        """What the file says of the program as a whole."""
        for command in self.commands:
            if isinstance(command, StateRecord) and command.flavor in PROGRAM_FLAVORS:
                return ProgramDescriptor(command)
        raise ContainerError(32, "the container has no program descriptor")

    @cached_property
    def ports(self) -> list[TensorDescriptor]:
        """The tensors of the caller: inputs, then outputs."""
        states = [command for command in self.commands if isinstance(command, StateRecord)]
        return [TensorDescriptor(state) for state in states if state.flavor == TENSOR_FLAVOR]

    def port_bar(self, port: TensorDescriptor) -> int | None:
        """The base-address register of a port, by its address; None where the file binds no buffer to it. Some
        compilers name the buffer of an output ``name@output``."""
        addresses = {_plain_name(binding.name): binding.address for binding in self.bindings}
        address = addresses.get(_plain_name(port.name))
        bars = {place: number for number, place in enumerate(self.program.bars) if place}
        return None if address is None else bars.get(address)

    @property
    def note(self) -> str:
        """What the compiler says of itself; empty where it says nothing."""
        return next((command.text for command in self.commands if isinstance(command, Note)), "")

    def contents(self, section: ContainerSection) -> Bytes:
        """The bytes of a section."""
        if not section.has_bytes:
            return Bytes(b"", section.offset)
        return self._bytes_at(section.offset, section.size, f"section {section.segment},{section.name}")

    @cached_property
    def tasks(self) -> list[Task]:
        """Every task, in the order of the chain. ``to_bytes`` writes what is changed in them."""
        text = self.text
        program = self.program
        if program.is_indexed != is_indexed(self.generation):
            flavor = program.state.flavor
            raise ContainerError(
                program.state.offset, f"the program descriptor has flavor {flavor}, which {self.generation} has not"
            )
        first = program.first_task - text.address
        if program.task_count and not 0 <= first < text.size:
            raise ContainerError(
                program.state.offset, f"the first task lies at {program.first_task:#x}, outside the text section"
            )
        words = program.first_words or len(header_fields(self.generation))
        return read_tasks(self.contents(text), self.generation, first, words, program.task_count)

    @property
    def text(self) -> ContainerSection:
        """The section of the tasks."""
        text = self.section("__text", "__TEXT")
        if text is None:
            raise ContainerError(32, "the container has no text section (__TEXT,__text)")
        return text

    @property
    def constants(self) -> bytes:
        """The weights and tables: of the constant section, and of the kernel sections behind it."""
        return b"".join(self.contents(part).data for part in self.sections if part.holds_constants)

    @property
    def stored(self) -> dict[int, bytes]:
        """The bytes of the constants by the base-address register that stands for them."""
        parts = {part.address: part for part in self.sections if part.holds_constants}
        bars = enumerate(self.program.bars)
        return {number: bytes(self.contents(parts[at]).data) for number, at in bars if at in parts}

    @cached_property
    def symbols(self) -> list[Symbol]:
        """The names in the symbol tables."""
        tables = [command for command in self.commands if isinstance(command, SymbolTable)]
        return [symbol for table in tables for symbol in self._symbols(table)]

    def _symbols(self, table: SymbolTable) -> Iterator[Symbol]:
        strings = self._bytes_at(table.string_offset, table.string_size, "the names of symbols")
        size = _SYMBOL.size
        entries = self._bytes_at(table.symbol_offset, size * table.symbol_count, "the symbols")
        names: dict[int, str] = {}
        left = _NAMES_OVER_STRINGS * len(strings)
        for number, entry in enumerate(_SYMBOL.iter_unpack(entries.data)):
            where, kind, section, description, value = entry
            if where not in names:
                names[where] = strings.text(where, f"the name of symbol {number}")
                left -= len(names[where])
            if left < 0:
                raise entries.error(size * number, "the names of symbols overlap each other many times")
            yield Symbol(names[where], kind, section, description, value, where)

    def relocations(self, section: ContainerSection) -> list[Relocation]:
        """The words of a section that the loader adjusts."""
        size = _RELOCATION.size * section.relocation_count
        raw = self._bytes_at(section.relocation_offset, size, f"relocations of {section.name}")
        return [Relocation(*entry) for entry in _RELOCATION.iter_unpack(raw.data)]

    def _bytes_at(self, offset: int, size: int, what: str) -> Bytes:
        if size == 0:
            return Bytes(b"", offset)
        place = bisect_right(self._offsets, offset) - 1
        if place >= 0 and offset + size <= self._regions[place].end:
            region = self._regions[place]
            return Bytes(region.data, region.offset).part(offset - region.offset, size, what)
        raise ContainerError(offset, f"{what} is not one run of the file ({size} bytes)")

    # Writing.

    def replace_contents(self, section: ContainerSection, data: Source) -> None:
        """Other bytes of the same length for a section. Tasks that were read from it are read anew."""
        here = self.contents(section)
        if len(data) != len(here):
            raise ContainerError(
                section.offset, f"section {section.name} has {len(here)} bytes; {len(data)} do not fit. Assemble anew."
            )
        place = bisect_right(self._offsets, section.offset) - 1
        region = self._regions[place]
        start = section.offset - region.offset
        parts = (region.data[:start], data, region.data[start + len(data) :])
        self._regions[place] = replace(region, data=b"".join(parts))
        if section.name == "__text":
            vars(self).pop("tasks", None)

    def to_bytes(self) -> bytes:
        """The file, with what was changed in commands, sections and tasks."""
        tasks = vars(self).get("tasks")
        if tasks is not None:
            self._write_tasks(tasks)
        commands = b"".join(command.to_bytes() for command in self.commands)
        header = replace(self.header, command_count=len(self.commands), command_bytes=len(commands))
        head = header.to_bytes() + commands
        regions = [region.data for region in self._regions]
        if self._offsets and len(head) != self._offsets[0]:
            regions[0] = self._moved_gap(len(head))
        return b"".join((head, *regions))

    def _write_tasks(self, tasks: list[Task]) -> None:
        """The words of tasks in the text section, if any was changed."""
        here = self.contents(self.text)
        changed: list[tuple[int, bytes]] = []
        for number, task in enumerate(tasks):
            if not task.may_have_changed:
                continue
            words = task.words
            if 4 * len(words) != task.end - task.offset:
                room = (task.end - task.offset) // 4
                raise here.error(task.offset, f"task {number} has {len(words)} words; there is room for {room}")
            packed = struct.pack(f"<{len(words)}I", *words)
            if packed != here.data[task.offset : task.end]:
                changed.append((task.offset, packed))
        if changed:
            text = bytearray(here.data)
            for offset, packed in changed:
                text[offset : offset + len(packed)] = packed
            self.replace_contents(self.text, bytes(text))
            vars(self)["tasks"] = tasks

    def _moved_gap(self, end: int) -> bytes:
        """The zeros behind load commands that became longer or shorter: everything else keeps its place."""
        gap = self._regions[0]
        room = gap.end - end
        if gap.kind != "gap" or any(gap.data) or room < 0:
            raise ContainerError(end, f"the load commands end at {end:#x}; the file has room up to {gap.offset:#x}")
        return bytes(room)

    def write(self, path: str | Path) -> None:
        """Write the file, whole or not at all."""
        from aneforge.files import write_whole

        write_whole(path, self.to_bytes())

    def to_json(self) -> dict[str, Any]:
        return {
            "generation": self.generation,
            "header": vars(self.header),
            "program": self.program.to_json(),
            "ports": [port.to_json() for port in self.ports],
            "bindings": {binding.name: f"{binding.address:#x}" for binding in self.bindings},
            "segments": [self._segment_json(segment) for segment in self.segments],
            "symbols": [vars(symbol) for symbol in self.symbols],
            "tasks": [task.to_json() for task in self.tasks],
            "note": self.note,
        }

    def _segment_json(self, segment: ContainerSegment) -> dict[str, Any]:
        sections = [
            {
                "name": part.name,
                "address": f"{part.address:#x}",
                "size": part.size,
                "file_offset": part.offset if part.has_bytes else None,
                "relocations": [vars(entry) for entry in self.relocations(part)],
            }
            for part in segment.sections
        ]
        return {"name": segment.name, "address": f"{segment.address:#x}", "sections": sections}

    def to_anec(self, allow_text: bool = False, header_bytes: int = 0x1000) -> bytes:
        """The program as the open Linux driver for the M1 loads it (:mod:`aneforge.codegen.anec`). A program with a
        task whose work has no words is refused, unless ``allow_text`` is set. The first loader read a header of 0x800
        bytes instead of 0x1000."""
        from aneforge.codegen.anec import anec_of

        return anec_of(self, allow_text, header_bytes).to_bytes()

    def __repr__(self) -> str:
        return f"<Container {self.header.generation}, {len(self.commands)} load commands>"


def read_container(source: str | Path | Source) -> Container:
    """The container of a file or of bytes."""
    data = Bytes(file_bytes(source) if isinstance(source, (str, Path)) else source)
    if len(data) < 32:
        raise data.error(0, f"a container has a header of 32 bytes; the file has {len(data)}")
    header = Header(*data.numbers(_HEADER, 0, "the header"))
    if header.magic != MAGIC:
        raise data.error(0, f"not a container: the magic number is {header.magic:#010x}, expected {MAGIC:#010x}")
    commands = _commands(data, header)
    _check_segments([command for command in commands if isinstance(command, ContainerSegment)])
    regions = _regions(data, 32 + header.command_bytes, commands)
    return Container(header, commands, regions)


def _check_segments(segments: list[ContainerSegment]) -> None:
    """No two share bytes of the file, and no two that are mapped share addresses. What a segment
    without contents states of the file means nothing."""
    full = [part for part in segments if any(section.has_bytes for section in part.sections)]
    in_file = [(part.file_offset, part.file_size, part) for part in full if part.file_size]
    in_memory = [(part.address, part.vm_size, part) for part in segments if part.vm_size and part.is_mapped]
    for what, runs in (("bytes of the file", in_file), ("addresses", in_memory)):
        runs.sort(key=lambda run: run[:2])
        for (place, size, before), (start, _, behind) in pairwise(runs):
            if start < place + size:
                raise ContainerError(
                    behind.offset, f"segment {behind.name} shares {what} from {start:#x} with segment {before.name}"
                )


def _commands(data: Bytes, header: Header) -> list[LoadCommand]:
    body = data.part(32, header.command_bytes, "the load commands")
    if header.command_count * 8 > len(body):
        raise data.error(16, f"{header.command_count} load commands have no room in {len(body)} bytes")
    commands, place = [], 0
    for _ in range(header.command_count):
        command, size = read_command(body, place)
        commands.append(command)
        place += size
    if place != len(body):
        raise body.error(place, f"the load commands end here; the header states {len(body)} bytes")
    return commands


def _regions(data: Bytes, start: int, commands: list[LoadCommand]) -> list[FileRegion]:
    """The rest of the file as runs that belong to something and gaps between them. Runs that overlap are refused."""
    claims = sorted(_claims(commands), key=lambda claim: (claim[0], claim[1]))
    regions: list[FileRegion] = []
    place, holder = start, "the load commands"
    for offset, size, what in claims:
        part = data.part(offset, size, what)
        if offset < place:
            raise data.error(offset, f"{what} overlaps {holder}, which ends at {place:#x}")
        if offset > place:
            regions.append(FileRegion(place, "gap", data.data[place:offset]))
        regions.append(FileRegion(offset, what, part.data))
        place, holder = offset + size, what
    if place < len(data):
        regions.append(FileRegion(place, "gap", data.data[place:]))
    return regions


def _claims(commands: list[LoadCommand]) -> Iterator[tuple[int, int, str]]:
    for command in commands:
        if isinstance(command, SymbolTable):
            if command.symbol_count:
                yield command.symbol_offset, _SYMBOL.size * command.symbol_count, "the symbols"
            if command.string_size:
                yield command.string_offset, command.string_size, "the names of symbols"
        if isinstance(command, ContainerSegment):
            for section in command.sections:
                if section.has_bytes:
                    yield section.offset, section.size, f"section {section.segment},{section.name}"
                if section.relocation_count:
                    yield (
                        section.relocation_offset,
                        _RELOCATION.size * section.relocation_count,
                        f"relocations of {section.name}",
                    )
