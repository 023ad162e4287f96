"""A Core AI program as plain records: what the rules know of it, whoever read the file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

__all__ = ["BITS", "NUMPY", "Block", "Function", "Operation", "Type", "is_float", "is_whole"]

NUMPY: dict[str, type[np.generic]] = {
    "f16": np.float16,
    "f32": np.float32,
    "f64": np.float64,
    "bf16": np.float32,
    "f8E4M3FN": np.float32,
    "f8E5M2": np.float32,
    "f8E8M0FNU": np.float32,
    "f4E2M1FN": np.float32,
    "i1": np.bool_,
    "si2": np.int8,
    "si4": np.int8,
    "si8": np.int8,
    "si16": np.int16,
    "si32": np.int32,
    "si64": np.int64,
    "ui1": np.uint8,
    "ui2": np.uint8,
    "ui4": np.uint8,
    "ui8": np.uint8,
    "ui16": np.uint16,
    "ui32": np.uint32,
    "ui64": np.uint64,
    "index": np.int64,
}
"""How numbers of each element type are held here; floats that NumPy lacks in the next wider one."""

BITS = {name: int(name[2:]) for name in NUMPY if name[:2] in ("si", "ui")}


def is_whole(dtype: str) -> bool:
    return dtype in BITS or dtype == "index"


def is_float(dtype: str) -> bool:
    return dtype in NUMPY and not is_whole(dtype) and dtype != "i1"


@dataclass(frozen=True)
class Type:
    """Of a value: a ``tensor``, a ``handle`` to one, a ``token``, or something ``other``."""

    form: str
    dtype: str = ""
    shape: tuple[int | None, ...] = ()
    text: str = ""

    @property
    def static(self) -> tuple[int, ...] | None:
        known = [extent for extent in self.shape if extent is not None]
        return tuple(known) if self.form in ("tensor", "handle") and len(known) == len(self.shape) else None

    def __str__(self) -> str:
        if self.form == "tensor":
            return f"{self.dtype} {['?' if extent is None else extent for extent in self.shape]}".replace("'", "")
        return self.text or self.form


@dataclass(frozen=True)
class Block:
    """A list of operations that takes values by number and gives some."""

    arguments: tuple[tuple[int, Type], ...]
    operations: tuple[Operation, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True)
class Operation:
    kind: str
    """Without the dialect's own name in front."""
    name: str
    operands: tuple[int, ...]
    results: tuple[tuple[int, Type], ...]
    attributes: dict[str, str] = field(default_factory=dict)
    regions: tuple[Block, ...] = ()
    value: np.ndarray | None = None
    """Of a constant."""


@dataclass(frozen=True)
class Function:
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    output_types: tuple[Type, ...]
    block: Block
    private: bool = False

    def operations(self) -> Iterator[Operation]:
        """All of them, those of inner blocks too."""
        waiting = [self.block]
        while waiting:
            for operation in waiting.pop().operations:
                yield operation
                waiting.extend(operation.regions)
