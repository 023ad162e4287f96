"""Types and values of the engine's language, and the error for code that breaks a rule of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

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


class Params(dict[str, Any]):
    """The parameters of a native unit, by the names of layers.json. They are never changed, so they have a hash.

    Values are what JSON has: the text of a program shows them as JSON with sorted keys, and so does ``str``.
    """

    def __init__(self, params: Mapping[str, Any] | str = "{}") -> None:
        text = params if isinstance(params, str) else json.dumps(params, sort_keys=True)
        values = json.loads(text)
        if not isinstance(values, dict):
            raise ValueError(f"{text}: expected a JSON object")
        super().__init__(values)

    def __str__(self) -> str:
        return json.dumps(self, sort_keys=True)

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(str(self))

    def __reduce__(self) -> tuple[type[Params], tuple[str]]:
        return Params, (str(self),)
