"""Values with their evidence.

Every look-up of this package can return a :class:`Fact`: the value, who published it, how certain that
is, and, where sources disagree, the conflict and the values that lost. Confidence is one word:

``measured``  on silicon, or on a file that the vendor's compiler emitted
``decoded``   read out of the vendor's compiler
``predicted`` follows from the per-chip tables, not seen on a chip
``inferred``  concluded from other facts, here or upstream
``published`` said by the maker or a catalogue of devices; nobody measured it
``unverified`` said without a source that could be looked up
``unknown``   not published; the value is ``None``
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Generic, TypeVar

from aneforge.chips import store
from aneforge.errors import UnknownNameError, UnknownValueError, nearest

T = TypeVar("T")
CONFIDENCE = ("measured", "decoded", "predicted", "inferred")
CATALOGUED = ("published", "unverified")
"""What catalogues of devices add: names, identifiers, years and sizes of memory."""
UNKNOWN = "unknown"


@dataclass(frozen=True)
class Conflict:
    """Sources disagree (C ids, from the facts) or are silent (U ids, our own choices)."""

    id: str
    subject: str
    values: str
    winner: str

    def __str__(self) -> str:
        return f"{self.id}: {self.subject}: {self.winner}"


@dataclass(frozen=True)
class Fact(Generic[T]):
    """A value with its evidence. ``value`` is ``None`` exactly when none is published."""

    value: T
    source: tuple[str, ...] = ()
    confidence: str = UNKNOWN
    about: str = ""
    note: str | None = None
    conflict_id: str | None = None
    losers: tuple[Fact[Any], ...] = ()
    taken_from: str | None = None

    @property
    def known(self) -> bool:
        """Whether a value is published."""
        return self.value is not None

    @property
    def conflict(self) -> Conflict | None:
        """The disagreement behind this value, if there is one."""
        return conflict(self.conflict_id) if self.conflict_id else None

    def require(self) -> T:
        """The value, or an error that says what is not published."""
        if self.value is None:
            raise UnknownValueError(f"{self.about or 'this value'} is not published; see docs/reference/unknowns.md")
        return self.value

    def label(self) -> str:
        """Evidence in brackets, as reports print it: ``[decoded: S24, GA; C03, not h14]``."""
        parts = [f"{self.confidence}: {', '.join(self.source)}" if self.source else self.confidence]
        if self.conflict_id:
            lost = ", ".join(str(loser.value) for loser in self.losers)
            parts.append(f"{self.conflict_id}, not {lost}" if lost else self.conflict_id)
        if self.taken_from:
            parts.append(f"from {self.taken_from}")
        return f"[{'; '.join(parts)}]"

    def __str__(self) -> str:
        return f"{'unknown' if self.value is None else self.value} {self.label()}"

    def to_json(self) -> dict[str, Any]:
        record: dict[str, Any] = {"value": self.value, "source": list(self.source), "confidence": self.confidence}
        for key, value in (
            ("note", self.note),
            ("conflict", self.conflict_id),
            ("taken_from", self.taken_from),
            ("losers", [loser.to_json() for loser in self.losers]),
        ):
            if value:
                record[key] = value
        return record


def fact(
    record: Mapping[str, Any],
    evidence: Sequence[Sequence[Any]] = (),
    *,
    key: str = "v",
    about: str = "",
    family: str | None = None,
) -> Fact[Any]:
    """The fact that a data record states under ``key``.

    ``family`` picks one entry where a record gives its confidence per family.
    """
    value = record.get(key)
    source, confidence, tier = _evidence_of(record, evidence)
    note = record.get("note")
    if isinstance(confidence, Mapping):
        confidence = confidence.get(family, UNKNOWN)
    if isinstance(confidence, str) and ";" in confidence:  # "measured (M5); predicted (M4)"
        note = confidence if note is None else f"{note}; {confidence}"
        confidence = confidence.split()[0]
    if value is None:
        confidence = UNKNOWN
    return Fact(
        value=value,
        source=source,
        confidence=confidence or UNKNOWN,
        about=about,
        note=note,
        conflict_id=record.get("conflict"),
        losers=tuple(
            fact(loser, evidence, key=key if key in loser else "v", about=about)
            for loser in record.get("alt", ())
            if isinstance(loser, Mapping)
        ),
        taken_from=tier,
    )


def _evidence_of(
    record: Mapping[str, Any], evidence: Sequence[Sequence[Any]]
) -> tuple[tuple[str, ...], Any, str | None]:
    number = record.get("e", -1)
    if number >= 0:
        source, confidence, *tier = evidence[number]
        return tuple(source or ()), confidence, tier[0] if tier else None
    source = record.get("src", ())
    return ((source,) if isinstance(source, str) else tuple(source)), record.get("conf"), None


def unknown(about: str, note: str | None = None) -> Fact[Any]:
    return Fact(None, about=about, note=note)


def with_losers(winner: Fact[T], *losers: Fact[Any], conflict_id: str | None = None) -> Fact[T]:
    """``winner`` with the values it beat; losers that agree with it are dropped."""
    beaten = tuple(loser for loser in losers if loser.known and loser.value != winner.value)
    return replace(winner, losers=winner.losers + beaten, conflict_id=conflict_id or winner.conflict_id)


@cache
def sources() -> dict[str, str]:
    """What each source key means."""
    tables = ("sources", "choices", "gate_limits")
    return {key: meaning for topic in tables for key, meaning in store.load(topic)["sources"].items()}


@cache
def conflicts() -> dict[str, Conflict]:
    """Every disagreement and every choice of ours, by id."""
    by_id = {
        number: Conflict(number, row["subject"], row["values"], row["winner"])
        for number, row in store.load("conflicts")["conflicts"].items()
    }
    for number, row in store.load("choices")["choices"].items():
        values = "; ".join(row["instead"]) or "nothing published"
        by_id[number] = Conflict(number, row["subject"], values, f"{row['choice']}: {row['because']}")
    return by_id


def conflict(number: str) -> Conflict:
    """One disagreement by id (``C03``) or one of our choices (``U08``)."""
    entry = conflicts().get(number.upper())
    if entry is None:
        near = nearest(number, conflicts())
        raise UnknownNameError(f"{number!r}: not a conflict or choice; nearest: {', '.join(near) or 'C01, U01'}")
    return entry
