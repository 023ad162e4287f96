"""Activation pairs that one activation can stand for."""

from __future__ import annotations

from aneforge.anec.ir import Module, Op
from aneforge.anec.spec import kinds_with
from aneforge.anec.traits import Trait
from aneforge.compiler.facts import Facts
from aneforge.compiler.passes import Pattern, Rewriter, merged_sources, pass_, rewrite_by_kind

_INFINITY = float("inf")


def _range(op: Op) -> tuple[float, float] | None:
    """The bounds of an activation that only clamps."""
    if op.kind == "relu":
        return 0.0, _INFINITY
    if op.kind == "n_relu":
        return 0.0, op["max_val"]
    return (op["min_val"], op["max_val"]) if op.kind == "clamped_relu" else None


def _once(walk: Rewriter, op: Op) -> Op | None:
    """Rounding, relu, abs and sign twice are once."""
    return op.operands[0] if op.operands[0].kind == op.kind else None


def _clamp(walk: Rewriter, op: Op) -> Op | None:
    """A clamp of a clamp is one clamp, unless the second decides alone since every value lies outside it."""
    before = op.operands[0]
    first, second = _range(before), _range(op)
    if first is None or second is None or len(before.users) != 1:
        return None
    low, high = max(first[0], second[0]), min(first[1], second[1])
    if low > high:
        return None
    assert op.type is not None
    operands, sources = [before.operands[0]], merged_sources(before, op)
    if (low, high) == (0.0, _INFINITY):
        return walk.emit("anec.relu", operands, op.type, None, sources)
    if low == 0.0:
        return walk.emit("anec.n_relu", operands, op.type, {"max_val": high}, sources)
    return walk.emit("anec.clamped_relu", operands, op.type, {"min_val": low, "max_val": high}, sources)


_PAIRS: dict[str, Pattern] = {
    **dict.fromkeys(kinds_with(Trait.IDEMPOTENT), _once),
    "n_relu": _clamp,
    "clamped_relu": _clamp,
    "relu": lambda walk, op: _once(walk, op) or _clamp(walk, op),
}


@pass_(
    "merge-activations",
    1,
    ensures=["single activations"],
    only=list(_PAIRS),
    loses="one activation with the one that reads it",
)
def merge_activations(module: Module, chip: Facts) -> int:
    """MergeFusableActivationPairs: a clamp of a clamp is one clamp; relu, abs, sign and rounding twice are once."""
    return rewrite_by_kind(module, _PAIRS)
