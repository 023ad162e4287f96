"""Parallel execution: one multiply-accumulate layer and one planar layer that run side by side."""

from __future__ import annotations

import heapq

from aneforge.anec.ir import Module
from aneforge.compiler.facts import Facts
from aneforge.compiler.footprint import Footprint
from aneforge.compiler.passes import pass_
from aneforge.compiler.schedule.chains import chained_into
from aneforge.compiler.schedule.layers import Layer, LayerGraph
from aneforge.compiler.schedule.task_groups import budget
from aneforge.targets.assumed import constant

_OTHER = {"NE": "PE", "PE": "NE"}


@pass_(
    "discover-co-issue",
    3,
    reads=["max_operand_bytes", "dram_alignment", "l2_bank_align"],
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
    late = _pair_softmax(order, {*pairs, *moved}, footprint, working_set)
    for first, second in [*pairs.items(), *late]:
        first.co_issue, second.co_issue = second.number, first.number
    if pairs or late:
        graph.write_order(order)
    return len(pairs) + len(late)


def _pair_softmax(
    order: list[Layer], taken: set[Layer], footprint: Footprint, working_set: int
) -> list[tuple[Layer, Layer]]:
    """Pair each softmax with a product that can wait for it: the attention block, the pair that chapter 22 names.

    The projection of the values comes before the scores and is needed only after the softmax, so it can run beside the
    softmax. Layers between them that read the product, for example a view of it, wait too. Changes ``order`` in place.
    """
    reach = constant("co_issue_reach")
    pairs: list[tuple[Layer, Layer]] = []
    for position, softmax in enumerate(order):
        if softmax.primary.kind != "softmax" or softmax in taken:
            continue
        for place in range(position - 1, max(position - reach, 0) - 1, -1):
            product = order[place]
            if product.engine != "NE" or co_issue_obstacle(product, softmax, footprint, working_set) is not None:
                continue
            waiting = _readers_among(product, order[place + 1 : position])
            if not waiting.isdisjoint(softmax.producers) or any(
                _is_tied(layer, taken) for layer in (product, *waiting)
            ):
                continue
            delayed = [layer for layer in order[place:position] if layer is product or layer in waiting]
            stay = [layer for layer in order[place:position] if layer not in waiting and layer is not product]
            order[place : position + 1] = [*stay, softmax, *delayed]
            taken |= {product, softmax}
            pairs.append((softmax, product))
            break
    return pairs


def _readers_among(product: Layer, between: list[Layer]) -> set[Layer]:
    """Layers that read a product, or a result that depends on it."""
    readers = {product}
    for layer in between:
        if not readers.isdisjoint(layer.producers):
            readers.add(layer)
    return readers - {product}


def _is_tied(layer: Layer, taken: set[Layer]) -> bool:
    """Whether a layer has to stay beside another."""
    return layer in taken or layer.chained or chained_into(layer)


def _pairs(layers: list[Layer], footprint: Footprint, working_set: int) -> dict[Layer, Layer]:
    """Earlier layer to later layer. A layer can start once all it reads comes before it; from then on it waits in the
    queue of its engine, and each layer of the other engine that runs meanwhile may be paired with it."""
    reach = constant("co_issue_reach")
    starts: list[list[Layer]] = [[] for _ in layers]
    for layer in layers:
        if layer.engine in _OTHER:
            earliest = 1 + max([producer.place for producer in layer.producers], default=-1)
            starts[max(earliest, layer.place - reach)].append(layer)
    queues: dict[str, list[tuple[int, Layer]]] = {"NE": [], "PE": []}
    pairs: dict[Layer, Layer] = {}
    taken: set[Layer] = set()
    moved: dict[Layer, int] = {}
    for position, layer in enumerate(layers):
        for candidate in starts[position]:
            heapq.heappush(queues[candidate.engine], (candidate.place, candidate))
        if layer.engine not in _OTHER or layer in taken:
            continue
        queue = queues[_OTHER[layer.engine]]
        while queue and (queue[0][0] <= position or queue[0][1] in taken):
            heapq.heappop(queue)
        if queue and co_issue_obstacle(layer, queue[0][1], footprint, working_set) is None:
            partner = heapq.heappop(queue)[1]
            pairs[layer] = partner
            taken |= {layer, partner}
            moved[partner] = position
            for reader in partner.consumers:  # the partner has moved up, so its readers can start earlier
                earliest = 1 + max(moved.get(producer, producer.place) for producer in reader.producers)
                if reader.engine in _OTHER and earliest < reader.place:
                    starts[max(earliest, position + 1, reader.place - reach)].append(reader)
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
    if first.chained or second.chained or chained_into(first) or chained_into(second):
        return "one is chained"
    if all(_streams(layer, footprint, working_set) for layer in (first, second)):
        return "both results stream to memory"
    return None


def _streams(layer: Layer, footprint: Footprint, working_set: int) -> bool:
    """Whether a result is known to leave the chip before task groups are closed."""
    crosses = any(consumer.segment != layer.segment for consumer in layer.consumers)
    return layer.is_output or crosses or footprint.bytes(layer.result) > budget(working_set)
