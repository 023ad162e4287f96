"""What each target refuses and rewrites of a graph, as the compiler's own first phases say it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from aneforge.compiler.draft import Draft
from aneforge.compiler.record import Record
from aneforge.compiler.refusal import Refusal
from aneforge.compiler.survey import Surveyed, survey
from aneforge.graph.graph import Graph
from aneforge.process import quiet_collector
from aneforge.targets.chip import Target

__all__ = ["Outcome", "outcomes"]


@dataclass
class Outcome:
    """What one target refuses and rewrites."""

    refusals: dict[str, Refusal] = field(default_factory=dict)
    """By node, without a chip's name filled in."""
    records: dict[str, list[Record]] = field(default_factory=dict)
    """What was rewritten, by node."""
    surveyed: Surveyed | None = None
    """The targets that it is the outcome of, and what is left for them when refused nodes are taken out."""

    @property
    def draft(self) -> Draft | None:
        return None if self.surveyed is None else self.surveyed.draft


def outcomes(graph: Graph, targets: Sequence[Target], route: str | None) -> dict[str, Outcome]:
    """The outcome of every target, by name."""
    by_target: dict[str, Outcome] = {}
    with quiet_collector():
        for branch in survey(graph, targets, route or graph.route):
            records = _by_node(branch.records)
            for target in branch.targets:
                by_target[target.name] = Outcome(branch.refusals.get(target.name, {}), records, branch)
    return by_target


def _by_node(records: Iterable[Record]) -> dict[str, list[Record]]:
    """The records of each node, each once."""
    by_node: dict[str, dict[Record, None]] = {}
    for record in records:
        by_node.setdefault(record.node, {})[record] = None
    return {node: list(known) for node, known in by_node.items()}
