"""Which chips somebody means by ``m1,m5``, ``m1..m6`` or ``all``."""

from __future__ import annotations

import re

from aneforge.errors import AneforgeError, UnknownNameError
from aneforge.targets.chip import all_targets
from aneforge.targets.families import supports_mil
from aneforge.targets.names import resolve

__all__ = ["chip_list"]

_END = re.compile(r"(\D*)(\d+)(\D*)")
_MOST = 99  # no line of chips is this long; a slip of the finger is


def chip_list(asked: str, option: str = "--target") -> list[str]:
    """The names in a list: parts separated by commas, each a name or a range of them (``m1..m6``); ``all`` is every
    target of silicon that programs reach. Ranges count the number in a name: ``m1 pro..m3 pro`` are three chips."""
    if asked.strip().casefold() == "all":
        silicon = [each for each in all_targets() if each.constructible and each.family5 is not None]
        return [each.name for each in silicon if each.family5 and supports_mil(each.family5)]
    names: list[str] = []
    for part in (part.strip() for part in asked.split(",")):
        if ".." in part:
            names += _range(part, option)
        elif part:
            names.append(part)
    if not names:
        raise AneforgeError(f"{option} needs a chip, for instance {option} m1,m5 or {option} m1..m6 or {option} all")
    return names


def _range(part: str, option: str) -> list[str]:
    first, last = (end.strip() for end in part.split("..", 1))
    one, two = _END.fullmatch(first), _END.fullmatch(last)
    if one is None or two is None or not _alike(one, two):
        raise AneforgeError(f"{option}: {part!r} is no range; both ends are names that differ in a number, as m1..m6")
    low, high = int(one[2]), int(two[2])
    if low > high or high - low > _MOST:
        wrong = "runs backwards" if low > high else f"is longer than {_MOST} chips"
        raise AneforgeError(f"{option}: the range {part!r} {wrong}; say for instance m1..m6")
    names = [f"{one[1]}{number}{one[3]}" for number in range(low, high + 1)]
    for name in names:
        try:
            resolve(name)
        except UnknownNameError as error:
            raise UnknownNameError(f"{option}: {part!r} holds {name!r}: {error}") from None
    return names


def _alike(one: re.Match[str], two: re.Match[str]) -> bool:
    return all(one[group].strip().casefold() == two[group].strip().casefold() for group in (1, 3))
