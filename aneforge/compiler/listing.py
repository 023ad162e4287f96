"""A program as text that a person can follow from nodes to addresses, and the story of one node through the passes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from aneforge.chips.assumed import compile_fact
from aneforge.compiler.cuts import cuts_of
from aneforge.compiler.fuse.scales import goc_guard
from aneforge.compiler.memory.allocation import Allocation
from aneforge.compiler.passes import Pass, PassLog
from aneforge.compiler.program import Program, ProgramLayer, ProgramSegment
from aneforge.compiler.record import Record
from aneforge.engine.ir import Module, Op
from aneforge.engine.traits import Trait
from aneforge.errors import UnknownNameError, nearest
from aneforge.graph.graph import Graph
from aneforge.graph.node import located
from aneforge.graph.traits import GraphTrait
from aneforge.text import counted, human_bytes

_STATES = {
    Allocation.RESIDENT: "resident",
    Allocation.STREAMED: "streamed",
    Allocation.CHAINED: "chained",
    Allocation.DEPENDENT: "resident, reads a chain",
    Allocation.IN_PLACE: "in place",
    Allocation.IN_PLACE_DEPENDENT: "in place, reads a chain",
    Allocation.RING: "ring buffer",
    Allocation.RING_DEPENDENT: "ring buffer, reads a chain",
    Allocation.IN_PLACE_MEMORY: "in place in memory",
}


def listing(program: Program) -> str:
    """Segments, task groups and layers in the order of the schedule, with where each result lies and which nodes it is
    for; then what crosses where native layers cut it."""
    stats = program.stats
    chips = ", ".join(program.target.chips) or "no product known"
    lines = [
        f"program for {program.target.name} ({chips}){_route(program)}",
        f"{_count(stats['segments'], 'segment')}, {_count(stats['task_groups'], 'task group')}, "
        f"{_count(stats['layers'], 'layer')} of {stats['ops']} ops, {stats['chained']} chained, "
        f"{_count(stats['co_issued'], 'pair')} co-issued",
        f"weights {human_bytes(stats['weight_bytes'])} (packed {human_bytes(stats['kernel_bytes'])}), "
        f"peak on chip {human_bytes(stats['peak_l2'])}, memory for intermediates {human_bytes(stats['memory_bytes'])}",
    ]
    lines += [f"input {port.name} {_shape(port.ndchw_shape)} {port.dtype}" for port in program.inputs]
    task_groups = {group.number: group for group in program.task_groups}
    weights = {weight.key: weight for weight in program.weights}
    for segment in program.segments:
        lines.append(f"segment {segment.number} ({segment.kind}){_reads(segment)}")
        current = None
        for number in segment.layers:
            layer = program.layers[number]
            if layer.task_group != current:
                current = layer.task_group
                group = task_groups[current]
                lines.append(f"  task group {current}: peak {human_bytes(group.peak)} of {human_bytes(group.budget)}")
            lines += _layer(layer, weights)
    lines += [f"output {port.name} {_shape(port.ndchw_shape)} {port.dtype}" for port in program.outputs]
    lines += map(str, cuts_of(program))
    return "\n".join(lines) + "\n"


def _route(program: Program) -> str:
    return ", built by the direct route (authored layers, no conversion)" if program.route == "direct" else ""


def _layer(layer: ProgramLayer, weights: dict[str, Any]) -> list[str]:
    absorbed = "".join(f" + {slot.op}" for slot in layer.slots)
    buffer = layer.buffer
    offset = layer.labels.get("buffer_offset", 0)
    where = buffer.space if buffer.address is None else f"{buffer.space} {buffer.address + offset:#x}"
    read = ", ".join(str(source) for source in layer.inputs)
    beside = f", beside {layer.co_issue}" if layer.co_issue is not None else ""
    notes = [text for text in (_notes(layer), _flows(layer, weights)) if text]
    work = f"{layer.op}{_window(layer)}{absorbed}"
    lines = [
        f"    {layer.number:>4} {layer.engine:<4} {work} {_shape(layer.shape)} <- {read or '-'}",
        f"              {int(layer.allocation)} {_STATES[layer.allocation]}, {where}, "
        f"live {buffer.live[0]}-{buffer.live[1]}{beside}{''.join(f'; {note}' for note in notes)}",
        f"              from {', '.join(layer.sources) or 'the compiler'}",
    ]
    return lines


def _window(layer: ProgramLayer) -> str:
    attrs = layer.attrs
    if "kernel_sizes" in attrs:
        _, height, width = attrs["kernel_sizes"]
        _, rows, columns = attrs["strides"]
        groups = f" g{attrs['groups']}" if attrs["groups"] > 1 else ""
        return f" {height}x{width}{_stride(rows, columns)}{groups}"
    if "ksize" in attrs:
        _, height, width = attrs["ksize"]
        _, rows, columns = attrs["stride"]
        return f" {height}x{width}{_stride(rows, columns)}"
    return ""


def _stride(rows: int, columns: int) -> str:
    if rows == columns == 1:
        return ""
    return f"/{rows}" if rows == columns else f"/{rows}x{columns}"


def _notes(layer: ProgramLayer) -> str:
    labels = layer.labels
    notes = []
    if "piece" in labels:
        notes.append(f"piece {labels['piece'][0] + 1} of {labels['piece'][1]}")
    if "sub_layers" in labels:
        passes = f"{layer.passes} pass{'es' if layer.passes > 1 else ''}"
        notes.append(f"{passes} by lane, or {labels['sub_layers']} layers of 64 KB (U28)")
    if "data_path" in labels:
        notes.append(f"{labels['data_path']} data path" + (f" as {labels['storage']}" if "storage" in labels else ""))
    if "large_kernel" in labels:
        notes.append("large-kernel mode")
    if "inside" in labels:
        notes.append(f"in the buffer of {layer.buffer.values[0]}" if layer.buffer.values[0] != layer.number else "")
    return ", ".join(text for text in notes if text)


def _flows(layer: ProgramLayer, weights: dict[str, Any]) -> str:
    flows = []
    for key in layer.weights:
        weight = weights.get(key)
        if weight is not None and weight.flow is not None:
            flow = "streamed" if weight.flow == "stream" else "folded"
            flow = flow if weight.folded_from is None else f"folded from {weight.folded_from}"
            flows.append(f"{human_bytes(weight.bytes)} of weights {flow}, {weight.path}")
    return ", ".join(flows)


def _reads(segment: ProgramSegment) -> str:
    return f" reads {', '.join(str(source) for source in segment.inputs)}" if segment.inputs else ""


def _shape(shape: tuple[int, ...]) -> str:
    return "x".join(str(extent) for extent in shape)


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


# Explain what became of each of the user's nodes: compile again and record the effect of every pass on each node.


MOST_SHOWN = 8
"""A node that was split into hundreds of pieces shows this many of them; JSON has them all."""


@dataclass(frozen=True)
class HistoryStep:
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
    steps: list[HistoryStep] = field(default_factory=list)
    layers: tuple[int, ...] = ()
    """Its layers by number, in the order of the schedule."""
    places: tuple[str, ...] = ()
    """The same in words: engine, slots, task group and where the result is stored."""
    barrier: str = ""
    """Why it is no gain and offset of another layer, in the compiler's words."""
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
        if self.barrier:
            lines.append(f'  not folded: both operands are computed ("{self.barrier}")')
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
            "barrier": self.barrier,
            "value": self.value,
        }


class History:
    """Watches a pipeline and notes, node by node, what each pass changed."""

    def __init__(self) -> None:
        self.steps: dict[str, list[HistoryStep]] = {}
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
                self.steps.setdefault(source, []).append(HistoryStep(name, purpose, becomes))
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
        barriers = {
            source: words for op in program.module.ops if (words := goc_guard(op)) is not None for source in op.sources
        }
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
            story.barrier = barriers.get(name, "")
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
