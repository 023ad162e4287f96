"""How each layer's weights are stored: as little time as an error allows, or as little error as a time allows.

Layers are compressed one step at a time, each time the step that saves most for the error it adds to its weights: a
line of graphs from exact to fast. The simulator says how far along the line one may go. Beside the line lie the graphs
with one form in every layer that gains by it, because errors of several forms do not always add up as their weights
suggest.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Any

import numpy as np

from aneforge.advice.checking import Checker, Deviation
from aneforge.advice.form_search import SearchLimits, form_proposals, refuse_reps, tuned_model
from aneforge.advice.forms import encoding_forms
from aneforge.advice.proposals import Figure, Proposal, timed
from aneforge.advice.tuning import Candidate, Tuning
from aneforge.chips.chip import Target
from aneforge.errors import AneforgeError
from aneforge.formats.arguments import Source, chip_of
from aneforge.graph.forms import Site, applied
from aneforge.graph.layer_forms import layer_of
from aneforge.study.model import Model, warn_of
from aneforge.study.partition import Partition
from aneforge.study.study import Study

DEFAULT_ERROR = 0.01  # what int8 weights are worth on silicon (compression.json accuracy)


@dataclass(frozen=True, eq=False)
class FormStep:
    """One layer in one form, and what that saves and spoils."""

    site: Site
    form: str
    saved: float
    spoiled: float
    """The error of the weights: the square of the difference over the square of the numbers."""


Choice = dict[int, FormStep]
"""The form of each layer that is compressed, by node."""
_Key = frozenset[tuple[int, str]]


class FormLine:
    """One graph on one chip with the weights of some layers stored in other forms."""

    def __init__(self, study: Study, check: Checker, proposals: Sequence[Proposal], verbose: bool = False) -> None:
        self.study, self.graph, self.chip, self.verbose = study, study.graph, study.targets[0], verbose
        split, estimate = timed(study)
        self.check, self.untouched = check, Figure.of(estimate)
        (name,) = study.chips
        self.steps = _in_order(proposals, name)
        self._known: dict[_Key, tuple[Partition, Figure]] = {frozenset(): (split, self.untouched)}
        self._checks: dict[_Key, Deviation] = {frozenset(): Deviation(0.0, True)}

    @property
    def tried(self) -> int:
        """How many graphs were compiled beside the untouched one."""
        return len(self._known) - 1

    def chosen(self, count: int) -> Choice:
        """The form of each layer after so many steps."""
        return {step.site.node.uid: step for step in self.steps[:count]}

    def everywhere(self) -> list[Choice]:
        """For each form, all layers that gain by it."""
        forms = dict.fromkeys(step.form for step in self.steps)
        return [{step.site.node.uid: step for step in self.steps if step.form == form} for form in forms]

    def at(self, choice: Choice) -> tuple[Partition, Figure]:
        key = _key(choice)
        if key not in self._known:
            graph = applied(self.graph, [step.site for step in choice.values()])
            split, estimate = timed(self.study.with_graph(graph))
            self._known[key] = split, Figure.of(estimate)
        return self._known[key]

    def error(self, choice: Choice) -> float:
        key = _key(choice)
        if key not in self._checks:
            split, estimate = self.at(choice)
            self._checks[key] = self.check(split)
            if self.verbose:
                progress = f"{len(choice)} layers compressed: {estimate.us:.1f} us by estimate"
                print(f"tune_precision: {progress}, error {self._checks[key].error:.1e}", file=sys.stderr)
        return self._checks[key].error

    def within_error(self, limit: float) -> Choice:
        """The furthest place on the line whose error is allowed, found by halving, or one form everywhere where that
        is allowed and faster. Never slower than untouched: a program may not gain what its layers alone do."""
        low, high = 0, len(self.steps)
        if high and self.error(self.chosen(high)) <= limit:
            low = high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.error(self.chosen(middle)) <= limit else (low, middle)
        best: Choice = {}
        for choice in (self.chosen(low), *self.everywhere()):
            if self.at(choice)[1].us < self.at(best)[1].us and self.error(choice) <= limit:
                best = choice
        return best

    def within_time(self, budget: float, limit: float | None) -> Choice:
        """The first place on the line that is fast enough, found by halving."""
        low, high = -1, len(self.steps)
        fastest = self.at(self.chosen(high))[1].us
        if fastest > budget:
            raise AneforgeError(
                f"tune_precision: no choice of weights takes {budget:g} us or less on {self.chip.name}; the fastest "
                f"takes {fastest:.1f} us by estimate, the graph as it is {self.untouched.us:.1f} us"
            )
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self.at(self.chosen(middle))[1].us <= budget else (middle, high)
        choice = self.chosen(high)
        if limit is not None and self.error(choice) > limit:
            raise AneforgeError(
                f"tune_precision: {budget:g} us on {self.chip.name} costs an error of {self.error(choice):.1e}, "
                f"{limit:g} is allowed; allow more time or more error"
            )
        return choice


def _key(choice: Choice) -> _Key:
    return frozenset((uid, step.form) for uid, step in choice.items())


def _in_order(proposals: Sequence[Proposal], chip: str) -> list[FormStep]:
    """Every step that saves time, layer by layer from exact to fast, in the order of what each saves for its error."""
    ladders: dict[int, list[FormStep]] = {}
    for proposal in proposals:
        for site, before, after in proposal.prices(chip):
            if before > after:
                step = FormStep(site, proposal.name, before - after, _spoiled(site))
                ladders.setdefault(site.node.uid, []).append(step)
    rungs = {uid: _rungs(steps) for uid, steps in ladders.items()}
    order: list[FormStep] = []
    waiting = [(_worth(None, steps[0]), uid, 0) for uid, steps in rungs.items()]
    heapify(waiting)
    while waiting:
        _, uid, place = heappop(waiting)
        step, above = rungs[uid][place], rungs[uid][place + 1 : place + 2]
        order.append(step)
        if above:
            heappush(waiting, (_worth(step, above[0]), uid, place + 1))
    return order


def _rungs(steps: Sequence[FormStep]) -> list[FormStep]:
    """Forms of one layer that are worth having: each spoils more than the one before, and saves more."""
    rungs: list[FormStep] = []
    for step in sorted(steps, key=lambda rung: (rung.spoiled, -rung.saved, rung.form)):
        if not rungs or step.saved > rungs[-1].saved:
            rungs.append(step)
    return rungs


def _worth(before: FormStep | None, step: FormStep) -> float:
    """Error added for each microsecond saved; the smaller, the sooner."""
    saved = step.saved - (before.saved if before else 0.0)
    spoiled = step.spoiled - (before.spoiled if before else 0.0)
    return spoiled / saved


def _spoiled(site: Site) -> float:
    """How far the stored numbers are from the layer's own, by the layer as the form builds it."""
    layer, built = layer_of(site.node), site.build(*site.operands)
    weight = built.inputs[1].weight
    if layer is None or weight is None:
        return float("inf")
    numbers = layer.weight.astype(np.float64)
    return float(np.sum((weight.array.astype(np.float64) - numbers) ** 2) / max(np.sum(numbers**2), 1e-30))


def tune_precision(
    out: Source,
    target_error: float | None = None,
    cost_budget_us: float | None = None,
    inputs: Any = None,
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
    ``verbose`` prints each choice on stderr.
    """
    refuse_reps("tune_precision", reps)
    if cost_budget_us is not None and not (np.isfinite(cost_budget_us) and cost_budget_us > 0):
        raise AneforgeError(f"cost_budget_us: {cost_budget_us!r} is not a time; give a number above 0.")
    error = DEFAULT_ERROR if target_error is None and cost_budget_us is None else target_error
    SearchLimits(target_error=error)  # refuses what is not an error
    study = Study(out, chip_of(target, out), dims=dims, function=function)
    split, estimate = timed(study)
    check = Checker.on(split, estimate, inputs)
    line = FormLine(study, check, form_proposals(study, encoding_forms(split.target)), verbose)
    if cost_budget_us is not None:
        choice = line.within_time(cost_budget_us, error)
    else:
        assert error is not None
        choice = line.within_error(error)
    model = tuned_model(_report(line, choice, check.mode, estimate.basis.fitted, split.in_part))
    warn_of(model)
    return model, model.tuning


def _report(line: FormLine, choice: Choice, mode: str, fitted: bool, in_part: str) -> Tuning:
    split, best = line.at(choice)
    error = line.error(choice)
    names = line.graph.names()
    candidates = tuple(
        _candidate(step, names[step.site.node.uid], choice.get(step.site.node.uid) is step, best, error)
        for step in line.steps
    )
    figures = split.graph, line.untouched, best, candidates, line.tried, mode, error, fitted
    return Tuning(line.chip, *figures, in_part=in_part)


def _candidate(step: FormStep, node: str, kept: bool, best: Figure, error: float) -> Candidate:
    if not kept:
        why = "beyond the limit, or another form was taken"
        return Candidate(step.form, "encoding", (node,), kept, why)
    why = f"kept: saves {step.saved:.1f} us there"
    return Candidate(step.form, "encoding", (node,), kept, why, best, error, same_bits=error == 0)
