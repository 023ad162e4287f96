"""Task groups: how many layers of the schedule run before the on-chip memory has to be emptied."""

from __future__ import annotations

from dataclasses import dataclass, field

from aneforge.anec.ir import Module, Op
from aneforge.compiler.facts import Facts
from aneforge.compiler.footprint import Footprint
from aneforge.compiler.passes import pass_
from aneforge.compiler.plan import TaskGroup, plan_of
from aneforge.compiler.schedule.layers import Layer, LayerGraph
from aneforge.targets.assumed import constant


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
        _cut_chain(layer)
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


def _cut_chain(layer: Layer) -> None:
    """Undo a chain that crosses into the next task group. Two layers issued together are one step and are never
    cut."""
    if layer.chained and any(consumer.task_group != layer.task_group for consumer in layer.consumers[:1]):
        layer.chained = False
