"""Moves that cost nothing: transposes, views and concats collapse, cancel, or go where they are free."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from aneforge.compiler.facts import Facts
from aneforge.compiler.fuse.scales import AFFINE, stored_weight
from aneforge.compiler.fuse.slots import has_room, is_activation, is_barrier
from aneforge.compiler.passes import Rewriter, merged_sources, pass_, rewrite_by_kind
from aneforge.engine.ir import Module, Op, TensorType
from aneforge.engine.spec import POINT_CONVOLUTION, kinds_with
from aneforge.engine.traits import Trait
from aneforge.graph.weights import Weight, moved_weight

Order = tuple[int, ...]
IDENTITY: Order = (0, 1, 2, 3, 4)
ROWS_TO_COLUMNS: Order = (0, 1, 4, 3, 2)  # C and W exchanged: what transpose_lhs and transpose_rhs do


def order_of(op: Op) -> Order:
    """For each result axis, the source axis it shows."""
    return _order_of(op.attrs["transpose_list"])


@lru_cache(maxsize=4096)  # few orders, asked for again and again
def _order_of(pairs: tuple[tuple[int, int], ...]) -> Order:
    order = list(IDENTITY)
    for result, source in pairs:
        order[result] = source
    return tuple(order)


@lru_cache(maxsize=4096)
def pairs_of(order: Order) -> tuple[tuple[int, int], ...]:
    return tuple((result, source) for result, source in enumerate(order) if result != source)


@lru_cache(maxsize=4096)
def inverse(order: Order) -> Order:
    """The order that undoes another."""
    undone = [0] * 5
    for result, source in enumerate(order):
        undone[source] = result
    return tuple(undone)


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
    if order == IDENTITY:
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
    changes = rewrite_by_kind(module, {"linear": _reads_turned})
    for op in module.ops:
        if op.kind != "matmul":
            continue
        for index, flag in enumerate(("transpose_lhs", "transpose_rhs")):
            operand = op.operands[index]
            if operand.kind != "transpose" or order_of(operand) != ROWS_TO_COLUMNS:
                continue
            op.set_operand(index, operand.operands[0])
            op.sources = merged_sources(operand, op)
            others = {name: value for name, value in op.attrs.items() if name != flag}
            op.attrs = others if flag in op.attrs else {**others, flag: True}
            changes += 1
    if changes:
        module.sweep()
    return changes


def _reads_turned(walk: Rewriter, op: Op) -> Op | None:
    """A linear layer with a stored fp16 weight as the product that it is, which has a flag for a turned input."""
    turned = op.operands[0]
    if op.attrs or turned.kind != "transpose" or order_of(turned) != ROWS_TO_COLUMNS or op.shape[1] > 1:
        return None
    operands, flags = [turned.operands[0], *op.operands[1:]], {"transpose_lhs": True, "transpose_rhs": True}
    assert op.type is not None
    return walk.emit("anec.matmul", operands, op.type, flags, merged_sources(turned, op))


# Ops that follow a transpose or a view of an engine op's result, and commute with it, move in front of it.


MOVES = ("transpose", "reshape")
_PRODUCTS = kinds_with(Trait.CONTRACTION) - kinds_with(Trait.CONVOLUTION)
_OUTPUTS = 4
"""Where the outputs of a product lie: on the width."""
CAPS = ("limit:batch_extent", "max_tensor_depth", "limit:channel_extent", "max_tensor_height", "max_tensor_width")


def moves_before(op: Op) -> list[Op]:
    """The transposes and views that lead to an op, last one first, as long as nothing else reads them."""
    moves = []
    while op.kind in MOVES and len(op.users) == 1:
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


@pass_("sink-moves", 1, reads=CAPS, only=MOVES)
def sink_moves(module: Module, chip: Facts) -> int:
    """A transpose or view before a pointwise activation, or before an affine with one number, moves behind it.

    There a transpose can cancel with its opposite or use the transpose slot. A view moves only where the op in front
    of it can absorb what follows. A transpose may read axes that are too long for any other op; then nothing moves.
    """
    caps = [chip[name] for name in CAPS]

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


# Move what follows a concat onto the layers that feed it, so that the concat no longer separates layers (table 22.3,
# U33).


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


# A product with a stored weight becomes a resident convolution where the weight fits the working set.


_TURNS: tuple[Order, ...] = (ROWS_TO_COLUMNS, (0, 1, 4, 2, 3))
"""Where the axes of a product go as those of a convolution: the contracted one on C, and C or H along the width."""
_STORED_AS = {"kernel_lut": "kernel_palettized_LUT"}  # the product's name for a table, and the convolution's


@pass_(
    "products-to-convolutions",
    1,
    reads=["max_operand_bytes", "max_tensor_width", "max_tensor_height"],
    ensures=["resident products"],
    only=["linear", "matmul"],
)
def products_to_convolutions(module: Module, chip: Facts) -> int:
    """ReplaceMatmulWithConv: a weight below HAL 0x1b8 bytes becomes a resident kernel, a larger one stays tiled.

    The contraction moves to the channel axis and back by two transposes, which are free or cancel (C25). The longer
    of the two axes of rows then lies along the width, so that rows of memory are full; a product whose rows fit
    neither way (0x138, 0x140) stays as well.
    """
    limit, caps = chip["max_operand_bytes"], (chip["max_tensor_height"], chip["max_tensor_width"])
    kernels: dict[tuple[str, Op, bool], Weight | None] = {}  # products with one weight have one kernel

    def pattern(walk: Rewriter, op: Op) -> Op | None:
        source, stored = op.operands[:2]
        layout = stored.type
        turn = _turn(source.shape, caps)
        if stored.kind != "const_in" or layout is None or layout.bytes >= limit or turn is None:
            return None
        # A stored number for each output: outputs lie on the width here and on the channels there.
        if (op.kind == "matmul" and op["transpose_lhs"]) or not all(
            bias.kind == "const_in" and bias.shape == (1, 1, 1, 1, op.shape[4]) for bias in op.operands[2:]
        ):
            return None
        key = op.kind, stored, "transpose_rhs" in op.attrs
        if key not in kernels:
            kernels[key] = _kernel(module, op)
        kernel = kernels[key]
        return None if kernel is None else _convolution(walk, op, kernel, turn)

    return rewrite_by_kind(module, {"linear": pattern, "matmul": pattern})


def _turn(shape: tuple[int, ...], caps: tuple[int, int]) -> Order | None:
    """The order that lays the longer axis of rows along the width, or the other where only that fits."""
    rows = shape[2:4]
    turns = _TURNS if rows[0] >= rows[1] else _TURNS[::-1]
    return next((turn for turn in turns if shape[turn[3]] <= caps[0] and shape[turn[4]] <= caps[1]), None)


def _kernel(module: Module, op: Op) -> Weight | None:
    """The stored weight of a product as a kernel [outputs, contracted, 1, 1]."""
    weight = stored_weight(module, op.operands[1])
    layout = op.operands[1].type
    if weight is None or layout is None:
        return None
    n, d, rows, h, columns = layout.shape
    if op.kind == "matmul" and (n, d, h) != (1, 1, 1):
        return None  # a weight for each batch is not a single kernel
    if op.kind == "linear" or op["transpose_rhs"]:
        shape = (rows, columns, 1, 1)
        form = weight.encoded
        if form is not None and form.ndim == 2:
            form = form.expand_dims(2).expand_dims(3)
        return moved_weight("as a kernel", weight, shape, lambda matrix: matrix.reshape(shape), form)
    shape = (columns, rows, 1, 1)
    return moved_weight(
        "turned into a kernel", weight, shape, lambda matrix: matrix.reshape(rows, columns).T.reshape(shape)
    )


def _convolution(walk: Rewriter, op: Op, kernel: Weight, turn: Order) -> Op:
    outputs, contracted = kernel.shape[:2]
    source = op.operands[0]
    n, d, inner, h, w = (source.shape[axis] for axis in turn)
    assert inner == contracted
    assert op.type is not None
    turning = {"transpose_list": pairs_of(turn)}
    turned = walk.emit("anec.transpose", [source], TensorType((n, d, inner, h, w)), turning, op.sources)
    layout = op.operands[1].type
    assert layout is not None
    weight = walk.stored(kernel, TensorType((outputs, 1, contracted, 1, 1), layout.dtype), op.sources)
    operands = [turned, weight]
    if len(op.operands) > 2:
        bias_key = op.operands[2].attrs["weight"]
        layout = TensorType((1, 1, outputs, 1, 1))
        operands.append(walk.emit("anec.const_in", (), layout, {"weight": bias_key}, op.sources))
    stored = {_STORED_AS.get(name, name): op.attrs[name] for name in op.spec.stored if name in op.attrs}
    attrs = {**POINT_CONVOLUTION, **stored} if stored else POINT_CONVOLUTION
    product = walk.emit("anec.convolution", operands, TensorType((n, d, outputs, h, w)), attrs, op.sources)
    back = {"transpose_list": pairs_of(inverse(turn))}
    return walk.emit("anec.transpose", [product], op.type, back, op.sources)
