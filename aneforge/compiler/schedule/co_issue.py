"""Parallel execution: one multiply-accumulate layer and one planar layer that run side by side."""

from __future__ import annotations

import heapq

from aneforge.anec.ir import Module
from aneforge.compiler.facts import Facts
from aneforge.compiler.footprint import Footprint
from aneforge.compiler.passes import pass_
from aneforge.compiler.schedule.chains import chained_into
from aneforge.compiler.schedule.layers import Layer, LayerGraph
from aneforge.compiler.schedule.partitions import budget
from aneforge.targets.assumed import constant

__all__ = ["co_issue_obstacle"]

_OTHER = {"NE": "PE", "PE": "NE"}


@pass_(
    "discover-co-issue",
    3,
    reads=["max_operand_bytes", "dram_alignment", "l2_bank_align", "max_l2_dst_stride"],
    requires=["chains"],
    ensures=["co-issue"],
)
def discover_co_issue(module: Module, chip: Facts) -> int:
    """Pair layers of the two engines that nothing keeps apart; the later one moves beside the earlier (U37)."""
    graph = LayerGraph.of_module(module)
    footprint, working_set = Footprint(chip), chip["max_operand_bytes"]
    pairs = _pairs(graph.layers, footprint, working_set)
    moved = set(pairs.values())
    order: list[Layer] = []
    for layer in graph.layers:
        if layer not in moved:
            order += [layer, pairs[layer]] if layer in pairs else [layer]
    late = _held_back(order, {*pairs, *moved}, footprint, working_set)
    for first, second in [*pairs.items(), *late]:
        first.primary.labels["co_issue"], second.primary.labels["co_issue"] = second.number, first.number
    if pairs or late:
        graph.write_order(order)
    return len(pairs) + len(late)


def _held_back(
    order: list[Layer], taken: set[Layer], footprint: Footprint, working_set: int
) -> list[tuple[Layer, Layer]]:
    """Products that wait for a softmax, and it: the attention block, the pair that chapter 22 names.

    The projection of the values stands before the scores and is needed behind the softmax only, so it can run beside
    it. What reads the product in between, a view of it for one, waits too. Changes the order.
    """
    reach = constant("co_issue_reach")
    found: list[tuple[Layer, Layer]] = []
    for here, softmax in enumerate(order):
        if softmax.primary.kind != "softmax" or softmax in taken:
            continue
        for place in range(here - 1, max(here - reach, 0) - 1, -1):
            product = order[place]
            if product.engine != "NE" or co_issue_obstacle(product, softmax, footprint, working_set) is not None:
                continue
            waiting = _readers_among(product, order[place + 1 : here])
            if not waiting.isdisjoint(softmax.producers) or any(_is_tied(each, taken) for each in (product, *waiting)):
                continue
            held = [layer for layer in order[place:here] if layer is product or layer in waiting]
            stay = [layer for layer in order[place:here] if layer not in waiting and layer is not product]
            order[place : here + 1] = [*stay, softmax, *held]
            taken |= {product, softmax}
            found.append((softmax, product))
            break
    return found


def _readers_among(product: Layer, between: list[Layer]) -> set[Layer]:
    """Layers that read a product, or what another of them makes of it."""
    found = {product}
    for layer in between:
        if not found.isdisjoint(layer.producers):
            found.add(layer)
    return found - {product}


def _is_tied(layer: Layer, taken: set[Layer]) -> bool:
    """Whether a layer has to stay beside another."""
    return layer in taken or "chained" in layer.primary.labels or chained_into(layer)


def _pairs(layers: list[Layer], footprint: Footprint, working_set: int) -> dict[Layer, Layer]:
    """Earlier layer to later layer. A layer can start once all it reads stands before; from then on it waits in the
    queue of its engine, and each layer of the other engine that runs meanwhile may take it along."""
    reach = constant("co_issue_reach")
    place = {layer: number for number, layer in enumerate(layers)}
    starts: list[list[Layer]] = [[] for _ in layers]
    for layer in layers:
        if layer.engine in _OTHER:
            ready = 1 + max((place[producer] for producer in layer.producers), default=-1)
            starts[max(ready, place[layer] - reach)].append(layer)
    queues: dict[str, list[tuple[int, Layer]]] = {"NE": [], "PE": []}
    pairs: dict[Layer, Layer] = {}
    taken: set[Layer] = set()
    moved: dict[Layer, int] = {}
    for here, layer in enumerate(layers):
        for each in starts[here]:
            heapq.heappush(queues[each.engine], (place[each], each))
        if layer.engine not in _OTHER or layer in taken:
            continue
        queue = queues[_OTHER[layer.engine]]
        while queue and (queue[0][0] <= here or queue[0][1] in taken):
            heapq.heappop(queue)
        if queue and co_issue_obstacle(layer, queue[0][1], footprint, working_set) is None:
            partner = heapq.heappop(queue)[1]
            pairs[layer] = partner
            taken |= {layer, partner}
            moved[partner] = here
            for reader in partner.consumers:  # what has moved up makes its readers ready earlier
                ready = 1 + max(moved.get(producer, place[producer]) for producer in reader.producers)
                if reader.engine in _OTHER and ready < place[reader]:
                    starts[max(ready, here + 1, place[reader] - reach)].append(reader)
    return pairs


def co_issue_obstacle(first: Layer, second: Layer, footprint: Footprint, working_set: int) -> str | None:
    """Why two scheduled layers cannot run side by side; None if they can. Stored weights never count as streams, so
    the resident weight of a product does not block its partner."""
    if first.engine == second.engine or {first.engine, second.engine} != {"NE", "PE"}:
        return "they are not one multiply-accumulate layer and one planar layer"
    if first.segment != second.segment:
        return "they run in different programs"
    if second in first.consumers or first in second.consumers:
        return "one makes what the other reads"
    if any("chained" in layer.primary.labels or chained_into(layer) for layer in (first, second)):
        return "one is chained"
    if all(_streams(layer, footprint, working_set) for layer in (first, second)):
        return "both results stream to memory"
    return None


def _streams(layer: Layer, footprint: Footprint, working_set: int) -> bool:
    """Whether a result is known to leave the chip before partitions are closed."""
    crosses = any(consumer.segment != layer.segment for consumer in layer.consumers)
    return layer.is_output or crosses or footprint.bytes(layer.result) > budget(working_set)
