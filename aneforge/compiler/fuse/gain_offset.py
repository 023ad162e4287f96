"""The gain-offset unit: an affine of one tensor with stored constants, applied at the engine's output."""

from __future__ import annotations

import numpy as np

from aneforge.anec.ir import Module, Op, TensorType
from aneforge.compiler.facts import Facts
from aneforge.compiler.fuse.scales import stored
from aneforge.compiler.passes import Rewriter, merged_sources, pass_

_SINGLE = TensorType((1, 1, 1, 1, 1))


@pass_("constants-to-gain-offset", 1, ensures=["gain and offset"])
def constants_to_gain_offset(module: Module, chip: Facts) -> int:
    """ScaledEWOrEWWithConstInToGOC: add, sub or mult with exactly one stored constant, singular or per channel.

    The unit is an affine of one tensor, so two live operands never fuse: add(conv_a, conv_b) stays a layer.
    """
    walk = Rewriter(module)
    for op in module.ops:
        found = _affine(module, op)
        if found is None:
            walk.keep(op)
            continue
        live, gain, offset = found
        assert op.type is not None
        size = TensorType((1, 1, max(gain.size, offset.size), 1, 1))
        shape = [1, 1, size.shape[2], 1, 1]
        scale = walk.constant(np.broadcast_to(gain.reshape(1, 1, -1, 1, 1), shape).reshape(-1), size, op.sources)
        shift = walk.constant(np.broadcast_to(offset.reshape(1, 1, -1, 1, 1), shape).reshape(-1), size, op.sources)
        walk.replace(op, walk.emit("anec.gain_offset_control", [live, scale, shift], op.type, None, op.sources))
    return walk.finish()


def _affine(module: Module, op: Op) -> tuple[Op, np.ndarray, np.ndarray] | None:
    """The live operand with gain and offset, if the op is such an affine."""
    if op.kind not in ("add", "sub", "mult") or len(op.operands) != 2:
        return None
    values = [stored(module, operand) for operand in op.operands]
    if (values[0] is None) == (values[1] is None):
        return None  # the guard of table 22.3: one live operand and one constant
    constant = values[0] if values[0] is not None else values[1]
    live = op.operands[1] if values[0] is not None else op.operands[0]
    layout = op.operands[0 if values[0] is not None else 1].type
    assert constant is not None
    assert layout is not None
    n, d, _, h, w = layout.shape
    if (n, d, h, w) != (1, 1, 1, 1) or live.type != op.type:
        return None  # neither singular nor per channel, or the op broadcasts the live operand
    vector = constant.reshape(-1)
    one, zero = np.ones(1), np.zeros(1)
    if op.kind == "mult":
        return live, vector, zero
    if op.kind == "add":
        return live, one, vector
    return (live, one, -vector) if values[1] is not None else (live, -one, vector)


@pass_("merge-gain-offset", 1, requires=["gain and offset"])
def merge_gain_offset(module: Module, chip: Facts) -> int:
    """A gain and then an offset are one unit: scale, then bias.

    Only that pair: multiplying two gains or adding two offsets would round a constant again, and rewrites such as
    the range reduction of sine rely on every product and sum as it is written.
    """
    walk = Rewriter(module)
    for op in module.ops:
        before = op.operands[0] if op.kind == "gain_offset_control" else None
        merged = None if before is None else _merged(module, before, op)
        if before is None or merged is None:
            walk.keep(op)
            continue
        gain, offset = merged
        assert op.type is not None
        size = TensorType((1, 1, gain.size, 1, 1))
        sources = merged_sources(before, op)
        scale, shift = walk.constant(gain, size, sources), walk.constant(offset, size, sources)
        unit = walk.emit("anec.gain_offset_control", [before.operands[0], scale, shift], op.type, None, sources)
        walk.replace(op, unit)
    return walk.finish()


def _merged(module: Module, before: Op, op: Op) -> tuple[np.ndarray, np.ndarray] | None:
    if before.kind != "gain_offset_control" or len(before.users) != 1:
        return None
    if len(before.operands) != 3 or len(op.operands) != 3:
        return None
    values = [stored(module, each) for each in (*before.operands[1:], *op.operands[1:])]
    if any(each is None for each in values):
        return None
    gain, earlier, later, offset = (np.asarray(each).reshape(-1) for each in values)
    if earlier.any() or (later != 1.0).any():
        return None
    size = max(gain.size, offset.size)
    return np.broadcast_to(gain, size), np.broadcast_to(offset, size)
