"""The type of a value in the engine's language, and the error for code that breaks a rule of it."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from aneforge.errors import AneforgeError

DTYPES = {
    **{"f16": 16, "i1": 8, "ui8": 8, "si8": 8, "f32": 32},
    **{"ui6": 6, "si4": 4, "ui4": 4, "ui3": 3, "ui2": 2, "ui1": 1},
}
"""Bits of an element. Those below a byte are for kernels: indices into a table, or codes of 4 bits with a scale."""


class AnecError(AneforgeError, ValueError):
    """Backend code that breaks a rule of the language."""


class TensorType(NamedTuple):
    """An NDCHW tensor."""

    shape: tuple[int, ...]
    dtype: str = "f16"

    @property
    def elements(self) -> int:
        n, d, c, h, w = self.shape
        return n * d * c * h * w

    @property
    def element_bytes(self) -> int:
        return -(-DTYPES[self.dtype] // 8)

    @property
    def bytes(self) -> int:
        return _bytes(self)

    def __str__(self) -> str:
        return f"tensor<{'x'.join(map(str, self.shape))}x{self.dtype}>"


@lru_cache(maxsize=8192)
def _bytes(type_: TensorType) -> int:
    """Passes ask again and again, and a program has few types."""
    return -(-type_.elements * DTYPES[type_.dtype] // 8)
