"""The page of the validators: every native layer with the checks of its validator, from the legality table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aneforge.chips import store
from aneforge.chips.assumed import fact_label
from aneforge.compiler.legal.rules.base import RULES, rule_records
from aneforge.engine.native import LayerType, layer_types
from aneforge.study import validate
from aneforge.study.validate import EXPORTS

__all__ = ["validators"]


def validators() -> str:
    """Which checks each layer meets, and the functions that are about more than a layer."""
    parts = [
        "# The validators",
        "",
        "What does the compiler check of a native layer, and what does it say? Each check below is a record of the",
        "one legality table: `aneforge validate`, `aneforge check` and a compile ask the same. `bottom 0` is the",
        "first operand. The stage is the layer of the compiler that answers; where none is named, the validator.",
        "Rules about limits of the chips, such as the largest kernel, are in [rules.md](rules.md).",
        "",
        "## Beyond one layer",
        "",
        "| exported function | what it is for | here |",
        "| --- | --- | --- |",
    ]
    for exported, own in EXPORTS.items():
        role = (getattr(validate, own).__doc__ or "").partition(".")[0]
        parts.append(f"| `{exported}` | {' '.join(role.split())} | `aneforge.study.validate.{own}` |")
    parts += [
        "",
        "`aneforge.study.validate.validate_program` is the third layer: the loader's checks of a program.",
        "",
    ]
    for layer in layer_types():
        parts += _layer(layer)
    return "\n".join(parts)


def _layer(layer: LayerType) -> list[str]:
    validator = f"`{layer.validator}`" if layer.validator else "no exported validator"
    lines = [f"## {layer.tag}", "", f"{validator} {layer.evidence.label()}", ""]
    lines += ["| check | must be | the compiler says | routes | evidence |", "| --- | --- | --- | --- | --- |"]
    for name, records in rule_records().items():
        for record in records:
            if layer.tag in record.get("ops", ()) and RULES[name].validates:
                lines.append(_check(record))
    unchecked = [f"- Not checked: {text}. Why: {why}." for text, why in _unchecked(layer).items()]
    return [*lines, "", *([*unchecked, ""] if unchecked else [])]


def _unchecked(layer: LayerType) -> Mapping[str, str]:
    """Published constraints that no check is about, and the reason."""
    entry = next(each for each in store.load("validators")["validators"] if each["layer"] == layer.name)
    return entry.get("unchecked", {})


def _check(record: Mapping[str, Any]) -> str:
    stage = "" if record["stage"] == "validator" else f" ({record['stage']})"
    string = record.get("string", "")
    cells = [
        f"{_what(record)}{_conditions(record)}{stage}",
        _must(record),
        f"`{string}`" if string else "",
        ", ".join(record.get("routes", ("all",))),
        f"{record['conf']} {', '.join(record['src'])}",
    ]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _what(record: Mapping[str, Any]) -> str:
    rule = record["rule"]
    if rule == "layer-envelope":
        return record.get("about") or _named(record["what"])
    if rule == "support-byte":
        return f"byte {fact_label(record['fact'])}"
    if rule == "bottom-types":
        which = record["bottom"]
        return f"elements of bottom {which}" if isinstance(which, int) else "elements of all bottoms"
    return {"bottom-count": "number of bottoms"}.get(rule, f"[`{rule}`](rules.md#{rule})")


def _named(reference: str) -> str:
    number, _, extent = reference.partition(".")
    return f"{extent.removeprefix('@')} of bottom {number}" if number.isdigit() and extent else f"`{reference}`"


def _must(record: Mapping[str, Any]) -> str:
    rule, value = record["rule"], record.get("v", "")
    if rule == "layer-envelope":
        stated = (
            _named(value)
            if isinstance(value, str)
            else ", ".join(map(str, value if isinstance(value, list) else [value]))
        )
        return f"{record['must'].removeprefix('be ')} {stated}"
    if rule == "support-byte":
        return "set, or it is rewritten" if record.get("effect") == "decompose" else "set"
    if rule == "bottom-count":
        fewest, most = value
        return f"{fewest} or more" if most is None else " or ".join(map(str, range(fewest, most + 1)))
    if rule == "bottom-types":
        return "alike" if record["bottom"] == "same" else ", ".join(value)
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _conditions(record: Mapping[str, Any]) -> str:
    told = [f"{key} is {' or '.join(map(str, values))}" for key, values in record.get("when", {}).items()]
    told += [f"{key} is not {' or '.join(map(str, values))}" for key, values in record.get("unless", {}).items()]
    return f", where {' and '.join(told)}" if told else ""
