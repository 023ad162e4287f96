"""Every rule of recognition, by the op that it ends in; earlier rules are tried first."""

from __future__ import annotations

from collections.abc import Mapping

from aneforge.graph.recognise.activations import ACTIVATIONS, NORMS
from aneforge.graph.recognise.algebra import SpellingRule
from aneforge.graph.recognise.movement import LOOPS, MOVEMENT
from aneforge.graph.recognise.products import ATTENTION, PRODUCTS, WINDOWS

ALL_RULES: tuple[SpellingRule, ...] = (*WINDOWS, *MOVEMENT, *LOOPS, *PRODUCTS, *ACTIVATIONS, *NORMS, *ATTENTION)


def _by_end() -> dict[str, tuple[SpellingRule, ...]]:
    table: dict[str, tuple[SpellingRule, ...]] = {}
    for rule in ALL_RULES:
        for end in rule.ends:
            table[end] = (*table.get(end, ()), rule)
    return table


RULES: Mapping[str, tuple[SpellingRule, ...]] = _by_end()
