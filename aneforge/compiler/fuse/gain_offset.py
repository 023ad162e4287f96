"""The gain-offset unit: an affine of one tensor with stored constants, applied at the engine's output."""

from __future__ import annotations

import numpy as np

from aneforge.anec.ir import Module, Op, TensorType
from aneforge.compiler.facts import Facts
from aneforge.compiler.fuse.scales import is_plain_affine, stored_values, stored_weight
from aneforge.compiler.passes import Rewriter, merged_sources, pass_, rewrite_by_kind
from aneforge.graph.weights import Weight

AFFINE = ("add", "sub", "mult")
"""Ops that a gain and an offset can stand for."""


@pass_("constants-to-gain-offset", 1, ensures=["gain and offset"], only=AFFINE)
def constants_to_gain_offset(module: Module, chip: Facts) -> int:
    """ScaledEWOrEWWithConstInToGOC: add, sub or mult with exactly one stored constant, singular or per channel.

    The unit is an affine of one tensor, so two live operands never fuse: add(conv_a, conv_b) stays a layer.
    """
    constants: dict[tuple[str, str, bool], tuple[Op, Op]] = {}  # what each constant becomes, once for all its readers

    def pattern(walk: Rewriter, op: Op) -> Op | None:
        affine = _affine(module, op)
        if affine is None:
            return None
        live, weight, first = affine
        key = (weight.key, op.kind, first)
        if key not in constants:
            constants[key] = _gain_and_offset(walk, op, weight, first)
        assert op.type is not None
        return walk.emit("anec.gain_offset_control", [live, *constants[key]], op.type, None, op.sources)

    return rewrite_by_kind(module, dict.fromkeys(AFFINE, pattern))


def _affine(module: Module, op: Op) -> tuple[Op, Weight, bool] | None:
    """The live operand, the constant, and whether the constant comes first, if the op is such an affine."""
    left, right = (stored_weight(module, operand) for operand in op.operands)
    constant = right if left is None else left
    if constant is None or (left is not None and right is not None):
        return None  # the guard of table 22.3: one live operand and one constant
    first = left is not None
    place, live = op.operands if first else reversed(op.operands)
    n, d, _, h, w = place.shape
    if (n, d, h, w) != (1, 1, 1, 1) or live.type != op.type:
        return None  # neither singular nor per channel, or the op broadcasts the live operand
    return live, constant, first


def _gain_and_offset(walk: Rewriter, op: Op, weight: Weight, first: bool) -> tuple[Op, Op]:
    """The stored gain and offset that an add, sub or mult with a constant stands for."""
    vector = weight.array.astype(np.float64).reshape(-1)
    one, zero = np.ones_like(vector), np.zeros_like(vector)
    gain, offset = {
        "mult": (vector, zero),
        "add": (one, vector),
        "sub": (-one, vector) if first else (one, -vector),
    }[op.kind]
    size = TensorType((1, 1, vector.size, 1, 1))
    return walk.constant(gain, size, op.sources), walk.constant(offset, size, op.sources)


@pass_(
    "merge-gain-offset",
    1,
    requires=["gain and offset"],
    only=["gain_offset_control"],
    loses="one gain and offset with what reads it",
)
def merge_gain_offset(module: Module, chip: Facts) -> int:
    """A gain and then an offset are one unit: scale, then bias.

    Only that pair: multiplying two gains or adding two offsets would round a constant again, and rewrites such as
    the range reduction of sine rely on every product and sum as it is written.
    """

    def pattern(walk: Rewriter, op: Op) -> Op | None:
        before = op.operands[0]
        merged = _merged(module, before, op)
        if merged is None:
            return None
        gain, offset = merged
        assert op.type is not None
        size, sources = TensorType((1, 1, gain.size, 1, 1)), merged_sources(before, op)
        scale, shift = walk.constant(gain, size, sources), walk.constant(offset, size, sources)
        return walk.emit("anec.gain_offset_control", [before.operands[0], scale, shift], op.type, None, sources)

    return rewrite_by_kind(module, {"gain_offset_control": pattern})


def _merged(module: Module, before: Op, op: Op) -> tuple[np.ndarray, np.ndarray] | None:
    if len(before.users) != 1 or not is_plain_affine(before) or not is_plain_affine(op):
        return None
    values = [stored_values(module, operand) for operand in (*before.operands[1:], *op.operands[1:])]
    if any(value is None for value in values):
        return None
    gain, earlier, later, offset = (np.asarray(value).reshape(-1) for value in values)
    if earlier.any() or (later != 1.0).any():
        return None
    size = max(gain.size, offset.size)
    return np.broadcast_to(gain, size), np.broadcast_to(offset, size)
