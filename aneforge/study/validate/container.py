"""A container as the loader sees it: a view for the third layer of validation, and its own words checked.

The view has what the file states: sections by their addresses, the caller's buffers, constants, tasks in the order of
the chain. What needs the words themselves is checked here: fields of descriptors in range, tasks behind those that
they wait for, relocations that land in a field. A descriptor states no planes, so that every port has one.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from aneforge.codegen.container import Container
from aneforge.codegen.descriptors import TensorDescriptor
from aneforge.codegen.load_commands import ContainerSection as FileSection
from aneforge.codegen.record import rows_of
from aneforge.codegen.registers import generations, register_map
from aneforge.codegen.tasks import Task
from aneforge.study.validate.program import Dependency, PortForm, ProgramView, Section, StoredConstant, Stretch

_ELEMENTS = {"float16": ("f16", 2), "uint8": ("ui8", 1), "int8": ("si8", 1)}
"""The element types of ports whose names differ from ours, and the bytes of each."""
_MOVABLE = "CoeffBaseAddr"
"""Relocations adjust the base addresses of coefficients (programs.json relocations)."""
_ADDED_TO = ("BaseAddr", "Base64", "DMAConfig", "DataSet")
"""Of h14 and later: parts of the names of registers to which a command adds a base address."""


def container_view(container: Container) -> ProgramView:
    """What the loader looks at in a container."""
    sections = {
        f"{part.segment},{part.name} at {part.address:#x}": Section(part.name, part.size, 1 << min(part.align, 63))
        for part in container.sections
    }
    constants = [part for part in container.sections if part.holds_constants]
    sections["constants"] = Section("constants", sum(part.size for part in constants), 1)
    addresses = {binding.name: binding.address for binding in container.bindings}
    homes = {part.address: f"{part.segment},{part.name} at {part.address:#x}" for part in container.sections}
    last = len(container.tasks)
    stretches = tuple(
        _stretch(port, homes.get(addresses.get(port.name, -1), "no section"), last) for port in container.ports
    )
    tasks = tuple(
        Dependency(f"task {place}", place, (place - 1,) if place else ()) for place, _ in enumerate(container.tasks)
    )
    ports = tuple(PortForm(port.name, _ELEMENTS.get(port.element, (port.element, 0))[0]) for port in container.ports)
    return ProgramView(container.generation, sections, stretches, _stored(constants), tasks, ports)


def _stored(constants: list[FileSection]) -> tuple[StoredConstant, ...]:
    """The constant sections one behind the other. Their contents are not typed in the file: bytes."""
    places, place = [], 0
    for section in constants:
        places.append(StoredConstant(f"{section.segment},{section.name}", place, section.size, section.size, "ui8"))
        place += section.size
    return tuple(places)


def _stretch(port: TensorDescriptor, home: str, last: int) -> Stretch:
    """A buffer of the caller, in the section that has its address, needed from the first task to the last."""
    batch, channels, height, width = port.shape
    row_bytes = width * _ELEMENTS.get(port.element, ("", 0))[1]
    rows = batch * channels * height * port.depth
    spanned = port.total_bytes * batch
    return Stretch(f"port {port.name}", home, 0, spanned, port.strides[2], row_bytes, rows, (0, last))


def field_faults(container: Container) -> Iterator[tuple[str, str, str]]:
    """(check, where, what) for descriptors out of range, relocations that land nowhere, and tasks whose work has no
    words."""
    for where, what in _descriptors(container):
        yield "descriptors", where, what
    for where, what in _relocations(container):
        yield "relocations", where, what
    for row in rows_of(container):
        if not row["expressed"]:
            yield "words", f"task {row['task']}", f"the work of {row['form']} has no words: hardware would not do it"


def _descriptors(container: Container) -> Iterator[tuple[str, str]]:
    program = container.program
    mapped = [part for part in container.segments if part.is_mapped]
    for number, address in enumerate(program.bars):
        if address and not any(part.address <= address < part.end for part in mapped):
            yield f"BAR {number}", f"address {address:#x} lies in no segment"
    if program.text_words is not None and 4 * program.text_words != container.text.size:
        yield "program", f"{program.text_words} words of text; the section has {container.text.size} bytes"
    for segment in mapped:
        for section in segment.sections:
            if not segment.address <= section.address <= section.address + section.size <= segment.end:
                yield f"section {section.name}", f"it lies outside segment {segment.name}"
    yield from _dependencies(container.tasks)
    bound = {binding.name for binding in container.bindings}
    for port in container.ports:
        if not all(port.shape) or not port.depth:
            extents = " x ".join(map(str, (*port.shape, port.depth)))
            yield f"port {port.name}", f"an extent is 0 ({extents})"
        if port.role not in ("input", "output"):
            yield f"port {port.name}", f"{port.role}; a port is an input (1) or an output (2)"
        if port.name not in bound:
            yield f"port {port.name}", "no binding gives its address"
        if any(outer % inner for outer, inner in pairwise(port.strides) if inner):
            yield f"port {port.name}", f"strides {', '.join(map(str, port.strides))} are not multiples of each other"


def _dependencies(tasks: list[Task]) -> Iterator[tuple[str, str]]:
    seen: set[int] = set()
    for place, task in enumerate(tasks):
        header = task.header
        if "DTID" in header and header["DTID"] not in seen:
            yield f"task {place}", f"it waits for task {header['DTID']}, which does not come before it"
        seen.add(header["TID"])


def _relocations(container: Container) -> Iterator[tuple[str, str]]:
    """Entries of the file, and base addresses that commands of tasks add."""
    for number, task in enumerate(container.tasks):
        known = register_map(task.generation).by_address if task.generation in generations() else {}
        for command in task.commands:
            register = known.get(command.address) if command.bar is not None else None
            if register is not None and not any(part in register.name for part in _ADDED_TO):
                yield f"task {number}", f"BAR {command.bar} is added to {register.name}, which is not an address"
    for section in container.sections:
        places = [entry.offset for entry in container.relocations(section)]
        if not places:
            continue
        fields = _base_words(container) if section.name == "__text" else {}
        for place in places:
            where = f"relocation at {place:#x} of {section.name}"
            if place % 4 or place + 4 > section.size:
                yield where, f"it is no word of a section of {section.size} bytes"
            elif place not in fields:
                yield where, "no task writes a register there"
            elif fields[place] is not None and not str(fields[place]).startswith(_MOVABLE):
                yield where, f"it adjusts {fields[place]}, which is not a base address of coefficients"


def _base_words(container: Container) -> dict[int, str | None]:
    """The register that each word of the text writes; None where the generation's map has no name for it."""
    words: dict[int, str | None] = {}
    for task in container.tasks:
        words |= _places(task)
    return words


def _places(task: Task) -> dict[int, str | None]:
    known = register_map(task.generation).by_address if task.generation in generations() else {}
    place = task.offset + 4 * len(task.header_words)
    found: dict[int, str | None] = {}
    for command in task.commands:
        for number, address in enumerate(command.places):
            register = known.get(address)
            found[place + 4 * (1 + number)] = None if register is None else register.name
        place += 4 * (1 + len(command.values))
    return found
