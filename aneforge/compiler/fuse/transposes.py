"""Transposes are free: chains collapse to one, opposite ones cancel, and a product turns its operand itself."""

from __future__ import annotations

from aneforge.anec.ir import Module, Op
from aneforge.compiler.facts import Facts
from aneforge.compiler.passes import Rewriter, merged_sources, pass_

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
    walk = Rewriter(module)
    for op in module.ops:
        if _joins_reshape(op):
            _reshaped(walk, op)
            continue
        before = op.operands[0] if op.kind == "transpose" else None
        if before is None or before.kind != "transpose":
            walk.keep(op)
            continue
        first, second = order_of(before), order_of(op)
        order = tuple(first[axis] for axis in second)
        source = before.operands[0]
        if order == _IDENTITY:
            walk.replace(op, source)
            continue
        assert op.type is not None
        attrs = {"transpose_list": pairs_of(order)}
        walk.replace(op, walk.emit("anec.transpose", [source], op.type, attrs, merged_sources(before, op)))
    return walk.finish()


def _joins_reshape(op: Op) -> bool:
    before = op.operands[0] if op.kind in ("transpose", "reshape") else None
    if before is None or {op.kind, before.kind} != {"transpose", "reshape"}:
        return False
    return keeps_order(op if op.kind == "transpose" else before)


def _reshaped(walk: Rewriter, op: Op) -> None:
    """Read what the op before read, under the last shape."""
    before, source = op.operands[0], op.operands[0].operands[0]
    assert op.type is not None
    if source.type == op.type:
        walk.replace(op, source)
        return
    attrs = {"shape": op.type.shape}
    walk.replace(op, walk.emit("anec.reshape", [source], op.type, attrs, merged_sources(before, op)))


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
            if op.attrs.pop(flag, None) is None:
                op.attrs[flag] = True
            changes += 1
    module.sweep()
    return changes
