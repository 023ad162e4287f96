"""What flows between layers of a neural network: a value, and the shape that the network sees it under.

Older networks see everything as [sequence, batch, channels, height, width]; the engine's layers have four axes. So a
value may be held with its first axes folded together, and only a layer that asks for all axes unfolds them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from aneforge.frontends import LoadError
from aneforge.frontends.values import Value, as_tensor, shaped
from aneforge.graph.tensor import Tensor

__all__ = ["Blob", "Layer", "folded_shape", "of_planes"]


def folded_shape(shape: Sequence[int]) -> tuple[int, ...]:
    """[all before the last three, channels, height, width]."""
    if len(shape) < 3:
        raise LoadError(f"a value of shape {list(shape)} has no channels, height and width")
    return (math.prod(shape[:-3]), *shape[-3:])


@dataclass
class Blob:
    value: Value
    """A tensor, perhaps folded; or a known array in its own shape."""
    shape: tuple[int, ...]

    @classmethod
    def of(cls, value: Value) -> Blob:
        return cls(value, tuple(value.shape))

    @property
    def known(self) -> np.ndarray | None:
        return None if isinstance(self.value, Tensor) else np.asarray(self.value)

    def full(self) -> Tensor:
        """With every axis that the network sees."""
        return shaped(as_tensor(self.value), self.shape)

    def held(self) -> Value:
        """A known array as it is, a tensor with all its axes."""
        return self.full() if isinstance(self.value, Tensor) else self.value

    def planes(self) -> Tensor:
        """[n, channels, height, width]."""
        return shaped(as_tensor(self.value), folded_shape(self.shape))

    def map(self, function: Callable[[Tensor], Tensor]) -> Blob:
        """A function of every element by itself."""
        return Blob(function(as_tensor(self.value)), self.shape)


def of_planes(found: Tensor, before: Sequence[int]) -> Blob:
    """What a layer over planes gives, seen with the first axes of its input."""
    return Blob(found, (*before[:-3], *found.shape[1:]))


@dataclass
class Layer:
    """What a rule sees of a layer."""

    kind: str
    name: str
    params: Any
    inputs: list[Blob]
    outputs: int
    exact: bool
    """Whether arrays keep their own axes (newer networks); else everything has five."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.params, name)

    @property
    def x(self) -> Blob:
        if not self.inputs:
            raise LoadError("it has no input")
        return self.inputs[0]
