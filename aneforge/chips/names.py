"""The names that people use for chips, alone and in lists: ``m1``, ``M2 Pro``, ``m1..m6``, ``all``.

There are four namespaces. A plain name is looked up as a compiler target, then as a product, then as a
SoC id; a prefix (``compiler:``, ``product:``, ``soc:``, ``runtime:``) names the namespace. The string that a device
reports looks like a compiler target but is not one, so it is reached only by prefix or through
:func:`runtime_arch`. There is no fallback: an unknown or ambiguous name is an error.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

from aneforge.chips import store
from aneforge.chips.chip import Target, all_targets, compiler_target, target_names
from aneforge.chips.evidence import Fact, fact
from aneforge.chips.families import Family, Family8, as_family
from aneforge.errors import AneforgeError, UnknownNameError, nearest


@dataclass(frozen=True)
class Resolution:
    """What a name means, and the evidence for it."""

    asked: str
    kind: str
    name: str
    target: Target
    fact: Fact[str]

    def __str__(self) -> str:
        return f"{self.name} is {self.target.name} {self.fact.label()}"


@dataclass(frozen=True)
class RuntimeArch:
    """An architecture string as a device reports it, and the compiler target to build for it."""

    name: str
    target: Target
    fact: Fact[str]


def target(name: str | int | Target) -> Target:
    """The target that a name means: ``target("h13g")``, ``target("M1 Max")``, ``target("a17 pro")``.

    A five-tier family (``Family.A14`` or its number) gives the family's representative.
    """
    if isinstance(name, Target):
        return name
    if isinstance(name, int):
        return compiler_target(arch_for_family(name))
    return resolve(name).target


@cache
def newest_below_the_floor() -> Target:
    """The target that stands for the oldest family, which has no representative: the newest of its targets that a
    product carries."""
    return [
        candidate for candidate in all_targets(only_28=True) if candidate.family5 is Family.OLDER and candidate.chips
    ][-1]


def resolve(name: str) -> Resolution:
    """Look a name up and say which namespace answered."""
    if not isinstance(name, str) or not name.strip():
        raise UnknownNameError(f"{name!r}: not a chip name; write a text such as 'M1 Max' or 'h13g'")
    prefix, colon, rest = name.partition(":")
    if colon and prefix.strip().casefold() in _LOOKUPS:
        kind = prefix.strip().casefold()
        match = _LOOKUPS[kind](_key(rest))
        if match is None:
            raise _unknown(rest.strip(), _names_of(kind), f"{kind} name")
        return _resolution(name, kind, match)
    key = _key(name)
    for kind in ("compiler", "product", "soc"):
        if kind == "product" and key in _family_labels():
            raise _ambiguous(name, key)
        match = _LOOKUPS[kind](key)
        if match is not None:
            return _resolution(name, kind, match)
    raise _unknown(name, [*_names_of("compiler"), *_names_of("product"), *_names_of("soc")], "chip or target")


def _resolution(asked: str, kind: str, match: _Match) -> Resolution:
    name, found, evidence = match
    return Resolution(asked, kind, name, found.of_product(name) if kind == "product" else found, evidence)


def chip_label(name: str) -> str:
    """What people call a chip: ``M5`` for the compiler target h17 or the spelling m5. A target that no product carries
    keeps its name."""
    try:
        known = resolve(name)
    except UnknownNameError:
        return name
    if known.kind != "compiler":
        return known.name
    return known.target.chips[0] if known.target.chips else known.name


def chip_labels(names: Iterable[str]) -> str:
    """Chips as people call them, each once."""
    return ", ".join(dict.fromkeys(map(chip_label, names)))


def in_reading_order(names: Iterable[str]) -> list[str]:
    """Chips as people look for them: Macs, then phones, then compiler targets that no product carries."""
    products = list(store.load("names")["products"])
    place = {name: products.index(label) for name in names if (label := chip_label(name)) in products}
    return sorted(names, key=lambda name: place.get(name, len(products)))


def with_label(text: str, chip: Target, label: str | None = None) -> str:
    """Text with the name that people use for a chip in place of the compiler's."""
    name = chip_label(chip.name) if label is None else label
    return re.sub(rf"\b{re.escape(chip.name)}\b", lambda _: name, text)


def runtime_arch(name: str) -> RuntimeArch:
    """The architecture string a device reports, for instance ``h14g`` on an M2."""
    match = _find_runtime(_key(name))
    if match is None:
        raise _unknown(name, _names_of("runtime"), "runtime architecture")
    return RuntimeArch(*match)


def family_of_arch(arch: str) -> Family:
    """The five-tier family of a runtime or compiler architecture string; ``KeyError`` if unknown."""
    if not isinstance(arch, str):
        raise UnknownNameError(f"{arch!r}: not an architecture; write a text such as 'h13'")
    key = arch.strip().casefold()
    if key not in target_names():
        raise _unknown(arch, target_names(), "architecture")
    family = compiler_target(key).family5
    if family is None:
        raise UnknownNameError(f"{key}: the architecture has no family: {_why_no_family(key)}")
    return family


def arch_for_family(family: int | str) -> str:
    """One representative compiler target per family: h13, h14, h15, h16s."""
    member = as_family(family)
    representatives = store.load("targets")["family5_representative"]["v"]
    if member.name not in representatives:
        raise UnknownNameError(
            f"family {int(member)} ({member.name}) has no representative target, because nothing below "
            f"{', '.join(representatives)} can run a converted program. Name a chip, for instance h12"
        )
    return representatives[member.name]


def _why_no_family(name: str) -> str:
    if compiler_target(name).is_reference:
        return "it is a reference profile, not silicon"
    return "no build constructs it, although the name is known"


def _key(name: str) -> str:
    """Case, spaces, hyphens, underscores and a leading 'Apple' do not matter."""
    key = "".join(name.casefold().split()).replace("-", "").replace("_", "")
    return key.removeprefix("apple") or key


_Match = tuple[str, Target, Fact[str]]


def _row(kind: str, name: str, row: dict[str, Any]) -> _Match:
    target_fact = fact(row, key="target", about=f"target of {kind} {name}")
    return name, compiler_target(row["target"]), target_fact


@cache
def _index(section: str) -> dict[str, str]:
    return {_key(name): name for name in store.load("names")[section]}


def _find_compiler(key: str) -> _Match | None:
    if key not in target_names():
        return None
    record = compiler_target(key)
    known = record["constructible"]
    return key, record, Fact(key, known.source, known.confidence, about=f"compiler target {key}")


def _find_product(key: str) -> _Match | None:
    name = _index("products").get(key)
    return None if name is None else _row("product", name, store.load("names")["products"][name])


def _find_soc(key: str) -> _Match | None:
    # T600x stands for every die of that series: T6000, T6001, T6002.
    name = _index("socs").get(key)
    if name is None and key[-1:].isdigit():
        name = _index("socs").get(key[:-1] + "x")
    return None if name is None else _row("SoC", name, store.load("names")["socs"][name])


def _find_runtime(key: str) -> _Match | None:
    name = _index("runtime").get(key)
    return None if name is None else _row("runtime architecture", name, store.load("names")["runtime"][name])


_LOOKUPS: dict[str, Callable[[str], _Match | None]] = {
    "compiler": _find_compiler,
    "product": _find_product,
    "soc": _find_soc,
    "runtime": _find_runtime,
}


def _names_of(kind: str) -> list[str]:
    if kind == "compiler":
        return list(target_names())
    return list(store.load("names")[{"product": "products", "soc": "socs", "runtime": "runtime"}[kind]])


@cache
def _family_labels() -> dict[str, Family8]:
    return {member.name.casefold(): member for member in Family8}


def _ambiguous(name: str, key: str) -> UnknownNameError:
    """Labels such as A13 name a compiler family and, with another meaning, a phone chip (C36)."""
    member = _family_labels()[key]
    targets = (
        ", ".join(candidate.name for candidate in all_targets(only_28=True) if candidate.family8 is member)
        or "no target"
    )
    products = [f"'{product}'" for product in _names_of("product") if _key(product).startswith(key)]
    phones = " or ".join("'product:A18'" if product == "'A18'" else product for product in products)
    hint = f" or, for the phone chip, {phones}" if phones else ""
    return UnknownNameError(
        f"{name!r} is ambiguous: it is the compiler's family {member.name} ({targets}) and not the phone chip "
        f"of that name (C36); name the target{hint}"
    )


def _unknown(name: str, known: list[str] | tuple[str, ...], what: str) -> UnknownNameError:
    near = ", ".join(nearest(name, known)) or ", ".join(known[:6])
    return UnknownNameError(f"no {what} {name!r}; nearest: {near} ('aneforge targets' lists all names)")


# The chips that a user names: ``m1``, ``m1,m5``, ``m1..m6``, ``all``, ``macs`` or ``phones``. One parser for all.


_END = re.compile(r"(\D*)(\d+)(\D*)")
_MOST = 99  # no series of chips is this long; a typing error may be

DEFAULT = "default"
"""What every function and command takes where no chip is named; what looks at one chip takes the first of them."""
SETTING = "ANEFORGE_TARGETS"
_DEFAULT_CHIPS = "m1..m6"

GROUPS = {
    DEFAULT: f"{_DEFAULT_CHIPS}, or the chips that {SETTING} names",
    "all": "the 28 targets of compiler build 9.509",
    "macs": "one chip for each engine of a Mac",
    "phones": "one chip for each engine of a phone",
}
"""Words for several chips, and what they mean."""


def chip_list(asked: str, option: str = "--target") -> list[str]:
    """The names in a list, each once: parts separated by commas, each a name, a range (``m1..m6``) or a group.

    A range counts the number in a name: ``m1 pro..m3 pro`` are three chips, ``h13g..h15g`` three targets. An unknown
    name is an error that lists the nearest names.
    """
    names: list[str] = []
    for part in (part.strip() for part in asked.split(",")):
        if part.casefold() in GROUPS:
            names += _group(part.casefold())
        elif ".." in part:
            names += _range(part, option)
        elif part:
            names.append(part)
    if not names:
        raise AneforgeError(
            f"{option} needs a chip; for instance {option} m1, {option} m1,m5, {option} m1..m6 or {option} all"
        )
    by_key: dict[str, str] = {}
    for name in names:
        resolve(name)
        by_key.setdefault(name.casefold(), name)
    return list(by_key.values())


def one_chip(asked: str, option: str = "--target") -> str:
    """The one chip that a command takes, in any spelling that names one; the first of the default chips."""
    names = chip_list(asked, option)
    if asked.strip().casefold() == DEFAULT:
        return names[0]
    if len(names) > 1:
        shown = ", ".join(names[:6]) + (", ..." if len(names) > 6 else "")
        raise AneforgeError(f"{option} takes one chip, but {asked!r} names {len(names)}; choose one: {shown}")
    return names[0]


def _default_chips() -> list[str]:
    """The chips of the environment, or those of every Mac's base chip."""
    asked = os.environ.get(SETTING, "").strip()
    return chip_list(asked if asked and asked.casefold() != DEFAULT else _DEFAULT_CHIPS, SETTING)


def _group(word: str) -> list[str]:
    if word == DEFAULT:
        return _default_chips()
    if word == "all":
        return [target.name for target in all_targets(only_28=True)]
    return list(_products("M" if word == "macs" else "A"))


@cache
def _products(letter: str) -> tuple[str, ...]:
    """One product per engine, in the order of the data. Of several, the first whose name means nothing else."""
    by_target: dict[str, list[str]] = {}
    for product, row in store.load("names")["products"].items():
        if re.match(rf"{letter}\d", product):
            by_target.setdefault(row["target"], []).append(product)
    return tuple(next(filter(_is_plain, products)) for products in by_target.values())


def _is_plain(product: str) -> bool:
    """Whether the name alone leads to a target. "A18", for instance, is also a family of the compiler."""
    try:
        resolve(product)
    except UnknownNameError:
        return False
    return True


def _range(part: str, option: str) -> list[str]:
    first, last = (end.strip() for end in part.split("..", 1))
    start, end = _END.fullmatch(first), _END.fullmatch(last)
    if start is None or end is None or not _alike(start, end):
        raise AneforgeError(
            f"{option}: {part!r} is not a range; both ends must be names that differ in a number, as in m1..m6"
        )
    low, high = int(start[2]), int(end[2])
    if low > high or high - low > _MOST:
        wrong = "runs backwards" if low > high else f"is longer than {_MOST} chips"
        raise AneforgeError(f"{option}: the range {part!r} {wrong}; write for instance m1..m6")
    names = [f"{start[1]}{number}{start[3]}" for number in range(low, high + 1)]
    for name in names:
        try:
            resolve(name)
        except UnknownNameError as error:
            raise UnknownNameError(f"{option}: {part!r} includes {name!r}: {error}") from None
    return names


def _alike(start: re.Match[str], end: re.Match[str]) -> bool:
    return all(start[group].strip().casefold() == end[group].strip().casefold() for group in (1, 3))
