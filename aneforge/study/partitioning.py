"""Which ops of a model stay on the engine of a chip: by the rules, by what a runtime keeps off, or by its choice."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from aneforge.compiler.program import Program
from aneforge.cost.calls import DEFAULT_SCOPE
from aneforge.graph.graph import Graph
from aneforge.study.answers import Answers, Shelf
from aneforge.study.cut import Cut
from aneforge.study.partition import Partition
from aneforge.study.reasons import Refusals, idle_regions, refused_in_regions, refused_nodes
from aneforge.study.runtimes import Runtime, runtime_of_scope
from aneforge.study.split import ENGINE, HOST
from aneforge.targets.chip import Target

_ATTEMPTS = 16  # regions that are refused after this many moves of single ops go to the host whole
KeptOff = Callable[[Target], Refusals]


class Partitioning:
    """How one graph is cut for chips by one route and runtime. Chips that refuse the same share a cut."""

    def __init__(self, answers: Answers, shelf: Shelf, route: str | None, runtime: Runtime, kept_off: KeptOff) -> None:
        self.answers, self.shelf, self.route, self.runtime, self._kept_off = answers, shelf, route, runtime, kept_off

    def by_rules(self, targets: Sequence[Target]) -> dict[str, Partition]:
        """Every op that the rules allow on the engine."""
        refused = {
            name: refused_nodes(self.shelf.operations, refusals, name) if refusals else {}
            for name, refusals in self.shelf.refusals(targets, self.route).items()
        }
        whole = [target for target in targets if not refused[target.name]]
        cut = self._cut(frozenset())
        partitions = {target.name: self._partition(cut, target, "rules", {}) for target in whole}
        left = [target for target in targets if target.name not in partitions]
        return partitions | (self.split(left, refused, "rules") if left else {})

    def by_runtime(self, allowed: Iterable[Partition]) -> dict[str, Partition]:
        """What the runtime leaves on the engine of what the rules allow there."""
        partitions: dict[str, Partition] = {}
        refused: dict[str, Refusals] = {}
        moved: list[Target] = []
        for split in allowed:
            if not split.kept_off:
                partitions[split.target.name] = split
                continue
            away = split.kept_off
            if self.runtime.whole:
                first = next(iter(away.values()))
                away = {node.uid: first.of(split.names[node.uid]) for node in split.cut.operations.placed} | away
            refused[split.target.name] = {**split.refusals, **away}
            moved.append(split.target)
        return partitions | (self.split(moved, refused, "runtime") if moved else {})

    def by_placement(self, allowed: Iterable[Partition]) -> dict[str, Partition]:
        """What the runtime would likely choose."""
        likely = {split.target.name: split for split in allowed}
        refused = {name: {**split.refusals, **split.kept_off} for name, split in likely.items()}
        devices = {name: split.likely_devices for name, split in likely.items()}
        return self.split([split.target for split in likely.values()], refused, "placement", devices)

    def split(
        self,
        targets: Sequence[Target],
        refused: Mapping[str, Refusals],
        by: str,
        devices: Mapping[str, Mapping[int, str]] | None = None,
    ) -> dict[str, Partition]:
        """The partition of each target, from what it refuses of the whole graph, or from devices that are chosen.

        A region has borders that the whole graph lacks, so its engine regions are checked again: whatever is refused
        there moves to the host, all of it at once, until every region passes. It ends: every attempt moves ops, and
        after many whole regions.
        """
        waiting = {target.name: (target, dict(refused[target.name])) for target in targets}
        chosen = {name: _on_host(devices[name]) for name in waiting} if devices is not None else {}
        done: dict[str, Partition] = {}
        attempt = 0
        while waiting:
            attempt += 1
            groups: dict[frozenset[int], list[Target]] = {}
            for target, refusals in waiting.values():
                groups.setdefault(frozenset(refusals) | chosen.get(target.name, frozenset()), []).append(target)
            for key, members in groups.items():
                cut = self._cut(key)
                more = refused_in_regions(cut, members, attempt > _ATTEMPTS)
                for target in members:
                    moved = more[target.name] or idle_regions(cut)
                    if moved:
                        waiting[target.name][1].update(moved)
                    else:
                        done[target.name] = self._partition(cut, target, by, waiting.pop(target.name)[1])
        return done

    def _cut(self, on_host: frozenset[int]) -> Cut:
        operations = self.shelf.operations
        off = on_host | operations.views

        def make() -> Cut:
            devices = {node.uid: HOST if node.uid in off else ENGINE for node in operations.placed}
            return Cut(self.answers, self.shelf, devices, self.route)

        return self.shelf.once(("cut", self.route, frozenset(off)), make)

    def _partition(self, cut: Cut, target: Target, by: str, refusals: Refusals) -> Partition:
        return Partition(cut, target, by, refusals, self.runtime, partial(self._kept_off, target))


def compiled_partition(graph: Graph, program: Program) -> Partition:
    """The one region of a graph that was compiled whole, with the program that it has, whatever its options were."""
    answers, target = Answers(), program.target
    shelf = answers.about(graph)
    shelf.compiled_already(program)
    devices = {node.uid: ENGINE for node in shelf.operations.placed}
    cut = Cut(answers, shelf, devices, program.route)
    return Partition(cut, target, "rules", {}, runtime_of_scope(DEFAULT_SCOPE), dict)


def _on_host(devices: Mapping[int, str]) -> frozenset[int]:
    return frozenset(uid for uid, device in devices.items() if device == HOST)
