"""Everything that targets refuse and rewrite of a graph, by the compiler's own first phases in one run.

A compile ends at a pass that refuses something. A survey notes the refused nodes, sets them apart and goes on with the
same pass: an input stands for the value of such a node, and what it reads leaves the program.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from aneforge.chips.chip import Target
from aneforge.compiler.draft import Draft
from aneforge.compiler.legalise.relabel import Relayer
from aneforge.compiler.passes import PASSES, Pass, PassLog, node_of
from aneforge.compiler.pipeline import Branch, Refused, passes_until, run_branch
from aneforge.compiler.record import Record
from aneforge.compiler.refusal import Refusal
from aneforge.engine.ir import Module, Op
from aneforge.engine.spec import kinds_with
from aneforge.engine.traits import Trait
from aneforge.graph.graph import Graph
from aneforge.graph.node import definition, make, remade
from aneforge.graph.tensor import Tensor
from aneforge.graph.traits import GraphTrait
from aneforge.process import quiet_collector


@dataclass(frozen=True, eq=False)
class Surveyed:
    """Targets that refuse and rewrite the same nodes."""

    targets: list[Target]
    refusals: dict[str, dict[str, Refusal]]
    """By target and node; their words may differ between targets. No chip's name is filled in."""
    records: dict[str, list[Record]]
    """What was rewritten, by node."""
    draft: Draft | None
    """What is left without the refused nodes; None if nothing is."""
    log: list[PassLog] = field(default_factory=list)

    def refused_by(self, target: Target) -> Mapping[str, Refusal]:
        """What one of the targets refuses, by node."""
        return self.refusals.get(target.name, {})


def survey(
    graph: Graph, targets: Sequence[Target], route: str | None = None, names: Mapping[int, str] | None = None
) -> dict[str, Surveyed]:
    """Phases 0 to 2 for all targets, by target; ``names`` are the user's names of nodes, where the graph is a part of
    theirs."""
    with quiet_collector():
        surveyed = _surveyed(Branch(Draft.of(graph, route or graph.route, names), list(targets)))
    return {target.name: group for group in surveyed for target in group.targets}


def _surveyed(first: Branch) -> list[Surveyed]:
    waiting = run_branch(first, passes_until("legalise"), answer=_go_on)
    surveyed: list[Surveyed] = []
    while waiting:
        branch = waiting.pop()
        passes = _passes_to_repeat(branch)
        if passes:
            waiting += run_branch(branch, passes, answer=_go_on)
        else:
            left = None if branch.ended else branch.draft
            by_node: dict[str, dict[Record, None]] = {}
            for record in branch.draft.all_records:
                by_node.setdefault(record.node, {})[record] = None
            records = {node: list(known) for node, known in by_node.items()}
            surveyed.append(Surveyed(branch.targets, branch.refusals, records, left, branch.log))
    return surveyed


def _passes_to_repeat(branch: Branch) -> list[Pass]:
    """Take what phase 2 has refused out of the graph as well; returns the passes that the rest has to meet again.

    What stood beside the refused nodes is checked by its new place. A refused op that had absorbed other nodes took
    them with it, so these are lowered again by themselves.
    """
    draft, refused = branch.draft, branch.refusals.get(branch.targets[0].name, {})
    late = {draft.names[node.uid] for node in draft.graph if _computes(node, draft, refused)}
    if branch.ended or not late:
        return []
    branch.ended = not _set_apart(draft, refused)
    if branch.ended:
        return []
    absorbed, branch.absorbed = branch.absorbed - refused.keys(), set()
    if not absorbed:
        return [PASSES["check-legality"]]
    draft.records += draft.code.records
    draft.module = None
    passes = passes_until("legalise")
    return passes[passes.index(PASSES["check-legality"]) :]


def _go_on(branch: Branch, refused: Refused) -> Iterator[tuple[Branch, bool]]:
    """Targets that refuse the same nodes go on together, without these nodes, as long as anything is left."""
    by_nodes: dict[frozenset[str], Refused] = {}
    for targets, error in refused:
        by_nodes.setdefault(frozenset(refusal.node for refusal in error.unnamed), []).append((targets, error))
    for nodes, groups in by_nodes.items():
        members = [target for targets, _ in groups for target in targets]
        other = branch if len(members) == len(branch.targets) else branch.fork(members)
        for targets, error in groups:
            for target in targets:
                known = other.refusals.setdefault(target.name, {})
                known |= {refusal.node: refusal for refusal in error.unnamed if refusal.node not in known}
        if PASSES[groups[0][1].refused_by].phase:
            other.absorbed |= _set_code_apart(other.draft.code, nodes)
        else:
            other.ended = not _set_apart(other.draft, nodes)
        yield other, not other.ended


# In the graph.


def _computes(node: Tensor, draft: Draft, names: Collection[str]) -> bool:
    """Whether a tensor of the draft is one of those that compute the named nodes."""
    is_given = node.is_a(GraphTrait.PORT) or node.is_a(GraphTrait.STORED)
    return not is_given and draft.names[node.uid] in names


def _set_apart(draft: Draft, names: Collection[str]) -> bool:
    """Let an input stand for every named node, and hand out what these nodes read. False if no other node is left."""
    replaced: dict[int, Tensor] = {}
    handed_out: dict[int, Tensor] = {}
    kept = 0
    for node in draft.graph.nodes:
        operands = [replaced.get(operand.uid, operand) for operand in node.inputs]
        if _computes(node, draft, names):
            handed_out |= {operand.uid: operand for operand in operands if not operand.definition.leaf}
            replaced[node.uid] = _stand_in(node, draft.names[node.uid])
        elif any(operand.uid in replaced for operand in node.inputs):
            replaced[node.uid] = remade(node, operands, node.name)
            kept += 1
        else:
            kept += not node.definition.leaf
    draft.names |= {tensor.uid: draft.names[uid] for uid, tensor in replaced.items()}
    outputs = (replaced.get(output.uid, output) for output in draft.graph.outputs)
    ends = dict.fromkeys([*(output for output in outputs if not output.definition.leaf), *handed_out.values()])
    if not kept or not ends:
        return False
    draft.graph = draft.source = Graph(list(ends), route=draft.source.route)
    return True


def _stand_in(node: Tensor, name: str) -> Tensor:
    """An input of a node's type; also of truth values, which no user's input has."""
    stand_in = make(definition("input"), (), {"shape": node.shape, "dtype": node.dtype, "max_abs": None}, name=name)
    stand_in.where = node.where
    return stand_in


# In backend code.

_PORTS = kinds_with(Trait.PORT)


def _set_code_apart(module: Module, names: Collection[str]) -> set[str]:
    """The same in backend code: ports for the results of the named nodes, which the ops behind them read. Returns all
    nodes behind the ops that go."""

    def is_apart(op: Op) -> bool:
        return op.kind not in _PORTS and node_of(module, op) in names

    walk, output, sources = Relayer(module), module.output, set[str]()
    for op in module.ops:
        walk.keep(op)
        if not is_apart(op):
            continue
        sources.update(op.sources)
        for operand in op.operands:
            if operand.kind not in _PORTS and not is_apart(operand):
                output.read(operand)
        walk.detach(walk.behind(op))
        if not all(map(is_apart, op.users)):
            assert op.type is not None
            op.replace_with(walk.emit("anec.live_in", (), op.type, {"name": node_of(module, op)}, op.sources))
    module.ops = walk.ops
    module.sweep()
    return sources
