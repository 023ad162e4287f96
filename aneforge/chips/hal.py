"""The hardware-abstraction table: limits by byte offset or name, capability bytes read as ``byte & 1``.

Offsets belong to a compiler build. Build 9.509 is the one the seed documents decode; build 10.26.6 moved
most offsets and is the only one that constructs the newest targets. A :class:`Hal` is a target seen through
one build. As with :class:`~aneforge.chips.chip.Target`, a dot gives the plain value and brackets the
fact; a plain read of an unpublished cell is an error, never a zero.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

from aneforge.chips import store
from aneforge.chips.chip import Target, compiler_target
from aneforge.chips.evidence import Fact, fact, unknown
from aneforge.chips.families import Family, as_family
from aneforge.chips.names import arch_for_family
from aneforge.errors import UnknownNameError, UnknownValueError, nearest

OLD_BUILD = "9.509"
NEW_BUILD = "10.26.6"
BUILDS = (OLD_BUILD, NEW_BUILD)


@dataclass(frozen=True)
class HalField:
    """One field of the table: where it is, what it means, who reads it."""

    name: str
    offset: int | None
    end: int | None
    width: int
    meaning: str
    kind: str
    status: str
    readers: tuple[str, ...]
    aliases: tuple[str, ...]
    build: str
    other_offset: int | None
    evidence: Fact[str]

    @property
    def is_capability(self) -> bool:
        """A single-byte switch, read as ``byte & 1``."""
        return self.kind == "capability byte"

    @property
    def dead(self) -> bool:
        """Written by the builder and never read back through the table: a value here gates nothing."""
        return self.status == "dead"

    write_only = dead

    @property
    def where(self) -> str:
        if self.offset is None:
            return "no offset"
        return f"{self.offset:#x}" if self.end is None else f"{self.offset:#x}..{self.end:#x}"

    def covers(self, offset: int) -> bool:
        if self.offset is None:
            return False
        end = self.end if self.end is not None else self.offset + max(self.width, 1) - 1
        return self.offset <= offset <= end

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "offset": self.where,
            "width": self.width,
            "meaning": self.meaning,
            "kind": self.kind,
            "status": self.status,
            "dead": self.dead,
            "readers": list(self.readers),
            "build": self.build,
            "source": list(self.evidence.source),
            "confidence": self.evidence.confidence,
        }


@dataclass(frozen=True)
class HalDifference:
    """One field on which two targets differ."""

    field: HalField
    left: Fact[Any]
    right: Fact[Any]

    @property
    def certain(self) -> bool:
        """Both sides are published (otherwise one side is unknown)."""
        return self.left.known and self.right.known


class Hal:
    """The table of one target as one compiler build holds it.

    >>> h13 = Hal(compiler_target("h13"))
    >>> h13.max_tensor_width, h13[0x138].confidence, h13.cap(0x81d), h13.has("softmax")
    (16384, 'decoded', False, True)
    """

    def __init__(self, target: Target, build: str | None = None) -> None:
        if build is None:
            build = OLD_BUILD if _has_column(target.name) else NEW_BUILD
        if build not in BUILDS:
            raise UnknownNameError(f"compiler build {build!r} is unknown; choose one: {', '.join(BUILDS)}")
        if target.constructible is False:
            raise UnknownValueError(
                f"{target.name}: no HAL table, because no build constructs this target, although the name is known"
            )
        self.target = target
        self.build = build

    def at_build(self, build: str) -> Hal:
        """The same target through another build's offsets."""
        return Hal(self.target, build)

    def field(self, key: int | str) -> HalField:
        """The field at a byte offset (``0x138`` or ``"0x138"``) or with a name."""
        return hal_fields(self.build).find(key)

    def fields(self) -> Iterator[HalField]:
        return iter(hal_fields(self.build).by_name.values())

    def __getitem__(self, key: int | str) -> Fact[Any]:
        """The value at an offset or name, with its evidence; an unpublished cell is an unknown fact."""
        field = self.field(key)
        about = f"HAL {field.where} {field.name} of {self.target.name} (build {self.build})"
        return replace(_cell(self.target.name, field, about), about=about)

    def read(self, key: int | str) -> Any:
        """The plain value at an offset or name; an unpublished cell is an error."""
        return self[key].require()

    def cap(self, offset: int | str) -> bool:
        """A capability byte, as the compiler reads it: ``byte & 1``."""
        field = self.field(offset)
        if not field.is_capability:
            raise UnknownNameError(
                f"HAL {field.where} ({field.name}): not a capability byte but a {field.kind} field; read its value"
            )
        return bool(self[offset].require() & 1)

    def has(self, name: str) -> bool:
        """A capability by name: ``hal.has("texture_engine")``."""
        return self.cap(name)

    def assume(self, key: int | str, value: Any, why: str) -> Fact[Any]:
        """The published fact, or ``value`` marked as an assumption together with its reason."""
        published = self[key]
        return (
            published
            if published.known
            else replace(published, value=value, confidence="inferred", note=f"assumed: {why}")
        )

    def diff(self, other: Hal, unknowns: bool = False) -> list[HalDifference]:
        """Fields whose published values differ; with ``unknowns``, also those published for one side only."""
        if self.build != other.build:
            other = other.at_build(self.build)
        rows = (HalDifference(field, self[field.name], other[field.name]) for field in self.fields())
        return [row for row in rows if row.left.value != row.right.value and (unknowns or row.certain)]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            return self.read(name)
        except UnknownNameError as error:
            raise AttributeError(str(error)) from None

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *hal_fields(self.build).by_name]

    def __repr__(self) -> str:
        return f"Hal({self.target.name!r}, build={self.build!r})"

    def to_json(self) -> dict[str, Any]:
        cells = {field.name: {"field": field.to_json(), **self[field.name].to_json()} for field in self.fields()}
        return {"target": self.target.name, "build": self.build, "fields": cells}


def has_texture_engine(family: int | str) -> bool:
    """Whether a five-tier family has the texture engine (byte 0x81d); nothing below A13 does."""
    member = as_family(family)
    name = "h11" if member is Family.OLDER else arch_for_family(member)
    return compiler_target(name).hal.has("texture_engine")


class HalLayout:
    """The fields of one build, by name and by offset."""

    def __init__(self, build: str, fields: list[HalField], size: int, rejected: dict[str, str]) -> None:
        self.build = build
        self.by_name = {field.name: field for field in fields}
        self.size = size
        self._rejected = rejected

    @cached_property
    def by_offset(self) -> dict[int, HalField]:
        """Exact offsets; where a block and a field start together, the field is meant."""
        fields = sorted(self.by_name.values(), key=lambda field: field.end is None)
        return {field.offset: field for field in fields if field.offset is not None}

    def find(self, key: int | str) -> HalField:
        if isinstance(key, str) and not re.fullmatch(r"\s*0[xX][0-9a-fA-F]+\s*", key):
            return self._by_word(key.strip())
        offset = int(key, 16) if isinstance(key, str) else key
        exact = self.by_offset.get(offset)
        if exact is not None:
            return exact
        rejected = next((why for where, why in self._rejected.items() if _inside(offset, where)), None)
        if rejected:
            raise UnknownNameError(f"HAL offset {offset:#x} is not a table field: {rejected}")
        around = [field for field in self.by_name.values() if field.covers(offset)]
        single = next((field for field in around if field.end is None), None)
        if single is not None:
            raise UnknownNameError(
                f"HAL offset {offset:#x} lies inside {single.name} ({single.where}, {single.width} bytes); "
                f"read {single.where} (build {self.build})"
            )
        if around:
            return around[0]
        raise UnknownNameError(self._no_field(offset))

    def _by_word(self, word: str) -> HalField:
        field = self.by_name.get(word)
        if field is None:
            field = next((candidate for candidate in self.by_name.values() if word in candidate.aliases), None)
        if field is None:
            near = ", ".join(nearest(word, self.by_name)) or "max_tensor_width, texture_engine"
            raise UnknownNameError(f"{word!r}: not a HAL field of build {self.build}; nearest: {near}")
        return field

    def _no_field(self, offset: int) -> str:
        if not 0 <= offset < self.size:
            return f"HAL offset {offset:#x} is outside the table, which is {self.size:#x} bytes in build {self.build}"
        near = sorted(self.by_offset.values(), key=lambda field: abs((field.offset or 0) - offset))[:3]
        listed = ", ".join(f"{field.where} {field.name}" for field in near)
        return f"HAL offset {offset:#x}: no field is known there in build {self.build}; nearest: {listed}"


def hal_fields(build: str = OLD_BUILD) -> HalLayout:
    """The decoded field map of a compiler build."""
    return _old_layout() if build == OLD_BUILD else _new_layout()


@cache
def _old_layout() -> HalLayout:
    document = store.load("hal_fields")
    fields = [_old_field(row, document["evidence"]) for row in document["fields"]]
    named = {field.name for field in fields}
    # Values published by meaning only (appendix A) and names seen without an offset.
    for name in store.load("hal_values")["values_without_offset"]:
        fields.append(_offsetless(name, "published by meaning; offset not known", ("GA",), named))
    for row in document["names_without_offset"]:
        if row["name"] not in named:
            source = document["evidence"][row["e"]][0]
            fields.append(_offsetless(row["name"], row["meaning"], tuple(source), named))
    rejected = {row["offset"]: row["why"] for row in document["rejected_offsets"]}
    return HalLayout(OLD_BUILD, fields, int(document["meta"]["struct_size"]["v"], 16), rejected)


def _old_field(row: dict[str, Any], evidence: list[list[Any]]) -> HalField:
    start, end = _span(row["offset"])
    moved = row.get("off_10")
    return HalField(
        name=row["name"],
        offset=start,
        end=end,
        width=row["width"],
        meaning=row["meaning"],
        kind=row["kind"],
        status=row["status"],
        readers=tuple(row["readers"]),
        aliases=tuple(row.get("aliases", ())),
        build=OLD_BUILD,
        other_offset=int(moved, 16) if moved else None,
        evidence=fact(row, evidence, key="meaning", about=f"HAL field {row['name']}"),
    )


def _offsetless(name: str, meaning: str, source: tuple[str, ...], named: set[str]) -> HalField:
    named.add(name)
    evidence = Fact(meaning, source, "decoded", about=f"HAL field {name}")
    return HalField(name, None, None, 0, meaning, "scalar", "no offset", (), (), OLD_BUILD, None, evidence)


@cache
def _new_layout() -> HalLayout:
    """Build 10.26.6: what moved keeps its 9.509 name; what is new is named after its meaning."""
    document = store.load("hal_fields")["build_10_26_6"]
    evidence = store.load("hal_fields")["evidence"]
    moved = {field.other_offset: field for field in _old_layout().by_name.values() if field.other_offset is not None}
    fields = []
    for offset, old in moved.items():
        fields.append(replace(old, offset=offset, end=None, build=NEW_BUILD, other_offset=old.offset))
    taken = {field.name for field in fields}
    # The rest still exist at unpublished offsets, except for those that the data say are gone (the core count, C37).
    removed = {row["name"] for row in store.load("hal_fields")["fields"] if row.get("off_10", "") is None}
    for old in _old_layout().by_name.values():
        if old.name not in taken and old.name not in removed:
            fields.append(replace(old, offset=None, end=None, build=NEW_BUILD, other_offset=old.offset))
            taken.add(old.name)
    for row in document["fields"]:
        for start, end, part in _parts(row):
            if start in moved:
                continue
            name = _slug(row["meaning"]) + part
            if name in taken:
                name = f"{name}_{start:#x}"
            taken.add(name)
            meaning = fact(row, evidence, key="meaning", about=f"HAL field {name}")
            readers = tuple(row["readers"])
            fields.append(
                HalField(name, start, end, 0, row["meaning"], "scalar", "named", readers, (), NEW_BUILD, None, meaning)
            )
    return HalLayout(NEW_BUILD, fields, int(document["struct_size"]["v"], 16), {})


def _parts(row: dict[str, Any]) -> list[tuple[int, int | None, str]]:
    """Offsets of one 10.26.6 record: ``0x5a0/0x5a8`` are two fields, ``0x5fb..0x5fd`` is one block."""
    offsets = row["offset"].split("/")
    if len(offsets) == 1:
        return [(*_span(offsets[0]), "")]
    return [(int(offset, 16), None, f"_{number}") for number, offset in enumerate(offsets)]


def _slug(meaning: str) -> str:
    words = re.sub(r"\(.*?\)|[:,].*", "", meaning.casefold())
    return re.sub(r"[^a-z0-9]+", "_", words).strip("_")


def _span(offset: str) -> tuple[int, int | None]:
    start, _, end = offset.partition("..")
    return int(start, 16), int(end, 16) if end else None


def _inside(offset: int, where: str) -> bool:
    start, end = _span(where)
    return start <= offset <= (start if end is None else end)


@cache
def _columns() -> dict[str, int]:
    return {name: number for number, name in enumerate(store.load("hal_values")["targets"])}


@cache
def _rows() -> dict[tuple[int, int | None], dict[str, Any]]:
    return {_span(offset): row for offset, row in store.load("hal_values")["values"].items()}


def _has_column(name: str) -> bool:
    parent = store.load("names")["inherits"].get(name)
    if parent and parent["conf"] == "decoded":  # h18a and h18p are strings for the h18 table
        name = parent["from"]
    return name in _columns()


def _cell(name: str, field: HalField, about: str) -> Fact[Any]:
    if field.build == NEW_BUILD:
        return _new_build_cell(name, field, about)
    column = _columns().get(name)
    if column is None:
        return _inherited(name, field, about)
    document = store.load("hal_values")
    if field.offset is None:
        row = document["values_without_offset"].get(field.name)
    else:
        row = _rows().get((field.offset, field.end))
    if row is None:
        return unknown(about)
    cell = {"v": row["v"][column], "e": row["e"][column], **row.get("extra", {}).get(name, {})}
    return fact(cell, document["evidence"], about=about)


def _new_build_cell(name: str, field: HalField, about: str) -> Fact[Any]:
    """Stated for this build, else stated for the table it inherits, else the value of the older build."""
    own = _new_cell(name, field, about)
    if own.known:
        return own
    inherited = _inherited(name, field, about)
    if inherited.known:
        return inherited
    old = _old_layout().by_name.get(field.name)
    return own if old is None else _with_note(_cell(name, old, about), f"value of build {OLD_BUILD}")


def _with_note(value_fact: Fact[Any], note: str) -> Fact[Any]:
    if not value_fact.known:
        return value_fact
    notes = note if value_fact.note is None else f"{value_fact.note}; {note}"
    return replace(value_fact, confidence="inferred", note=notes)


def _inherited(name: str, field: HalField, about: str) -> Fact[Any]:
    """The nearest older table, for targets that only the newer build constructs (U07)."""
    parent = store.load("names")["inherits"].get(name)
    if parent is None:
        return unknown(about)
    parent_cell = _cell(parent["from"], field, about)
    if not parent_cell.known:
        return parent_cell
    confidence = parent_cell.confidence if parent["conf"] == "decoded" else "inferred"
    return replace(parent_cell, confidence=confidence, conflict_id=parent["conflict"], taken_from=parent["from"])


def _new_cell(name: str, field: HalField, about: str) -> Fact[Any]:
    """A value that the 10.26.6 study printed, by exact target, die variant or ``h16+`` range."""
    document = store.load("hal_fields")
    for row in document["build_10_26_6"]["fields"]:
        for number, (start, _, _) in enumerate(_parts(row)):
            if start != field.offset:
                continue
            key = _key_for(name, row["values"])
            if key is None:
                continue
            value = row["values"][key]
            if isinstance(value, list) and len(value) == len(_parts(row)) > 1:
                value = value[number]
            record = {"v": value, "e": row["e"], "note": row.get("note"), "conflict": row.get("conflict")}
            printed = fact(record, document["evidence"], about=about)
            return printed if key == name else replace(printed, taken_from=key)
    return unknown(about)


def _key_for(name: str, values: dict[str, Any]) -> str | None:
    if name in values:
        return name
    match = re.fullmatch(r"h(\d+)([a-z]?)", name)
    if match is None:
        return None
    generation = int(match[1])
    # Die variants of one generation have one table, except for those to which the data give their own table class.
    if f"h{generation}" in values and not compiler_target(name).own_table:
        return f"h{generation}"
    ranges = (key for key in values if key.endswith("+") and generation >= int(key[1:-1]))
    return max(ranges, key=lambda key: int(key[1:-1]), default=None)
