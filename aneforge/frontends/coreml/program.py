"""An ML program, whatever it was written as: functions of blocks of operations. Protobuf and MIL text both give it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

__all__ = ["Binding", "Block", "Function", "Operation", "OtherType", "Program", "Ref", "StateType", "Stored"]
__all__ += ["TensorType", "Type", "names_read"]


@dataclass(frozen=True)
class TensorType:
    """An extent is None where the program leaves it open."""

    dtype: str
    shape: tuple[int | None, ...]

    @property
    def static(self) -> tuple[int, ...] | None:
        return None if None in self.shape else tuple(int(each or 0) for each in self.shape)

    def __str__(self) -> str:
        return f"tensor<{self.dtype}, [{', '.join('?' if each is None else str(each) for each in self.shape)}]>"


@dataclass(frozen=True)
class StateType:
    wrapped: TensorType


@dataclass(frozen=True)
class OtherType:
    """Lists, tuples and dictionaries: only their kind is kept."""

    what: str


Type = TensorType | StateType | OtherType


@dataclass(frozen=True)
class Ref:
    """A value by its name."""

    name: str


@dataclass(frozen=True)
class Stored:
    """Numbers in a weight file."""

    path: str
    offset: int
    type: TensorType


Binding = Ref | Stored | np.ndarray | Sequence[Any]


@dataclass
class Operation:
    kind: str
    inputs: dict[str, list[Binding]]
    outputs: list[tuple[str, Type]]
    attributes: dict[str, Any] = field(default_factory=dict)
    blocks: list[Block] = field(default_factory=list)
    line: int = 0
    """Where it stands in a text; 0 in a binary file."""


@dataclass
class Block:
    inputs: list[tuple[str, Type]]
    outputs: list[str]
    operations: Iterable[Operation]


@dataclass
class Function:
    inputs: list[tuple[str, Type]]
    block: Block
    opset: str = ""


@dataclass
class Program:
    functions: dict[str, Function]


def names_read(block: Block) -> set[str]:
    """Every name that an operation of a block, or of a block within it, reads, and what the block gives."""
    found: set[str] = set()
    stack = [block]
    while stack:
        each = stack.pop()
        found.update(each.outputs)
        for operation in each.operations:
            stack.extend(operation.blocks)
            for bindings in operation.inputs.values():
                found.update(binding.name for binding in bindings if isinstance(binding, Ref))
    return found
