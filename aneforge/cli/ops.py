"""``aneforge ops``: which operation is native, decomposed or rejected on which chip."""

from __future__ import annotations

from functools import cache

from aneforge import text
from aneforge.chips import store
from aneforge.chips.chip import Target
from aneforge.chips.evidence import Fact
from aneforge.chips.names import chip_list, resolve
from aneforge.chips.ops import ROUTES, OpRoutes, lowered_to, mil_row, op_names, op_routes
from aneforge.errors import AneforgeError

MARK = {"measured": "", "decoded": "", "predicted": " (predicted)", "inferred": "", "unknown": " (unknown)"}


def show(names: list[str], chips: str, route: str | None, differ: bool, as_json: bool) -> None:
    if route is not None and route not in ROUTES:
        raise AneforgeError(f"--route: {route!r} is not a route; choose one: {', '.join(ROUTES)}.")
    names_of_chips = chip_list(chips)
    targets = [resolve(chip).target for chip in names_of_chips]
    if all(target.family5 is None for target in targets):
        raise AneforgeError(
            f"{targets[0].name}: the compiler puts it in no family, so no operation has a status. Choose another chip."
        )
    groups = {"operations": [op_routes(name).name for name in names]} if names else listed_ops()
    if differ:
        groups = {group: [op for op in ops if _differs(op, targets, route)] for group, ops in groups.items()}
    if as_json:
        print(text.as_json(_as_records(groups, names_of_chips, targets, route)))
        return
    for group, ops in groups.items():
        if ops:
            rows = [(op, *(_word(_status(op_routes(op), target, route)) for target in targets)) for op in ops]
            heads = [f"{chip} ({target.name})" for chip, target in zip(names_of_chips, targets, strict=True)]
            print(f"{text.columns((group, *heads), rows)}\n")
    shown = sum(len(ops) for ops in groups.values())
    unknown = " - : the chip is in no family." if any(target.family5 is None for target in targets) else ""
    print(f"{shown} operations. decompose: rewritten into legal ops; reject: no program.{unknown}")
    if names:
        _explain(names, targets, route)


def _status(routes: OpRoutes, target: Target, route: str | None) -> Fact[str] | None:
    return routes.route(route).get(target.family5) if target.family5 else None


def _word(status: Fact[str] | None) -> str:
    return "-" if status is None else f"{status.value}{MARK[status.confidence]}"


def _differs(op: str, targets: list[Target], route: str | None) -> bool:
    words = {
        status.value if status else None for status in (_status(op_routes(op), target, route) for target in targets)
    }
    return len(words) > 1


def _explain(names: list[str], targets: list[Target], route: str | None) -> None:
    for name in names:
        routes = op_routes(name)
        print(f"\n{name}: decided by {routes.rule}" + ("" if routes.canonical == name else f" {routes.canonical}"))
        lines, notes = [], []
        for target in targets:
            for way in ROUTES if route is None else (route,):
                status = _status(routes, target, way)
                if status is not None:
                    lines.append((f"{target.name} {way}", status.value, status.label()))
                    notes.append(status.note)
        backend = lowered_to(routes.canonical)
        if backend is not None:
            lines.append((backend.name, f"floor F{backend.floor.value}", backend.floor.label()))
            lines.append(("engine", backend.engine.value, backend.engine.label()))
        lines += [("note", note, "") for note in dict.fromkeys(notes) if note]
        print(text.pairs(lines))


def _as_records(
    groups: dict[str, list[str]], chips: list[str], targets: list[Target], route: str | None
) -> list[dict]:
    records = []
    for group, ops in groups.items():
        for op in ops:
            routes = op_routes(op)
            record: dict = {
                "op": op,
                "group": group,
                "rule": routes.rule,
                "answered_by": routes.canonical,
                "targets": {},
            }
            for chip, target in zip(chips, targets, strict=True):
                cells = {}
                for way in ROUTES if route is None else (route,):
                    status = _status(routes, target, way)
                    cells[way] = status.to_json() if status else None
                record["targets"][chip] = {"target": target.name, **cells}
            records.append(record)
    return records


@cache
def listed_ops() -> dict[str, list[str]]:
    """Every operation once, under the name that holds its facts, by class."""
    vocabulary, layers = store.load("vocabulary"), store.load("layers")
    # A layer that conversion also reaches is listed under its model-language name.
    covered = {row["name"] for row in layers["layers"] if row["first_family"]["conversion"] is not None}
    skipped = covered | set(vocabulary["synonyms"]) | {row["type_tag"] for row in layers["layers"]}
    groups: dict[str, list[str]] = {}
    for name in op_names():
        row = mil_row(name)
        if name.startswith("anec.") or (row is None and name in skipped):
            continue
        rule = op_routes(name).rule
        if row is not None:
            group = row["class"]
        elif rule == "native layer":
            group = "Native layers (direct authoring)"
        elif rule == "backend op":
            group = "Backend ops without a model-language name"
        else:
            group = "Gated by name"
        groups.setdefault(group, []).append(name)
    return groups
