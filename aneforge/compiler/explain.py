"""Explain what became of each of the user's nodes: compile again and record the effect of every pass on each node."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from aneforge.anec.ir import Module, Op
from aneforge.anec.traits import Trait
from aneforge.compiler.passes import Pass, PassLog
from aneforge.compiler.program import Program, ProgramLayer
from aneforge.compiler.record import Record
from aneforge.errors import UnknownNameError, nearest
from aneforge.graph.graph import Graph
from aneforge.graph.node import located
from aneforge.graph.traits import GraphTrait
from aneforge.output.grouped import counted
from aneforge.targets.assumed import compile_fact

MOST_SHOWN = 8
"""A node that was split into hundreds of pieces shows this many of them; JSON has them all."""


@dataclass(frozen=True)
class Step:
    """What one pass turned a node into."""

    pass_name: str
    purpose: str
    becomes: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.pass_name}: {', '.join(self.becomes) or 'nothing is left of it'}"


@dataclass
class NodeStory:
    """One node of the user's graph, from its op to the layers of the program."""

    name: str
    op: str
    shape: tuple[int, ...]
    where: str
    why_rewritten: tuple[str, ...] = ()
    steps: list[Step] = field(default_factory=list)
    layers: tuple[int, ...] = ()
    """Its layers by number, in the order of the schedule."""
    places: tuple[str, ...] = ()
    """The same in words: engine, slots, task group and where the result is stored."""
    value: str = ""
    """Where its own value is, or why there is no such value."""

    def __str__(self) -> str:
        lines = [f"{self.name} ({self.op} {list(self.shape)}, {self.where})"]
        lines += [f"  rewritten: {reason}" for reason in self.why_rewritten]
        for step in self.steps:
            lines.append(f"  {step}")
            if step.purpose:
                lines.append(f"      {step.purpose}")
        shown = self.places[:MOST_SHOWN]
        lines += [f"  program: {place}" for place in shown]
        if len(self.places) > len(shown):
            lines.append(f"  program: and {len(self.places) - len(shown)} more layers")
        if not self.places:
            lines.append("  program: no layer of its own")
        lines.append(f"  value: {self.value}")
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        steps = [
            {"pass": step.pass_name, "purpose": step.purpose, "becomes": list(step.becomes)} for step in self.steps
        ]
        return {
            "name": self.name,
            "op": self.op,
            "shape": list(self.shape),
            "where": self.where,
            "rewritten": list(self.why_rewritten),
            "steps": steps,
            "layers": list(self.layers),
            "places": list(self.places),
            "value": self.value,
        }


class History:
    """Watches a pipeline and notes, node by node, what each pass changed."""

    def __init__(self) -> None:
        self.steps: dict[str, list[Step]] = {}
        self._last: dict[str, tuple[str, ...]] = {}

    def __call__(self, step: Pass, entry: PassLog, module: Module) -> None:
        if step.name == "lower":
            self._note(step.name, "Lowering: the node in the engine's language.", module, slots=False)
        elif entry.changes or step.name == "label-layers":
            self._note(step.name, step.purpose, module, slots=step.phase > 1 or step.name == "label-layers")

    def _note(self, name: str, purpose: str, module: Module, slots: bool) -> None:
        now: dict[str, list[str]] = {}
        for op in module.ops:
            if op.is_a(Trait.PORT):
                continue
            shown = op.full_kind
            if slots and op.slot not in (None, "primary"):
                shown += f" in the {op.slot} slot"
            data_path = op.labels.get("data_path")
            shown = f"{shown} by the {data_path} data path" if data_path else shown
            for source in op.sources:
                now.setdefault(source, []).append(shown)
        for source in {**self._last, **now}:
            becomes = counted(now.get(source, []))
            if becomes != self._last.get(source, ()):
                self.steps.setdefault(source, []).append(Step(name, purpose, becomes))
                self._last[source] = becomes


def _place(layer: ProgramLayer) -> str:
    state = layer.allocation.name.lower().replace("_", " ")
    return f"layer {layer}, task group {layer.task_group}, result {state} in {layer.buffer.space}"


def _rewritten(record: Record, program: Program) -> str:
    fact = compile_fact(program.target, record.row.because)
    return f"{record.rewrite}: {record.row.into}; {record.bound} {fact.label()}"


def _value(program: Program, name: str) -> str:
    """The lineage of a node in words."""
    standing = program.lineage.get(name)
    if standing is None:
        return "none: it is a constant"
    if standing.reason is not None:
        return f"gone: {standing.reason}"
    places = [_place_in_words(program, op) for op in standing.ops()]
    shown = ", ".join(places[:MOST_SHOWN]) + (
        f" and {len(places) - MOST_SHOWN} more" if len(places) > MOST_SHOWN else ""
    )
    return shown if standing.op is not None else f"{shown}, moved by {standing.move.kind if standing.move else ''}"


def _place_in_words(program: Program, op: Op) -> str:
    if op.layer is not None:
        return f"{op.full_kind} of layer {program.place_of(op.layer)}"
    return f"{op.kind} of input {op['name']}" if op.is_a(Trait.INPUT) else "a stored constant"


class Explanation:
    """The stories of all nodes, in the order of the graph."""

    def __init__(self, graph: Graph, program: Program, history: History) -> None:
        rewritten: dict[str, list[str]] = {}
        for record in program.rewrites:
            rewritten.setdefault(record.node, []).append(_rewritten(record, program))
        layers: dict[str, list[int]] = {}
        for layer in program.layers:
            for source in layer.sources:
                layers.setdefault(source, []).append(layer.number)
        names = graph.names()
        self.target = program.target.name
        self.nodes: dict[str, NodeStory] = {}
        for node in graph.nodes:
            if node.is_a(GraphTrait.PORT) or node.is_a(GraphTrait.STORED):
                continue
            name = names[node.uid]
            story = NodeStory(name, node.op, node.shape, located(node.where), tuple(rewritten.get(name, ())))
            story.steps = history.steps.get(name, [])
            story.layers = tuple(layers.get(name, ()))
            story.places = tuple(_place(program.layers[number]) for number in story.layers)
            story.value = _value(program, name)
            self.nodes[name] = story

    def __getitem__(self, name: str) -> NodeStory:
        if name not in self.nodes:
            near = ", ".join(nearest(name, self.nodes)) or ", ".join(list(self.nodes)[:4])
            raise UnknownNameError(f"{name!r}: not a node of this graph; nearest: {near}")
        return self.nodes[name]

    def __iter__(self) -> Iterator[NodeStory]:
        return iter(self.nodes.values())

    def __str__(self) -> str:
        return "\n\n".join(str(story) for story in self) + "\n"

    def to_json(self) -> dict[str, Any]:
        return {"target": self.target, "nodes": [story.to_json() for story in self]}
