"""Transposes are free: chains collapse to one, opposite ones cancel, and a product turns its operand itself."""

from __future__ import annotations

from aneforge.anec.ir import Module, Op
from aneforge.compiler.facts import Facts
from aneforge.compiler.passes import Rewriter, merged_sources, pass_, rewrite_by_kind

Order = tuple[int, ...]
_IDENTITY: Order = (0, 1, 2, 3, 4)
_ROWS_TO_COLUMNS: Order = (0, 1, 4, 3, 2)  # C and W exchanged: what transpose_lhs and transpose_rhs do


def order_of(op: Op) -> Order:
    """For each result axis, the source axis it shows."""
    order = list(_IDENTITY)
    for result, source in op.attrs["transpose_list"]:
        order[result] = source
    return tuple(order)


def pairs_of(order: Order) -> tuple[tuple[int, int], ...]:
    return tuple((result, source) for result, source in enumerate(order) if result != source)


def keeps_order(op: Op) -> bool:
    """Whether a transpose moves no element: only axes of one change places with others."""
    extents = op.operands[0].shape
    wide = [axis for axis in order_of(op) if extents[axis] > 1]
    return wide == sorted(wide)


@pass_("collapse-transposes", 1, ensures=["single transposes"], only=["transpose"])
def collapse_transposes(module: Module, chip: Facts) -> int:
    """CollapseTranspose: a transpose of a transpose becomes one; symmetric pairs cancel.

    One that moves no element joins the reshape before or behind it.
    """
    return rewrite_by_kind(module, {"transpose": _collapsed, "reshape": _joined})


def _collapsed(walk: Rewriter, op: Op) -> Op | None:
    """A transpose behind another, or one that moves no element behind a reshape."""
    before = op.operands[0]
    if before.kind == "reshape" and keeps_order(op):
        return _reshaped(walk, op)
    if before.kind != "transpose":
        return None
    first, second = order_of(before), order_of(op)
    order = tuple(first[axis] for axis in second)
    source = before.operands[0]
    if order == _IDENTITY:
        return source
    assert op.type is not None
    attrs = {"transpose_list": pairs_of(order)}
    return walk.emit("anec.transpose", [source], op.type, attrs, merged_sources(before, op))


def _joined(walk: Rewriter, op: Op) -> Op | None:
    """A reshape behind a transpose that moves no element."""
    before = op.operands[0]
    return _reshaped(walk, op) if before.kind == "transpose" and keeps_order(before) else None


def _reshaped(walk: Rewriter, op: Op) -> Op:
    """What the op before read, under the last shape."""
    before, source = op.operands[0], op.operands[0].operands[0]
    assert op.type is not None
    if source.type == op.type:
        return source
    return walk.emit("anec.reshape", [source], op.type, {"shape": op.type.shape}, merged_sources(before, op))


@pass_("transposes-into-matmul", 1, requires=["single transposes"], only=["transpose"])
def transposes_into_matmul(module: Module, chip: Facts) -> int:
    """The contraction is parametric (listing 22.1): a C and W exchange before a matmul becomes its flag."""
    changes = 0
    for op in module.ops:
        if op.kind != "matmul":
            continue
        for index, flag in enumerate(("transpose_lhs", "transpose_rhs")):
            operand = op.operands[index]
            if operand.kind != "transpose" or order_of(operand) != _ROWS_TO_COLUMNS:
                continue
            op.set_operand(index, operand.operands[0])
            op.sources = merged_sources(operand, op)
            others = {name: value for name, value in op.attrs.items() if name != flag}
            op.attrs = others if flag in op.attrs else {**others, flag: True}
            changes += 1
    module.sweep()
    return changes
