"""Dedicated buffers for the results of convolutions."""

from __future__ import annotations

from aneforge.anec.ir import Module
from aneforge.anec.spec import kinds_with
from aneforge.anec.traits import Trait
from aneforge.compiler.facts import Facts
from aneforge.compiler.footprint import Footprint
from aneforge.compiler.labels import spaces_of
from aneforge.compiler.passes import pass_
from aneforge.compiler.schedule.layers import LayerGraph


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
