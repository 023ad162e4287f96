"""Which ops become one engine layer: the seven epilogue slots in their fixed order (listing 22.3).

Fusion is a labelling. An engine op opens a layer; ops that follow it one by one take the slots behind it while each
has a single reader, reads one live value, and fits a later slot than the one before. A capacity split later in
the pipeline undoes a fusion by labelling again.
"""

from __future__ import annotations

from functools import cache

from aneforge.anec.ir import Module, Op
from aneforge.anec.spec import kinds_with
from aneforge.anec.traits import Trait
from aneforge.compiler.facts import Facts
from aneforge.compiler.passes import pass_
from aneforge.targets import store

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
    if len(free) > 1 and (follower is None or follower.kind not in _AFFINE):
        return free[-1]  # the slot behind the affine, unless an affine follows
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


def slot_count() -> int:
    """How many slots the data names; ``SLOTS`` must have as many."""
    return len(store.load("fusion")["epilogue_slots"])
