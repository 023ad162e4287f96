"""Which operation of one list is which of another: by name, then by structure. Nothing is guessed."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple


class Aligned(NamedTuple):
    """Pairs of places, in the order of the first list, and the places that have no partner."""

    pairs: tuple[tuple[int, int], ...]
    only_first: tuple[int, ...]
    only_second: tuple[int, ...]


Described = tuple[str, Hashable]
"""The name of an operation, and what it is otherwise: its kind, or its kind and shape."""


def align(first: Sequence[Described], second: Sequence[Described]) -> Aligned:
    """Equal names are partners. Of the others, those of one structure are partners in their order where both lists
    have as many of them; with another count nobody can say which one is new, so all of them stay alone."""
    places = {name: place for place, (name, _) in enumerate(second)}
    partner = {place: places[name] for place, (name, _) in enumerate(first) if name in places}
    taken = set(partner.values())
    left = _by_structure(first, partner)
    right = _by_structure(second, taken)
    for structure, ours in left.items():
        theirs = right.get(structure, [])
        if len(theirs) == len(ours):
            partner |= dict(zip(ours, theirs, strict=True))
            taken.update(theirs)
    return Aligned(
        tuple(sorted(partner.items())),
        tuple(place for place in range(len(first)) if place not in partner),
        tuple(place for place in range(len(second)) if place not in taken),
    )


def _by_structure(listed: Sequence[Described], without: dict[int, int] | set[int]) -> dict[Hashable, list[int]]:
    places: dict[Hashable, list[int]] = {}
    for place, (_, structure) in enumerate(listed):
        if place not in without:
            places.setdefault(structure, []).append(place)
    return places
