"""Which ops become one engine layer: the seven epilogue slots in their fixed order (listing 22.3).

Fusion is a labelling. An engine op opens a layer; ops that follow it one by one take the slots behind it while each
has a single reader, reads one live value, and fits a later slot than the one before. A capacity split later in
the pipeline undoes a fusion by labelling again.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from aneforge.compiler.facts import Facts
from aneforge.compiler.passes import Pattern, Rewriter, merged_sources, pass_, rewrite_by_kind
from aneforge.engine.ir import Module, Op
from aneforge.engine.spec import kinds_with
from aneforge.engine.traits import Trait

SLOTS = ("texture", "broadcast", "pre_activation", "goc", "post_activation", "transpose", "quant")
"""Names for the seven slots of fusion.json, in the order of the constructor's arguments."""

PRIMARY = "primary"
_PORTS, _HOSTS = kinds_with(Trait.PORT), kinds_with(Trait.HOST)
_NATIVE, _AFFINE = kinds_with(Trait.NATIVE), kinds_with(Trait.AFFINE)
_ALIKE = ("broadcast", "transpose", "quant")
"""Ops whose slot has their own name."""


def is_activation(op: Op) -> bool:
    """Whether the data lists an op as an activation slot of an engine, not as engine work of its own."""
    return op.is_a(Trait.ACTIVATION)


def is_barrier(op: Op) -> bool:
    """Whether an op cuts a segment of its own: it absorbs nothing, and no layer absorbs it."""
    return op.kind in _NATIVE or "bridge" in op.labels


def slot_of(op: Op) -> tuple[str, ...]:
    """The slots an op can stand in, earliest first."""
    return () if is_barrier(op) else _slots_of_kind(op.kind)


@cache
def _slots_of_kind(kind: str) -> tuple[str, ...]:
    if kind in kinds_with(Trait.ACTIVATION):
        return "pre_activation", "post_activation"
    if kind in kinds_with(Trait.TEXTURE):
        return ("texture",)
    if kind in _AFFINE:  # a dequant between a layer and its activation is that unit's work (chapter 22)
        return ("goc",)
    return (kind,) if kind in _ALIKE else ()


@pass_("label-layers", 1, requires=["gain and offset"], ensures=["layers"])
def label_layers(module: Module, chip: Facts) -> int:
    """Give every engine op a layer and let it absorb what fits its epilogue slots."""
    for op in module.ops:
        op.layer, op.slot = None, None
    absorbed, number = 0, 0
    for op in module.ops:
        if op.kind in _PORTS or op.layer is not None:
            continue
        op.layer, op.slot = number, PRIMARY
        absorbed += _absorb(op, number)
        number += 1
    return absorbed


def _absorb(host: Op, layer: int) -> int:
    """Fill the slots behind one engine op; a standalone activation or affine is the bypass layer's own slot."""
    last = -1
    if is_barrier(host):
        return 0
    if host.kind not in _HOSTS:
        own = slot_of(host)
        if not own:
            return 0
        last = SLOTS.index(own[-1])
    current, count = host, 0
    while (follower := current.only_user) is not None:
        place = _place(follower, current, last)
        if place is None:
            break
        follower.layer, follower.slot = layer, SLOTS[place]
        current, last, count = follower, place, count + 1
    return count


def _place(op: Op, before: Op, last: int) -> int | None:
    """The slot an op takes behind ``last``, or None where it cannot follow."""
    if op.layer is not None or op.operands[0] is not before:
        return None
    return _free_slot(op, last, op.only_user)


def _free_slot(op: Op, last: int, follower: Op | None) -> int | None:
    """The slot behind ``last`` for an op that ``follower`` reads."""
    if any(operand.kind != "const_in" for operand in op.operands[1:]):
        return None  # only stored constants feed a slot
    free = [SLOTS.index(name) for name in slot_of(op) if SLOTS.index(name) > last]
    if not free:
        return None
    if len(free) > 1 and (follower is None or not (follower.kind in _AFFINE or is_activation(follower))):
        return free[-1]  # the slot behind the affine, unless an affine or a second activation follows
    return free[0]


def has_room(end: Op, follower: Op) -> bool:
    """Whether the layer that ends in ``end`` would absorb ``follower``, by the rule of :func:`label_layers`."""
    chain = [follower]
    while end.kind not in _HOSTS:
        before = end.operands[0] if end.operands else None
        if before is None or before.only_user is not end or len(chain) > len(SLOTS):
            return False
        chain.append(end)
        end = before
    if is_barrier(end):
        return False
    last = -1
    for op, behind in zip(reversed(chain), [*chain[-2::-1], None], strict=True):
        place = _free_slot(op, last, behind)
        if place is None:
            return False
        last = place
    return True


# A square behind a reduction: an output of the reduction's own layer from A14 on.


SQUARE = "square"
"""Where a square stands in the layer of the reduction that it reads. It is none of the seven slots of listing 22.3."""
_REDUCTIONS = kinds_with(Trait.REDUCTION)


def _squares_a_reduction(op: Op) -> bool:
    """Whether an op squares the result of a reduction that nothing else reads."""
    if op.kind not in ("square", "sqr", "mult") or len(set(op.operands)) > 1 or is_barrier(op):
        return False
    return op.operands[0].kind in _REDUCTIONS and op.operands[0].only_user is op


def _has_squares(draft: Any, chip: Facts) -> bool:
    return bool(chip["square_after_reduce"]) and any(map(_squares_a_reduction, draft.code.ops))


@pass_(
    "square-after-reduce",
    1,
    reads=["square_after_reduce"],
    requires=["layers"],
    only=_REDUCTIONS,
    has_work=_has_squares,
)
def square_after_reduce(module: Module, chip: Facts) -> int:
    """HAL 0x494: the layer of a reduction squares its result on the way out, from A14 on.

    The reduced value is still rounded in between: every family that was measured gives the unfused number (N26).
    """
    if not chip["square_after_reduce"]:
        return 0
    joined = {op.layer: op.operands[0].layer for op in module.ops if op.slot == PRIMARY and _squares_a_reduction(op)}
    for op in module.ops:
        if op.layer in joined:
            op.layer, op.slot = joined[op.layer], SQUARE if op.slot == PRIMARY else op.slot
    return len(joined)


# Activation pairs that one activation can stand for.


_INFINITY = float("inf")


def _range(op: Op) -> tuple[float, float] | None:
    """The bounds of an activation that only clamps."""
    if op.kind == "relu":
        return 0.0, _INFINITY
    if op.kind == "n_relu":
        return 0.0, op["max_val"]
    return (op["min_val"], op["max_val"]) if op.kind == "clamped_relu" else None


def _once(walk: Rewriter, op: Op) -> Op | None:
    """Rounding, relu, abs and sign twice are once."""
    return op.operands[0] if op.operands[0].kind == op.kind else None


def _clamp(walk: Rewriter, op: Op) -> Op | None:
    """A clamp of a clamp is one clamp, unless the second decides alone since every value lies outside it."""
    before = op.operands[0]
    first, second = _range(before), _range(op)
    if first is None or second is None or len(before.users) != 1:
        return None
    low, high = max(first[0], second[0]), min(first[1], second[1])
    if low > high:
        return None
    assert op.type is not None
    operands, sources = [before.operands[0]], merged_sources(before, op)
    if (low, high) == (0.0, _INFINITY):
        return walk.emit("anec.relu", operands, op.type, None, sources)
    if low == 0.0:
        return walk.emit("anec.n_relu", operands, op.type, {"max_val": high}, sources)
    return walk.emit("anec.clamped_relu", operands, op.type, {"min_val": low, "max_val": high}, sources)


_PAIRS: dict[str, Pattern] = {
    **dict.fromkeys(kinds_with(Trait.IDEMPOTENT), _once),
    "n_relu": _clamp,
    "clamped_relu": _clamp,
    "relu": lambda walk, op: _once(walk, op) or _clamp(walk, op),
}


@pass_(
    "merge-activations",
    1,
    ensures=["single activations"],
    only=list(_PAIRS),
    loses="one activation with the one that reads it",
)
def merge_activations(module: Module, chip: Facts) -> int:
    """MergeFusableActivationPairs: a clamp of a clamp is one clamp; relu, abs, sign and rounding twice are once."""
    return rewrite_by_kind(module, _PAIRS)


def _gated(walk: Rewriter, op: Op) -> Op | None:
    """x * sigmoid(x), in either order, where nothing else reads the sigmoid."""
    for x, gate in (op.operands, op.operands[::-1]):
        if gate.kind in ("sigmoid", "high_precision_sigmoid") and gate.operands[0] is x and gate.only_user is op:
            assert op.type is not None
            return walk.emit("anec.swish", [x], op.type, None, merged_sources(gate, op))
    return None


@pass_(
    "gates-to-swish",
    1,
    reads=["fused_swish"],
    only=["mult"],
    loses="the sigmoid of a gate, which is one table with its product on this chip (C77)",
)
def gates_to_swish(module: Module, chip: Facts) -> int:
    """x * sigmoid(x) is one swish table where the vendor's compiler was seen to make it one (C77)."""
    return rewrite_by_kind(module, {"mult": _gated}) if chip["fused_swish"] else 0


# Remove ops that return their input unchanged, and share equal moves.


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
