"""One graph on one chip, split into regions of the engine and regions of the host, which can be run and timed.

A model that the chip takes as it is has one region, whose graph is the model's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from aneforge.chips.chip import Target
from aneforge.chips.families import Family
from aneforge.chips.names import chip_label, chip_labels, with_label
from aneforge.compiler.program import Program
from aneforge.cost.calls import APP_SCOPE
from aneforge.cost.estimate import Estimate, estimate_program
from aneforge.cost.in_place import values_of_states
from aneforge.cost.parts import Crossings, EnginePart, HostPart, estimate_parts
from aneforge.errors import AneforgeError, ArgumentError
from aneforge.graph.graph import Graph
from aneforge.graph.tensor import Tensor
from aneforge.graph.views import moves_only
from aneforge.study.answers import Answers, Shelf
from aneforge.study.model import Model
from aneforge.study.outcomes import Outcome
from aneforge.study.placement import Runtime, fixed_costs, kept_off, leaves_whole, likely, runtime_of_scope
from aneforge.study.preflight import Preflight
from aneforge.study.regions import (
    ENGINE,
    HOST,
    Crossing,
    Cut,
    Refusals,
    Region,
    idle_regions,
    refused_in_regions,
    refused_nodes,
    sentence,
)
from aneforge.text import ByChip, plural

if TYPE_CHECKING:
    from aneforge.study.runner import Runner


AskReport = Callable[[], Preflight]
_CHIP = "⟪chips⟫"  # stands for the chip in a text that several may share
WAYS = {
    "rules": "every op that the rules allow is on the engine",
    "runtime": "every op that the rules allow and the runtime does not keep off is on the engine",
    "placement": "what Core ML's own placement would likely choose among those",
}


class Partition:
    """One graph on one chip: ``regions`` in the order they run, ``reasons`` why a node is not on the engine.

    ``eligible`` counts the ops that the rules allow there, ``placed`` those that the runtime would likely put there.
    """

    def __init__(
        self, cut: Cut, target: Target, by: str, refusals: Refusals, runtime: Runtime, report: AskReport | None
    ) -> None:
        self.cut, self.target, self.by, self.refusals, self.runtime = cut, target, by, refusals, runtime
        self.graph, self.names = cut.graph, cut.names
        self.device_of = cut.device_of
        self._ask_report = report
        self._estimates: dict[tuple[str, float | None], Estimate] = {}
        cut.targets[target.name] = target

    def of_product(self, target: Target) -> Partition:
        """The same partition for another product that carries the target."""
        if target.product == self.target.product:
            return self
        return Partition(self.cut, target, self.by, self.refusals, self.runtime, self._ask_report)

    @property
    def regions(self) -> list[Region]:
        return self.cut.regions

    @property
    def crossings(self) -> list[Crossing]:
        return self.cut.crossings

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

    @cached_property
    def outcome(self) -> Outcome:
        """What the chip does with the whole model: what runs, in how many programs, and whether the numbers hold."""
        if not self.runs:
            return Outcome("no", 0, self.ops)
        if self.cut.untouched or (self.cut.starts and self.on_engine == self.ops and not self.refusals):
            kind = "unknown" if self.not_known else "yes"
        else:
            kind = "in part"
        programs = max(1, len(self.cut.on_engine)) if self.cut.starts else 1
        return Outcome(kind, self.on_engine, self.ops, programs, len(self.wrong_numbers))

    @property
    def verdict(self) -> str:
        """``yes``, ``yes, numbers can be wrong``, ``in 2 programs``, ``in part: 416 of 417 ops on the engine``,
        ``unknown``, or ``no`` where nothing useful runs there."""
        return str(self.outcome)

    @cached_property
    def wrong_numbers(self) -> frozenset[int]:
        """The nodes that run on the engine and whose numbers can be wrong there."""
        return frozenset(self._remarked("risk"))

    @cached_property
    def not_known(self) -> frozenset[int]:
        """The nodes of which nobody knows whether they run on the engine, by the runtime that was asked about."""
        return frozenset(self._remarked("unknown"))

    def _remarked(self, status: str) -> Iterator[int]:
        """The nodes on the engine that the chip's report lists under a status, as far as it is about this runtime."""
        report, asked = self.report, {*self.runtime.names, "direct"}
        for entry in () if report is None else report.of(status):
            runtimes = {name for finding in entry.findings for name in finding.runtimes or ("direct",)}
            if runtimes & asked and self.device_of.get(entry.node.uid, ENGINE) == ENGINE:
                yield entry.node.uid

    @property
    def says(self) -> str:
        """The two columns of every report in a sentence: what the engine can take, or what a runtime leaves on it, and
        what it is likely given."""
        taken = f"by {self.runtime.label}" if self.by == "runtime" else "the engine can take it"
        return f"{taken}: {self.verdict}; {self.runtime.label} likely gives it: {self.likely}"

    @property
    def in_part(self) -> str:
        """The verdict where the model is not on the engine whole; empty where it is."""
        return "" if self.cut.untouched else self.verdict

    @property
    def likely(self) -> str:
        """What the runtime would likely give to the engine, in words: ``all``, ``none`` or ``416 of 417``."""
        if self.placed in (0, self.ops):
            return "all" if self.placed else "none"
        return f"{self.placed:,} of {self.ops:,}"

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
    def report(self) -> Preflight | None:
        """What rules and ranges say of every node on the chip; None of a program that was compiled already."""
        return None if self._ask_report is None else self._ask_report()

    @cached_property
    def kept_off(self) -> Refusals:
        """What the runtime keeps off the engine although the chip could run it, by node. Rules know nothing of chips
        below their floor."""
        report = None if self.target.family5 in (None, Family.OLDER) else self.report
        return {} if report is None else kept_off(report, self.cut.operations, self.runtime)

    @cached_property
    def likely_devices(self) -> Mapping[int, str]:
        """The device of each node by the cheapest way through the graph, among what rules and runtime allow."""
        operations = self.cut.operations
        away = self.refusals.keys() | self.kept_off.keys() | operations.views
        if leaves_whole(self.kept_off, self.runtime):
            away |= {node.uid for node in operations.placed}
        return likely(self.graph, {node.uid: node.uid not in away for node in operations.placed})

    @cached_property
    def placed(self) -> int:
        """How many operations the runtime would likely give to the engine."""
        return sum(self.likely_devices[node.uid] == ENGINE for node in self.cut.operations.counted)

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

    def estimate(self, scope: str = APP_SCOPE, copy_gbs: float | None = None) -> Estimate:
        """How long a call takes: the regions of the engine, what crosses between them, and the host's part."""
        if (scope, copy_gbs) not in self._estimates:
            self._estimates[scope, copy_gbs] = self._estimate(scope, copy_gbs)
        return self._estimates[scope, copy_gbs]

    def _estimate(self, scope: str, copy_gbs: float | None) -> Estimate:
        if self.cut.untouched:
            return estimate_program(self.programs[0], scope, self.target, copy_gbs)
        costs, evidence = fixed_costs()
        crossing = Crossings(
            changes=self.changes,
            handed_over=sum(crossing.source.device == ENGINE for crossing in self.crossings),
            switch_us=costs["switch"],
            output_us=costs["output"],
            evidence=evidence,
        )
        programs, held = self.programs, values_of_states(self.graph)
        stay = {self.names[uid] for uid in held}
        parts = [
            EnginePart(region.number, len(region.nodes), programs[region.number], stay)
            if region.device == ENGINE
            else HostPart(region.number, region.nodes, held)
            for region in self.regions
        ]
        return estimate_parts(parts, crossing, self.target, scope, copy_gbs)

    # Running.

    def run(self, feeds: Mapping[str, np.ndarray], mode: str = "exact") -> dict[str, np.ndarray]:
        """The outputs by name: engine regions are simulated, host regions computed in float32."""
        return self.runner(mode).run(feeds).outputs

    def runner(self, mode: str = "exact") -> Runner:
        """What runs the regions in turn, several times where that is asked for."""
        from aneforge.study.runner import Runner

        return Runner(self, self.models if mode == "exact" else self._models(mode))

    # Telling.

    def to_json(self) -> dict[str, Any]:
        costs, evidence = fixed_costs()
        return {
            "target": self.target.name,
            "by": self.by,
            "verdict": self.verdict,
            "runtime": self.runtime.name,
            "likely": self.likely,
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
        from aneforge.study.listing import partition_text

        return partition_text(self, everything, label)

    def __repr__(self) -> str:
        return f"<Partition for {self.target.name}: {len(self.regions)} regions, {len(self.crossings)} crossings>"


class Partitions(ByChip[Partition]):
    """The partition of each chip, by the name it was asked for."""

    def text(self, everything: bool = False) -> str:
        """Chips whose partition reads the same share a text."""
        alike: dict[str, list[str]] = {}
        for name, result in self.items():
            alike.setdefault(result.text(everything, _CHIP), []).append(name)
        return "\n\n".join(words.replace(_CHIP, chip_labels(names)) for words, names in alike.items())

    def __str__(self) -> str:
        return self.text()


# Which ops of a model stay on the engine of a chip: by the rules, by what a runtime keeps off, or by its choice.


_ATTEMPTS = 16  # regions that are refused after this many moves of single ops go to the host whole
AskReports = Callable[[Target], Preflight]


class Partitioning:
    """How one graph is cut for chips by one route and runtime. Chips that refuse the same share a cut."""

    def __init__(
        self, answers: Answers, shelf: Shelf, route: str | None, runtime: Runtime, reports: AskReports
    ) -> None:
        self.answers, self.shelf, self.route, self.runtime, self._reports = answers, shelf, route, runtime, reports

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
            too_large = next((refusal for refusal in away.values() if refusal.ends_program), None)
            if (
                leaves_whole(away, self.runtime) or too_large is not None
            ):  # a package that is too large leaves the engine whole
                first = too_large or next(iter(away.values()))
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
        there moves to the host, all of it at once, until every region passes. Where a program would be too large, a
        further one begins. It ends: every attempt moves ops or begins a program, and after many whole regions move.
        """
        waiting = {target.name: _Attempt(target, refused[target.name]) for target in targets}
        chosen = {name: _on_host(devices[name]) for name in waiting} if devices is not None else {}
        done: dict[str, Partition] = {}
        while waiting:
            groups: dict[tuple[frozenset[int], frozenset[int], bool], list[_Attempt]] = {}
            for name, attempt in waiting.items():
                off = frozenset(attempt.moved) | chosen.get(name, frozenset())
                groups.setdefault((off, frozenset(attempt.starts), attempt.moves > _ATTEMPTS), []).append(attempt)
            for (off, starts, is_late), attempts in groups.items():
                cut = self._cut(off, starts)
                more = refused_in_regions(cut, [attempt.target for attempt in attempts], is_late)
                for attempt in attempts:
                    name = attempt.target.name
                    if not attempt.add(more[name] or idle_regions(cut)):
                        done[name] = self._partition(cut, attempt.target, by, waiting.pop(name).moved)
        return done

    def _cut(self, on_host: frozenset[int], starts: frozenset[int] = frozenset()) -> Cut:
        operations = self.shelf.operations
        off = on_host | operations.views

        def make() -> Cut:
            devices = {node.uid: HOST if node.uid in off else ENGINE for node in operations.placed}
            return Cut(self.answers, self.shelf, devices, self.route, starts - off)

        return self.shelf.once(("cut", self.route, frozenset(off), starts - off), make)

    def _partition(self, cut: Cut, target: Target, by: str, refusals: Refusals) -> Partition:
        return Partition(cut, target, by, refusals, self.runtime, partial(self._reports, target))


class _Attempt:
    """One chip on the way to its partition: what has moved to the host, and where further programs begin."""

    def __init__(self, target: Target, refused: Refusals) -> None:
        self.target = target
        self.moved: Refusals = {}
        self.starts: set[int] = set()
        self.moves = 0
        self.add(refused)

    def add(self, refused: Refusals) -> bool:
        """Take refusals in; whether there were any. A node that is too large for a program of its own moves."""
        moved = {uid: refusal for uid, refusal in refused.items() if not refusal.ends_program or uid in self.starts}
        self.starts |= {uid for uid, refusal in refused.items() if uid not in moved and not refusal.follows}
        self.moved |= moved
        self.moves += bool(moved)
        return bool(refused)


def compiled_partition(graph: Graph, program: Program) -> Partition:
    """The one region of a graph that was compiled whole, with the program that it has, whatever its options were."""
    answers, target = Answers(), program.target
    shelf = answers.about(graph)
    shelf.compiled_already(program)
    devices = {node.uid: ENGINE for node in shelf.operations.placed}
    cut = Cut(answers, shelf, devices, program.route)
    return Partition(cut, target, "rules", {}, runtime_of_scope(APP_SCOPE), None)


def _on_host(devices: Mapping[int, str]) -> frozenset[int]:
    return frozenset(uid for uid, device in devices.items() if device == HOST)
