"""What a rule for an ONNX op sees: one node of the file, and its inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from aneforge.frontends.values import Value

__all__ = ["Node", "Rule", "Value"]

Rule = Callable[..., "Value | Sequence[Value]"]


@dataclass
class Node:
    """One node of the file: what a rule sees."""

    kind: str
    name: str
    opset: int
    attrs: dict[str, Any] = field(default_factory=dict)
    outputs: int = 1

    def attr(self, name: str, default: Any = None) -> Any:
        return self.attrs.get(name, default)
