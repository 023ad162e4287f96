"""The page of the rules: what a chip refuses or computes wrongly, and by which record."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from aneforge.compiler.legal.patterns import PATTERNS
from aneforge.compiler.legal.rules import RULES, Rule
from aneforge.compiler.legal.rules.base import UNREACHED, rule_records
from aneforge.compiler.legal.rules.native import RAISED
from aneforge.numerics.losses import LOSSES

__all__ = ["rules"]


def _shown(value: object) -> str:
    return json.dumps(value, ensure_ascii=False).replace("|", "\\|")


def _where(record: Mapping[str, Any]) -> str:
    generations = [f"generation {each}" for each in record.get("generations", ())]
    return ", ".join(record.get("tiers", generations)) or "all"


def _how(record: Mapping[str, Any]) -> str:
    """The routes of a record, and the runtimes where it is about some of them only."""
    routes = ", ".join(record.get("routes", ["all"]))
    return f"{routes}; {', '.join(record['runtimes'])} only" if "runtimes" in record else routes


def rules() -> str:
    """Every rule that a graph can meet, then what is known about other routes, patterns, and rules of passes."""
    parts = [
        "# The rules of the gate",
        "",
        "**Why does a chip refuse an op, or compute it wrongly?** Each rule below is one answer, with the sentence",
        "that `aneforge check` prints. Words in italics stand for what it fills in: the op, the chip, numbers of your",
        "model.",
        "",
        "A record applies where its routes, runtimes (`direct`: a program of its own, `coreml`, `coreai`) and tiers",
        "match; the first that matches wins. `limit` names a row of the limits table, a field of the chip's table, or",
        "a pattern of ops. Sources are keys: `aneforge explain KEY`. The stage is the layer of the compiler that",
        "answers: the frontend, a validator, code generation, or a measured run. The rules are in",
        "`aneforge/compiler/legal/`, their records in `gate_limits.json` and `validators.json`",
        "([the validators](validators.md)).",
        "",
        "- [Rules that a graph can meet](#rules-that-a-graph-can-meet)",
        "- [Numbers that can be lost](#numbers-that-can-be-lost)",
        "- [Rules of names, places and passes](#rules-of-names-places-and-passes)",
        "- [Patterns of ops](#patterns-of-ops)",
        "- [Knowledge about other routes](#knowledge-about-other-routes)",
        "",
        "## Rules that a graph can meet",
        "",
    ]
    for name, rule in RULES.items():
        if not rule.elsewhere:
            parts += _rule(name, rule)
    parts += [
        "## Numbers that can be lost",
        "",
        "The range analysis of a program raises these, by the ranges of its values",
        "([risks and cures](../guide/divergence.md#risks-and-cures)). `check` lists those that lose numbers and not",
        "only digits.",
        "",
        "| rule | what it says | shown by |",
        "| --- | --- | --- |",
        *(f"| `{rule}` | {about} | {shown_by} |" for rule, (shown_by, about) in LOSSES.items()),
        "",
        "## Rules of names, places and passes",
        "",
        "These are raised by the check of a graph or by a pass of phase 2 (see [passes.md](passes.md)).",
        "",
        "| rule | raised by | what it says |",
        "| --- | --- | --- |",
        *(f"| `{rule.id}` | `{rule.raised_by}` | {rule.about} |" for rule in RAISED if not rule.elsewhere),
        "",
        "## Patterns of ops",
        "",
        "| pattern | structure | in a graph |",
        "| --- | --- | --- |",
        *(f"| `{shape.name}` | {shape.about} | {'no' if shape.elsewhere else 'yes'} |" for shape in PATTERNS.values()),
        "",
        "## Knowledge about other routes",
        "",
        "No graph reaches these rules through `aneforge check`. They answer questions that are put to",
        "`aneforge.compiler.legal.judge.judge`, about programs that other tools build.",
        "",
        "| known from | what that means | rules |",
        "| --- | --- | --- |",
    ]
    for route, meaning in UNREACHED.items():
        named = [name for name, rule in RULES.items() if rule.elsewhere == route]
        named += [f"{rule.id} ({rule.raised_by})" for rule in RAISED if rule.elsewhere == route]
        named += [f"{shape.name} (pattern)" for shape in PATTERNS.values() if shape.elsewhere == route]
        parts.append(f"| {route} | {meaning} | {', '.join(named)} |")
    parts.append("")
    for name, rule in RULES.items():
        if rule.elsewhere:
            parts += _rule(name, rule)
    return "\n".join(parts)


_STANDS_FOR = {"extent": "size", "string": "the compiler's words"}


def _sentence(template: str) -> str:
    """The sentence of a rule, with words for what it is filled with."""
    return re.sub(r"\{(\w+)\}", lambda match: f"*{_STANDS_FOR.get(match[1], match[1])}*", template)


def _rule(name: str, rule: Rule) -> list[str]:
    ops = "every op" if "*" in rule.ops else ", ".join(f"`{op}`" for op in rule.ops)
    kind = f"{rule.effect}{', too large' if rule.oversize else ''}"
    lines = [f"### {name}", "", f"*{kind}* for {ops}.", "", f"> {_sentence(rule.template)}", ""]
    if rule.validates and rule.every_record:
        return [*lines, "Its records are on the page of [the validators](validators.md).", ""]
    lines += ["| stage | routes | tiers | limit | do | evidence |", "| --- | --- | --- | --- | --- | --- |"]
    for record in rule_records().get(name, ()):
        looked_up = record.get("limit") or record.get("global") or record.get("fact") or record.get("constant")
        limit = looked_up or _shown(next(record[key] for key in ("v", "structure", "of", "pattern") if key in record))
        evidence = ", ".join(record.get("src", record.get("basis", ())))
        confidence = record.get("conf", record.get("basis_conf", "see the limits table"))
        cells = [
            record["stage"],
            _how(record),
            _where(record),
            limit,
            record.get("hint", ""),
            f"{confidence} {evidence}".strip(),
        ]
        lines.append("| " + " | ".join(str(cell).replace("\n", " ") for cell in cells) + " |")
    return [*lines, ""]
