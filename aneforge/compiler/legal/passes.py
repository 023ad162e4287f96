"""Phase 0: replace the ops that a chip lacks, and check what is left against the rules, before anything is lowered."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from aneforge.chips.chip import Target
from aneforge.compiler.draft import Draft
from aneforge.compiler.facts import Facts, facts_of
from aneforge.compiler.legal.bounds import Bound
from aneforge.compiler.legal.check import Judgement, check_reads, is_refused, judgements, limit_of
from aneforge.compiler.legal.findings import PlacementFinding
from aneforge.compiler.legal.judge import validated
from aneforge.compiler.legal.rewrites.context import Context, RewriteResult
from aneforge.compiler.legal.rewrites.functions import HostInput
from aneforge.compiler.legal.rewrites.kernels import KERNEL_RULES
from aneforge.compiler.legal.rules.base import rule_reads
from aneforge.compiler.legal.table import Rewrite, graph_rewrites, rewrite
from aneforge.compiler.legal.translate import query_of_op
from aneforge.compiler.lower.walk import lower
from aneforge.compiler.passes import PASSES, graph_pass, node_of
from aneforge.compiler.record import Record
from aneforge.compiler.refusal import Refusal, RefusedNodes
from aneforge.engine.lineage import Standing
from aneforge.graph.graph import Graph
from aneforge.graph.node import Shape, definition, remade
from aneforge.graph.ops.leaf import input as graph_input
from aneforge.graph.tensor import Tensor

LEGALITY = (
    "draw-on-host",
    "unroll-recurrent",
    "rewrite-sums",
    "rewrite-movement",
    "rewrite-windows",
    "rewrite-functions",  # last: the others may leave functions behind, none leaves what they replace
    "check-legality",
    "lower",
)
"""The passes of phase 0 in order."""


def _reads(run_by: str) -> tuple[str, ...]:
    rows = [row for rows in graph_rewrites(run_by).values() for row in rows]
    # Of an op that the chip lacks: its status by the usual route and by direct authoring.
    facts = [
        (*rule_reads(row.rules), *row.reads) if row.rules else (row.because, _by_route(row.because, "direct"))
        for row in rows
    ]
    return tuple(dict.fromkeys(name for names in facts for name in names))


def _by_route(because: str, route: str | None) -> str:
    return because.replace("op:", "direct:", 1) if route == "direct" else because


def _rewriting(run_by: str, purpose: str) -> None:
    def apply(draft: Draft, chip: Facts) -> int:
        return _Walk(draft, chip, graph_rewrites(run_by)).run()

    def has_work(draft: Draft, chip: Facts) -> bool:
        return _Walk(draft, chip, graph_rewrites(run_by)).has_work()

    apply.__doc__ = purpose
    graph_pass(run_by, reads=lambda: _reads(run_by), only=lambda: graph_rewrites(run_by), has_work=has_work)(apply)


_rewriting("draw-on-host", "Random numbers where a chip has no generator: inputs of the program that the host fills.")
_rewriting("unroll-recurrent", "Recurrent cells, which no chip has: one small product for each gate and step.")
_rewriting("rewrite-sums", "Running sums and products along an axis: products with triangles, and halving.")
_rewriting("rewrite-movement", "Elements picked or placed by fixed positions: slices, joins and selects.")
_rewriting("rewrite-windows", "Kernels and windows beyond a chip's caps: over blocks of pixels, in pieces, in steps.")
_rewriting("rewrite-functions", "Functions below their floor: polynomials and identities of ops that the chip has.")


@graph_pass("check-legality", reads=check_reads, checks=True)
def check_legality(draft: Draft, chip: Facts) -> int:
    """Check every node that is left against every rule, and report all refusals at once."""
    refused: list[Refusal] = []
    passed: list[tuple[str, Judgement]] = []
    # Below A13 nothing is converted, whatever phase 0 has made of the graph.
    is_unconverted = draft.route == "conversion" and chip.get("tier") == "OLDER"
    graph = draft.source if is_unconverted else draft.graph
    for judgement in judgements(graph, chip, draft.route, draft.source.states, draft.is_authored):
        name = draft.names[judgement.node.uid]
        if judgement.refused:
            refused.append(Refusal.by_rules(name, judgement.node, judgement.findings))
        else:
            passed.append((name, judgement))
    if draft.is_authored:
        refused += _refused_units(draft, chip, {refusal.node for refusal in refused})
    if refused:
        raise RefusedNodes(refused)
    draft.judgements[chip.signature] = tuple(passed)
    return 0


def _refused_units(draft: Draft, chip: Facts, known: set[str]) -> list[Refusal]:
    """What the validators say to the units of an authored graph, before any pass could give a unit another form."""
    module = lower(draft.graph, draft.names, draft.stands, draft.source).module
    findings: dict[str, tuple[PlacementFinding, ...]] = {}
    for op in module.ops:
        query, name = query_of_op(op), node_of(module, op)
        if query is not None and name not in known:
            findings[name] = (*findings.get(name, ()), *validated(query, chip, "direct"))
    nodes = {draft.names[node.uid]: node for node in draft.graph.nodes}
    return [Refusal.by_rules(name, nodes[name], refused) for name, refused in findings.items() if refused]


@graph_pass("lower", ensures=["backend code"])
def lower_graph(draft: Draft, chip: Facts) -> int:
    """The graph in the engine's language, most ops one to one (listings 22.1 and 22.2)."""
    before = len(draft.graph.nodes)
    lowered = lower(draft.graph, draft.names, draft.stands, draft.source)
    initial = {host_input.name: host_input.drawn() for host_input in draft.host_inputs}
    draft.module = lowered.module
    draft.module.route = draft.route
    draft.module.rewritten = frozenset(record.node for record in draft.records)
    for node in draft.source.operations:
        name = draft.names[node.uid]
        if name not in lowered.module.lineage:
            lowered.module.lineage[name] = Standing.gone("phase 0 found a form without it", node.shape)
    draft.inputs = tuple(port.starting(initial.get(port.name)) for port in lowered.inputs)
    draft.outputs = lowered.outputs
    return before


def rewritten_for(graph: Graph, target: Target, keep: frozenset[str] = frozenset()) -> Draft:
    """A graph with every op that a target lacks replaced; the rules are not checked. ``keep`` names ops to leave
    unchanged, because the consumer of the graph has them."""
    draft = Draft.of(graph)
    for name in LEGALITY:
        rows = {op: rows for op, rows in graph_rewrites(name).items() if op not in keep}
        if rows:
            _Walk(draft, facts_of(target, PASSES[name].reads), rows).run()
    return draft


def as_graph_for(graph: Graph, target: Target, records: Iterable[Record]) -> Draft:
    """What a target's compile makes of a graph, as a graph: phase 0, and the rewrites of phase 2 that a graph can say.

    ``records`` are those of the compile; they name the nodes and the rewrites."""
    draft = rewritten_for(graph, target)
    named: dict[str, dict[str, Bound]] = {}
    for record in records:
        if record.row.form is not None:
            named.setdefault(record.rewrite, {})[record.node] = record.bound
    for name, bounds in named.items():
        _FormWalk(draft, target, rewrite(name), bounds).run()
    return draft


class _Walk:
    """One pass over a graph: every node once, operands first. A node whose operands are unchanged stays the same
    node."""

    def __init__(self, draft: Draft, chip: Facts, rewrites: Mapping[str, tuple[Rewrite, ...]]) -> None:
        self.draft, self.chip, self.rewrites = draft, chip, rewrites
        self.own = {node.uid for node in draft.source.nodes}
        self.replaced: dict[int, Tensor] = {}
        self.current: Tensor | None = None

    def run(self) -> int:
        draft, replaced, count = self.draft, self.replaced, 0
        for node in draft.graph.nodes:
            row = self._row(node)
            if row is not None:
                self._rewrite(node, row)
                count += 1
            elif replaced and any(operand.uid in replaced for operand in node.inputs):
                self._copy(node)
        if count:
            draft.continue_with(replaced.get(output.uid, output) for output in draft.graph.outputs)
        return count

    def has_work(self) -> bool:
        """Whether any node is rewritten."""
        return any(self._row(node) is not None for node in self.draft.graph.nodes if node.op in self.rewrites)

    def _row(self, node: Tensor) -> Rewrite | None:
        """The rewrite of a node, if it needs one."""
        return next((row for row in self.rewrites.get(node.op, ()) if self._is_needed(node, row)), None)

    def _is_needed(self, node: Tensor, row: Rewrite) -> bool:
        """Whether a rule refuses the node and the row has a form of it, or the chip or the route lacks the op."""
        if self.draft.is_authored:
            return False
        if row.rules:
            refused = is_refused(node.signature, self.chip, self.draft.route, row.rules)
            return refused and (row.takes is None or row.takes(self._context(node)))
        return self.chip.get(_by_route(row.because, self.draft.route)) == "decompose"

    def _inputs(self, node: Tensor) -> tuple[Tensor, ...]:
        return tuple(self.replaced.get(operand.uid, operand) for operand in node.inputs)

    def _copy(self, node: Tensor) -> None:
        """The same op on the new operands, with the node's own name and line."""
        self._stand(node, remade(node, self._inputs(node), node.name))

    def _stand(self, node: Tensor, value: Tensor) -> None:
        """Let a node's value be another node's from now on."""
        draft = self.draft
        self.replaced[node.uid] = value
        draft.names.setdefault(value.uid, draft.names[node.uid])
        draft.stands[value.uid] = (*self._stood_for(value), *self._stood_for(node))

    def _stood_for(self, node: Tensor) -> tuple[str, ...]:
        """The user's nodes whose value a node has so far."""
        itself = (self.draft.names[node.uid],) if node.uid in self.own else ()
        return self.draft.stands.get(node.uid, itself)

    def _rewrite(self, node: Tensor, row: Rewrite) -> None:
        assert row.apply is not None
        outcome = row.apply(self._context(node))
        result = outcome if isinstance(outcome, RewriteResult) else RewriteResult(outcome)
        source = self.draft.names[node.uid]
        for tensor in _signed(node, row, result.tensor, self.draft.names):
            self.draft.names[tensor.uid] = source
        bound: Bound = result.bound or row.bound
        self.draft.records.append(Record(source, row.name, bound))
        self._stand(node, result.tensor)

    def _context(self, node: Tensor) -> Context:
        self.current = node
        return Context(node, self._inputs(node), self._host, self._is_native, self.chip, self._limit)

    def _limit(self, rule: str) -> Any:
        node = self.current
        assert node is not None
        limit = limit_of(rule, node.signature, self.chip, self.draft.route)
        return None if limit is None else limit.value

    def _is_native(self, op: str) -> bool:
        return self.chip.get(_by_route(f"op:{definition(op).gate_name}", self.draft.route)) == "native"

    def _host(
        self, distribution: str, shape: Shape, parameters: tuple[float, float], seed: int, max_abs: float | None
    ) -> Tensor:
        node = self.current
        assert node is not None
        name = f"{node.name or node.op}.host{len(self.draft.host_inputs)}"
        tensor = graph_input(shape, max_abs=max_abs, name=name)
        self.draft.host_inputs.append(HostInput(tensor, name, shape, distribution, parameters, seed))
        self.draft.names[tensor.uid] = name
        return tensor


class _FormWalk(_Walk):
    """One rewrite of phase 2 in the graph: for the nodes that a compile has named, and of them those that the form
    exists for."""

    def __init__(self, draft: Draft, target: Target, row: Rewrite, bounds: Mapping[str, Bound]) -> None:
        form = row.form
        assert form is not None
        reads = (*rule_reads(KERNEL_RULES), *form.reads)
        as_graph = replace(row, apply=form.apply, takes=form.takes)
        super().__init__(draft, facts_of(target, reads), dict.fromkeys(form.ops, (as_graph,)))
        self.bounds = bounds

    def _is_needed(self, node: Tensor, row: Rewrite) -> bool:
        named = self.draft.names[node.uid] in self.bounds
        return named and (row.takes is None or row.takes(self._context(node)))

    def _rewrite(self, node: Tensor, row: Rewrite) -> None:
        super()._rewrite(node, row)
        self.draft.records[-1] = replace(self.draft.records[-1], bound=self.bounds[self.draft.names[node.uid]])


def _signed(node: Tensor, row: Rewrite, result: Tensor, known: Mapping[int, str]) -> list[Tensor]:
    """Give the tensors that a rewrite has made the user's line and names that lead back to the node; return those that
    are ops. Tensors of the graph before it, which are ``known``, keep theirs."""
    if result.uid in known:
        return []
    stem = f"{node.name or node.op}.{row.name}"
    stack, seen, fresh = [result], {result.uid}, []
    while stack:
        tensor = stack.pop()
        fresh.append(tensor)
        for operand in tensor.inputs:
            if operand.uid not in known and operand.uid not in seen:
                seen.add(operand.uid)
                stack.append(operand)
    for number, tensor in enumerate(sorted(fresh, key=lambda tensor: tensor.uid)):
        tensor.where = node.where
        if tensor.name is None:
            tensor.name = f"{stem}.{number}"
    if result.op != "input":
        result.name = node.name or stem
    return [tensor for tensor in fresh if tensor.op != "input"]
