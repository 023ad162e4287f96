"""The container of a compiled program: read with every bound checked, written back to the same bytes."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aneforge.codegen.bounds import Bytes, ContainerError, Source
from aneforge.codegen.descriptors import PROGRAM_FLAVORS, TENSOR_FLAVOR, ProgramDescriptor, TensorDescriptor
from aneforge.codegen.load_commands import Command, Note, Port, Section, Segment, State, SymbolTable, read_command
from aneforge.codegen.registers import generation_of
from aneforge.codegen.tasks import Task, header_fields, read_tasks
from aneforge.targets import store

if TYPE_CHECKING:
    from aneforge.codegen.record import BuildRecord

__all__ = ["MAGIC", "Container", "Header", "Relocation", "Symbol", "read_container"]

MAGIC = 0xBEEFFACE
_HEADER = "8I"
_SYMBOL = "IBBHQ"
_RELOCATION = "II"


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


@dataclass(frozen=True)
class Relocation:
    """A word of a section that the loader adjusts."""

    offset: int
    """In the section."""
    info: int


@dataclass
class Region:
    """A run of the file and what it holds."""

    offset: int
    kind: str
    data: memoryview | bytes

    @property
    def end(self) -> int:
        return self.offset + len(self.data)


class Container:
    """A program in the engine's own form. ``to_bytes`` gives the file."""

    def __init__(self, header: Header, commands: list[Command], regions: list[Region]) -> None:
        self.header = header
        self.commands = commands
        self._regions = regions
        """Everything behind the load commands, in the order of the file, with nothing left out between."""
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
    def segments(self) -> list[Segment]:
        return [command for command in self.commands if isinstance(command, Segment)]

    @property
    def sections(self) -> list[Section]:
        return [section for segment in self.segments for section in segment.sections]

    def section(self, name: str, segment: str | None = None) -> Section | None:
        """The first section of a name."""
        return next(
            (part for part in self.sections if part.name == name and segment in (None, part.segment)),
            None,
        )

    @property
    def bindings(self) -> list[Port]:
        """Names of the caller with their addresses."""
        return [command for command in self.commands if isinstance(command, Port)]

    @cached_property
    def program(self) -> ProgramDescriptor:
        for command in self.commands:
            if isinstance(command, State) and command.flavor in PROGRAM_FLAVORS:
                return ProgramDescriptor(command, self.generation)
        raise ContainerError(0, "the container has no program descriptor")

    @cached_property
    def ports(self) -> list[TensorDescriptor]:
        """The tensors of the caller: inputs, then outputs."""
        states = [command for command in self.commands if isinstance(command, State)]
        return [TensorDescriptor(state) for state in states if state.flavor == TENSOR_FLAVOR]

    @property
    def note(self) -> str:
        """What the compiler says of itself; empty where it says nothing."""
        return next((command.text for command in self.commands if isinstance(command, Note)), "")

    def contents(self, section: Section) -> Bytes:
        """The bytes of a section."""
        if not section.has_bytes:
            return Bytes(b"", section.offset)
        for region in self._regions:
            if region.offset <= section.offset and section.offset + section.size <= region.end:
                start = section.offset - region.offset
                return Bytes(memoryview(region.data)[start : start + section.size], section.offset)
        raise ContainerError(section.offset, f"section {section.name} lies outside the file")

    @cached_property
    def tasks(self) -> list[Task]:
        """Every task, in the order of the chain."""
        text = self.section("__text", "__TEXT")
        if text is None:
            raise ContainerError(0, "the container has no text section")
        if self.generation not in store.load("programs")["headers"]:
            raise ContainerError(8, f"the headers of {self.generation} are not published")
        program = self.program
        first = program.first_task - text.address
        if not 0 <= first < max(text.size, 1):
            raise ContainerError(
                program.state.offset, f"the first task lies at {program.first_task:#x}, outside the text section"
            )
        words = program.first_words or len(header_fields(self.generation))
        return read_tasks(self.contents(text), self.generation, first, words, program.task_count)

    @property
    def constants(self) -> bytes:
        """The weights and tables: of the constant section, and of the kernel sections behind it."""
        kept = [part for part in self.sections if _holds_constants(part)]
        return b"".join(bytes(self.contents(part).data) for part in kept)

    @cached_property
    def symbols(self) -> list[Symbol]:
        table = next((command for command in self.commands if isinstance(command, SymbolTable)), None)
        return [] if table is None else list(self._symbols(table))

    def _symbols(self, table: SymbolTable) -> Iterator[Symbol]:
        strings = Bytes(self._bytes_at(table.string_offset, table.string_size), table.string_offset)
        entries = Bytes(self._bytes_at(table.symbol_offset, 16 * table.symbol_count), table.symbol_offset)
        for number in range(table.symbol_count):
            where, kind, section, description, value = entries.numbers(_SYMBOL, 16 * number, "a symbol")
            yield Symbol(strings.text(where, "a symbol's name"), kind, section, description, value, where)

    def relocations(self, section: Section) -> list[Relocation]:
        """The words of a section that the loader adjusts."""
        raw = Bytes(self._bytes_at(section.relocation_offset, 8 * section.relocation_count), section.relocation_offset)
        places = range(section.relocation_count)
        return [Relocation(*raw.numbers(_RELOCATION, 8 * number, "a relocation")) for number in places]

    def _bytes_at(self, offset: int, size: int) -> memoryview:
        for region in self._regions:
            if region.offset <= offset and offset + size <= region.end:
                start = offset - region.offset
                return memoryview(region.data)[start : start + size]
        return memoryview(b"")

    # Writing.

    def to_bytes(self) -> bytes:
        """The file."""
        commands = b"".join(command.to_bytes() for command in self.commands)
        return b"".join((self.header.to_bytes(), commands, *(region.data for region in self._regions)))

    def write(self, path: str | Path) -> None:
        from aneforge.output.files import write_whole

        write_whole(path, self.to_bytes())

    def to_json(self) -> dict[str, Any]:
        return {
            "generation": self.generation,
            "cpusubtype": self.header.cpusubtype,
            "program": self.program.to_json(),
            "ports": [port.to_json() for port in self.ports],
            "segments": [
                {
                    "name": segment.name,
                    "address": f"{segment.address:#x}",
                    "sections": [{"name": part.name, "size": part.size} for part in segment.sections],
                }
                for segment in self.segments
            ],
            "tasks": [task.to_json() for task in self.tasks],
            "note": self.note,
        }

    def __repr__(self) -> str:
        return f"<Container {self.header.generation}, {len(self.commands)} load commands>"


def _holds_constants(section: Section) -> bool:
    return section.has_bytes and (
        (section.segment == "__TEXT" and section.name == "__const") or section.segment.startswith("__KERN_")
    )


def read_container(source: str | Path | Source) -> Container:
    """The container of a file or of bytes."""
    if isinstance(source, (str, Path)):
        from aneforge.budgets import regular_file

        source = regular_file(source, Path(source).name).read_bytes()
    data = Bytes(source)
    if len(data) < 32:
        raise data.error(0, f"a container has a header of 32 bytes; the file has {len(data)}")
    header = Header(*data.numbers(_HEADER, 0, "the header"))
    if header.magic != MAGIC:
        raise data.error(0, f"not a container: the magic number is {header.magic:#010x}, expected {MAGIC:#010x}")
    commands = _commands(data, header)
    regions = _regions(data, 32 + header.command_bytes, commands)
    return Container(header, commands, regions)


def _commands(data: Bytes, header: Header) -> list[Command]:
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


def _regions(data: Bytes, start: int, commands: list[Command]) -> list[Region]:
    """The rest of the file as runs that belong to something and gaps between them. Runs that overlap are refused."""
    claims = sorted(_claims(commands), key=lambda claim: (claim[0], claim[1]))
    regions: list[Region] = []
    place, holder = start, "the load commands"
    for offset, size, what in claims:
        part = data.part(offset, size, what)
        if offset < place:
            raise data.error(offset, f"{what} overlaps {holder}, which ends at {place:#x}")
        if offset > place:
            regions.append(Region(place, "gap", data.data[place:offset]))
        regions.append(Region(offset, what, part.data))
        place, holder = offset + size, what
    if place < len(data):
        regions.append(Region(place, "gap", data.data[place:]))
    return regions


def _claims(commands: list[Command]) -> Iterator[tuple[int, int, str]]:
    for command in commands:
        if isinstance(command, SymbolTable):
            if command.symbol_count:
                yield command.symbol_offset, 16 * command.symbol_count, "the symbols"
            if command.string_size:
                yield command.string_offset, command.string_size, "the names of symbols"
        if isinstance(command, Segment):
            for section in command.sections:
                if section.has_bytes:
                    yield section.offset, section.size, f"section {section.segment},{section.name}"
                if section.relocation_count:
                    yield section.relocation_offset, 8 * section.relocation_count, f"relocations of {section.name}"
