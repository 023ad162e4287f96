"""Move what follows a concat onto the layers that feed it, so that the concat no longer separates layers (table 22.3,
U33)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aneforge.anec.ir import Module, Op, TensorType
from aneforge.compiler.facts import Facts
from aneforge.compiler.fuse.scales import stored_weight
from aneforge.compiler.fuse.slots import has_room, is_activation, is_barrier
from aneforge.compiler.passes import Rewriter, pass_
from aneforge.graph.weights import Weight, moved_weight

_CHANNELS = 2

Cuts = dict[tuple[str, int, int], Op]
"""Pieces of constants that this walk has made, by the constant's key, the first number and the one after the last."""


@pass_("hoist-through-concat", 1, requires=["gain and offset", "single activations"], only=["concat"])
def hoist_through_concat(module: Module, chip: Facts) -> int:
    """IsFusableConcat: an activation or affine behind a concat moves onto operands whose layers take it up (U33).

    Every operand must be the result of an engine layer that nothing else reads and that has the slot free;
    otherwise the concat stays a boundary. No number changes: the same op runs on the parts, with its own constants.
    """
    walk = Rewriter(module)
    cuts: Cuts = {}
    for op in module.ops:
        joined = op.operands[0] if op.operands else None
        parts = None if joined is None or not _fusable(joined, op) else _constants(walk, joined, op, cuts)
        if joined is None or parts is None:
            walk.keep(op)
            continue
        assert op.type is not None
        moved = [
            walk.emit(op.name, [part, *constants], TensorType(part.shape, op.type.dtype), op.attrs, op.sources)
            for part, constants in zip(joined.operands, parts, strict=True)
        ]
        walk.replace(op, walk.emit(joined.name, moved, op.type, joined.attrs, joined.sources))
        walk.drop(joined)  # its operands have one reader again, so the next op may move likewise
    return walk.finish()


def _fusable(joined: Op, op: Op) -> bool:
    """Whether a concat qualifies for the op behind it."""
    if joined.kind != "concat" or joined.only_user is not op or is_barrier(joined) or is_barrier(op):
        return False
    alone = is_activation(op) and len(op.operands) == 1
    if not alone and op.kind != "gain_offset_control":
        return False
    return all(part.users == {joined: 1} and has_room(part, op) for part in joined.operands)


def _constants(walk: Rewriter, joined: Op, op: Op, cuts: Cuts) -> list[list[Op]] | None:
    """For each operand of the concat, the constants that the op applies to its share of the result."""
    parts: list[list[Op]] = [[] for _ in joined.operands]
    for constant in op.operands[1:]:
        shares = _shares(walk, joined, constant, cuts)
        if shares is None:
            return None
        for part, share in zip(parts, shares, strict=True):
            part.append(share)
    return parts


def _shares(walk: Rewriter, joined: Op, constant: Op, cuts: Cuts) -> Sequence[Op] | None:
    """One constant cut where the concat joins; unchanged where it is constant along that axis."""
    axis = joined.attrs["axis"]
    if constant.shape[axis] == 1:
        return [constant] * len(joined.operands)
    weight = stored_weight(walk.module, constant)
    line = constant.shape == tuple(joined.shape[axis] if i == axis else 1 for i in range(5))
    if axis != _CHANNELS or not line or weight is None or joined.attrs.get("interleave"):
        return None
    shares, start = [], 0
    for part in joined.operands:
        end = start + part.shape[axis]
        key = (weight.key, start, end)
        if key not in cuts:
            layout = TensorType((1, 1, end - start, 1, 1))
            cuts[key] = walk.stored(_cut(weight, start, end), layout, constant.sources)
        shares.append(cuts[key])
        start = end
    return shares


def _cut(weight: Weight, start: int, end: int) -> Weight:
    def cut(values: np.ndarray) -> np.ndarray:
        return values.reshape(-1)[start:end]

    return moved_weight(f"numbers {start} to {end}", weight, (end - start,), cut)
