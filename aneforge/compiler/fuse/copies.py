"""Remove ops that return their input unchanged, and share equal moves."""

from __future__ import annotations

from typing import Any

from aneforge.anec.ir import Module, Op
from aneforge.compiler.facts import Facts
from aneforge.compiler.passes import Pattern, Rewriter, merged_sources, pass_, rewrite_by_kind


def _unchanged(walk: Rewriter, op: Op) -> Op | None:
    """The operand of an op that gives the type it reads."""
    return op.operands[0] if op.type == op.operands[0].type else None


def _whole_view(walk: Rewriter, op: Op) -> Op | None:
    return _unchanged(walk, op) if op["step"] == 1 else None


def _reshape(walk: Rewriter, op: Op) -> Op | None:
    """A reshape of a reshape reads what the first one read (table 22.3, transpose and reshape chains)."""
    before = op.operands[0]
    if before.kind != "reshape":
        return _unchanged(walk, op)
    assert op.type is not None
    source = before.operands[0]
    if source.type == op.type:
        return source
    return walk.emit(op.name, [source], op.type, op.attrs, merged_sources(before, op))


_COPIES: dict[str, Pattern] = {
    "reshape": _reshape,
    "broadcast": _unchanged,
    "cast": _unchanged,
    "tile": _unchanged,
    "padding": _unchanged,
    "input_view": _whole_view,
    "transpose": lambda walk, op: None if op["transpose_list"] else op.operands[0],
}


@pass_("drop-copies", 1, ensures=["no copies"], only=list(_COPIES))
def drop_copies(module: Module, chip: Facts) -> int:
    """Elementwise-copy elimination: drop reshapes, casts, broadcasts, views and pads that change nothing."""
    return rewrite_by_kind(module, _COPIES)


@pass_("share-moves", 1, requires=["single transposes"], ensures=["shared moves"], only=["transpose", "reshape"])
def share_moves(module: Module, chip: Facts) -> int:
    """One transpose or reshape for all that read the same value in the same order and shape.

    The queries, keys and values of an attention block each turn their input; turned once, it feeds all three.
    """
    first_of: dict[tuple[Any, ...], Op] = {}

    def pattern(walk: Rewriter, op: Op) -> Op | None:
        first = first_of.setdefault((op.kind, op.operands[0].uid, op.type, *op.attrs.values()), op)  # one each
        return None if first is op else first

    return rewrite_by_kind(module, {"transpose": pattern, "reshape": pattern})
