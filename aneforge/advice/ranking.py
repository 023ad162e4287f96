"""Which changes would help most on each chip.

Every source of changes says cheaply how much each can save at most. What can save enough is worked out, the largest
first and a bounded number of them, and a chip is told those that help by :data:`LEAST_GAIN` or more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from aneforge.advice.calls import aligned_ports, several_inputs
from aneforge.advice.change import LEAST_GAIN, Change, Proposal, Question
from aneforge.advice.cuts import native_layers_on_host, small_regions_on_host
from aneforge.advice.ends import ends_outside
from aneforge.advice.forms import other_forms
from aneforge.advice.weights import stored_weights
from aneforge.cost.estimate import Estimate
from aneforge.process import quiet_collector
from aneforge.study.study import Study

__all__ = ["SOURCES", "Advice", "advise"]

SOURCES: dict[Callable[[Question], Iterable[Proposal]], str] = {
    stored_weights: "precision",
    other_forms: "rewrite",
    native_layers_on_host: "cut",
    small_regions_on_host: "cut",
    ends_outside: "cut",
    several_inputs: "call",
    aligned_ports: "call",
}
"""Where changes come from, and of which kind those are. Equal gains keep this order."""

_MOST_WORKED_OUT, _FEWEST_WORKED_OUT = 12, 4
_NODES = 24_000  # nodes of changed graphs that are compiled in all, about: a large model has fewer changes worked out


@dataclass(frozen=True)
class Advice:
    """The changes that help on one chip, the best first, and how many there were to choose from."""

    changes: tuple[Change, ...]
    weighed: int
    """Changes that apply to the model there."""
    worked_out: int
    """Those of them that were compiled and estimated."""
    left_out: int = 0
    """Those that could save enough and were not worked out, because the model is large. The rest cannot."""

    def to_json(self) -> dict[str, Any]:
        return {**self.__dict__, "changes": [change.to_json() for change in self.changes]}


def advise(study: Study, count: int = 3) -> dict[str, Advice]:
    """The ``count`` changes that help most on each chip that runs something of the model, by the chip's name."""
    question = Question(study)
    estimates = question.estimates
    if not estimates or count < 1:
        return {}
    with quiet_collector():
        kinds = {proposal: kind for source, kind in SOURCES.items() for proposal in source(question)}
        proposals = list(kinds)
        able = _worth_trying(question, proposals)
        tried = able[: _how_many(question)]
        changes: dict[str, dict[str, Change]] = {name: {} for name in estimates}
        worked_out = dict.fromkeys(estimates, 0)
        for proposal in tried:
            for name, figure in proposal.after(_chips_helped(question, proposal)).items():
                worked_out[name] += 1
                change = _change(proposal, kinds[proposal], estimates[name], figure.us, figure.interval)
                known = changes[name].get(proposal.family)
                if change.saved >= LEAST_GAIN and (known is None or change.us < known.us):
                    changes[name][proposal.family] = change
    advice: dict[str, Advice] = {}
    for name, by_family in changes.items():
        best = sorted(by_family.values(), key=lambda change: change.us)[:count]
        weighed = sum(name in proposal.most for proposal in proposals)
        left_out = sum(name in _chips_helped(question, proposal) for proposal in able[len(tried) :])
        advice[name] = Advice(tuple(best), weighed, worked_out[name], left_out)
    return advice


def _worth_trying(question: Question, proposals: list[Proposal]) -> list[Proposal]:
    """What can save enough on some chip, the largest share first."""

    def share(proposal: Proposal) -> float:
        return max((us / question.estimates[name].us for name, us in proposal.most.items()), default=0.0)

    able = [proposal for proposal in proposals if _chips_helped(question, proposal)]
    return sorted(able, key=lambda proposal: -share(proposal))


def _chips_helped(question: Question, proposal: Proposal) -> list[str]:
    """The chips on which a proposal can save enough."""
    return [name for name, us in proposal.most.items() if us >= LEAST_GAIN * question.estimates[name].us]


def _how_many(question: Question) -> int:
    """How many changes are worked out: as many as the size of the model allows."""
    return min(_MOST_WORKED_OUT, max(_FEWEST_WORKED_OUT, _NODES // max(1, len(question.graph.nodes))))


def _change(proposal: Proposal, kind: str, before: Estimate, us: float, interval: tuple[float, float]) -> Change:
    return Change(
        proposal.name,
        kind,
        proposal.cause,
        proposal.what,
        proposal.nodes,
        before.us,
        us,
        interval,
        proposal.how,
        proposal.numbers,
    )
