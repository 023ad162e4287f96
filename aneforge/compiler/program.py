"""The program: what the four phases decided, as everything downstream reads it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isinf
from typing import Any

from aneforge.anec.ir import Module, Op, TensorType
from aneforge.anec.lineage import Standing
from aneforge.anec.text import write
from aneforge.compiler.draft import Draft
from aneforge.compiler.facts import facts_of
from aneforge.compiler.labels import plan_from_labels
from aneforge.compiler.legal.check import check_reads, program_route
from aneforge.compiler.legal.judge import Finding
from aneforge.compiler.lower import Port
from aneforge.compiler.memory.allocation import Allocation
from aneforge.compiler.passes import PASSES, PassLog
from aneforge.compiler.plan import Buffer, Name, Plan, Segment, StoredWeight, TaskGroup, plan_of
from aneforge.compiler.record import Record
from aneforge.compiler.schedule.layers import Layer, LayerGraph
from aneforge.compiler.schedule.task_groups import budget
from aneforge.targets.chip import Target
from aneforge.targets.evidence import Fact

__all__ = ["Program", "ProgramBuffer", "ProgramLayer", "ProgramSegment", "ProgramTaskGroup", "ProgramWeight", "Slot"]


@dataclass(frozen=True)
class Slot:
    """One op that an engine layer has absorbed."""

    name: str
    op: str
    attrs: dict[str, Any]
    sources: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.name}:{self.op}"


class ProgramLayer:
    """One engine layer of the schedule. ``number`` is its place in the schedule."""

    def __init__(self, program: Program, number: int, layer: Layer) -> None:
        self._program = program
        self._layer = layer
        self.number = number

    @property
    def op(self) -> str:
        """The backend op that the layer is built around: ``convolution``."""
        return self._layer.primary.kind

    @property
    def attrs(self) -> dict[str, Any]:
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
        return tuple(dict.fromkeys(source for op in self._layer.ops for source in op.sources))

    @property
    def labels(self) -> dict[str, Any]:
        """Everything that phases 2 to 4 wrote beside it."""
        return self._layer.primary.labels

    @property
    def segment(self) -> int:
        return self._layer.segment

    @property
    def task_group(self) -> int:
        return self.labels["task_group"]

    @property
    def allocation(self) -> Allocation:
        """The state of its result (table 22.2)."""
        return Allocation(self.labels["allocation"])

    @property
    def chained(self) -> bool:
        """Whether its result feeds the next layer inside L2."""
        return "chained" in self.labels

    @property
    def passes(self) -> int:
        """How often its input passes the engine, since kernel memory holds a part of its outputs at a time."""
        return self.labels.get("passes", 1)

    @property
    def co_issue(self) -> int | None:
        """The layer of the other engine that runs beside it."""
        partner = self.labels.get("co_issue")
        return None if partner is None else self._program.place_of(partner)

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
        return tuple(self._program.name_of(value) for value in self._layer.inputs)

    @property
    def input_types(self) -> tuple[TensorType, ...]:
        return tuple(value.type for value in self._layer.inputs if value.type is not None)

    @property
    def weights(self) -> tuple[str, ...]:
        """Keys of the stored constants it reads."""
        return tuple(dict.fromkeys(op.attrs["weight"] for op in self._layer.weights))

    @property
    def buffer(self) -> Buffer:
        return self._program.buffer_of(self.number)

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
        extra = ("data_path", "storage", "large_kernel", "piece", "passes", "chained", "buffer_offset")
        record |= {name: self.labels[name] for name in extra if name in self.labels}
        if self.co_issue is not None:
            record["co_issue"] = self.co_issue
        return record

    def __str__(self) -> str:
        absorbed = "".join(f" + {slot.op}" for slot in self.slots)
        return f"{self.number} {self.engine} {self.op}{absorbed}"

    def __repr__(self) -> str:
        return f"<layer {self}>"


# The objects of the plan as a program shows them: each layer by its place in the schedule.
ProgramBuffer = Buffer
ProgramTaskGroup = TaskGroup
ProgramSegment = Segment
ProgramWeight = StoredWeight


class Program:
    """A compiled graph for one target."""

    def __init__(
        self,
        target: Target,
        module: Module,
        inputs: tuple[Port, ...],
        outputs: tuple[Port, ...],
        log: Sequence[PassLog],
        rewrites: Sequence[Record] = (),
        route: str = "conversion",
        risks: Sequence[tuple[str, Finding]] = (),
    ) -> None:
        self.target = target
        self.module = module
        self.inputs = inputs
        self.outputs = outputs
        self.log = tuple(log)
        self.rewrites = tuple(rewrites)
        """The rows of the table of rewrites that were applied, by node."""
        self.route = route
        """``direct`` where the chip is below the floor of the model language and is reached by authoring only."""
        self.risks = tuple((node, finding.on(target.name)) for node, finding in risks)
        """Nodes that run and whose numbers may be wrong on the chip, with the rule that says so."""

    @classmethod
    def of(cls, target: Target, draft: Draft, log: Sequence[PassLog]) -> Program:
        """What a finished draft is for one of its targets."""
        facts = facts_of(target, check_reads())
        route = program_route(facts, draft.route)
        risks = draft.risks.get(facts.signature, ())
        return cls(target, draft.code, draft.inputs, draft.outputs, log, draft.all_records, route, risks)

    @property
    def lineage(self) -> dict[str, Standing]:
        """Where the value of each of the user's nodes is, or why it no longer exists."""
        return self.module.lineage

    @cached_property
    def _graph(self) -> LayerGraph:
        return LayerGraph.of_module(self.module)

    @cached_property
    def layers(self) -> tuple[ProgramLayer, ...]:
        """Every layer in the order of the schedule."""
        return tuple(ProgramLayer(self, place, layer) for place, layer in enumerate(self._graph.layers))

    @cached_property
    def _places(self) -> dict[int, int]:
        return {layer.number: place for place, layer in enumerate(self._graph.layers)}

    def place_of(self, layer_number: int) -> int:
        """The place in the schedule of a layer by the number that its ops carry."""
        return self._places[layer_number]

    def name_of(self, value: Op) -> int | str:
        """A value as listings name it: the layer that makes it, or the port."""
        layer = self._graph.of.get(value)
        return value.attrs["name"] if layer is None else self._places[layer.number]

    @cached_property
    def plan(self) -> Plan:
        """What the phases decided, with layers by their numbers; read back from labels if the code came as text."""
        plan = plan_of(self.module)
        if plan.is_complete(self.module):
            return plan
        return plan_from_labels(
            self.module, budget(facts_of(self.target, ("max_operand_bytes",))["max_operand_bytes"])
        )

    @cached_property
    def segments(self) -> tuple[Segment, ...]:
        """Dispatches in order."""
        return tuple(segment.at_places(self._places) for segment in self.plan.segments or ())

    @cached_property
    def task_groups(self) -> tuple[TaskGroup, ...]:
        """What runs between two times that the on-chip memory is emptied, in order."""
        return tuple(task_group.at_places(self._places) for task_group in self.plan.task_groups or ())

    @cached_property
    def steps(self) -> tuple[tuple[int, ...], ...]:
        """The schedule as steps: one layer, or two that are issued together."""
        return tuple(tuple(self._places[number] for number in step) for step in self.plan.steps or ())

    @cached_property
    def buffers(self) -> tuple[Buffer, ...]:
        """Every buffer: those of ports first, then in the order of the schedule."""
        return tuple(buffer.at_places(self._places) for buffer in self.plan.buffers or ())

    @cached_property
    def _buffer_of(self) -> dict[Name, Buffer]:
        return {name: buffer for buffer in self.buffers for name in buffer.values}

    def buffer_of(self, place: int) -> Buffer:
        """The buffer that holds the result of a layer."""
        return self._buffer_of[place]

    @property
    def weights(self) -> tuple[StoredWeight, ...]:
        """Stored constants in the order in which they are packed."""
        return self.plan.weights or ()

    @cached_property
    def assumptions(self) -> tuple[tuple[str, str, Fact[Any]], ...]:
        """Facts behind this program that are our own choices: the pass, the fact it read, and its evidence."""
        choices = []
        for entry in self.log:
            for key in PASSES[entry.name].reads:
                fact = facts_of(self.target, PASSES[entry.name].reads).fact(key)
                if (fact.conflict_id or "").startswith("U"):
                    choices.append((entry.name, key, fact))
        return tuple(choices)

    @cached_property
    def stats(self) -> dict[str, Any]:
        """Counts and sizes of the whole program."""
        engines: dict[str, int] = {}
        allocations: dict[str, int] = {}
        for layer in self.layers:
            engines[layer.engine] = engines.get(layer.engine, 0) + 1
            name = layer.allocation.name.lower()
            allocations[name] = allocations.get(name, 0) + 1
        return {
            "segments": len(self.segments),
            "task_groups": len(self.task_groups),
            "layers": len(self.layers),
            "ops": sum(len(layer.ops) for layer in self.layers),
            "engines": dict(sorted(engines.items())),
            "allocations": dict(sorted(allocations.items())),
            "chained": sum(layer.chained for layer in self.layers),
            "co_issued": sum(layer.co_issue is not None for layer in self.layers) // 2,
            "weight_bytes": sum(weight.bytes for weight in self.weights),
            "kernel_bytes": sum(weight.stored_bytes for weight in self.weights),
            "peak_l2": max((group.peak for group in self.task_groups), default=0),
            "memory_bytes": max(
                ((buffer.address or 0) + buffer.bytes for buffer in self.buffers if buffer.space == "dram"), default=0
            ),
        }

    def _phases(self) -> list[dict[str, Any]]:
        return [
            {
                "pass": entry.name,
                "phase": entry.phase,
                "changes": entry.changes,
                "ops_before": entry.ops_before,
                "ops_after": entry.ops_after,
            }
            for entry in self.log
        ]

    def to_json(self) -> dict[str, Any]:
        """All of it as plain values; the same program gives the same text on every machine."""
        return {"target": self.target.name, "route": self.route, **self._content()}

    def _content(self) -> dict[str, Any]:
        return {
            "inputs": [_port(port) for port in self.inputs],
            "outputs": [_port(port) for port in self.outputs],
            "stats": self.stats,
            "segments": [segment.to_json() for segment in self.segments],
            "task_groups": [group.to_json() for group in self.task_groups],
            "layers": [layer.to_json() for layer in self.layers],
            "buffers": [buffer.to_json() for buffer in self.buffers],
            "weights": [weight.to_json() for weight in self.weights],
            "passes": self._phases(),
        }

    @cached_property
    def fingerprint(self) -> str:
        """Equal for equal programs, whatever target they are for."""
        text = json.dumps(self._content(), sort_keys=True, default=list)
        return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()

    @property
    def mlir(self) -> str:
        """The backend code as text, for this program's own target; the module may be shared with others."""
        return write(self.module, self.target.name)

    def __iter__(self) -> Iterator[ProgramLayer]:
        return iter(self.layers)

    def __len__(self) -> int:
        return len(self.layers)

    def __str__(self) -> str:
        from aneforge.compiler.listing import listing

        return listing(self)

    def __repr__(self) -> str:
        stats = self.stats
        return f"<program for {self.target.name}: {stats['layers']} layers, {stats['task_groups']} task groups>"


def _plain(attrs: dict[str, Any]) -> dict[str, Any]:
    """Attributes as JSON has them: JSON has no infinite number, so an open bound is written as text."""
    return {name: str(value) if isinstance(value, float) and isinf(value) else value for name, value in attrs.items()}


def _port(port: Port) -> dict[str, Any]:
    return {"name": port.name, "shape": list(port.user_shape), "ndchw": list(port.ndchw_shape), "dtype": port.dtype}
