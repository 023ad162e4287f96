"""Whether an op exists on a chip by a route at all, before any size is checked.

In this order: a record of ``gate_limits.json``; what Core ML's segmenter was seen to leave to the CPU; the measured
sweep of the whole vocabulary on an A16-tier chip; the op's row in the table of :mod:`aneforge.targets.ops`. That table
has the records of the direct route in it, so that on this route every answer is also that of ``op_status``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Any

from aneforge.compiler.facts import Facts
from aneforge.compiler.legal.query import ALL_RUNTIMES, CHAIN
from aneforge.compiler.legal.rules.base import CHIP, matches, validator_records
from aneforge.compiler.legal.words import needs_texture_engine, reject_message, spellings_of
from aneforge.errors import UnknownNameError, nearest
from aneforge.native.schema import layer_types
from aneforge.targets import Fact, Family, op_names, op_routes, store
from aneforge.targets.evidence import fact
from aneforge.targets.ops import OpRoutes, mil_floor, mil_row


@dataclass(frozen=True)
class OpAnswer:
    """``accept``, ``decompose`` or ``reject`` for an op by name, with the reason and what to do."""

    value: str
    rule: str
    why: str
    evidence: Fact[Any]
    hint: str = ""
    stage: str = "frontend"
    """The layer that gives the answer, one of ``STAGES``."""
    string: str = ""
    """The compiler's own words, where they are published."""


@cache
def _own() -> Mapping[str, tuple[Mapping[str, Any], ...]]:
    by_op: dict[str, list[Mapping[str, Any]]] = {}
    for record in store.load("gate_limits")["ops"]:
        by_op.setdefault(record["op"], []).append(record)
    return {name: tuple(records) for name, records in by_op.items()}


@cache
def known_names() -> frozenset[str]:
    """Every op name that the gate has an answer for."""
    layers = store.load("layers")
    tags = {row["type_tag"] for row in layers["layers"] if row["type_tag"]}
    swept = {row["mil"] for row in store.load("ops")["mil_sweep_only"]}
    return frozenset((*op_names(), *tags, *swept, *_own()))


def op_answer(op: str, chip: Facts, route: str, runtime: str = "direct") -> OpAnswer:
    """The answer for the name alone. An unknown name is rejected, never assumed to be native."""
    if op not in known_names():
        near = nearest(op, known_names())
        hint = f"nearest known names: {', '.join(near)}" if near else "'aneforge ops' lists the known names"
        return OpAnswer("reject", "unknown-op", f"{op} is not a known operation", Fact(None), hint)
    if chip.get("tier") == Family.OLDER.name and route == "conversion":  # comes before every record
        floor = mil_floor()
        return OpAnswer("reject", "mil-floor", f"{CHIP}: {floor.note}", floor, "target H13 or newer")
    answer = _record(op, chip, route, runtime) or _segmenter(op, chip, route) or _sweep(op, chip, route)
    return _routes(op, chip, route) if answer is None else answer


def _record(op: str, chip: Facts, route: str, runtime: str) -> OpAnswer | None:
    named = "direct" if runtime == ALL_RUNTIMES else runtime
    for record in _own().get(op, ()):
        if matches(record, op, chip, route, named):
            stage = record["stage"]
            why = _why(op, route, stage)
            evidence = fact(record, about=f"gate answer for {op}")
            words = record.get("string") or reject_message(op) or ""
            return OpAnswer(record["v"], "op-record", why, evidence, _hint(record, op), stage, words)
    return None


def _why(op: str, route: str, stage: str) -> str:
    if stage == "code generation" and route == "direct":
        return f"{op} passes its validator on {CHIP} and fails code generation"
    return f"{op} is not available on {CHIP} by the {route} route"


def _hint(record: Mapping[str, Any], op: str) -> str:
    return record.get("hint") or f"replace {op} by an equivalent in the graph, or compute it on the host"


@cache
def _segmenter_refuses() -> tuple[frozenset[str], Fact[Any]]:
    document = store.load("ops")
    table = document["m4_core_ml_segmenter"]
    names = {name for group in ("math", "structure", "int32") for name in table["unsupported"][group]}
    # "add", "mul" and "matmul" are listed for int32 operands only; the integer-operand rule covers them.
    plain = {name for name in names if mil_row(name) is not None} - {"add", "mul", "matmul"}
    evidence = fact({**table, "v": sorted(plain)}, document["evidence"], about="ops that Core ML leaves to the CPU")
    return frozenset(plain), evidence


def _segmenter(op: str, chip: Facts, route: str) -> OpAnswer | None:
    if route != "coreml_placement":
        return None
    refused, evidence = _segmenter_refuses()
    if op not in refused:
        return None
    if chip.get("tier") != Family.A16.name:
        evidence = replace(evidence, confidence="predicted")
    why = f"Core ML's planner does not call {op} eligible for the engine"
    return OpAnswer("reject", "segmenter", why, evidence, _hint({}, op), "validator")


@cache
def _sweep_only() -> Mapping[str, Mapping[str, Any]]:
    return {row["mil"]: row for row in store.load("ops")["mil_sweep_only"]}


def _sweep(op: str, chip: Facts, route: str) -> OpAnswer | None:
    """The vocabulary sweep ran on an M5, so it applies to the A16 tier by conversion."""
    row = mil_row(op) or _sweep_only().get(op)
    if route != "conversion" or chip.get("tier") != Family.A16.name or row is None or "m5_sweep" not in row:
        return None
    cell = row["m5_sweep"]
    evidence = fact({**cell, "v": cell["class"]}, store.load("ops")["evidence"], about=f"{op} in the vocabulary sweep")
    if str(cell["class"]).startswith("reachable"):
        return OpAnswer("accept", "sweep", "", evidence)
    why = f"{op} failed to compile in a minimal program for the engine alone ({cell['class']})"
    return OpAnswer("reject", "sweep", why, evidence, _hint({}, op), "code generation", reject_message(op) or "")


def _routes(op: str, chip: Facts, route: str) -> OpAnswer:
    """The table of routes, read as "does the vendor's compiler take it"."""
    tier, routes = chip.get("tier"), _routes_of(op)
    statuses = None if routes is None else routes.direct if route == "direct" else routes.conversion
    if routes is None or not statuses:
        taken, other = ("direct authoring", "conversion") if route == "direct" else ("conversion", "direct authoring")
        evidence = Fact(None) if routes is None else routes.main[Family.A13]
        return OpAnswer("reject", "op-route", f"{op} is not available by {taken}", evidence, f"use {other}")
    if tier is None:  # a reference profile: no tier, so nothing is known against the op
        return OpAnswer("accept", "op-route", "", Fact(None, note="reference profile without a tier"))
    status = statuses[Family[tier]]
    if tier == Family.OLDER.name and route == "coreml_placement":
        return OpAnswer("accept", "mil-floor", "", status)  # Core ML reached those chips by an older path
    value = _authored(op, status, tier) if route == "direct" else _converted(op, routes, status, tier)
    if value == "accept" or (value == "decompose" and route == "coreml_placement"):
        return OpAnswer("accept", "op-route", "", status)
    string = reject_message(op) or ""
    stage = "frontend"
    if route == "direct":  # the words of an op's unit are those of its validator, which reads a byte (chapter 22)
        stage = "validator" if string else "code generation" if _units().get(op) else stage
    is_explained = route == "direct" and (tier == Family.OLDER.name or op not in _units())
    why = _reason(op, value, status.note if is_explained else None, route, stage)
    rule = "minimum-family" if route == "direct" and tier == Family.OLDER.name else "op-route"
    hint = f"{_other_route(routes, tier, route)}{_hint({}, op)}"
    return OpAnswer(value, rule, why, status, hint, stage, string)


def _routes_of(op: str) -> OpRoutes | None:
    try:
        return op_routes(op)
    except UnknownNameError:  # a name that only the sweep or a record has
        return None


def _authored(op: str, status: Fact[str], tier: str) -> str:
    """What authoring gives. From A13 on a support byte decides where there is one; the unit's validator reads it."""
    by_byte = tier != Family.OLDER.name and has_support_byte(op)
    return "accept" if by_byte or status.value == "native" else status.value


def _converted(op: str, routes: OpRoutes, status: Fact[str], tier: str) -> str:
    """What the vendor's conversion gives: our own rewrites are not counted (chapter 26 on sine and cosine)."""
    cell, is_const = (mil_row(op) or {}).get(tier), op.startswith("const")
    lacking = {"gated": True, "none": not is_const, "bridge": not is_const and routes.rule == "op matrix"}
    if routes.rule == "no native form" or lacking.get(str(cell)):
        return "reject"
    return "accept" if status.value == "native" else status.value


def _other_route(routes: OpRoutes, tier: str, route: str) -> str:
    """The advice to take the other route, where that has the op."""
    converted = routes.conversion.get(Family[tier])
    if route == "direct":
        return "" if converted is None or converted.value == "reject" else "use the conversion route, or "
    return "use the direct route, or " if routes.direct[Family[tier]].value == "native" else ""


def _reason(op: str, value: str, note: str | None, route: str, stage: str) -> str:
    named = "direct" if route == "direct" else "conversion"
    if value == "decompose":
        return f"{op} is rewritten to other ops on {CHIP} by the {named} route"
    if note:
        return f"{op} cannot be authored on {CHIP}: {note}"
    part = ": the chip has no texture engine" if needs_texture_engine(op) else ""
    return f"{_why(op, named, stage)}{part}"


@cache
def _units() -> Mapping[str, bool]:
    """Every unit by name and by tag, and whether it has an exported validator."""
    return {name: layer.validator is not None for layer in layer_types() for name in (layer.tag, layer.name)}


def has_support_byte(op: str) -> bool:
    """Whether the validator of a layer reads a support byte of the chip for every form of the layer."""
    return op in _gated_layers()


@cache
def _gated_layers() -> frozenset[str]:
    records = [record for record in validator_records() if record["rule"] == "support-byte" and "when" not in record]
    return frozenset(name for record in records for name in record["ops"])


@lru_cache(maxsize=16384)
def attested(op: str, chip: Facts, route: str) -> tuple[str, Fact[Any]]:
    """How far an accept is attested, and by what: a run that was seen on chips of this tier by this route, or a
    validator, which is no proof that code is generated (chapter 22)."""
    tier = chip.get("tier")
    family = None if tier is None else Family[tier]
    if family is None or op.startswith(CHAIN) or route == "coreml_placement":
        return "validator", Fact(None)
    row = mil_row(op)
    if route == "conversion" and family is Family.A16 and row is not None and "m5_sweep" in row:
        swept = _sweep(op, chip, route)
        if swept is not None and swept.value == "accept":
            return "measured run", swept.evidence
    seen = (_routes_of(name) for name in (op, *spellings_of(op)) if name in known_names())
    cells = [status for routes in seen if routes and (status := getattr(routes, route).get(family))]
    ran = next((cell for cell in cells if cell.confidence == "measured" and cell.value == "native"), None)
    return ("validator", cells[0] if cells else Fact(None)) if ran is None else ("measured run", ran)
