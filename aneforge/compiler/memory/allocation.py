"""The allocation type of every result: the nine states of table 22.2."""

from __future__ import annotations

from enum import IntEnum

from aneforge.anec.ir import Module
from aneforge.anec.spec import kinds_with
from aneforge.anec.traits import Trait
from aneforge.compiler.facts import Facts
from aneforge.compiler.footprint import Footprint
from aneforge.compiler.memory.liveness import LiveBuffer, Liveness
from aneforge.compiler.passes import pass_
from aneforge.compiler.schedule.chains import chained_into
from aneforge.compiler.schedule.layers import Layer, LayerGraph
from aneforge.compiler.schedule.task_groups import budget


class Allocation(IntEnum):
    """Where a root tensor lives (table 22.2; the names are ours, the numbers the compiler's)."""

    RESIDENT = 0
    STREAMED = 1
    CHAINED = 2
    DEPENDENT = 3
    IN_PLACE = 4
    IN_PLACE_DEPENDENT = 5
    RING = 6
    RING_DEPENDENT = 7
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
