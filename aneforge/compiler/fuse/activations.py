"""Activation pairs that one activation can stand for."""

from __future__ import annotations

from aneforge.anec.ir import Module, Op
from aneforge.compiler.facts import Facts
from aneforge.compiler.passes import Rewriter, merged_sources, pass_


def range_of(op: Op) -> tuple[float, float] | None:
    """The bounds of an activation that only clamps."""
    if op.kind == "relu":
        return 0.0, float("inf")
    if op.kind == "n_relu":
        return 0.0, op.attrs["max_val"]
    if op.kind == "clamped_relu":
        return op.attrs["min_val"], op.attrs["max_val"]
    return None


@pass_("merge-activations", 1, ensures=["single activations"], loses="one activation with the one that reads it")
def merge_activations(module: Module, chip: Facts) -> int:
    """MergeFusableActivationPairs: a clamp of a clamp is one clamp; relu, abs, sign and rounding twice are once."""
    walk = Rewriter(module)
    for op in module.ops:
        before = op.operands[0] if op.operands else None
        if before is None or not _mergeable(walk, before, op):
            walk.keep(op)
    return walk.finish()


def _mergeable(walk: Rewriter, before: Op, op: Op) -> bool:
    if before.kind == op.kind and op.kind in ("relu", "abs", "sign", "floor", "ceil", "round_nearest", "trunc"):
        walk.replace(op, before)
        return True
    first, second = range_of(before), range_of(op)
    if first is None or second is None or len(before.users) != 1:
        return False
    low, high = max(first[0], second[0]), min(first[1], second[1])
    if low > high:  # the second clamp decides alone: every value lies outside it
        return False
    assert op.type is not None
    sources = merged_sources(before, op)
    if (low, high) == (0.0, float("inf")):
        made = walk.emit("anec.relu", [before.operands[0]], op.type, None, sources)
    elif low == 0.0:
        made = walk.emit("anec.n_relu", [before.operands[0]], op.type, {"max_val": high}, sources)
    else:
        attrs = {"min_val": low, "max_val": high}
        made = walk.emit("anec.clamped_relu", [before.operands[0]], op.type, attrs, sources)
    walk.replace(op, made)
    return True
