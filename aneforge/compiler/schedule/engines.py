"""Which engine runs each layer."""

from __future__ import annotations

from aneforge.anec.ir import Module
from aneforge.anec.spec import kinds_with
from aneforge.anec.traits import Trait
from aneforge.compiler.facts import Facts
from aneforge.compiler.footprint import Footprint
from aneforge.compiler.passes import pass_
from aneforge.compiler.schedule.layers import Layer, LayerGraph, engine_class, is_view


@pass_(
    "assign-engines",
    3,
    reads=["dram_alignment", "l2_bank_align"],
    requires=["layers"],
    ensures=["engines"],
)
def assign_engines(module: Module, chip: Facts) -> int:
    """Give every layer its engine: NE, PE, TE, DMA, or view where nothing has to be done."""
    graph = LayerGraph.of_module(module)
    footprint = Footprint(chip)
    views = kinds_with(Trait.VIEW)
    for layer in graph.layers:
        is_free = layer.primary.kind in views and _is_free(layer, footprint)
        layer.engine = "view" if is_free else engine_class(layer.primary)
    return len(graph.layers)


def _is_free(layer: Layer, footprint: Footprint) -> bool:
    """A view that only renames bytes costs nothing. Rows of another length lie elsewhere, so that is a copy; so is a
    program's input that is returned as its output."""
    if len(layer.ops) > 1 or not is_view(layer.primary):
        return False
    source = layer.primary.operands[0]
    if source.kind in ("live_in", "const_in") and (layer.is_output or source.kind == "const_in"):
        return False
    return footprint.same_bytes(source, layer.result)
