"""What an adapter makes of a model file, whatever its format: functions of blocks of operations.

A record holds names, types and numbers and decides nothing. The importer walks it, the tables of a format say which
op it is, and ``forms`` says what that op becomes.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

NUMPY: dict[str, type[np.generic]] = {
    "bool": np.bool_,
    "fp16": np.float16,
    "fp32": np.float32,
    "fp64": np.float64,
    "bf16": np.float32,
    "fp8e4m3fn": np.float32,
    "fp8e5m2": np.float32,
    "fp8e8m0fnu": np.float32,
    "fp4e2m1fn": np.float32,
    "string": np.str_,
    **{f"int{bits}": np.int8 for bits in (2, 4, 8)},
    **{f"uint{bits}": np.uint8 for bits in (1, 2, 3, 4, 6, 8)},
    "int16": np.int16,
    "int32": np.int32,
    "int64": np.int64,
    "uint16": np.uint16,
    "uint32": np.uint32,
    "uint64": np.uint64,
}
"""Element types by one set of names for all formats, and how NumPy holds a number of each; floats that it lacks are
held in a wider type."""

BITS = {name: int(name.lstrip("uint")) for name in NUMPY if name.lstrip("u").startswith("int")}
"""Of every type of whole numbers."""


def is_whole(dtype: str) -> bool:
    return dtype in BITS


def is_float(dtype: str) -> bool:
    return dtype.startswith(("fp", "bf"))


def numpy_type(dtype: str) -> type[np.generic]:
    return NUMPY.get(dtype, np.float32)


@dataclass(frozen=True)
class ValueType:
    """An extent is None where the file leaves it open; a single number has the shape ()."""

    dtype: str
    shape: tuple[int | None, ...]

    @property
    def static(self) -> tuple[int, ...] | None:
        return None if None in self.shape else tuple(int(extent or 0) for extent in self.shape)

    def __str__(self) -> str:
        extents = ", ".join("?" if extent is None else str(extent) for extent in self.shape)
        return f"tensor<{self.dtype}, [{extents}]>"


@dataclass(frozen=True)
class StateType:
    """Of a value that lives on from run to run."""

    wrapped: ValueType

    def __str__(self) -> str:
        return f"state<{self.wrapped}>"


@dataclass(frozen=True)
class OtherType:
    """Lists, tuples, tokens and the like: only the name of the type is kept."""

    what: str

    def __str__(self) -> str:
        return self.what


Type = ValueType | StateType | OtherType


@dataclass(frozen=True)
class Ref:
    """A value by its name."""

    name: str


@dataclass(frozen=True)
class StoredValue:
    """Numbers in a weight file."""

    path: str
    offset: int
    type: ValueType


Binding = Ref | StoredValue | np.ndarray | Sequence[Any] | None
"""What an argument is bound to. None is an optional argument that is left out."""


@dataclass
class Operation:
    kind: str
    inputs: dict[str, list[Binding]]
    """Arguments by name; an argument may be a list of values. A format that has no names uses the one name ``""``."""
    outputs: Sequence[tuple[str, Type | None]]
    """Names and types of the results. A type is None where the file does not say it."""
    attributes: dict[str, Any] = field(default_factory=dict)
    blocks: list[Block] = field(default_factory=list)
    name: str = ""
    """As the user knows it; the name of the first result unless the file has another."""
    line: int = 0
    """In a text; 0 in a binary file."""
    version: int = 0
    """Of the op set that the operation is written in, where the format counts them."""
    source: Any = None
    """The adapter's own object, for its own rules."""

    @property
    def label(self) -> str:
        return self.name or (self.outputs[0][0] if self.outputs else "") or "operation"

    def reads(self) -> Iterator[str]:
        for bindings in self.inputs.values():
            for binding in bindings:
                if isinstance(binding, Ref):
                    yield binding.name


@dataclass
class Block:
    """Operations in the order in which they run, with the names of what the block takes and gives."""

    inputs: Sequence[tuple[str, Type | None]]
    outputs: list[str]
    """A result that nobody asks for has an empty name."""
    operations: Iterable[Operation]


@dataclass
class Function:
    inputs: Sequence[tuple[str, Type]]
    block: Block
    opset: str = ""
    outputs: Sequence[str] = ()
    """The names that users know the results by, where they differ from the block's own."""
    states: dict[str, str] = field(default_factory=dict)
    """Results of the block that are the new value of a state: the name of the state's input by that of the result."""


def names_read(operations: Iterable[Operation]) -> Counter[str]:
    """How often each name is read by these operations, those of their inner blocks included."""
    counts: Counter[str] = Counter()
    stack = list(operations)
    while stack:
        operation = stack.pop()
        counts.update(operation.reads())
        for block in operation.blocks:
            counts.update(block.outputs)
            stack.extend(block.operations)
    return counts


# Numbers as files store them: in whole bytes, several to a byte, and as floats that NumPy lacks.


_CODES: dict[str, type[np.generic]] = {"bf16": np.uint16, "fp8e4m3fn": np.uint8, "fp8e5m2": np.uint8}
"""Floats that NumPy lacks, as the integers of their bits."""

STORED: dict[str, type[np.generic]] = {
    **{
        name: kind
        for name, kind in NUMPY.items()
        if is_whole(name) or name in ("bool", "fp16", "fp32", "fp64", "string")
    },
    **_CODES,
}
"""The NumPy type that reads the bytes of an element. For bf16 and fp8, :func:`from_bytes` then converts the codes."""

PACKED = {name: bits for name, bits in BITS.items() if bits < 8}
"""The bits of types with several elements to a byte."""


def unpack(
    data: np.ndarray, bits: int, count: int, signed: bool = False, order: Literal["little", "big"] = "little"
) -> np.ndarray:
    """Unpack fields of ``bits`` bits, the first in the lowest bits (or in the highest), to one byte each."""
    result = np.empty(count, np.uint8)
    bytes_at_once = bits << 17  # holds a whole number of fields, and needs little memory
    fields_at_once = bytes_at_once * 8 // bits
    weights = 1 << np.arange(bits, dtype=np.uint8)[:: 1 if order == "little" else -1]
    for step in range(-(-count // fields_at_once)):
        first = step * fields_at_once
        batch = min(fields_at_once, count - first)
        part = data[step * bytes_at_once : step * bytes_at_once + -(-batch * bits // 8)]
        places = np.unpackbits(part, bitorder=order)[: batch * bits].reshape(batch, bits)
        result[first : first + batch] = places @ weights
    if not signed:
        return result
    half = 1 << (bits - 1)
    return ((result.astype(np.int16) ^ half) - half).astype(np.int8)


def _fp8(codes: np.ndarray, exponent_bits: int, bias: int) -> np.ndarray:
    """Decode 8-bit floats by a table of all 256."""
    fraction_bits = 7 - exponent_bits
    code = np.arange(256)
    exponent = (code >> fraction_bits) & ((1 << exponent_bits) - 1)
    fraction = (code & ((1 << fraction_bits) - 1)) / (1 << fraction_bits)
    size = np.where(exponent == 0, fraction * 2.0 ** (1 - bias), (1 + fraction) * 2.0 ** (exponent - bias))
    if exponent_bits == 4:
        size[(code & 0x7F) == 0x7F] = np.nan
    else:
        size[(code & 0x7C) == 0x7C] = np.where(fraction[(code & 0x7C) == 0x7C] == 0, np.inf, np.nan)
    return np.where(code & 0x80, -size, size).astype(np.float32)[codes]


def from_bytes(data: np.ndarray, dtype: str, shape: Sequence[int]) -> np.ndarray:
    """Bytes as an array of a type; a view of the bytes unless elements share bytes."""
    count = math.prod(shape)
    if dtype in PACKED:
        return unpack(data, PACKED[dtype], count, dtype.startswith("int")).reshape(shape)
    numbers = data.view(STORED[dtype]).reshape(shape)
    if dtype == "bf16":
        return (numbers.astype(np.uint32) << 16).view(np.float32)
    if dtype.startswith("fp8"):
        return _fp8(numbers, *((4, 7) if dtype == "fp8e4m3fn" else (5, 15)))
    return numbers
