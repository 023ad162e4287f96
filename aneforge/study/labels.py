"""What is behind a label that a report or a page prints: a source, a choice, a conflict, a fact, a message, a rule, a
pattern, a rewrite or a pass.

Data files answer first; rules, rewrites and passes are code, which is imported where no data file has the label.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from aneforge.chips import store
from aneforge.chips.devices import rules as device_rules
from aneforge.chips.evidence import conflicts, sources
from aneforge.chips.messages import messages

Label = dict[str, Any]
_SPELLED = re.compile(r"[\w.:-]{1,64}")


def label_record(label: str) -> Label | None:
    """What is known of a label; None where nothing has that name."""
    wanted = label.strip()
    if not _SPELLED.fullmatch(wanted):
        return None
    return _fact(wanted.upper()) or _source(wanted) or _numbered(wanted.upper()) or _named(wanted.lower())


def label_names() -> Iterator[str]:
    """Every label, for a look-up that failed."""
    yield from conflicts()
    yield from sources()
    yield from _facts()
    yield from messages()
    for group in _GROUPS:
        yield from group()


def _source(name: str) -> Label | None:
    meaning = sources().get(name)
    return None if meaning is None else {"source": name, "what": meaning}


def _numbered(number: str) -> Label | None:
    """A choice or a conflict."""
    choice = store.load("choices")["choices"].get(number)
    if choice:
        return {"id": number, **choice}
    conflict = conflicts().get(number)
    if conflict is None:
        return None
    return {
        "id": conflict.id, "subject": conflict.subject, "values": conflict.values, "winner": conflict.winner
    }  # fmt: skip


# Facts: one record each, with its evidence.


def _fact(number: str) -> Label | None:
    if number in messages():
        return messages()[number].to_json()
    return _facts().get(number)


@cache
def _facts() -> dict[str, Label]:
    found: dict[str, Label] = {}
    for topic in ("lifecycle", "numerics"):
        document = store.load(topic)
        for row in document["facts"]:
            found[row["id"]] = _with_evidence(row, document["evidence"])
    document = store.load("llm_limits")
    for group in ("ceilings", "cache_forms", "laws", "recipes"):
        for row in document[group]:
            found[row["id"]] = _with_evidence(row, document["evidence"])
    for row in store.load("ort_coreml")["rules"]:
        found[row["id"]] = {**row, "src": "ORT"}
    return found | {number: dict(row) for number, row in device_rules().items()}


def _with_evidence(row: Mapping[str, Any], evidence: list[list[Any]]) -> Label:
    shown = {key: value for key, value in row.items() if key != "e"}
    if isinstance(shown.get("value"), (dict, list)):
        shown["value"] = json.dumps(shown["value"], ensure_ascii=False)
    source, confidence = evidence[row["e"]][:2] if row.get("e", -1) >= 0 else ((), None)
    return {**shown, "src": list(source or ()), "conf": confidence}


# Rules, patterns, rewrites and passes: declared in code, with records in the data.


def _named(name: str) -> Label | None:
    """The definition of a name, from the first group that has it: a group costs its imports."""
    return next((group()[name] for group in _GROUPS if name in group()), None)


@cache
def _gate() -> dict[str, Label]:
    """Rules. A name that a rule and a pass raise keeps the parts of both."""
    found: dict[str, Label] = {}
    for name, record in (*_raised(), *_rules()):
        found[name] = {**found.get(name, {}), **record}
    return found


def _rules() -> Iterator[tuple[str, Label]]:
    from aneforge.compiler.legal.rules import RULES
    from aneforge.compiler.legal.rules.base import ANY, UNREACHED, rule_records

    for name, rule in RULES.items():
        record: Label = {
            "rule": name,
            "says": _sentence(rule.template),
            "effect": f"{rule.effect}{', too large' if rule.oversize else ''}",
            "ops": "every op" if ANY in rule.ops else list(rule.ops),
        }
        if rule.elsewhere:
            record["reached"] = UNREACHED[rule.elsewhere]
        yield name, {**record, "applies": [_applies(row) for row in rule_records().get(name, ())]}


_STANDS_FOR = {"extent": "SIZE", "string": "the compiler's words"}


def _sentence(template: str) -> str:
    """The sentence of a rule, with names for what it is filled with."""
    return re.sub(r"\{(\w+)\}", lambda match: _STANDS_FOR.get(match[1], match[1].upper()), template)


def _applies(row: Mapping[str, Any]) -> str:
    """Where one record of a rule applies, its limit, what to do, and who says so, in a line."""
    generations = [f"generation {number}" for number in row.get("generations", ())]
    where = ", ".join((*row.get("tiers", ()), *generations)) or "all chips"
    limit = next((row[key] for key in ("limit", "global", "fact", "constant") if key in row), None)
    if limit is None:
        limit = next((row[key] for key in ("v", "structure", "of", "pattern") if key in row), None)
    parts = [where, f"stage {row['stage']}"]
    parts += [f"{key} {', '.join(row[key])}" for key in ("routes", "runtimes") if key in row]
    parts += [f"{key} {row[key]}" for key in ("since", "pattern") if key in row]
    parts += [f"limit {_plain(limit)}"] if limit is not None and "pattern" not in row else []
    parts += [f"do: {row['hint']}"] if row.get("hint") else []
    source = ", ".join(row.get("src", row.get("basis", ())))
    confidence = row.get("conf", row.get("basis_conf", ""))
    evidence = f" [{confidence}: {source}]" if source else ""
    return "; ".join(parts) + evidence + (f" ({row['conflict']})" if row.get("conflict") else "")


def _plain(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def _raised() -> Iterator[tuple[str, Label]]:
    """Rules about names and places, and those that passes raise; and what a file's flexible inputs meet."""
    from aneforge.compiler.legal.rules.native import RAISED

    for rule in RAISED:
        yield rule.id, {"rule": rule.id, "says": rule.about, "raised by": rule.raised_by, "stage": rule.stage}
    yield "op-route", {"applies": ["aneforge ops lists the status of every op on every chip, by route"]}
    answers = store.load("gate_limits")["ops"]
    yield "op-record", {"applies": [f"{row['op']}: {row['v']}; {_applies({**row, 'v': None})}" for row in answers]}
    flexible = store.load("gate_limits")["flexible"]
    says = [f"{row['form']}: {row['says']} [{row['conf']}: {', '.join(row['src'])}]" for row in flexible]
    yield "flexible-input", {"rule": "flexible-input", "says": "what Core ML does with inputs of open shape",
                             "applies": says}  # fmt: skip


@cache
def _losses() -> dict[str, Label]:
    """What the range analysis raises; it brings the simulator, so it is asked last."""
    from aneforge.numerics.losses import LOSSES

    return {
        name: {"rule": name, "says": about, "raised by": "the range analysis", "shown by": shown_by}
        for name, (shown_by, about) in LOSSES.items()
    }


@cache
def _patterns() -> dict[str, Label]:
    from aneforge.compiler.legal.patterns import PATTERNS
    from aneforge.compiler.legal.rules.base import rule_records

    records = [(name, row) for name, rows in rule_records().items() for row in rows if "pattern" in row]
    users = {name: [(rule, row) for rule, row in records if row["pattern"] == name] for name in PATTERNS}
    return {
        name: {
            "pattern": name,
            "structure": pattern.about,
            "applies": [
                f"{rule}: {row.get('what', row.get('hint', ''))}; {_applies(row)}" for rule, row in users[name]
            ],
        }
        for name, pattern in PATTERNS.items()
    }


@cache
def _rewrites() -> dict[str, Label]:
    from aneforge.compiler.legal.table import REWRITES

    return {
        name: {
            "rewrite": name, "op": row.op, "into": row.into, "decided by": row.because, "pass": row.run_by,
            "error": str(row.bound), "answers": list(row.rules),
        }
        for name, row in REWRITES.items()
    }  # fmt: skip


@cache
def _passes() -> dict[str, Label]:
    from aneforge.compiler.passes import PASSES
    from aneforge.compiler.pipeline import PHASES

    phases = {
        name: f"phase {number}: {phase}" for number, (phase, names) in enumerate(PHASES.items()) for name in names
    }
    return {
        name: {"pass": name, "says": declared.purpose, "in": phases.get(name, ""), "reads": list(declared.reads)}
        for name, declared in PASSES.items()
    }


_GROUPS = (_gate, _patterns, _rewrites, _passes, _losses)
