"""The program: what the four phases decided, as everything downstream reads it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any

from aneforge.chips.chip import Target
from aneforge.chips.evidence import Fact
from aneforge.compiler.draft import Draft
from aneforge.compiler.facts import facts_of
from aneforge.compiler.labels import plan_from_labels
from aneforge.compiler.legal.check import check_reads, program_route
from aneforge.compiler.legal.findings import NumberFinding
from aneforge.compiler.lower import Port
from aneforge.compiler.passes import PASSES, PassLog
from aneforge.compiler.plan import Buffer, Plan, Segment, StoredWeight, TaskGroup, plan_of
from aneforge.compiler.record import Record
from aneforge.compiler.schedule.groups import budget
from aneforge.compiler.shown import ProgramLayer, Schedule
from aneforge.engine.ir import Module
from aneforge.engine.lineage import Standing
from aneforge.engine.text import write
from aneforge.frames import Tabular

# The objects of the plan as a program shows them: each layer by its place in the schedule.
ProgramSegment = Segment
ProgramWeight = StoredWeight


class Program(Tabular):
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
        risks: Sequence[tuple[str, NumberFinding]] = (),
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
        """Nodes that give wrong numbers on the chip whatever the data, with the rule that says so. What depends on the
        data is for ``aneforge.risks``."""

    @classmethod
    def of(cls, target: Target, draft: Draft, log: Sequence[PassLog]) -> Program:
        """What a finished draft is for one of its targets."""
        facts = facts_of(target, check_reads())
        route = program_route(facts, draft.route)
        risks = [
            (node, finding)
            for node, judgement in draft.judgements.get(facts.signature, ())
            for finding in judgement.findings
            if isinstance(finding, NumberFinding)
        ]
        return cls(target, draft.code, draft.inputs, draft.outputs, log, draft.all_records, route, risks)

    @property
    def lineage(self) -> dict[str, Standing]:
        """Where the value of each of the user's nodes is, or why it no longer exists."""
        return self.module.lineage

    @cached_property
    def schedule(self) -> Schedule:
        """The plan with each layer by its place. Programs of one module share it."""
        return Schedule.of(self.module, lambda: self.plan)

    @cached_property
    def layers(self) -> tuple[ProgramLayer, ...]:
        """Every layer in the order of the schedule."""
        return self.schedule.layers

    def records(self) -> list[dict[str, Any]]:
        """A row for each layer of the schedule."""
        return [
            {
                "layer": layer.number,
                "op": layer.op,
                "engine": layer.engine,
                "nodes": ", ".join(layer.sources),
                "shape": list(layer.shape),
                "segment": layer.segment,
                "in_slots": ", ".join(slot.op for slot in layer.slots),
            }
            for layer in self.layers
        ]

    def place_of(self, layer_number: int) -> int:
        """The place in the schedule of a layer by the number that its ops carry."""
        return self.schedule.places[layer_number]

    @cached_property
    def plan(self) -> Plan:
        """What the phases decided, with layers by their numbers; read back from labels if the code came as text."""
        plan = plan_of(self.module)
        if plan.is_complete(self.module):
            return plan
        return plan_from_labels(
            self.module, budget(facts_of(self.target, ("max_operand_bytes",))["max_operand_bytes"])
        )

    @property
    def segments(self) -> tuple[Segment, ...]:
        """Dispatches in order."""
        return self.schedule.segments

    @property
    def task_groups(self) -> tuple[TaskGroup, ...]:
        """What runs between two times that the on-chip memory is emptied, in order."""
        return self.schedule.task_groups

    @property
    def steps(self) -> tuple[tuple[int, ...], ...]:
        """The schedule as steps: one layer, or two that are issued together."""
        return self.schedule.steps

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """Every buffer: those of ports first, then in the order of the schedule."""
        return self.schedule.buffers

    def buffer_of(self, place: int) -> Buffer:
        """The buffer that holds the result of a layer."""
        return self.schedule.buffers_by_name[place]

    @property
    def weights(self) -> tuple[StoredWeight, ...]:
        """Stored constants in the order in which they are packed."""
        return self.plan.weights or ()

    @cached_property
    def assumptions(self) -> tuple[tuple[str, str, Fact[Any]], ...]:
        """Facts behind this program that are our own choices: the pass, the fact it read, and its evidence."""
        choices = []
        for entry in self.log:
            facts = facts_of(self.target, PASSES[entry.name].reads)
            for key in PASSES[entry.name].reads:
                if (facts.fact(key).conflict_id or "").startswith("U") and self._rests_on(key, entry):
                    choices.append((entry.name, key, facts.fact(key)))
        return tuple(choices)

    def _rests_on(self, key: str, entry: PassLog) -> bool:
        """Whether a fact could decide anything here: it is about something that the program holds or had rewritten,
        or, where nothing says what it is about, its pass changed something."""
        if key in _ABOUT:
            return _ABOUT[key](self)
        prefix, _, op = key.partition(":")
        if prefix not in ("op", "direct"):
            return entry.changes > 0
        asked = "direct" if self.route == "direct" else "op"
        return prefix == asked and (op in self.module.kinds or any(row.row.because == key for row in self.rewrites))

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


def _has_palettes(program: Program) -> bool:
    return any("lut" in (weight.folded_from or weight.encoding) for weight in program.weights)


_ABOUT: dict[str, Callable[[Program], bool]] = {
    "cap:conv_kernel_w_fp16": lambda program: "convolution" in program.module.kinds,
    "chaining_enable": lambda program: len(program.layers) > 1,
    "kernel_lanes": lambda program: any(weight.flow is not None for weight in program.weights),
    "minmax_norm": lambda program: any(op.full_kind == "unit:MinMaxNorm" for op in program.module.ops),
    "one_by_one_upsample": lambda program: any(e.name == "resize-strategies" and e.changes for e in program.log),
    "palette_tables": _has_palettes,
    "palette_vectors": _has_palettes,
}
"""What a program must hold for a fact to matter that a pass may read without changing anything."""


def _port(port: Port) -> dict[str, Any]:
    return {"name": port.name, "shape": list(port.user_shape), "ndchw": list(port.ndchw_shape), "dtype": port.dtype}
