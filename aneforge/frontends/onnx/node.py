"""The argument of a rule for an ONNX op: one node of the file, with its inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from aneforge.frontends.records import Operation, TensorType, Type
from aneforge.frontends.values import Value
from aneforge.graph.tensor import Tensor

__all__ = ["Node", "Rule", "Value"]

Rule = Callable[..., "Value | Sequence[Value]"]


@dataclass
class Node:
    """One node of the file."""

    kind: str
    name: str
    opset: int
    attrs: dict[str, Any] = field(default_factory=dict)
    outputs: int = 1
    inputs: Sequence[Value | None] = ()
    types: Sequence[Type | None] = ()
    """Types of the inputs, where known; None for a computed float whose shape is that of its tensor."""
    operation: Operation | None = None

    def attr(self, name: str, default: Any = None) -> Any:
        return self.attrs.get(name, default)

    @property
    def computed(self) -> bool:
        return any(isinstance(value, Tensor) for value in self.inputs)

    def is_single(self, place: int) -> bool:
        """Whether an input is a single number in the file; the graph has it with shape (1,)."""
        kind = self.types[place] if place < len(self.types) else None
        return isinstance(self.inputs[place], Tensor) and isinstance(kind, TensorType) and kind.shape == ()
