"""The names that people use for chips, alone and in lists: ``m1``, ``M2 Pro``, ``iPhone 15 Pro``, ``m1..m6``, ``all``.

There are five namespaces. A plain name is looked up as a compiler target, then as a product, then as a SoC id, then
as a device; a prefix (``target:`` or ``compiler:``, ``product:``, ``soc:``, ``device:``, ``runtime:``) names the
namespace. The string that a device reports looks like a compiler target but is not one: it is reached only by prefix
or through :func:`runtime_arch`. There is no fallback: an unknown or ambiguous name is an error.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from aneforge.chips import devices, store
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
        inside = f" has {self.target.product}, which" if self.kind in _BY_CHIP else ""
        return f"{self.name}{inside} is {self.target.name} {self.fact.label()}"


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
    kind = _ALIASES.get(prefix.strip().casefold(), prefix.strip().casefold())
    if colon and kind in _LOOKUPS:
        match = _LOOKUPS[kind](rest if kind == "device" else _key(rest))
        if match is None:
            raise _unknown(rest.strip(), _names_of(kind), f"{kind} name")
        return _resolution(name, kind, match)
    key = _key(name)
    for kind in ("compiler", "product", "soc", "device"):
        if kind == "product" and key in _family_labels():
            raise _ambiguous(name, key)
        match = _LOOKUPS[kind](name if kind == "device" else key)
        if match is not None:
            return _resolution(name, kind, match)
    plain = [known for known in _names_of("compiler") if not _is_like_a_product(known)]
    known = [*_names_of("product"), *_names_of("device"), *_names_of("soc"), *plain]
    raise _unknown(name, known, "chip or target")


def _resolution(asked: str, kind: str, match: _Match) -> Resolution:
    name, found, evidence = match
    return Resolution(asked, kind, name, found.of_product(name) if kind == "product" else found, evidence)


_ALIASES = {"target": "compiler"}
_BY_CHIP = ("device", "soc")


def engine_names(product: str) -> dict[str, Fact[Any]]:
    """Both names of a product's engine, and the target whose tables answer for it here (C71, C84, U190).

    What the system reports is the published read, else the target that the product is mapped to, where some device
    reports that name or the compile name is another one.
    """
    names = store.load("names")
    product = names["variants"].get(product, {}).get("product", product)
    row, record = names["products"][product], devices.chip_records()[product]
    reported, tables = record.reported, fact(row, key="target", about=f"target of product {product}")
    if not reported.known and (row["target"] != record.compile.value or row["target"] in names["runtime"]):
        reported = replace(tables, confidence="inferred")
    shown = {"reported by the system": reported, "given to a compiler": record.compile}
    if record.other.known:
        shown["also seen as"] = replace(record.other, confidence="inferred")
    if record.compile.value != row["target"]:
        tables = Fact(row["target"], ("C84",), "inferred", tables.about, "a choice", "U190")
    return {**shown, "tables used here": tables}


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
    place = {name: products.index(label) for name in names if (label := _product_label(name)) in products}
    return sorted(names, key=lambda name: place.get(name, len(products)))


def _product_label(name: str) -> str:
    """The product that a name leads to; its label where it leads to none."""
    try:
        product = resolve(name).target.product
    except UnknownNameError:
        product = None
    return store.load("names")["variants"].get(product, {}).get("product", product) or chip_label(name)


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
    key = re.sub(r"[\s\-_()]", "", name.casefold())
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
    names, index = store.load("names"), _index("products")
    variant = _index("variants").get(key)
    if variant is not None:
        row = names["variants"][variant]
        product = names["products"][row["product"]]
        return variant, compiler_target(product["target"]), _row("product", variant, product)[2]
    name = index.get(key) or index.get(f"{key}bionic")
    if name is None:
        _refuse_chip(key)
    return None if name is None else _row("product", name, names["products"][name])


def _refuse_chip(key: str) -> None:
    """An error for a chip whose engine no program reaches: Core ML cannot use it, or its target has no name."""
    for name in devices.chip_records():
        if key in (_key(name), _key(name).removesuffix("bionic")):
            _product_of(name)


def _product_of(chip: str, t_number: str | None = None) -> _Match:
    """The product of a chip that a device carries, or the reason why there is none."""
    record, names = devices.chip_records()[chip], store.load("names")
    if record.usable is False:
        raise UnknownNameError(
            f"{chip}: its engine of {record.cores} cores cannot be used from Core ML (HOLD, C86); "
            "choose A12 Bionic or newer"
        )
    if not record.compile.known:
        raise UnknownNameError(
            f"{chip}: its engine of {record.cores} cores has no published target name (C86), and its tables are not "
            "known; choose another chip"
        )
    variants = names["variants"].items()
    part = next((name for name, row in variants if t_number and row.get("t_number") == t_number), chip)
    match = _find_product(_key(part))
    if match is None:
        raise UnknownNameError(f"{chip}: names.json has no such product")
    return match


def _find_soc(key: str) -> _Match | None:
    """A chip by its full T number. A number that two chips share, or a series such as T600x, asks for more (C85)."""
    chips = devices.chips_with_number(key)
    if len(chips) > 1:
        for chip in chips:
            _product_of(chip)  # where no chip with that number has a target, that is the reason
        products = " or ".join(f"'product:{chip}'" for chip in chips)
        raise UnknownNameError(f"{key.upper()} is shared by {' and '.join(chips)} (C85); write {products}")
    if chips:
        product, found, evidence = _product_of(chips[0], key)
        return key.upper(), found.of_product(product), evidence
    series = devices.numbers_like(key) if re.fullmatch(r"t\d{3}x", key) else {}
    if series:
        listed = ", ".join(f"{number.upper()} ({chip})" for number, chip in series.items())
        raise UnknownNameError(f"{key!r} is a series of chips (C85); write the full number: {listed}")
    return None


def _find_device(name: str) -> _Match | None:
    """A device by identifier or marketing name, with the chip inside."""
    found = devices.find_devices(name)
    if not found:
        return None
    if len(devices.chips_of(found)) > 1:
        raise devices.ambiguous(name.strip(), found)
    label, parts = devices.one_name(name, found), {device.t_number for device in found}
    try:
        product, target, evidence = _product_of(found[0].chip, parts.pop() if len(parts) == 1 else None)
    except UnknownNameError as error:
        raise UnknownNameError(f"{label}: {error}") from None
    source = tuple(dict.fromkeys((*found[0].fact.source, *evidence.source)))
    return label, target.of_product(product), replace(evidence, source=source)


def _find_runtime(key: str) -> _Match | None:
    name = _index("runtime").get(key)
    return None if name is None else _row("runtime architecture", name, store.load("names")["runtime"][name])


_LOOKUPS: dict[str, Callable[[str], _Match | None]] = {
    "compiler": _find_compiler,
    "product": _find_product,
    "soc": _find_soc,
    "device": _find_device,
    "runtime": _find_runtime,
}


def _names_of(kind: str) -> list[str]:
    if kind == "compiler":
        return list(target_names())
    if kind == "device":
        return devices.device_names()
    if kind == "soc":
        return [number.upper() for chip in devices.chip_records().values() for number in chip.t_numbers]
    names = store.load("names")
    return list(names["runtime"] if kind == "runtime" else [*names["products"], *names["variants"]])


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


@cache
def _is_like_a_product(name: str) -> bool:
    """Whether a compiler target reads like a product, as m9 does, and is none."""
    letters = {product[0].casefold() for product in store.load("names")["products"]}
    return name in target_names() and name[0] in letters and name[1:].isdigit()


def refuse_target_like_a_product(name: str) -> None:
    """An error for the plain name of a compiler target that people would take for a product: m9, m11, m12."""
    key = _key(name)
    if _is_like_a_product(key) and _index("products").get(key) is None:
        raise UnknownNameError(f"{name.strip()!r} is a compiler target, no product is called that; write target:{key}")


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


def chip_list(asked: str, option: str = "--target", *, typed: bool = False) -> list[str]:
    """The names in a list, each once: parts separated by commas, each a name, a range (``m1..m6``) or a group.
    The comma of an identifier (``Mac18,5``) belongs to it. Of what a person ``typed``, a target that is called
    like a product (``m9``) needs its prefix.

    A range counts the number in a name: ``m1 pro..m3 pro`` are three chips, ``h13g..h15g`` three targets. An unknown
    name is an error that lists the nearest names.
    """
    names: list[str] = []
    for part in devices.split_names(asked):
        if part.casefold() in GROUPS:
            names += _group(part.casefold())
        elif ".." in part:
            names += _range(part, option)
        elif part:
            if typed:
                refuse_target_like_a_product(part)
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


@cache
def first_chips(family: Family8) -> str:
    """The first Mac and the first phone of a compiler family or a later one. Its label reads like another chip's."""
    firsts = []
    for letter in "MA":
        own = (target(name) for name in _products(letter))
        firsts.append(next((chip for chip in own if chip.family8 is not None and chip.family8 >= family), None))
    return " and the ".join(chip.product for chip in firsts if chip is not None) or f"family {family.name}"


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
