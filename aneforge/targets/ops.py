"""Which operation is native where: the 94 backend ops with their floors, and one status per op and route.

Two gates decide, and they can differ for one op on one chip (chapter 26):

* the **conversion** route (a model program handed to the compiler) is gated by the op's ``MinimumFamily``;
* the **direct** route (a native layer authored by hand) is gated by the chip's capability bytes.

``op_status`` answers for the conversion route, and for the direct route where an op exists only there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal

from aneforge.errors import UnknownNameError, nearest
from aneforge.targets import store
from aneforge.targets.evidence import Fact, fact
from aneforge.targets.families import MIN_FAMILY, Family, Family8, as_family, as_family8

__all__ = [
    "ROUTES",
    "BackendOp",
    "OpRoutes",
    "Status",
    "backend_op",
    "backend_ops",
    "floor",
    "is_floor_met",
    "lowered_to",
    "mil_floor",
    "mil_row",
    "op_names",
    "op_routes",
    "op_status",
    "user_names",
]

Status = Literal["native", "decompose", "reject"]
ROUTES = ("conversion", "direct")
_TIERS = tuple(family for family in Family if family >= MIN_FAMILY)


@dataclass(frozen=True)
class BackendOp:
    """One op of the engine's own language."""

    name: str
    floor: Fact[int]
    engine: Fact[str]
    mil: tuple[str, ...]
    layer: str | None
    gate: str | None
    legacy_note: str | None

    def native_on(self, family: int | str) -> bool:
        """``MinimumFamily<N>``: native exactly when the compiler family is N or newer."""
        return as_family8(family) >= self.floor.value

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "floor": self.floor.to_json(),
            "engine": self.engine.to_json(),
            "mil": list(self.mil),
            "layer": self.layer,
            "gate": self.gate,
        }


@dataclass(frozen=True)
class OpRoutes:
    """The status of one op on every family, by route. A missing route is one the op does not have."""

    name: str
    canonical: str
    rule: str
    conversion: Mapping[Family, Fact[str]]
    direct: Mapping[Family, Fact[str]] | None

    def route(self, name: str) -> Mapping[Family, Fact[str]] | None:
        if name not in ROUTES:
            raise UnknownNameError(f"route {name!r} is unknown; choose one: {', '.join(ROUTES)}")
        return self.conversion if name == "conversion" else self.direct

    @property
    def main(self) -> Mapping[Family, Fact[str]]:
        """The route that a user of this package takes: conversion, or direct for layers that exist only there. On
        either route nothing runs below A13, since the graph around a layer is converted."""
        return self.conversion or {**(self.direct or {}), Family.OLDER: mil_floor()}

    def to_json(self) -> dict[str, Any]:
        def statuses(route: Mapping[Family, Fact[str]] | None) -> dict[str, Any] | None:
            return None if not route else {family.name: status.to_json() for family, status in route.items()}

        return {
            "op": self.name,
            "answered_by": self.canonical,
            "rule": self.rule,
            "conversion": statuses(self.conversion),
            "direct": statuses(self.direct),
        }


def op_status(op: str, family: int, route: str | None = None) -> str:
    """``native``, ``decompose`` or ``reject`` for an op on a five-tier family."""
    if route is None:
        try:
            return _status_table()[op][family]
        except (KeyError, TypeError):
            pass  # an unknown op or family, or a family given by label: the slow path explains
    routes = op_routes(op)
    member = as_family(family)
    statuses = routes.main if route is None else routes.route(route)
    if not statuses:
        return "reject"
    return statuses[member].value


@cache
def _status_table() -> dict[str, dict[int, str]]:
    """Every spelling of every op, so that a look-up is two dictionary reads."""
    table: dict[str, dict[int, str]] = {}
    for name in op_names():
        table[name] = {int(family): status.value for family, status in op_routes(name).main.items()}
    return table


@cache
def op_routes(op: str) -> OpRoutes:
    """Both routes of an op, with evidence per family."""
    routes = _decide(op)
    synonym = store.load("vocabulary")["synonyms"].get(op)
    if routes is None and synonym is not None:
        routes = _decide(synonym)
    if routes is None:
        close = nearest(str(op), user_names()) or nearest(str(op), op_names())
        near = ", ".join(close) or "conv, matmul, softmax"
        raise UnknownNameError(f"{op!r}: not a known operation; nearest: {near} ('aneforge ops' lists all)")
    return replace(routes, name=op)


def _decide(name: str) -> OpRoutes | None:
    """The first rule that knows the name decides; the order is that of :data:`_RULES`."""
    for rule, find in _RULES.items():
        statuses = find(name)
        if statuses is not None:
            conversion, direct = statuses
            authored = _with_older(direct or {}, _authored_below_the_floor(name))
            return OpRoutes(name, name, rule, _with_older(conversion, mil_floor()), authored or None)
    return None


_Route = dict[Family, Fact[str]]


def _with_older(route: _Route, older: Fact[str]) -> _Route:
    """A route with its status below A13 added; a route that the op does not have stays empty."""
    return {Family.OLDER: older, **route} if route else route


@cache
def mil_floor() -> Fact[str]:
    """Below the floor of the model-language path nothing is converted, whatever the op."""
    floor = fact(_ops()["mil_note"], about="model-language floor")
    return Fact("reject", floor.source, floor.confidence, "op below A13", note=floor.note)


def _authored_below_the_floor(name: str) -> Fact[str]:
    """The answer for a native layer below A13: table 26.1 has none. Ordinary ops may still be authored there; their
    backend floors decide, in phase 2 of the compiler."""
    about = f"layer {name} below A13"
    return Fact("reject", ("S26",), "decoded", about, note="no native layer is known below A13 (table 26.1)")


@cache
def _ops() -> dict[str, Any]:
    document = dict(store.load("ops"))
    targets = store.load("targets")
    entry = targets["mil_floor_family5"]
    source, confidence = targets["evidence"][entry["e"]]
    document["mil_note"] = {"v": "reject", "src": source, "conf": confidence, "note": entry["reject"]}
    return document


def _statuses(values: Mapping[str, str], make: Callable[[str, str], Fact[str]]) -> _Route:
    return {tier: make(tier.name, values[tier.name]) for tier in _TIERS if tier.name in values}


def _ruled(name: str) -> tuple[_Route, _Route | None] | None:
    """A ruling of ours (U15) or of a conflict; see vocabulary.json."""
    row = store.load("vocabulary")["rulings"].get(str(name).removeprefix("anec."))
    if row is None:
        return None

    def route(key: str) -> _Route:
        values = dict(zip((tier.name for tier in _TIERS), row[key], strict=True))
        note = {"v": None, "note": row["because"], "conflict": row.get("conflict")}
        return _statuses(values, lambda tier, v: fact({**row, **note, "v": v}, about=f"{name} on {tier}"))

    return route("conversion") if "conversion" in row else {}, route("direct") if "direct" in row else None


def _gated(name: str) -> tuple[_Route, _Route | None] | None:
    """Ops that a capability byte or the code generator gates by name."""
    row = next((record for record in _ops()["gated_ops"] if record["name"] == name), None)
    if row is None:
        return None
    evidence = _ops()["evidence"]

    def make(tier: str, status: str) -> Fact[str]:
        return fact({**row, "v": status}, evidence, about=f"{name} on {tier}")

    conversion = _statuses(row["conversion"], make) if "conversion" in row else {}
    return conversion, _statuses(row["direct"], make)


def _formless(name: str) -> tuple[_Route, _Route | None] | None:
    """Ops with no native form on any family: an equivalent in the graph or on the host."""
    row = _ops()["no_native_form"]
    if name not in row["v"]:
        return None
    make = lambda tier, v: fact({**row, "v": v}, _ops()["evidence"], about=f"{name} on {tier}")  # noqa: E731
    return _statuses({tier.name: "decompose" for tier in _TIERS}, make), None


@cache
def _backend_rows() -> dict[str, dict[str, Any]]:
    return {row["anec"]: row for row in _ops()["anec_ops"]}


@cache
def _by_mil() -> dict[str, str]:
    """Model-language name to backend op: the op of the same name, else the first that lists it."""
    table: dict[str, str] = {}
    for name, row in _backend_rows().items():
        for mil in row["mil"]:
            if name == f"anec.{mil}" or mil not in table:
                table[mil] = name
    return table


def _backend(name: str) -> tuple[_Route, _Route | None] | None:
    """Ops that lower to one backend op: its two route rows."""
    lowered = lowered_to(name)
    if lowered is None:
        return None
    row = _backend_rows()[lowered.name]

    def make(tier: str, status: str) -> Fact[str]:
        record = {"v": status, "src": row["route_src"], "conf": row["route_conf"], "note": row.get("reachability")}
        return fact(record, about=f"{row['anec']} on {tier}")

    direct = _statuses(row["direct_route"], make) if "direct_route" in row else None
    return _statuses(row["conversion_route"], make), direct


def _authored(name: str) -> tuple[_Route, _Route | None] | None:
    """Ops that the matrix calls a bridge and the vocabulary leads to a layer that can be authored."""
    layer = store.load("vocabulary")["synonyms"].get(name)
    return _layer(layer) if layer is not None and mil_row(name) is not None else None


def _matrix(name: str) -> tuple[_Route, _Route | None] | None:
    """The 187-op matrix, for ops that no backend row covers (bridge and none as U15 says)."""
    row = mil_row(name)
    if row is None:
        return None
    status_of = {"native": "native", "bridge": "native", "gated": "reject", "none": "reject"}

    def make(tier: str, cell: str) -> Fact[str]:
        record = {**row, "v": status_of[cell], "conflict": "U15" if cell in ("bridge", "none") else None}
        return fact(record, _ops()["evidence"], about=f"{name} on {tier}", family=tier)

    return _statuses({tier.name: row[tier.name] for tier in _TIERS}, make), None


def _layer(name: str) -> tuple[_Route, _Route | None] | None:
    """Native layers that only direct authoring reaches, by their netplist type."""
    document = store.load("layers")
    row = next((record for record in document["layers"] if name in (record["name"], record["type_tag"])), None)
    first = row["first_family"]["direct"] if row else None
    if row is None:
        units = document["unit_types_without_exported_validator"]
        row = next((record for record in units if record["type_tag"] == name), None)
        if row is None:
            return None
        first = row["first_family"]
    start = Family[first[:3]] if first and first[:3] in Family.__members__ else None

    def make(tier: str, status: str) -> Fact[str]:
        return fact({**row, "v": status, "note": first}, document["evidence"], about=f"layer {name} on {tier}")

    values = {tier.name: "native" if start and tier >= start else "reject" for tier in _TIERS}
    return {}, _statuses(values, make)


_RULES: dict[str, Callable[[str], tuple[_Route, _Route | None] | None]] = {
    "ruling": _ruled,
    "gated op": _gated,
    "no native form": _formless,
    "backend op": _backend,
    "authored layer": _authored,
    "op matrix": _matrix,
    "native layer": _layer,
}


def mil_row(name: str) -> Mapping[str, Any] | None:
    """The row of the 187-op model-language matrix, as published."""
    return _mil_rows().get(name)


@cache
def _mil_rows() -> dict[str, dict[str, Any]]:
    return {row["mil"]: row for row in _ops()["mil_matrix"]}


@cache
def op_names() -> tuple[str, ...]:
    """Every name that :func:`op_status` answers to."""
    layers = store.load("layers")
    names = [spelled for name in _backend_rows() for spelled in (name.removeprefix("anec."), name)]
    names += [row["name"] for row in layers["layers"]]
    names += [row["type_tag"] for row in layers["unit_types_without_exported_validator"]]
    return tuple(dict.fromkeys((*user_names(), *names)))


@cache
def user_names() -> tuple[str, ...]:
    """The names that people write: those of the model language and of graphs, without those of the backend."""
    document, words = _ops(), store.load("vocabulary")
    names = [row["mil"] for row in document["mil_matrix"]]
    names += [row["name"] for row in document["gated_ops"]]
    names += document["no_native_form"]["v"]
    return tuple(dict.fromkeys((*names, *words["rulings"], *words["synonyms"], *words["graph_layers"])))


def backend_ops() -> Iterator[BackendOp]:
    """All backend ops, in the order of the data."""
    return (backend_op(name) for name in _backend_rows())


@cache
def backend_op(name: str) -> BackendOp:
    """One backend op by name, with or without the ``anec.`` prefix."""
    rows = _backend_rows()
    key = name if name in rows else f"anec.{name}"
    if key not in rows:
        near = ", ".join(nearest(name, rows)) or "anec.convolution"
        raise UnknownNameError(f"{name!r}: not a backend op; nearest: {near}")
    row = rows[key]
    floor_record = {"v": row["floor"], "src": row["floor_src"], "conf": row["floor_conf"]}
    engine_record = {"v": row["engine"], "conf": row["engine_conf"]}
    return BackendOp(
        name=key,
        floor=fact(floor_record, about=f"floor of {key}"),
        engine=fact(engine_record, about=f"engine of {key}"),
        mil=tuple(row["mil"]),
        layer=row["layer"],
        gate=row["gate"],
        legacy_note=row.get("legacy_note"),
    )


def lowered_to(name: str) -> BackendOp | None:
    """The backend op that a model-language or backend name lowers to, if it is one op."""
    rows = _backend_rows()
    key = name if name in rows else f"anec.{name}" if f"anec.{name}" in rows else _by_mil().get(name)
    return None if key is None else backend_op(key)


def floor(name: str) -> int:
    """The ``MinimumFamily`` of a backend op: ``floor("anec.sin") == 4``."""
    return backend_op(name).floor.value


def is_floor_met(name: str, family: Family8 | int | str) -> bool:
    """Listing 24.2: native exactly when the target's compiler family reaches the op's floor."""
    return backend_op(name).native_on(family)
