"""How each layer's weights are stored: as little time as an error allows, or as little error as a time allows."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from aneforge.arguments import Source, chip_of
from aneforge.errors import AneforgeError
from aneforge.model import Model, warn_of
from aneforge.study.study import Study
from aneforge.targets.chip import Target
from aneforge.tuning.checking import Checker, Inputs
from aneforge.tuning.line import DEFAULT_ERROR, Choice, Line, Step
from aneforge.tuning.pricing import timed_whole
from aneforge.tuning.records import Candidate, Figure, Tuning
from aneforge.tuning.search import Limits, refuse_reps, tuned_model
from aneforge.tuning.stored_forms import encoding_forms

__all__ = ["tune_precision"]


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
    ``verbose`` prints each choice on stderr.
    """
    refuse_reps("tune_precision", reps)
    if cost_budget_us is not None and not (np.isfinite(cost_budget_us) and cost_budget_us > 0):
        raise AneforgeError(f"cost_budget_us: {cost_budget_us!r} is not a time; give a number above 0.")
    error = DEFAULT_ERROR if target_error is None and cost_budget_us is None else target_error
    Limits(target_error=error)  # refuses what is not an error
    study = Study(out, chip_of(target, out), dims=dims, function=function)
    split, estimate = timed_whole(study)
    check = Checker(split, sum(layer.flops for layer in estimate.layers), inputs)
    line = Line(study, check, encoding_forms(split.target), verbose=verbose)
    if cost_budget_us is not None:
        choice = line.within_time(cost_budget_us, error)
    else:
        assert error is not None
        choice = line.within_error(error)
    model = tuned_model(_report(line, choice, check.mode, estimate.basis.measured, split.in_part))
    warn_of(model)
    return model, model.tuning


def _report(line: Line, choice: Choice, mode: str, measured: bool, in_part: str) -> Tuning:
    split, best = line.at(choice)
    error = line.error(choice)
    names = line.graph.names()
    candidates = tuple(
        _candidate(step, names[step.site.node.uid], choice.get(step.site.node.uid) is step, best, error)
        for step in line.steps
    )
    figures = split.graph, line.untouched, best, candidates, line.tried, mode, error, measured
    return Tuning(line.chip, *figures, in_part=in_part)


def _candidate(step: Step, node: str, kept: bool, best: Figure, error: float) -> Candidate:
    if not kept:
        why = "beyond the limit, or another form was taken"
        return Candidate(step.form, "encoding", (node,), kept, why)
    why = f"kept: saves {step.saved:.1f} us there"
    return Candidate(step.form, "encoding", (node,), kept, why, best, error, same_bits=error == 0)
