"""What a chip refuses of a graph, and what it may compute wrongly: every node is checked, once per signature.

Nodes that are the same op on the same shapes share a signature, and chips whose declared facts agree share an answer,
so each rule runs once for each distinct pair. What depends on a node's place in the graph is checked for each node.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from math import inf
from typing import Any
from weakref import WeakKeyDictionary

from aneforge.compiler.facts import Facts
from aneforge.compiler.legal.judge import Finding, Verdict, judged, legality_reads
from aneforge.compiler.legal.patterns import (
    Match,
    attention_extents,
    convolution_runs,
    has_width_offset,
    matched_patterns,
    pattern_query,
)
from aneforge.compiler.legal.programs import ProgramWeights, decode_layers, program_of
from aneforge.compiler.legal.query import ALL_RUNTIMES, CHAIN, Query
from aneforge.compiler.legal.rules.base import RULES, Limit, limits_for, pattern_rules
from aneforge.compiler.legal.translate import query_of, route_of
from aneforge.graph.graph import Graph
from aneforge.graph.node import Signature
from aneforge.graph.tensor import Tensor
from aneforge.targets.evidence import Fact
from aneforge.targets.limits import global_limit
from aneforge.targets.numeric_facts import FP16_SLICE_SAT

__all__ = ["Judgement", "Ruling", "check_reads", "is_refused", "judgements", "limit_of", "program_route", "ruling"]

_COMPUTED_LEAVES = ("random_uniform", "random_normal")


@dataclass(frozen=True)
class Ruling:
    """What the rules say of a signature on the chips with some facts."""

    status: str
    """``native``, ``risk`` (it runs; the numbers may be unusable, or another runtime keeps it off the engine) or
    ``reject``."""
    findings: tuple[Finding, ...] = ()
    route: str = "conversion"

    @property
    def oversize(self) -> bool:
        """Whether only extents speak against it, so that it would run in smaller pieces."""
        refused = [finding for finding in self.findings if finding.effect == "reject"]
        return self.status == "reject" and bool(refused) and all(finding.oversize for finding in refused)

    @property
    def evidence(self) -> Fact[Any] | None:
        return self.findings[0].evidence if self.findings else None


_NATIVE = {route: Ruling("native", (), route) for route in ("conversion", "direct")}


@dataclass(frozen=True, eq=False)
class Judgement:
    """A node of the graph that is not simply native."""

    node: Tensor
    ruling: Ruling
    by_place: bool = False
    """Whether it depends on what comes before or after the node."""


@cache
def check_reads() -> tuple[str, ...]:
    """Every fact of a chip that a judgement may depend on."""
    return (*legality_reads(), "slice_saturates", "max_operand_bytes")


def program_route(chip: Facts, requested: str | None) -> str:
    """How a program reaches a chip: by conversion, and by direct authoring below the floor of the model language."""
    return requested or ("direct" if chip.get("tier") == "OLDER" else "conversion")


def judgements(
    graph: Graph, chip: Facts, requested: str | None = None, states: Container[str] = ()
) -> list[Judgement]:
    """Everything that a chip refuses or may compute wrongly, in the order of the graph. ``states`` names the inputs
    that live on from run to run."""
    route = program_route(chip, requested)
    unknown = _unknown_table(chip)
    results: list[Judgement] = []
    for node in graph.nodes:
        if node.definition.leaf and node.op not in _COMPUTED_LEAVES and not _hands_on_integers(node, graph):
            continue
        ruled = unknown or ruling(node.signature, chip, route)
        if ruled.status != "native":
            results.append(Judgement(node, ruled))
    refused = {judgement.node.uid for judgement in results if judgement.ruling.status == "reject"}
    if route == "conversion" and unknown is None:
        results += _slices(graph, chip)
        results += _surfaces(graph, chip)
        results += _sequences(graph, chip)
        results += _depths(graph, chip)
        results += _programs(graph, chip)
        results += _states(graph, chip, states)
        results += _promised_values(graph, chip)
        results += _results(graph, chip, refused)
    results.sort(key=lambda judgement: judgement.node.uid)
    return results


def _hands_on_integers(node: Tensor, graph: Graph) -> bool:
    """Whether integers go from an input to the caller unchanged; no program has a port for them."""
    return node.dtype == "int32" and any(node is output for output in graph.outputs)


def _unknown_table(chip: Facts) -> Ruling | None:
    """The refusal of a name that no build constructs, for which not even a table is known."""
    if chip.fact("max_operand_bytes").known:
        return None
    message = "{chip}: no build constructs this target, although the name is known"
    hint = "choose a name that 'aneforge targets' lists as constructible"
    evidence = chip.fact("constructible")
    finding = Finding("target-name", "reject", message, True, False, evidence, False, hint, stage="frontend")
    return Ruling("reject", (finding,))


@lru_cache(maxsize=65536)
def ruling(signature: Signature, chip: Facts, program: str) -> Ruling:
    """The answer for one signature: the findings of every rule that concerns it."""
    if signature.op.name == "host" or signature.dtype == "int32" or _reads_integers(signature):
        return Ruling("reject", (*_write_findings(signature, chip), _host_finding(signature)))
    # Below the floor nothing is converted, so a layer that could be authored is not reached either.
    route = program if program == "direct" or chip.get("tier") == "OLDER" else route_of(signature)
    # Ordinary ops that are authored become layers, whose validators phase 2 asks once all rewrites are done.
    by_name = program == "conversion" or signature.op.native_layer
    return _ruling(judged(query_of(signature, runtime=ALL_RUNTIMES), chip, route, by_name), route)


@lru_cache(maxsize=65536)
def is_refused(signature: Signature, chip: Facts, requested: str | None, rules: tuple[str, ...]) -> bool:
    """Whether one of some rules refuses a node; for rewrites that answer these rules."""
    query = query_of(signature)
    limits = ((RULES[name], limit_of(name, signature, chip, requested)) for name in rules)
    return any(limit is not None and rule_.check(query, limit) is not None for rule_, limit in limits)


@lru_cache(maxsize=4096)
def limit_of(rule: str, signature: Signature, chip: Facts, requested: str | None) -> Limit | None:
    """The limit of a rule for a node on a chip, by the route that reaches it."""
    program = program_route(chip, requested)
    route = program if program == "direct" else route_of(signature)
    limits = limits_for(rule, query_of(signature).op, chip, route)
    return limits[0] if limits and limits[0].value is not None else None


def _ruling(verdict: Verdict, route: str) -> Ruling:
    """The findings that matter to the user: what is refused, what is wrong, and what another runtime keeps off the
    engine. How the vendor rewrites an op is left out."""
    findings = tuple(finding for finding in verdict.findings if finding.effect != "decompose")
    if not findings:
        return _NATIVE[route]
    return Ruling("reject" if verdict.verdict == "reject" else "risk", findings, route)


_WRITES = ("scatter", "index_put", "index_copy", "index_add", "slice_update", "slicescatter")
"""Parts of the names that model files have for an op that writes at places which it is given."""


def _write_findings(signature: Signature, chip: Facts) -> tuple[Finding, ...]:
    """What is known of an op of the host that writes into a tensor at computed places, such as a row of a cache."""
    kind = str(dict(signature.attrs).get("kind", ""))
    if not any(word in kind.lower() for word in _WRITES):
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
    return Finding("host-op", "reject", message, None, None, evidence, False, hint, stage="frontend")


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
        over = tuple(finding for finding in verdict.findings if finding.effect == "reject" and finding.oversize)
        if over:
            yield Judgement(node, Ruling("reject", over), True)


def _sequences(graph: Graph, chip: Facts) -> Iterator[Judgement]:
    """Short sequences that were seen to fail although each op alone runs."""
    for node, pattern, subject in _found_in(graph).matches:
        ruled = _sequence_ruling(node.op, pattern, subject.signature, chip)
        if ruled.status != "native":
            yield Judgement(node, ruled, True)


@lru_cache(maxsize=4096)
def _sequence_ruling(op: str, pattern: str, subject: Signature, chip: Facts) -> Ruling:
    """The answer for one pattern; a deep model shows the same one at every layer."""
    return _place_ruling(pattern_query(op, pattern, subject), chip, pattern_rules())


def _place_ruling(query: Query, chip: Facts, rules: frozenset[str]) -> Ruling:
    """The findings of some rules about a node's place; the other rules have been asked about the node itself."""
    verdict = judged(query, chip, "conversion")
    findings = tuple(finding for finding in verdict.findings if finding.rule in rules)
    if not findings:
        return _NATIVE["conversion"]
    return Ruling("reject" if any(finding.effect == "reject" for finding in findings) else "risk", findings)


def _programs(graph: Graph, chip: Facts) -> Iterator[Judgement]:
    """How much one program may hold: layers, and weights as the model stores them for the other runtimes. What this
    compiler's own programs may hold is checked in phase 2, which knows where one ends."""
    for limit in limits_for("decode-layers", f"{CHAIN}softmax", chip, "conversion")[:1]:
        for node, layers in decode_layers(graph, limit.value):
            query = Query(f"{CHAIN}softmax", attrs={"decode_layers": layers})
            yield Judgement(node, _place_ruling(query, chip, frozenset(("decode-layers",))), True)
    program = _found_in(graph).program
    if program is not None:
        query = Query(f"{CHAIN}program", attrs=program.attrs, runtime=ALL_RUNTIMES)
        ruled = _place_ruling(query, chip, frozenset(("program-size",)))
        theirs = tuple(finding for finding in ruled.findings if finding.effect == "cpu")
        if theirs:
            yield Judgement(program.node, Ruling("risk", theirs), True)


def _states(graph: Graph, chip: Facts, states: Container[str]) -> Iterator[Judgement]:
    """Caches of attention that the program itself gives a new value. Other states run (CT.2631)."""
    written = [node for node in graph.inputs if node.name is not None and node.name in states]
    if written and any(attention_extents(node) is not None for node in graph.nodes):
        for node in written:
            query = Query("write_state", (node.shape,), attrs={"updates": "a cache"}, runtime=ALL_RUNTIMES)
            ruled = _place_ruling(query, chip, frozenset(("state-update",)))
            if ruled.status != "native":
                yield Judgement(node, ruled, True)


def _depths(graph: Graph, chip: Facts) -> Iterator[Judgement]:
    """Runs of convolutions that are too long for one program. The walk is done only for chips with such a limit."""
    for limit in limits_for("chain-depth", f"{CHAIN}conv", chip, "conversion")[:1]:
        for node, length in convolution_runs(graph, limit.value):
            query = Query(f"{CHAIN}conv", attrs={"repeat": length})
            yield Judgement(node, _place_ruling(query, chip, frozenset(("chain-depth",))), True)


_PROMISED = frozenset(("value-cliff", "int8-x16"))
"""Rules about the largest input. Those about results need ranges of every op, which the numerics derive."""
_CLIFFS = frozenset(("softplus", "round", "exp", "exp2", "square", "matmul", "linear"))
"""The graph ops that such a rule concerns."""


def _promised_values(graph: Graph, chip: Facts) -> Iterator[Judgement]:
    """Ops that read an input whose declared magnitude is beyond what the op computes correctly."""
    bounds = _promised_bounds(graph)
    for node in graph.nodes if bounds else ():
        if node.op in _CLIFFS and node.inputs[0].uid in bounds:
            query = query_of(node.signature, bounds[node.inputs[0].uid], ALL_RUNTIMES)
            ruled = _place_ruling(query, chip, _PROMISED)
            if ruled.status != "native":
                yield Judgement(node, ruled, True)


def _surfaces(graph: Graph, chip: Facts) -> Iterator[Judgement]:
    """Rules about a program's own inputs, such as a surface too narrow for the chip."""
    for node in graph.inputs:
        verdict = judged(Query("identity", (node.shape,)), chip, "conversion")
        risky = tuple(finding for finding in verdict.findings if finding.effect == "wrong_result")
        if risky:
            yield Judgement(node, Ruling("risk", risky), True)


def _slices(graph: Graph, chip: Facts) -> Iterator[Judgement]:
    """Slices that start inside the width where the chip clamps them, unless the data is known to stay below 4094."""
    if chip.get("tier") is None or not chip.get("slice_saturates"):
        return
    hazard = chip.fact("slice_saturates")
    bounds = _promised_bounds(graph)
    for node in graph.nodes:
        if has_width_offset(node.signature) and not bounds.get(node.inputs[0].uid, inf) <= FP16_SLICE_SAT:
            yield Judgement(node, Ruling("risk", (_slice_finding(hazard),), route_of(node.signature)), True)


_MOVERS = frozenset(
    ("reshape", "transpose", "expand_dims", "squeeze", "slice_by_size", "slice_by_index", "crop", "tile", "reverse")
)


def _promised_bounds(graph: Graph) -> dict[int, float]:
    """The bound of every tensor that comes from an input with a declared bound, through ops that only move it."""
    bounds = {node.uid: node.attrs["max_abs"] for node in graph.inputs if node.attrs.get("max_abs") is not None}
    for node in graph.nodes if bounds else ():
        if node.op in _MOVERS and node.inputs[0].uid in bounds:
            bounds[node.uid] = bounds[node.inputs[0].uid]
    return bounds


def _slice_finding(hazard: Fact[bool]) -> Finding:
    return Finding(
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
        stage="measured run",
    )
