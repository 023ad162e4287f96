"""How a rule is written and found.

A rule is a small function. It gets the :class:`Query` and the :class:`Limit` that the data file holds for this
chip and route, and returns ``None`` or the extent that is too large. Its docstring is the message that the user reads,
with ``{op} {extent} {limit} {chip} {string}`` filled in. Where no record of ``gate_limits.json`` matches the chip
and route, the rule does not run, so a chip-dependent choice is always a record, never an ``if``.

A rule sees its chip through declared facts, as a pass does: the tier and the descriptor generation that records
match by, the limits that records name, and what it declares itself with ``reads``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

from aneforge.chips import Fact, global_limit, store
from aneforge.chips.assumed import constant
from aneforge.chips.evidence import fact
from aneforge.compiler.facts import Facts
from aneforge.compiler.legal.query import ALL_RUNTIMES, CHAIN, Query
from aneforge.engine.native import layer_type
from aneforge.errors import DataError

ANY = "*"
"""Registered for every op."""
CHIP = "{chip}"
"""Replaced in a message by the chip's name: rules run once for all chips whose facts agree."""

STAGES = ("frontend", "validator", "code generation", "measured run")
"""The layers that answer, in the order in which a program meets them: the floor of the conversion, the schema and the
parser; the validator of a layer; the code generator, which refuses some of what its validator took; and a run."""

UNREACHED = {
    "Core ML placement": "Core ML's planner decides it; ask `judge` with the route `coreml_placement`",
    "graph language": "no graph can contain it: a constructor refuses it, or the language has no such type or op",
    "model language": "a Core ML program can contain it; our readers give such an op to the host",
    "netplist": "a netplist can contain it; graph ops set these parameters to values that work",
    "values": "depends on numbers that come with the query; `aneforge compare --any-input` derives them for a graph",
    "rewrites": "the compiler rewrites it, and `check` names the rewrite instead (see rewrites.md)",
    "whole models": "seen in whole models, and not yet narrowed down to a structure of ops",
    "build options": "an option of the tool that builds a program, which no graph shows",
    "own programs": "the compiler gives such a layer a program of its own, where it runs",
    "op names": "a name that a user asks about; all graph ops have known names",
    "backend text": "only backend code that is read from text can contain it (`aneforge opt`); no graph lowers to it",
}
"""Why no graph reaches a rule, by key. A rule names its key, and the documentation lists it."""

Extent = Any


@dataclass(frozen=True)
class OneOf:
    """A limit that lists the values that are taken: element types, modes, factors."""

    values: tuple[Any, ...]

    def __str__(self) -> str:
        return ", ".join(map(str, self.values))

    def to_json(self) -> dict[str, Any]:
        return {"one_of": list(self.values)}


@dataclass(frozen=True)
class Structure:
    """A limit that names what an op, or the ops around it, must be like."""

    name: str

    def __str__(self) -> str:
        return self.name

    def to_json(self) -> dict[str, Any]:
        return {"structure": self.name}


class Over(NamedTuple):
    """An extent and the limit it broke, where the limit is not the record's own value."""

    extent: Any
    limit: Any
    what: str = ""
    """What is too large, in words, where the rule is about more than one thing."""
    words: str = ""
    """The limit as the sentence has it, where it is more than a value."""


@dataclass(frozen=True)
class Limit:
    """One record of the data that applies to the chip and route in question."""

    value: Any
    evidence: Fact[Any]
    record: Mapping[str, Any]
    chip: Facts

    @property
    def hint(self) -> str:
        return self.record.get("hint", "")

    @property
    def pattern(self) -> str | None:
        """The structure of ops that the record is about."""
        return self.record.get("pattern")

    @property
    def stage(self) -> str:
        """The layer that answers, one of ``STAGES``."""
        return self.record["stage"]


@dataclass(frozen=True)
class Rule:
    """A legality rule: which ops it concerns, its effect, and the message that users read."""

    id: str
    check: Callable[[Query, Limit], Extent | None]
    ops: tuple[str, ...]
    effect: str
    oversize: bool
    chains: bool
    template: str
    reads: tuple[str, ...] = ()
    """Facts of the chip that the check asks for beyond its record."""
    every_record: bool = False
    """Whether each matching record is a limit of its own; otherwise the first that matches wins."""
    elsewhere: str = ""
    """The key of ``UNREACHED`` for a rule that no graph reaches."""
    validates: bool = False
    """Whether it is a check of a native layer, so that every layer of a program is asked about it."""
    string: str = ""
    """The compiler's own words, where no record states them."""
    of_program: bool = False
    """Whether it limits what one program holds: the node runs, in a program that begins with it."""

    def concerns(self, op: str) -> bool:
        if ANY in self.ops or op in self.ops:
            return True
        return self.chains and op.startswith(CHAIN) and op.removeprefix(CHAIN) in self.ops


RULES: dict[str, Rule] = {}


def rule(
    name: str,
    *ops: str,
    effect: str = "reject",
    oversize: bool = False,
    chains: bool = True,
    reads: tuple[str, ...] = (),
    every_record: bool = False,
    elsewhere: str = "",
    validates: bool = False,
    string: str = "",
    of_program: bool = False,
) -> Callable[[Callable[[Query, Limit], Extent | None]], Callable[[Query, Limit], Extent | None]]:
    """Register a rule for the op names it concerns; ``chains`` also for ``chain:`` of those names.

    Every rule is reached by some graph, or says with ``elsewhere`` why no graph reaches it.
    """
    if elsewhere and elsewhere not in UNREACHED:
        raise DataError(f"rule {name}: elsewhere is {elsewhere!r}; choose one: {', '.join(UNREACHED)}")

    def register(check: Callable[[Query, Limit], Extent | None]) -> Callable[[Query, Limit], Extent | None]:
        template = " ".join(inspect.cleandoc(check.__doc__ or "").split())
        RULES[name] = Rule(
            name, check, ops, effect, oversize, chains, template, reads, every_record, elsewhere, validates, string,
            of_program,
        )  # fmt: skip
        return check

    return register


@cache
def rule_records() -> Mapping[str, tuple[Mapping[str, Any], ...]]:
    """The records of ``gate_limits.json`` and ``validators.json`` by rule, in the order in which they are tried."""
    by_rule: dict[str, list[Mapping[str, Any]]] = {}
    for record in (*store.load("gate_limits")["rules"], *validator_records()):
        by_rule.setdefault(record["rule"], []).append(record)
    return {name: tuple(records) for name, records in by_rule.items()}


@cache
def validator_records() -> tuple[Mapping[str, Any], ...]:
    """The checks of every layer as records: they concern the layer by its name and its tag, and take its evidence
    where they state none."""
    records: list[Mapping[str, Any]] = []
    for entry in store.load("validators")["validators"]:
        layer = layer_type(entry["layer"])
        common = {
            "ops": tuple(dict.fromkeys((layer.tag, layer.name))),
            "stage": "validator",
            "src": layer.evidence.source,
            "conf": layer.evidence.confidence,
        }
        for check in entry["checks"]:
            counts = {"v": (layer.fewest, layer.most)} if check["check"] == "bottom-count" else {}
            records.append({**common, **counts, **check, "rule": check["check"]})
    return tuple(records)


@cache
def pattern_rules() -> frozenset[str]:
    """The rules with a record about a structure of ops."""
    return frozenset(
        name for name, records in rule_records().items() if any("pattern" in record for record in records)
    )


@cache
def rule_reads(names: tuple[str, ...] | None = None) -> tuple[str, ...]:
    """Every fact of a chip that the rules may read, or some of them."""
    chosen = {name: records for name, records in rule_records().items() if names is None or name in names}
    records = [record for records in chosen.values() for record in records]
    limits = [f"cap:{record['limit']}" for record in records if "limit" in record]
    fields = [record["fact"] for record in records if "fact" in record]
    extra = [key for rule_ in RULES.values() if names is None or rule_.id in names for key in rule_.reads]
    by = ["tier", *(["generation"] if any("generations" in record for record in records) else [])]
    return tuple(dict.fromkeys((*by, *(["constructible"] if names is None else []), *limits, *fields, *extra)))


def is_elsewhere(record: Mapping[str, Any], runtime: str) -> bool:
    """Whether a record is about other runtimes only, while the question is about this compiler's program too."""
    return runtime == ALL_RUNTIMES and "direct" not in record.get("runtimes", ("direct",))


def _of_runtime(record: Mapping[str, Any], runtime: str) -> bool:
    runtimes = record.get("runtimes")
    if runtimes is None or runtime in runtimes:
        return True
    # What one runtime takes (a limit of None) is no licence for the others.
    return runtime == ALL_RUNTIMES and ("direct" in runtimes or record.get("v", "stated") is not None)


def matches(record: Mapping[str, Any], op: str, chip: Facts, route: str, runtime: str = "direct") -> bool:
    """Whether a record applies to this op on this chip by this route and runtime; absent keys match everything."""
    tiers, generations = record.get("tiers"), record.get("generations")
    return (
        ("ops" not in record or op in record["ops"])
        and _of_runtime(record, runtime)
        and ("routes" not in record or route in record["routes"])
        and (tiers is None or chip.get("tier") in tiers)
        and (generations is None or chip.get("generation") in generations)
    )


def limits_for(name: str, op: str, chip: Facts, route: str, runtime: str = "direct") -> tuple[Limit, ...]:
    """Every record of a rule that applies, most specific first."""
    records = rule_records().get(name, ())
    return tuple(_limit(record, chip) for record in records if matches(record, op, chip, route, runtime))


def _limit(record: Mapping[str, Any], chip: Facts) -> Limit:
    name = record.get("limit")
    if "global" in record:
        known = global_limit(record["global"])
        return Limit(_stated(record) if "structure" in record else known.value, known, record, chip)
    if "fact" in record:  # a field of the chip's table
        known = chip.fact(record["fact"])
        return Limit(known.value, known, record, chip)
    if name is None:
        value = _stated(record)
        shown = str(value) if isinstance(value, Structure) else value
        return Limit(value, fact({**record, "v": shown}, about=f"gate rule {record['rule']}"), record, chip)
    if chip.get("tier") is None:  # records with a limit list their tiers, so a target without one never gets here
        raise DataError(f"gate_limits.json: rule {record['rule']} takes limit {name} but names no tiers")
    known = replace(chip.fact(f"cap:{name}"), note=record.get("note"))
    if "basis" in record:  # the limit is published; that it decides in this case is our reading
        known = replace(known, source=(*known.source, *record["basis"]), confidence=record["basis_conf"])
    return Limit(known.value, known, record, chip)


def _stated(record: Mapping[str, Any]) -> Any:
    """The limit that a record states itself, or that is one of our choices: a number, a list of values, or a name of
    a structure."""
    if "constant" in record:
        return constant(record["constant"])
    if "v" in record:
        return record["v"]
    return Structure(next(record[key] for key in ("structure", "of", "pattern") if key in record))


def applicable(
    op: str, chip: Facts, route: str, runtime: str = "direct", validators: bool = False
) -> tuple[tuple[Rule, Limit], ...]:
    """The rules to run for an op on a chip by a route and runtime, each with its limit; or the validators alone."""
    pairs = []
    for rule_ in RULES.values():
        if rule_.concerns(op) and (rule_.validates or not validators):
            limits = limits_for(rule_.id, op, chip, route, runtime)
            if rule_.every_record:
                pairs += [(rule_, limit) for limit in limits]
            elif limits and limits[0].value is not None:
                pairs.append((rule_, limits[0]))
    return tuple(pairs)
