"""The graph of engine layers that a labelled module describes, and what a layer needs while it runs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cache, lru_cache
from typing import Any

from aneforge.chips import store
from aneforge.chips.suppose import supposed
from aneforge.compiler.plan import Name, Segment, plan_of
from aneforge.engine.ir import AnecError, Module, Op
from aneforge.engine.spec import kinds_with, spec
from aneforge.engine.traits import Trait


@cache
def _engines() -> dict[str, str]:
    return {words: row["v"] for words, row in store.load("choices")["engines"].items()}


def engine_class(op: Op) -> str:
    """NE (multiply-accumulate), PE (planar), TE (texture) or DMA, from the op's engine in the data (U27)."""
    if op.kind == "unit" and op.attrs["type"] in _texture_layers():
        return "TE"
    if op.labels.get("data_path") == "dma":
        return "DMA"
    engine = spec(op.name).engine
    return supposed().get(f"engine:{engine.value}" if engine else "", _class_of(op.name))


@cache
def _texture_layers() -> frozenset[str]:
    """The layers whose support byte is the texture engine's."""
    return frozenset(row["type_tag"] for row in store.load("layers")["layers"] if row["gate_byte"] == "0x81d")


@lru_cache(maxsize=512)
def _class_of(name: str) -> str:
    engine = spec(name).engine
    if engine is None:  # the select and the other native layers without a backend op are planar work
        return "PE"
    return _engines()[engine.value]


def is_view(op: Op) -> bool:
    """Whether an op only renames the bytes it reads. ``flatten`` in another order than stored moves them."""
    return op.is_a(Trait.VIEW) and op.attrs.get("flatten_mode", "NCHW") == "NCHW"


PRINTED = frozenset(("engine", "chained", "co_issue", "task_group", "allocation", "inside", "buffer"))
"""What is decided about a layer and printed under its own name."""
DECISIONS = ("segment", *sorted(PRINTED), "buffer_offset", "strides")
"""All that is decided about a layer."""
_RINGS = kinds_with(Trait.RING)


class Layer:
    """One engine layer: its ops, the layers it waits for, and what phases 2 to 4 decide about it.

    These decisions are here and nowhere else. Where code came as text, they are read from what was printed beside the
    layer's first op; :meth:`aneforge.compiler.plan.Plan.labels_of` prints them.
    """

    __slots__ = (
        *DECISIONS,
        "consumers",
        "inputs",
        "is_output",
        "number",
        "ops",
        "place",
        "primary",
        "producers",
        "result",
        "weights",
    )

    def __init__(self, number: int, place: int, primary: Op) -> None:
        self.number = number
        self.primary = primary
        """The op that the layer is built around."""
        self.result = primary
        """The last of its ops, whose value others read."""
        self.place = place
        """Where the layer stands in the module: its topological order."""
        self.ops: list[Op] = []
        self.producers: list[Layer] = []
        self.consumers: list[Layer] = []
        self.inputs: dict[Op, None] = {}
        """What it reads from outside: results of other layers and ports, each once, constants apart."""
        self.weights: tuple[Op, ...] = ()
        self.is_output = False
        """Whether the program gives this layer's result to its caller."""
        self.segment: int = 0
        self.engine: str = ""
        """NE, PE, TE, DMA, or view where nothing has to be done."""
        self.chained: bool = False
        """Whether its result feeds the next layer inside L2."""
        self.co_issue: int | None = None
        """The number of the layer on the other engine that runs beside it."""
        self.task_group: int | None = None
        self.allocation: int | None = None
        """Table 22.2."""
        self.inside: int | None = None
        """The number of the layer whose buffer holds its result."""
        self.buffer_offset: int | None = None
        """Bytes into that buffer."""
        self.strides: tuple[int, int] | None = None
        """Of the result, from channel to channel and from row to row: a view may have others than its buffer."""
        self.buffer: str | None = None
        """``dedicated`` or ``default`` (0x1f0), for convolutions."""

    @property
    def is_ring(self) -> bool:
        return self.primary.kind in _RINGS

    @property
    def is_view(self) -> bool:
        """Whether nothing has to be done."""
        return self.engine == "view"

    def decide_like(self, other: Layer) -> None:
        """Take over the decisions about the same layer of another list of ops."""
        for name in DECISIONS:
            setattr(self, name, getattr(other, name))

    def printed(self) -> dict[str, Any]:
        """The decisions by the names of their labels; what is not decided is left out."""
        values = {name: getattr(self, name) for name in PRINTED}
        return {
            name: value for name, value in values.items() if value is not None and value is not False and value != ""
        }

    def __repr__(self) -> str:
        return f"<layer {self.number}: {self.primary.kind} x{len(self.ops)}>"


class LayerGraph:
    """All layers of a module, in its order."""

    @staticmethod
    def of_module(module: Module) -> LayerGraph:
        """The graph of a module; rebuilt only where a pass has replaced the list of ops."""
        plan = plan_of(module)
        if plan.graph is None or not plan.graph.describes(module):
            plan.graph = LayerGraph(module, plan.graph)
        return plan.graph

    def __init__(self, module: Module, before: LayerGraph | None = None) -> None:
        """``before`` are the layers of an older list of ops, which have been decided about."""
        self.module = module
        self._listed = module.ops
        self.layers: list[Layer] = []
        self.of: dict[Op, Layer] = {}
        self.numbered: dict[int, Layer] = {}
        """Layers by the number that their ops carry."""
        numbers, ports = self.numbered, kinds_with(Trait.PORT)
        for op in module.ops:
            if op.layer is None:
                if op.kind not in ports:
                    source = ", ".join(op.sources) or "no source"
                    raise AnecError(f"{op.name} from {source} belongs to no layer; run phase 1 (fuse) first")
                continue
            layer = numbers.get(op.layer)
            if layer is None:
                layer = numbers[op.layer] = Layer(op.layer, len(self.layers), op)
                self.layers.append(layer)
            self._add(layer, op)
        for value in module.output.operands:
            if value in self.of:
                self.of[value].is_output = True
        self.has_segments = False
        """Whether segments have been decided, or were printed."""
        if before is None:
            self._take_segments(plan_of(module).segments)
            self._take_labels()
        else:
            self._take_decisions(before)

    def _take_decisions(self, before: LayerGraph) -> None:
        self.has_segments, known = before.has_segments, before.numbered
        for layer in self.layers:
            if layer.number in known:
                layer.decide_like(known[layer.number])

    def _take_segments(self, segments: Iterable[Segment] | None) -> None:
        self.has_segments = segments is not None
        for segment in segments or ():
            for number in segment.layers:
                self.numbered[number].segment = segment.number

    def _take_labels(self) -> None:
        """Read the decisions that were printed beside the ops, and leave them there no longer."""
        for layer in self.layers:
            for op in layer.ops:
                if "segment" in op.labels:
                    self.has_segments, layer.segment = True, op.unmark(("segment",))["segment"]
            for name, value in layer.primary.unmark(PRINTED).items() if layer.primary.labels else ():
                setattr(layer, name, value)

    def labels(self) -> dict[Op, dict[str, Any]]:
        """What is printed beside ops: all decisions beside the first op of a layer, its segment beside every one."""
        labels: dict[Op, dict[str, Any]] = {}
        for layer in self.layers:
            for op in layer.ops:
                labels[op] = {"segment": layer.segment} if self.has_segments else {}
            labels[layer.primary] |= layer.printed()
        return labels

    def _add(self, layer: Layer, op: Op) -> None:
        for operand in op.operands:
            if operand.kind == "const_in":
                layer.weights += (operand,)
                continue
            producer = self.of.get(operand)
            if producer is layer:
                continue
            layer.inputs[operand] = None
            if producer is not None:
                if operand is not producer.result:
                    raise AnecError(
                        f"layer {layer.number} reads a value inside layer {producer.number}; it may only read results"
                    )
                if not producer.consumers or producer.consumers[-1] is not layer:  # a layer's operands come in a row
                    layer.producers.append(producer)
                    producer.consumers.append(layer)
        layer.ops.append(op)
        layer.result = op
        self.of[op] = layer

    def copied(self, module: Module) -> LayerGraph:
        """The layers of a copy of the module, with the same decisions."""
        return LayerGraph(module, self)

    def describes(self, module: Module) -> bool:
        """Whether a module still has the list of ops that these layers were made from."""
        return self._listed is module.ops

    def leaving(self) -> set[Layer]:
        """The layers whose results leave the program, or the segment that makes them."""
        leave = {layer for layer in self.layers if layer.is_output}
        segment_of = {layer: layer.segment for layer in self.layers}
        if len(set(segment_of.values())) > 1:  # most programs are one segment, which nothing leaves on the way
            leave |= {
                layer
                for layer, segment in segment_of.items()
                if any(segment_of[consumer] != segment for consumer in layer.consumers)
            }
        return leave

    def with_borders(self, segments: Iterable[Segment]) -> tuple[Segment, ...]:
        """The segments with what each reads from outside and what it gives, in the order of the schedule."""
        inputs: dict[int, dict[Name, None]] = {}
        outputs: dict[int, list[int]] = {}
        leave = self.leaving()
        for layer in self.layers:
            number = layer.segment
            reads = inputs.setdefault(number, {})
            for value in layer.inputs:
                producer = self.of.get(value)
                if producer is None:
                    reads[value.attrs["name"]] = None
                elif producer in leave and producer.segment != number:
                    reads[producer.number] = None
            if layer in leave:
                outputs.setdefault(number, []).append(layer.number)
        return tuple(
            replace(
                segment, inputs=tuple(inputs.get(segment.number, ())), outputs=tuple(outputs.get(segment.number, ()))
            )
            for segment in segments
        )

    def write_order(self, order: list[Layer]) -> None:
        """Put the module's ops in the order of a schedule: ports first, a constant before its first reader."""
        module = self.module
        ops = [op for op in module.ops if op.name == "anec.live_in"]
        seen: set[Op] = set()
        for layer in order:
            for weight in layer.weights:
                if weight not in seen:
                    seen.add(weight)
                    ops.append(weight)
            ops += layer.ops
        output = module.ops[-1] if module.ops[-1].name == "anec.live_out" else module.output
        # Constants that the program gives out as they are.
        ops += [
            operand
            for operand in dict.fromkeys(output.operands)
            if operand.name == "anec.const_in" and operand not in seen
        ]
        ops.append(output)
        self.layers = order
        for place, layer in enumerate(order):
            layer.place = place
        module.ops = self._listed = ops
        plan_of(module).forget_order()
