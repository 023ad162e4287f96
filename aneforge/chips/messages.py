"""Messages that people met when a model met the engine: what is printed, why, and what helps.

The records are facts (``errors.json``, E ids). By which words a message is found, and what in a model shows a cause,
is ours (``error_causes.json``, U260 and U261).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from aneforge.chips import store
from aneforge.errors import DataError


@dataclass(frozen=True)
class CauseKind:
    """What shows a cause in a model, and what to do about it."""

    name: str
    about: str
    rules: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    structure: str = ""
    """A structure of ops that can be looked for where no rule speaks."""
    any_refusal: bool = False
    """Whether every refusal shows it."""
    commands: tuple[str, ...] = ()
    """Commands with ``MODEL`` and ``CHIP`` in them."""
    gives: str = ""
    """What these commands give."""


@dataclass(frozen=True)
class Cause:
    """One cause of a message."""

    rank: int
    """1 is the one that the sources name most often or most surely."""
    text: str
    kinds: tuple[CauseKind, ...] = ()
    """What shows it in a model; empty where no model shows it."""
    stands_for: str = ""
    """The entry whose causes it stands for."""


@dataclass(frozen=True)
class Message:
    """One entry: a message, or a symptom in words."""

    id: str
    text: str
    codes: tuple[str, ...]
    runtime: str
    stage: str
    causes: tuple[Cause, ...]
    cures: tuple[str, ...]
    chips: str | None
    systems: str | None
    threads: tuple[str, ...]
    confidence: str
    note: str
    is_symptom: bool
    """Whether it is a symptom in words, which no log prints."""
    phrases: tuple[str, ...]
    """The fixed words by which it is found, where its text does not serve: ``...`` stands for anything, ``#`` for a
    number."""

    def to_json(self) -> dict[str, Any]:
        causes = [
            {"rank": cause.rank, "cause": cause.text, "kinds": [kind.name for kind in cause.kinds]}
            for cause in self.causes
        ]
        return {
            "id": self.id,
            "message": self.text,
            "symptom": self.is_symptom,
            "codes": list(self.codes),
            "runtime": self.runtime,
            "stage": self.stage,
            "causes": causes,
            "cures": list(self.cures),
            "chips": self.chips,
            "os": self.systems,
            "threads": list(self.threads),
            "confidence": self.confidence,
            "note": self.note,
        }


@cache
def messages() -> dict[str, Message]:
    """Every entry by its id."""
    document, ours = store.load("errors"), store.load("error_causes")
    kinds = cause_kinds()
    return {row["id"]: _message(row, document["evidence"], ours, kinds) for row in document["errors"]}


@cache
def cause_kinds() -> dict[str, CauseKind]:
    """What shows causes in models, by name."""
    return {name: _kind(name, row) for name, row in store.load("error_causes")["kinds"].items()}


def _kind(name: str, row: dict[str, Any]) -> CauseKind:
    listed = {key: tuple(row.get(key, ())) for key in ("rules", "patterns")}
    return CauseKind(
        name, row["about"], listed["rules"], listed["patterns"], row.get("structure", ""),
        row.get("any_refusal", False), tuple(row.get("do", ())), row.get("shows", ""),
    )  # fmt: skip


def _message(
    row: dict[str, Any], evidence: list[list[Any]], ours: dict[str, Any], kinds: dict[str, CauseKind]
) -> Message:
    number, shown_by = row["id"], ours["causes"].get(row["id"], ())
    if len(shown_by) != len(row["causes"]):
        raise DataError(f"error_causes.json: {number} needs an entry for each of its {len(row['causes'])} causes")
    causes = tuple(_cause(cause, names, kinds) for cause, names in zip(row["causes"], shown_by, strict=True))
    return Message(
        id=number,
        text=row["message"],
        codes=tuple(row["codes"]),
        runtime=row["runtime"],
        stage=row["stage"],
        causes=tuple(sorted(causes, key=lambda cause: cause.rank)),
        cures=tuple(row["cure"]),
        chips=row.get("chips"),
        systems=row.get("os"),
        threads=tuple(row.get("threads", ())),
        confidence=evidence[row["e"]][1],
        note=row.get("note") or "",
        is_symptom=not row.get("literal", number not in ours["symptoms"]),
        phrases=tuple(ours["phrases"].get(number, ())),
    )


def _cause(row: dict[str, Any], names: list[str], kinds: dict[str, CauseKind]) -> Cause:
    stands_for = next((name for name in names if name not in kinds), "")
    shown_by = tuple(kinds[name] for name in names if name in kinds)
    return Cause(row["rank"], row["cause"], shown_by, stands_for)


def causes_of(message: Message, seen: frozenset[str] = frozenset()) -> Iterator[tuple[Message, Cause]]:
    """The causes of an entry in order of rank, with those of entries that it stands for in their place."""
    for cause in message.causes:
        if cause.stands_for and cause.stands_for not in seen:
            yield from causes_of(messages()[cause.stands_for], seen | {message.id})
        else:
            yield message, cause
