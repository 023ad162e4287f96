"""A program as a container: one task a layer, as the phases decided, with what registers cannot say beside it.

A task is ``expressed`` where the reader gets the ops of its layer back from its registers and constants; that is
checked for every task while it is written. A layer without a register form gets a task with the words that are known
(extents, strides, buffers), and its work travels as backend text in the debug section.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from aneforge.codegen.assemble import Parts, assemble, first_tensor_bar
from aneforge.codegen.bounds import ContainerError
from aneforge.codegen.building import TaskBuilder, TaskSite
from aneforge.codegen.checking import LayerCheck
from aneforge.codegen.container import Container
from aneforge.codegen.dialect import dialect_of, rate_of, written_generations
from aneforge.codegen.forms import MOST_CHANNELS, WIDEST, Form, form_of
from aneforge.codegen.hazards import finished
from aneforge.codegen.headers import Following
from aneforge.codegen.operands import Operand
from aneforge.codegen.placement import Placement, layout_of, place_of
from aneforge.codegen.plan import TaskBuffer, TaskPlan
from aneforge.codegen.record import BuildRecord, TaskRecord, debug_bytes
from aneforge.codegen.replay import Replay
from aneforge.codegen.sequences import CONSTANT_BAR, Sequences
from aneforge.codegen.stream import is_indexed
from aneforge.codegen.tasks import Task
from aneforge.codegen.verdicts import kind_of, verdict_of
from aneforge.codegen.words import UNKNOWN, task_of
from aneforge.compiler.footprint import MEMORY_LINE
from aneforge.compiler.lower import Port
from aneforge.compiler.plan import Name
from aneforge.compiler.program import Program
from aneforge.compiler.shown import ProgramLayer
from aneforge.engine.ir import Module, Op, TensorType
from aneforge.engine.text import write
from aneforge.engine.traits import Trait
from aneforge.errors import AneforgeError
from aneforge.graph.weights import Weight

_TASKS_AT = 0x100  # every published task of h13 starts at a multiple of it
_FRAME, _PACKED_AT = 16, 16
_CHANGES_NUMBERS = ("storage", "data_path")
"""Labels that say how the numbers of an op are computed."""


def generation_of_target(name: str) -> str:
    """The register generation of a target: its name without the suffix of a variant (``h13g`` is of ``h13``)."""
    generation = name[:3]
    if generation not in written_generations():
        known = ", ".join(written_generations())
        raise AneforgeError(f"{name}: the task words of this target are not published. Choose a target of {known}.")
    return generation


def emit(program: Program) -> Container:
    """The container of a program. ``container.record`` says what each task rests on.

    A program of several segments is refused: a container is one dispatch.
    """
    generation = generation_of_target(program.target.name)
    _refuse(program)
    writer = _Writer(program, generation)
    for layer in program.layers:
        writer.add(layer)
    container = writer.container()
    container.record = writer.record
    return container


def _refuse(program: Program) -> None:
    if len(program.segments) > 1:
        cut = next(segment for segment in program.segments if segment.kind == "native" or segment.number)
        layer = program.layers[cut.layers[0]]
        raise AneforgeError(
            f"{', '.join(layer.sources) or layer.op}: cuts the program into {len(program.segments)} segments; a "
            "container holds one. Save the model as .anef, or split the graph at this node."
        )
    for op in program.module.ops:
        if op.is_a(Trait.RING):
            raise AneforgeError(
                f"{', '.join(op.sources) or op.name}: keeps a state between calls; a container has no published form "
                "for it. Save the model as .anef."
            )
    if not any(layer.engine != "view" for layer in program.layers):
        raise AneforgeError("the program has no layer that computes; a container needs a task. Save it as .anef.")


@dataclass
class _Item:
    """A layer on its way into the container."""

    layer: ProgramLayer
    plans: list[TaskPlan]
    """One, or one for each pass of its kernel; none where nothing has to be done."""
    record: TaskRecord
    text: str = ""
    form: Form | None = None


class _Writer:
    def __init__(self, program: Program, generation: str) -> None:
        self.program, self.generation = program, generation
        self.dialect = dialect_of(generation)
        self.placement = Placement(program, generation)
        self.items: list[_Item] = []
        self.sequences = Sequences(generation)
        self.arrays: dict[str, np.ndarray] = {}
        self.encoded: dict[str, Any] = {}
        self.replay = Replay(Module(), {})
        self.answers: dict[tuple[str, str], str] = {}
        """Of checks by numbers, by the ops that were compared."""
        self.leaves: dict[Op, Name] = {}
        """What the values of the replay stand for."""
        for port in program.inputs:
            self._write(port.name, port.ndchw_shape)
        self._number = 0

    @property
    def record(self) -> BuildRecord:
        return BuildRecord(self.program.target.name, tuple(item.record for item in self.items))

    def add(self, layer: ProgramLayer) -> None:
        if layer.engine == "view":
            record = TaskRecord(
                layer.number, None, layer.op, False, reason="a view moves nothing", sources=layer.sources
            )
            self.items.append(_Item(layer, [], record, self._text(layer)))
            self._write(layer.number, layer.shape, is_view=True)
            return
        number = self._number
        form = form_of(layer, self.program.module)
        item = self._expressed(layer, form, number) if isinstance(form, Form) else form
        if isinstance(item, str):
            item = self._unexpressed(layer, item, number)
        self.items.append(item)
        self._number += len(item.plans)
        self._write(layer.number, layer.shape)

    # Layers that registers express.

    def _expressed(self, layer: ProgramLayer, form: Form, number: int) -> _Item | str:
        if any(label in op.labels for op in layer.ops for label in _CHANGES_NUMBERS):
            return "its numbers are computed in a way that has no published words"
        if (
            form.name == "product"
            and form.activation not in ("none", "relu")
            and self.dialect.table_in_streams != "none"
        ):
            return "a table behind a product of two tensors has no published words on this generation"
        names = [self.program.schedule.name_of(op) for op in form.operands]
        tensors = [self.placement.buffer(name) for name in (*names, layer.number)]
        if any(tensor.in_memory and tensor.row % MEMORY_LINE for tensor in tensors):
            return "rows of a tensor in memory lie end to end, and the registers hold strides of whole lines"
        constants = self.sequences.constants
        before, tiles = (len(constants), len(self.sequences.rows)), len(self.sequences.tiles)
        builder = TaskBuilder(self._site(layer), number)
        rule = self.sequences.add(builder, form, tensors[:-1], tensors[-1])
        plans = builder.plans
        if builder.overflows:
            self.sequences.cut(*before, tiles)
            return "tensors between its tasks do not fit the engine's own memory of 2 MiB"
        found = self._read_back(plans, tensors[-1], before)
        modules = self.replay.module, self.program.module
        check = LayerCheck(layer, form, modules, self.leaves, self.program.schedule.name_of)
        problem = found if isinstance(found, str) else ""
        if isinstance(found, Op):
            problem = "" if form.is_checked_by_numbers else check.problem(found)
            if form.is_checked_by_numbers or (problem and form.goes_by_channels):
                problem = check.problem_by_numbers(found, self.answers)
        if problem and not (form.rounds and isinstance(found, Op) and not form.is_checked_by_numbers):
            self.sequences.cut(*before, tiles)
            return problem
        sampled = _sampled(form, plans, any(self._is_reshaped(name) for name in names))
        record = TaskRecord(
            layer.number, number, kind_of(form, plans), True, sampled, rule, "", layer.sources, len(plans)
        )
        return _Item(layer, plans, record, self._text(layer) if form.rounds else "", form)

    def _site(self, layer: ProgramLayer) -> TaskSite:
        """What the tasks of a layer need to know of the program."""
        start = self.placement.free(layer)
        rate = rate_of(self.program.target.name, self.generation)
        bar = self._constants_bar if self.dialect.kernel_section else None
        return TaskSite(self.dialect, start, rate, bar, self.placement.reserve)

    @property
    def _constants_bar(self) -> int:
        """The base-address register of the kernels behind the tensors."""
        return first_tensor_bar(self.generation) + len(self.placement.tensors)

    def _is_reshaped(self, name: int | str) -> bool:
        """Whether a value is another's bytes under another shape."""
        if isinstance(name, str) or self.program.layers[name].engine != "view":
            return False
        layer = self.program.layers[name]
        return layer.op != "concat" and layer.input_types[0].shape != layer.shape

    def _read_back(self, plans: list[TaskPlan], result: TaskBuffer, starts: tuple[int, int]) -> Op | str:
        """What a reader of the tasks of a layer gets, or why it gets nothing. ``starts`` is where its constants
        begin."""
        self.replay.module = Module()
        stored, rows = self.sequences.constants, self.sequences.rows
        self.replay.constants = {1: bytes(stored[starts[0] :])}
        if self.dialect.kernel_section:
            self.replay.constants = {1: bytes(rows[starts[1] :]), self._constants_bar: bytes(stored[starts[0] :])}
        try:
            for plan in plans:
                self.replay.task(task_of(_moved(plan, *starts), self.generation))
            return self.replay.value(Operand(place_of(result), layout_of(result)), 0)
        except ContainerError as error:
            return str(error)

    def _write(self, place: Name, shape: tuple[int, ...], is_view: bool = False) -> None:
        """A value at its place, as later tasks find it."""
        buffer = self.placement.buffer(place)
        leaf = Op("anec.live_in", (), TensorType(shape, "f16"), {"name": str(place)})
        self.leaves[leaf] = place
        memory, at, layout = self.replay.memory, place_of(buffer), layout_of(buffer)
        if not is_view:
            memory.write(at, leaf, shape, layout)
        elif memory.read(at, layout) is not None:  # the same bytes: what lies there, in the same order
            memory.view(at, leaf, shape, layout)

    # Layers that they do not.

    def _unexpressed(self, layer: ProgramLayer, reason: str, number: int) -> _Item:
        operands = [self.placement.buffer(name) for name in layer.inputs[:2]] or [self.placement.buffer(layer.number)]
        operands = [_fitting(operand) for operand in operands]
        result = _fitting(self.placement.buffer(layer.number))
        plan = TaskPlan(
            number, 0, "planar", operands[0], result, operands[1] if len(operands) > 1 else None, UNKNOWN, rate=1e9
        )
        record = TaskRecord(layer.number, number, layer.op, False, (), "", reason, layer.sources)
        return _Item(layer, [plan], record, self._text(layer))

    def _text(self, layer: ProgramLayer) -> str:
        """The ops of a layer as backend text: what it reads comes in by the names of values."""
        module, copies = Module(), {}
        name_of = self.program.schedule.name_of
        for op in layer.ops:
            for operand in op.operands:
                if operand in copies:
                    continue
                if operand.kind == "const_in":
                    copies[operand] = self._copy(operand, [])
                else:
                    name = name_of(operand)
                    label = f"{'port' if isinstance(name, str) else 'layer'}:{name}"
                    copies[operand] = Op("anec.live_in", (), operand.type, {"name": label})
                module.ops.append(copies[operand])
            copies[op] = self._copy(op, [copies[operand] for operand in op.operands])
            module.ops.append(copies[op])
        module.ops.append(Op("anec.live_out", [copies[layer.ops[-1]]], None, {"names": ("result",)}))
        return write(module, self.program.target.name)

    def _copy(self, op: Op, operands: list[Op]) -> Op:
        copy = Op(op.name, operands, op.type, op.attrs, op.sources)
        copy.labels = op.labels
        for value in op.attrs.values():
            if isinstance(value, str) and value in self.program.module.weights:
                self._keep(self.program.module.weights[value])
        return copy

    def _keep(self, weight: Weight) -> None:
        """Let the debug section carry a constant in the form that it has."""
        if weight.encoded is None:
            self.arrays[weight.key] = weight.array
            return
        self.encoded[weight.key] = weight.encoded.to_json()
        self.arrays |= {f"{weight.key}/{name}": part for name, part in weight.encoded.parts.items()}

    # The whole.

    def container(self) -> Container:
        tasks = list(self._tasks())
        self._judge(tasks)
        parts = Parts(
            self.generation,
            self.placement.tensors,
            tasks,
            bytes(self.sequences.constants),
            self.placement.scratch_bytes,
            cycles=sum(task.header.get("ExeCycles", 0) for task in tasks),
            tiles=self.sequences.tiles,
            debug=self._debug(),
            rows=bytes(self.sequences.rows) if self.dialect.kernel_section else b"",
        )
        return assemble(parts)

    def _judge(self, tasks: list[Task]) -> None:
        """Says of each layer what its words rest on."""
        place = 0
        for item in self.items:
            own = tasks[place : place + len(item.plans)]
            place += len(own)
            if item.form is not None:
                item.record = replace(item.record, verdict=verdict_of(own, item.plans, item.form))

    def _tasks(self) -> Iterator[Task]:
        plans = finished([plan for item in self.items for plan in item.plans], self.dialect)
        place = _FRAME if is_indexed(self.generation) else 0
        step = _PACKED_AT if is_indexed(self.generation) else _TASKS_AT
        places, tasks = [], []
        for plan in plans:
            tasks.append(task_of(plan, self.generation, place))
            places.append(place)
            place += -(-4 * len(tasks[-1].words) // step) * step
        if is_indexed(self.generation):
            yield from tasks
            return
        for number, plan in enumerate(plans):
            more = number + 1 < len(plans)
            following = Following(places[number + 1], len(tasks[number + 1].words)) if more else None
            yield task_of(plan, self.generation, places[number], following)

    def _debug(self) -> bytes:
        for port in self.program.inputs:
            if port.initial is not None:
                self._keep(port.initial)
        outputs = [{**_port(port), "value": self.placement.output_of(port)} for port in self.program.outputs]
        content = {
            "target": self.program.target.name,
            "route": self.program.route,
            "encoded": self.encoded,
            "inputs": [_port(port) for port in self.program.inputs],
            "outputs": outputs,
            "layers": [
                {
                    **item.record.to_json(),
                    **_where(self.placement.buffer(item.layer.number)),
                    "shape": list(item.layer.shape),
                }
                | ({"text": item.text} if item.text else {})
                for item in self.items
            ],
        }
        return debug_bytes(content, self.arrays)


def _where(buffer: TaskBuffer) -> dict[str, Any]:
    layout = layout_of(buffer)
    return {"place": list(place_of(buffer)), "layout": [list(layout.shape), list(layout.strides)]}


def _moved(plan: TaskPlan, start: int, rows: int) -> TaskPlan:
    """A task whose constants begin at zero, to be read back by itself."""
    streams, second, source = plan.streams, plan.second, plan.source
    if plan.kernel_bar is None and (streams.coefficients or streams.table):
        if streams.base:
            streams = replace(streams, base=streams.base - start)
        else:
            coefficients = tuple((at - start, size) for at, size in streams.coefficients)
            table = None if streams.table is None else (streams.table[0] - start, streams.table[1])
            streams = replace(streams, coefficients=coefficients, table=table)
    if second is not None and second.bar == CONSTANT_BAR:
        second = replace(second, offset=second.offset - rows)
    if source.bar == CONSTANT_BAR:
        source = replace(source, offset=source.offset - rows)
    return replace(plan, streams=streams, second=second, source=source)


def _fitting(buffer: TaskBuffer) -> TaskBuffer:
    """A tensor of a task that nothing reads back: extents that have no room in their fields are left out."""
    fits = max(buffer.height, buffer.width) <= WIDEST and buffer.channels <= MOST_CHANNELS
    return buffer if fits else replace(buffer, channels=1, height=1, width=1)


def _port(port: Port) -> dict[str, Any]:
    return {
        "name": port.name,
        "shape": list(port.user_shape),
        "ndchw": list(port.ndchw_shape),
        "dtype": port.dtype,
        "initial": None if port.initial is None else port.initial.key,
    }


def _sampled(form: Form, plans: list[TaskPlan], is_reshaped: bool) -> tuple[str, ...]:
    more = {"views": is_reshaped, "tiles": any(plan.tile is not None for plan in plans)}
    return (*form.sampled, *(name for name, holds in more.items() if holds))
