"""The rule of each backend op on an engine: fp16 in, fp16 out, with every rounding that the engine does.

A rule is prepared once per op of a program, with its attributes read and its weights laid out, and then called with
the operands of every run. An op without a rule of its own uses its float64 meaning, rounded once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from aneforge.engine.interpret import rule_of
from aneforge.engine.ir import Op
from aneforge.engine.spec import kinds_with
from aneforge.engine.traits import Trait
from aneforge.sim.engine import Engine
from aneforge.sim.half import narrowed, widened
from aneforge.sim.rules.contraction import CONTRACTIONS
from aneforge.sim.rules.moves import CLAMPS, PICKS, UNITS, clamping, moving
from aneforge.sim.rules.planar import PLANAR
from aneforge.sim.rules.units import UNIT_RULES, unit

__all__ = ["Prepared", "has_own_rule", "keeps_numbers", "prepared"]

Array = np.ndarray
_PART = 1 << 18  # elements of a map that are float64 at a time


@dataclass(frozen=True)
class Prepared:
    """An op that is prepared to run: the ops whose values it reads, and the function to call with them."""

    reads: tuple[Op, ...]
    call: Callable[..., Array]


def prepared(engine: Engine, op: Op, kernel: Array | None, named: dict[str, Array]) -> Prepared:
    """The rule of one op. ``kernel`` is its second operand where that is a stored weight; ``named`` has the constants
    that its attributes name."""
    if op.kind in CONTRACTIONS:
        return Prepared(*CONTRACTIONS[op.kind](engine, op, kernel, named))
    if op.kind in PLANAR or (op.kind == "unit" and op.attrs["type"] in UNIT_RULES):
        rule = PLANAR.get(op.kind, unit)
        return Prepared(tuple(op.operands), lambda *operands: rule(engine, op, *operands))
    if op.is_a(Trait.MOVEMENT):
        return Prepared(tuple(op.operands), moving(op))
    if op.kind in PICKS:
        rule = PICKS[op.kind]
        return Prepared(tuple(op.operands), lambda *operands: rule(op, *operands))
    if op.kind in CLAMPS:
        return Prepared(tuple(op.operands), clamping(op))
    return Prepared(tuple(op.operands), _meaning(op, named))


def _meaning(op: Op, named: dict[str, Array]) -> Callable[..., Array]:
    """The float64 meaning of an op, rounded once; booleans stay as they are."""
    rule = rule_of(op)
    truth = op.type is not None and op.type.dtype == "i1"

    def call(*operands: Array) -> Array:
        wide = [operand if operand.dtype == bool else widened(operand) for operand in operands]
        with np.errstate(all="ignore"):
            result = np.asarray(rule(op, *wide, **named))
        return result.astype(bool) if truth else narrowed(result)

    return _by_channels(op, call) if op.is_a(Trait.POOL) or op.kind == "resize" else call


def _by_channels(op: Op, call: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """Compute large maps some channels at a time: float64 is four times the stored size, and a resampling needs
    several."""

    def in_parts(x: Array) -> Array:
        count = max(1, _PART // max(1, op.shape[3] * op.shape[4], x.shape[3] * x.shape[4]))
        if x.shape[2] <= count or x.shape[2] != op.shape[2]:
            return call(x)
        parts = [call(x[:, :, first : first + count]) for first in range(0, x.shape[2], count)]
        return np.concatenate(parts, axis=2)

    return in_parts


def keeps_numbers(kind: str) -> bool:
    """Whether an op moves, picks, places, compares or clamps numbers, so that its meaning is exact. A native layer is
    named by its type, ``unit:Sort``."""
    return kind in kinds_with(Trait.EXACT) or kind.removeprefix("unit:") in UNITS


def has_own_rule(kind: str) -> bool:
    """Whether an op follows the engine's steps, not only its meaning with one rounding."""
    return kind in CONTRACTIONS or kind in PLANAR or kind.removeprefix("unit:") in UNIT_RULES
