"""Whether the engine of one chip takes one operation by one route, and if not, which rule refuses it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Any

from aneforge.chips import Target, op_routes
from aneforge.chips.systems import applies_to, system
from aneforge.compiler.facts import Facts, facts_of
from aneforge.compiler.legal.findings import VERDICTS, Finding, NumberFinding, PlacementFinding, Threshold
from aneforge.compiler.legal.query import ALL_RUNTIMES, CHAIN, ROUTES, RUNTIMES, Query, QueryError
from aneforge.compiler.legal.rules import RULES, Limit, Rule, applicable
from aneforge.compiler.legal.rules.base import CHIP, STAGES, OneOf, Over, Structure, is_elsewhere, rule_reads
from aneforge.compiler.legal.rules.programs import is_tiny, placed
from aneforge.compiler.legal.rules.status import attested, op_answer
from aneforge.compiler.legal.words import filled
from aneforge.errors import DataError, UnknownNameError, nearest

# Weight encodings that a chip may expand before it runs the op, and the fact that says so of each.
_STREAMS = {"int8": "int8", "int8_affine": "int8", "blockwise": "blockwise"}
_FOLD_READS = tuple(f"stream:{encoding}" for encoding in sorted(set(_STREAMS.values())))


@dataclass(frozen=True)
class Verdict:
    """``accept``, ``decompose``, ``reject``, ``cpu`` (kept off the engine) or ``wrong_result``, and all findings.

    ``placed`` is Core ML's likely choice of device, kept apart from eligibility.
    """

    verdict: str
    findings: tuple[Finding, ...] = ()
    placed: str | None = None
    stage: str = "validator"
    """The layer that gave the answer: of a refusal the first that refuses, of an accept how far it is attested."""
    route: str = "conversion"

    def on(self, chip: str) -> Verdict:
        """The same with the chip's name filled in."""
        return replace(self, findings=tuple(finding.on(chip) for finding in self.findings)) if self.findings else self

    @property
    def runs(self) -> bool:
        return self.verdict in ("accept", "decompose", "wrong_result")

    def __str__(self) -> str:
        lines = [self.verdict + (f" (placed: {self.placed})" if self.placed else "")]
        return "\n  ".join(lines + [str(finding) for finding in self.findings])

    def to_json(self) -> dict[str, Any]:
        findings = [finding.to_json() for finding in self.findings]
        return {
            "verdict": self.verdict,
            "stage": self.stage,
            "route": self.route,
            "placed": self.placed,
            "findings": findings,
        }


@dataclass(frozen=True)
class _Plan:
    """What op, chip and route alone decide, and the rules that need the operands."""

    fixed: tuple[Finding, ...]
    rules: tuple[tuple[Rule, Limit], ...]
    accepted: Verdict
    """The verdict where nothing speaks against the op."""


@cache
def legality_reads() -> tuple[str, ...]:
    """Every fact of a chip that a verdict may depend on."""
    return (*rule_reads(), *_FOLD_READS)


def judge(query: Query, target: Target, route: str = "conversion", os: str | None = None) -> Verdict:
    """The verdict for one operation on one chip; ``route`` is conversion, direct or coreml_placement, ``os`` the
    version of the system (default: the newest known)."""
    verdict = judged(query, facts_of(target, legality_reads()), route)
    version = system(os)
    here = [finding for finding in verdict.findings if applies_to(finding.since, version)]
    if len(here) < len(verdict.findings):
        accepted = Verdict("accept", stage=verdict.stage, route=verdict.route)
        verdict = _verdict(here, accepted, verdict.placed)
    return verdict.on(target.name)


def judged(query: Query, chip: Facts, route: str, by_name: bool = True) -> Verdict:
    """The verdict for all chips with these facts; messages have a mark where a chip's name belongs.

    Without ``by_name`` only sizes and attributes are judged, and not whether the route has an op of that name.
    """
    runtime = query.runtime_of(route)
    plan = _plan(query.op, chip, route, runtime)
    findings = list(plan.fixed) if by_name else []
    rule_ = None
    try:
        for rule_, limit in plan.rules:
            extent = rule_.check(query, limit)
            if extent is not None:
                findings.append(_finding(rule_, limit, extent, query, route, runtime))
    except (TypeError, ValueError, AttributeError, LookupError) as error:
        name = rule_.id if rule_ is not None else "no rule"
        raise QueryError(f"attrs: rule {name} cannot read the attributes or shapes of {query.op}: {error}") from None
    fold = _fold_finding(query, chip, route)
    if fold is not None:
        findings.append(fold)
    findings.sort(key=_gravest_first)
    if any(finding.verdict == "unknown" for finding in findings):
        findings = _settled(findings)
    if route == "coreml_placement":
        # Core ML's own choice of device. What is far too small for the engine, the CPU computes correctly: the
        # engine's wrong results do not occur there (LA.qdq).
        if findings and findings[0].verdict in ("cpu", "reject"):
            return _verdict(findings, plan.accepted, "cpu")
        device = placed(query)
        if device == "cpu" and is_tiny(query):
            findings = [finding for finding in findings if not isinstance(finding, NumberFinding)]
        return _verdict(findings, plan.accepted, device)
    return _verdict(findings, plan.accepted)


_AUTHORING = "neuron-bridge"
"""The validator that is about who may ask for a layer, not about the layer."""


def validated(query: Query, chip: Facts, route: str, authored: bool = True) -> tuple[PlacementFinding, ...]:
    """What the validators of a layer say of it, and nothing else: for the layers of a program, of which the other
    rules were asked before they were lowered. On the direct route a layer must be one that can be ``authored``, too;
    below A13 the floors of backend ops say so."""
    fixed, rules = _validators(query.op, chip, route)
    findings: list[Finding] = list(fixed) if authored else []
    for rule_, limit in rules:
        if not authored and rule_.id == _AUTHORING:
            continue
        extent = rule_.check(query, limit)
        if extent is not None:
            findings.append(_finding(rule_, limit, extent, query, route, query.runtime))
    # What the compiler would rewrite is refused here: the passes that do so have run.
    refusals = (
        replace(finding, effect="reject")
        for finding in findings
        if isinstance(finding, PlacementFinding) and finding.effect != "off-engine"
    )
    return tuple(sorted(refusals, key=_gravest_first))


@lru_cache(maxsize=4096)
def _validators(
    op: str, chip: Facts, route: str
) -> tuple[tuple[PlacementFinding, ...], tuple[tuple[Rule, Limit], ...]]:
    fixed = _answered(op, chip, route, "direct") if route == "direct" and chip.get("tier") != "OLDER" else []
    return tuple(fixed), applicable(op, chip, route, validators=True)


def bridge_floor(op: str, chip: Facts) -> tuple[Finding, ...]:
    """What refuses a layer where conversion is asked for, although it can be authored: the floor of the conversion, if
    that has the layer from a later family on (chapter 26 on whole-tensor positions)."""
    return tuple(_answered(op, chip, "conversion", "direct")) if op_routes(op).conversion else ()


@cache
def validator_reads() -> tuple[str, ...]:
    """Every fact of a chip that a validator may depend on."""
    return rule_reads(tuple(name for name, rule_ in RULES.items() if rule_.validates))


def _gravest_first(finding: Finding) -> tuple[int, int, bool, bool]:
    """By effect, and refusals in the order in which a program meets them; of one stage the layer's own validator
    before general limits, and what the compiler has words for before the rest."""
    rule_ = RULES.get(finding.rule)
    general = rule_ is None or not rule_.validates
    is_quoted = isinstance(finding, PlacementFinding) and bool(finding.string)
    return -VERDICTS.index(finding.verdict), STAGES.index(finding.stage), general, not is_quoted


def _settled(findings: list[Finding]) -> list[Finding]:
    """Without what nobody would know if another record of the rule did not say it, for every system."""
    known = {
        (finding.rule, finding.runtimes) for finding in findings if finding.verdict != "unknown" and not finding.since
    }
    return [
        finding
        for finding in findings
        if finding.verdict != "unknown" or (finding.rule, finding.runtimes) not in known
    ]


def _verdict(findings: list[Finding], accepted: Verdict, placed: str | None = None) -> Verdict:
    if not findings:
        return accepted if placed is None else replace(accepted, placed=placed)
    first = findings[0]
    return Verdict(first.verdict, tuple(findings), placed, first.stage, accepted.route)


def run_time_only(finding: Finding) -> bool:
    """Whether a finding shows only when the program runs, so that compiling alone does not meet it."""
    return finding.stage == "measured run"


@lru_cache(maxsize=16384)
def _plan(op: str, chip: Facts, route: str, runtime: str) -> _Plan:
    if route not in ROUTES:
        near = ", ".join(nearest(route, ROUTES)) or ", ".join(ROUTES)
        raise UnknownNameError(f"route {route!r} is unknown; choose one: {near}")
    if runtime != ALL_RUNTIMES and runtime not in RUNTIMES:
        raise UnknownNameError(f"runtime {runtime!r} is unknown; choose one: {', '.join(RUNTIMES)}")
    if not isinstance(op, str) or not op.removeprefix(CHAIN):
        raise QueryError(f"op: expected the name of an operation, got {op!r}")
    fixed = [*_constructible(chip, route), *_answered(op, chip, route, runtime)]
    accepted = Verdict("accept", stage=attested(op, chip, route)[0], route=route)
    return _Plan(tuple(fixed), applicable(op, chip, route, runtime), accepted)


def _constructible(chip: Facts, route: str) -> list[PlacementFinding]:
    known = chip.fact("constructible")
    if known.value is not False:
        return []
    message = f"{CHIP}: the compiler knows the name but builds no such target (compile status 22)"
    hint = "choose a name that 'aneforge targets' lists as constructible"
    effect = _by_route("reject", route, {}, False)
    return [PlacementFinding("target-name", message, known, hint, stage="frontend", route=route, effect=effect)]


def _answered(op: str, chip: Facts, route: str, runtime: str) -> list[PlacementFinding]:
    if op.startswith(CHAIN):  # a chain is judged by its ops; only the floor of the route applies to it by name
        answer = op_answer("relu", chip, "conversion" if route == "direct" else route)
        if answer.rule != "mil-floor":
            return []
    else:
        answer = op_answer(op, chip, route, runtime)
    if answer.value == "accept":
        return []
    quoted = f' ("{answer.string}")' if answer.string and answer.string not in answer.why else ""
    return [
        PlacementFinding(
            answer.rule, f"{answer.why}{quoted}", answer.evidence, answer.hint, stage=answer.stage, route=route,
            effect=_by_route(answer.value, route, {}, False), extent=op, string=answer.string,
        )
    ]  # fmt: skip


_EFFECTS = {"cpu": "off-engine"}
"""Words of records for an effect on placement, where they are not the effect's own."""


def _by_route(effect: str, route: str, record: Mapping[str, Any], chain: bool) -> str:
    """Core ML gives to the CPU what its planner refuses; only a failure after the plan is an error there."""
    if route == "coreml_placement" and effect == "reject":
        effect = record.get("placement_effect", "cpu")
        if chain and "chain_placement_effect" in record:
            effect = record["chain_placement_effect"]
    return _EFFECTS.get(effect, effect)


def _finding(rule_: Rule, limit: Limit, extent: Any, query: Query, route: str, runtime: str) -> Finding:
    """The finding of a rule that met its limit: about numbers, or about placement."""
    record = limit.record
    over = extent if isinstance(extent, Over) else Over(extent, limit.value)
    stated = over.words or _as_text(over.limit)
    words = {
        "op": query.base,
        "extent": _as_text(over.extent),
        "limit": stated,
        "chip": CHIP,
        "what": over.what or record.get("what", ""),
    }
    string = filled(record.get("string", rule_.string), words, query)
    message = record.get("says", rule_.template).format(**words, string=string)
    if string and rule_.validates and string not in message:
        message = f'{message.rstrip(".")} ("{string}").'
    runtimes = tuple(record.get("runtimes", ()))
    if runtimes and "direct" not in runtimes:
        names = " and ".join(RUNTIMES[name] for name in runtimes)
        message = f"{message.rstrip('.')} (by {names})."
    common = (rule_.id, message, limit.evidence, limit.hint, runtimes, limit.stage, route)
    effect, since = record.get("effect", rule_.effect), record.get("since", "")
    if effect == "wrong_result":
        reaches = _number(over.extent, math.inf)
        return NumberFinding(*common, limit=_number(over.limit, 0.0), reaches=reaches, since=since)
    effect = _by_route(effect, route, record, query.is_chain)
    if effect == "reject" and is_elsewhere(record, runtime):
        effect = "off-engine"  # the program of this compiler runs; theirs leaves the engine or fails
    oversize = record.get("oversize", rule_.oversize)
    return PlacementFinding(*common, effect, _threshold(over.limit), over.extent, oversize, string, since=since)


def _number(value: Any, otherwise: float) -> float:
    """A limit or an extent as a number; where it is a structure, every number may be wrong."""
    largest = max(value, default=otherwise) if isinstance(value, tuple) else value
    is_number = isinstance(largest, (int, float)) and not isinstance(largest, bool)
    return float(largest) if is_number else otherwise


def _threshold(limit: Any) -> Threshold:
    """A limit by what it is. Lists come from records and facts, and say which values are taken."""
    if isinstance(limit, (list, set, frozenset)):
        return OneOf(tuple(limit))
    if not isinstance(limit, (int, float, tuple, OneOf, Structure)):
        raise DataError(f"a limit of {limit!r} is neither a number nor values nor a structure")
    return limit


def _as_text(value: Any) -> str:
    """A value as it reads in a sentence."""
    if isinstance(value, dict):
        return ", ".join(f"{key} {item}" for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value)) if any(isinstance(item, str) for item in value) else str(tuple(value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def _fold_finding(query: Query, chip: Facts, route: str) -> PlacementFinding | None:
    """A finding where the question is about the encoding (no shapes given) and the chip folds it to fp16.

    With shapes the op itself is native whatever the weight's form: expansion happens when the program is built and
    costs bandwidth, not the engine (compression.json, G07).
    """
    encoding = query.weights.get("encoding")
    if encoding not in _STREAMS or route != "conversion" or query.shapes is not None or query.is_chain:
        return None
    if chip.get("tier") is None or query.values:
        return None
    known: Any = chip.fact(f"stream:{_STREAMS[encoding]}")
    if known.value != "fold":
        return None
    message = f"{query.op}: {encoding} weights are expanded to fp16 when a program for {CHIP} is built"
    hint = "use an encoding that streams there (aneforge.chips.native_streams)"
    return PlacementFinding(
        "weight-fold", message, known, hint, stage="code generation", route=route,
        effect="decompose", limit=Structure("a form that streams"), extent="fold",
    )  # fmt: skip
