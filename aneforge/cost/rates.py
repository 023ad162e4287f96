"""The constants of one chip, in the units that the model computes with, and the roofline that they make."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Roof:
    """What bounds a chip: operations per microsecond, and bytes per microsecond for what is read once."""

    peak: float
    bandwidth: float

    def at(self, intensity: float) -> float:
        """Operations per microsecond that a layer of so many operations per byte can reach."""
        return min(self.peak, intensity * self.bandwidth)

    @property
    def ridge(self) -> float:
        """Operations per byte from which the multiply-adds bound a layer."""
        return self.peak / self.bandwidth


@dataclass(frozen=True)
class Constants:
    """One chip, and what all chips share. Rates are per microsecond: bytes, multiply-adds, elements.

    The fit times layers of many chips at once: then a constant of the chip is an array, one number for each layer.
    """

    chip: Mapping[str, Any]
    shared: Mapping[str, Any]
    engines: Any = 1
    winograd: Any = False
    skips_zeros: Any = False
    """Exact zeros in plain weights are skipped (C54)."""
    narrow_kernels: Any = False
    """int8 weights take one byte in the kernel memory too (C59)."""

    @property
    def roof(self) -> Roof:
        return Roof(2.0 * self.chip["macs"] * self.engines, self.chip["weights"])
