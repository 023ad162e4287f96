"""Whether an op exists on a chip by a route at all, before any size is checked.

In this order: a record of ``gate_limits.json``; what Core ML's segmenter was seen to leave to the CPU; the measured
sweep of the whole vocabulary on an A16-tier chip; the op's row in the table of :mod:`aneforge.chips.ops`. That table
has the records of the direct route in it, so that on this route every answer is also that of ``op_status``. Each is a
row of ``ROWS``, and the first row that has an answer gives it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from typing import Any

from aneforge.chips import Fact, Family, op_names, op_routes, store, target
from aneforge.chips.evidence import fact
from aneforge.chips.ops import OpRoutes, mil_floor, mil_row
from aneforge.compiler.facts import Facts
from aneforge.compiler.legal.query import ALL_RUNTIMES, CHAIN
from aneforge.compiler.legal.rules.base import CHIP, matches, validator_records
from aneforge.compiler.legal.words import needs_texture_engine, reject_message, spellings_of, unsupported_message
from aneforge.engine.native import layer_types
from aneforge.errors import UnknownNameError, nearest


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


BY_NAME = frozenset(("op-record", "op-route", "sweep"))
"""The rules that answer about an op by its name alone."""


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


class _Question:
    """An op by name, the chip's tier and the route, with what the table of routes has for them."""

    def __init__(self, op: str, chip: Facts, route: str, runtime: str = "direct") -> None:
        self.op, self.chip, self.route, self.runtime = op, chip, route, runtime
        self.tier: str | None = chip.get("tier")
        self.is_direct, self.is_older = route == "direct", self.tier == Family.OLDER.name

    @cached_property
    def routes(self) -> OpRoutes | None:
        return _routes_of(self.op)

    @cached_property
    def status(self) -> Fact[Any]:
        """The cell of the table for this route and tier."""
        if self.tier is None:
            return Fact(None, note="reference profile without a tier")
        assert self.routes is not None
        return (self.routes.direct if self.is_direct else self.routes.conversion)[Family[self.tier]]

    @cached_property
    def value(self) -> str:
        """The cell, read as "does the vendor's compiler take it"."""
        if not self.is_direct and _lacks_conversion(self):
            return "reject"
        # From A13 on a support byte decides where there is one; the unit's validator reads it.
        by_byte = self.is_direct and not self.is_older and has_support_byte(self.op)
        return "accept" if by_byte or self.status.value == "native" else self.status.value


def op_answer(op: str, chip: Facts, route: str, runtime: str = "direct") -> OpAnswer:
    """The answer for the name alone. An unknown name is rejected, never assumed to be native."""
    question = _Question(op, chip, route, runtime)
    for row in ROWS:
        answer = row(question)
        if answer is not None:
            return answer
    raise AssertionError("the last row answers every question")


def _unknown(question: _Question) -> OpAnswer | None:
    if question.op in known_names():
        return None
    near = nearest(question.op, known_names())
    hint = f"nearest known names: {', '.join(near)}" if near else "'aneforge ops' lists the known names"
    return OpAnswer("reject", "unknown-op", f"{question.op} is not a known operation", Fact(None), hint)


def _below_the_model_language(question: _Question) -> OpAnswer | None:
    if not question.is_older or question.route != "conversion":
        return None
    floor = mil_floor()
    return OpAnswer("reject", "mil-floor", f"{CHIP}: {floor.note}", floor, "target H13 or newer")


def _record(question: _Question) -> OpAnswer | None:
    op, route = question.op, question.route
    named = "direct" if question.runtime == ALL_RUNTIMES else question.runtime
    for record in _own().get(op, ()):
        if matches(record, op, question.chip, route, named):
            stage = record["stage"]
            evidence = fact(record, about=f"gate answer for {op}")
            words = record.get("string") or reject_message(op) or ""
            hint = record.get("hint") or _hint(op)
            return OpAnswer(record["v"], "op-record", _why(op, route, stage), evidence, hint, stage, words)
    return None


def _why(op: str, route: str, stage: str) -> str:
    if stage == "code generation" and route == "direct":
        return f"{op} passes its validator on {CHIP} and fails code generation"
    return f"{op} is not available on {CHIP} by the {route} route"


def _hint(op: str) -> str:
    return f"replace {op} by an equivalent in the graph, or compute it on the host"


@cache
def _segmenter_refuses() -> tuple[frozenset[str], Fact[Any]]:
    document = store.load("ops")
    table = document["m4_core_ml_segmenter"]
    names = {name for group in ("math", "structure", "int32") for name in table["unsupported"][group]}
    # "add", "mul" and "matmul" are listed for int32 operands only; the integer-operand rule covers them.
    plain = {name for name in names if mil_row(name) is not None} - {"add", "mul", "matmul"}
    evidence = fact({**table, "v": sorted(plain)}, document["evidence"], about="ops that Core ML leaves to the CPU")
    return frozenset(plain), evidence


def _segmenter(question: _Question) -> OpAnswer | None:
    if question.route != "coreml_placement":
        return None
    refused, evidence = _segmenter_refuses()
    if question.op not in refused:
        return None
    if question.tier != Family.A16.name:
        evidence = replace(evidence, confidence="predicted")
    why = f"Core ML's planner does not call {question.op} eligible for the engine"
    return OpAnswer("reject", "segmenter", why, evidence, _hint(question.op), "validator")


@cache
def _sweep_only() -> Mapping[str, Mapping[str, Any]]:
    return {row["mil"]: row for row in store.load("ops")["mil_sweep_only"]}


_SWEPT_CHIP = "h17s"
"""The M5 on which the whole vocabulary was swept (C03): for other generations a refusal is predicted from it."""


def _sweep(question: _Question) -> OpAnswer | None:
    """The vocabulary sweep ran on an M5, so it applies to the A16 tier by conversion."""
    op = question.op
    row = mil_row(op) or _sweep_only().get(op)
    if question.route != "conversion" or question.tier != Family.A16.name or row is None or "m5_sweep" not in row:
        return None
    cell = row["m5_sweep"]
    evidence = fact({**cell, "v": cell["class"]}, store.load("ops")["evidence"], about=f"{op} in the vocabulary sweep")
    if str(cell["class"]).startswith("reachable"):
        return OpAnswer("accept", "sweep", "", evidence)
    why = f"{op} failed to compile in a minimal program for the engine alone ({cell['class']})"
    if question.chip.get("generation") != target(_SWEPT_CHIP).td_generation:
        evidence = replace(evidence, confidence="predicted")
    return OpAnswer("reject", "sweep", why, evidence, _hint(op), "code generation", reject_message(op) or "")


def _by_the_other_route(question: _Question) -> OpAnswer | None:
    op, routes = question.op, question.routes
    if routes is not None and (routes.direct if question.is_direct else routes.conversion):
        return None
    ways = ("direct authoring", "conversion")
    taken, other = ways if question.is_direct else ways[::-1]
    evidence = Fact(None) if routes is None else routes.main[Family.A13]
    return OpAnswer("reject", "op-route", f"{op} is not available by {taken}", evidence, f"use {other}")


_ACCEPTED: tuple[tuple[str, Callable[[_Question], bool]], ...] = (
    ("op-route", lambda question: question.tier is None),  # nothing is known against an op of a reference profile
    # Core ML reached the oldest chips by an older path.
    ("mil-floor", lambda question: question.is_older and question.route == "coreml_placement"),
    ("op-route", lambda question: question.value == "accept"),
    ("op-route", lambda question: question.value == "decompose" and question.route == "coreml_placement"),
)


def _accepted(question: _Question) -> OpAnswer | None:
    for rule, applies in _ACCEPTED:
        if applies(question):
            return OpAnswer("accept", rule, "", question.status)
    return None


def _refused(question: _Question) -> OpAnswer:
    op, status = question.op, question.status
    string = unsupported_message(op) or ""
    stage = "frontend"
    if question.is_direct:  # the words of an op's unit are those of its validator, which reads a byte (chapter 22)
        stage = "validator" if string else "code generation" if _units().get(op) else stage
    is_explained = question.is_direct and (question.is_older or op not in _units())
    why = _reason(question, status.note if is_explained else None, stage)
    rule = "minimum-family" if question.is_direct and question.is_older else "op-route"
    return OpAnswer(question.value, rule, why, status, f"{_other_route(question)}{_hint(op)}", stage, string)


ROWS: tuple[Callable[[_Question], OpAnswer | None], ...] = (
    _unknown,
    _below_the_model_language,
    _record,
    _segmenter,
    _sweep,
    _by_the_other_route,
    _accepted,
    _refused,
)
"""The first row that has an answer gives it."""


def _routes_of(op: str) -> OpRoutes | None:
    try:
        return op_routes(op)
    except UnknownNameError:  # a name that only the sweep or a record has
        return None


def _lacks_conversion(question: _Question) -> bool:
    """Whether the vendor's conversion has no form; our own rewrites are not counted (chapter 26, sine and cosine)."""
    assert question.routes is not None
    cell, is_const = (mil_row(question.op) or {}).get(str(question.tier)), question.op.startswith("const")
    lacking = {"gated": True, "none": not is_const, "bridge": not is_const and question.routes.rule == "op matrix"}
    return question.routes.rule == "no native form" or lacking.get(str(cell), False)


def _other_route(question: _Question) -> str:
    """The advice to take the other route, where that has the op."""
    assert question.routes is not None
    assert question.tier is not None
    family = Family[question.tier]
    if question.is_direct:
        converted = question.routes.conversion.get(family)
        return "" if converted is None or converted.value == "reject" else "use the conversion route, or "
    return "use the direct route, or " if question.routes.direct[family].value == "native" else ""


def _reason(question: _Question, note: str | None, stage: str) -> str:
    op, named = question.op, "direct" if question.is_direct else "conversion"
    if question.value == "decompose":
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
        swept = _sweep(_Question(op, chip, route))
        if swept is not None and swept.value == "accept":
            return "measured run", swept.evidence
    seen = (_routes_of(name) for name in (op, *spellings_of(op)) if name in known_names())
    cells = [status for routes in seen if routes and (status := getattr(routes, route).get(family))]
    ran = next((cell for cell in cells if cell.confidence == "measured" and cell.value == "native"), None)
    return ("validator", cells[0] if cells else Fact(None)) if ran is None else ("measured run", ran)
