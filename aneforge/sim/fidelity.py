"""How far a simulated op can be trusted on a chip: exact, modelled or assumed."""

from __future__ import annotations

from aneforge.sim.rules import MOVES, has_own_rule
from aneforge.sim.tables import constructed
from aneforge.targets.chip import Target

__all__ = ["basis"]

_FINGERPRINTED = ("convolution", "linear", "matmul", "add", "sub", "mult")
# Generations on which somebody printed digits that the rule reproduces (numerics_train.json): H13, H14, H16, H17 and
# H18g.
_MEASURED_GENERATIONS = (7, 11, 17, 19, 24)
_TABLE_GENERATIONS = (24,)


def basis(kind: str, target: Target) -> str:
    """``exact``: a fingerprint or probe is reproduced, or no number changes. ``modelled``: the engine's steps, or its
    error level, are known and not all digits. ``assumed``: the op's meaning, rounded once."""
    if kind in MOVES:
        return "exact"
    measured = target.td_generation in _MEASURED_GENERATIONS
    if kind in _FINGERPRINTED:
        return "exact" if measured else "modelled"
    if constructed(kind):
        return "exact" if target.td_generation in _TABLE_GENERATIONS else "modelled"
    return "modelled" if has_own_rule(kind) else "assumed"
