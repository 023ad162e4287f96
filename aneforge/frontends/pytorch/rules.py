"""Rules by ATen op. A rule takes the node and its arguments (tensors or known arrays) and returns tensors.

A rule is found by the op's name with its overload (``max.dim``), else without (``max``). A rule raises
``NoForm`` if the engine has no form for the call, and ``LoadError`` if the reader cannot support it.
"""

from __future__ import annotations

from aneforge.frontends.pytorch import (
    activations,
    elementwise,
    indexing,
    movement,
    norms,
    products,
    quantised,
    recurrent,
    reductions,
    spatial,
)
from aneforge.frontends.pytorch.hosted import HOSTED, REFUSED
from aneforge.frontends.pytorch.node import Rule

__all__ = ["HOSTED", "MOVES", "REFUSED", "RULES", "plain_name", "rule_for"]

_MODULES = (elementwise, activations, products, norms, reductions, spatial, recurrent, quantised, movement, indexing)
RULES: dict[str, Rule] = {name: rule for room in _MODULES for name, rule in room.RULES.items()}
MOVES = frozenset((*movement.RULES, "embedding", "gather", "index", "index_select", "diagonal", "as_strided", "take"))
"""Ops that only move elements: integers that fp16 represents exactly may pass through them on the engine."""


def plain_name(kind: str) -> tuple[str, str]:
    """Return (``max``, ``max.dim``) for ``aten.max.dim``; another namespace is kept as a prefix."""
    space, _, rest = kind.partition(".")
    base = rest.rpartition(".")[0] or rest
    lead = "" if space == "aten" else f"{space}."
    return f"{lead}{base}", f"{lead}{rest}"


def rule_for(kind: str) -> Rule | None:
    base, full = plain_name(kind)
    return RULES.get(full) or RULES.get(base)
