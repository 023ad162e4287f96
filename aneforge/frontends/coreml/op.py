"""What a rule for a MIL op sees: one operation, and what its arguments are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from aneforge.frontends import LoadError
from aneforge.frontends.coreml.program import TensorType, Type
from aneforge.frontends.values import Value, as_tensor, axis_of
from aneforge.graph.encoding import Encoded
from aneforge.graph.tensor import Tensor

__all__ = ["Held", "Listed", "OnHost", "Op", "Rule", "State", "is_whole", "shaped"]


class OnHost(Exception):  # noqa: N818 - a way for the op to take, not a failure
    """An op that has a meaning here but no form on the engine: why."""


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


Held = np.ndarray | Encoded | Tensor | State | Listed
Rule = Callable[["Op"], Any]


def is_whole(dtype: str) -> bool:
    """Whether a MIL type holds whole numbers."""
    return dtype.startswith(("int", "uint"))


def shaped(x: Tensor, shape: Sequence[int]) -> Tensor:
    """A reshape; a result without axes keeps one, since no tensor of the graph has none."""
    wanted = tuple(int(each) for each in shape) or (1,)
    return x if x.shape == wanted else x.reshape(*wanted)


@dataclass
class Op:
    kind: str
    name: str
    given: dict[str, list[Held]]
    types: dict[str, list[Type | None]] = field(default_factory=dict)
    outputs: list[tuple[str, Type | None]] = field(default_factory=list)
    reads: Callable[[], set[str]] = set
    """Which values anybody reads, asked for only where a result costs much."""

    # Arguments as they are.

    def has(self, name: str) -> bool:
        return bool(self.given.get(name))

    def held(self, name: str) -> Held:
        if not self.has(name):
            raise LoadError(f"its argument {name!r} is missing")
        return self.given[name][0]

    def value(self, name: str) -> Value:
        found = self.held(name)
        if isinstance(found, (State, Listed)):
            raise LoadError(f"its argument {name!r} is a {type(found).__name__.lower()}, not a tensor")
        return found

    def optional(self, name: str) -> Value | None:
        return self.value(name) if self.has(name) else None

    def values(self, name: str) -> list[Value]:
        found = self.given.get(name, [])
        if not found:
            raise LoadError(f"its argument {name!r} is missing")
        for each in found:
            if isinstance(each, (State, Listed)):
                raise LoadError(f"its argument {name!r} holds a {type(each).__name__.lower()}")
        return found  # type: ignore[return-value]

    def tensor(self, name: str = "x") -> Tensor:
        return as_tensor(self.value(name))

    # What is known.

    def known(self, name: str, default: Any = None) -> np.ndarray:
        if not self.has(name):
            if default is None:
                raise LoadError(f"its argument {name!r} is missing")
            return np.asarray(default)
        found = self.value(name)
        if isinstance(found, Tensor):
            raise OnHost(f"{name!r} is computed while the program runs; the engine needs a fixed value")
        return np.asarray(found)

    def numbers(self, name: str, default: Sequence[int] | None = None) -> list[int]:
        return [int(each) for each in self.known(name, default).reshape(-1)]

    def whole(self, name: str, default: int | None = None) -> int:
        return self.numbers(name, None if default is None else [default])[0]

    def number(self, name: str, default: float | None = None) -> float:
        return float(self.known(name, default).reshape(-1)[0])

    def truth(self, name: str, default: bool = False) -> bool:
        return bool(self.known(name, default).reshape(-1)[0])

    def truths(self, name: str, count: int) -> list[bool]:
        """None of them unless the file says."""
        found = [bool(each) for each in self.known(name, [False] * count).reshape(-1)] or [False] * count
        if len(found) != count:
            raise LoadError(f"its argument {name!r} has {len(found)} values for {count} axes")
        return found

    def text(self, name: str, default: str | None = None) -> str:
        return str(self.known(name, default).reshape(-1)[0])

    def axis(self, rank: int, default: int | None = None, name: str = "axis") -> int:
        return axis_of(self.whole(name, default), rank)

    def axes(self, rank: int, name: str = "axes") -> list[int]:
        """All of them unless the file names some."""
        if not self.has(name):
            return list(range(rank))
        return [axis_of(each, rank) for each in self.numbers(name)]

    # What the file says of types.

    def dtype(self, name: str) -> str:
        kinds = self.types.get(name) or [None]
        if isinstance(kinds[0], TensorType):
            return kinds[0].dtype
        found = self.given[name][0] if self.has(name) else None
        if isinstance(found, np.ndarray):
            return {"f": "fp32", "b": "bool", "U": "string"}.get(found.dtype.kind, "int32")
        return "bool" if isinstance(found, Tensor) and found.dtype == "bool" else "fp16"

    def shape(self, name: str = "x") -> tuple[int, ...]:
        """Of a value as the program means it: a tensor of one element that stands for a number has no axes."""
        found = self.value(name)
        kinds = self.types.get(name) or [None]
        if isinstance(kinds[0], TensorType) and kinds[0].shape == ():
            return ()
        return tuple(found.shape)

    def used(self, place: int) -> bool:
        """Whether anybody reads this result."""
        return place < len(self.outputs) and self.outputs[place][0] in self.reads()

    def out_type(self, place: int = 0) -> TensorType | None:
        found = self.outputs[place][1] if place < len(self.outputs) else None
        return found if isinstance(found, TensorType) else None
