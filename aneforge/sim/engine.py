"""What differs between chips when numbers are computed: data, looked up once per target."""

from __future__ import annotations

from dataclasses import dataclass

from aneforge.targets.assumed import compile_fact
from aneforge.targets.chip import Target

__all__ = ["Engine"]


@dataclass(frozen=True)
class Engine:
    """The arithmetic of one target."""

    target: Target
    winograd: bool
    """3 x 3 convolutions of unit stride take the width Winograd form (N56, U38)."""
    flush_subnormals: bool
    """The multipliers read subnormals as zero: claimed for the M1 (N34) and excluded by its printed norms (U39)."""

    @classmethod
    def of(cls, target: Target) -> Engine:
        return cls(
            target,
            bool(compile_fact(target, "winograd").value),
            bool(compile_fact(target, "mac_flushes_subnormals").value),
        )
