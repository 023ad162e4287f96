"""What a rule for an ATen op sees: one node of the exported program, and what its arguments are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Node", "Rule", "graph_shape"]

Shape = tuple[int, ...]
Rule = Callable[..., Any]


@dataclass
class Node:
    """One call of an ATen op: what it is, and what it gives."""

    kind: str
    """As PyTorch writes it, ``aten.add.Tensor``."""
    name: str
    shapes: list[Shape]
    """Of its results; a number has the shape ()."""
    dtypes: list[str]
    """Of its results, as PyTorch names them: ``float32``, ``int64``, ``bool``."""
    operand_dtypes: list[str] = field(default_factory=list)
    """Of the tensors among its arguments, in order."""
    options: dict[str, Any] = field(default_factory=dict)
    """Arguments that are given by name only (dtype, approximate, scale)."""
    operand_strides: list[Shape] = field(default_factory=list)
    wanted: frozenset[int] = frozenset()
    """Which results somebody reads."""
    shared: dict[Any, Any] = field(default_factory=dict)
    """What rules made for the whole program and may use again."""

    @property
    def shape(self) -> Shape:
        return self.shapes[0]

    @property
    def gives_bool(self) -> bool:
        return self.dtypes[0] == "bool"


def graph_shape(shape: Shape) -> Shape:
    """How the graph holds a tensor of this shape: it has no rank 0, so a single number is a line of one."""
    return shape or (1,)
