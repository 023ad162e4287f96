"""Whether an op exists on a chip by a route at all, before any size is checked.

In this order: a record of ``gate_limits.json``; what Core ML's segmenter was seen to leave to the CPU; the measured
sweep of the whole vocabulary on an A16-tier chip; the op's routes in the target database.
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
from aneforge.targets import Fact, Family, op_names, op_routes, store
from aneforge.targets.evidence import fact
from aneforge.targets.ops import OpRoutes, mil_floor, mil_row

__all__ = ["OpAnswer", "attested", "has_support_byte", "known_names", "op_answer"]


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
    if chip.get("tier") == Family.OLDER.name and route == "conversion":
        return _routes("relu", chip, route)  # the floor of the model language comes before every record
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
    """The target database, read as "does the vendor's compiler take it": our own rewrites are not counted."""
    tier = chip.get("tier")
    family = None if tier is None else Family[tier]
    route_name = "direct" if route == "direct" else "conversion"
    statuses, routes = _statuses(op, route_name)
    if family is Family.OLDER and route_name == "conversion" and (statuses or route == route_name):
        # Below A13 no model-language program compiles; Core ML reached those chips by an older path.
        value, floor = "accept" if route == "coreml_placement" else "reject", mil_floor()
        return OpAnswer(value, "mil-floor", f"{CHIP}: {floor.note}", floor, "target H13 or newer")
    if not statuses:
        other = "conversion" if route_name == "direct" else "direct authoring"
        why = f"{op} is not available by {'direct authoring' if route_name == 'direct' else 'conversion'}"
        evidence = next(iter(routes.main.values()), Fact(None)) if routes is not None else Fact(None)
        return OpAnswer("reject", "op-route", why, evidence, f"use {other}")
    if family is None:  # a reference profile: no tier, so nothing is known against the op
        return OpAnswer("accept", "op-route", "", Fact(None, note="reference profile without a tier"))
    status = statuses[family]
    if route_name == "direct" and family is not Family.OLDER and has_support_byte(op):
        return OpAnswer("accept", "op-route", "", status)  # the byte decides, which the layer's validator reads
    row = mil_row(op)
    cell = row.get(family.name) if row is not None else None
    value = {"native": "accept"}.get(status.value, status.value)
    by_rule = "" if routes is None else routes.rule
    if (cell == "none" and not op.startswith("const")) or cell == "gated" or by_rule == "no native form":
        value = "reject"  # "decompose" there means a rewrite of ours, not the compiler's (chapter 26 on sin and cos)
    elif cell == "bridge" and by_rule == "op matrix" and not op.startswith("const"):
        value = "reject"
    if value == "decompose" and route == "coreml_placement":
        value = "accept"
    stage = _refusing_stage(op, route_name)
    state = "rewritten to other ops" if value == "decompose" else "not available"
    part = ": the chip has no texture engine" if value == "reject" and needs_texture_engine(op) else ""
    why = f"{op} is {state} on {CHIP} by the {route_name} route{part}"
    if stage == "code generation" and value == "reject":
        why = _why(op, route_name, stage)
    return OpAnswer(value, "op-route", why, status, _hint({}, op), stage, reject_message(op) or "")


def _statuses(op: str, route: str) -> tuple[Mapping[Family, Fact[str]] | None, OpRoutes | None]:
    """The status of an op by family, and where it is from. A layer has a floor of its own on either route."""
    try:
        routes = op_routes(op)
    except UnknownNameError:  # a layer tag or a sweep-only name
        routes = None
    layer = _layers().get(op)
    if route == "conversion" and layer is not None and (routes is None or not routes.conversion):
        return _layer_floor(layer), routes
    return None if routes is None else routes.route(route), routes


@cache
def _layers() -> Mapping[str, Mapping[str, Any]]:
    """The record of each layer, by tag and by name."""
    rows = store.load("layers")["layers"]
    return {name: row for row in rows for name in (row["type_tag"], row["name"])}


def _layer_floor(row: Mapping[str, Any]) -> Mapping[Family, Fact[str]] | None:
    """The first family of a layer by conversion; where an older one has a software route, that rewrites it."""
    first = row["first_family"]["conversion"]
    start = Family.__members__.get(str(first)[:3])
    if start is None:
        return None
    software = "A13 software" in first
    evidence = store.load("layers")["evidence"]

    def status(family: Family) -> Fact[str]:
        below = "decompose" if software and family is Family.A13 else "reject"
        value = "native" if family >= start else below
        return fact({**row, "v": value, "note": first}, evidence, about=f"{row['name']} on {family.name}")

    return {family: status(family) for family in Family}


def has_support_byte(op: str) -> bool:
    """Whether the validator of a layer reads a support byte of the chip for every form of the layer."""
    return op in _gated_layers()


@cache
def _gated_layers() -> frozenset[str]:
    records = [record for record in validator_records() if record["rule"] == "support-byte" and "when" not in record]
    return frozenset(name for record in records for name in record["ops"])


def _refusing_stage(op: str, route: str) -> str:
    """Where a chip refuses what the other chips of the route take: conversion by its floor; of authored layers, those
    that a validator passes fail code generation (chapter 22)."""
    if route == "conversion":
        return "frontend"
    row = _layers().get(op)
    return "code generation" if row is not None and row["validator"] else "frontend"


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
    seen = (_statuses(name, route)[0] for name in (op, *spellings_of(op)) if name in known_names())
    cells = [statuses[family] for statuses in seen if statuses and family in statuses]
    ran = next((cell for cell in cells if cell.confidence == "measured" and cell.value == "native"), None)
    return ("validator", cells[0] if cells else Fact(None)) if ran is None else ("measured run", ran)
