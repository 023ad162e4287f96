"""The search: forms ranked by what they gain where they stand, then tried on the whole graph, best first.

A form is priced once, on a graph of its place alone, and equal places are changed together. What gains most is tried
first on top of all that was kept before: the whole graph is compiled, and must be faster by the estimate; then it is
simulated, and must give the untouched graph's numbers. Nothing is timed and nothing is drawn without a fixed seed, so
the same question has the same answer.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import fsum
from typing import Any

from aneforge.advice.checking import Checker, Deviation
from aneforge.advice.forms import forms_for
from aneforge.advice.proposals import Figure, Proposal, Trial, Workbench, places_of, price_alone, timed
from aneforge.advice.tuning import Candidate, Tuning
from aneforge.chips.chip import Target
from aneforge.compiler.compile import resolve_target
from aneforge.errors import AneforgeError, ArgumentError
from aneforge.formats.arguments import Source, chip_of, graph_of
from aneforge.graph.forms import OtherForm, Site, applied, covered
from aneforge.graph.graph import Graph
from aneforge.graph.tensor import Tensor
from aneforge.progress import Progress
from aneforge.study.model import Model, build, warn_of
from aneforge.study.study import Study

_REPS = 20  # the default of the public signature
LEAST_SPEEDUP = 1.005  # less is noise of the model, and no reason to change a graph


@dataclass(frozen=True)
class SearchLimits:
    """What a search may do and what it must keep to."""

    budget: int = 8
    """Candidates that are compiled and simulated, at most."""
    prune_factor: float = 1.5
    """A form this many times slower than the best at its place is not tried."""
    atol: float = 0.005
    """The largest error of forms that are equal but for rounding, relative to the largest number of an output."""
    min_lossy_speedup: float = 1.1
    """How much faster a form must be that does not give the same bits."""
    target_error: float | None = None
    """The largest error with compressed weights; None forbids them."""

    def __post_init__(self) -> None:
        if isinstance(self.budget, bool) or not hasattr(self.budget, "__index__") or self.budget < 1:
            raise AneforgeError(f"budget: {self.budget!r} is not a number of candidates to try, 1 or more.")
        _at_least(self.prune_factor, 1.0, "prune_factor", "forms slower by this factor are not tried")
        _at_least(self.atol, 0.0, "atol", "it is the largest relative error")
        _at_least(self.min_lossy_speedup, 1.0, "min_lossy_speedup", "it is how much faster a lossy form must be")
        if self.target_error is not None:
            _at_least(
                self.target_error, 0.0, "target_error", "it is the largest relative error with compressed weights"
            )


def _at_least(value: float, least: float, name: str, meaning: str) -> None:
    known = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    if not known or value < least:
        raise AneforgeError(f"{name}: {value!r} is not allowed; {meaning}. Give a number of {least:g} or more.")


def tune(
    out: Source,
    budget: int = 8,
    inputs: Any = None,
    prune_factor: float = 1.5,
    reps: int = 20,
    atol: float = 0.005,
    min_lossy_speedup: float = 1.1,
    verbose: bool = False,
    target_error: float | None = None,
    target: str | int | Target | None = None,
    *,
    dims: Mapping[str, int] | None = None,
    function: str | None = None,
) -> Model:
    """Compile a model in the form that the cost model ranks best on a chip; ``model.tuning`` says how it was chosen.

    Forms are ranked by estimate, not by a run on hardware, so ``reps`` other than 20 is refused. ``inputs``
    are what the simulator compares on, as for :func:`aneforge.run`; else they are drawn from a fixed seed.
    ``target_error`` allows compressed weights up to that error. At most ``budget`` forms are tried; those that are
    slower by more than ``prune_factor`` are not. The relative error of a form is at most ``atol``, and one with other
    bits must be ``min_lossy_speedup`` times as fast. ``verbose`` prints each candidate on stderr. What is returned is
    never slower than the graph as it was given, by the same estimate.
    """
    refuse_reps("tune", reps)
    limits = SearchLimits(budget, prune_factor, atol, min_lossy_speedup, target_error)
    model = tuned_model(search(graph_of(out, dims, function), chip_of(target, out), limits, inputs, verbose))
    warn_of(model)
    return model


def refuse_reps(function: str, reps: int) -> None:
    """``reps`` is in the public signature: how often to time a candidate. Nothing is timed here."""
    if reps != _REPS:
        raise ArgumentError(
            "reps", f"{reps!r} has no effect; {function} ranks by estimate and times nothing. Leave it out."
        )


def tuned_model(tuning: Tuning) -> Model:
    """The chosen graph as ``af.compile`` gives it, with the record of how it was chosen."""
    if tuning.in_part:
        raise ArgumentError(
            "model",
            f"af.tune gives one program, and this model runs {tuning.in_part}. Run 'aneforge tune', or take the graph "
            "of aneforge.advice.search(model, target), and give it to af.partition.",
        )
    model = build(tuning.graph, tuning.target)
    model.tuning = tuning
    return model


def search(
    out: Tensor | Sequence[Tensor] | Graph,
    target: str | int | Target | None = None,
    limits: SearchLimits | None = None,
    inputs: Any = None,
    verbose: bool = False,
    progress: Progress | None = None,
) -> Tuning:
    """Look for a faster form of a graph on one target, within ``limits``; ``inputs`` and ``verbose`` are as for
    :func:`tune`, and ``progress`` hears which candidate is being tried."""
    allowed, chip = limits or SearchLimits(), resolve_target(target)
    study = Study(out, chip)
    run = _Search(study, allowed, inputs, verbose, progress)
    forms = forms_for(chip, allowed.target_error is not None)
    run.all(_in_order(_joined(form_proposals(study, forms), run.name), forms, run.name))
    return run.result()


def form_proposals(study: Study, forms: Iterable[OtherForm]) -> list[Proposal]:
    """Every form that fits somewhere on the one chip of a study, with the prices of its places; the one that gains
    most first. None where the chip refuses the place before or after."""
    (chip,) = study.chips
    chosen = list(forms)
    proposals = []
    for places in places_of(study, chosen):
        price_alone(study, places)
        if chip in places.before and chip in places.after:
            proposals.append(
                Proposal(name=places.form.name, kind=places.form.kind, sites=tuple(places.sites), places=(places,))
            )
    return _in_order(proposals, chosen, chip)


def _in_order(proposals: Iterable[Proposal], forms: Sequence[OtherForm], chip: str) -> list[Proposal]:
    """What gains most first; equals as the forms and the nodes stand."""
    order = {form.name: place for place, form in enumerate(forms)}

    def rank(proposal: Proposal) -> tuple[float, int, int]:
        return -proposal.gain(chip), order[proposal.name], proposal.sites[0].node.uid

    return sorted(proposals, key=rank)


def _joined(proposals: Sequence[Proposal], chip: str) -> list[Proposal]:
    """One proposal more for each form of weights that gains in layers of several shapes: in all of them together,
    since what one layer gains is little of a whole call."""
    together: dict[str, list[Proposal]] = {}
    for proposal in proposals:
        if proposal.lossy and proposal.gain(chip) > 0:
            together.setdefault(proposal.name, []).append(proposal)
    joined = [
        Proposal(
            name=name,
            kind=alike[0].kind,
            sites=tuple(site for proposal in alike for site in proposal.sites),
            places=tuple(places for proposal in alike for places in proposal.places),
        )
        for name, alike in together.items()
        if len(alike) > 1
    ]
    return [*proposals, *joined]


@dataclass
class _Kept:
    """The best so far: which places are built another way, and what that gives."""

    graph: Graph
    estimate: Figure
    error: float = 0.0
    sites: list[Site] = field(default_factory=list)
    places: set[int] = field(default_factory=set)
    compressed: bool = False


class _Search:
    def __init__(
        self,
        study: Study,
        limits: SearchLimits,
        inputs: Any,
        verbose: bool,
        progress: Progress | None = None,
    ) -> None:
        ((self.name, self.chip),) = study.chips.items()
        self.limits, self.verbose, self.progress = limits, verbose, progress
        split, estimate = timed(study)
        self.bench = Workbench(study)
        self.fitted = estimate.basis.fitted
        self.in_part = split.in_part
        self.check = Checker.on(split, estimate, inputs)
        self.untouched = Figure.of(estimate)
        self.best = _Kept(study.graph, self.untouched)
        self.candidates: list[Candidate] = []
        self.tried = 0
        self.say(f"untouched: {estimate.us:.1f} us by estimate on {self.chip.name}")

    def say(self, line: str) -> None:
        if self.verbose:
            print(f"tune: {line}", file=sys.stderr)

    def result(self) -> Tuning:
        best = self.best
        return Tuning(
            target=self.chip,
            graph=best.graph,
            untouched=self.untouched,
            best=best.estimate,
            candidates=tuple(self.candidates),
            tried=self.tried,
            mode=self.check.mode,
            error=best.error,
            fitted=self.fitted,
            in_part=self.in_part,
        )

    def all(self, proposals: Sequence[Proposal]) -> None:
        """Each proposal in turn, the one that gains most first."""
        times_at: dict[int, dict[Proposal, float]] = {}
        for proposal in proposals:
            for site, _, after in proposal.prices(self.name):
                times_at.setdefault(site.node.uid, {})[proposal] = after
        for proposal in proposals:
            prices = proposal.prices(self.name)
            best = fsum(min([before, *times_at[site.node.uid].values()]) for site, before, _ in prices)
            candidate = self.weigh(proposal, best)
            if not candidate.kept:  # a form that failed does not count for the others at its place
                for site in proposal.sites:
                    times_at[site.node.uid].pop(proposal, None)
            self.candidates.append(candidate)
            figures = "" if candidate.estimate is None else f" {candidate.estimate.us:.1f} us,"
            self.say(f"{candidate.name} at {', '.join(candidate.nodes[:2])}:{figures} {candidate.why}")

    def weigh(self, proposal: Proposal, best: float) -> Candidate:
        free = tuple(site for site in proposal.sites if not covered(site) & self.best.places)
        if not free:
            return self.candidate(proposal, proposal.sites, "its place is built another way already")
        after_us = fsum(after for *_, after in proposal.prices(self.name))
        if after_us > self.limits.prune_factor * best:
            return self.candidate(proposal, free, f"pruned: {after_us:.1f} us there, the best form {best:.1f} us")
        if self.tried >= self.limits.budget:
            return self.candidate(proposal, free, f"the budget of {self.limits.budget} is spent")
        if self.progress is not None:
            self.progress(self.tried, self.limits.budget, f"trying {proposal.name}")
        self.tried += 1
        return self.attempt(proposal, free)

    def attempt(self, proposal: Proposal, sites: tuple[Site, ...]) -> Candidate:
        """Compile the whole with one more change; simulate it where it is faster; keep it where the numbers hold."""
        chosen = [*self.best.sites, *sites]
        trial = self.bench.tried(lambda: applied(self.bench.graph, chosen), [self.name])[self.name]
        if trial.fault or trial.split is None or trial.figure is None:
            return self.candidate(proposal, sites, trial.fault, trial)
        gain = self.best.estimate.us / trial.figure.us
        if gain < LEAST_SPEEDUP:
            return self.candidate(proposal, sites, f"not faster than {self.best.estimate.us:.1f} us", trial)
        check = self.check(trial.split)
        fault = self.numbers(proposal, gain, check)
        if fault is not None:
            return self.candidate(proposal, sites, fault, trial, check)
        places = self.best.places.union(*map(covered, sites))
        compressed = self.best.compressed or proposal.lossy
        self.best = _Kept(trial.split.graph, trial.figure, check.error, chosen, places, compressed)
        return self.candidate(proposal, sites, f"kept: {gain:.2f} times faster", trial, check, kept=True)

    def numbers(self, proposal: Proposal, gain: float, check: Deviation) -> str | None:
        """Why a program's numbers are not accepted; None if they are."""
        compressed = self.best.compressed or proposal.lossy
        limit = self.limits.target_error if compressed else self.limits.atol
        assert limit is not None
        if check.error > limit:
            return f"error {check.error:.1e}, {limit:g} is allowed"
        if (proposal.lossy or not check.same_bits) and gain < self.limits.min_lossy_speedup:
            return f"other bits for {gain:.2f} times the speed; {self.limits.min_lossy_speedup:g} is asked"
        return None

    def candidate(
        self,
        proposal: Proposal,
        sites: Sequence[Site],
        why: str,
        trial: Trial | None = None,
        check: Deviation | None = None,
        kept: bool = False,
    ) -> Candidate:
        return Candidate(
            name=proposal.name,
            kind=proposal.kind,
            nodes=tuple(self.bench.names[site.node.uid] for site in sites),
            kept=kept,
            why=why,
            estimate=None if trial is None else trial.figure,
            error=None if check is None else check.error,
            same_bits=None if check is None else check.same_bits,
        )
