"""Ops that follow a transpose or a view of an engine op's result, and commute with it, move in front of it.

A layer absorbs a bias, a gain and an activation only where they follow it directly. Frontends put transposes and
views between them: a product at rank 3 gives its rows on the channels, and the user's shape comes after. Such moves
change no number, so what is done to each number can be done before them.
"""

from __future__ import annotations

import math

import numpy as np

from aneforge.anec.ir import Module, Op, TensorType
from aneforge.anec.spec import kinds_with
from aneforge.anec.traits import Trait
from aneforge.compiler.facts import Facts
from aneforge.compiler.fuse.gain_offset import AFFINE
from aneforge.compiler.fuse.scales import stored_weight
from aneforge.compiler.fuse.slots import is_barrier
from aneforge.compiler.fuse.transposes import order_of
from aneforge.compiler.passes import Rewriter, merged_sources, pass_, rewrite_by_kind
from aneforge.graph.weights import Weight

_MOVES = ("transpose", "reshape")
_PRODUCTS = kinds_with(Trait.CONTRACTION) - kinds_with(Trait.CONVOLUTION)
_OUTPUTS = 4
"""Where the outputs of a product lie: on the width."""
_CAPS = ("limit:batch_extent", "max_tensor_depth", "limit:channel_extent", "max_tensor_height", "max_tensor_width")


def moves_before(op: Op) -> list[Op]:
    """The transposes and views that lead to an op, last one first, as long as nothing else reads them."""
    moves = []
    while op.kind in _MOVES and len(op.users) == 1:
        moves.append(op)
        op = op.operands[0]
    return moves


def axis_before(move: Op, axis: int) -> int | None:
    """Which axis of its source a move shows whole on one of its own; None where it shows parts or a mixture."""
    source = move.operands[0].shape
    if move.kind == "transpose":
        return order_of(move)[axis]
    extent, behind = move.shape[axis], math.prod(move.shape[axis + 1 :])
    alike = [place for place in range(len(source)) if math.prod(source[place + 1 :]) == behind]
    return next((place for place in alike if source[place] == extent), None)


def _replayed(walk: Rewriter, moves: list[Op], value: Op, last: Op) -> Op:
    """Repeat the moves after a value that has absorbed ``last``; they now hold the numbers of ``last``."""
    for move in reversed(moves):
        assert move.type is not None
        assert value.type is not None
        layout = TensorType(move.type.shape, value.type.dtype)
        value = walk.emit(move.name, [value], layout, move.attrs, merged_sources(move, last))
    return value


@pass_(
    "bias-into-products",
    1,
    requires=["single transposes"],
    only=("add", "sub"),
    loses="the product holds the bias of what reads it",
)
def bias_into_products(module: Module, chip: Facts) -> int:
    """Chapter 22: a stored number for each output, added to a product with a stored weight, is the product's bias.

    The product adds it before its one rounding. A second bias stays where it is: two that are added would be rounded
    once more.
    """

    def pattern(walk: Rewriter, op: Op) -> Op | None:
        live, bias = _with_constant(module, op)
        if live is None or bias is None:
            return None
        moves = moves_before(live)
        product = moves[-1].operands[0] if moves else live
        if product.kind not in _PRODUCTS or len(product.operands) > 2 or len(product.users) != 1:
            return None
        if product.operands[1].kind != "const_in" or not _is_per_output(bias, moves, product):
            return None
        weight = stored_weight(module, bias)
        if weight is None or product.type is None:
            return None
        offset = _per_output(walk, op, bias, weight, product.shape[_OUTPUTS])
        sources = merged_sources(product, op)
        with_bias = walk.emit(product.name, [*product.operands, offset], product.type, product.attrs, sources)
        return _replayed(walk, moves, with_bias, op)

    return rewrite_by_kind(module, {"add": pattern, "sub": pattern})


def _per_output(walk: Rewriter, op: Op, bias: Op, weight: Weight, outputs: int) -> Op:
    """What an add or sub adds, one number for each output."""
    layout = TensorType((1, 1, 1, 1, outputs))
    if op.kind == "add" and weight.size == outputs:
        return walk.emit("anec.const_in", (), layout, bias.attrs, op.sources)
    numbers = weight.array.astype(np.float64).reshape(-1)
    return walk.constant(np.broadcast_to(numbers if op.kind == "add" else -numbers, outputs), layout, op.sources)


def _with_constant(module: Module, op: Op) -> tuple[Op | None, Op | None]:
    """The live operand of an add or sub, and the stored one. A constant minus a live value is not a bias."""
    left, right = op.operands
    if stored_weight(module, right) is not None and stored_weight(module, left) is None:
        live, constant = left, right
    elif op.kind == "add" and stored_weight(module, left) is not None and stored_weight(module, right) is None:
        live, constant = right, left
    else:
        return None, None
    return (live, constant) if live.type == op.type else (None, None)


def _is_per_output(bias: Op, moves: list[Op], product: Op) -> bool:
    """Whether a constant is one number, or one for each output of the product, seen through the moves behind it."""
    wide = [axis for axis, extent in enumerate(bias.shape) if extent > 1]
    if not wide:
        return True
    if len(wide) > 1:
        return False
    axis: int | None = wide[0]
    for move in moves:
        axis = None if axis is None else axis_before(move, axis)
    return axis == _OUTPUTS and bias.shape[wide[0]] == product.shape[_OUTPUTS]


@pass_("sink-moves", 1, reads=_CAPS, only=_MOVES)
def sink_moves(module: Module, chip: Facts) -> int:
    """A transpose or view before a pointwise activation, or before an affine with one number, moves behind it.

    There a transpose can cancel with its opposite or use the transpose slot. A view moves only where the op in front
    of it can absorb what follows. A transpose may read axes that are too long for any other op; then nothing moves.
    """
    caps = [chip[name] for name in _CAPS]

    def activation(walk: Rewriter, op: Op) -> Op | None:
        if len(op.operands) > 1 or is_barrier(op):
            return None
        return _sunk(walk, op, 0, caps)

    def affine(walk: Rewriter, op: Op) -> Op | None:
        live, constant = op.operands
        place = 0
        if live.kind == "const_in":
            live, constant, place = constant, live, 1
        single = constant.kind == "const_in" and constant.shape == (1, 1, 1, 1, 1)
        return _sunk(walk, op, place, caps) if single and live.type == op.type else None

    return rewrite_by_kind(
        module, {**dict.fromkeys(kinds_with(Trait.ACTIVATION), activation), **dict.fromkeys(AFFINE, affine)}
    )


def _sunk(walk: Rewriter, op: Op, place: int, caps: list[int]) -> Op | None:
    """Emit an op in front of the moves that lead to it, and the moves behind it."""
    moves = moves_before(op.operands[place])
    if not moves:
        return None
    source = moves[-1].operands[0]
    hosted = source.is_a(Trait.HOST) and not is_barrier(source) and len(source.users) == 1
    if not hosted and (op.kind in AFFINE or any(move.kind == "reshape" for move in moves)):
        return None
    if any(extent > cap for extent, cap in zip(source.shape, caps, strict=True)):
        return None
    assert source.type is not None
    assert op.type is not None
    operands = [source if at == place else operand for at, operand in enumerate(op.operands)]
    moved = walk.emit(op.name, operands, TensorType(source.type.shape, op.type.dtype), op.attrs, op.sources)
    return _replayed(walk, moves, moved, op)
