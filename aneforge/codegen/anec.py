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

import numpy as np

from aneforge.codegen.bounds import Bytes, ContainerError, Source, file_bytes
from aneforge.codegen.container import MAGIC, Container, read_container
from aneforge.codegen.registers import Field
from aneforge.codegen.tasks import Task, header_fields, read_tasks
from aneforge.errors import AneforgeError, ArgumentError

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
_KNOWN_BYTES = _FIELDS.size + _TILES.size + _SHAPES.size
_MOST_PADDING = 64  # files exist whose constants lie at a multiple of 64; the driver itself looks at one of 16
_COMMAND_BAR, _CONSTANT_BAR, SCRATCH_BAR, _FIRST_BAR = 0, 1, 3, 4
_BASE_FIELDS = {"RBase0": "RBE0", "RBase1": "RBE1", "WBase": "WBE", "TBase": "TBE"} | {
    f"KBase{number}": f"KBE{number}" for number in range(4)
}
"""Fields of a task's header that name a base-address register, and the bit that enables each."""


def _up(value: int, step: int) -> int:
    return -(-value // step) * step


@dataclass(frozen=True)
class AnecBuffer:
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

    def pack(self, values: np.ndarray) -> bytes:
        """An fp16 tensor as the driver's buffer has it: rows and planes in their strides, and whole tiles."""
        if values.shape != self.shape or values.dtype != np.float16:
            raise ArgumentError(
                "values", f"{self.name} takes float16 {list(self.shape)}, not {values.dtype} of {list(values.shape)}."
            )
        buffer = np.zeros(self.tiles * TILE, np.uint8)
        self._halves(buffer)[...] = values
        return buffer.tobytes()

    def unpack(self, data: bytes) -> np.ndarray:
        """The fp16 tensor in the driver's buffer."""
        if len(data) < self.tiles * TILE:
            raise ArgumentError("data", f"{self.name} has {self.tiles * TILE} bytes, not {len(data)}.")
        return self._halves(np.frombuffer(data, np.uint8)).copy()

    def _halves(self, buffer: np.ndarray) -> np.ndarray:
        channels = self.shape[1]
        strides = (channels * self.plane_bytes, self.plane_bytes, self.row_bytes, 2)
        spans = zip(self.shape, strides, strict=True)
        end = sum((extent - 1) * stride for extent, stride in spans) + 2
        if min(self.shape) < 1 or end > len(buffer):
            raise ArgumentError("shape", f"{self.name} needs {end} bytes and has {self.tiles} tiles.")
        return np.ndarray(self.shape, np.float16, buffer, 0, strides)

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "shape": list(self.shape)}


@dataclass(frozen=True)
class Anec:
    """A program as the driver loads it."""

    text: bytes
    constants: bytes
    first_task_bytes: int
    task_count: int
    inputs: int
    outputs: int
    tiles: tuple[int, ...]
    """How many times 16 KiB the buffer of each base-address register takes."""
    shapes: tuple[int, ...]
    """Six numbers for each register: four extents, the bytes of a plane and of a row."""
    padding: bytes = b""
    """Between the text and the constants."""
    spare: bytes = bytes(HEADER_BYTES - _KNOWN_BYTES)
    """The rest of the header, which has no published meaning."""

    generation = GENERATION

    @cached_property
    def tasks(self) -> list[Task]:
        """Every task, in the order of the chain."""
        text = Bytes(self.text, self.header_bytes)
        return read_tasks(text, GENERATION, 0, self.first_task_bytes // 4, self.task_count)

    @cached_property
    def ports(self) -> list[AnecBuffer]:
        """The caller's tensors: outputs, then inputs."""
        roles = ["output"] * self.outputs + ["input"] * self.inputs
        return [self._port(role, _FIRST_BAR + place) for place, role in enumerate(roles)]

    def _port(self, role: str, bar: int) -> AnecBuffer:
        n, c, h, w, plane, row = self.shapes[6 * bar : 6 * bar + 6]
        return AnecBuffer(role, bar, self.tiles[bar], (n, c, h, w), plane, row)

    @property
    def stored(self) -> dict[int, bytes]:
        """The bytes of the constants by the base-address register that stands for them."""
        return {_CONSTANT_BAR: self.constants}

    @property
    def scratch_tiles(self) -> int:
        """The tiles of the scratch buffer."""
        return self.tiles[SCRATCH_BAR]

    @property
    def header_bytes(self) -> int:
        """The length of the header."""
        return _KNOWN_BYTES + len(self.spare)

    def to_bytes(self) -> bytes:
        """The file."""
        payload = (self.text, self.padding, self.constants)
        sizes = (sum(map(len, payload)), self.first_task_bytes, self.task_count, len(self.text), len(self.constants))
        head = _FIELDS.pack(*sizes, self.inputs, self.outputs)
        return b"".join((head, _TILES.pack(*self.tiles), _SHAPES.pack(*self.shapes), self.spare, *payload))

    def to_json(self) -> dict[str, Any]:
        return {
            "generation": GENERATION,
            "scratch_tiles": self.scratch_tiles,
            "text_bytes": len(self.text),
            "constant_bytes": len(self.constants),
            "ports": [port.to_json() for port in self.ports],
            "tasks": [task.to_json() for task in self.tasks],
        }


def anec_of(container: Container, allow_text: bool = False, header_bytes: int = HEADER_BYTES) -> Anec:
    """The program of a container, for the driver. One of ours with a task whose work has no words is refused, unless
    ``allow_text`` is set: such a task does nothing on hardware."""
    if header_bytes not in _HEADER_SIZES:
        sizes = " or ".join(f"{size:#x}" for size in _HEADER_SIZES)
        raise AneforgeError(f"a header of {header_bytes:#x} bytes is not one that a driver reads; choose {sizes}")
    if container.generation != GENERATION:
        raise AneforgeError(
            f"the Linux driver loads programs of {GENERATION} (M1); this one is for {container.generation}. "
            f"Compile with --target m1."
        )
    if container.record is not None and not container.record.can_run and not allow_text:
        task = container.record.not_expressed[0]
        raise AneforgeError(
            f"{', '.join(task.sources) or task.form}: {container.record.outlook}, the first one because "
            f"{task.reason}. Split the model there with aneforge partition, or write the file all the same with "
            "--allow-text (allow_text=True)."
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
    padding = bytes(-len(text) % 16)
    tiles, shapes = [0] * _BARS, [0] * (6 * _BARS)
    tiles[_COMMAND_BAR] = _tile_count(len(text) + len(padding) + len(container.constants), "the program", 0)
    scratch = container.section("__bss", "__DATA")
    if scratch is not None:
        tiles[SCRATCH_BAR] = _tile_count(scratch.size, "scratch", scratch.offset)
    for bar, port in enumerate(ordered, _FIRST_BAR):
        tiles[bar] = _tile_count(port.total_bytes * port.shape[0], f"port {port.name}", port.state.offset)
        shapes[6 * bar : 6 * bar + 6] = [*port.shape, *port.strides[1:3]]
    return Anec(
        bytes(text),
        container.constants,
        tasks[0].end - tasks[0].offset if tasks else 0,
        len(tasks),
        sum(port.role == "input" for port in ordered),
        sum(port.role == "output" for port in ordered),
        tuple(tiles),
        tuple(shapes),
        padding,
        bytes(header_bytes - _KNOWN_BYTES),
    )


def _bar_numbers(container: Container) -> dict[str, int]:
    """The base-address register of each port, by its address."""
    numbers = {}
    for port in container.ports:
        number = container.port_bar(port)
        if number is None:
            raise ContainerError(port.state.offset, f"port {port.name} has no base-address register")
        numbers[port.name] = number
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
        wanted = " or ".join(f"{header + size}" for header in _HEADER_SIZES)
        raise data.error(0, f"not an ANEC file: {size} bytes of program need {wanted} bytes; the file has {len(data)}")
    start = size - constant_size
    if not text_size <= start < text_size + _MOST_PADDING:
        raise data.error(16, f"text of {text_size} and constants of {constant_size} bytes do not make {size}")
    if sources + results > _BARS - _FIRST_BAR:
        raise data.error(32, f"{sources} inputs and {results} outputs; there is room for {_BARS - _FIRST_BAR}")
    if first % 4:
        raise data.error(8, f"the first task has {first} bytes, which are not whole words")
    tiles = data.record(_TILES, _FIELDS.size, "the tiles")
    shapes = data.record(_SHAPES, _FIELDS.size + _TILES.size, "the shapes")
    parts = {"spare": (_KNOWN_BYTES, header_bytes - _KNOWN_BYTES), "text": (header_bytes, text_size)}
    parts |= {
        "padding": (header_bytes + text_size, start - text_size),
        "constants": (header_bytes + start, constant_size),
    }
    contents = {name: bytes(data.part(place, size, name).data) for name, (place, size) in parts.items()}
    return Anec(
        first_task_bytes=first,
        task_count=count,
        inputs=sources,
        outputs=results,
        tiles=tiles,
        shapes=shapes,
        **contents,
    )


def read_compiled(path: str | Path) -> Container | Anec:
    """A compiled program of either form: a container by its magic number, an ANEC file by its name."""
    data = file_bytes(path)
    is_anec = Path(path).suffix == ".anec" and data[:4] != struct.pack("<I", MAGIC)
    return read_anec(data) if is_anec else read_container(data)
