"""Which operation is native where: the 94 backend ops with their floors, and one status per op and route.

Two gates decide, and they can differ for one op on one chip (chapter 26):

* the **conversion** route (a model program handed to the compiler) is gated by the op's ``MinimumFamily``;
* the **direct** route (native layers authored by hand, called units) is gated by the chip's capability bytes.

This is the one table of both. Phase 0 rewrites an op where its row says ``decompose`` and refuses it where the row
says ``reject``; ``preflight``, the validators and ``aneforge ops`` read the same rows. A name such as ``Resize`` is
that of a unit, which is never rewritten; ``resize_bilinear`` is an op of a graph, which may be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any, Literal, get_args

from aneforge.chips import store
from aneforge.chips.evidence import Fact, fact
from aneforge.chips.families import MIN_FAMILY, Family, Family8, as_family, as_family8
from aneforge.chips.names import first_chips
from aneforge.errors import UnknownNameError, nearest

Status = Literal["native", "decompose", "reject"]
STATUSES: tuple[Status, ...] = get_args(Status)
ROUTES = ("conversion", "direct")
_TIERS = tuple(family for family in Family if family >= MIN_FAMILY)
_LABELS = tuple(tier.name for tier in _TIERS)
_LAYER = "native layer"


@dataclass(frozen=True)
class BackendOp:
    """One op of the engine's own language."""

    name: str
    floor: Fact[int]
    engine: Fact[str]
    mil: tuple[str, ...]
    layer: str | None
    gate: str | None

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
    """The status of one op on every family, by the route of the program that holds it."""

    name: str
    canonical: str
    rule: str
    conversion: Mapping[Family, Fact[str]]
    """Empty for a layer that no model program has; a converted program holds such a layer as a bridge."""
    direct: Mapping[Family, Fact[str]]

    def route(self, name: str | None) -> Mapping[Family, Fact[str]]:
        """What becomes of the op in a program of one route, or of the usual one."""
        if name is not None and name not in ROUTES:
            raise UnknownNameError(f"route {name!r} is unknown; choose one: {', '.join(ROUTES)}")
        return self.direct if name == "direct" else (self.conversion if name else {}) or self.main

    @cached_property
    def main(self) -> Mapping[Family, Fact[str]]:
        """What becomes of the op where no route is asked for: it is converted, and a layer is authored as a bridge.
        Below A13 nothing runs so, since the graph around a layer is converted."""
        is_bridge = self.rule == _LAYER or not self.conversion
        return {**self.direct, Family.OLDER: mil_floor()} if is_bridge else self.conversion

    def to_json(self) -> dict[str, Any]:
        routes = {
            route: {family.name: status.to_json() for family, status in self.route(route).items()} for route in ROUTES
        }
        return {"op": self.name, "answered_by": self.canonical, "rule": self.rule, **routes}


def op_status(op: str, family: int, route: str | None = None) -> str:
    """``native``, ``decompose`` or ``reject`` for an op on a five-tier family, in a program of one route."""
    if route is None:
        try:
            return _status_table()[op][family]
        except (KeyError, TypeError):
            pass  # an unknown op or family, or a family given by label: the slow path explains
    routes = op_routes(op).route(route)
    return routes[as_family(family)].value


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


_Route = dict[Family, Fact[str]]


def _decide(name: str) -> OpRoutes | None:
    """The first rule that knows the name decides, in the order of :data:`_RULES`; rulings and records come first."""
    ruled = _ruled(name)
    rule, conversion, direct = next(
        ((rule, *statuses) for rule, find in _RULES.items() if (statuses := find(name)) is not None), ("", {}, {})
    )
    if not rule and not ruled:
        return None
    conversion = ruled.get("conversion", conversion)
    authored = direct if rule == _LAYER else _authored(conversion, direct)
    direct = {Family.OLDER: _below_a13(name), **authored, **ruled.get("direct", {}), **_recorded(name)}
    if "conversion" in ruled or not rule:
        rule = "ruling"
    return OpRoutes(name, name, rule, {Family.OLDER: mil_floor(), **conversion} if conversion else {}, direct)


def _authored(conversion: _Route, direct: _Route) -> _Route:
    """How an op of a graph is authored. A rewrite is written with units, so it serves both routes. An op that is no
    unit itself is authored as the backend ops that it is lowered to."""
    return {family: _authored_status(status, direct.get(family)) for family, status in conversion.items()}


def _authored_status(converted: Fact[str], unit: Fact[str] | None) -> Fact[str]:
    if converted.value == "decompose":
        return replace(converted, conflict_id="U143") if unit and unit.value == "reject" else converted
    if unit is not None or converted.value == "reject":
        return unit or converted
    return replace(converted, confidence="inferred", conflict_id="U140", note="authored as the ops it is lowered to")


def _below_a13(name: str) -> Fact[str]:
    """The direct route below A13, where nothing is converted: the floors of the backend ops decide."""
    about = f"{name} authored below A13"
    stated = store.load("vocabulary")["below_a13"]
    status = next((status for status in STATUSES if name in stated[status]), None)
    if status is not None:
        return fact({**stated, "v": status}, about=about)
    lowered = lowered_to(name) or _first_of_unit().get(name)
    if lowered is None:
        return fact(
            {**stated, "v": "reject", "note": f"no backend op is known for it before the {first_chips(Family8.A13)}"},
            about=about,
        )
    floor, value = lowered.floor, "native" if lowered.native_on(Family8.A11Legacy) else "reject"
    note = f"{lowered.name} starts with the {first_chips(Family8(floor.value))}"
    return Fact(value, floor.source, floor.confidence, about, note)


@cache
def _first_of_unit() -> dict[str, BackendOp]:
    """Of the backend ops that a unit stands for, the one that starts first; by the unit's name and tag."""
    by_layer: dict[str, BackendOp] = {}
    for op in sorted(backend_ops(), key=lambda op: op.floor.value):
        by_layer.setdefault(op.layer or "", op)
    rows = [row for row in store.load("layers")["layers"] if row["name"] in by_layer]
    return {name: by_layer[row["name"]] for row in rows for name in (row["name"], row["type_tag"])}


def _recorded(name: str) -> _Route:
    """What a record of the gate says of an authored op, or of the unit that it is; the first record counts."""
    lowered = lowered_to(name)
    route: _Route = {}
    for named in {name, lowered.layer if lowered is not None else None}:
        for record in _authored_records().get(named, ()):
            status = fact({**record, "v": "native" if record["v"] == "accept" else "reject"}, about=f"{name} authored")
            route = {**{Family[tier]: status for tier in record.get("tiers", _LABELS)}, **route}
    return route


@cache
def _authored_records() -> dict[str | None, list[dict[str, Any]]]:
    """The records of the direct route in ``gate_limits.json``, by op or unit."""
    records: dict[str | None, list[dict[str, Any]]] = {}
    for record in store.load("gate_limits")["ops"]:
        if "direct" in record.get("routes", ROUTES):
            records.setdefault(record["op"], []).append(record)
    return records


@cache
def mil_floor() -> Fact[str]:
    """Below the floor of the model-language path nothing is converted, whatever the op."""
    document = store.load("targets")
    entry = document["mil_floor_family5"]
    return fact({**entry, "v": "reject", "note": entry["reject"]}, document["evidence"], about="op below A13")


def _row(name: str, values: Mapping[str, str], record: Mapping[str, Any], evidence: Sequence[Any] = ()) -> _Route:
    """The statuses of one route from A13 on, each with the evidence of the record that states them."""
    return {
        tier: fact({**record, "v": values[tier.name]}, evidence, about=f"{name} on {tier.name}", family=tier.name)
        for tier in _TIERS
        if tier.name in values
    }


def _ruled(name: str) -> dict[str, _Route]:
    """A ruling of ours (U15) or of a conflict for one route or both, by the op or its backend op; vocabulary.json."""
    lowered = lowered_to(name)
    rulings = store.load("vocabulary")["rulings"]
    row = rulings.get(name) or rulings.get(lowered.name.removeprefix("anec.") if lowered else "") or {}
    stated = {route: dict(zip(_LABELS, row[route], strict=True)) for route in ROUTES if route in row}
    return {route: _row(name, values, {**row, "note": row["because"]}) for route, values in stated.items()}


def _gated(name: str) -> tuple[_Route, _Route] | None:
    """Ops that a capability byte or the code generator gates by name."""
    document = store.load("ops")
    row = next((record for record in document["gated_ops"] if record["name"] == name), None)
    if row is None:
        return None
    evidence = document["evidence"]
    return _row(name, row.get("conversion", {}), row, evidence), _row(name, row["direct"], row, evidence)


def _formless(name: str) -> tuple[_Route, _Route] | None:
    """Ops with no native form on any family: an equivalent in the graph or on the host."""
    document = store.load("ops")
    row = document["no_native_form"]
    if name not in row["v"]:
        return None
    return _row(name, dict.fromkeys(_LABELS, "decompose"), row, document["evidence"]), {}


@cache
def _backend_rows() -> dict[str, dict[str, Any]]:
    return {row["anec"]: row for row in store.load("ops")["anec_ops"]}


@cache
def _by_mil() -> dict[str, str]:
    """Model-language name to backend op: the op of the same name, else the first that lists it."""
    table: dict[str, str] = {}
    for name, row in _backend_rows().items():
        for mil in row["mil"]:
            if name == f"anec.{mil}" or mil not in table:
                table[mil] = name
    return table


def _backend(name: str) -> tuple[_Route, _Route] | None:
    """Ops that lower to one backend op: its two route rows."""
    lowered = lowered_to(name)
    if lowered is None:
        return None
    row = _backend_rows()[lowered.name]
    record = {"src": row["route_src"], "conf": row["route_conf"], "note": row.get("reachability")}
    conversion = _row(lowered.name, row["conversion_route"], record)
    return conversion, _row(lowered.name, row.get("direct_route", {}), record)


def _matrix(name: str) -> tuple[_Route, _Route] | None:
    """The 187-op matrix, for ops that neither a backend row nor a layer covers (bridge and none as U15 says)."""
    row = mil_row(name)
    if row is None or _layer(store.load("vocabulary")["synonyms"].get(name, "")) is not None:
        return None
    status_of = {"native": "native", "bridge": "native", "gated": "reject", "none": "reject"}
    statuses = _row(name, {label: status_of[row[label]] for label in _LABELS}, row, store.load("ops")["evidence"])
    chosen = {tier: "U15" if row[tier.name] in ("bridge", "none") else None for tier in _TIERS}
    return {tier: replace(status, conflict_id=chosen[tier]) for tier, status in statuses.items()}, {}


def _layer(name: str) -> tuple[_Route, _Route] | None:
    """Native layers, by their name or their netplist type."""
    document = store.load("layers")
    rows = (*document["layers"], *document["unit_types_without_exported_validator"])
    row = next((row for row in rows if name in (row["type_tag"], row.get("name", row["type_tag"]))), None)
    if row is None:
        return None
    stated = row["first_family"] if isinstance(row["first_family"], dict) else {"direct": row["first_family"]}

    def route(key: str) -> _Route:
        first = str(stated.get(key))
        start = Family.__members__.get(first[:3])
        below = {"A13": "decompose"} if key == "conversion" and "A13 software" in first else {}
        values = {tier.name: "native" if start and tier >= start else "reject" for tier in _TIERS}
        record = {**row, "note": stated.get(key)}
        return (
            {} if start is None and key == "conversion" else _row(name, values | below, record, document["evidence"])
        )

    return route("conversion"), route("direct")


_RULES: dict[str, Callable[[str], tuple[_Route, _Route] | None]] = {
    "gated op": _gated,
    "no native form": _formless,
    "backend op": _backend,
    "op matrix": _matrix,
    _LAYER: _layer,
}


def mil_row(name: str) -> Mapping[str, Any] | None:
    """The row of the 187-op model-language matrix, as published."""
    return _mil_rows().get(name)


@cache
def _mil_rows() -> dict[str, dict[str, Any]]:
    return {row["mil"]: row for row in store.load("ops")["mil_matrix"]}


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
    document, words = store.load("ops"), store.load("vocabulary")
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
