"""What a rule sees of an operation: its arguments by name, known or computed, and the types that the file states."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from aneforge.errors import LoadError
from aneforge.frontends.records import Block, TensorType, Type
from aneforge.frontends.values import NoForm, Value
from aneforge.graph.encoding import Encoded
from aneforge.graph.tensor import Tensor


@dataclass
class State:
    """A value that lives on from run to run: what it holds at this point of the program."""

    name: str
    type: TensorType
    value: Value
    written: bool = False


@dataclass(frozen=True)
class Listed:
    """A list of tensors whose places are all known when the model is read."""

    elements: tuple[Value | None, ...]


INTEGERS = "it computes with integers, which the engine does not"
"""A reason that several formats give."""

Operand = np.ndarray | Encoded | Tensor | State | Listed
Rule = Callable[["Op"], Any]


def _no_maker(name: str) -> Op | None:
    return None


@dataclass
class Op:
    kind: str
    name: str
    arguments: dict[str, list[Any]]
    types: dict[str, list[Type | None]] = field(default_factory=dict)
    outputs: Sequence[tuple[str, Type | None]] = field(default_factory=list)
    attributes: dict[str, Any] = field(default_factory=dict)
    blocks: Sequence[Block] = ()
    is_read: Callable[[str], bool] = lambda name: True
    """Whether anything reads the result of this name."""
    maker: Callable[[str], Op | None] = _no_maker
    """The op that gave an argument, if nothing else reads it."""

    def operands(self) -> list[Any]:
        return [operand for group in self.arguments.values() for operand in group]

    @property
    def computed(self) -> bool:
        """Whether the graph computes one of its arguments."""
        return any(isinstance(operand, (Tensor, State)) for operand in self.operands())

    # Arguments as they are.

    def has(self, name: str) -> bool:
        return bool(self.arguments.get(name))

    def operand(self, name: str) -> Any:
        if not self.has(name):
            raise LoadError(f"argument {name!r} is missing; the op needs it")
        return self.arguments[name][0]

    def value(self, name: str = "x") -> Value:
        operand = self.operand(name)
        if not isinstance(operand, (np.ndarray, Encoded, Tensor)):
            raise LoadError(f"argument {name!r} is a {type(operand).__name__.lower()}; give a tensor")
        return operand

    def optional(self, name: str) -> Value | None:
        return self.value(name) if self.has(name) else None

    # What is known.

    def known(self, name: str, default: Any = None) -> np.ndarray:
        if not self.has(name):
            if default is None:
                raise LoadError(f"argument {name!r} is missing; the op needs it")
            return np.asarray(default)
        value = self.value(name)
        if isinstance(value, Tensor):
            raise NoForm(f"{name!r} is computed while the program runs; the engine needs a fixed value")
        return np.asarray(value)

    def numbers(self, name: str, default: Sequence[int] | None = None) -> list[int]:
        return [int(number) for number in self.known(name, default).reshape(-1)]

    def whole(self, name: str, default: int | None = None) -> int:
        return self.numbers(name, None if default is None else [default])[0]

    def number(self, name: str, default: float | None = None) -> float:
        return float(self.known(name, default).reshape(-1)[0])

    def truth(self, name: str, default: bool = False) -> bool:
        return bool(self.known(name, default).reshape(-1)[0])

    def truths(self, name: str, count: int) -> list[bool]:
        """None of them unless the file says."""
        flags = [bool(flag) for flag in self.known(name, [False] * count).reshape(-1)] or [False] * count
        if len(flags) != count:
            raise LoadError(f"argument {name!r} has {len(flags)} values; expected {count}, one for each axis")
        return flags

    def text(self, name: str, default: str | None = None) -> str:
        if name in self.attributes:
            return str(self.attributes[name])
        return str(self.known(name, default).reshape(-1)[0])

    # Types.

    def type_of(self, name: str) -> TensorType | None:
        types = self.types.get(name) or [None]
        return types[0] if isinstance(types[0], TensorType) else None

    def dtype(self, name: str) -> str:
        stated = self.type_of(name)
        if stated is not None:
            return stated.dtype
        operand = self.arguments[name][0] if self.has(name) else None
        if isinstance(operand, np.ndarray):
            return {"f": "fp32", "b": "bool", "U": "string"}.get(operand.dtype.kind, "int32")
        return "bool" if isinstance(operand, Tensor) and operand.dtype == "bool" else "fp16"

    def shape(self, name: str = "x") -> tuple[int, ...]:
        """As the file means it: a tensor of one element that stands for a single number has no axes."""
        value = self.value(name)
        stated = self.type_of(name)
        return () if stated is not None and stated.shape == () else tuple(value.shape)

    def used(self, place: int) -> bool:
        """Whether anything reads this result."""
        return place < len(self.outputs) and self.is_read(self.outputs[place][0])

    def out_type(self, place: int = 0) -> TensorType | None:
        stated = self.outputs[place][1] if place < len(self.outputs) else None
        return stated if isinstance(stated, TensorType) else None

    def out_shape(self, place: int = 0) -> tuple[int, ...] | None:
        stated = self.out_type(place)
        return None if stated is None else stated.static
