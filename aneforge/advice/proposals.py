"""One engine for every change of a model: where it applies, what it costs, and how it is applied.

A change is a :class:`Proposal`: the places that it builds another way, or what else it changes about the call. Prices
come from the study: :func:`price_alone` asks about a place by itself, before and after, and :meth:`Workbench.price`
about the whole model with the change. :class:`aneforge.advice.checking.Checker` says what it does to the numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from math import fsum
from typing import Any

from aneforge.chips.assumed import compile_fact
from aneforge.chips.chip import Target
from aneforge.chips.families import Family
from aneforge.compiler.refusal import Refusal
from aneforge.cost.calls import Ports, call_us
from aneforge.cost.estimate import Estimate
from aneforge.cost.parts import host_band
from aneforge.errors import AneforgeError, first_line
from aneforge.graph.forms import FormContext, OtherForm, Site, alone, applied, context_of, likeness
from aneforge.graph.graph import Graph
from aneforge.graph.tensor import Tensor
from aneforge.study.partition import Partition
from aneforge.study.regions import ENGINE, region_of
from aneforge.study.study import Study

LEAST_GAIN = 0.02
"""The share of a call that a change must save; less is no advice."""


@dataclass(frozen=True)
class Figure:
    """An estimate of one call, in microseconds: the number, and between which it lies eight times of ten."""

    us: float
    interval: tuple[float, float]

    @classmethod
    def of(cls, estimate: Estimate) -> Figure:
        return cls(estimate.us, estimate.interval)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


# A form at its places.


@dataclass(eq=False)
class Places:
    """Equal places for one form, and what one of them takes on the engine of each chip."""

    form: OtherForm
    chips: list[str]
    """The chips whose working set the form fits."""
    sites: list[Site] = field(default_factory=list)
    before: dict[str, float] = field(default_factory=dict)
    """By chip, in microseconds; a chip that refuses the place as it is has none, nor one that was not priced."""
    after: dict[str, float] = field(default_factory=dict)


def context_on(graph: Graph, chip: Target) -> FormContext:
    """What decides on a chip where a form fits."""
    return context_of(graph, compile_fact(chip, "max_operand_bytes").value)


def places_of(study: Study, forms: Iterable[OtherForm]) -> list[Places]:
    """Every place that a form fits, in the order of the graph, by form and likeness. What fits depends on a chip's
    working set."""
    chosen = list(forms)
    chips_of: dict[float, list[str]] = {}
    contexts: dict[float, FormContext] = {}
    for name, chip in study.chips.items():
        context = context_on(study.graph, chip)
        contexts[context.working_set] = context
        chips_of.setdefault(context.working_set, []).append(name)
    groups: dict[tuple[object, ...], Places] = {}
    for working_set, context in contexts.items():
        for node in study.graph.nodes:
            for form in () if node.definition.leaf else chosen:
                site = form.find(node, context)
                if site is not None:
                    key = (form.name, working_set, *likeness(site))
                    groups.setdefault(key, Places(form, chips_of[working_set])).sites.append(site)
    return list(groups.values())


def price_alone(study: Study, places: Places) -> None:
    """What one of the places takes before and after. A shape that the other form cannot have has no price."""
    try:
        graphs = alone(places.sites[0])
        if graphs is not None:
            asked = study.with_chips(places.chips)
            places.before, places.after = (asked.with_graph(graph).engine_us() for graph in graphs)
    except AneforgeError:
        return


# A change of the whole model.


@dataclass(frozen=True, eq=False)
class AboutChange:
    """What a change is about, in words. Two proposals may say the same of different places, so none equals another."""

    name: str
    """Short, the same for all chips: ``weights as int8``."""
    kind: str
    """``precision``, ``rewrite``, ``cut`` (what the engine and the host each do), ``call``, or that of a form."""
    cause: str = "layers"
    """What it works against: ``weights``, ``calls``, ``crossings`` or ``layers``."""
    what: str = ""
    """What to do, in a sentence."""
    nodes: tuple[str, ...] = ()
    """The user's nodes that it is about; none where it is about the call."""
    how: str = "compiled and estimated"
    """How its price is worked out."""
    numbers: str = "same results up to rounding"
    """What it does to the results."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Proposal(AboutChange):
    """A change that may help: cheap to find, and priced only where it can save enough."""

    sites: tuple[Site, ...] = ()
    """The places of the graph that it builds another way."""
    places: tuple[Places, ...] = ()
    """The prices of those places by themselves, where somebody asked."""
    graph: Callable[[], Graph] | None = None
    """The graph after a change that is not one of places."""
    on_host: tuple[Tensor, ...] = ()
    """Nodes that it leaves to the host, inside the call."""
    outside: tuple[Tensor, ...] = ()
    """Nodes that it leaves out of the model, which the caller then computes."""
    inputs: int = 1
    """Inputs of the model that go into one call."""
    ports: Callable[[str], Ports] | None = None
    """The ports of a call on a chip, where it changes those alone and the layers stay."""
    family: str = ""
    """Of several proposals of one family a chip is told the best."""
    most: dict[str, float] = field(default_factory=dict)
    """By chip, the microseconds that it can save at most, or is expected to save."""

    @property
    def lossy(self) -> bool:
        return any(places.form.lossy for places in self.places)

    def prices(self, chip: str) -> Iterator[tuple[Site, float, float]]:
        """Each place with what it takes by itself before and after."""
        for places in self.places:
            for site in places.sites:
                yield site, places.before[chip], places.after[chip]

    def gain(self, chip: str) -> float:
        """What the places gain by themselves."""
        return fsum(before for _, before, _ in self.prices(chip)) - fsum(after for *_, after in self.prices(chip))


@dataclass(frozen=True)
class Trial:
    """A changed model on one chip: what it takes, or why it cannot be taken there."""

    split: Partition | None = None
    figure: Figure | None = None
    fault: str = ""


def timed(study: Study) -> tuple[Partition, Estimate]:
    """The partition and the estimate of the one chip of a study; raises the reason where there is no figure."""
    known, refused = study.estimates()
    for error in refused.values():
        raise error
    ((name, estimate),) = known.items()
    return study.timed()[name], estimate


class Workbench:
    """One model on some chips as it is, and what changes would make of it."""

    def __init__(self, study: Study) -> None:
        self.study = study
        self.graph, self.names, self.scope = study.graph, study.names, study.scope
        self.splits: Mapping[str, Partition] = study.timed()
        """By the name that each chip was asked for."""
        self.estimates: Mapping[str, Estimate] = study.estimates()[0]

    def price(self, proposal: Proposal, chips: Sequence[str]) -> dict[str, Figure]:
        """What a call takes with a change, of one input where several go into it, on those of the chips that can have
        it. Whether numbers are known to be wrong is looked up where it saves enough."""
        if proposal.ports is not None:
            figures = {name: self._with_ports(proposal, name) for name in chips}
        elif proposal.on_host:
            figures = self._with_on_host(proposal.on_host, chips)
        else:
            below = {name: proposal.inputs * (1 - LEAST_GAIN) * self.estimates[name].us for name in chips}
            trials = self.tried(lambda: self.changed(proposal, chips[0]), chips, below)
            figures = {name: trial.figure for name, trial in trials.items() if trial.figure and not trial.fault}
        if proposal.outside:
            band = host_band(proposal.outside)
            added = Figure(band.middle, (band.low, band.high))
            return {name: _sum(figure, added) for name, figure in figures.items()}
        return {name: _share(figure, proposal.inputs) for name, figure in figures.items()}

    def changed(self, proposal: Proposal, chip: str) -> Graph:
        """The graph with a change."""
        if proposal.graph is not None:
            return proposal.graph()
        if not proposal.outside:
            return applied(self.graph, proposal.sites)
        gone = {node.uid for node in proposal.outside}
        rest = [node for node in self.splits[chip].cut.operations.placed if node.uid not in gone]
        return region_of(self.graph, rest, ENGINE).graph(self.names)

    def tried(
        self, change: Callable[[], Graph], chips: Sequence[str], below: Mapping[str, float] | None = None
    ) -> dict[str, Trial]:
        """A changed graph compiled and estimated on each chip. It has a fault where a chip refuses it, where more of
        it is on the host than now, or where its numbers are known to be wrong and were right; the last is looked up
        where a call takes no longer than ``below``, if that is given."""
        try:
            changed = self.study.with_graph(change()).with_chips(chips)
            known, refused = changed.estimates()
        except AneforgeError as error:
            return {name: Trial(fault=f"refused: {first_line(error)}") for name in chips}
        trials = {name: Trial(fault=f"refused: {first_line(error)}") for name, error in refused.items()}
        splits = changed.timed()
        for name, estimate in known.items():
            split, now = splits[name], self.splits[name]
            if split.ops - split.on_engine > now.ops - now.on_engine:
                trials[name] = Trial(fault=f"refused: {next(iter(split.reasons.values()))}")
            else:
                trials[name] = Trial(split, Figure.of(estimate))
        asked = [name for name, trial in trials.items() if _is_below(trial, name, below)]
        for name, message in self.new_risks(changed.with_chips(asked)).items() if asked else ():
            trials[name] = Trial(trials[name].split, trials[name].figure, f"the gate warns: {message}")
        return trials

    def new_risks(self, changed: Study) -> dict[str, str]:
        """By chip, what is known to go wrong with the numbers of a changed graph and did not before."""
        after = _risks(changed)
        new = {name: [rules[rule] for rule in rules if rule not in self._risks[name]] for name, rules in after.items()}
        return {name: messages[0] for name, messages in new.items() if messages}

    @cached_property
    def _risks(self) -> dict[str, dict[str, str]]:
        return _risks(self.study)

    def _with_on_host(self, nodes: Sequence[Tensor], chips: Sequence[str]) -> dict[str, Figure]:
        """With some nodes on the host, for chips that still have something to compute."""
        moved = {node.uid: Refusal(self.names[node.uid], "advice", "it is left on the host") for node in nodes}
        try:
            splits = self.study.with_chips(chips).without(moved)
        except AneforgeError:
            return {}
        return {
            name: Figure.of(split.estimate(self.scope, self.study.copy_gbs))
            for name, split in splits.items()
            if split.runs
        }

    def _with_ports(self, proposal: Proposal, chip: str) -> Figure:
        """The same layers in a call with other ports."""
        assert proposal.ports is not None
        estimate = self.estimates[chip]
        engine_us = proposal.inputs * estimate.engine_us
        us = float(call_us(estimate.scope, engine_us, proposal.ports(chip), estimate.basis.constants, estimate.calls))
        return Figure(us, estimate.interval_of(us, proposal.inputs))


def _is_below(trial: Trial, chip: str, below: Mapping[str, float] | None) -> bool:
    return trial.figure is not None and (below is None or trial.figure.us <= below[chip])


def _sum(figure: Figure, other: Figure) -> Figure:
    low, high = (a + b for a, b in zip(figure.interval, other.interval, strict=True))
    return Figure(figure.us + other.us, (low, high))


def _share(figure: Figure, count: int) -> Figure:
    """One of several inputs in a call."""
    low, high = figure.interval
    return Figure(figure.us / count, (low / count, high / count))


def _risks(study: Study) -> dict[str, dict[str, str]]:
    """What is known to go wrong with the numbers on each real chip, by rule, though the simulator is right. Nothing is
    known of chips below the floor of the rules."""
    asked = [name for name, chip in study.chips.items() if chip.family5 not in (None, Family.OLDER)]
    reports = study.with_chips(asked).preflights() if asked else {}
    return {
        name: {finding.rule: finding.message for _, finding in reports[name].defects} if name in reports else {}
        for name in study.chips
    }
