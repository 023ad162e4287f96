"""Every rule of recognition, by the op that it ends in; earlier rules are tried first."""

from __future__ import annotations

from collections.abc import Mapping

from aneforge.recognise.activations import ACTIVATIONS
from aneforge.recognise.attention import ATTENTION
from aneforge.recognise.loops import LOOPS
from aneforge.recognise.movement import MOVEMENT
from aneforge.recognise.norms import NORMS
from aneforge.recognise.products import PRODUCTS
from aneforge.recognise.rule import Rule
from aneforge.recognise.windows import WINDOWS

ALL_RULES: tuple[Rule, ...] = (*WINDOWS, *MOVEMENT, *LOOPS, *PRODUCTS, *ACTIVATIONS, *NORMS, *ATTENTION)


def _by_end() -> dict[str, tuple[Rule, ...]]:
    table: dict[str, tuple[Rule, ...]] = {}
    for rule in ALL_RULES:
        for end in rule.ends:
            table[end] = (*table.get(end, ()), rule)
    return table


RULES: Mapping[str, tuple[Rule, ...]] = _by_end()
