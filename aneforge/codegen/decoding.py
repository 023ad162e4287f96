"""A container as a program that runs: ops from registers and constants, and from the debug section what has no form.

Values are followed by their places: a task reads what an earlier task, or the caller, last wrote there. A container of
the vendor has no debug section, so all of its tasks must be in the forms that registers express.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from math import prod
from typing import Any

import numpy as np

from aneforge.chips.names import target as find_target
from aneforge.codegen.anec import Anec
from aneforge.codegen.bounds import ContainerError
from aneforge.codegen.container import Container
from aneforge.codegen.dialect import meaning_of
from aneforge.codegen.placement import Memory
from aneforge.codegen.reading import SCRATCH, Place, TaskReading, read_task
from aneforge.codegen.record import BuildRecord, TaskRecord, read_debug
from aneforge.codegen.tasks import Task
from aneforge.compiler.lower import Port
from aneforge.compiler.plan import Plan
from aneforge.compiler.program import Program
from aneforge.engine.ir import AnecError, Module, Op, TensorType
from aneforge.engine.text import parse
from aneforge.engine.verify import verify
from aneforge.errors import AneforgeError
from aneforge.graph.encoding import Encoded
from aneforge.graph.weights import Weight, intern_fp16


class DecodedProgram(Program):
    """A program that was read from a container. It runs; the phases' decisions are in the container's tasks."""

    record: BuildRecord
    """What each task rests on."""

    def place_of(self, layer_number: int) -> int:
        """Tasks are layers, in the order of the container."""
        return layer_number

    @property
    def plan(self) -> Plan:  # type: ignore[override]
        """What the phases decided is not read back."""
        raise AneforgeError(
            f"{self.target.name}: a program from a container has tasks, and no layers, buffers or weights of a "
            "schedule. Read the container's tasks, or save the model as .anef"
        )

    schedule = plan  # type: ignore[assignment]


def decode(container: Container | Anec) -> DecodedProgram:
    """The program of a container, or of a file of the Linux driver. Tasks of others than ours must be of h13; an error
    says which one has no published meaning."""
    try:
        return _Decoder(container).program()
    except (AnecError, KeyError, TypeError, ValueError, IndexError) as error:
        if isinstance(error, ContainerError):
            raise
        raise ContainerError(0, f"the program cannot be read back: {error}") from None


class _Decoder:
    def __init__(self, container: Container | Anec) -> None:
        self.container = container
        self.constants = container.constants
        self.module = Module()
        self.memory: Memory[Op] = Memory()
        self.values: dict[Any, Op] = {}
        """By what the debug section calls them: ports by name, layers by number."""
        section = None if isinstance(container, Anec) else container.section("__debug_info", "__DEBUG")
        self.debug: dict[str, Any] | None = None
        self.arrays: dict[str, np.ndarray] = {}
        if section is not None and isinstance(container, Container):
            contents = container.contents(section)
            self.debug, self.arrays = read_debug(contents.data, contents.start)
        self.encoded: dict[str, Any] = {} if self.debug is None else self.debug["encoded"]

    def program(self) -> DecodedProgram:
        name = self.container.generation if self.debug is None else self.debug["target"]
        inputs, outputs, records = self._vendor() if self.debug is None else self._own(self.debug)
        verify(self.module)
        route = "direct" if self.debug is None else self.debug["route"]
        program = DecodedProgram(find_target(name), self.module, inputs, outputs, (), route=route)
        program.record = BuildRecord(name, tuple(records))
        return program

    # Containers of ours.

    def _own(self, debug: dict[str, Any]) -> tuple[tuple[Port, ...], tuple[Port, ...], list[TaskRecord]]:
        places = self._port_places()
        inputs = tuple(self._port(row) for row in debug["inputs"])
        for port, row in zip(inputs, debug["inputs"], strict=True):
            self._live_in(port.name, tuple(row["ndchw"]), port.dtype, places.get(port.name))
        tasks, records = self.container.tasks, []
        for row in debug["layers"]:
            text, start = row.get("text"), len(self.module.ops)
            if text is None:
                own = tasks[row["task"] : row["task"] + row["passes"]]
                value = self._passes(own, tuple(row["sources"]))
            else:
                value = self._text(text)
                place = (row["place"][0], row["place"][1])
                (self.memory.view if row["task"] is None else self.memory.write)(place, value, value.shape)
            self.values[row["layer"]] = value
            self._label(start, row["layer"])
            keys = ("layer", "task", "form", "expressed", "constants", "reason", "passes", "verdict")
            known = {key: row[key] for key in keys}
            records.append(TaskRecord(**known, sampled=tuple(row["sampled"]), sources=tuple(row["sources"])))
        outputs = tuple(self._port(row) for row in debug["outputs"])
        named = {port.name: self.values[row["value"]] for port, row in zip(outputs, debug["outputs"], strict=True)}
        self._live_out(named)
        return inputs, outputs, records

    def _port(self, row: Mapping[str, Any]) -> Port:
        initial = None if row["initial"] is None else self._weight(row["initial"])
        return _checked(Port(row["name"], tuple(row["shape"]), tuple(row["ndchw"]), row["dtype"], initial))

    def _weight(self, key: str) -> Weight:
        """A constant of the debug section; under its own key here only, since a stranger's key proves nothing."""
        if key not in self.encoded:
            return Weight(key, self.arrays[key])
        start = f"{key}/"
        parts = {name.removeprefix(start): part for name, part in self.arrays.items() if name.startswith(start)}
        encoded = Encoded.from_parts(self.encoded[key], parts)
        return Weight(key, None, encoded.shape, partial(encoded.decode, np.float16), encoded)

    def _text(self, text: str) -> Op:
        """The ops of a layer from its text; returns its result."""
        part = parse(text)
        copies: dict[Op, Op] = {}
        for op in part.ops:
            if op.kind == "live_in":
                kind, _, name = op.attrs["name"].partition(":")
                copies[op] = self.values[int(name) if kind == "layer" else name]
            elif op.kind != "live_out":
                copy = Op(op.name, [copies[operand] for operand in op.operands], op.type, op.attrs, op.sources)
                copy.labels = op.labels
                copies[op] = self._add(copy)
                for value in op.attrs.values():
                    if isinstance(value, str) and (value in self.arrays or value in self.encoded):
                        self.module.weights[value] = self._weight(value)
        return copies[part.output.operands[0]]

    # Containers of the vendor.

    def _vendor(self) -> tuple[tuple[Port, ...], tuple[Port, ...], list[TaskRecord]]:
        """Ports have the shapes of their descriptors; the tasks say how the engine sees them."""
        tasks = self.container.tasks
        readings = [read_task(task, self.constants) for task in tasks]
        places = self._port_places()
        seen = {operand.place: operand.shape for reading in reversed(readings) for operand in reading.operands}
        written = {reading.result.place: reading.result.shape for reading in readings}
        inputs, outputs, records = [], [], []
        for row in self.container.ports:
            place = places[row.name]
            shape = (seen if row.role == "input" else written).get(place)
            if shape is None:
                raise ContainerError(0, f"no task reads or writes the {row.role} {row.name}")
            port = _checked(Port(row.name, row.shape, shape, "f16"))
            (inputs if row.role == "input" else outputs).append(port)
            if row.role == "input":
                self._live_in(row.name, shape, "f16", place)
        for number, (task, reading) in enumerate(zip(tasks, readings, strict=True)):
            start = len(self.module.ops)
            self._registers(reading, task.offset, ())
            self._label(start, number)
            form = ", ".join(work.kind for work in reading.work) or "copy"
            records.append(TaskRecord(number, number, form, True))
        self._live_out({port.name: self._value(places[port.name], port.ndchw_shape, 0) for port in outputs})
        return tuple(inputs), tuple(outputs), records

    # Both.

    def _port_places(self) -> dict[str, Place]:
        if isinstance(self.container, Anec):
            return {port.name: (port.bar, 0) for port in self.container.ports}
        bars = {address: number for number, address in enumerate(self.container.program.bars) if address}
        return {port.name: (bars[port.address], 0) for port in self.container.bindings if port.address in bars}

    def _passes(self, tasks: Sequence[Task], sources: tuple[str, ...]) -> Op:
        """The result of a layer: of its task, or joined from the tasks that each give a part of the channels."""
        readings = [read_task(task, self.constants) for task in tasks]
        values = [
            self._registers(reading, task.offset, sources) for reading, task in zip(readings, tasks, strict=True)
        ]
        if len(values) == 1:
            return values[0]
        base, start = readings[0].result.place
        for task, reading in zip(tasks, readings, strict=True):
            if reading.result.place != (base, start):
                raise ContainerError(task.offset, "a pass writes its channels elsewhere than behind those of the last")
            step = meaning_of(task, "scratch.result.channel" if base == SCRATCH else "result.plane") or 0
            start += step * reading.result.extents[0]
        _, _, _, height, width = values[0].shape
        shape = (1, 1, sum(value.shape[2] for value in values), height, width)
        joined = self._add(Op("anec.concat", values, TensorType(shape, "f16"), {"axis": 2}, sources))
        self.memory.write(readings[0].result.place, joined, shape)
        return joined

    def _registers(self, reading: TaskReading, offset: int, sources: tuple[str, ...]) -> Op:
        """The ops of a task; returns its result."""
        values = [self._value(operand.place, operand.shape, offset) for operand in reading.operands]
        for work in reading.work:
            constants = [self._constant(array) for array in (work.kernel, work.bias) if array is not None]
            op = Op(f"anec.{work.kind}", [*values, *constants], TensorType(work.shape, "f16"), work.attrs, sources)
            values = [self._add(op)]
        self.memory.write(reading.result.place, values[0], reading.result.shape)
        return values[0]

    def _label(self, start: int, layer: int) -> None:
        """Give the ops that were added from ``start`` on to a layer."""
        for op in self.module.ops[start:]:
            if op.kind != "const_in":
                op.layer = layer

    def _value(self, place: Place, shape: tuple[int, ...], offset: int) -> Op:
        value = self.memory.read(place, shape)
        if value is None:
            base = "scratch" if place[0] < 0 else f"base-address register {place[0]}"
            extents = " x ".join(map(str, shape[2:]))
            raise ContainerError(
                offset, f"reads {extents} at {place[1]:#x} of {base}, where no task wrote such a tensor"
            )
        return value

    def _constant(self, array: np.ndarray) -> Op:
        shape = (array.shape[0], 1, *array.shape[1:]) if array.ndim == 4 else (1, 1, array.shape[0], 1, 1)
        weight = intern_fp16(array)
        self.module.weights[weight.key] = weight
        return self._add(Op("anec.const_in", (), TensorType(shape, "f16"), {"weight": weight.key}))

    def _live_in(self, name: str, shape: tuple[int, ...], dtype: str, place: Place | None) -> None:
        stored = "ui8" if dtype in ("uint8", "ui8") else "f16"
        op = self._add(Op("anec.live_in", (), TensorType(shape, stored), {"name": name}, (name,)))
        self.values[name] = op
        if place is not None:
            self.memory.write(place, op, shape)

    def _live_out(self, named: Mapping[str, Op]) -> None:
        self._add(Op("anec.live_out", list(named.values()), None, {"names": tuple(named)}))

    def _add(self, op: Op) -> Op:
        self.module.ops.append(op)
        return op


def _checked(port: Port) -> Port:
    """The port, if its two shapes hold equally many numbers."""
    if prod(port.user_shape) != prod(port.ndchw_shape):
        shapes = f"{list(port.user_shape)} for the user and {list(port.ndchw_shape)} for the engine"
        raise ContainerError(0, f"port {port.name} is {shapes}, which are not equally many numbers")
    return port
