"""How far a simulated op can be trusted on a chip: exact, modelled or assumed."""

from __future__ import annotations

from aneforge.sim.rules import MOVES, has_own_rule
from aneforge.sim.tables import constructed
from aneforge.targets.assumed import compile_fact
from aneforge.targets.chip import Target

__all__ = ["basis"]

_FINGERPRINTED = ("convolution", "linear", "matmul", "add", "sub", "mult")


def basis(kind: str, target: Target) -> str:
    """``exact``: a fingerprint or probe is reproduced, or no number changes. ``modelled``: the engine's steps, or its
    error level, are known and not all digits. ``assumed``: the op's meaning, rounded once."""
    if kind in MOVES:
        return "exact"
    if kind in _FINGERPRINTED:
        return "exact" if compile_fact(target, "mac_fingerprints").value else "modelled"
    if constructed(kind):
        return "exact" if compile_fact(target, "table_figures").value else "modelled"
    return "modelled" if has_own_rule(kind) else "assumed"
