"""What a comparison with a baseline gives: one outcome a change, and the report of all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from aneforge.errors import shown


@dataclass(frozen=True)
class Rule:
    """One kind of outcome: what it is about, how grave it is, and what to do about it."""

    what: str
    severity: str
    title: str
    do: str
    change: bool = True
    """Whether the model or its results are other than recorded; False where something was only not compared."""


_MEANT = "If it is meant, run aneforge ci update and commit the baseline."
_REFRESH = "Run aneforge ci update, so that losing it again is seen."

RULES = {
    "model-changed": Rule("baseline", "warning", "the model is not the recorded one", _MEANT),
    "version-differs": Rule(
        "baseline",
        "warning",
        "another version of aneforge wrote the baseline",
        "Changes may come from aneforge: see its change log, then run aneforge ci update.",
        change=False,
    ),
    "target-not-recorded": Rule(
        "baseline",
        "error",
        "a target is not in the baseline",
        "Run aneforge ci update, or leave the target out.",
    ),
    "target-not-checked": Rule(
        "baseline",
        "note",
        "recorded targets were not asked for",
        "Leave --target out to check all of them.",
        change=False,
    ),
    "check-not-recorded": Rule(
        "baseline",
        "note",
        "the baseline was written without a check",
        "Run aneforge ci update without --skip.",
        change=False,
    ),
    "program-lost": Rule("verdict", "error", "a target no longer takes the model", _MEANT),
    "program-gained": Rule("verdict", "note", "a target takes the model now", _REFRESH),
    "engine-takes-less": Rule("verdict", "error", "the engine takes less of the model", _MEANT),
    "engine-takes-more": Rule("verdict", "note", "the engine takes more of the model", _REFRESH),
    "placed-less": Rule("verdict", "warning", "the runtime likely gives less of the model to the engine", _MEANT),
    "placed-more": Rule("verdict", "note", "the runtime likely gives more of the model to the engine", _REFRESH),
    "verdict-worse": Rule("verdict", "error", "a node has a worse verdict", _MEANT),
    "verdict-better": Rule("verdict", "note", "a node has a better verdict", _REFRESH),
    "verdict-other": Rule("verdict", "warning", "a node has its verdict by another rule", _MEANT),
    "program-grew": Rule("program", "error", "a program became larger", _MEANT),
    "program-shrank": Rule("program", "note", "a program became smaller", _REFRESH),
    "programs-split": Rule("program", "error", "targets no longer share a program", _MEANT),
    "programs-joined": Rule("program", "note", "targets share a program now", _REFRESH),
    "numerics-lost": Rule("numerics", "error", "a program can no longer be simulated", _MEANT),
    "numerics-gained": Rule("numerics", "note", "a program can be simulated now", _REFRESH),
    "input-changed": Rule("numerics", "error", "the inputs are not the recorded ones", _MEANT),
    "output-changed": Rule("numerics", "error", "outputs came, went or changed their shape", _MEANT),
    "bits-changed": Rule("numerics", "error", "an output has other bits", _MEANT),
    "chips-apart": Rule("numerics", "error", "two chips differ more than recorded", _MEANT),
    "chips-closer": Rule("numerics", "note", "two chips differ less than recorded", _REFRESH),
    "slower": Rule("estimate", "error", "a call is estimated to take longer", _MEANT),
    "faster": Rule("estimate", "note", "a call is estimated to take less", _REFRESH),
    "over-budget": Rule(
        "estimate",
        "error",
        "a call takes longer than --max-us allows",
        "Make the model smaller (aneforge estimate --layers shows where the time goes), or allow more.",
    ),
}


@dataclass(frozen=True)
class Outcome:
    """One difference. ``target`` is empty where it concerns all; ``node`` is a node, an output or a figure."""

    rule: str
    target: str
    node: str
    was: Any
    now: Any
    message: str
    severity: str = ""
    hint: str = ""
    where: tuple[str, int] | None = None

    def __post_init__(self) -> None:
        known = RULES[self.rule]
        object.__setattr__(self, "severity", self.severity or known.severity)
        object.__setattr__(self, "hint", shown(self.hint or known.do))
        for name in ("node", "message"):  # names of models and of baselines: anybody's text
            object.__setattr__(self, name, shown(getattr(self, name)))

    @property
    def what(self) -> str:
        """verdict, program, numerics, estimate, or baseline where the comparison itself is the subject."""
        return RULES[self.rule].what

    def strictly(self) -> Outcome:
        """As ``--strict`` has it: every change is an error, also one for the better."""
        return replace(self, severity="error") if RULES[self.rule].change else self

    def to_json(self) -> dict[str, Any]:
        return {
            "rule": self.rule,
            "what": self.what,
            "severity": self.severity,
            "target": self.target or None,
            "node": self.node or None,
            "was": self.was,
            "is": self.now,
            "message": self.message,
            "hint": self.hint,
        }


@dataclass(frozen=True)
class Report:
    """A model against its baseline. ``unchecked`` says why a check of a target has no answer."""

    model: str
    targets: tuple[str, ...]
    outcomes: tuple[Outcome, ...]
    unchecked: dict[tuple[str, str], str] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return not self.of("error")

    def of(self, severity: str) -> list[Outcome]:
        return [outcome for outcome in self.outcomes if outcome.severity == severity]

    def about(self, target: str, check: str) -> list[Outcome]:
        return [outcome for outcome in self.outcomes if outcome.target == target and outcome.what == check]

    def state(self, target: str, check: str) -> str:
        """``same``, ``changed`` (fails), ``other`` (listed, and does not fail) or ``-`` where nothing was compared."""
        outcomes = self.about(target, check)
        if any(outcome.severity == "error" for outcome in outcomes):
            return "changed"
        if outcomes:
            return "other"
        return "-" if (target, check) in self.unchecked else "same"

    def to_json(self) -> dict[str, Any]:
        from aneforge.baseline.record import CHECKS

        return {
            "model": self.model,
            "ok": self.ok,
            "counts": {severity: len(self.of(severity)) for severity in ("error", "warning", "note")},
            "targets": {name: {check: self.state(name, check) for check in CHECKS} for name in self.targets},
            "outcomes": [outcome.to_json() for outcome in self.outcomes],
        }


def sorted_outcomes(outcomes: Sequence[Outcome]) -> tuple[Outcome, ...]:
    """Gravest first, else in the order in which they were found."""
    order = ("error", "warning", "note")
    return tuple(sorted(outcomes, key=lambda outcome: order.index(outcome.severity)))
