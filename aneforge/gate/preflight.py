"""Will it run there: every node of a graph against one chip, or against all of them.

A graph is walked once. Nodes that are the same op on the same shapes share a signature, so each rule is
asked once per distinct signature and chip; per-node lists are made when somebody reads them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from aneforge.compiler.legal.judge import Finding, Verdict, judge
from aneforge.compiler.legal.query import Query
from aneforge.compiler.legal.rewrites import decomposition, retarget
from aneforge.compiler.legal.translate import query_of, route_of
from aneforge.errors import AneforgeError
from aneforge.graph.graph import Graph
from aneforge.graph.node import Node, Signature, located, make
from aneforge.graph.ops.leaf import const
from aneforge.graph.ops.leaf import input as graph_input
from aneforge.graph.tensor import Tensor
from aneforge.targets import Family, Target, all_targets, op_routes, resolve, slice_saturates, target
from aneforge.targets.evidence import Fact
from aneforge.targets.limits import global_limit
from aneforge.targets.numeric_facts import FP16_SLICE_SAT

__all__ = ["STATUSES", "OpReport", "Preflight", "PreflightAll", "preflight", "preflight_all"]

STATUSES = ("native", "decompose", "reject", "oversize", "risk")
_COMPUTED_LEAVES = ("random_uniform", "random_normal")


class OpReport:
    """What one chip does with one node, and why. Cheap to make: everything is read from node and ruling."""

    __slots__ = ("_names", "node", "ruling")

    def __init__(self, node: Tensor, ruling: Ruling, names: _Walk) -> None:
        self.node = node
        self.ruling = ruling
        self._names = names

    @property
    def op(self) -> str:
        return self.node.op

    @property
    def shape(self) -> tuple[int, ...]:
        return self.node.shape

    @property
    def status(self) -> str:
        return self.ruling.status

    @property
    def oversize(self) -> bool:
        return self.ruling.oversize

    @property
    def route(self) -> str:
        """The route a graph takes for this op."""
        return self.ruling.route

    @property
    def other_route(self) -> str | None:
        """What the other route would answer, where there is one."""
        return self.ruling.other_route

    @property
    def name(self) -> str:
        """The user's name for the node, or the op and a number."""
        return self._names.names[self.node.uid]

    @property
    def where(self) -> str:
        """The user's line."""
        return located(self.node.where)

    @property
    def findings(self) -> tuple[Finding, ...]:
        return self.ruling.findings

    @property
    def rule(self) -> str:
        return self.findings[0].rule if self.findings else ""

    @property
    def message(self) -> str:
        return " ".join(f"{finding.message.rstrip('.')}." for finding in self.findings)

    @property
    def limit(self) -> Any:
        return self.findings[0].limit if self.findings else None

    @property
    def extent(self) -> Any:
        """The measured extent that met the limit."""
        return self.findings[0].extent if self.findings else None

    @property
    def hint(self) -> str:
        return self.findings[0].hint if self.findings else ""

    @property
    def evidence(self) -> Fact[Any]:
        return self.ruling.fact

    def __str__(self) -> str:
        told = f": {self.message}" if self.message else ""
        return f"{self.name} ({self.op} {list(self.shape)}, {self.where}) {self.status}{told} {self.evidence.label()}"

    def __repr__(self) -> str:
        return f"OpReport({self.op!r}, {list(self.shape)}, {self.status!r})"

    def to_json(self) -> dict[str, Any]:
        keys = ("op", "status", "oversize", "name", "where", "route", "other_route")
        keys += ("rule", "message", "limit", "extent", "hint")
        record = {key: getattr(self, key) for key in keys}
        return {**record, "shape": list(self.shape), "evidence": self.evidence.to_json()}


@dataclass(frozen=True)
class Ruling:
    """The answer for one signature on one chip, before it is repeated for every node."""

    status: str
    oversize: bool
    route: str
    findings: tuple[Finding, ...]
    fact: Fact[Any]
    other_route: str | None


class Preflight:
    """The verdict of one chip on one graph."""

    def __init__(self, walk: _Walk, chip: Target) -> None:
        self.graph = walk.graph
        self.target = chip
        self._walk = walk
        self._rulings = {signature: _ruling(signature, chip) for signature in walk.nodes_of}

    @property
    def family(self) -> Family | None:
        return self.target.family5

    @cached_property
    def _by_status(self) -> dict[str, dict[Signature, Ruling]]:
        """Signatures by what happens to them; their nodes are looked up when a report is read."""
        lists: dict[str, dict[Signature, Ruling]] = {status: {} for status in STATUSES}
        for signature, ruling in self._rulings.items():
            lists["oversize" if ruling.oversize else ruling.status][signature] = ruling
        return lists

    @cached_property
    def _hazards(self) -> list[tuple[Tensor, Ruling]]:
        """Risks that depend on a node's place in the graph, not on its signature."""
        return self._slice_hazards() + self._surface_hazards() + self._pattern_hazards() + self._result_limits()

    def _result_limits(self) -> list[tuple[Tensor, Ruling]]:
        """A tensor is judged where it is read; what only the caller reads is judged here. A transpose may give more
        than others take (limits.json ``preflight_axis_rule``)."""
        found = []
        for node in dict.fromkeys(self.graph.outputs):
            if node.definition.leaf or node.op == "transpose" or self._rulings[node.signature].status == "reject":
                continue
            verdict = judge(Query("identity", (node.shape,)), self.target)
            over = tuple(finding for finding in verdict.findings if finding.effect == "reject" and finding.oversize)
            if over:
                found.append((node, Ruling("reject", True, "conversion", over, over[0].evidence, None)))
        return found

    def _pattern_hazards(self) -> list[tuple[Tensor, Ruling]]:
        """Short sequences that were seen to fail although each op alone runs."""
        found = []
        for node, query in self._walk.patterns:
            verdict = judge(query, self.target)
            if verdict.findings:
                first = verdict.findings[0]
                status = "reject" if verdict.verdict == "reject" else "risk"
                found.append((node, Ruling(status, False, "conversion", verdict.findings, first.evidence, None)))
        return found

    def _surface_hazards(self) -> list[tuple[Tensor, Ruling]]:
        """Rules about a program's own inputs, such as a surface too narrow for the chip."""
        found = []
        for node in self._walk.inputs:
            verdict = judge(Query("identity", (node.shape,)), self.target)
            risky = tuple(finding for finding in verdict.findings if finding.effect == "wrong_result")
            if risky:
                found.append((node, Ruling("risk", False, "conversion", risky, risky[0].evidence, None)))
        return found

    def _slice_hazards(self) -> list[tuple[Tensor, Ruling]]:
        """Width-offset slices on a family that clamps them, unless the data is known to stay within 4094."""
        hazard = None if self.family is None else slice_saturates(self.family)
        if hazard is None or not hazard.value:
            return []
        suspects = [signature for signature in self._rulings if _has_width_offset(signature)]
        nodes = [node for signature in suspects for node in self._walk.nodes_of[signature]]
        return [(node, _slice_ruling(node, hazard)) for node in nodes if not _bounded(node, FP16_SLICE_SAT)]

    def _reports(self, status: str) -> Sequence[OpReport]:
        extra = [entry for entry in self._hazards if status == ("oversize" if entry[1].oversize else entry[1].status)]
        return _Reports(self._walk, self._by_status[status], extra)

    @property
    def native(self) -> Sequence[OpReport]:
        """Emitted as they are."""
        return self._reports("native")

    @property
    def decompose(self) -> Sequence[OpReport]:
        """Rewritten into ops that run."""
        return self._reports("decompose")

    @property
    def reject(self) -> Sequence[OpReport]:
        """No program results."""
        return self._reports("reject")

    @property
    def oversize(self) -> Sequence[OpReport]:
        """An extent exceeds a cap and must be tiled."""
        return self._reports("oversize")

    @property
    def risk(self) -> Sequence[OpReport]:
        """Runs, but the numbers may be unusable."""
        return self._reports("risk")

    @cached_property
    def ok(self) -> bool:
        """A program results: nothing is rejected and nothing is too large."""
        rulings = [*self._rulings.values(), *(ruling for _, ruling in self._hazards)]
        return not any(ruling.status == "reject" or ruling.oversize for ruling in rulings)

    @property
    def counts(self) -> dict[str, int]:
        return {status: len(self._reports(status)) for status in STATUSES}

    def worst(self) -> str:
        """The gravest status that occurs."""
        counts = self.counts
        for status in ("reject", "oversize", "risk", "decompose"):
            if counts[status]:
                return status
        return "native"

    def __str__(self) -> str:
        counts = ", ".join(f"{count} {status}" for status, count in self.counts.items() if count)
        lines = [f"{self.target.name}: {'runs' if self.ok else 'does not run'} ({counts or 'empty'})"]
        for status in ("reject", "oversize", "risk", "decompose"):
            lines += [f"  {report}" for report in self._reports(status)]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"Preflight({self.target.name!r}, ok={self.ok}, {self.counts})"

    def to_json(self) -> dict[str, Any]:
        told = [status for status in STATUSES if status != "native"]
        detail = {status: [each.to_json() for each in self._reports(status)] for status in told}
        family = None if self.family is None else int(self.family)
        return {"target": self.target.name, "family": family, "ok": self.ok, "counts": self.counts, **detail}


class PreflightAll(Mapping[str, Preflight]):
    """One graph against several chips, by the names that were asked."""

    def __init__(self, results: dict[str, Preflight]) -> None:
        self._results = results

    def __getitem__(self, name: str) -> Preflight:
        return self._results[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._results)

    def __len__(self) -> int:
        return len(self._results)

    def to_json(self) -> dict[str, Any]:
        return {name: result.to_json() for name, result in self._results.items()}


def preflight(out: Tensor | Sequence[Tensor] | Graph, chip: int | str | Target) -> Preflight:
    """Check a graph against one chip: a family number, an architecture, or a chip's name. Compiles nothing."""
    return Preflight(_Walk(_graph(out)), target(chip))


def preflight_all(out: Tensor | Sequence[Tensor] | Graph, chips: Sequence[str] | None = None) -> PreflightAll:
    """Check a graph against several chips, or against all 28 targets."""
    walk = _Walk(_graph(out))
    asked = [each.name for each in all_targets(only_28=True)] if chips is None else list(chips)
    return PreflightAll({name: Preflight(walk, resolve(name).target) for name in asked})


def _graph(out: Any) -> Graph:
    if isinstance(out, Graph):
        graph = out
    elif isinstance(out, Node):
        graph = Graph([out])  # type: ignore[list-item]
    elif isinstance(out, Sequence) and not isinstance(out, str):
        graph = Graph(list(out))
    else:
        raise AneforgeError(f"preflight takes a graph or its output tensors, not a {type(out).__name__}")
    if not graph.inputs and not graph.parameters:
        raise AneforgeError("the graph has no inputs: it is a constant and needs no engine")
    return graph


class _Walk:
    """A graph walked once: its nodes by signature, and their names when a report is read."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.nodes_of: dict[Signature, list[Tensor]] = {}
        nodes_of = self.nodes_of
        for node in graph.nodes:
            known = nodes_of.get(node.signature)
            if known is None:
                nodes_of[node.signature] = [node]
            else:
                known.append(node)
        for signature in [each for each in nodes_of if each.op.leaf and each.op.name not in _COMPUTED_LEAVES]:
            del nodes_of[signature]

    @cached_property
    def inputs(self) -> tuple[Tensor, ...]:
        return self.graph.inputs

    @cached_property
    def patterns(self) -> list[tuple[Tensor, Query]]:
        """Sequences that some rule knows, found once for all chips."""
        ends = [nodes for signature, nodes in self.nodes_of.items() if signature.op.name in _PATTERN_ENDS]
        asked = [(node, _pattern(node)) for nodes in ends for node in nodes]
        return [(node, query) for node, query in asked if query is not None]

    @cached_property
    def names(self) -> dict[int, str]:
        return self.graph.names()


_cache: dict[tuple[Signature, str], Ruling] = {}


def _ruling(signature: Signature, chip: Target) -> Ruling:
    key = (signature, chip.name)
    found = _cache.get(key)
    if found is None:
        found = _cache[key] = _rule(signature, chip)
    return found


def _rule(signature: Signature, chip: Target) -> Ruling:
    """Ask the gate, and say how the other route would answer."""
    if signature.op.name == "host":
        return _host_ruling(signature)
    route = route_of(signature)
    query = query_of(signature)
    verdict = judge(query, chip, route)
    statuses = op_routes(signature.op.gate_name)
    basis = _basis(statuses, chip, route)
    status, oversize = _status(verdict, basis)
    findings = verdict.findings
    if status == "decompose":
        findings = _rewrite(signature, verdict, basis)
        inner = _inside_the_rewrite(signature, chip)
        if inner is not None:
            status, oversize, findings = "reject", inner.oversize, (*inner.findings, *findings)
    other = "direct" if route == "conversion" else "conversion"
    told = judge(query, chip, other).verdict if statuses.route(other) else None
    return Ruling(
        status=status,
        oversize=oversize,
        route=route,
        findings=findings,
        fact=findings[0].evidence if findings else basis,
        other_route=None if told is None else f"{other}: {told}",
    )


def _host_ruling(signature: Signature) -> Ruling:
    """An op that came in as one of the host: no chip takes it."""
    attrs = dict(signature.attrs)
    whole = "int32" in (signature.dtype, *(dtype for _, dtype, _ in signature.inputs))
    evidence = (
        global_limit("program_input_dtypes") if whole else Fact("host", confidence="inferred", about=attrs["kind"])
    )
    message = f"{attrs['kind']} runs on the host: {attrs['reason']}"
    hint = "the rest can still run on the engine: aneforge partition shows the regions"
    finding = Finding("host-op", "reject", message, None, None, evidence, False, hint)
    return Ruling("reject", False, "conversion", (finding,), evidence, None)


def _rewrite(signature: Signature, verdict: Verdict, basis: Fact[Any]) -> tuple[Finding, ...]:
    """Say which rewrite of ours stands in, and how exact it is; the compiler's own rewrites speak for themselves."""
    known = decomposition(signature.op.name)
    if known is None or verdict.verdict == "accept":
        return verdict.findings
    message = f"{signature.op.name} is not native here and is rewritten ({known.name}): {known.doc.rstrip('.')}"
    hint = f"nothing to do; how exact the rewrite is: {known.bound}"
    return (Finding(known.name, "decompose", message, None, None, basis, False, hint),)


def _inside_the_rewrite(signature: Signature, chip: Target) -> Ruling | None:
    """The first op of our rewrite that this chip would refuse in turn, for instance a product too long."""
    if decomposition(signature.op.name) is None:
        return None
    operands = [_stand_in(shape, dtype) for shape, dtype, _ in signature.inputs]
    made = retarget(make(signature.op, operands, dict(signature.attrs)), chip)
    for node in made.graph.nodes:
        if node.definition.leaf or node.signature is signature:
            continue
        ruling = _ruling(node.signature, chip)
        if ruling.status == "reject":
            return ruling
    return None


def _stand_in(shape: tuple[int, ...], dtype: str) -> Tensor:
    """An operand of this type; only comparisons give bools, and only a constant has no axes."""
    if not shape:
        return const(1.0)
    return graph_input(shape, dtype) if dtype != "bool" else graph_input(shape).greater(0.0)


def _basis(statuses: Any, chip: Target, route: str) -> Fact[Any]:
    known = statuses.route(route) or statuses.main
    found = known.get(chip.family5) if chip.family5 else None
    return found if found is not None else Fact(None, about=f"{statuses.name} on {chip.name}")


def _status(verdict: Verdict, basis: Fact[Any]) -> tuple[str, bool]:
    """One status from the gate's word. An op that this package rewrites is decomposed, not rejected."""
    if verdict.verdict in ("accept", "cpu"):
        return "native", False
    if verdict.verdict == "decompose" or basis.value == "decompose":
        return "decompose", False
    if verdict.verdict == "wrong_result":
        return "risk", False
    refused = [finding for finding in verdict.findings if finding.effect == "reject"]
    return "reject", bool(refused) and all(finding.oversize for finding in refused)


def _has_width_offset(signature: Signature) -> bool:
    """Only a nonzero start on the last axis takes the crop route (N20)."""
    attrs = dict(signature.attrs)
    if signature.op.name in ("slice_by_size", "slice_by_index"):
        return bool(attrs["begin"][-1])
    return signature.op.name == "crop" and bool(attrs["left"])


# Ops that end a pattern the rules know: joined width slices (N21), a square before a nonlinearity.
_PATTERN_ENDS = frozenset(
    ("concat", "sqrt", "rsqrt", "exp", "exp2", "log", "sigmoid", "tanh", "gelu", "silu", "erf", "softplus", "inverse")
)


def _pattern(node: Tensor) -> Query | None:
    if node.op == "concat":
        offset = [each for each in node.inputs if _has_width_offset(each.signature)]
        return Query("chain:concat", attrs={"graph": "slices along the width, concat"}) if len(offset) > 1 else None
    before = node.inputs[0]
    if before.op != "square":
        return None
    return Query("chain:square", (before.shape,), attrs={"graph": f"square, then {node.op}"})


_MOVERS = frozenset(
    ("reshape", "transpose", "expand_dims", "squeeze", "slice_by_size", "slice_by_index", "crop", "tile", "reverse")
)


def _bounded(node: Tensor, limit: float) -> bool:
    """The data comes from an input with a promised bound, through ops that move and do not change it."""
    source = node.inputs[0]
    while source.op in _MOVERS:
        source = source.inputs[0]
    promised = source.attrs.get("max_abs") if source.op == "input" else None
    return promised is not None and promised <= limit


def _slice_ruling(node: Tensor, hazard: Fact[bool]) -> Ruling:
    finding = Finding(
        rule="slice-saturation",
        effect="wrong_result",
        message=(
            "a slice that starts inside the width goes through a fixed-point copy with a gain of 16: "
            "any element above 4094 in magnitude becomes infinite"
        ),
        limit=FP16_SLICE_SAT,
        extent=None,
        evidence=hazard,
        oversize=False,
        hint="slice another axis (transpose first), keep |x| <= 4094, or promise it with input(max_abs=...)",
    )
    return Ruling("risk", False, route_of(node.signature), (finding,), hazard, None)


class _Reports(Sequence[OpReport]):
    """Reports of one status, in the order of the graph; each is made when it is read."""

    def __init__(
        self, walk: _Walk, rulings: Mapping[Signature, Ruling], extra: Sequence[tuple[Tensor, Ruling]] = ()
    ) -> None:
        self._walk = walk
        self._rulings = rulings
        self._extra = extra

    def __len__(self) -> int:
        return sum(len(self._walk.nodes_of[signature]) for signature in self._rulings) + len(self._extra)

    @cached_property
    def _entries(self) -> list[tuple[Tensor, Ruling]]:
        entries = [(node, ruling) for key, ruling in self._rulings.items() for node in self._walk.nodes_of[key]]
        entries += self._extra
        entries.sort(key=lambda entry: entry[0].uid)
        return entries

    def __iter__(self) -> Iterator[OpReport]:
        walk = self._walk
        return (OpReport(node, ruling, walk) for node, ruling in self._entries)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [OpReport(node, ruling, self._walk) for node, ruling in self._entries[index]]
        node, ruling = self._entries[index]
        return OpReport(node, ruling, self._walk)

    def __repr__(self) -> str:
        return repr(list(self))
