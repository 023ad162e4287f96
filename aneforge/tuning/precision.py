"""How each layer's weights are stored: as little time as an error allows, or as little error as a time allows.

Layers are compressed one step at a time, each time the step that saves most for the error it adds to its weights. That
gives one line of graphs from exact to fast; the simulator says how far along the line one may go.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from aneforge.arguments import Source, chip_of, graph_of
from aneforge.codecs.encoders import encode, encoders_for
from aneforge.errors import AneforgeError
from aneforge.graph.graph import Graph
from aneforge.model import Model, warn_of
from aneforge.regions.partition import Partition, partition_for
from aneforge.rewrites.rewrite import Site, applied
from aneforge.rewrites.stored import dense_of, kernel_of
from aneforge.targets.chip import Target
from aneforge.tuning.checking import Check, Checker, Inputs
from aneforge.tuning.pricing import Change, changes_of, figure
from aneforge.tuning.records import Candidate, Figure, Tuning
from aneforge.tuning.search import Limits, refuse_reps, tuned_model
from aneforge.tuning.stored_forms import encoding_forms

__all__ = ["tune_precision"]

DEFAULT_ERROR = 0.01  # what int8 weights are worth on silicon (compression.json accuracy)


def tune_precision(
    out: Source,
    target_error: float | None = None,
    cost_budget_us: float | None = None,
    inputs: Inputs = None,
    reps: int = 20,
    verbose: bool = False,
    target: str | int | Target | None = None,
    *,
    dims: Mapping[str, int] | None = None,
    function: str | None = None,
) -> tuple[Model, Tuning]:
    """Choose how each layer's weights are stored, among the forms that the target streams; the model and the report of
    every layer's choice (``model.tuning`` is the same report).

    ``target_error`` asks for the fastest choice within that error (0.01 where neither limit is given),
    ``cost_budget_us`` for the most exact choice within that time by estimate; with both, the time is met within the
    error or the call is refused. Nothing is timed, so ``reps`` other than 20 is refused.
    """
    refuse_reps("tune_precision", reps)
    if cost_budget_us is not None and not (np.isfinite(cost_budget_us) and cost_budget_us > 0):
        raise AneforgeError(f"cost_budget_us: {cost_budget_us!r} is not a time; give a number above 0.")
    error = DEFAULT_ERROR if target_error is None and cost_budget_us is None else target_error
    Limits(target_error=error)  # refuses what is not an error
    line = _Line(graph_of(out, dims, function), chip_of(target, out), inputs, verbose)
    steps = line.within_error(error) if cost_budget_us is None else line.within_time(cost_budget_us, error)
    model = tuned_model(line.result(steps))
    warn_of(model)
    return model, model.tuning


@dataclass(frozen=True, eq=False)
class _Step:
    """One layer in one form, and what that saves and spoils."""

    site: Site
    form: str
    saved: float
    spoiled: float
    """The error of the weights: the square of the difference over the square of the numbers."""


class _Line:
    """The graphs from exact to fast: after each step one more layer is stored in a smaller form."""

    def __init__(self, graph: Graph, chip: Target, inputs: Inputs, verbose: bool) -> None:
        self.graph, self.chip, self.verbose = graph, chip, verbose
        self.names = graph.names()
        split = partition_for(graph, chip)
        estimate = split.estimate()
        self.in_part = "" if split.cut.untouched else split.verdict
        self.untouched, self.measured = figure(estimate), estimate.basis.measured
        self.check = Checker(split, sum(layer.flops for layer in estimate.layers), inputs)
        self.steps = _in_order(changes_of(graph, chip, encoding_forms(chip)), chip)
        self.known: dict[int, tuple[Partition, Figure]] = {0: (split, self.untouched)}
        self.checks: dict[int, Check] = {0: Check(0.0, True)}

    def chosen(self, count: int) -> dict[int, _Step]:
        """The form of each layer after so many steps, by node."""
        return {step.site.node.uid: step for step in self.steps[:count]}

    def at(self, count: int) -> tuple[Partition, Figure]:
        if count not in self.known:
            graph = applied(self.graph, [step.site for step in self.chosen(count).values()])
            split = partition_for(graph, self.chip)
            self.known[count] = split, figure(split.estimate())
        return self.known[count]

    def error(self, count: int) -> float:
        if count not in self.checks:
            split, estimate = self.at(count)
            self.checks[count] = self.check(split)
            if self.verbose:
                progress = f"{len(self.chosen(count))} layers compressed: {estimate.us:.1f} us by estimate"
                print(f"tune_precision: {progress}, error {self.checks[count].error:.1e}", file=sys.stderr)
        return self.checks[count].error

    def within_error(self, limit: float | None) -> int:
        """The furthest place on the line whose error is allowed, found by halving; the fastest up to there."""
        assert limit is not None
        low, high = 0, len(self.steps)
        if high and self.error(high) <= limit:
            low = high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.error(middle) <= limit else (low, middle)
        # A whole program may not gain what its layers alone do: never return one that is slower than untouched.
        return low if self.at(low)[1].us < self.untouched.us else 0

    def within_time(self, budget: float, limit: float | None) -> int:
        """The first place on the line that is fast enough, found by halving."""
        low, high = -1, len(self.steps)
        if self.at(high)[1].us > budget:
            raise AneforgeError(
                f"tune_precision: no choice of weights takes {budget:g} us or less on {self.chip.name}; the fastest "
                f"takes {self.at(high)[1].us:.1f} us by estimate, the graph as it is {self.untouched.us:.1f} us"
            )
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self.at(middle)[1].us <= budget else (middle, high)
        count = high
        if limit is not None and self.error(count) > limit:
            raise AneforgeError(
                f"tune_precision: {budget:g} us on {self.chip.name} costs an error of {self.error(count):.1e}, "
                f"{limit:g} is allowed; allow more time or more error"
            )
        return count

    def result(self, count: int) -> Tuning:
        split, best = self.at(count)
        error = self.error(count)
        chosen = self.chosen(count)
        candidates = tuple(self._candidate(step, chosen, best, error) for step in self.steps)
        tried = len(self.known) - 1
        mode = self.check.mode
        figures = split.graph, self.untouched, best, candidates, tried, mode, error, self.measured
        return Tuning(self.chip, *figures, in_part=self.in_part)

    def _candidate(self, step: _Step, chosen: dict[int, _Step], best: Figure, error: float) -> Candidate:
        kept = chosen.get(step.site.node.uid) is step
        why = f"kept: saves {step.saved:.1f} us there" if kept else "beyond the limit, or a smaller form was taken"
        node = (self.names[step.site.node.uid],)
        if not kept:
            return Candidate(step.form, "encoding", node, kept, why)
        return Candidate(step.form, "encoding", node, kept, why, best, error, same_bits=error == 0)


def _in_order(changes: Sequence[Change], chip: Target) -> list[_Step]:
    """Every step that saves time, layer by layer from exact to fast, in the order of what each saves for its error."""
    ladders: dict[int, list[_Step]] = {}
    for change in changes:
        for site, was, will in zip(change.sites, change.before, change.after, strict=True):
            if was > will:
                step = _Step(site, change.rewrite.name, was - will, _spoiled(site, change.rewrite.name, chip))
                ladders.setdefault(site.node.uid, []).append(step)
    waiting = {uid: _rungs(steps) for uid, steps in ladders.items()}
    at: dict[int, _Step] = {}
    order: list[_Step] = []
    while any(waiting.values()):
        uid = min((uid for uid, steps in waiting.items() if steps), key=lambda uid: _worth(uid, waiting, at))
        at[uid] = waiting[uid].pop(0)
        order.append(at[uid])
    return order


def _rungs(steps: Sequence[_Step]) -> list[_Step]:
    """Forms of one layer that are worth having: each spoils more than the one before, and saves more."""
    rungs: list[_Step] = []
    for step in sorted(steps, key=lambda rung: (rung.spoiled, -rung.saved, rung.form)):
        if not rungs or step.saved > rungs[-1].saved:
            rungs.append(step)
    return rungs


def _worth(uid: int, waiting: dict[int, list[_Step]], at: dict[int, _Step]) -> tuple[float, int]:
    """Error added for each microsecond saved; the smaller, the sooner."""
    step, before = waiting[uid][0], at.get(uid)
    saved = step.saved - (before.saved if before else 0.0)
    spoiled = step.spoiled - (before.spoiled if before else 0.0)
    return spoiled / saved, uid


def _spoiled(site: Site, form: str, chip: Target) -> float:
    layer = dense_of(site.node) or kernel_of(site.node)
    encoder = next(known for known in encoders_for(chip) if known.name == form)
    stored = None if layer is None else encode(layer.weight, encoder)
    if layer is None or stored is None:
        return float("inf")
    numbers = layer.weight.astype(np.float64)
    return float(np.sum((stored.decode() - numbers) ** 2) / max(np.sum(numbers**2), 1e-30))
