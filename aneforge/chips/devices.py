"""Phones, tablets, Macs, TVs, headsets and watches: by marketing name, by identifier, and by the chip inside.

The records come from catalogues of devices (``devices.json``). A device leads to its chip, and the chip has two names
for its engine: what the operating system reports, and what a compiler is given (C71, C84).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from aneforge.chips import store
from aneforge.chips.evidence import Fact, fact, unknown
from aneforge.errors import UnknownNameError

_MOST_SHOWN = 6


@dataclass(frozen=True)
class Device:
    """One model of a device, as a catalogue lists it."""

    name: str
    identifier: str
    kind: str
    """phone, tablet, mac, tv, headset or watch"""
    chip: str
    t_number: str | None
    year: int
    memory_gb: Fact[list[int]]
    """The sizes that were sold; the maker does not publish those of phones and tablets."""
    fact: Fact[str]
    """The chip inside, and who says so."""
    other_names: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.name} ({self.identifier})"


@dataclass(frozen=True)
class ChipRecord:
    """A chip as the catalogues list it, with both names of its engine."""

    name: str
    t_numbers: tuple[str, ...]
    cores: int
    engines: int
    usable: bool | None
    """Whether Core ML can use the engine; ``None`` where nobody says."""
    reported: Fact[str | None]
    """What the operating system reports."""
    compile: Fact[str | None]
    """What a compiler is given."""
    other: Fact[str | None]
    """A further compile name that was seen."""
    note: str | None


@cache
def all_devices() -> tuple[Device, ...]:
    """Every device of the catalogues, in their order: phones, tablets, Macs, TVs, headsets, watches."""
    document = store.load("devices")
    return tuple(_device(row, document["evidence"]) for row in document["devices"])


def _device(row: dict[str, Any], evidence: list[list[Any]]) -> Device:
    about = f"memory of {row['name']}"
    memory = fact(row["memory_gb"], evidence, about=about) if "memory_gb" in row else unknown(about)
    return Device(
        row["name"],
        row["identifier"],
        row["class"],
        row["soc"],
        row.get("t_number"),
        row["year"],
        memory,
        fact(row, evidence, key="soc", about=f"chip of {row['identifier']}"),
        tuple(dict.fromkeys(row.get("other_names", {}).values())),
    )


@cache
def chip_records() -> dict[str, ChipRecord]:
    """The chips of these devices, by product name."""
    document = store.load("devices")
    return {row["soc"]: _chip(row, document["evidence"]) for row in document["chips"]}


def _chip(row: dict[str, Any], evidence: list[list[Any]]) -> ChipRecord:
    name = row["soc"]

    def engine_name(key: str, about: str) -> Fact[str | None]:
        return fact({**row, "conflict": "C84"}, evidence, key=key, about=f"{about} {name}")

    return ChipRecord(
        name,
        tuple(row["t_numbers"]),
        row["ane_cores"],
        row["engines"],
        row["usable"],
        engine_name("reported", "engine name that the system reports on"),
        engine_name("compile", "compile name of"),
        engine_name("compile_other", "other compile name of"),
        row.get("note"),
    )


def chips_with_number(number: str) -> list[str]:
    """The chips that carry a T number, such as t8140: more than one where a number is shared (C85)."""
    return [chip.name for chip in chip_records().values() if number in chip.t_numbers]


def numbers_like(pattern: str) -> dict[str, str]:
    """The full T numbers that a pattern such as t600x covers, each with its chip."""
    start = pattern.removesuffix("x")
    return {number: chip.name for chip in chip_records().values() for number in chip.t_numbers if number[:-1] == start}


def rules() -> dict[str, dict[str, Any]]:
    """What the catalogues say of numbers and names in general (DV01 and so on)."""
    document = store.load("devices")
    evidence = document["evidence"]
    return {
        row["id"]: {
            "id": row["id"],
            "rule": row["rule"],
            "evidence": row.get("evidence", ""),
            "label": fact(row, evidence, key="rule").label(),
        }
        for row in document["rules"]
    }


# Names as people write them. Words that only tell a modem or a size of storage apart do not change the chip.

_CHIP_WORDS = re.compile(r"\b([ams]\d+[xz]?) (pro|max|ultra|bionic)\b")
_IDENTIFIER = re.compile(r"([a-z]+)(\d+),(\d+)")
_STORAGE = re.compile(r"\b\d+ (?:or \d+ )?tb\b|\b\d+tb\b")
_SAME_CHIP = frozenset(["wi", "fi", "wifi", "cellular", "gsm", "cdma", "gps", "ethernet", "apple", "and", "with"])
_LONG_FORMS = {"gen": "generation", "in": "inch", "inches": "inch"}


def _words(name: str) -> tuple[str, ...]:
    """The words of a name: ``iPad Pro 11-inch (M4) Wi-Fi`` has ipad, pro, 11, inch, m4. A chip is one word."""
    text = re.sub(r"[^a-z0-9.]+", " ", name.casefold()).strip()
    text = _CHIP_WORDS.sub(r"\1\2", _STORAGE.sub(" ", text))
    return tuple(_LONG_FORMS.get(word, word) for word in text.split() if word not in _SAME_CHIP)


def _all_words(name: str) -> tuple[str, ...]:
    return tuple(re.sub(r"[^a-z0-9.]+", " ", name.casefold()).split())


@cache
def _index() -> tuple[dict[str, list[Device]], dict[str, list[Device]], list[tuple[frozenset[str], Device]]]:
    """Devices by identifier, by name without spaces, and with all the words that may be said of them."""
    by_identifier: dict[str, list[Device]] = {}
    by_name: dict[str, list[Device]] = {}
    said = []
    for device in all_devices():
        by_identifier.setdefault(device.identifier.casefold(), []).append(device)
        for key in {"".join(_words(device.name)), "".join(_all_words(device.name))}:
            by_name.setdefault(key, []).append(device)
        words = {word for name in (device.name, *device.other_names) for word in _words(name)}
        said.append((frozenset(words | {"".join(_words(device.chip)), str(device.year)}), device))
    return by_identifier, by_name, said


@cache
def _first_words() -> frozenset[str]:
    """What the name of a device begins with: iphone, ipad, mac, macbook, ..."""
    return frozenset(_words(device.name)[0] for device in all_devices())


def find_devices(name: str) -> list[Device]:
    """The devices that a name may mean: an identifier, a full name, or enough words of one; none for other texts."""
    by_identifier, by_name, said = _index()
    identifier = "".join(name.casefold().split())
    if _IDENTIFIER.fullmatch(identifier):
        return by_identifier.get(identifier, [])
    words = _words(name)
    exact = by_name.get("".join(_all_words(name))) or by_name.get("".join(words))
    if exact:
        return exact
    if not words or words[0] not in _first_words():
        return []
    return [device for known, device in said if known.issuperset(words)]


def is_identifier(name: str) -> bool:
    """Whether a text has the form of an identifier: ``Mac18,5``."""
    return _IDENTIFIER.fullmatch("".join(name.casefold().split())) is not None


def one_name(asked: str, found: list[Device]) -> str:
    """What to call the devices that a name meant: the one name, the identifier, or what was asked for."""
    names = {device.name for device in found}
    if len(names) == 1:
        return names.pop()
    shared = [name for name in found[0].other_names if all(name in device.other_names for device in found)]
    return shared[0] if shared else " ".join(asked.split())


def ambiguous(asked: str, found: list[Device]) -> UnknownNameError:
    """The error for a name that devices with different chips have: it lists them."""
    by_chip: dict[str, Device] = {}
    for device in found:
        by_chip.setdefault(device.chip, device)
    listed = [*by_chip.values(), *(device for device in found if by_chip[device.chip] is not device)]
    shown = [f"{device} with {device.chip}" for device in listed[:_MOST_SHOWN]]
    more = f", and {len(found) - _MOST_SHOWN} more" if len(found) > _MOST_SHOWN else ""
    return UnknownNameError(
        f"{asked!r} is ambiguous: {len(found)} devices have that name, with {len(by_chip)} chips; write one of them: "
        f"{'; '.join(shown)}{more}"
    )


def device_names() -> list[str]:
    """Names and identifiers of all devices, each once."""
    names = (name for device in all_devices() for name in (device.name, device.identifier))
    return list(dict.fromkeys(names))


def split_names(text: str) -> list[str]:
    """The parts of a list of names. A comma inside an identifier (``Mac18,5``) or in brackets separates nothing."""
    parts: list[str] = []
    for part in _outside_brackets(text):
        if parts and part.isdigit() and re.fullmatch(r"(?:device:)?[a-z]+\d+", parts[-1], re.IGNORECASE):
            parts[-1] = f"{parts[-1]},{part}"
        else:
            parts.append(part)
    return parts


def _outside_brackets(text: str) -> Iterator[str]:
    depth, start = 0, 0
    for place, letter in enumerate(text):
        depth = max(0, depth + (letter == "(") - (letter == ")"))
        if letter == "," and not depth:
            yield text[start:place].strip()
            start = place + 1
    yield text[start:].strip()


def chips_of(found: Iterable[Device]) -> list[str]:
    """The chips of devices, each once."""
    return list(dict.fromkeys(device.chip for device in found))
