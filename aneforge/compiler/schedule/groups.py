"""What runs together: tiles, chains, engines, pairs that run side by side, and task groups."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from itertools import pairwise

from aneforge.chips.assumed import constant
from aneforge.compiler.facts import Facts
from aneforge.compiler.footprint import Footprint
from aneforge.compiler.passes import pass_
from aneforge.compiler.plan import TaskGroup, plan_of
from aneforge.compiler.schedule.layers import Layer, LayerGraph, engine_class, is_view
from aneforge.engine.ir import Module, Op
from aneforge.engine.spec import kinds_with
from aneforge.engine.traits import Trait


def budget(working_set: int) -> int:
    """The scaled working set: the peak that a task group may reach (U22)."""
    return int(working_set * constant("partition_margin"))


def steps_of(layers: list[Layer]) -> list[list[Layer]]:
    """The schedule as steps: one layer, or two that are issued together."""
    steps: list[list[Layer]] = []
    for layer in layers:
        partner = layer.co_issue
        if partner is not None and steps and len(steps[-1]) == 1 and steps[-1][0].number == partner:
            steps[-1].append(layer)
        else:
            steps.append([layer])
    return steps


@pass_(
    "close-task-groups",
    3,
    reads=["max_operand_bytes", "dram_alignment", "l2_bank_align"],
    requires=["chains", "co-issue"],
    ensures=["task groups"],
)
def close_task_groups(module: Module, chip: Facts) -> int:
    """Close a task group when the next layer would push the peak on-chip pressure past the scaled working set."""
    graph = LayerGraph.of_module(module)
    walk = _Pressure(graph, Footprint(chip), budget(chip["max_operand_bytes"]))
    for step in steps_of(graph.layers):
        walk.take(step)
    for layer in graph.layers:
        # A chain must not cross into the next task group. Two layers issued together are one step and are never cut.
        if layer.chained and any(consumer.task_group != layer.task_group for consumer in layer.consumers[:1]):
            layer.chained = False
    plan = plan_of(module)
    plan.forget_order()
    plan.steps, plan.task_groups = tuple(walk.steps), tuple(walk.task_groups())
    return max(0, walk.task_group)  # a program that only returns its inputs has no task group at all


@dataclass
class _Members:
    """A task group while the walk is in it."""

    segment: int
    layers: list[int] = field(default_factory=list)
    peak: int = 0


class _Pressure:
    """The bytes that are live on chip while the schedule is walked."""

    def __init__(self, graph: LayerGraph, footprint: Footprint, most: int) -> None:
        self.most = most
        leave = graph.leaving()
        self.size = [0 if layer in leave else footprint.bytes(layer.result) for layer in graph.layers]
        """The bytes of a result on chip, by the layer's place; 0 if it leaves the program or the segment, since it is
        in memory from the start."""
        self.live: dict[Op, int] = {}
        self.total = 0
        self.readers: dict[Op, int] = {}
        self.root: dict[Op, Op] = {}
        self.task_group = -1
        self.segment = -1
        self.streaming = False
        self.steps: list[tuple[int, ...]] = []
        self._closed: list[_Members] = []

    def task_groups(self) -> list[TaskGroup]:
        """All task groups as they were closed, in order."""
        return [
            TaskGroup(number, members.segment, tuple(members.layers), members.peak, self.most)
            for number, members in enumerate(self._closed)
        ]

    def take(self, step: list[Layer]) -> None:
        sizes = [self.size[layer.place] for layer in step if layer.engine != "view"]
        alone = max(sizes, default=0) > self.most
        growth = sum(size for size in sizes if size <= self.most) if alone else sum(sizes)
        if growth > self.most:  # the results of two layers issued together do not fit: one after the other
            for layer in step:
                layer.co_issue = None
                self.take([layer])
            return
        fresh = self.task_group < 0 or step[0].segment != self.segment
        if fresh or alone or self.streaming or self.total + growth > self.most:
            self._close(step[0].segment)
        self.streaming = alone  # a result above the budget is streamed, in a task group of its own
        members = self._closed[-1]
        for layer in step:
            layer.task_group = self.task_group
            members.layers.append(layer.number)
            self._make(layer)
        members.peak = max(members.peak, self.total)
        self.steps.append(tuple([layer.number for layer in step]))
        for layer in step:
            self._release(layer)

    def _make(self, layer: Layer) -> None:
        result = layer.result
        source = next(iter(layer.inputs), None)
        view = layer.engine == "view" and source is not None
        root = result
        if view and source is not None:
            root = self.root[result] = self.root.get(source, source)
        self.readers[root] = self.readers.get(root, 0) + len(layer.consumers)
        size = self.size[layer.place]
        if root is result and 0 < size <= self.most:
            self.live[result] = size
            self.total += size

    def _release(self, layer: Layer) -> None:
        for value in layer.inputs:
            root = self.root.get(value, value)
            left = self.readers.get(root, 0) - 1
            self.readers[root] = left
            if left <= 0:
                self.total -= self.live.pop(root, 0)

    def _close(self, segment: int) -> None:
        """Start a new task group. What is still live goes to memory."""
        self.task_group += 1
        self.segment = segment
        self.live.clear()
        self.total = 0
        self._closed.append(_Members(segment))


# In how many tiles a layer runs, and which rows a tile needs (U24).


def tile_count(layer: Layer, working_set: int) -> int:
    """Tiles along the height: one, and one more for every working set that the larger side fills."""
    largest = max([op.type.bytes for op in (*layer.inputs, layer.result) if op.type is not None])
    return largest // working_set + 1


def tile_rows(layer: Layer, working_set: int) -> int:
    """Rows of the result that one tile gives."""
    height = layer.result.shape[3]
    return -(-height // min(height, tile_count(layer, working_set)))


def first_tile_rows(layer: Layer, value: Op, working_set: int) -> int:
    """Rows of a value it reads that the first tile needs, the overlap with the second included."""
    rows = tile_rows(layer, working_set)
    window = _window(layer.primary)
    available = value.shape[3]
    if window is None:
        return min(rows, available)
    kernel, stride, dilation, pad = window
    if layer.primary.kind == "deconvolution":
        return min((rows - 1 + pad) // stride + 1, available)
    return min((rows - 1) * stride + (kernel - 1) * dilation + 1 - pad, available)


def _window(op: Op) -> tuple[int, int, int, int] | None:
    """Kernel, stride, dilation and top padding along the height."""
    attrs = op.attrs
    if op.is_a(Trait.CONVOLUTION):
        return attrs["kernel_sizes"][1], attrs["strides"][1], attrs["dilation_rates"][1], attrs["explicit_padding"][2]
    if op.is_a(Trait.POOL):
        return attrs["ksize"][1], attrs["stride"][1], 1, attrs["padding"][2]
    return None


# Chaining: a result that stays in L2 and feeds the next layer in place, the structural form of double-buffering.


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


# Which engine runs each layer.


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


# Parallel execution: one multiply-accumulate layer and one planar layer that run side by side.


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
                layer in taken or layer.chained or chained_into(layer) for layer in (product, *waiting)
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
