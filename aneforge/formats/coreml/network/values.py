"""Values between layers of a neural network (a tensor or array, and its shape in the network), and weights of layers.

In older networks every value is [sequence, batch, channels, height, width], but the engine's layers have four axes. So
a value may have its first axes folded into one. Only a layer that needs all axes unfolds them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from aneforge.errors import LoadError
from aneforge.formats.records import unpack
from aneforge.formats.values import Value, as_tensor, shaped
from aneforge.graph.encoding import Encoded
from aneforge.graph.tensor import Tensor

_CODE_BITS = (1, 2, 3, 4, 6, 8)  # widths that the graph keeps as codes; others become numbers


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
class NetworkLayer:
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


# Weights: numbers inside the specification, plain or in one of two compressed forms.


def numbers_of(params: Any, shape: tuple[int, ...], what: str) -> np.ndarray:
    """A weight as numbers, from any form that it is stored in."""
    return np.asarray(weight_of(params, shape, what))


def weight_of(params: Any, shape: tuple[int, ...], what: str) -> np.ndarray | Encoded:
    """A weight of a known shape, in its stored form."""
    count = math.prod(shape)
    if params.int8RawValue:
        raise LoadError(
            f"{what} is stored as int8 for inputs rounded to 8 bits, which is not supported; use float weights"
        )
    if params.HasField("quantization") and params.rawValue:
        return _decode(params, shape, what)
    if params.float16Value:
        numbers = np.frombuffer(params.float16Value, np.float16)
    else:
        numbers = np.array(params.floatValue, np.float32)
    if numbers.size != count:
        raise LoadError(f"{what} has {numbers.size:,} numbers; {list(shape)} needs {count:,}")
    return numbers.reshape(shape)


def _decode(params: Any, shape: tuple[int, ...], what: str) -> np.ndarray | Encoded:
    bits, count = int(params.quantization.numberOfBits), math.prod(shape)
    if not 1 <= bits <= 8:
        raise LoadError(f"{what} has codes of {bits} bits; expected 1 to 8")
    data = np.frombuffer(params.rawValue, np.uint8)
    if data.size != -(-count * bits // 8):
        raise LoadError(
            f"{what} has {data.size:,} bytes; {list(shape)} of {bits} bits needs {-(-count * bits // 8):,}"
        )
    codes = (data if bits == 8 else unpack(data, bits, count, order="big")).reshape(shape)
    form = params.quantization.WhichOneof("QuantizationType")
    if form == "lookupTableQuantization":
        table = np.array(params.quantization.lookupTableQuantization.floatValue, np.float32)
        if table.size != 1 << bits:
            raise LoadError(f"{what} has a look-up table of {table.size} entries; {bits} bits need {1 << bits}")
        return Encoded.palette(codes, table, bits) if bits in _CODE_BITS else table[codes]
    if form != "linearQuantization":
        raise LoadError(f"{what} has codes, but no look-up table and no scale")
    scale, bias = (
        np.array(getattr(params.quantization.linearQuantization, name), np.float32) for name in ("scale", "bias")
    )
    bias = bias if bias.size else np.zeros(1, np.float32)
    if any(values.size not in (1, shape[0]) for values in (scale, bias)) or not (scale != 0).all():
        raise LoadError(
            f"{what} has {scale.size} scales and {bias.size} biases; expected 1 or {shape[0]} of each, no scale 0"
        )
    if bits not in _CODE_BITS:
        rows = (-1, *(1,) * (len(shape) - 1))
        return codes * scale.reshape(rows) + bias.reshape(rows)
    zero = -bias.astype(np.float64) / scale  # scale * code + bias is scale * (code - zero point)
    axis = 0 if max(scale.size, zero.size) > 1 else None
    return Encoded.affine(codes, scale, zero if zero.any() else None, axis, bits)
