"""The first argument of a rule for an ATen op: one node of the exported program."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Shape = tuple[int, ...]
Rule = Callable[..., Any]


@dataclass
class Node:
    """One call of an ATen op: its kind, its results and its options."""

    kind: str
    """The op as PyTorch writes it: ``aten.add.Tensor``."""
    name: str
    shapes: list[Shape]
    """Shapes of the results; a number has shape ()."""
    dtypes: list[str]
    """Types of the results, as PyTorch names them: ``float32``, ``int64``, ``bool``."""
    operand_dtypes: list[str] = field(default_factory=list)
    """Types of the tensor arguments, in order."""
    options: dict[str, Any] = field(default_factory=dict)
    """Keyword-only arguments (dtype, approximate, scale)."""
    operand_strides: list[Shape] = field(default_factory=list)
    used_results: frozenset[int] = frozenset()
    """Positions of the results that are read."""
    shared: dict[Any, Any] = field(default_factory=dict)
    """Tensors that rules share across the program."""

    @property
    def shape(self) -> Shape:
        return self.shapes[0]

    @property
    def gives_bool(self) -> bool:
        return self.dtypes[0] == "bool"


def graph_shape(shape: Shape) -> Shape:
    """Return the shape in the graph: it has no rank 0, so a single number has shape (1,)."""
    return shape or (1,)
