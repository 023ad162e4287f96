"""``aneforge hal``: the hardware-abstraction table of a chip, one field of it, or a comparison."""

from __future__ import annotations

from typing import Any

from aneforge import text
from aneforge.chips.evidence import Fact
from aneforge.chips.hal import Hal, HalField
from aneforge.chips.names import one_chip, target
from aneforge.errors import AneforgeError


def show(chip: str, field: str | None, diff: str | None, build: str | None, unknowns: bool, as_json: bool) -> None:
    table = Hal(target(one_chip(chip, "CHIP")), build)
    if field is not None and diff is not None:
        raise AneforgeError("--compare: it compares all fields, and a field was named too. Give one of the two.")
    if field is not None:
        _show_field(table, field, as_json)
    elif diff is not None:
        _show_difference(table, Hal(target(one_chip(diff, "--compare")), table.build), unknowns, as_json)
    else:
        _show_table(table, unknowns, as_json)


def _show_field(table: Hal, key: str, as_json: bool) -> None:
    field, fact = table.field(key), table[key]
    if as_json:
        print(text.as_json({"target": table.target.name, "field": field.to_json(), **fact.to_json()}))
        return
    print(f"{table.target.name} HAL {field.where} {field.name} = {_value(field, fact.value)}  {fact.label()}")
    rows = [
        ("meaning", field.meaning, field.evidence.label()),
        ("kind", f"{field.kind}, {field.width} bytes" if field.width else field.kind, ""),
        ("build", f"{table.build}{_elsewhere(field)}", ""),
        ("read by", ", ".join(field.readers) or "no reader published", ""),
    ]
    if field.dead:
        rows.append(("dead", "written by the builder, never read through the table", ""))
    if fact.note:
        rows.append(("note", fact.note, ""))
    if fact.conflict:
        rows.append(("conflict", str(fact.conflict), ""))
    print(text.pairs(rows))


def _elsewhere(field: HalField) -> str:
    if field.other_offset is None:
        return ""
    other = "10.26.6" if field.build == "9.509" else "9.509"
    return f" ({field.other_offset:#x} in build {other})"


def _show_difference(left: Hal, right: Hal, unknowns: bool, as_json: bool) -> None:
    rows = left.diff(right, unknowns)
    if as_json:
        differences = [
            {"field": row.field.to_json(), "left": row.left.to_json(), "right": row.right.to_json()} for row in rows
        ]
        names = {"left": left.target.name, "right": right.target.name, "build": left.build}
        print(text.as_json({**names, "differences": differences}))
        return
    headers = ("offset", "field", left.target.name, right.target.name, "evidence")
    table = [
        (
            row.field.where,
            row.field.name,
            _brief(row.left.value),
            _brief(row.right.value),
            _weaker(row.left, row.right),
        )
        for row in rows
    ]
    print(text.columns(headers, table))
    print(f"\n{len(rows)} fields differ of {sum(1 for _ in left.fields())} known in build {left.build}.")


def _weaker(left: Fact[Any], right: Fact[Any]) -> str:
    order = ("unknown", "inferred", "predicted", "decoded", "measured")
    return min((left.confidence, right.confidence), key=order.index)


def _show_table(table: Hal, unknowns: bool, as_json: bool) -> None:
    if as_json:
        print(text.as_json(table.to_json()))
        return
    fields = sorted(table.fields(), key=lambda field: (field.offset is None, field.offset or 0, field.name))
    cells = [(field, table[field.name]) for field in fields]
    shown = [(field, fact) for field, fact in cells if unknowns or fact.known]
    rows = [(field.where, field.name, _brief(fact.value), _state(field), fact.label()) for field, fact in shown]
    print(text.columns(("offset", "field", table.target.name, "kind", "evidence"), rows))
    hidden = len(cells) - len(shown)
    tail = f"; {hidden} more have no published value here (--unknowns lists them)" if hidden else ""
    print(f"\nbuild {table.build}: {len(shown)} fields{tail}.")


def _state(field: HalField) -> str:
    return "dead (write-only)" if field.dead else field.kind


def _brief(value: object) -> str:
    if value is None:
        return "?"
    if isinstance(value, list):
        return f"{len(value)} points" if len(str(value)) > 24 else str(value)
    return str(value)


def _value(field: HalField, value: object) -> str:
    if value is None:
        return "not published"
    return f"{value} (bit {'set' if int(str(value)) & 1 else 'clear'})" if field.is_capability else str(value)
