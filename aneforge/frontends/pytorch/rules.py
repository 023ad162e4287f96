"""Rules by ATen op. A rule takes the node and its arguments (tensors or known arrays) and returns tensors.

A rule is found by the op's name with its overload (``max.dim``), else without (``max``). A rule raises
``NoForm`` if the engine has no form for the call, and ``LoadError`` if the reader cannot support it.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from aneforge.frontends.importer.calls import called
from aneforge.frontends.ops import MOVEMENT
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
from aneforge.frontends.pytorch.node import Node, Rule
from aneforge.frontends.pytorch.table import ROWS
from aneforge.frontends.rows import Row

_MODULES = (elementwise, activations, products, norms, reductions, spatial, recurrent, quantised, movement, indexing)
RULES: dict[str, Rule] = {name: rule for room in _MODULES for name, rule in room.RULES.items()}
MOVES = frozenset((*movement.RULES, "embedding", "gather", "index", "index_select", "diagonal", "as_strided", "take"))
MOVES |= {name for name, row in ROWS.items() if row.op in (*MOVEMENT, "slice_axis", "triangle")}
"""Ops that only move elements: integers that fp16 represents exactly may pass through them on the engine."""


def plain_name(kind: str) -> tuple[str, str]:
    """Return (``max``, ``max.dim``) for ``aten.max.dim``; another namespace is kept as a prefix."""
    space, _, rest = kind.partition(".")
    base = rest.rpartition(".")[0] or rest
    lead = "" if space == "aten" else f"{space}."
    return f"{lead}{base}", f"{lead}{rest}"


def rule_for(kind: str) -> Rule | None:
    """The rule of an op, or a call of its row."""
    base, full = plain_name(kind)
    row = ROWS.get(full) or ROWS.get(base)
    return RULES.get(full) or RULES.get(base) if row is None else partial(_apply, row)


def is_read(base: str, full: str = "") -> bool:
    """Whether the reader has a rule or a row for an op."""
    return any(name in table for table in (RULES, ROWS) for name in (base, full))


def _apply(row: Row, node: Node, *arguments: Any) -> Any:
    return called(row.function, row.bind(arguments, node.options), node)
