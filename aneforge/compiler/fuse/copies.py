"""Ops that hand on what they get."""

from __future__ import annotations

from aneforge.anec.ir import Module, Op
from aneforge.compiler.facts import Facts
from aneforge.compiler.passes import Rewriter, merged_sources, pass_


@pass_("drop-copies", 1, ensures=["no copies"])
def drop_copies(module: Module, chip: Facts) -> int:
    """Elementwise-copy elimination: drop reshapes, casts, broadcasts, views and pads that change nothing.

    A reshape of a reshape reads what the first one read (table 22.3, transpose and reshape chains).
    """
    walk = Rewriter(module)
    for op in module.ops:
        if op.kind == "reshape" and op.operands[0].kind == "reshape":
            op.sources = merged_sources(op.operands[0], op)
            op.set_operand(0, op.operands[0].operands[0])
            walk.changes += 1
        if _is_copy(op):
            walk.replace(op, op.operands[0])
        else:
            walk.keep(op)
    return walk.finish()


def _is_copy(op: Op) -> bool:
    if op.kind in ("reshape", "broadcast", "cast", "tile"):
        return op.type == op.operands[0].type
    if op.kind == "input_view":
        return op.type == op.operands[0].type and op.attrs["step"] == 1
    if op.kind == "padding":
        return op.type == op.operands[0].type
    return op.kind == "transpose" and not op.attrs["transpose_list"]
