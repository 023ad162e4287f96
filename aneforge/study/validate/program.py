"""The third layer of validation: a compiled program checked again as the loader does (ZinComputeProgramValidate*).

The checks see a :class:`ProgramView`: sections, what lies in them, what refers to them, tasks in order and ports. A
:class:`Program` has one, and so can a container that was read from a file.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from math import prod
from typing import Any

from aneforge.chips.formats import image_format
from aneforge.chips.limits import global_limit
from aneforge.codegen.container import Container
from aneforge.compiler.facts import facts_of
from aneforge.compiler.legal.judge import validated, validator_reads
from aneforge.compiler.legal.translate import query_of_op
from aneforge.compiler.legalise.floors import FLOOR_DIVIDE
from aneforge.compiler.program import Program
from aneforge.errors import UnknownNameError

_CONSTANTS = "constants"
_CONSTANT_ALIGNMENT = 64
_ADDRESS_BITS = 42  # device addresses (td_generations.json dma_encoding)
_ELEMENT_BYTES = {"f16": 2, "f32": 4, "ui8": 1, "si8": 1, "i1": 1, "ui16": 2}
_DENSE = {"fp16": 2.0, "si8": 1.0, "ui8": 1.0}
"""The bytes of an element of weights that are stored as they are; every other encoding is a compressed form."""


@dataclass(frozen=True)
class Section:
    """One address space: on-chip memory, a program's own memory, or its constants."""

    name: str
    bytes: int
    alignment: int = 1


@dataclass(frozen=True)
class Stretch:
    """A buffer: where it lies and from which step to which it is needed. ``address`` is None where the caller owns
    it."""

    name: str
    section: str
    address: int | None
    bytes: int
    row_stride: int
    """From one row of a channel to what comes next: its next row, or on chip the same row of the next channel."""
    row_bytes: int
    """The bytes of a row in it."""
    rows: int
    live: tuple[int, int]
    epoch: int | None = None
    """Buffers of different epochs are never there at the same time: on-chip memory is emptied between them."""


@dataclass(frozen=True)
class StoredConstant:
    """A weight in the constant section, uncompressed or in a compressed form."""

    name: str
    address: int
    bytes: int
    elements: int
    encoding: str


@dataclass(frozen=True)
class Dependency:
    """One task in the order of the program: the step it is issued at, and which tasks, ports and weights it reads."""

    name: str
    step: int
    reads: tuple[int | str, ...]
    weights: tuple[str, ...] = ()


@dataclass(frozen=True)
class PortForm:
    """A port: one plane of elements, or the planes of an image format."""

    name: str
    dtype: str
    planes: int = 1
    image: str | None = None


@dataclass(frozen=True)
class ProgramView:
    """What the loader looks at, whatever the program came from."""

    target: str
    sections: Mapping[str, Section]
    stretches: tuple[Stretch, ...] = ()
    stored: tuple[StoredConstant, ...] = ()
    tasks: tuple[Dependency, ...] = ()
    ports: tuple[PortForm, ...] = ()


@dataclass(frozen=True)
class ProgramFault:
    """One thing that the loader would refuse."""

    check: str
    where: str
    message: str

    def __str__(self) -> str:
        return f"{self.where}: {self.message} ({self.check})"


@dataclass(frozen=True)
class ProgramVerdict:
    """Whether a program passes every check of the loader."""

    target: str
    checked: Mapping[str, int] = field(default_factory=dict)
    """How many things each check looked at."""
    faults: tuple[ProgramFault, ...] = ()

    @property
    def accepted(self) -> bool:
        """Whether the program has no fault."""
        return not self.faults

    def __str__(self) -> str:
        counts = ", ".join(f"{count} {name}" for name, count in self.checked.items())
        if self.accepted:
            return f"{self.target}: the program is sound ({counts})"
        return "\n".join([f"{self.target}: {len(self.faults)} faults", *(f"  {fault}" for fault in self.faults)])

    def to_json(self) -> dict[str, Any]:
        faults = [vars(fault) for fault in self.faults]
        return {"target": self.target, "accepted": self.accepted, "checked": dict(self.checked), "faults": faults}


def validate_program(program: Program | ProgramView | Container) -> ProgramVerdict:
    """Check a compiled program again: buffers in range and aligned, none over another, rows within their stride, ports
    of one plane or several, weights within the constant section, and tasks behind what they read; and every layer by
    its own validator. Of a container also that descriptors are in range and that relocations land in their field."""
    faults: list[ProgramFault] = []
    if isinstance(program, Program):
        faults += [ProgramFault("layers", *told) for told in _layers(program)]
    if isinstance(program, Container):
        from aneforge.study.validate.container import container_view, field_faults

        faults += [ProgramFault(*fault) for fault in field_faults(program)]
        view = container_view(program)
    else:
        view = program if isinstance(program, ProgramView) else program_view(program)
    faults += [ProgramFault(name, *told) for name, check in _CHECKS.items() for told in check(view)]
    counts = {
        "buffers": len(view.stretches),
        "weights": len(view.stored),
        "tasks": len(view.tasks),
        "ports": len(view.ports),
    }
    return ProgramVerdict(view.target, counts, tuple(faults))


def program_view(program: Program) -> ProgramView:
    """A compiled program as the loader sees it."""
    chip = facts_of(program.target, ("max_operand_bytes", "dram_alignment"))
    granule = chip["dram_alignment"]
    constants = sum(_aligned(weight.stored_bytes) for weight in program.weights)
    sections = {
        "l2": Section("l2", chip["max_operand_bytes"], granule),
        "dram": Section("dram", 1 << _ADDRESS_BITS, granule),
        "port": Section("port", 1 << _ADDRESS_BITS, granule),
        _CONSTANTS: Section(_CONSTANTS, constants, _CONSTANT_ALIGNMENT),
    }
    stored = tuple(
        StoredConstant(weight.key, weight.address, weight.stored_bytes, prod(weight.shape), weight.encoding)
        for weight in program.weights
    )
    ports = tuple(PortForm(port.name, port.dtype) for port in (*program.inputs, *program.outputs))
    return ProgramView(program.target.name, sections, _stretches(program), stored, _tasks(program), ports)


def _aligned(size: int) -> int:
    return -(-size // _CONSTANT_ALIGNMENT) * _CONSTANT_ALIGNMENT


def _stretches(program: Program) -> tuple[Stretch, ...]:
    types: dict[int | str, tuple[tuple[int, ...], str]] = {
        port.name: (port.ndchw_shape, port.dtype) for port in program.inputs
    }
    types |= {layer.number: (layer.type.shape, layer.type.dtype) for layer in program.layers}
    stretches = []
    for buffer in program.buffers:
        stride = buffer.channel_stride if buffer.space == "l2" else buffer.row_stride
        stored = [types[value] for value in buffer.values]
        forms = [(prod(shape[:4]), shape[4] * _ELEMENT_BYTES[dtype]) for shape, dtype in stored]
        # Views of one buffer have other rows; its strides are those of one of them.
        laid = (form for form in forms if form[1] <= stride and _extent(*form, stride) <= buffer.bytes)
        rows, row_bytes = next(laid, forms[0] if forms else (0, 0))
        name = ", ".join(map(str, buffer.values))
        stretches.append(
            Stretch(
                f"buffer {buffer.number} ({name})",
                buffer.space,
                buffer.address,
                buffer.bytes,
                stride,
                row_bytes,
                rows,
                buffer.live,
                buffer.task_group,
            )
        )
    return tuple(stretches)


def _extent(rows: int, row_bytes: int, stride: int) -> int:
    """The bytes from the start of the first row to the end of the last."""
    return (rows - 1) * stride + row_bytes if rows else 0


def _tasks(program: Program) -> tuple[Dependency, ...]:
    steps = {place: number for number, places in enumerate(program.steps) for place in places}
    return tuple(
        Dependency(f"layer {layer.number} ({layer.op})", steps[layer.number], layer.inputs, layer.weights)
        for layer in program.layers
    )


# The checks. Each gives where and what, for everything that is wrong.

Told = Iterator[tuple[str, str]]


def _addresses(view: ProgramView) -> Told:
    for stretch in view.stretches:
        section = view.sections.get(stretch.section)
        if section is None:
            yield stretch.name, f"it lies in {stretch.section!r}; the program has {', '.join(view.sections)}"
        elif stretch.address is not None:
            yield from _placed(stretch.name, stretch.address, stretch.bytes, section)


def _placed(name: str, address: int, size: int, section: Section) -> Told:
    if address < 0 or size < 0 or address + size > section.bytes:
        yield name, f"bytes {address} to {address + size} are outside {section.name}, which has {section.bytes}"
    if address % section.alignment:
        yield name, f"address {address} is not a multiple of {section.alignment}, as {section.name} needs"


def _overlaps(view: ProgramView) -> Told:
    """Within each section and epoch: a sweep over addresses that keeps what is still open."""
    spaces: dict[tuple[str, int | None], list[Stretch]] = {}
    for stretch in view.stretches:
        if stretch.address is not None and stretch.bytes:
            spaces.setdefault((stretch.section, stretch.epoch), []).append(stretch)
    for stretches in spaces.values():
        open_: list[Stretch] = []
        for stretch in sorted(stretches, key=_address):
            open_ = [other for other in open_ if _address(other) + other.bytes > _address(stretch)]
            for other in open_:
                if stretch.live[0] <= other.live[1] and other.live[0] <= stretch.live[1]:
                    yield stretch.name, f"it overlaps {other.name} while both are needed"
            open_.append(stretch)


def _address(stretch: Stretch) -> int:
    assert stretch.address is not None
    return stretch.address


def _strides(view: ProgramView) -> Told:
    for stretch in view.stretches:
        if stretch.row_stride < stretch.row_bytes:
            yield stretch.name, f"a row takes {stretch.row_bytes} bytes; the stride is {stretch.row_stride}"
        elif stretch.bytes < _extent(stretch.rows, stretch.row_bytes, stretch.row_stride):
            yield stretch.name, f"{stretch.rows} rows of {stretch.row_stride} bytes do not fit {stretch.bytes} bytes"


def _ports(view: ProgramView) -> Told:
    spelled = {"fp16": "f16", "uint8": "ui8"}
    allowed = {"i1", *(spelled[name] for name in global_limit("program_input_dtypes").require())}
    for port in view.ports:
        if port.dtype not in allowed:
            yield port.name, f"elements of {port.dtype}; a port has {', '.join(sorted(allowed))}"
        yield from _planes(port)


def _planes(port: PortForm) -> Told:
    if port.image is None:
        if port.planes != 1:
            yield port.name, f"{port.planes} planes without an image format; elements lie in one plane"
        return
    try:
        wanted = len(image_format(port.image).planes.require())
    except UnknownNameError as error:
        yield port.name, str(error)
        return
    if port.planes != wanted:
        yield port.name, f"{port.planes} planes; the image format {port.image} has {wanted}"


def _weights(view: ProgramView) -> Told:
    section = view.sections.get(_CONSTANTS, Section(_CONSTANTS, 0))
    for weight in view.stored:
        yield from _placed(weight.name, weight.address, weight.bytes, section)
        dense = _DENSE.get(weight.encoding)
        if dense is not None and weight.bytes != weight.elements * dense:
            yield weight.name, f"{weight.bytes} bytes for {weight.elements} elements of {weight.encoding}"
        elif dense is None and not 0 < weight.bytes <= 2 * weight.elements + _CONSTANT_ALIGNMENT:
            yield (
                weight.name,
                f"{weight.bytes} bytes of {weight.encoding}; {weight.elements} elements take at most fp16",
            )
    in_order = sorted(view.stored, key=lambda weight: weight.address)
    for before, behind in pairwise(in_order):
        if before.address + before.bytes > behind.address:
            yield behind.name, f"it overlaps {before.name} in the constant section"


def _references(view: ProgramView) -> Told:
    known = {weight.name for weight in view.stored}
    for task in view.tasks:
        for name in task.weights:
            if name not in known:
                yield task.name, f"it refers to weight {name}, which the constant section does not have"


def _order(view: ProgramView) -> Told:
    steps = {place: task.step for place, task in enumerate(view.tasks)}
    ports = {port.name for port in view.ports}
    for task in view.tasks:
        for read in task.reads:
            if isinstance(read, str):
                if read not in ports:
                    yield task.name, f"it reads {read!r}, which is no port of the program"
            elif read not in steps:
                yield task.name, f"it reads the result of layer {read}, which the program does not have"
            elif steps[read] >= task.step:
                yield (
                    task.name,
                    f"it reads the result of layer {read}, which runs at step {steps[read]}, not before it",
                )


def _layers(program: Program) -> Told:
    """What the validators of the layers that a program consists of say of them (chapter 22): the backend legalizer
    runs the same code as the placement. Layers that look alike are asked about once."""
    chip = facts_of(program.target, validator_reads())
    sound: set[Hashable] = set()
    for op in program.module.ops:
        form = op.kind, tuple(op.attrs.items()), tuple(operand.type for operand in op.operands)
        query = None if form in sound or op.labels.get("data_path") == FLOOR_DIVIDE else query_of_op(op)
        findings = () if query is None else validated(query, chip, "direct", authored=False)
        if not findings:
            sound.add(form)
        for finding in findings:
            yield f"{op.full_kind} of {', '.join(op.sources) or 'the compiler'}", finding.message


_CHECKS: dict[str, Callable[[ProgramView], Told]] = {
    "addresses": _addresses,
    "overlaps": _overlaps,
    "strides": _strides,
    "ports and planes": _ports,
    "weights": _weights,
    "references": _references,
    "order of tasks": _order,
}
