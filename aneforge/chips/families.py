"""The two family systems. They share numbers and labels, not meaning, so they are two types.

``Family8`` is the compiler's own enumeration (listing 35.1): it decides op floors and the cost bucket.
``Family`` is the five-tier fold of the public API: it decides limits, streaming formats and status.
"""

from __future__ import annotations

from enum import IntEnum

from aneforge.errors import FamilyError


class Family8(IntEnum):
    """The eight compiler families, in order. ``A13`` here is the M1, never a phone chip (C36)."""

    A11Legacy = 0
    A12 = 1
    A13 = 2
    A14 = 3
    A15 = 4
    A16 = 5
    A17 = 6
    A18 = 7


class Family(IntEnum):
    """The five capability tiers of the public API."""

    OLDER = 1
    A13 = 2
    A14 = 3
    A15 = 4
    A16 = 5


MIN_FAMILY = Family.A13
"""The model-language path asserts H13 or newer, so nothing below this family can run anything."""

_FAMILIES = {int(member): member for member in Family}


def as_family(family: int | str) -> Family:
    """The five-tier family that a number or a label names."""
    member = _FAMILIES.get(family) if isinstance(family, int) and not isinstance(family, bool) else None
    if member is None and isinstance(family, str):
        member = Family.__members__.get(family.strip().upper())
    if member is None:
        choices = ", ".join(f"{int(choice)} ({choice.name})" for choice in Family)
        raise FamilyError(f"family {family!r} is unknown; choose one: {choices}")
    return member


def as_family8(family: int | str) -> Family8:
    """The compiler family that a number or a label names."""
    try:
        if isinstance(family, str):
            return Family8[family.strip()]
        return Family8(family)
    except (KeyError, ValueError):
        choices = ", ".join(f"{int(member)} ({member.name})" for member in Family8)
        raise FamilyError(f"compiler family {family!r} is unknown; choose one: {choices}") from None


def supports_mil(family: int | str) -> bool:
    """Whether programs reach this family at all (the floor is :data:`MIN_FAMILY`)."""
    return as_family(family) >= MIN_FAMILY
