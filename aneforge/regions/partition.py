"""``af.partition``: a graph split into regions of the engine and regions of the host, which can be run and timed.

This is the one way to an answer for a model on a chip. A model that the chip takes as it is has one region, whose
graph is the model's own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from aneforge.arguments import Chips, Source, chips_of, graph_of
from aneforge.compiler.compile import programs_for
from aneforge.compiler.program import Program
from aneforge.cost.estimate import DEFAULT_SCOPE, Estimate, estimate_program
from aneforge.cost.parts import Crossings, EnginePart, HostPart, estimate_parts
from aneforge.defaults import DEFAULT_CHIPS
from aneforge.errors import AneforgeError, ArgumentError
from aneforge.graph.graph import Graph
from aneforge.graph.tensor import Tensor
from aneforge.graph.views import moves_only
from aneforge.model import Model
from aneforge.output.by_chip import ByChip
from aneforge.output.text import plural
from aneforge.regions.cut import Cut, Operations
from aneforge.regions.placement import fixed_costs, likely
from aneforge.regions.reasons import (
    Checked,
    Refusals,
    idle_regions,
    refused_in_regions,
    refused_in_whole,
    sentence,
)
from aneforge.regions.split import ENGINE, HOST, Crossing, Region
from aneforge.targets.chip import Target
from aneforge.targets.names import chip_label, with_label

if TYPE_CHECKING:
    from aneforge.regions.runner import Runner

__all__ = [
    "WAYS",
    "Partition",
    "Partitions",
    "cut_alike",
    "partition",
    "partition_for",
    "partitions_for",
    "split_for",
]

WAYS = {
    "rules": "every op that the rules allow is on the engine",
    "placement": "what Core ML's own placement would likely choose among those",
}
_ATTEMPTS = 16  # regions that are refused after this many moves of single ops go to the host whole


class Partition:
    """One graph on one chip: ``regions`` in the order they run, ``reasons`` why a node is not on the engine.

    ``eligible`` counts the ops that the rules allow there, ``placed`` those that Core ML would likely put there.
    """

    def __init__(self, cut: Cut, target: Target, by: str, refusals: Refusals) -> None:
        self.cut, self.target, self.by, self.refusals = cut, target, by, refusals
        self.graph, self.names = cut.graph, cut.names
        self.regions: list[Region] = cut.regions
        self.crossings: list[Crossing] = cut.crossings
        self.device_of = cut.device_of
        cut.targets[target.name] = target

    def of_product(self, target: Target) -> Partition:
        """The same partition for another product that carries the target."""
        return self if target.product == self.target.product else Partition(self.cut, target, self.by, self.refusals)

    # What runs where.

    @property
    def whole(self) -> bool:
        """Whether everything runs on the engine in one go."""
        return self.cut.whole

    @property
    def ops(self) -> int:
        """The ops of the model. Reshapes, slices and casts of integer inputs compute nothing and are not counted."""
        return len(self.cut.operations.counted)

    @cached_property
    def on_engine(self) -> int:
        """How many operations run on the engine."""
        return sum(self.device_of[node.uid] == ENGINE for node in self.cut.operations.counted)

    @cached_property
    def useful(self) -> bool:
        """Whether the engine computes anything, and does not only move numbers."""
        return any(self.device_of[node.uid] == ENGINE and not moves_only(node) for node in self.cut.operations.counted)

    @property
    def runs(self) -> bool:
        """Whether the engine has a part in it: the whole model, or some of its ops."""
        return self.cut.untouched or self.useful

    def require_engine(self) -> None:
        """Refuse a model of which the engine computes nothing, where the question is about the engine."""
        if not self.runs:
            raise self.nothing_runs()

    def nothing_runs(self) -> ArgumentError:
        """The refusal of a model of which the engine computes nothing, with the first reason."""
        chip = chip_label(self.target.name)
        first = next(((self.names[uid], why) for uid, why in self.reasons.items()), ("model", "it has no ops"))
        why = with_label(f"{first[0]}: {first[1]}", self.target, chip)
        return ArgumentError("model", f"nothing of it runs on the engine of {chip}. {why}")

    @property
    def verdict(self) -> str:
        """``yes``, ``in part: 416 of 417 ops on the engine``, or ``no`` where nothing useful runs there."""
        if self.cut.untouched:
            return "yes"
        return f"in part: {self.on_engine:,} of {self.ops:,} ops on the engine" if self.useful else "no"

    @cached_property
    def reasons(self) -> dict[int, str]:
        """Why nodes are not on the engine, in words with the evidence."""
        hidden = self.cut.operations.views
        return {uid: sentence(refusal) for uid, refusal in self.refusals.items() if uid not in hidden}

    @cached_property
    def eligible(self) -> int:
        """How many operations no rule keeps off the engine."""
        return sum(node.uid not in self.refusals for node in self.cut.operations.counted)

    @cached_property
    def placed(self) -> int:
        """How many operations the cheapest way through the graph puts on the engine."""
        devices = likely(self.graph, _eligible(self.cut.operations, self.refusals))
        return sum(devices[node.uid] == ENGINE for node in self.cut.operations.counted)

    def summary(self) -> str:
        """How many regions there are on each device."""
        host = sum(region.device == HOST for region in self.regions)
        engine = len(self.regions) - host
        return f"{plural(engine, 'region')} on the engine, {host} on the host"

    def node_of(self, uid: int) -> Tensor:
        """The node of an id."""
        return self._nodes[uid]

    @cached_property
    def _nodes(self) -> dict[int, Tensor]:
        return {node.uid: node for node in self.graph.nodes}

    # Programs.

    def graph_of(self, number: int) -> Graph:
        """One region as a graph of its own, to compile or to export; what crosses into it are its inputs."""
        if number == 0 and self.cut.untouched:
            return self.graph  # also of a model without operations, which has a program and no region
        if not 0 <= number < len(self.regions):
            raise AneforgeError(
                f"region {number}: there are {len(self.regions)} regions. Choose 0 to {len(self.regions) - 1}."
            )
        return self.cut.graph_of(self.regions[number])

    @property
    def programs(self) -> Mapping[int, Program]:
        """The compiled engine regions, by number."""
        return self.cut.programs(self.target)

    @cached_property
    def models(self) -> dict[int, Model]:
        """The engine regions as models, by number."""
        return self._models("exact")

    def _models(self, mode: str) -> dict[int, Model]:
        return {number: Model.of(self.graph_of(number), program, mode) for number, program in self.programs.items()}

    # Costs.

    @cached_property
    def fixed_us(self) -> float:
        """What starting the engine, changing devices and handing results out cost, by the published constants."""
        costs, _ = fixed_costs()
        engine = self.cut.on_engine
        handed_out = sum(len(region.outputs) for region in engine)
        return len(engine) * costs["launch"] + self.changes * costs["switch"] + handed_out * costs["output"]

    @property
    def changes(self) -> int:
        """How often the device changes from one region to the next."""
        return sum(a.device != b.device for a, b in zip(self.regions, self.regions[1:], strict=False))

    def estimate(self, scope: str = DEFAULT_SCOPE) -> Estimate:
        """How long a call takes: the regions of the engine, what crosses between them, and the host's part."""
        if self.cut.untouched:
            return estimate_program(self.programs[0], scope, self.target)
        costs, evidence = fixed_costs()
        crossing = Crossings(
            changes=self.changes,
            handed_over=sum(crossing.source.device == ENGINE for crossing in self.crossings),
            switch_us=costs["switch"],
            output_us=costs["output"],
            evidence=evidence,
        )
        programs = self.programs
        parts = [
            EnginePart(region.number, len(region.nodes), programs[region.number])
            if region.device == ENGINE
            else HostPart(region.number, region.nodes)
            for region in self.regions
        ]
        return estimate_parts(parts, crossing, self.target, scope)

    # Running.

    def run(self, feeds: Mapping[str, np.ndarray], mode: str = "exact") -> dict[str, np.ndarray]:
        """The outputs by name: engine regions are simulated, host regions computed in float32."""
        return self.runner(mode).run(feeds).outputs

    def runner(self, mode: str = "exact") -> Runner:
        """What runs the regions in turn, several times where that is asked for."""
        from aneforge.regions.runner import Runner

        return Runner(self, self.models if mode == "exact" else self._models(mode))

    # Telling.

    def to_json(self) -> dict[str, Any]:
        costs, evidence = fixed_costs()
        return {
            "target": self.target.name,
            "by": self.by,
            "verdict": self.verdict,
            "eligible": self.eligible,
            "placed": self.placed,
            "ops": self.ops,
            "on_engine": self.on_engine,
            "regions": [region.to_json(self.names) for region in self.regions],
            "crossings": [crossing.to_json() for crossing in self.crossings],
            "reasons": {self.names[uid]: why for uid, why in self.reasons.items()},
            "fixed_us": self.fixed_us,
            "constants_us": costs,
            "evidence": evidence.to_json(),
        }

    def __str__(self) -> str:
        return self.text()

    def text(self, everything: bool = False, label: str | None = None) -> str:
        """The report; ``everything`` lists each region, crossing and op, and ``label`` is what to call the chip."""
        from aneforge.regions.listing import partition_text

        return partition_text(self, everything, label)

    def __repr__(self) -> str:
        return f"<Partition for {self.target.name}: {len(self.regions)} regions, {len(self.crossings)} crossings>"


class Partitions(ByChip[Partition]):
    """The partition of each chip, by the name it was asked for."""

    def text(self, everything: bool = False) -> str:
        return "\n\n".join(result.text(everything, chip_label(name)) for name, result in self.items())

    def __str__(self) -> str:
        return self.text()


def partition(
    model: Source,
    target: Chips = None,
    by: str = "rules",
    *,
    dims: Mapping[str, int] | None = None,
    function: str | None = None,
) -> Partitions:
    """Split a model into regions of the engine and regions of the host, for each chip.

    ``target`` is m1 where it is left out, or the chip of a compiled model. ``by`` is ``rules`` (everything that is
    eligible goes to the engine) or ``placement`` (what Core ML would likely choose). An op that a region's own limits
    exclude moves to the host with its reason. For one chip the attributes of its :class:`Partition` can be read from
    the result: ``af.partition(model, "m1").regions``.
    """
    if by not in WAYS:
        raise ArgumentError("by", f"{by!r} is not a way to partition; choose one: {', '.join(WAYS)}.")
    graph = graph_of(model, dims, function)
    return Partitions(partitions_for(graph, chips_of(target, DEFAULT_CHIPS["partition"], model), by))


def partitions_for(
    graph: Graph, chips: Mapping[str, Target], by: str = "rules", route: str | None = None
) -> dict[str, Partition]:
    """The partition of each chip, by the name it is asked for. Chips share the work wherever they agree."""
    route = route or graph.route
    targets = list({chip.name: chip for chip in chips.values()}.values())
    operations = Operations(graph)
    by_target: dict[str, Partition] = {}
    if by == "rules":
        compiled = programs_for(graph, targets, route=route)
        whole = Cut(operations, {node.uid: ENGINE for node in operations.placed}, route)
        for target in targets:
            if target.name in compiled:
                whole.compiled_already(target, compiled[target.name])
                by_target[target.name] = Partition(whole, target, by, {})
    left = [target for target in targets if target.name not in by_target]
    if left:
        by_target |= split_for(operations, left, refused_in_whole(operations, left, route), by, route)
    return {name: by_target[chip.name].of_product(chip) for name, chip in chips.items()}


def partition_for(graph: Graph, chip: Target, by: str = "rules") -> Partition:
    """The partition of one chip."""
    return partitions_for(graph, {chip.name: chip}, by)[chip.name]


def cut_alike(graph: Graph, splits: dict[str, Partition]) -> dict[str, Partition]:
    """Partitions of a graph by target name so that all have one cut: what one chip refuses is on the host for all."""
    chips = [split.target for split in splits.values()]
    while len({frozenset(split.refusals) for split in splits.values()}) > 1:
        together: Refusals = {}
        for split in splits.values():
            together |= split.refusals
        splits = split_for(Operations(graph), chips, {chip.name: together for chip in chips})
    return splits


def split_for(
    operations: Operations,
    targets: Sequence[Target],
    refused: Mapping[str, Refusals],
    by: str = "rules",
    route: str | None = None,
) -> dict[str, Partition]:
    """The partition of each target, from what it refuses of the whole graph.

    A region has borders that the whole graph lacks, so its engine regions are checked again: whatever is refused there
    moves to the host, all of it at once, until every region passes. Chips that refuse the same share a cut, and a
    region that did not change is not checked again. It ends: every attempt moves ops, and after many whole regions.
    """
    checked, cuts = Checked(), {}
    waiting = {target.name: (target, dict(refused[target.name])) for target in targets}
    done: dict[str, Partition] = {}
    attempt = 0
    while waiting:
        attempt += 1
        groups: dict[frozenset[int], list[Target]] = {}
        for target, refusals in waiting.values():
            groups.setdefault(frozenset(refusals), []).append(target)
        for key, members in groups.items():
            if key not in cuts:
                cuts[key] = Cut(operations, _devices(operations, key, by), route)
            more = refused_in_regions(cuts[key], members, checked, attempt > _ATTEMPTS)
            for target in members:
                found = more[target.name] or idle_regions(cuts[key])
                if found:
                    waiting[target.name][1].update(found)
                else:
                    done[target.name] = Partition(cuts[key], target, by, waiting.pop(target.name)[1])
    return done


def _eligible(operations: Operations, refused: Mapping[int, Any] | frozenset[int]) -> dict[int, bool]:
    return {node.uid: node.uid not in refused and node.uid not in operations.views for node in operations.placed}


def _devices(operations: Operations, refused: frozenset[int], by: str) -> dict[int, str]:
    eligible = _eligible(operations, refused)
    if by == "placement":
        return likely(operations.graph, eligible)
    return {uid: ENGINE if able else HOST for uid, able in eligible.items()}
