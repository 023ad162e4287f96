"""The search: forms ranked by what they gain where they stand, then tried on the whole graph, best first.

A form is priced once, on a graph of its place alone, and equal places are changed together. What gains most is tried
first on top of all that was kept before: the whole graph is compiled, and must be faster by the estimate; then it is
simulated, and must give the untouched graph's numbers. Nothing is timed and nothing is drawn without a fixed seed, so
the same question has the same answer.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from aneforge.arguments import Source, chip_of, graph_of
from aneforge.compiler.compile import resolve_target
from aneforge.errors import AneforgeError, ArgumentError, first_line
from aneforge.graph.graph import Graph
from aneforge.graph.tensor import Tensor
from aneforge.model import Model, build, warn_of
from aneforge.output.progress import Progress
from aneforge.rewrites.forms import OP_FORMS
from aneforge.rewrites.rewrite import Rewrite, Site, applied, covered
from aneforge.study.study import Study
from aneforge.targets.chip import Target
from aneforge.tuning.attention import ATTENTION_FORMS
from aneforge.tuning.checking import Check, Checker, Inputs
from aneforge.tuning.pricing import Change, changes_of, figure, in_order, joined, risks_by_chip, timed_whole
from aneforge.tuning.records import Candidate, Figure, Tuning
from aneforge.tuning.stored_forms import encoding_forms
from aneforge.tuning.tiling import TILING_FORMS

__all__ = ["Limits", "forms_for", "refuse_reps", "search", "tune", "tuned_model"]

_REPS = 20  # the default of the public signature
LEAST_GAIN = 1.005  # less is noise of the model, and no reason to change a graph


@dataclass(frozen=True)
class Limits:
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


def forms_for(target: Target, compressed: bool = False) -> tuple[Rewrite, ...]:
    """Every form that a search on a target weighs; compressed weights only where they are allowed."""
    plain = (*ATTENTION_FORMS, *TILING_FORMS, *OP_FORMS)
    return (*plain, *encoding_forms(target)) if compressed else plain


def tune(
    out: Source,
    budget: int = 8,
    inputs: Inputs = None,
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

    Forms are ranked by estimate, not by a run on hardware, so ``reps`` other than 20 is refused. ``inputs`` (arrays in
    order, or by name) are what the simulator compares on, else they are drawn from a fixed seed. ``target_error``
    allows compressed weights up to that error. At most ``budget`` forms are tried; those that are slower by more than
    ``prune_factor`` are not. The relative error of a form is at most ``atol``, and one with other bits must be
    ``min_lossy_speedup`` times as fast. ``verbose`` prints each candidate on stderr. What is returned is never
    slower than the graph as it was given, by the same estimate.
    """
    refuse_reps("tune", reps)
    limits = Limits(budget, prune_factor, atol, min_lossy_speedup, target_error)
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
            "of aneforge.tuning.search.search(model, target), and give it to af.partition.",
        )
    model = build(tuning.graph, tuning.target)
    model.tuning = tuning
    return model


def search(
    out: Tensor | Sequence[Tensor] | Graph,
    target: str | int | Target | None = None,
    limits: Limits | None = None,
    inputs: Inputs = None,
    verbose: bool = False,
    progress: Progress | None = None,
) -> Tuning:
    """Look for a faster form of a graph on one target; ``progress`` hears which candidate is being tried."""
    allowed, chip = limits or Limits(), resolve_target(target)
    study = Study(out, chip)
    run = _Search(study, allowed, inputs, verbose, progress)
    forms = forms_for(chip, allowed.target_error is not None)
    run.all(in_order(joined(changes_of(study, forms)), forms))
    return run.result()


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
        limits: Limits,
        inputs: Inputs,
        verbose: bool,
        progress: Progress | None = None,
    ) -> None:
        ((self.name, self.chip),) = study.chips.items()
        self.study, self.limits, self.verbose, self.progress = study, limits, verbose, progress
        split, estimate = timed_whole(study)
        self.measured = estimate.basis.measured
        self.in_part = split.in_part
        self.host_ops = split.ops - split.on_engine
        self.check = Checker(split, sum(layer.flops for layer in estimate.layers), inputs)
        self.untouched = figure(estimate)
        self.risks = risks_by_chip(study)[self.name]
        self.names = study.names
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
            measured=self.measured,
            in_part=self.in_part,
        )

    def all(self, changes: Sequence[Change]) -> None:
        """Each change in turn, the one that gains most first."""
        at: dict[int, list[tuple[Change, float]]] = {}
        for change in changes:
            for site, after in zip(change.sites, change.after, strict=True):
                at.setdefault(site.node.uid, []).append((change, after))
        for change in changes:
            pairs = zip(change.sites, change.before, strict=True)
            candidate = self.weigh(
                change, sum(min([was, *(option[1] for option in at[site.node.uid])]) for site, was in pairs)
            )
            if not candidate.kept:  # a change that failed does not count for the others at its place
                for site in change.sites:
                    at[site.node.uid] = [option for option in at[site.node.uid] if option[0] is not change]
            self.candidates.append(candidate)
            figures = "" if candidate.estimate is None else f" {candidate.estimate.us:.1f} us,"
            self.say(f"{candidate.name} at {', '.join(candidate.nodes[:2])}:{figures} {candidate.why}")

    def weigh(self, change: Change, best: float) -> Candidate:
        free = tuple(site for site in change.sites if not covered(site) & self.best.places)
        if not free:
            return self.candidate(change, change.sites, "its place is built another way already")
        after_us = sum(change.after)
        if after_us > self.limits.prune_factor * best:
            return self.candidate(change, free, f"pruned: {after_us:.1f} us there, the best form {best:.1f} us")
        if self.tried >= self.limits.budget:
            return self.candidate(change, free, f"the budget of {self.limits.budget} is spent")
        if self.progress is not None:
            self.progress(self.tried, self.limits.budget, f"trying {change.rewrite.name}")
        self.tried += 1
        return self.attempt(change, free)

    def attempt(self, change: Change, sites: tuple[Site, ...]) -> Candidate:
        """Compile the whole with one more change; simulate it where it is faster; keep it where the numbers hold."""
        try:
            graph = applied(self.study.graph, [*self.best.sites, *sites])
            changed = self.study.with_graph(graph)
            split, timed = timed_whole(changed)
        except AneforgeError as error:
            return self.candidate(change, sites, f"refused: {first_line(error)}")
        if split.ops - split.on_engine > self.host_ops:
            why = next(why for uid, why in split.reasons.items())
            return self.candidate(change, sites, f"refused: {why}")
        estimate = figure(timed)
        warned = self.warned(changed)
        if warned is not None:
            return self.candidate(change, sites, f"the gate warns: {warned}", estimate)
        if estimate.us * LEAST_GAIN > self.best.estimate.us:
            return self.candidate(change, sites, f"not faster than {self.best.estimate.us:.1f} us", estimate)
        check = self.check(split)
        fault = self.numbers(change, estimate, check)
        if fault is not None:
            return self.candidate(change, sites, fault, estimate, check)
        gain = self.best.estimate.us / estimate.us
        self.best = _Kept(
            graph,
            estimate,
            check.error,
            [*self.best.sites, *sites],
            self.best.places.union(*(covered(site) for site in sites)),
            self.best.compressed or change.rewrite.lossy,
        )
        return self.candidate(change, sites, f"kept: {gain:.2f} times faster", estimate, check, kept=True)

    def warned(self, changed: Study) -> str | None:
        """What the gate says of the real chip's numbers that it did not say of the untouched graph."""
        risks = risks_by_chip(changed)[self.name]
        return next((message for rule, message in risks.items() if rule not in self.risks), None)

    def numbers(self, change: Change, estimate: Figure, check: Check) -> str | None:
        """Why a program's numbers are not accepted; None if they are."""
        compressed = self.best.compressed or change.rewrite.lossy
        limit = self.limits.target_error if compressed else self.limits.atol
        assert limit is not None
        if check.error > limit:
            return f"error {check.error:.1e}, {limit:g} is allowed"
        gain = self.best.estimate.us / estimate.us
        if (change.rewrite.lossy or not check.same_bits) and gain < self.limits.min_lossy_speedup:
            return f"other bits for {gain:.2f} times the speed; {self.limits.min_lossy_speedup:g} is asked"
        return None

    def candidate(
        self,
        change: Change,
        sites: Sequence[Site],
        why: str,
        estimate: Figure | None = None,
        check: Check | None = None,
        kept: bool = False,
    ) -> Candidate:
        return Candidate(
            name=change.rewrite.name,
            kind=change.rewrite.kind,
            nodes=tuple(self.names[site.node.uid] for site in sites),
            kept=kept,
            why=why,
            estimate=estimate,
            error=None if check is None else check.error,
            same_bits=None if check is None else check.same_bits,
        )
