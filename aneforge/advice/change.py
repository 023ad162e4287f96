"""What a change is: a proposal, which says how much it can save at most, and what came out of it on one chip."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from aneforge.cost.estimate import Estimate
from aneforge.errors import AneforgeError
from aneforge.graph.graph import Graph
from aneforge.study.partition import Partition
from aneforge.study.study import Study
from aneforge.targets.chip import Target
from aneforge.tuning.pricing import figure, risks_by_chip
from aneforge.tuning.records import Figure

__all__ = ["COMPILED", "LEAST_GAIN", "Change", "Proposal", "Question", "estimated_graph"]

LEAST_GAIN = 0.02
"""The share of a call that a change must save; less is no advice."""
COMPILED = "compiled and estimated"


class Question:
    """One model on some chips, as it is."""

    def __init__(self, study: Study) -> None:
        self.study = study
        self.graph, self.names, self.scope = study.graph, study.names, study.scope
        self.splits: Mapping[str, Partition] = study.timed()
        """By the name that each chip was asked for."""
        self.estimates: Mapping[str, Estimate] = study.estimates()[0]

    @cached_property
    def _risks(self) -> dict[str, dict[str, str]]:
        return risks_by_chip(self.study)

    def new_risks(self, changed: Study) -> set[str]:
        """The chips on which a changed graph has numbers that are known to be wrong and were right before."""
        after = risks_by_chip(changed)
        return {name for name, rules in after.items() if rules.keys() - self._risks[name].keys()}

    @property
    def chips(self) -> dict[str, Target]:
        return self.study.chips


@dataclass(frozen=True)
class Change:
    """One change of a model on one chip, and the whole call after it."""

    name: str
    """Short, the same for all chips: ``weights as int8``."""
    kind: str
    """``precision``, ``rewrite``, ``cut`` (what the engine and the host each do) or ``call``."""
    cause: str
    """What it works against: ``weights``, ``calls``, ``crossings`` or ``layers``."""
    what: str
    """What to do, in a sentence."""
    nodes: tuple[str, ...]
    """The user's nodes that it is about; none where it is about the call."""
    before_us: float
    us: float
    """Of one call, or of one input where several go into a call."""
    interval: tuple[float, float]
    how: str
    """How the figure was worked out."""
    numbers: str
    """What it does to the results."""

    @property
    def saved(self) -> float:
        """The share of the call that it saves."""
        return 1 - self.us / self.before_us

    def to_json(self) -> dict[str, Any]:
        return {**self.__dict__, "nodes": list(self.nodes), "interval": list(self.interval), "saved": self.saved}


@dataclass(frozen=True, eq=False)
class Proposal:
    """A change that may help: cheap to find, and worked out only where it can save enough."""

    family: str
    """Of several proposals of one family a chip is told the best."""
    name: str
    cause: str
    what: str
    nodes: tuple[str, ...]
    most: Mapping[str, float]
    """By chip, the microseconds that it can save at most, or is expected to save."""
    after: Callable[[Sequence[str]], Mapping[str, Figure]]
    """The call after the change, for some of the chips; a chip that it is nothing for is left out."""
    how: str = COMPILED
    numbers: str = "same results up to rounding"


def estimated_graph(question: Question, make: Callable[[], Graph]) -> Callable[[Sequence[str]], dict[str, Figure]]:
    """Compile a changed graph for the chips that ask, and estimate it. A change that a chip refuses, that sends more
    of the model to the host, or whose numbers are known to be wrong there is nothing for that chip."""

    def after(chips: Sequence[str]) -> dict[str, Figure]:
        try:
            changed = question.study.with_graph(make()).with_chips(chips)
            estimates = changed.estimates()[0]
        except AneforgeError:
            return {}
        splits = changed.timed()
        known: dict[str, Figure] = {}
        for name, estimate in estimates.items():
            split, was = splits[name], question.splits[name]
            if split.ops - split.on_engine <= was.ops - was.on_engine:
                known[name] = figure(estimate)
        helped = [name for name, new in known.items() if new.us <= (1 - LEAST_GAIN) * question.estimates[name].us]
        for name in question.new_risks(changed.with_chips(helped)) if helped else ():
            del known[name]
        return known

    return after
