"""The plan of a module as programs show it: every layer by its place in the schedule.

It depends on the module only, so the programs of all targets that share a module share it, and whatever is worked out
from its layers can be worked out once for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import isinf
from typing import Any

from aneforge.compiler.memory.allocation import Allocation
from aneforge.compiler.passes import merged_sources
from aneforge.compiler.plan import Buffer, Name, Plan, Segment, TaskGroup, plan_of
from aneforge.compiler.schedule.layers import Layer, LayerGraph
from aneforge.engine.ir import Module, Op, TensorType
from aneforge.engine.tensor_type import Params


@dataclass(frozen=True)
class Slot:
    """One op that an engine layer has absorbed."""

    name: str
    op: str
    attrs: Mapping[str, Any]
    sources: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.name}:{self.op}"


class ProgramLayer:
    """One engine layer of the schedule. ``number`` is its place in the schedule."""

    def __init__(self, schedule: Schedule, number: int, layer: Layer) -> None:
        self._schedule = schedule
        self._sources: tuple[str, ...] | None = None
        self._layer = layer
        self.number = number

    @property
    def op(self) -> str:
        """The backend op that the layer is built around: ``convolution``, or ``unit:TopK`` of a native layer."""
        return self._layer.primary.full_kind

    @property
    def attrs(self) -> Mapping[str, Any]:
        return self._layer.primary.attrs

    @property
    def ops(self) -> list[Op]:
        """The op itself and those in its slots, in the order in which they act."""
        return self._layer.ops

    @property
    def engine(self) -> str:
        """NE, PE, TE, DMA, or view where nothing has to be done."""
        return self._layer.engine

    @property
    def slots(self) -> tuple[Slot, ...]:
        """What it has absorbed, in slot order (listing 22.3)."""
        return tuple(Slot(op.slot or "", op.kind, op.attrs, op.sources) for op in self._layer.ops[1:])

    @property
    def sources(self) -> tuple[str, ...]:
        """The user's nodes behind it, each once."""
        if self._sources is None:  # asked for by every chip that shares the schedule
            self._sources = merged_sources(*self._layer.ops)
        return self._sources

    @property
    def labels(self) -> dict[str, Any]:
        """Everything that phases 2 to 4 decided about its first op, as the text shows it."""
        return self._schedule.labels[self._layer.primary]

    @property
    def segment(self) -> int:
        return self._layer.segment

    @property
    def task_group(self) -> int:
        assert self._layer.task_group is not None
        return self._layer.task_group

    @property
    def allocation(self) -> Allocation:
        """The state of its result (table 22.2)."""
        assert self._layer.allocation is not None
        return Allocation(self._layer.allocation)

    @property
    def chained(self) -> bool:
        """Whether its result feeds the next layer inside L2."""
        return self._layer.chained

    @property
    def passes(self) -> int:
        """How often its input passes the engine, since kernel memory holds a part of its outputs at a time."""
        return self._layer.primary.labels.get("passes", 1)

    @property
    def co_issue(self) -> int | None:
        """The layer of the other engine that runs beside it."""
        partner = self._layer.co_issue
        return None if partner is None else self._schedule.places[partner]

    @property
    def type(self) -> TensorType:
        """Its result, NDCHW."""
        assert self._layer.result.type is not None
        return self._layer.result.type

    @property
    def shape(self) -> tuple[int, ...]:
        return self.type.shape

    @property
    def inputs(self) -> tuple[int | str, ...]:
        """What it reads: earlier layers by number, the program's inputs by name."""
        name_of = self._schedule.name_of
        return tuple([name_of(value) for value in self._layer.inputs])

    @property
    def input_types(self) -> tuple[TensorType, ...]:
        return tuple(value.type for value in self._layer.inputs if value.type is not None)

    @property
    def weights(self) -> tuple[str, ...]:
        """Keys of the stored constants it reads."""
        return tuple(dict.fromkeys(op.attrs["weight"] for op in self._layer.weights))

    @property
    def buffer(self) -> Buffer:
        return self._schedule.buffers_by_name[self.number]

    def to_json(self) -> dict[str, Any]:
        record: dict[str, Any] = {
            "number": self.number,
            "op": self.op,
            "engine": self.engine,
            "segment": self.segment,
            "task_group": self.task_group,
            "allocation": int(self.allocation),
            "inputs": list(self.inputs),
            "result": {"shape": list(self.shape), "dtype": self.type.dtype},
            "buffer": self.buffer.number,
            "sources": list(self.sources),
            "attrs": _plain(self.attrs),
        }
        if self.slots:
            record["slots"] = [{"slot": slot.name, "op": slot.op, "attrs": _plain(slot.attrs)} for slot in self.slots]
        if self.weights:
            record["weights"] = list(self.weights)
        extra = ("data_path", "storage", "large_kernel", "piece", "passes", "sub_layers")
        labels = self._layer.primary.labels
        record |= {name: labels[name] for name in extra if name in labels}
        record |= {"chained": True} if self.chained else {}
        record |= {} if self._layer.buffer_offset is None else {"buffer_offset": self._layer.buffer_offset}
        if self.co_issue is not None:
            record["co_issue"] = self.co_issue
        return record

    def __str__(self) -> str:
        absorbed = "".join(f" + {slot.op}" for slot in self.slots)
        return f"{self.number} {self.engine} {self.op}{absorbed}"

    def __repr__(self) -> str:
        return f"<layer {self}>"


class Schedule:
    """Layers, segments, task groups, steps and buffers of one module, in the order they run."""

    @staticmethod
    def of(module: Module, plan: Callable[[], Plan]) -> Schedule:
        """The schedule of a module: the one that its complete plan carries, for all programs, or one of its own for
        code that came without a plan. Layers and their places need no plan, so ``plan`` is asked for the rest only."""
        graph, carried = LayerGraph.of_module(module), plan_of(module)
        if not carried.is_complete(module):
            return Schedule(graph, plan)
        if carried.shown is None or carried.shown.graph is not graph:
            carried.shown = Schedule(graph, lambda: carried)
        return carried.shown

    def __init__(self, graph: LayerGraph, plan: Callable[[], Plan]) -> None:
        self.graph, self._decided = graph, plan
        self.places = {layer.number: place for place, layer in enumerate(graph.layers)}
        """The place of each layer by the number that its ops carry."""

    @cached_property
    def _plan(self) -> Plan:
        return self._decided()

    @cached_property
    def layers(self) -> tuple[ProgramLayer, ...]:
        return tuple(ProgramLayer(self, place, layer) for place, layer in enumerate(self.graph.layers))

    @cached_property
    def labels(self) -> dict[Op, dict[str, Any]]:
        """What the text shows beside each op, apart from its attributes."""
        decided = self._plan.labels(self.graph.module)
        return {op: {**op.labels, **decided.get(op, {})} for op in self.graph.module.ops}

    def name_of(self, value: Op) -> Name:
        """A value as listings name it: the layer that makes it, or the port."""
        layer = self.graph.of.get(value)
        return value.attrs["name"] if layer is None else self.places[layer.number]

    @cached_property
    def segments(self) -> tuple[Segment, ...]:
        return tuple(segment.at_places(self.places) for segment in self._plan.segments or ())

    @cached_property
    def task_groups(self) -> tuple[TaskGroup, ...]:
        return tuple(task_group.at_places(self.places) for task_group in self._plan.task_groups or ())

    @cached_property
    def steps(self) -> tuple[tuple[int, ...], ...]:
        return tuple(tuple(self.places[number] for number in step) for step in self._plan.steps or ())

    @cached_property
    def buffers(self) -> tuple[Buffer, ...]:
        return tuple(buffer.at_places(self.places) for buffer in self._plan.buffers or ())

    @cached_property
    def buffers_by_name(self) -> dict[Name, Buffer]:
        """The buffer that holds the result of each layer, by its place, and each port, by its name."""
        return {name: buffer for buffer in self.buffers for name in buffer.values}


def _plain(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes as JSON has them: JSON has no infinite number, so an open bound is written as text, and so are the
    parameters of a unit."""
    return {name: str(value) if _is_text(value) else value for name, value in attrs.items()}


def _is_text(value: Any) -> bool:
    return isinstance(value, Params) or (isinstance(value, float) and isinf(value))
