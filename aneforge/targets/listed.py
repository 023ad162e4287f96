"""The chips that a user names: ``m1``, ``m1,m5``, ``m1..m6``, ``all``, ``macs`` or ``phones``. One parser for all."""

from __future__ import annotations

import os
import re
from functools import cache

from aneforge.errors import AneforgeError, UnknownNameError
from aneforge.targets import store
from aneforge.targets.chip import all_targets
from aneforge.targets.names import resolve

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
