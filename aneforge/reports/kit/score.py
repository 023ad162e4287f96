"""How well this package predicted what a kit measured: placement, words, and times with the machine's own copies."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, log
from statistics import median
from typing import Any

from aneforge import text
from aneforge.cost.estimate import estimate_program
from aneforge.errors import AneforgeError
from aneforge.reports.kit.experiments import COPIES, PLACEMENT, TIMES, WORDS, Experiment
from aneforge.reports.kit.judge import CONFIRMS, CONTRADICTS, NONE, judged
from aneforge.reports.kit.profile import profile_of
from aneforge.reports.kit.results import CaseResult, KitResults
from aneforge.study.model import build


@dataclass(frozen=True)
class TimedCase:
    """One model with its measured time and the estimates without and with what was measured of the machine."""

    name: str
    us: float
    estimated_us: float
    with_profile_us: float | None
    inside: bool
    """Whether the measured time lies in the interval of the better estimate."""

    def to_json(self) -> dict[str, Any]:
        return dict(self.__dict__)


@dataclass(frozen=True)
class KitScore:
    """The product beside one machine."""

    chip: str
    right: dict[str, tuple[int, int]]
    """By kind: how many experiments ended as predicted, of how many that were decided."""
    times: tuple[TimedCase, ...]

    def factor(self, better: bool) -> float | None:
        """How many times too long or short the estimates are, in the middle."""
        said = [case.with_profile_us if better else case.estimated_us for case in self.times]
        off = [abs(log(case.us / us)) for case, us in zip(self.times, said, strict=True) if us]
        return exp(median(off)) if off else None

    def __str__(self) -> str:
        lines = [f"{self.chip}: {kind}: {good} of {of} as predicted" for kind, (good, of) in self.right.items()]
        if not self.times:
            return "\n".join([*lines, "no times"])
        rows = [
            (
                case.name,
                f"{case.us:,.0f}",
                f"{case.estimated_us:,.0f}",
                "-" if case.with_profile_us is None else f"{case.with_profile_us:,.0f}",
                "yes" if case.inside else "no",
            )
            for case in self.times
        ]
        heads = ("model", "measured us", "estimate", "with its copies", "in the interval")
        factors = [f"{factor:.2f}" for factor in (self.factor(False), self.factor(True)) if factor is not None]
        return "\n".join([*lines, "", text.columns(heads, rows), "", f"median factor: {' to '.join(factors)}"])

    def to_json(self) -> dict[str, Any]:
        right = {kind: {"right": good, "of": of} for kind, (good, of) in self.right.items()}
        factors = {"estimate": self.factor(False), "with_profile": self.factor(True)}
        return {
            "chip": self.chip,
            "right": right,
            "factors": factors,
            "times": [case.to_json() for case in self.times],
        }


def scored(results: KitResults) -> KitScore:
    """The score of one file of results."""
    findings = judged(results)
    right: dict[str, tuple[int, int]] = {}
    for outcome in findings.outcomes:
        if outcome.status in (CONFIRMS, CONTRADICTS, NONE):
            good, of = right.get(outcome.experiment.kind, (0, 0))
            right[outcome.experiment.kind] = (good + (outcome.status == CONFIRMS), of + 1)
    try:
        rate = profile_of(results).rate
    except AneforgeError:
        rate = None
    timed = [
        _timed(results, outcome.experiment, row, rate)
        for outcome in findings.outcomes
        if outcome.experiment.kind in (COPIES, TIMES)
        for row in results.cases(outcome.experiment)
        if row.status == "ran"
    ]
    order = [kind for kind in (WORDS, PLACEMENT, *right) if kind in right]
    return KitScore(results.machine.chip, {kind: right[kind] for kind in dict.fromkeys(order)}, tuple(timed))


def _timed(results: KitResults, experiment: Experiment, row: CaseResult, rate: float | None) -> TimedCase:
    program = build(experiment.graph_of(experiment.cases[row.case]), results.target).program
    scope = results.runner.scope
    plain = estimate_program(program, scope, results.target)
    better = plain if rate is None else estimate_program(program, scope, results.target, rate)
    low, high = better.interval
    with_profile = None if rate is None else better.us
    return TimedCase(experiment.part(row.case), row.us, plain.us, with_profile, low <= row.us <= high)
