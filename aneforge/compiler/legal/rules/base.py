"""How a rule is written and found.

A rule is a small function. It gets the :class:`Query` and the :class:`Limit` that the data file holds for this
chip and route, and answers ``None`` or the extent that is too much. Its docstring is the sentence the user gets,
with ``{op} {extent} {limit} {chip} {string}`` filled in. Where no record of ``gate_limits.json`` matches the chip
and route, the rule is not run at all, so a chip-dependent choice is always a record, never an ``if``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

from aneforge.compiler.legal.query import CHAIN, Query
from aneforge.errors import DataError
from aneforge.targets import Fact, Target, global_limit, limit_fact, store
from aneforge.targets.evidence import fact

__all__ = ["ANY", "RULES", "Limit", "Over", "Rule", "applicable", "limits_for", "matches", "rule", "rule_records"]

ANY = "*"
"""Registered for every op."""

Extent = Any


class Over(NamedTuple):
    """An extent and the limit it broke, where the limit is not the record's own value."""

    extent: Any
    limit: Any


@dataclass(frozen=True)
class Limit:
    """One record of the data that applies to the chip and route in question."""

    value: Any
    evidence: Fact[Any]
    record: Mapping[str, Any]
    target: Target

    @property
    def hint(self) -> str:
        return self.record.get("hint", "")


@dataclass(frozen=True)
class Rule:
    """A legality rule: who it concerns, what it does, and the sentence users read."""

    id: str
    check: Callable[[Query, Limit], Extent | None]
    ops: tuple[str, ...]
    effect: str
    oversize: bool
    chains: bool
    template: str

    def concerns(self, op: str) -> bool:
        if ANY in self.ops or op in self.ops:
            return True
        return self.chains and op.startswith(CHAIN) and op.removeprefix(CHAIN) in self.ops


RULES: dict[str, Rule] = {}


def rule(
    name: str, *ops: str, effect: str = "reject", oversize: bool = False, chains: bool = True
) -> Callable[[Callable[[Query, Limit], Extent | None]], Callable[[Query, Limit], Extent | None]]:
    """Register a rule for the op names it concerns; ``chains`` also for ``chain:`` of those names."""

    def register(check: Callable[[Query, Limit], Extent | None]) -> Callable[[Query, Limit], Extent | None]:
        template = " ".join(inspect.cleandoc(check.__doc__ or "").split())
        RULES[name] = Rule(name, check, ops, effect, oversize, chains, template)
        return check

    return register


@cache
def rule_records() -> Mapping[str, tuple[Mapping[str, Any], ...]]:
    """The records of ``gate_limits.json`` by rule, in the order in which they are tried."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for record in store.load("gate_limits")["rules"]:
        found.setdefault(record["rule"], []).append(record)
    return {name: tuple(records) for name, records in found.items()}


def matches(record: Mapping[str, Any], op: str, target: Target, route: str) -> bool:
    """Whether a record speaks about this op on this chip by this route; absent keys match everything."""
    family = target.family5
    tiers, generations = record.get("tiers"), record.get("generations")
    return (
        ("ops" not in record or op in record["ops"])
        and ("routes" not in record or route in record["routes"])
        and (tiers is None or (family is not None and family.name in tiers))
        and (generations is None or target.td_generation in generations)
    )


def limits_for(name: str, op: str, target: Target, route: str) -> tuple[Limit, ...]:
    """Every record of a rule that applies, most specific first."""
    return tuple(
        _limit(record, target) for record in rule_records().get(name, ()) if matches(record, op, target, route)
    )


def _limit(record: Mapping[str, Any], target: Target) -> Limit:
    name = record.get("limit")
    if "global" in record:
        known = global_limit(record["global"])
        return Limit(record.get("v", known.value), known, record, target)
    if name is None:
        return Limit(record["v"], fact(record, about=f"gate rule {record['rule']}"), record, target)
    family = target.family5
    if family is None:  # records with a limit list their tiers, so a target without one never gets here
        raise DataError(f"gate_limits.json: rule {record['rule']} takes limit {name} but names no tiers")
    known = replace(limit_fact(name, family), note=record.get("note"))
    if "basis" in record:  # the limit is published; that it decides here is somebody's reading
        known = replace(known, source=(*known.source, *record["basis"]), confidence=record["basis_conf"])
    return Limit(known.value, known, record, target)


def applicable(op: str, target: Target, route: str) -> tuple[tuple[Rule, Limit], ...]:
    """The rules to run for an op on a chip by a route, each with its limit."""
    found = []
    for each in RULES.values():
        if each.concerns(op):
            limits = limits_for(each.id, op, target, route)
            if each.id == "chain-pattern":  # patterns are independent of one another; every one is tried
                found += [(each, limit) for limit in limits]
            elif limits and limits[0].value is not None:
                found.append((each, limits[0]))
    return tuple(found)
