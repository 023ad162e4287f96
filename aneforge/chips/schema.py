"""What a data file must look like, checked in detail.

The loader compares checksums, which is fast and says only that something changed. This module says what changed: it
yields one sentence per fault, with the record and what would be right. The tests run it over every file, so a fact
that is imported wrongly does not ship.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from aneforge.chips import store
from aneforge.chips.evidence import CATALOGUED, CONFIDENCE
from aneforge.chips.families import Family, Family8

_WORDS = (*CONFIDENCE, *CATALOGUED)
_STATUSES = {"native", "decompose", "reject", "special", "bridge", "gated", "none"}
_OFFSET = re.compile(r"0x[0-9a-f]+(\.\.0x[0-9a-f]+)?$")


def problems(topic: str, document: dict[str, Any]) -> Iterator[str]:
    """Every fault of one data file, most basic first."""
    if not isinstance(document.get("meta"), dict):
        yield "no 'meta' object"
    yield from _evidence_table(document)
    yield from _evidence_use(document, len(document.get("evidence", ())))
    check = _CHECKS.get(topic)
    if check is not None:
        try:
            yield from check(document)
        except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
            yield f"a record is not shaped as expected ({type(error).__name__}: {error})"


def _confidences(value: Any) -> Iterator[str]:
    for word in value.values() if isinstance(value, dict) else [value]:
        if word is not None:
            yield str(word)


def _evidence_table(document: dict[str, Any]) -> Iterator[str]:
    known = set(store.load("sources")["sources"]) if "sources" not in document else set(document["sources"])
    for number, row in enumerate(document.get("evidence", ())):
        if not isinstance(row, list) or len(row) not in (2, 3):
            yield f"evidence {number} must be [sources, confidence]"
            continue
        for source in row[0] or ():
            if known and source not in known:
                yield f"evidence {number} names source {source!r}, which sources.json does not have"
        for word in _confidences(row[1]):
            if word.split()[0].rstrip(",") not in _WORDS:
                yield f"evidence {number} has confidence {word!r}; allowed: {', '.join(_WORDS)}"


def _evidence_use(document: dict[str, Any], size: int) -> Iterator[str]:
    """Walk the tree without recursion; every ``e`` must point into the table."""
    stack: list[tuple[str, Any]] = [(key, value) for key, value in document.items() if key != "evidence"]
    while stack:
        path, node = stack.pop()
        if isinstance(node, dict):
            numbers = node.get("e")
            for number in numbers if isinstance(numbers, list) else [numbers]:
                if number is not None and not (isinstance(number, int) and -1 <= number < size):
                    yield f"{path}: evidence number {number!r} is outside the table of {size}"
            conf = node.get("conf")
            if isinstance(conf, str) and conf.split()[0].rstrip(",") not in _WORDS:
                yield f"{path}: confidence {conf!r}; allowed: {', '.join(_WORDS)}"
            stack += [(f"{path}, {key}", value) for key, value in node.items() if key not in ("e", "conf")]
        elif isinstance(node, list):
            stack += [(f"{path}, entry {number}", value) for number, value in enumerate(node)]


def _targets(document: dict[str, Any]) -> Iterator[str]:
    seen: set[str] = set()
    for row in document["targets"]:
        name = row["name"]
        if name in seen:
            yield f"target {name} is listed twice"
        seen.add(name)
        label = row.get("family8", {}).get("v")
        if label is not None and label not in Family8.__members__:
            yield f"target {name}: family8 {label!r} is unknown; choose one: {', '.join(Family8.__members__)}"
        tier = row.get("family5", {}).get("v")
        if tier is not None and tier not in Family.__members__:
            yield f"target {name}: family5 {tier!r} is unknown; choose one: {', '.join(Family.__members__)}"
        for key in ("hardware_version", "td_generation", "num_nes_0x238"):
            value = row.get(key, {}).get("v")
            if value is not None and not isinstance(value, int):
                yield f"target {name}: {key} must be a whole number, not {value!r}"


def _hal_fields(document: dict[str, Any]) -> Iterator[str]:
    names: set[str] = set()
    for row in document["fields"]:
        if not _OFFSET.match(row["offset"]):
            yield f"field {row['name']}: offset {row['offset']!r} must look like 0x1b8 or 0x730..0x750"
        if row["kind"] not in document["kinds"]:
            yield f"field {row['name']}: kind {row['kind']!r} is unknown; choose one: {', '.join(document['kinds'])}"
        if row["status"] not in document["status"]:
            known = ", ".join(document["status"])
            yield f"field {row['name']}: status {row['status']!r} is unknown; choose one: {known}"
        if row["name"] in names:
            yield f"field {row['name']} is listed twice"
        names.add(row["name"])


def _hal_values(document: dict[str, Any]) -> Iterator[str]:
    width = len(document["targets"])
    for section in ("values", "values_without_offset"):
        for offset, column in document[section].items():
            if section == "values" and not _OFFSET.match(offset):
                yield f"{section}: offset {offset!r} must look like 0x1b8 or 0x730..0x750"
            for key in ("v", "e"):
                if len(column[key]) != width:
                    size = len(column[key])
                    yield f"{section}, {offset}: {size} entries in {key!r}, one per target needed ({width})"
            if offset == "0x81d" and any(value not in (0, 1, None) for value in column["v"]):
                yield f"{section}, {offset}: a capability byte is 0, 1 or null"


def _ops(document: dict[str, Any]) -> Iterator[str]:
    for row in document["anec_ops"]:
        if not isinstance(row["floor"], int) or not 0 <= row["floor"] <= 7:
            yield f"{row['anec']}: floor {row['floor']!r} must be 0 to 7"
        for route in ("trait_status", "conversion_route", "direct_route"):
            for family, status in row.get(route, {}).items():
                if status not in _STATUSES:
                    yield f"{row['anec']}: {route} on {family} is {status!r}; allowed: {', '.join(sorted(_STATUSES))}"
    for row in document["mil_matrix"]:
        for family in ("A13", "A14", "A15", "A16"):
            if row[family] not in _STATUSES:
                yield f"op {row['mil']}: {family} is {row[family]!r}; allowed: {', '.join(sorted(_STATUSES))}"


def _limits(document: dict[str, Any]) -> Iterator[str]:
    for row in document["per_family"]:
        unknown = set(row["values"]) - set(Family.__members__)
        if unknown:
            yield f"limit {row['name']}: {', '.join(sorted(unknown))} is not a family"


def _names(document: dict[str, Any]) -> Iterator[str]:
    from aneforge.chips.chip import target_names

    known = set(target_names())
    for name, row in document["variants"].items():
        if row["product"] not in document["products"]:
            yield f"variants, {name}: product {row['product']!r} does not exist"
    for section in ("products", "runtime"):
        for name, row in document[section].items():
            if row["target"] not in known:
                yield f"{section}, {name}: target {row['target']!r} does not exist"
    for name, row in document["inherits"].items():
        if name not in known or row["from"] not in known:
            yield f"inherits, {name}: {row['from']!r} or {name!r} does not exist"


def _devices(document: dict[str, Any]) -> Iterator[str]:
    chips = {row["soc"]: row for row in document["chips"]}
    products = store.load("names")["products"]
    for row in document["devices"]:
        if row["soc"] not in chips:
            yield f"devices, {row['identifier']}: chip {row['soc']!r} is not one of the chips"
    for name, row in chips.items():
        if "compile" in row and name not in products:
            yield f"chips, {name}: has a compile name, but names.json has no such product"


def _vocabulary(document: dict[str, Any]) -> Iterator[str]:
    for name, row in document["rulings"].items():
        for route in ("conversion", "direct"):
            for status in row.get(route, ()):
                if status not in ("native", "decompose", "reject"):
                    yield f"ruling {name}: {route} {status!r} must be native, decompose or reject"


_LIMITS = {"v", "structure", "limit", "global", "fact", "constant", "pattern"}
"""Where the limit of a rule can be: stated as a number, values or the name of a structure, or looked up."""


def _gate_limits(document: dict[str, Any]) -> Iterator[str]:
    """Records name known sources, tiers and routes; a rule's limit is stated or looked up."""
    known = set(store.load("sources")["sources"]) | set(document["sources"]) | set(store.load("choices")["sources"])
    allowed_values = {
        "src": known,
        "tiers": set(Family.__members__),
        "routes": {"conversion", "direct", "coreml_placement"},
        "runtimes": {"direct", "coreml", "coreai"},
    }
    for section in ("ops", "rules"):
        for record in document[section]:
            name = record.get("op") or record.get("rule")
            for key, allowed in allowed_values.items():
                unknown = set(record.get(key, ())) - allowed
                if unknown:
                    yield f"{section}, {name}: {key} {', '.join(sorted(unknown))} is not known"
            if record.get("since", "") not in ("", *document["systems"]):
                yield f"{section}, {name}: since {record['since']} is not one of the systems"
            if section == "rules" and not _LIMITS & set(record):
                yield f"rules, {name}: needs a limit, one of {', '.join(sorted(_LIMITS))}"
            if section == "rules" and isinstance(record.get("v"), (str, bool, dict)):
                yield f"rules, {name}: v is {record['v']!r}; a limit is a number, a list of values or a 'structure'"


def _validators(document: dict[str, Any]) -> Iterator[str]:
    """Each layer once, of those that are published; checks name their rule, and a source and a confidence together."""
    layers = store.load("layers")
    rows = (*layers["layers"], *layers["unit_types_without_exported_validator"])
    known = {row.get("name", row["type_tag"]): set(row["constraints"]) for row in rows}
    listed = [entry["layer"] for entry in document["validators"]]
    for name in sorted({*known} ^ {*listed}):
        yield f"layer {name}: it must be in validators.json and in layers.json, once in each"
    for entry in document["validators"]:
        name = entry["layer"]
        for text in set(entry.get("unchecked", ())) - known.get(name, set()):
            yield f"layer {name}: {text!r} is no constraint of it in layers.json"
        for check in entry["checks"]:
            if isinstance(check.get("v"), (str, bool, dict)):
                yield f"layer {name}: v is {check['v']!r}; a limit is a number, values, a reference or a structure"
            if "check" not in check or ("src" in check) != ("conf" in check):
                yield f"layer {name}: {check} needs 'check', and both of 'src' and 'conf' or neither"


def _errors(document: dict[str, Any]) -> Iterator[str]:
    """Each message once, its causes ranked from 1 on."""
    seen: set[str] = set()
    for row in document["errors"]:
        if row["id"] in seen:
            yield f"message {row['id']}: it is there twice"
        seen.add(row["id"])
        if [cause["rank"] for cause in row["causes"]] != list(range(1, len(row["causes"]) + 1)):
            yield f"message {row['id']}: its causes must be ranked 1, 2, 3 and so on"


def _error_causes(document: dict[str, Any]) -> Iterator[str]:
    """What shows the causes of each message, one entry a cause; all names exist."""
    known = {row["id"]: len(row["causes"]) for row in store.load("errors")["errors"]}
    for number in sorted(set(document["causes"]) ^ set(known)):
        yield f"message {number}: it must be in errors.json and in causes of error_causes.json"
    for number in sorted({*document["phrases"], *document["symptoms"]} - set(known)):
        yield f"message {number}: errors.json does not have it"
    for number, causes in document["causes"].items():
        if len(causes) != known.get(number, len(causes)):
            yield f"message {number}: {len(causes)} causes, and errors.json has {known[number]}"
        for name in {name for names in causes for name in names} - set(document["kinds"]) - set(known):
            yield f"message {number}: {name!r} is neither a kind of cause nor a message"


def _lifecycle_points(document: dict[str, Any]) -> Iterator[str]:
    """Every point and piece of advice names facts that exist."""
    known = {row["id"] for row in store.load("lifecycle")["facts"]}
    for row in document["points"]:
        if row["fact"] not in known:
            yield f"points, {row['stage']}: lifecycle.json has no fact {row['fact']}"
        if row["size"] not in ("stated", "ours", "ratio") or (row["size"] == "ours" and not row.get("note")):
            yield f"points, {row['fact']}: size is stated, ratio, or ours with a note that says what was read"
    for row in document["advice"]:
        for number in set(row["facts"]) - known:
            yield f"advice: lifecycle.json has no fact {number}"


def _task_words(document: dict[str, Any]) -> Iterator[str]:
    """Each word once, with one cell for each generation."""
    seen: set[str] = set()
    for row in document["words"]:
        if row["key"] in seen:
            yield f"word {row['key']}: it is there twice"
        seen.add(row["key"])
        if len(row["v"]) != len(document["generations"]):
            yield f"word {row['key']}: needs one cell for each of {', '.join(document['generations'])}"


_CHECKS = {
    "errors": _errors,
    "error_causes": _error_causes,
    "lifecycle_points": _lifecycle_points,
    "task_words": _task_words,
    "gate_limits": _gate_limits,
    "validators": _validators,
    "targets": _targets,
    "hal_fields": _hal_fields,
    "hal_values": _hal_values,
    "ops": _ops,
    "limits": _limits,
    "names": _names,
    "devices": _devices,
    "vocabulary": _vocabulary,
}
