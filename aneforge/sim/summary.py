"""Summarise an array: its shape, its range and mean, and how much of it is not finite."""

from __future__ import annotations

from typing import Any

import numpy as np


class Summary:
    """Figures over all arrays of one shape that are added; the arrays themselves are not kept."""

    def __init__(self, *arrays: np.ndarray) -> None:
        self.shape: tuple[int, ...] = ()
        self.elements = 0
        self.not_finite = 0
        self.true: int | None = None
        self._low, self._high, self._sum = np.inf, -np.inf, 0.0
        for values in arrays:
            self.add(values)

    def add(self, values: np.ndarray) -> None:
        self.shape = values.shape
        self.elements += values.size
        if values.dtype == bool:
            self.true = (self.true or 0) + int(values.sum())
            return
        wide = values.astype(np.float64)
        finite = wide[np.isfinite(wide)]
        self.not_finite += wide.size - finite.size
        if finite.size:
            self._low, self._high = min(self._low, float(finite.min())), max(self._high, float(finite.max()))
            self._sum += float(finite.sum())

    def __str__(self) -> str:
        if self.true is not None:
            return f"{self.true} of {self.elements} true"
        finite = self.elements - self.not_finite
        span = f"{self._low:.6g} to {self._high:.6g}, mean {self._sum / finite:.6g}" if finite else "nothing finite"
        return f"{span}{f', {self.not_finite} infinite' if self.not_finite else ''}"

    def to_json(self) -> dict[str, Any]:
        return {"shape": list(self.shape), "values": str(self)}
