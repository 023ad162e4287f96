"""The line of graphs from exact to fast: after each step one more layer is stored in a smaller form.

Layers are compressed one step at a time, each time the step that saves most for the error it adds to its weights. The
simulator says how far along the line one may go. Beside the line lie the graphs with one form in every layer that
gains by it, because errors of several forms do not always add up as their weights suggest.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from aneforge.errors import AneforgeError
from aneforge.rewrites.rewrite import Rewrite, Site, applied
from aneforge.rewrites.stored import dense_of, kernel_of
from aneforge.study.partition import Partition
from aneforge.study.study import Study
from aneforge.tuning.checking import Check
from aneforge.tuning.pricing import Change, changes_of, figure, timed_whole
from aneforge.tuning.records import Figure

__all__ = ["DEFAULT_ERROR", "Choice", "Line", "Step"]

DEFAULT_ERROR = 0.01  # what int8 weights are worth on silicon (compression.json accuracy)


@dataclass(frozen=True, eq=False)
class Step:
    """One layer in one form, and what that saves and spoils."""

    site: Site
    form: str
    saved: float
    spoiled: float
    """The error of the weights: the square of the difference over the square of the numbers."""


Choice = dict[int, Step]
"""The form of each layer that is compressed, by node."""
_Key = frozenset[tuple[int, str]]


class Line:
    """One graph on one chip with the weights of some layers stored in other forms."""

    def __init__(
        self,
        study: Study,
        check: Callable[[Partition], Check],
        forms: Sequence[Rewrite] = (),
        *,
        changes: Sequence[Change] | None = None,
        verbose: bool = False,
    ) -> None:
        self.study, self.graph, self.chip, self.verbose = study, study.graph, study.targets[0], verbose
        split, estimate = timed_whole(study)
        self.check, self.untouched = check, figure(estimate)
        self.steps = _in_order(changes_of(study, forms) if changes is None else changes)
        self._known: dict[_Key, tuple[Partition, Figure]] = {frozenset(): (split, self.untouched)}
        self._checks: dict[_Key, Check] = {frozenset(): Check(0.0, True)}

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
            split, estimate = timed_whole(self.study.with_graph(graph))
            self._known[key] = split, figure(estimate)
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


def _in_order(changes: Sequence[Change]) -> list[Step]:
    """Every step that saves time, layer by layer from exact to fast, in the order of what each saves for its error."""
    ladders: dict[int, list[Step]] = {}
    for change in changes:
        for site, was, will in zip(change.sites, change.before, change.after, strict=True):
            if was > will:
                step = Step(site, change.rewrite.name, was - will, _spoiled(site))
                ladders.setdefault(site.node.uid, []).append(step)
    waiting = {uid: _rungs(steps) for uid, steps in ladders.items()}
    at: dict[int, Step] = {}
    order: list[Step] = []
    while any(waiting.values()):
        uid = min((uid for uid, steps in waiting.items() if steps), key=lambda uid: _worth(uid, waiting, at))
        at[uid] = waiting[uid].pop(0)
        order.append(at[uid])
    return order


def _rungs(steps: Sequence[Step]) -> list[Step]:
    """Forms of one layer that are worth having: each spoils more than the one before, and saves more."""
    rungs: list[Step] = []
    for step in sorted(steps, key=lambda rung: (rung.spoiled, -rung.saved, rung.form)):
        if not rungs or step.saved > rungs[-1].saved:
            rungs.append(step)
    return rungs


def _worth(uid: int, waiting: dict[int, list[Step]], at: dict[int, Step]) -> tuple[float, int]:
    """Error added for each microsecond saved; the smaller, the sooner."""
    step, before = waiting[uid][0], at.get(uid)
    saved = step.saved - (before.saved if before else 0.0)
    spoiled = step.spoiled - (before.spoiled if before else 0.0)
    return spoiled / saved, uid


def _spoiled(site: Site) -> float:
    """How far the stored numbers are from the layer's own, by the layer as the form builds it."""
    layer, built = dense_of(site.node) or kernel_of(site.node), site.build(*site.operands)
    weight = built.inputs[1].weight
    if layer is None or weight is None:
        return float("inf")
    numbers = layer.weight.astype(np.float64)
    return float(np.sum((weight.array.astype(np.float64) - numbers) ** 2) / max(np.sum(numbers**2), 1e-30))
