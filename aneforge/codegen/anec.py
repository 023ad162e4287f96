"""A program for the open Linux driver of the M1 (``programs.json`` anec): a header, the text, the constants.

The loader looks for constants at the next 16 bytes behind the text, and numbers the caller's buffers itself: outputs
from base-address register 4 on, then inputs. A container numbers them in the order of their names, so that the numbers
in the headers of its tasks are changed on the way.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

from aneforge.codegen.bounds import Bytes, ContainerError, Source, file_bytes
from aneforge.codegen.container import MAGIC, Container, read_container
from aneforge.codegen.descriptors import TensorDescriptor
from aneforge.codegen.registers import Field
from aneforge.codegen.tasks import Task, header_fields, read_tasks
from aneforge.errors import AneforgeError

__all__ = ["Anec", "Buffer", "anec_of", "read_anec", "read_compiled"]

GENERATION = "h13"
"""The driver knows the M1 only."""
HEADER_BYTES = 0x1000
_HEADER_SIZES = (HEADER_BYTES, 0x800)
"""As written today, and as the first loader read it."""
TILE = 0x4000
_ADDRESS_BITS = 42  # of the device (td_generations.json dma_encoding)
_FIELDS = struct.Struct("<QIIQQII")
_BARS = 32
_TILES, _SHAPES = struct.Struct(f"<{_BARS}I"), struct.Struct(f"<{_BARS * 6}Q")
_COMMAND_BAR, _SCRATCH_BAR, _FIRST_BAR = 0, 3, 4
_BASE_FIELDS = {"RBase0": "RBE0", "RBase1": "RBE1", "WBase": "WBE", "TBase": "TBE"} | {
    f"KBase{number}": f"KBE{number}" for number in range(4)
}
"""Fields of a task's header that name a base-address register, and the bit that enables each."""


def _up(value: int, step: int) -> int:
    return -(-value // step) * step


@dataclass(frozen=True)
class Buffer:
    """A tensor of the caller, by the register that the loader gives it. Names are not part of the file."""

    role: str
    bar: int
    tiles: int
    """How many times 16 KiB it takes."""
    shape: tuple[int, int, int, int]
    plane_bytes: int
    row_bytes: int

    @property
    def name(self) -> str:
        return f"{self.role} in BAR {self.bar}"

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "shape": list(self.shape)}


@dataclass(frozen=True)
class Anec:
    """A program as the driver loads it."""

    text: bytes
    constants: bytes
    first_task_bytes: int
    task_count: int
    ports: tuple[Buffer, ...]
    """Outputs, then inputs."""
    scratch_tiles: int = 0
    header_bytes: int = HEADER_BYTES

    generation = GENERATION

    @cached_property
    def tasks(self) -> list[Task]:
        """Every task, in the order of the chain."""
        text = Bytes(self.text, self.header_bytes)
        return read_tasks(text, GENERATION, 0, self.first_task_bytes // 4, self.task_count)

    @property
    def payload(self) -> bytes:
        return self.text + bytes(-len(self.text) % 16) + self.constants

    def to_bytes(self) -> bytes:
        payload = self.payload
        tiles, shapes = [0] * _BARS, [0] * (6 * _BARS)
        tiles[_COMMAND_BAR], tiles[_SCRATCH_BAR] = _up(len(payload), TILE) // TILE, self.scratch_tiles
        for port in self.ports:
            tiles[port.bar] = port.tiles
            shapes[6 * port.bar : 6 * port.bar + 6] = [*port.shape, port.plane_bytes, port.row_bytes]
        counts = [sum(port.role == role for port in self.ports) for role in ("input", "output")]
        sizes = (len(payload), self.first_task_bytes, self.task_count, len(self.text), len(self.constants))
        head = _FIELDS.pack(*sizes, *counts) + _TILES.pack(*tiles) + _SHAPES.pack(*shapes)
        return head.ljust(self.header_bytes, b"\0") + payload

    def to_json(self) -> dict[str, Any]:
        return {
            "generation": GENERATION,
            "scratch_tiles": self.scratch_tiles,
            "text_bytes": len(self.text),
            "constant_bytes": len(self.constants),
            "ports": [port.to_json() for port in self.ports],
            "tasks": [task.to_json() for task in self.tasks],
        }


def anec_of(container: Container) -> Anec:
    """The program of a container, for the driver."""
    if container.generation != GENERATION:
        raise AneforgeError(
            f"the Linux driver loads programs of {GENERATION} (M1); this one is for {container.generation}. "
            f"Compile with --target m1."
        )
    kernels = [section for section in container.sections if section.segment.startswith("__KERN_")]
    if kernels:
        raise ContainerError(
            kernels[0].offset, f"weights lie in {kernels[0].segment}; the driver takes one constant section"
        )
    ordered = [port for role in ("output", "input") for port in container.ports if port.role == role]
    if len(ordered) > _BARS - _FIRST_BAR:
        raise AneforgeError(f"the driver takes {_BARS - _FIRST_BAR} tensors; the program has {len(ordered)}")
    numbers = _bar_numbers(container)
    renumbered = {numbers[port.name]: _FIRST_BAR + place for place, port in enumerate(ordered)}
    tasks = container.tasks
    text = bytearray(container.contents(container.text).data)
    for task in tasks:
        words = [*_with_bars(task, renumbered), *islice(task.words, len(task.header_words), None)]
        struct.pack_into(f"<{len(words)}I", text, task.offset, *words)
    scratch = container.section("__bss", "__DATA")
    return Anec(
        bytes(text),
        container.constants,
        tasks[0].end - tasks[0].offset if tasks else 0,
        len(tasks),
        tuple(_buffer(port, _FIRST_BAR + place) for place, port in enumerate(ordered)),
        0 if scratch is None else _tile_count(scratch.size, "scratch", scratch.offset),
    )


def _bar_numbers(container: Container) -> dict[str, int]:
    """The base-address register of each port, by its address."""
    addresses = {binding.name: binding.address for binding in container.bindings}
    bars = {address: number for number, address in enumerate(container.program.bars) if address}
    numbers = {}
    for port in container.ports:
        if addresses.get(port.name) not in bars:
            raise ContainerError(port.state.offset, f"port {port.name} has no base-address register")
        numbers[port.name] = bars[addresses[port.name]]
    return numbers


def _with_bars(task: Task, renumbered: Mapping[int, int]) -> list[int]:
    """The words of a task's header, with the loader's numbers."""
    places: dict[str, tuple[int, Field]] = {
        field.name: (place, field) for place, fields in enumerate(header_fields(GENERATION)) for field in fields
    }
    words = list(task.header_words)
    for name, enable in _BASE_FIELDS.items():
        place, field = places[name]
        number = field.read(task.header_words[place])
        if task.header_field(enable) and number in renumbered:
            words[place] = field.write(words[place], renumbered[number])
    return words


def _buffer(port: TensorDescriptor, bar: int) -> Buffer:
    _, plane, row, _ = port.strides
    tiles = _tile_count(port.total_bytes * port.shape[0], f"port {port.name}", port.state.offset)
    return Buffer(port.role, bar, tiles, port.shape, plane, row)


def _tile_count(size: int, what: str, offset: int) -> int:
    if size >> _ADDRESS_BITS:
        raise ContainerError(offset, f"{what} takes {size} bytes; addresses have {_ADDRESS_BITS} bits")
    return _up(size, TILE) // TILE


def read_anec(source: str | Path | Source) -> Anec:
    """The program of an ANEC file or of its bytes."""
    data = Bytes(file_bytes(source) if isinstance(source, (str, Path)) else source)
    size, first, count, text_size, constant_size, sources, results = data.record(_FIELDS, 0, "the header")
    header_bytes = len(data) - size
    if header_bytes not in _HEADER_SIZES:
        wanted = " or ".join(f"{header + size} bytes" for header in _HEADER_SIZES)
        raise data.error(0, f"not an ANEC file: it claims {size} bytes of program, so {wanted}; it has {len(data)}")
    start = _up(text_size, 16)
    if start + constant_size != size:
        raise data.error(16, f"text of {text_size} and constants of {constant_size} bytes do not make {size}")
    if sources + results > _BARS - _FIRST_BAR:
        raise data.error(32, f"{sources} inputs and {results} outputs; there is room for {_BARS - _FIRST_BAR}")
    if first % 4:
        raise data.error(8, f"the first task has {first} bytes, which are not whole words")
    tiles = data.record(_TILES, _FIELDS.size, "the tiles")
    shapes = data.record(_SHAPES, _FIELDS.size + _TILES.size, "the shapes")
    ports = []
    for place in range(results + sources):
        bar = _FIRST_BAR + place
        n, c, h, w, plane, row = shapes[6 * bar : 6 * bar + 6]
        ports.append(Buffer("output" if place < results else "input", bar, tiles[bar], (n, c, h, w), plane, row))
    payload = data.part(header_bytes, size, "the program")
    text = bytes(payload.part(0, text_size, "the text").data)
    constants = bytes(payload.part(start, constant_size, "the constants").data)
    anec = Anec(text, constants, first, count, tuple(ports), tiles[_SCRATCH_BAR], header_bytes)
    written = anec.to_bytes()
    if written != data.data:
        place = next(number for number, (a, b) in enumerate(zip(written, data.data, strict=True)) if a != b)
        raise data.error(place, "a byte that the published form of the header does not have, or that is padding")
    return anec


def read_compiled(path: str | Path) -> Container | Anec:
    """A compiled program of either form: a container by its magic number, an ANEC file by its name."""
    data = file_bytes(path)
    is_anec = Path(path).suffix == ".anec" and data[:4] != struct.pack("<I", MAGIC)
    return read_anec(data) if is_anec else read_container(data)
