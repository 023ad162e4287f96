"""Chaining: a result that stays in L2 and feeds the next layer in place, the structural form of double-buffering."""

from __future__ import annotations

from itertools import pairwise

from aneforge.anec.ir import Module
from aneforge.compiler.facts import Facts
from aneforge.compiler.passes import pass_
from aneforge.compiler.schedule.layers import Layer, LayerGraph
from aneforge.compiler.schedule.tiles import first_tile_rows, tile_count, tile_rows

_COMPUTE = ("NE", "PE")


@pass_("discover-chains", 3, reads=["chaining_enable", "max_operand_bytes"], requires=["schedule"], ensures=["chains"])
def discover_chains(module: Module, chip: Facts) -> int:
    """IsChainable: mark the producer of every pair of neighbours that meets all conditions (allocation type 2)."""
    layers = LayerGraph.of_module(module).layers
    enabled, working_set = bool(chip["chaining_enable"]), chip["max_operand_bytes"]
    chained = 0
    for producer, consumer in pairwise(layers):
        if chain_obstacle(producer, consumer, enabled, working_set) is None:
            producer.chained = True
            chained += 1
    return chained


def chain_obstacle(producer: Layer, consumer: Layer, enabled: bool, working_set: int) -> str | None:
    """Why two neighbours in the schedule are not chained; None if they are. It depends on the pattern, not on
    sizes."""
    if not enabled:
        return "the chip's chaining bit is clear"
    if len(producer.consumers) != 1 or producer.is_output:
        return "the producer has more than one outgoing layer"
    if consumer not in producer.consumers:
        return "the consumer is not scheduled right after its producer"
    if producer.segment != consumer.segment:
        return "they run in different segments"
    if producer.engine != consumer.engine or producer.engine not in _COMPUTE:
        return "they are not of one engine class on one engine"
    tiles = tile_count(producer, working_set)
    if tiles != tile_count(consumer, working_set):
        return "the producer's tiles do not match what the consumer declares"
    if tiles > 1 and tile_rows(producer, working_set) < first_tile_rows(consumer, producer.result, working_set):
        return "the producer's rows do not cover the consumer's first tile"
    return None


def chained_into(layer: Layer) -> bool:
    """Whether the layer reads a chained result."""
    return any(producer.chained for producer in layer.producers)
