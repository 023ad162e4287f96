"""What each target refuses and rewrites of a graph, by the compiler's own first phases.

A compile stops at what a target refuses. To list everything at once, refused nodes are noted, a stand-in takes
their place, and the phases run again on the rest, until nothing is refused any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

from aneforge.compiler.draft import Draft
from aneforge.compiler.pipeline import run_pipeline
from aneforge.compiler.record import Record
from aneforge.compiler.refusal import CompileError, Refusal
from aneforge.graph.graph import Graph
from aneforge.graph.node import definition, make
from aneforge.graph.tensor import Tensor
from aneforge.process import quiet_collector
from aneforge.targets.chip import Target

__all__ = ["Outcome", "outcomes"]


@dataclass
class Outcome:
    """One answer for all targets that every pass treated alike."""

    refusals: dict[str, Refusal] = field(default_factory=dict)
    """By node, without a chip's name filled in."""
    records: dict[str, list[Record]] = field(default_factory=dict)
    """What was rewritten, by node."""
    draft: Draft | None = None
    """Of what is left when refused nodes are taken out; None if nothing is."""

    def note(self, records: Iterable[Record]) -> None:
        for record in records:
            known = self.records.setdefault(record.node, [])
            if record not in known:
                known.append(record)


def outcomes(graph: Graph, targets: Sequence[Target], route: str | None) -> dict[str, Outcome]:
    """The outcome of every target, by name."""
    route = route or graph.route
    by_target: dict[str, Outcome] = {}
    whole = _Rest(graph, graph.names())
    waiting: list[tuple[_Rest, list[Target], Outcome]] = [(whole, list(targets), Outcome())]
    with quiet_collector():
        while waiting:
            rest, members, so_far = waiting.pop()
            for branch in run_pipeline(partial(Draft.of, rest.graph, route, rest.names), members, until="legalise"):
                outcome = Outcome(
                    dict(so_far.refusals), {node: list(records) for node, records in so_far.records.items()}
                )
                outcome.note(branch.draft.all_records)
                left = None
                if branch.error is None:
                    outcome.draft = branch.draft
                else:
                    outcome.refusals |= _refused(rest, branch.error)
                    left = _without(whole, outcome.refusals)
                if left is None:
                    by_target |= dict.fromkeys((target.name for target in branch.targets), outcome)
                else:
                    waiting.append((left, branch.targets, outcome))
    return by_target


@dataclass(frozen=True)
class _Rest:
    """A graph, or what is left of it, under the names of the whole."""

    graph: Graph
    names: dict[int, str]


def _refused(rest: _Rest, error: CompileError) -> dict[str, Refusal]:
    """Every node of a refusal. A pass past the rules stops at its first op, so what is the same node again is refused
    along with it."""
    refusals = {refusal.node: refusal for refusal in error.unnamed}
    first = error.unnamed[0]
    if first.findings or first.by_place:
        return refusals
    alike = next((_form(node) for node in rest.graph.nodes if rest.names[node.uid] == first.node), None)
    for node in rest.graph.nodes:
        if alike is not None and _form(node) == alike:
            refusals.setdefault(rest.names[node.uid], first.of(rest.names[node.uid]))
    return refusals


def _form(node: Tensor) -> tuple[object, ...]:
    """What nodes that are the same op on the same types share."""
    signature = node.signature
    return signature.op.name, signature.attrs, signature.inputs


def _without(whole: _Rest, refused: dict[str, Refusal]) -> _Rest | None:
    """The graph with stand-ins for refused nodes; what these read leaves the program. None if nothing is left."""
    graph, names = whole.graph, dict(whole.names)
    replaced: dict[int, Tensor] = {}
    leaving: dict[int, Tensor] = {}
    kept = 0
    for node in graph.nodes:
        name = names[node.uid]
        operands = tuple(replaced.get(operand.uid, operand) for operand in node.inputs)
        if name in refused:
            leaving |= {operand.uid: operand for operand in operands if not operand.definition.leaf}
            replaced[node.uid] = _stand_in(node, name)
        elif any(operand.uid in replaced for operand in node.inputs):
            replaced[node.uid] = make(node.definition, operands, node.attrs, name=node.name, weight=node.weight)
            replaced[node.uid].where = node.where
            kept += 1
        else:
            kept += not node.definition.leaf
    names |= {tensor.uid: names[uid] for uid, tensor in replaced.items()}
    outputs = (replaced.get(output.uid, output) for output in graph.outputs)
    ends = dict.fromkeys([*(output for output in outputs if not output.definition.leaf), *leaving.values()])
    return _Rest(Graph(list(ends), route=graph.route), names) if kept and ends else None


def _stand_in(node: Tensor, name: str) -> Tensor:
    stand_in = make(definition("input"), (), {"shape": node.shape, "dtype": node.dtype, "max_abs": None}, name=name)
    stand_in.where = node.where
    return stand_in
