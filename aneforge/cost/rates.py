"""The constants of one chip, in the units that the model computes with, and the roofline that they make."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["Constants", "Roof"]


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
    """One chip, and what all chips share. Rates are per microsecond: bytes, multiply-adds, elements."""

    chip: Mapping[str, float]
    shared: Mapping[str, float]
    engines: int = 1
    winograd: bool = False

    @property
    def roof(self) -> Roof:
        return Roof(2.0 * self.chip["macs"] * self.engines, self.chip["weights"])
