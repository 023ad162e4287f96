"""Where the values of a program lie as its tasks see them: tensors of the caller, memory of our own, and scratch.

Addresses and strides are those that the phases chose.
"""

from __future__ import annotations

from heapq import heappop, heappush

from aneforge.codegen.assemble import PAGE, CallerTensor, bar_numbers
from aneforge.codegen.banks import turned_pitch
from aneforge.codegen.memory import SCRATCH, Layout, Place
from aneforge.codegen.plan import Scratch, TaskBuffer
from aneforge.compiler.lower import Port
from aneforge.compiler.plan import Buffer, Name
from aneforge.compiler.program import Program
from aneforge.compiler.shown import ProgramLayer

# Where tensors lie in memory: strides from shapes.


def _up(value: int, step: int) -> int:
    return -(-value // step) * step


def in_memory(
    channels: int, height: int, width: int, scratch: Scratch, bar: int | None, row: int | None = None
) -> TaskBuffer:
    """A tensor of planes."""
    row = _up(2 * width, 64) if row is None else row
    plane = row * height
    return TaskBuffer(channels, height, width, row, plane, plane * channels, scratch, bar)


def matrix(rows: int, columns: int, scratch: Scratch, bar: int | None, row_bytes: int | None = None) -> TaskBuffer:
    """A matrix: its rows are the channels of one line."""
    plane = _up(2 * columns, 64) if row_bytes is None else row_bytes
    total = plane * rows
    return TaskBuffer(rows, 1, columns, total, plane, total, scratch, bar)


_MEMORY_BAR = 3
_ALIGNED = 64
_NOWHERE = Scratch(0, 0, 0, 0)
_BYTES = ("uint8", "ui8")


def place_of(buffer: TaskBuffer) -> Place:
    """The place of a tensor as the reader of a task finds it."""
    return (SCRATCH, buffer.scratch.base) if buffer.bar is None else (buffer.bar, buffer.offset)


def layout_of(buffer: TaskBuffer) -> Layout:
    """How a tensor lies at its place."""
    on_chip = buffer.scratch.channel, buffer.scratch.row
    channel, row = on_chip if buffer.bar is None else (buffer.plane, buffer.row)
    return Layout((1, 1, *buffer.extents), (0, 0, channel, row, 2))


class Placement:
    """The tensors of a program."""

    def __init__(self, program: Program, generation: str) -> None:
        self._program = program
        names = _output_ports(program)
        self.tensors = [_tensor(port, "input") for port in program.inputs]
        self.tensors += [_tensor(port, "output") for port in program.outputs if port.name in names.values()]
        self.bars = bar_numbers(generation, [tensor.name for tensor in self.tensors])
        self._matrices = {port.name for port in (*program.inputs, *program.outputs) if _is_matrix(port)}
        self._inputs = {port.name: port.ndchw_shape for port in program.inputs}
        self._ports = _ports(program, names)
        self._merged = _merged(program)
        self._on_chip = [buffer for buffer in program.buffers if buffer.space == "l2"]
        self._pitches = self._turned(program)
        self._free = self._free_by_layer()
        tops = [self._end_of(buffer) for buffer in self._on_chip]
        self._used = program.stats["memory_bytes"] + max(tops, default=0)

    @property
    def scratch_bytes(self) -> int:
        """The program's own memory, in whole pages."""
        return -(-self._used // PAGE) * PAGE

    def reserve(self, size: int) -> int:
        """Takes bytes of the program's own memory; gives where they begin."""
        start = -(-self._used // _ALIGNED) * _ALIGNED
        self._used = start + size
        return start

    def output_of(self, port: Port) -> Name:
        """The value that an output gives."""
        return _output_values(self._program)[port.name]

    def buffer(self, name: Name) -> TaskBuffer:
        """A value as tasks see it, without a place in scratch where it lies in memory."""
        if isinstance(name, str):
            return self._of_port(name, _extents(self._inputs[name]))
        layer = self._program.layers[name]
        extents = _extents(layer.shape)
        labels, port = layer.labels, self._ports.get(layer.buffer.number)
        channel, row = labels["channel_stride"], labels["row_stride"]
        if port is not None and self._is_piece(layer):
            start = labels["buffer_offset"]
            return TaskBuffer(*extents, row, channel, extents[0] * channel, _NOWHERE, self.bars[port], start)
        if port is not None:
            return self._of_port(port, extents)
        if _cuts_columns(layer):
            row = 2 * extents[2]
        if name in self._merged:
            channel, row = channel * extents[1], channel
        if layer.buffer.space == "l2":
            pitch = self._pitches.get(layer.buffer.number)
            if pitch is not None:
                channel, row = pitch, pitch * extents[0]
            scratch = Scratch(labels["address"], channel, row, extents[0] * channel)
            return in_memory(*extents, scratch, None)
        return TaskBuffer(*extents, row, channel, extents[0] * channel, _NOWHERE, _MEMORY_BAR, labels["address"])

    def _is_piece(self, layer: ProgramLayer) -> bool:
        """Whether a layer writes its part of what a concat joins, in the strides of the whole."""
        joined = layer.labels.get("inside")
        return joined is not None and self._program.layers[self._program.place_of(joined)].op == "concat"

    def _of_port(self, name: str, extents: tuple[int, int, int]) -> TaskBuffer:
        channels, height, width = extents
        if name in self._matrices and height == 1:
            return matrix(channels, width, _NOWHERE, self.bars[name])
        return in_memory(channels, height, width, _NOWHERE, self.bars[name])

    def _turned(self, program: Program) -> dict[int, int]:
        """Buffers in scratch that hold a turned matrix, with the pitch of its rows: an odd number of banks, where
        nothing of the task group lies behind them."""
        pitches: dict[int, int] = {}
        for layer in program.layers:
            last = layer.ops[-1]
            if layer.engine == "view" or layer.buffer.space != "l2" or last.kind != "transpose" or len(layer.ops) > 1:
                continue
            channels, height, width = _extents(layer.shape)
            pitch = turned_pitch(width)
            if height != 1 or pitch <= layer.labels["channel_stride"]:
                continue
            start, group = layer.labels["address"], layer.task_group
            end = start + pitch * channels
            others = [buffer for buffer in self._on_chip if buffer.task_group == group and buffer is not layer.buffer]
            if not any(buffer.address is not None and start < buffer.address < end for buffer in others):
                pitches[layer.buffer.number] = pitch
        return pitches

    def _end_of(self, buffer: Buffer) -> int:
        """Where a buffer ends in scratch; 0 for one without a place there."""
        pitch = self._pitches.get(buffer.number)
        size = buffer.bytes if pitch is None else pitch * (buffer.bytes // buffer.channel_stride)
        return 0 if buffer.address is None else buffer.address + size

    def _free_by_layer(self) -> dict[int, int]:
        """Where scratch is free behind what a layer's task group keeps there while it runs, in one pass over the
        steps: of each group a heap has the furthest end first, and what has ended leaves it when it comes up."""
        waiting: dict[int | None, list[Buffer]] = {}
        for buffer in sorted(self._on_chip, key=lambda buffer_: -buffer_.live[0]):
            waiting.setdefault(buffer.task_group, []).append(buffer)
        alive: dict[int | None, list[tuple[int, int]]] = {group: [] for group in waiting}
        free: dict[int, int] = {}
        for number, step in enumerate(self._program.schedule.steps):
            for layer in step:
                group = self._program.layers[layer].task_group
                later, ends = waiting.get(group, []), alive.get(group, [])
                while later and later[-1].live[0] <= number:
                    buffer = later.pop()
                    heappush(ends, (-self._end_of(buffer), buffer.live[1]))
                while ends and ends[0][1] < number:
                    heappop(ends)
                free[layer] = -ends[0][0] if ends else 0
        return free

    def free(self, layer: ProgramLayer) -> int:
        """Where scratch is free behind what the layer's task group keeps there while the layer runs."""
        return self._free[layer.number]


def _cuts_columns(layer: ProgramLayer) -> bool:
    """Whether a layer is a view that reads columns of one row as several rows, where they lie."""
    if layer.engine != "view" or layer.op == "concat" or layer.op != "reshape":
        return False
    before, after = layer.input_types[0].shape, layer.shape
    return before[:4] == (*after[:3], 1) and after[3] > 1


def _merged(program: Program) -> frozenset[int]:
    """Layers in scratch whose channels and rows a view reads as channels: their rows lie within their channels."""
    layers: dict[int, int] = {}
    for layer in program.layers:
        if layer.engine != "view":
            layers[layer.buffer.number] = layer.number
    found = []
    for layer in program.layers:
        if layer.engine != "view" or layer.op != "reshape" or layer.buffer.space != "l2":
            continue
        before, after = layer.input_types[0].shape, layer.shape
        if before[2] > 1 and before[3] > 1 and after[2:] == (before[2] * before[3], 1, before[4]):
            found.append(layers.get(layer.buffer.number, -1))
    return frozenset(found)


def _extents(shape: tuple[int, ...]) -> tuple[int, int, int]:
    n, d, c, h, w = shape
    return n * d * c, h, w


def _is_matrix(port: Port) -> bool:
    return len(port.user_shape) <= 2 or (len(port.user_shape) == 3 and port.user_shape[0] == 1)


def _tensor(port: Port, role: str) -> CallerTensor:
    n, d, c, h, w = port.ndchw_shape
    shape = (1, 1, c, w) if _is_matrix(port) else (n, d * c, h, w)
    if port.dtype in _BYTES:
        return CallerTensor(port.name, role, shape, 3, 1)
    return CallerTensor(port.name, role, shape)


def _output_values(program: Program) -> dict[str, Name]:
    output = program.module.output
    name_of = program.schedule.name_of
    return {name: name_of(op) for name, op in zip(output.attrs["names"], output.operands, strict=True)}


def _output_ports(program: Program) -> dict[Name, str]:
    """The port that each value of a layer leaves by; a second name for one value has no tensor of its own."""
    ports: dict[Name, str] = {}
    for name, value in _output_values(program).items():
        if isinstance(value, int):
            ports.setdefault(value, name)
    return ports


def _ports(program: Program, outputs: dict[Name, str]) -> dict[int, str]:
    """The port that owns a buffer, by the number of the buffer: views of a tensor share it."""
    ports: dict[int, str] = {}
    for buffer in program.buffers:
        for value in buffer.values:
            name = value if isinstance(value, str) else outputs.get(value)
            if name is not None:
                ports.setdefault(buffer.number, name)
    return ports
