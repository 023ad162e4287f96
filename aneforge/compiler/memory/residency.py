"""Dedicated buffers for the results of convolutions."""

from __future__ import annotations

from aneforge.anec.ir import Module
from aneforge.anec.traits import Trait
from aneforge.compiler.facts import Facts
from aneforge.compiler.footprint import Footprint
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
    footprint = Footprint(chip)
    dedicated = 0
    for layer in LayerGraph.of_module(module).layers:
        if layer.primary.is_a(Trait.CONVOLUTION):
            own = layer.primary.labels["space"] == "l2" and footprint.bytes(layer.result) <= threshold
            layer.primary.labels["buffer"] = "dedicated" if own else "default"
            dedicated += own
    return dedicated
