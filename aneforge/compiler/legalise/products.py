"""Products whose right-hand side does not fit the working set."""

from __future__ import annotations

from aneforge.anec.ir import Module, Op
from aneforge.compiler.facts import Facts
from aneforge.compiler.legalise.relabel import Relayer, Span, spans, typed, with_extents
from aneforge.compiler.passes import pass_

_HEIGHT = 3


@pass_(
    "slice-products", 2, reads=["max_operand_bytes"], requires=["layers"], ensures=["sliced products"], only=["matmul"]
)
def slice_products(module: Module, chip: Facts) -> int:
    """SliceMatMulAlongHeight: a product is cut along the height until each right-hand side fits HAL 0x1b8 (U32).

    A right-hand side of one row, shared by every row of the left or not, is never cut.
    """
    walk = Relayer(module)
    for op in module.ops:
        slices = _slices(module, op, chip["max_operand_bytes"])
        if len(slices) < 2:
            walk.keep(op)
            continue
        kept = walk.recut(op)
        parts = [_slice(walk, op, kept, rows) for rows in slices]
        joined = walk.joined(parts, _HEIGHT, op.sources)
        walk.settle(op, kept, joined, parts, lambda values: walk.ghost_join(values, _HEIGHT))
    return walk.finish()


def _slices(module: Module, op: Op, working_set: int) -> list[Span]:
    """The fewest runs of rows whose right-hand sides fit; a single row may be too large and stays."""
    if op.kind != "matmul":
        return []
    right = op.operands[1]
    rows = right.shape[_HEIGHT]
    if rows == 1 or typed(right).bytes <= working_set:
        return []
    if right.kind == "const_in" and right.attrs["weight"] not in module.weights:
        return []  # a text without its numbers
    most = max(1, working_set // (typed(right).bytes // rows))
    return spans(rows, -(-rows // most))


def _slice(walk: Relayer, op: Op, kept: list[Op], rows: Span) -> Op:
    """One slice of a product. Operands with one row along the height serve every slice unchanged."""
    cut = {_HEIGHT: rows}
    operands = [walk.part(operand, cut, op.sources) for operand in op.operands]
    part = walk.layer("matmul", operands, with_extents(typed(op), {_HEIGHT: rows[1]}), op.attrs, op.sources)
    part.labels = op.labels
    return walk.again(kept, part, lambda constant: walk.part(constant, cut))
