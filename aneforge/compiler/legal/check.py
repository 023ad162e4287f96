"""What rules say of a graph on a chip, whatever the data: every node is checked, once per signature.

Nodes that are the same op on the same shapes share a signature, and chips whose declared facts agree share an answer,
so each rule runs once for each distinct pair. What depends on a node's place in the graph is checked for each node.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from weakref import WeakKeyDictionary

from aneforge.chips.evidence import Fact
from aneforge.chips.limits import global_limit
from aneforge.compiler.facts import Facts
from aneforge.compiler.legal.findings import Finding, NumberFinding, PlacementFinding, is_oversize, is_rejected
from aneforge.compiler.legal.judge import bridge_floor, judged, legality_reads
from aneforge.compiler.legal.patterns import (
    Match,
    attention_extents,
    convolution_runs,
    matched_patterns,
    pattern_query,
)
from aneforge.compiler.legal.programs import ProgramWeights, decode_layers, program_of
from aneforge.compiler.legal.query import ALL_RUNTIMES, CHAIN, KEEP_TYPES, Query
from aneforge.compiler.legal.rules.base import RULES, Limit, limits_for, pattern_rules
from aneforge.compiler.legal.rules.status import BY_NAME, op_answer
from aneforge.compiler.legal.translate import query_of, route_of
from aneforge.graph.graph import Graph
from aneforge.graph.node import Signature
from aneforge.graph.origins import kept_type
from aneforge.graph.tensor import Tensor
from aneforge.graph.traits import GraphTrait

Findings = tuple[Finding, ...]


@dataclass(frozen=True, eq=False)
class Judgement:
    """A node of the graph of which there is something to say."""

    node: Tensor
    findings: Findings
    by_place: bool = False
    """Whether it depends on what comes before or after the node."""

    @property
    def refused(self) -> bool:
        return is_rejected(self.findings)


@cache
def check_reads() -> tuple[str, ...]:
    """Every fact of a chip that a judgement may depend on."""
    return (*legality_reads(), "max_operand_bytes")


def program_route(chip: Facts, requested: str | None) -> str:
    """How a program reaches a chip: by conversion, and by direct authoring below the floor of the model language."""
    return requested or ("direct" if chip.get("tier") == "OLDER" else "conversion")


def judgements(
    graph: Graph, chip: Facts, requested: str | None = None, states: Container[str] = (), authored: bool = False
) -> list[Judgement]:
    """Everything that rules say of the nodes of a graph, in its order: what a chip refuses, what a runtime keeps off
    the engine, and what was seen to give wrong numbers whatever the data. What depends on the data is for the range
    analysis of the program (:mod:`aneforge.numerics.transfer`). ``states`` names the inputs that live on from run to
    run. Of an ``authored`` graph only sizes are checked here, and not which ops there are."""
    route = program_route(chip, requested)
    unknown = _unknown_table(chip)
    results: list[Judgement] = []
    for node in graph.nodes:
        # Integers that go from an input to the caller unchanged are judged too; no program has a port for them.
        if (
            node.definition.leaf
            and not node.is_a(GraphTrait.DRAWN)
            and not (node.dtype == "int32" and any(node is output for output in graph.outputs))
        ):
            continue
        findings = unknown or findings_of(node.signature, chip, requested, authored)
        if findings:
            results.append(Judgement(node, findings))
    refused = {judgement.node.uid for judgement in results if judgement.refused}
    if route == "conversion" and not unknown:
        results += _surfaces(graph, chip)
        results += _sequences(graph, chip)
        results += _depths(graph, chip)
        results += _programs(graph, chip)
        results += _states(graph, chip, states)
        results += _types(graph, chip)
        results += _results(graph, chip, refused)
    results.sort(key=lambda judgement: judgement.node.uid)
    return results


def _unknown_table(chip: Facts) -> Findings:
    """The refusal of a name that no build constructs, for which not even a table is known."""
    if chip.fact("max_operand_bytes").known:
        return ()
    message = "{chip}: no build constructs this target, although the name is known"
    hint = "choose a name that 'aneforge targets' lists as constructible"
    return (PlacementFinding("target-name", message, chip.fact("constructible"), hint, stage="frontend"),)


@lru_cache(maxsize=65536)
def findings_of(signature: Signature, chip: Facts, requested: str | None, authored: bool = False) -> Findings:
    """The findings of every rule that concerns a signature: what is refused, what gives wrong numbers, and what
    another runtime keeps off the engine. How the vendor rewrites an op is left out."""
    if signature.op.name == "host" or signature.dtype == "int32" or _reads_integers(signature):
        return (*_write_findings(signature, chip), _host_finding(signature))
    program, is_layer = program_route(chip, requested), signature.op.native_layer
    is_older = chip.get("tier") == "OLDER"
    # Below the floor nothing is converted, so a layer that could be authored is not reached either.
    route = program if program == "direct" or is_older else route_of(signature)
    query = query_of(signature, runtime=ALL_RUNTIMES)
    # Of an authored graph the units are asked about; below A13 phase 2 asks the floors of the backend ops.
    by_name = is_layer or route == "conversion" or not (authored or is_older)
    verdict = judged(query, chip, route, by_name)
    findings = tuple(finding for finding in verdict.findings if finding.verdict != "decompose")
    if is_rejected(findings) or not is_layer or requested != "conversion":
        return findings
    return bridge_floor(query.op, chip) or findings


@lru_cache(maxsize=65536)
def is_refused(signature: Signature, chip: Facts, requested: str | None, rules: tuple[str, ...]) -> bool:
    """Whether one of some rules refuses a node; for rewrites that answer these rules."""
    query = query_of(signature)
    if BY_NAME.issuperset(rules):
        program = program_route(chip, requested)
        answer = op_answer(query.op, chip, program if program == "direct" else route_of(signature))
        return answer.value == "reject" and answer.rule in rules
    limits = ((RULES[name], limit_of(name, signature, chip, requested)) for name in rules)
    return any(limit is not None and rule_.check(query, limit) is not None for rule_, limit in limits)


@lru_cache(maxsize=4096)
def limit_of(rule: str, signature: Signature, chip: Facts, requested: str | None) -> Limit | None:
    """The limit of a rule for a node on a chip, by the route that reaches it."""
    program = program_route(chip, requested)
    route = program if program == "direct" else route_of(signature)
    limits = limits_for(rule, query_of(signature).op, chip, route)
    return limits[0] if limits and limits[0].value is not None else None


_WRITES = ("scatter", "index_put", "index_copy", "index_add", "slice_update", "slicescatter")
"""Parts of the names that model files have for an op that writes at places which it is given."""


def is_indexed_write(kind: str) -> bool:
    """Whether an op of a model file writes at places that it is given."""
    return any(word in kind.lower() for word in _WRITES)


def _write_findings(signature: Signature, chip: Facts) -> Findings:
    """What is known of an op of the host that writes into a tensor at computed places, such as a row of a cache."""
    kind = str(dict(signature.attrs).get("kind", ""))
    if not is_indexed_write(kind):
        return ()
    query = Query(kind, attrs={"writes": "computed places"}, runtime=ALL_RUNTIMES)
    return judged(query, chip, "conversion", by_name=False).findings


def _reads_integers(signature: Signature) -> bool:
    return any(dtype == "int32" for _, dtype, _ in signature.inputs)


def _host_finding(signature: Signature) -> Finding:
    """The refusal of an op that came in as one of the host, or of one on integers: no chip takes it."""
    attrs = dict(signature.attrs)
    kind = attrs.get("kind", signature.op.name)
    reason = attrs.get("reason", "the engine computes no integers")
    has_integers = signature.dtype == "int32" or _reads_integers(signature)
    evidence = (
        global_limit("program_input_dtypes") if has_integers else Fact("host", confidence="inferred", about=kind)
    )
    hint = "run 'aneforge partition' to run the rest of the model on the engine"
    message = f"{kind} runs on the host: {reason}"
    return PlacementFinding("host-op", message, evidence, hint, stage="frontend")


# What depends on a node's place.


@dataclass(frozen=True, eq=False)
class _Found:
    """What a graph shows whatever the chip; chips ask for it in turn."""

    matches: tuple[Match, ...]
    program: ProgramWeights | None


_found: WeakKeyDictionary[Graph, _Found] = WeakKeyDictionary()


def _found_in(graph: Graph) -> _Found:
    found = _found.get(graph)
    if found is None:
        found = _found[graph] = _Found(tuple(matched_patterns(graph)), program_of(graph))
    return found


def _results(graph: Graph, chip: Facts, refused: set[int]) -> Iterator[Judgement]:
    """A tensor is checked where it is read; what only the caller reads is checked here. A transpose may give more than
    other ops take (limits.json ``preflight_axis_rule``)."""
    for node in dict.fromkeys(graph.outputs):
        if node.definition.leaf or node.op == "transpose" or node.uid in refused or node.dtype == "int32":
            continue
        verdict = judged(Query("identity", (node.shape,), attrs={"interior": True}), chip, "conversion")
        over = tuple(finding for finding in verdict.findings if is_oversize((finding,)))
        if over:
            yield Judgement(node, over, True)


def _sequences(graph: Graph, chip: Facts) -> Iterator[Judgement]:
    """Short sequences that were seen to fail although each op alone runs."""
    for node, pattern, subject in _found_in(graph).matches:
        findings = _sequence_findings(node.op, pattern, subject.signature, chip)
        if findings:
            yield Judgement(node, findings, True)


@lru_cache(maxsize=4096)
def _sequence_findings(op: str, pattern: str, subject: Signature, chip: Facts) -> Findings:
    """The answer for one pattern; a deep model shows the same one at every layer."""
    return _place_findings(pattern_query(op, pattern, subject), chip, pattern_rules())


def _place_findings(query: Query, chip: Facts, rules: frozenset[str]) -> Findings:
    """The findings of some rules about a node's place; the other rules have been asked about the node itself."""
    return tuple(finding for finding in judged(query, chip, "conversion").findings if finding.rule in rules)


def _programs(graph: Graph, chip: Facts) -> Iterator[Judgement]:
    """How much one program may hold: layers, and weights as the model stores them for the other runtimes. What this
    compiler's own programs may hold is checked in phase 2, which knows where one ends."""
    for limit in limits_for("decode-layers", f"{CHAIN}softmax", chip, "conversion")[:1]:
        for node, layers in decode_layers(graph, limit.value):
            query = Query(f"{CHAIN}softmax", attrs={"decode_layers": layers})
            yield Judgement(node, _place_findings(query, chip, frozenset(("decode-layers",))), True)
    program = _found_in(graph).program
    if program is not None:
        query = Query(f"{CHAIN}program", attrs=program.attrs, runtime=ALL_RUNTIMES)
        findings = _place_findings(query, chip, frozenset(("program-size",)))
        theirs = tuple(finding for finding in findings if finding.verdict in ("cpu", "unknown"))
        if theirs:
            yield Judgement(program.node, theirs, True)


def _states(graph: Graph, chip: Facts, states: Container[str]) -> Iterator[Judgement]:
    """Caches of attention that the program itself gives a new value, and states of which there are too many for one
    program. A single state of another kind runs (CT.2631)."""
    written = [node for node in graph.inputs if node.name is not None and node.name in states]
    if written:
        attends = any(attention_extents(node) is not None for node in graph.nodes)
        attrs = {"states": len(written), "unlike": len({node.shape for node in written}) > 1}
        attrs |= {"updates": "a cache"} if attends else {}
        for node in written:
            query = Query("write_state", (node.shape,), attrs=attrs, runtime=ALL_RUNTIMES)
            findings = _place_findings(query, chip, frozenset(("state-update", "state-count")))
            if findings:
                yield Judgement(node, findings, True)


def _types(graph: Graph, chip: Facts) -> Iterator[Judgement]:
    """What the file computes in a type that the engine lacks. The program of this compiler is in fp16; the runtimes
    that read such a file keep its types, and what is in fp32 leaves the engine."""
    for node in graph.nodes:
        dtype = kept_type(node.origins)
        if dtype and node.op != "host" and not node.definition.leaf and node.dtype != "int32":
            findings = _type_findings(node.op, node.shape, dtype, chip)
            if findings:
                yield Judgement(node, findings, True)


@lru_cache(maxsize=4096)
def _type_findings(op: str, shape: tuple[int, ...], dtype: str, chip: Facts) -> Findings:
    query = Query(f"{CHAIN}{op}", (shape,), dtype=dtype, runtime=ALL_RUNTIMES)
    return tuple(
        replace(finding, effect="off-engine", runtimes=KEEP_TYPES)
        for finding in _place_findings(query, chip, frozenset(("fp32-program",)))
        if isinstance(finding, PlacementFinding)
    )


def _depths(graph: Graph, chip: Facts) -> Iterator[Judgement]:
    """Runs of convolutions that are too long for one program. The walk is done only for chips with such a limit."""
    for limit in limits_for("chain-depth", f"{CHAIN}conv", chip, "conversion")[:1]:
        for node, length in convolution_runs(graph, limit.value):
            query = Query(f"{CHAIN}conv", attrs={"repeat": length})
            yield Judgement(node, _place_findings(query, chip, frozenset(("chain-depth",))), True)


def _surfaces(graph: Graph, chip: Facts) -> Iterator[Judgement]:
    """Rules about a program's own inputs, such as a surface too narrow for the chip."""
    for node in graph.inputs:
        verdict = judged(Query("identity", (node.shape,)), chip, "conversion")
        wrong = tuple(finding for finding in verdict.findings if isinstance(finding, NumberFinding))
        if wrong:
            yield Judgement(node, wrong, True)
