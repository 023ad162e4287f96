"""The study of a model: every answer about it on some chips, each worked out once.

A question is asked of a :class:`Study`, and every command and function that answers one reads it there. What was
worked out is kept with the graph (:mod:`aneforge.study.answers`), so that a second question, or one about a changed
graph, only works out what is new.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property, partial
from typing import TYPE_CHECKING

from aneforge.chips.chip import Target
from aneforge.chips.ops import ROUTES
from aneforge.chips.systems import system
from aneforge.compiler.legal.query import KEEP_TYPES
from aneforge.cost.calls import APP_SCOPE, check_scope
from aneforge.cost.machines import copy_rate
from aneforge.errors import AneforgeError, ArgumentError
from aneforge.formats.arguments import Chips, Source, chips_of, graph_of, model_name
from aneforge.graph.graph import Graph
from aneforge.graph.traits import GraphTrait
from aneforge.numerics.divergence import magnitude
from aneforge.study.answers import Answers, Operations, Shelf, answers_about
from aneforge.study.condensed import CondensedPreflight
from aneforge.study.placement import Runtime, asked_runtime, declined, is_call_of, runtime_of_scope, unknown_time
from aneforge.study.preflight import Preflight
from aneforge.study.regions import Refusals

if TYPE_CHECKING:
    from aneforge.cost.estimate import Estimate
    from aneforge.study.partition import Partition, Partitioning


class Study:
    """One model on some chips.

    ``model`` and ``target`` are as for every function; without a target they are the default chips. ``route`` is how a
    program reaches a chip (``conversion``, ``direct``, or None for the usual one). ``runtime`` is who hands the
    program to the engine: where it is left out, that of the setting ``ANEFORGE_RUNTIME``, the one that reads the
    model's file as it is, else the one whose call the scope is. ``scope`` is what a time covers: a call of that
    runtime, or of Core ML, where it is left out. ``os`` is the version of the system; without it that of the setting
    ``ANEFORGE_OS``, else the newest known. ``max_abs`` bounds every input that promises nothing, which decides whether
    numbers can be wrong. ``copy_gbs`` is how fast the machine's host copies, where somebody measured it.
    """

    def __init__(
        self,
        model: Source,
        target: Chips = None,
        *,
        route: str | None = None,
        scope: str | None = None,
        runtime: str | None = None,
        os: str | None = None,
        max_abs: float | None = None,
        copy_gbs: float | None = None,
        dims: Mapping[str, int] | None = None,
        function: str | None = None,
        answers: Answers | None = None,
    ) -> None:
        if route is not None and route not in ROUTES:
            raise ArgumentError("route", f"{route!r} is not a route; choose one: {', '.join(ROUTES)}.")
        if scope is not None:
            check_scope(scope)
        known = model if isinstance(model, Study) else None
        graph = graph_of(model, dims, function)
        self.model = model if known is None else known.model
        self.chips: dict[str, Target] = (
            dict(known.chips) if known is not None and target is None else chips_of(target, model)
        )
        """By the names they were asked for, in that order."""
        self.route = route or graph.route
        asked = asked_runtime(runtime, graph)
        if known is not None and runtime is None:
            asked = known.runtime if known.by_runtime else None
        self.scope = scope or (APP_SCOPE if asked is None else asked.scope)
        self.by_runtime = asked is not None and asked.route != "direct" and self.route != "direct"
        """Whether verdicts and times are about what the runtime leaves on the engine: where one was asked for, or the
        file is one that a runtime reads as it is. Otherwise they are about all that the engine can take."""
        self.runtime: Runtime = runtime_of_scope(self.scope) if asked is None else asked
        if asked is not None and asked.route is not None:
            self.route = asked.route
        self.os = system(os)
        self.max_abs = magnitude("max_abs", max_abs) if known is None or max_abs is not None else known.max_abs
        self.copy_gbs = known.copy_gbs if known is not None and copy_gbs is None else copy_rate(None, copy_gbs)
        self.answers = answers or (answers_about(graph) if known is None else known.answers)
        self.shelf: Shelf = self.answers.about(graph)

    @classmethod
    def on(
        cls, graph: Graph, chips: Mapping[str, Target], route: str | None = None, scope: str | None = None
    ) -> Study:
        """The study of a graph on chips that are known already."""
        study = cls(graph, next(iter(chips.values())), route=route, scope=scope)
        return study.with_chips(chips)

    # The question.

    @property
    def graph(self) -> Graph:
        """The graph that was asked about, or one that says the same and is known already."""
        return self.shelf.graph

    @property
    def name(self) -> str:
        """What reports call the model."""
        return model_name(self.model)

    @property
    def names(self) -> Mapping[int, str]:
        """A distinct name for every node, by its id."""
        return self.shelf.names

    @property
    def operations(self) -> Operations:
        return self.shelf.operations

    @cached_property
    def targets(self) -> list[Target]:
        """The compiler's targets behind the chips, each once."""
        return list({chip.name: chip for chip in self.chips.values()}.values())

    def with_graph(self, graph: Graph) -> Study:
        """The same questions about a changed graph. It shares all that did not change."""
        return self._again(graph, self.chips)

    def with_chips(self, chips: Mapping[str, Target] | Iterable[str]) -> Study:
        """The same questions about other chips, or some of these by name."""
        chosen = chips if isinstance(chips, Mapping) else {name: self.chips[name] for name in chips}
        return self._again(self.graph, chosen)

    def by(self, runtime: Runtime) -> Study:
        """The same questions of another runtime, in its own scope and by its own route, where it has one."""
        study = self._again(self.graph, self.chips)
        study.runtime, study.scope, study.route = runtime, runtime.scope, runtime.route or self.route
        study.by_runtime = self.by_runtime and runtime.route is None
        return study

    def in_scope(self, scope: str) -> Study:
        """The same questions with times of another scope."""
        study = self._again(self.graph, self.chips)
        study.scope = scope
        if not self.by_runtime:
            study.runtime = runtime_of_scope(scope)
        return study

    def by_route(self, route: str) -> Study:
        """The same questions by another route."""
        study = self._again(self.graph, self.chips)
        study.route = route
        return study

    def under(self, os: str) -> Study:
        """The same questions about another system."""
        study = self._again(self.graph, self.chips)
        study.os = system(os)
        return study

    def _again(self, graph: Graph, chips: Mapping[str, Target]) -> Study:
        study = object.__new__(Study)
        study.chips = dict(chips)
        study.model = self.model if graph is self.graph else graph
        study.route, study.scope, study.runtime, study.os = self.route, self.scope, self.runtime, self.os
        study.by_runtime, study.max_abs, study.copy_gbs = self.by_runtime, self.max_abs, self.copy_gbs
        study.answers = self.answers
        study.shelf = self.answers.about(graph)
        return study

    # What each chip does with each node.

    def preflights(self) -> dict[str, Preflight]:
        """The report of each chip on every node, by the chip's name."""
        refuse_constant(self.graph)
        key = "preflight", self.route, self.os, self.max_abs, self._told
        by_target = self.shelf.once_each(key, self.targets, self._preflights)
        return {name: by_target[chip.name] for name, chip in self.chips.items()}

    def _preflights(self, targets: list[Target]) -> dict[str, Preflight]:
        """By target: from the short form of the graph where it has one."""
        short = self.shelf.condensed
        if short is None or self.runtime.hands_to:
            return self._whole_preflights(targets)
        asked = self.with_graph(short.graph).with_chips({target.name: target for target in targets})
        refusals = partial(self.shelf.refusals, targets, self.route)
        return {
            name: CondensedPreflight(self.shelf, report, refusals, self._whole_preflight)
            for name, report in asked.preflights().items()
        }

    def _whole_preflight(self, target: Target) -> Preflight:
        return self._whole_preflights([target])[target.name]

    def _whole_preflights(self, targets: list[Target]) -> dict[str, Preflight]:
        surveys = self.shelf.surveys(targets, self.route)
        shared = self.shelf.once(("shared by preflights", self.route, self.max_abs), dict)
        handed_on = self.shelf.once(
            ("declined", self.runtime.name), lambda: declined(self.graph, self.names, self.runtime)
        )
        settings = self.route, shared, self.os, self.max_abs, self._told, handed_on
        return {
            target.name: Preflight(self.graph, self.names, target, surveys[target.name], *settings)
            for target in targets
        }

    @property
    def _told(self) -> tuple[str, ...]:
        """The runtimes that reasons are about: the one that was asked about, or those that read a model as it is."""
        return self.runtime.names if self.by_runtime else KEEP_TYPES

    def _report(self, target: Target) -> Preflight:
        return self.with_chips({target.name: target}).preflights()[target.name]

    # What runs where.

    def partitions(self, by: str = "rules") -> dict[str, Partition]:
        """The partition of each chip: ``rules`` (all that the engine can take), ``runtime`` (without what the runtime
        keeps off) or ``placement`` (what the runtime would likely choose)."""
        from aneforge.study.partition import WAYS

        if by not in WAYS:
            raise ArgumentError("by", f"{by!r} is not a way to partition; choose one: {', '.join(WAYS)}.")
        way = self._partitioning()

        def work_out(new: list[Target]) -> dict[str, Partition]:
            if by == "rules":
                return way.by_rules(new)
            names = {target.name for target in new}
            allowed = [split for split in self.partitions().values() if split.target.name in names]
            return way.by_runtime(allowed) if by == "runtime" else way.by_placement(allowed)

        key = "partition", by, self.route, self.runtime.name, self.by_runtime, self.os, self.max_abs
        by_target = self.shelf.once_each(key, self.targets, work_out)
        return {name: by_target[chip.name].of_product(chip) for name, chip in self.chips.items()}

    def judged(self) -> dict[str, Partition]:
        """The partitions that verdicts are about: without what the runtime keeps off, where one is asked about."""
        return self.partitions("runtime" if self.by_runtime else "rules")

    def partition(self, by: str = "rules") -> Partition:
        """The partition of the only chip."""
        (split,) = self.partitions(by).values()
        return split

    def _partitioning(self) -> Partitioning:
        from aneforge.study.partition import Partitioning

        return Partitioning(self.answers, self.shelf, self.route, self.runtime, self._report)

    def cut_alike(self) -> dict[str, Partition]:
        """The partitions with one cut for all chips: what one of them refuses is on the host for all."""
        splits = self.partitions()
        by_target = {split.target.name: split for split in splits.values()}
        way = self._partitioning()
        while len({frozenset(split.refusals) for split in by_target.values()}) > 1:
            together: Refusals = {}
            for split in by_target.values():
                together |= split.refusals
            by_target = way.split(self.targets, dict.fromkeys(by_target, together), "rules")
        return {name: by_target[chip.name].of_product(chip) for name, chip in self.chips.items()}

    def without(self, moved: Refusals) -> dict[str, Partition]:
        """The partitions with more nodes on the host, each with the reason."""
        way = self._partitioning()
        refused = {split.target.name: {**split.refusals, **moved} for split in self.timed().values()}
        by_target = way.split(self.targets, refused, "runtime")
        return {name: by_target[chip.name].of_product(chip) for name, chip in self.chips.items()}

    # How long it takes.

    def timed(self) -> dict[str, Partition]:
        """The partitions that times are about: those of a runtime where it is asked about or its call is timed."""
        return self.partitions("runtime") if is_call_of(self.scope, self.runtime) else self.judged()

    def engine_us(self) -> dict[str, float]:
        """Microseconds on the engine alone, for the chips that take the graph whole."""
        return {
            name: split.estimate(self.scope).engine_us
            for name, split in self.partitions().items()
            if split.cut.untouched
        }

    def estimates(self) -> tuple[dict[str, Estimate], dict[str, AneforgeError]]:
        """How long a call takes on each chip, and why there is no figure for the others."""
        known: dict[str, Estimate] = {}
        refused: dict[str, AneforgeError] = {}
        for name, split in self.timed().items():
            called = is_call_of(self.scope, self.runtime)
            unknown = unknown_time(self.graph, split.target, self.runtime) if called else ""
            if not split.runs:
                refused[name] = split.nothing_runs()
            elif unknown:
                refused[name] = ArgumentError("model", f"the time of a call is not known. {unknown}")
            else:
                known[name] = split.estimate(self.scope, self.copy_gbs)
        return known, refused


def refuse_constant(graph: Graph) -> None:
    """Refuse a graph that no chip has anything to do with."""
    if not any(node.is_a(GraphTrait.PORT) or node.op == "live_state" for node in graph.nodes):
        raise ArgumentError("model", "the graph has no inputs, so it is a constant. Evaluate it with af.evaluate.")
