"""The list scheduler: one execution order for the layers (chapter 22, phase 3).

Ready layers wait in a priority queue. The tie-break order is the seed's: ring-buffer membership, branch-sibling
score, merge-sibling score, the working-set-aware branch test, topological order, raw node id. The two scores are
unpublished; choice U23 says what we use for them.
"""

from __future__ import annotations

import heapq

from aneforge.compiler.facts import Facts
from aneforge.compiler.footprint import Footprint
from aneforge.compiler.passes import pass_
from aneforge.compiler.schedule.layers import Layer, LayerGraph
from aneforge.engine.ir import Module

Key = tuple[int, bool, int, int, int, int]


class ScheduleBranch:
    """A run of layers in which each reads only the one before, from a split or a source to the next split or merge."""

    __slots__ = ("end", "heap", "peak", "split")

    def __init__(self, split: Layer | None) -> None:
        self.split = split
        """The layer whose result several branches read; None for one that starts at the program's inputs."""
        self.peak = 0
        """The most bytes in use while one of its layers runs: what it reads and makes, and the value it split from."""
        self.end: Layer | None = None
        self.heap: list[tuple[Key, Layer]] = []


@pass_(
    "schedule-layers",
    3,
    reads=["max_operand_bytes", "dram_alignment", "l2_bank_align"],
    requires=["engines", "segments"],
    ensures=["schedule"],
)
def schedule_layers(module: Module, chip: Facts) -> int:
    """The greedy priority-queue list scheduler: linearise the layers; counts those that change their place."""
    graph = LayerGraph.of_module(module)
    order = list_schedule(graph, Footprint(chip), chip["max_operand_bytes"])
    moved = sum(layer.place != place for place, layer in enumerate(order))
    graph.write_order(order)
    return moved


def list_schedule(graph: LayerGraph, footprint: Footprint, working_set: int) -> list[Layer]:
    """Every layer once, each after the layers it waits for, one segment after another."""
    branch_of = _branches(graph, footprint)
    return _Queue(graph, branch_of, footprint, working_set).run()


def _branches(graph: LayerGraph, footprint: Footprint) -> list[ScheduleBranch]:
    """The branch of each layer, by its place."""
    branch_of: list[ScheduleBranch] = []
    for place, layer in enumerate(graph.layers):
        layer.place = place
        before = layer.producers[0] if len(layer.producers) == 1 else None
        inner = before is not None and len(before.consumers) == 1 and before.segment == layer.segment
        branch = branch_of[before.place] if inner and before is not None else ScheduleBranch(before)
        branch_of.append(branch)
        branch.end = layer
        live_bytes = footprint.bytes(layer.result)
        for value in layer.inputs:
            live_bytes += footprint.bytes(value)
        if inner and branch.split is not None:
            live_bytes += footprint.bytes(branch.split.result)  # the sibling still needs it; a head reads it itself
        branch.peak = max(branch.peak, live_bytes)
    return branch_of


class _Queue:
    def __init__(
        self, graph: LayerGraph, branch_of: list[ScheduleBranch], footprint: Footprint, working_set: int
    ) -> None:
        self.graph, self.branch_of = graph, branch_of
        self.footprint, self.working_set = footprint, working_set
        self.heap: list[tuple[Key, Layer]] = []
        self.waiting = [len(layer.producers) for layer in graph.layers]
        """For each layer, by its place, how many it waits for."""
        self.closes_merge = bytearray(len(graph.layers))
        self.done = bytearray(len(graph.layers))
        self.tests: dict[ScheduleBranch, int] = {}
        self.ready: dict[Layer, None] = {}
        """Layers that wait for nothing more and have no place in the queue yet: one that is alone needs none."""

    def run(self) -> list[Layer]:
        for layer in self.graph.layers:
            if not self.waiting[layer.place]:
                self.ready[layer] = None
        order: list[Layer] = []
        current: ScheduleBranch | None = None
        while (layer := self._pop(current)) is not None:
            self.done[layer.place] = True
            order.append(layer)
            current = self.branch_of[layer.place]
            self._release(layer)
        return order

    def _key(self, layer: Layer) -> Key:
        merge = self.closes_merge[layer.place]
        test = self._branch_test(self.branch_of[layer.place])
        return layer.segment, not layer.is_ring, -merge, test, layer.place, layer.number

    def _push(self, layer: Layer) -> None:
        entry = (self._key(layer), layer)
        heapq.heappush(self.heap, entry)
        heapq.heappush(self.branch_of[layer.place].heap, entry)

    def _pop(self, current: ScheduleBranch | None) -> Layer | None:
        """The first by ring membership, then from the branch that was entered last, then by the rest of the key."""
        if len(self.ready) == 1 and self._top(self.heap) is None:
            return self.ready.popitem()[0]
        for layer in self.ready:
            self._push(layer)
        self.ready.clear()
        first = self._top(self.heap)
        inner = None if current is None else self._top(current.heap)
        if first is None or inner is None or first[0][:2] < inner[0][:2]:
            return None if first is None else first[1]
        return inner[1]

    def _top(self, heap: list[tuple[Key, Layer]]) -> tuple[Key, Layer] | None:
        while heap and self.done[heap[0][1].place]:
            heapq.heappop(heap)
        return heap[0] if heap else None

    def _release(self, layer: Layer) -> None:
        for consumer in layer.consumers:
            left = self.waiting[consumer.place] = self.waiting[consumer.place] - 1
            if not left:
                self.ready[consumer] = None
            elif left == 1:  # once per merge, so that the walk over its producers stays linear
                last = next(producer for producer in consumer.producers if not self.done[producer.place])
                self._prefer(last)

    def _prefer(self, layer: Layer) -> None:
        """A merge waits for this layer alone; an entry that stands in the queue already is skipped later."""
        if self.closes_merge[layer.place]:
            return
        self.closes_merge[layer.place] = True
        if not self.waiting[layer.place]:
            self.ready[layer] = None

    def _branch_test(self, branch: ScheduleBranch) -> int:
        """When both ends of a diamond fit the working set, the branch with the larger footprint goes first, as long as
        its peak fits as well; otherwise 0, which decides nothing."""
        score = self.tests.get(branch)
        if score is None:
            score = self.tests[branch] = -branch.peak if self._fits(branch) else 0
        return score

    def _fits(self, branch: ScheduleBranch) -> bool:
        if branch.split is None or branch.end is None:
            return False
        split_bytes = self.footprint.bytes(branch.split.result)
        merges = max((self.footprint.bytes(merge.result) for merge in branch.end.consumers), default=0)
        return split_bytes + merges <= self.working_set and branch.peak <= self.working_set
