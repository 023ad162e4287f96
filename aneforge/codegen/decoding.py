"""A container as a program that runs: ops from registers and constants, and from the debug section what has no form.

Values are followed by their places (:mod:`aneforge.codegen.replay`): a task reads what an earlier task, or the caller,
last wrote there. A container of the vendor has no debug section of ours, so all of its tasks must be in the forms that
registers express.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from math import prod
from typing import Any

import numpy as np

from aneforge.chips.names import target as find_target
from aneforge.codegen.anec import Anec, AnecBuffer
from aneforge.codegen.bounds import ContainerError
from aneforge.codegen.container import Container
from aneforge.codegen.descriptors import TensorDescriptor
from aneforge.codegen.memory import Layout, Place
from aneforge.codegen.operands import Operand
from aneforge.codegen.record import BuildRecord, TaskRecord, is_own_debug, read_debug
from aneforge.codegen.replay import Replay
from aneforge.compiler.lower import Port
from aneforge.compiler.plan import Plan
from aneforge.compiler.program import Program
from aneforge.engine.ir import AnecError, Module, Op, TensorType
from aneforge.engine.text import parse
from aneforge.engine.verify import verify
from aneforge.errors import AneforgeError
from aneforge.graph.encoding import Encoded
from aneforge.graph.weights import Weight


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


def decode(container: Container | Anec, registers_only: bool = False) -> DecodedProgram:
    """The program of a container, or of a file of the Linux driver. An error says which task has no published
    meaning. ``registers_only`` leaves the text of our own debug section aside, as hardware does."""
    try:
        return _Decoder(container, registers_only).program()
    except (AnecError, KeyError, TypeError, ValueError, IndexError) as error:
        if isinstance(error, ContainerError):
            raise
        raise ContainerError(0, f"the program cannot be read back: {error}") from None


class _Decoder:
    def __init__(self, container: Container | Anec, registers_only: bool) -> None:
        self.container = container
        self.module = Module()
        self.replay = Replay(self.module, container.stored)
        self.memory = self.replay.memory
        self.values: dict[Any, Op] = {}
        """By what the debug section calls them: ports by name, layers by number."""
        section = None if isinstance(container, Anec) else container.section("__debug_info", "__DEBUG")
        self.debug: dict[str, Any] | None = None
        self.arrays: dict[str, np.ndarray] = {}
        if section is not None and isinstance(container, Container) and not registers_only:
            contents = container.contents(section)
            if is_own_debug(contents.data):
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
        layouts = {port.name: _port_layout(port) for port in self.container.ports}
        inputs = tuple(self._port(row) for row in debug["inputs"])
        for port in inputs:
            layout = layouts[port.name].under(port.ndchw_shape) if port.name in layouts else None
            self._live_in(port.name, port.ndchw_shape, port.dtype, places.get(port.name), layout)
        tasks, records = self.container.tasks, []
        for row in debug["layers"]:
            text, start = row.get("text"), len(self.module.ops)
            place = (row["place"][0], row["place"][1])
            layout = _layout(row.get("layout"))
            if text is None:
                own = tasks[row["task"] : row["task"] + row["passes"]]
                results = [self.replay.task(task, tuple(row["sources"])) for task in own]
                value = results[-1][0]
                if layout is not None:
                    value = self.replay.value(Operand(place, layout), own[-1].offset)
                    value = self.replay.shaped(value, tuple(row["shape"]))
                    self.memory.write(place, value, value.shape, layout)
            else:
                value = self._text(text)
                (self.memory.view if row["task"] is None else self.memory.write)(place, value, value.shape, layout)
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
        """Ports have the shapes and strides of their descriptors; tasks read the same bytes as they see them."""
        tasks, places = self.container.tasks, self._port_places()
        ports: dict[str, list[Port]] = {"input": [], "output": []}
        layouts = {}
        for row in self.container.ports:
            if row.role not in ports or row.name not in places:
                raise ContainerError(0, f"port {row.name} has the role {row.role} and no base-address register")
            layouts[row.name] = layout = _port_layout(row)
            port = _checked(Port(row.name, row.shape, layout.shape, _dtype(row)))
            ports[row.role].append(port)
            if row.role == "input":
                self._live_in(row.name, layout.shape, port.dtype, places[row.name], layout)
        records = []
        for number, task in enumerate(tasks):
            start = len(self.module.ops)
            _, reading = self.replay.task(task)
            self._label(start, number)
            form = ", ".join(work.kind for work in reading.work) or "copy"
            records.append(TaskRecord(number, number, form, True))
        outputs = ports["output"]
        ends = {port.name: Operand(places[port.name], layouts[port.name]) for port in outputs}
        self._live_out({name: self._output(name, operand) for name, operand in ends.items()})
        return tuple(ports["input"]), tuple(outputs), records

    def _output(self, name: str, operand: Operand) -> Op:
        try:
            value = self.replay.value(operand, 0)
        except ContainerError:
            raise ContainerError(0, f"no task writes the output {name}, or only a part of it") from None
        return value if value.shape == operand.shape else self.replay.shaped(value, operand.shape)

    # Both.

    def _port_places(self) -> dict[str, Place]:
        if isinstance(self.container, Anec):
            return {port.name: (port.bar, 0) for port in self.container.ports}
        bars = {port.name: self.container.port_bar(port) for port in self.container.ports}
        return {name: (bar, 0) for name, bar in bars.items() if bar is not None}

    def _label(self, start: int, layer: int) -> None:
        """Give the ops that were added from ``start`` on to a layer."""
        for op in self.module.ops[start:]:
            if op.kind != "const_in":
                op.layer = layer

    def _live_in(
        self, name: str, shape: tuple[int, ...], dtype: str, place: Place | None, layout: Layout | None
    ) -> None:
        stored = "ui8" if dtype in _BYTES else "f16"
        op = self._add(Op("anec.live_in", (), TensorType(shape, stored), {"name": name}, (name,)))
        self.values[name] = op
        if place is not None:
            self.memory.write(place, op, shape, layout)

    def _live_out(self, named: Mapping[str, Op]) -> None:
        self._add(Op("anec.live_out", list(named.values()), None, {"names": tuple(named)}))

    def _add(self, op: Op) -> Op:
        return self.replay.add(op)


def _layout(numbers: list[list[int]] | None) -> Layout | None:
    """How a value lies, as the debug section states it; older files do not."""
    if numbers is None:
        return None
    if min(numbers[0]) < 1 or min(numbers[1]) < 0:
        raise ContainerError(0, f"the debug section states a layout of {numbers[0]} in steps of {numbers[1]} bytes")
    return Layout(tuple(numbers[0]), tuple(numbers[1]))


_BYTES = ("uint8", "ui8")


def _port_layout(port: TensorDescriptor | AnecBuffer) -> Layout:
    """How the buffer of a port lies in memory."""
    n, c, h, w = port.shape
    if min(port.shape) < 1:
        raise ContainerError(0, f"port {port.name!r} is {n} x {c} x {h} x {w}: an extent is below 1")
    if isinstance(port, AnecBuffer):
        return Layout((n, 1, c, h, w), (c * port.plane_bytes, 0, port.plane_bytes, port.row_bytes, 2))
    image, plane, row, element = port.strides
    return Layout((n, 1, c, h, w), (image, 0, plane, row, element))


def _dtype(port: TensorDescriptor | AnecBuffer) -> str:
    return port.element if isinstance(port, TensorDescriptor) and port.element in _BYTES else "f16"


def _checked(port: Port) -> Port:
    """The port, if its two shapes hold equally many numbers."""
    if prod(port.user_shape) != prod(port.ndchw_shape):
        shapes = f"{list(port.user_shape)} for the user and {list(port.ndchw_shape)} for the engine"
        raise ContainerError(0, f"port {port.name} is {shapes}, which are not equally many numbers")
    return port
