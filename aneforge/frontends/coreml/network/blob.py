"""Values between layers of a neural network: a tensor or array, and its shape in the network.

In older networks every value is [sequence, batch, channels, height, width], but the engine's layers have four axes. So
a value may have its first axes folded into one. Only a layer that needs all axes unfolds them.
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


def folded_shape(shape: Sequence[int]) -> tuple[int, ...]:
    """The shape [n, channels, height, width], where n counts all axes before the last three."""
    if len(shape) < 3:
        raise LoadError(f"a value of shape {list(shape)} has no channels, height and width")
    return (math.prod(shape[:-3]), *shape[-3:])


@dataclass
class Blob:
    value: Value
    """A tensor, which may be folded, or a known array in its own shape."""
    shape: tuple[int, ...]

    @classmethod
    def of(cls, value: Value) -> Blob:
        return cls(value, tuple(value.shape))

    @property
    def known(self) -> np.ndarray | None:
        return None if isinstance(self.value, Tensor) else np.asarray(self.value)

    def full(self) -> Tensor:
        """The value with all axes that it has in the network."""
        return shaped(as_tensor(self.value), self.shape)

    def operand(self) -> Value:
        """The value as an argument of an op: a known array as it is, a tensor with all its axes."""
        return self.full() if isinstance(self.value, Tensor) else self.value

    def planes(self) -> Tensor:
        """The value as [n, channels, height, width]."""
        return shaped(as_tensor(self.value), folded_shape(self.shape))

    def map(self, function: Callable[[Tensor], Tensor]) -> Blob:
        """Apply a function to every element."""
        return Blob(function(as_tensor(self.value)), self.shape)


def of_planes(planes: Tensor, before: Sequence[int]) -> Blob:
    """The result of a layer over planes, with the first axes of the layer's input."""
    return Blob(planes, (*before[:-3], *planes.shape[1:]))


@dataclass
class Layer:
    """A layer as its rule reads it."""

    kind: str
    name: str
    params: Any
    inputs: list[Blob]
    outputs: int
    exact: bool
    """Whether arrays keep their own axes (newer networks); otherwise every value has five."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.params, name)

    @property
    def x(self) -> Blob:
        if not self.inputs:
            raise LoadError("the layer has no input")
        return self.inputs[0]
