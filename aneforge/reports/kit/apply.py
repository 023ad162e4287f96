"""Applying a fact: what a file of results changes in the data, shown as a diff, and what follows by hand."""

from __future__ import annotations

import difflib
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aneforge.chips import store
from aneforge.errors import AneforgeError
from aneforge.files import write_whole
from aneforge.reports.kit.judge import CONFIRMS, CONTRADICTS, NONE, Findings, KitOutcome

DATA = Path("aneforge", "chips", "data")
_CHOICES, _SEALS = "choices.json", "manifest.json"


@dataclass(frozen=True)
class FactChange:
    """What would change, and what a person has to look at."""

    before: str
    after: str
    follows: tuple[str, ...]

    @property
    def diff(self) -> str:
        """The change of the data file, line by line."""
        place = (DATA / _CHOICES).as_posix()
        lines = difflib.unified_diff(
            self.before.splitlines(), self.after.splitlines(), f"a/{place}", f"b/{place}", lineterm="", n=0
        )
        return "\n".join(lines)

    def __str__(self) -> str:
        return "\n".join([self.diff or "nothing changes", "", *self.follows])

    def to_json(self) -> dict[str, Any]:
        return {"diff": self.diff, "follows": list(self.follows)}


def applied(findings: Findings, source: str, checkout: str | Path) -> FactChange:
    """What the results change in a checkout's data."""
    place = Path(checkout) / DATA / _CHOICES
    if not place.is_file():
        raise AneforgeError(f"{checkout}: no {place}, so not a checkout of aneforge. Name one with --checkout.")
    before = place.read_text(encoding="utf-8")
    lines, follows = before.splitlines(), []
    for outcome in findings.outcomes:
        if outcome.status not in (CONFIRMS, CONTRADICTS, NONE):
            continue
        for number in outcome.unknowns:
            if number in store.load("choices")["choices"]:
                _choice(lines, findings, outcome, number, source)
        if outcome.status != CONFIRMS:
            follows += _follow(lines, findings, outcome, Path(checkout))
    return FactChange(before, "\n".join(lines) + "\n", tuple(follows))


def write_applied(change: FactChange, checkout: str | Path) -> None:
    """Write the data file and its seal."""
    folder = Path(checkout) / DATA
    old, new = (hashlib.sha256(text.encode()).hexdigest() for text in (change.before, change.after))
    seals = (folder / _SEALS).read_text(encoding="utf-8")
    if old not in seals:
        raise AneforgeError(f"{folder / _CHOICES}: its seal is broken. Run python tools/import_facts.py --seal first.")
    write_whole(folder / _CHOICES, change.after)
    write_whole(folder / _SEALS, seals.replace(old, new))


def _choice(lines: list[str], findings: Findings, outcome: KitOutcome, number: str, source: str) -> None:
    """The record of an unknown: where it was seen and, where another reading holds, that reading as the choice."""
    machine = findings.results.machine
    place, record = _record(lines, number)
    reading = ", ".join(row.name for row in outcome.alive) or "none of the hypotheses"
    entry = {
        "chip": machine.chip,
        "os": f"{machine.os} ({machine.build})",
        "experiment": outcome.experiment.id,
        "shows": outcome.status,
        "reading": reading,
        "src": source,
    }
    if entry not in record.setdefault("seen", []):
        record["seen"].append(entry)
    other = outcome.reading if number == outcome.unknown else None
    if outcome.status == CONTRADICTS and other:
        old, new = record["choice"], record["instead"][other - 1]
        record["instead"][other - 1] = old
        record["choice"] = new
        record["because"] = (
            f"measured on an {machine.chip} ({machine.os}, {outcome.experiment.id}); {record['because']}"
        )
    lines[place] = _line(number, record, lines[place])


def _record(lines: list[str], number: str) -> tuple[int, dict[str, Any]]:
    head = f'"{number}":{{'
    place = next((n for n, line in enumerate(lines) if line.startswith(head) and '"subject"' in line), None)
    if place is None:
        raise AneforgeError(f"{_CHOICES}: no line for {number}. Check out the version that this aneforge is of.")
    return place, json.loads("{" + _body(lines[place]) + "}")[number]


def _body(line: str) -> str:
    """A line without what closes the tables around it: its own braces and brackets are even."""
    body = line.rstrip().rstrip(",")
    while body.count("{") < body.count("}"):
        body = body[:-1]
    return body


def _line(name: str, record: Mapping[str, Any], old: str) -> str:
    ending = old[len(_body(old)) :]
    return f'"{name}":{json.dumps(record, ensure_ascii=False, separators=(",", ":"))}{ending}'


def _follow(lines: list[str], findings: Findings, outcome: KitOutcome, checkout: Path) -> list[str]:
    """The data rows that the new reading asks for, and the tests and pages that name the unknown."""
    said = [f"{outcome.unknown}: {findings.results.machine.chip} shows {outcome.status} ({outcome.experiment.id})"]
    for name, value in (outcome.alive[0].suppose if outcome.alive else {}).items():
        said.append(f"  {_data_row(lines, name, value, findings)}")
    named = re.compile(rf"\b{outcome.unknown}\b")
    for folder, pattern in (("tests", "*.py"), ("docs", "*.md"), ("aneforge", "*.py")):
        files = sorted((checkout / folder).rglob(pattern)) if (checkout / folder).is_dir() else []
        hits = [file.relative_to(checkout).as_posix() for file in files if named.search(file.read_text("utf-8"))]
        if hits:
            said.append(f"  {folder} that name it: {', '.join(hits)}")
    return [*said, "  then: python tools/import_facts.py --seal, make docs, make test"]


def _data_row(lines: list[str], name: str, value: Any, findings: Findings) -> str:
    """Change the row of a constant or of a fact by generation; what is neither is left to a person."""
    generation = int(findings.results.target.td_generation or 0)
    head = f'"{name}":{{'
    for place, line in enumerate(lines):
        if not line.startswith(head):
            continue
        record = json.loads("{" + _body(line) + "}")[name]
        if "generations" in record and isinstance(value, bool):
            kept = [number for number in record["generations"] if number != generation]
            record["generations"] = sorted([*kept, *([generation] if value else [])])
        elif set(record) == {"v", "choice"}:
            record["v"] = value
        elif "named" in record:
            named = {key: [n for n in listed if n != generation] for key, listed in record["named"].items()}
            if value in named:
                named[value] = sorted([*named[value], generation])
            record["named"] = named
        else:
            break
        lines[place] = _line(name, record, line)
        scope = "every chip" if "v" in record else f"chips of generation {generation}"
        return f"data row {name}: {value!r} for {scope}; check that the other chips agree"
    return f"by hand: {name} should be {value!r}"
