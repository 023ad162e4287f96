"""How long each result lives, where it lies, and its allocation type: the nine states of table 22.2."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum

from aneforge.compiler.facts import Facts
from aneforge.compiler.footprint import Footprint, Strides
from aneforge.compiler.labels import schedule_from_labels, spaces_of
from aneforge.compiler.passes import pass_
from aneforge.compiler.plan import plan_of
from aneforge.compiler.schedule.groups import budget, chained_into
from aneforge.compiler.schedule.layers import Layer, LayerGraph
from aneforge.engine.ir import Module, Op
from aneforge.engine.spec import kinds_with
from aneforge.engine.traits import Trait

# When each buffer is needed, who shares it, and whether it stays on chip.


SEVERAL = -1


class LiveBuffer:
    """A stretch of memory to be placed: the values that lie in it, and when they are needed."""

    __slots__ = ("address", "first", "last", "owner", "port", "size", "space", "strides", "task_group", "values")

    def __init__(self, owner: Op, first: int) -> None:
        self.owner = owner
        """The value that gives the buffer its size; the others are views of it or pieces inside it."""
        self.values: list[Op] = [owner]
        self.first = self.last = first
        self.task_group: int | None = None
        """The one task group that makes and reads it; -1 where several do."""
        self.port = owner.kind == "live_in"
        self.size = 0
        self.space = ""
        self.address: int | None = None
        self.strides: Strides | None = None
        """Where it lies, once it has its place."""

    def need(self, step: int, task_group: int | None) -> None:
        """A layer of a task group makes or reads it at a step."""
        self.first = min(self.first, step)
        self.last = max(self.last, step)
        if self.task_group != task_group:
            self.task_group = task_group if self.task_group is None else SEVERAL


class Liveness:
    """The buffers of a scheduled and partitioned module. Views share the buffer of what they rename; a layer that
    carries ``inside`` has its result in another layer's buffer: a piece of a joined concat, or a rewrite in place.

    A compile makes it once. A pass that lets one result lie in the buffer of another says so (:meth:`share`).
    """

    @staticmethod
    def of_module(module: Module, footprint: Footprint, most: int) -> Liveness:
        """The liveness of the module's plan; created by the first pass that asks."""
        plan, graph = plan_of(module), LayerGraph.of_module(module)
        live = plan.live
        if live is None or live.graph is not graph or (live.footprint.rules, live.most) != (footprint.rules, most):
            schedule_from_labels(plan, graph, most)
            live = plan.live = Liveness(graph, plan.steps or (), footprint, most)
        return live

    def __init__(self, graph: LayerGraph, steps: Iterable[Sequence[int]], footprint: Footprint, most: int) -> None:
        self.graph, self.footprint, self.most = graph, footprint, most
        self.of: dict[Op, LiveBuffer] = {}
        self.step = [place for place, step in enumerate(steps) for _ in step]
        """The step of each layer, by its place."""
        self._share()
        for layer in graph.layers:
            step, task_group = self.step[layer.place], layer.task_group
            for value in layer.inputs:
                self._buffer(value).need(step, task_group)
            self._make(layer, step)
        for value in graph.module.output.operands:
            buffer = self.of.get(value)
            if buffer is not None:
                buffer.port = True

    def _share(self) -> None:
        """A buffer with several layers in it is needed from the first of them on."""
        numbers = self.graph.numbered
        for layer in self.graph.layers:
            if layer.inside is None:
                continue
            owner = numbers[layer.inside].result
            buffer = self.of.get(owner)
            if buffer is None:
                buffer = self.of[owner] = LiveBuffer(owner, self.step[layer.place])
                buffer.size = self.footprint.bytes(owner)
            buffer.values.append(layer.result)
            self.of[layer.result] = buffer

    def _make(self, layer: Layer, step: int) -> None:
        result, kind = layer.result, layer.primary.kind
        buffer = self.of.get(result)
        if buffer is None and kind == "ring_buffer_writer":  # it changes the ring that it reads
            buffer = self._buffer(layer.primary.operands[1])
            buffer.values.append(result)
        if buffer is None and layer.is_view:
            source = next(iter(layer.inputs), None)
            if source is not None:
                buffer = self._buffer(source)
                buffer.values.append(result)
        if buffer is None:
            buffer = LiveBuffer(result, step)
            buffer.size = self.footprint.bytes(result)
        self.of[result] = buffer
        buffer.port |= kind == "state"  # it outlives the run, so the caller owns it
        buffer.need(step, layer.task_group)

    def _buffer(self, value: Op) -> LiveBuffer:
        buffer = self.of.get(value)
        if buffer is None:
            buffer = self.of[value] = LiveBuffer(value, 0)
        return buffer

    def share(self, value: Op, buffer: LiveBuffer) -> None:
        """Put a value, and all values of its own buffer, into this buffer, for as long as either is needed."""
        old = self.of[value]
        buffer.need(old.first, old.task_group if old.task_group is not None else buffer.task_group)
        buffer.last = max(buffer.last, old.last)
        buffer.values += old.values
        for moved in old.values:
            self.of[moved] = buffer

    def on_chip(self, buffer: LiveBuffer) -> bool:
        """Whether a buffer is written and read inside one task group, and is no larger than its budget."""
        return not buffer.port and buffer.task_group != SEVERAL and buffer.size <= self.most

    def in_order(self) -> list[LiveBuffer]:
        """Each buffer once: those of ports first, then by the first layer of the schedule that writes to it."""
        of = self.of
        ports = [of[op] for op in self.graph.module.inputs if op in of]
        return list(dict.fromkeys([*ports, *[of[layer.result] for layer in self.graph.layers]]))

    def buffers(self) -> list[LiveBuffer]:
        """Each buffer once, in the order in which they are first needed."""
        return sorted(self.in_order(), key=lambda buffer: buffer.first)


class Allocation(IntEnum):
    """Where a root tensor lives (table 22.2; the names are ours, the numbers the compiler's)."""

    RESIDENT = 0
    STREAMED = 1
    CHAINED = 2
    DEPENDENT = 3
    IN_PLACE = 4
    IN_PLACE_DEPENDENT = 5
    RING = 6
    RING_DEPENDENT = 7  # decoded, and reached by no program: rings run on no engine that is chained (U162)
    IN_PLACE_MEMORY = 8


def allocation_of(chained: bool, dependent: bool, in_place: bool, ring: bool, on_chip: bool) -> Allocation:
    """The state of a result from what is known of it. ``dependent``: the layer reads a chained result from L2."""
    if ring:
        return Allocation.RING_DEPENDENT if dependent else Allocation.RING
    if not on_chip:
        return Allocation.IN_PLACE_MEMORY if in_place else Allocation.STREAMED
    if chained:
        return Allocation.CHAINED
    if in_place:
        return Allocation.IN_PLACE_DEPENDENT if dependent else Allocation.IN_PLACE
    return Allocation.DEPENDENT if dependent else Allocation.RESIDENT


@pass_(
    "assign-allocations",
    4,
    reads=["max_operand_bytes", "dram_alignment", "l2_bank_align"],
    requires=["task groups", "joined concats"],
    ensures=["allocations"],
)
def assign_allocations(module: Module, chip: Facts) -> int:
    """Tag every result with its allocation type (table 22.2), elementwise ones in place; counts what stays on chip."""
    graph = LayerGraph.of_module(module)
    live = Liveness.of_module(module, Footprint(chip), budget(chip["max_operand_bytes"]))
    resident = 0
    pointwise = kinds_with(Trait.IN_PLACE)
    for layer in graph.layers:
        buffer = live.of[layer.result]
        shared = _rewritten(live, layer, buffer) if layer.primary.kind in pointwise else None
        if shared is not None:
            live.share(layer.result, shared)
            buffer = shared
        owner = graph.of.get(buffer.owner)
        in_place = owner is not layer and layer.inside is None
        if in_place and owner is not None:
            layer.inside = owner.number
        on_chip = live.on_chip(buffer)
        layer.chained = chained = layer.chained and on_chip
        layer.allocation = int(allocation_of(chained, chained_into(layer), in_place, layer.is_ring, on_chip))
        resident += on_chip
    return resident


_ELSEWHERE = ("texture", "broadcast", "transpose", "quant")  # slots that move a number or change its size


def _rewritten(live: Liveness, layer: Layer, buffer: LiveBuffer) -> LiveBuffer | None:
    """The buffer that a pointwise layer may overwrite: of the same type and place, read here for the last time."""
    if buffer.owner is not layer.result or buffer.port or len(buffer.values) > 1:
        return None
    if len(layer.ops) > 1 and any(op.slot in _ELSEWHERE for op in layer.ops):
        return None
    step = live.step[layer.place]
    for value in layer.inputs:
        other = live.of[value]
        alone = other.owner is value and not other.port and other.last == step and other.first < step
        if not alone or len(value.users) != 1 or value.type != layer.result.type:
            continue
        if live.on_chip(other) == live.on_chip(buffer):
            return other
    return None


# Dedicated buffers for the results of convolutions.


@pass_(
    "dedicate-buffers",
    4,
    reads=["l2_resident_threshold", "resident_buffer_gate", "dram_alignment", "l2_bank_align"],
    requires=["addresses"],
)
def dedicate_buffers(module: Module, chip: Facts) -> int:
    """AllocateOutputDMADefaultBuffer: a convolution's result up to 0x1f0 bytes gets a buffer of its own (U30)."""
    threshold = chip["l2_resident_threshold"] if chip["resident_buffer_gate"] & 1 else 0
    footprint, convolutions = Footprint(chip), kinds_with(Trait.CONVOLUTION)
    if module.kinds.isdisjoint(convolutions):
        return 0
    dedicated = 0
    graph = LayerGraph.of_module(module)
    space_of = spaces_of(graph)
    for layer in graph.layers:
        if layer.primary.kind in convolutions:
            own = space_of[layer.number] == "l2" and footprint.bytes(layer.result) <= threshold
            layer.buffer = "dedicated" if own else "default"
            dedicated += own
    return dedicated
