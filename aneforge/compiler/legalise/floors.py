"""Check the family at which an op starts, and ask the validator of every layer."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import cache, lru_cache
from typing import Any

import numpy as np

from aneforge.chips import store
from aneforge.chips.families import Family8
from aneforge.chips.names import first_chips
from aneforge.compiler.facts import Facts
from aneforge.compiler.fuse.layouts import renaming
from aneforge.compiler.fuse.moves import pairs_of
from aneforge.compiler.fuse.scales import stored_weight
from aneforge.compiler.legal.bounds import EXACT, REORDERED, SUMMED, Bound
from aneforge.compiler.legal.check import program_route
from aneforge.compiler.legal.findings import PlacementFinding
from aneforge.compiler.legal.judge import validated, validator_reads
from aneforge.compiler.legal.translate import query_of_op
from aneforge.compiler.legalise.relabel import Relayer, rewritten, typed, with_extents
from aneforge.compiler.passes import pass_
from aneforge.compiler.refusal import Refused, RefusedOps
from aneforge.engine.ir import Module, Op, TensorType
from aneforge.graph.weights import derived_weight

# The two oldest families, which have no reshape, broadcast, divide or reduction of their own (chapter 35).


FLOOR_DIVIDE = "floor-divide"
_CHANNELS = 2
_POOLS = {"reduce_avg": "average_pool", "reduce_max": "max_pool"}
_MAP = (3, 4)  # the axes that a pool has a window on
_RULES = {"reshape": "reshape/squeeze/expand_dims", "broadcast": "broadcast", "div": "divide"}


@cache
def _rule(kind: str) -> dict[str, Any]:
    """The record of ops.json ``legacy_rules`` for an op: the families it holds for, and their words."""
    return next(row for row in store.load("ops")["legacy_rules"] if row["op"] == _RULES[kind])


@pass_(
    "legacy-forms",
    2,
    reads=["family8", "limit:pool_window"],
    requires=["layers"],
    ensures=["family forms"],
    rounds=True,
    only=["reshape", "broadcast", "tile", "div", *_POOLS],
)
def legacy_forms(module: Module, chip: Facts) -> int:
    """ConvertToReshape, ConvertBroadcast, divide, reductions below A13: flatten, ones and zeros, reciprocals, pools.

    The reciprocal of a stored divisor is rounded to fp16 before the product, so floor(6 / 3) is 1 there. A mean or a
    largest element of a map is a pool over it, in steps where the map is larger than a window (U69).
    """
    family = chip.get("family8")
    lacking = {kind for kind in _RULES if family in _rule(kind)["families"]}

    def lacks(op: Op) -> bool:
        return _kind(op) in lacking or (op.kind in _POOLS and _windows(op, family, chip) is not None)

    def rewrite(walk: Relayer, op: Op) -> None:
        windows = _windows(op, family, chip) if op.kind in _POOLS else None
        if windows is not None:
            walk.record(op, "pool-for-reduction", _bound(op, windows))
            value = op.operands[0]
            for rows, columns in windows:
                type_ = with_extents(typed(value), {3: value.shape[3] // rows, 4: value.shape[4] // columns})
                settings = {"ksize": (1, rows, columns), "stride": (1, rows, columns), "padding": (0,) * 6}
                value = walk.layer(_POOLS[op.kind], [value], type_, settings, op.sources)
            walk.take_over(op, value)
        else:
            row, form = _FORMS[_kind(op)]
            walk.record(op, row)
            form(walk, op)

    return rewritten(module, lacks, rewrite)


def _kind(op: Op) -> str:
    """What an op is to these families: a tile along axes of one is a broadcast."""
    stretched = op.kind == "tile" and all(
        times == 1 or extent == 1 for times, extent in zip(op.attrs["multiples"], op.operands[0].shape, strict=True)
    )
    return "broadcast" if stretched else op.kind


def _flatten(walk: Relayer, op: Op) -> None:
    """A line of channels for each image; the line may have to change places with another axis."""
    x = op.operands[0]
    n, _, c, h, w = x.shape
    line = c * h * w
    place = next((axis for axis in (2, 3, 4) if op.shape == with_extents(_point(n), {axis: line}).shape), None)
    order = renaming(x.shape, op.shape)
    if (
        place is None and order is not None and order[:_CHANNELS] == (0, 1)
    ):  # axes of one change places: a layout's view
        walk.replace(op, walk.layer("transpose", [x], typed(op), {"transpose_list": pairs_of(order)}, op.sources))
        return
    if place is None:
        reason = (
            f"cannot reshape {list(x.shape)} to {list(op.shape)}; this family can only flatten each image to one line"
        )
        raise Refused(op, "legacy-reshape", reason, _rule("reshape")["reject"])
    type_ = TensorType((n, 1, line, 1, 1), typed(op).dtype)
    value = x if x.shape == type_.shape else walk.layer("flatten", [x], type_, {"flatten_mode": "NCHW"}, op.sources)
    if place != _CHANNELS:
        exchange = list(range(5))
        exchange[_CHANNELS], exchange[place] = place, _CHANNELS
        value = walk.layer("transpose", [value], typed(op), {"transpose_list": pairs_of(tuple(exchange))}, op.sources)
    walk.replace(op, value)


def _windows(op: Op, family: str | None, chip: Facts) -> list[tuple[int, int]] | None:
    """The windows of pools in a row that give a reduction over the map; None where the family has the reduction, or
    where there are no such windows."""
    floor = op.spec.floor
    if family is None or floor is None or Family8[family] >= floor.value:
        return None
    if not set(op.attrs["axes"]) <= set(_MAP) or "square_input" in op.attrs:
        return None
    sides = [_steps(op.operands[0].shape[axis] if axis in op.attrs["axes"] else 1, chip) for axis in _MAP]
    if not all(sides):
        return None
    count = max(map(len, sides))
    rows, columns = (side + [1] * (count - len(side)) for side in sides)
    return list(zip(rows, columns, strict=True))


def _bound(op: Op, windows: list[tuple[int, int]]) -> Bound:
    if op.kind == "reduce_max":
        return EXACT
    return REORDERED if len(windows) == 1 else SUMMED


def _steps(extent: int, chip: Facts) -> list[int]:
    """An extent as factors within the window of a pool, the largest first; empty where it has none. Windows of equal
    size make a mean of means the mean."""
    steps = []
    while extent > 1:
        step = next((size for size in range(min(extent, chip["limit:pool_window"]), 1, -1) if extent % size == 0), 0)
        if not step:
            return []
        steps.append(step)
        extent //= step
    return steps or [1]


def _point(batch: int) -> TensorType:
    return TensorType((batch, 1, 1, 1, 1))


def _stretch(walk: Relayer, op: Op) -> None:
    """The channels by a product with ones, every other axis by a sum with zeros."""
    x = op.operands[0]
    if typed(op).dtype != "f16":
        reason = f"cannot broadcast {typed(op).dtype}; this family broadcasts fp16 only"
        raise Refused(op, "legacy-broadcast", reason)
    grown = {axis: extent for axis, extent in enumerate(op.shape) if extent != x.shape[axis]}
    value = x
    others = {axis: extent for axis, extent in grown.items() if axis != _CHANNELS}
    if others:
        zeros = _filled(walk, op, 0.0, with_extents(_point(1), others))
        value = walk.layer("add", [value, zeros], with_extents(typed(x), others), None, op.sources)
    if _CHANNELS in grown:
        ones = _filled(walk, op, 1.0, with_extents(_point(1), {_CHANNELS: grown[_CHANNELS]}))
        value = walk.layer("matmul", [ones, value], typed(op), None, op.sources)
    if value is x:  # nothing is stretched
        walk.detach(walk.behind(op))
    else:
        walk.attach(walk.behind(op), value)
    walk.replace(op, value)


def _filled(walk: Relayer, op: Op, value: float, type_: TensorType) -> Op:
    size = type_.elements
    weight = derived_weight(f"{size} times {value}", (), (size,), lambda: np.full(size, value))
    return walk.stored(weight, type_, op.sources)


def _multiply(walk: Relayer, op: Op) -> None:
    x, divisor = op.operands
    if divisor.kind != "const_in" or typed(divisor).dtype != "f16":
        reason = "the divisor is computed; this family divides by a stored fp16 constant only"
        raise Refused(op, "legacy-divide", reason)
    weight = stored_weight(walk.module, divisor)
    if weight is None:  # a text without its numbers
        walk.keep(op)
        return
    with np.errstate(over="ignore"):
        lost = np.isinf(_reciprocal(weight.array.astype(np.float64)).astype(np.float16)) & (weight.array != 0)
    if lost.any():
        smallest = float(np.abs(weight.array[lost]).min())
        reason = f"divisor {smallest:g} has no fp16 reciprocal; this family divides by multiplying with the reciprocal"
        raise Refused(op, "legacy-divide", reason)
    floor = op.only_user
    if floor is not None and floor.kind == "floor":
        floor.mark(data_path=FLOOR_DIVIDE)  # floor(a * fp16(1/b)) is one form there, below the floor of other floors
    inverse = derived_weight("reciprocal", (weight,), weight.shape, _reciprocal)
    constant = walk.stored(inverse, typed(divisor), divisor.sources)
    walk.take_over(op, walk.layer("mult", [x, constant], typed(op), None, op.sources))


def _reciprocal(values: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return 1.0 / values


_FORMS: dict[str, tuple[str, Callable[[Relayer, Op], None]]] = {
    "reshape": ("flatten-for-reshape", _flatten),
    "broadcast": ("ones-and-zeros-for-broadcast", _stretch),
    "div": ("reciprocal-for-divide", _multiply),
}
"""The row of the table of rewrites and the form of each op that these families lack."""


@pass_(
    "check-floors",
    2,
    reads=lambda: (*validator_reads(), "family8"),
    requires=["layers", "family forms", "mapped resizes", "mapped gathers", "native factors"],
    ensures=["floors"],
    checks=True,
)
def check_floors(module: Module, chip: Facts) -> int:
    """MinimumFamily and the validators: refuse an op below its floor, or a layer that its validator refuses.

    The validators are the rules that also answer ``aneforge validate`` (listing 24.2, tables 22.4 and 22.5). It runs
    after the passes that replace such ops by others. A target without a family has no floors (U31).
    """
    family = chip.get("family8")
    index = None if family is None else Family8[family]
    route = program_route(chip, module.route)
    sound: set[Hashable] = set()
    refused: list[Refused] = []
    for op in module.ops:
        if op.kind == "const_in":
            continue
        taken = "conversion" if route == "conversion" and not op.labels else _route_of(op, module, route)
        form = (taken, op.kind, *[operand.type for operand in op.operands], *op.attrs.items(), *op.labels.items())
        if form not in sound:
            problem = _problem(op, index, chip, taken)
            if problem is None:
                sound.add(form)
            else:
                refused.append(problem)
    if refused:
        raise RefusedOps(refused)
    return 0


def _route_of(op: Op, module: Module, route: str) -> str:
    """By which route an op reaches the chip: a native layer is authored, others as the program is. What passes make of
    others is no layer that anybody authors."""
    if "bridge" in op.labels:
        return "direct"
    stated = (op.kind in module.lowered_to.get(name, ()) and name not in module.rewritten for name in op.sources)
    return route if any(stated) else "conversion"


def _problem(op: Op, index: Family8 | None, chip: Facts, route: str) -> Refused | None:
    if op.labels.get("data_path") == FLOOR_DIVIDE:
        return None
    findings = _asked(_Alike(op), chip, route)  # alike ops are asked about once
    floor = _missed_floor(op, index)
    if floor is not None and not (route == "direct" and findings):  # on the direct route a validator answers first
        words = next((finding.string for finding in findings if finding.string), None)
        return Refused(op, "minimum-family", f"{op.name} starts with the {floor}", words)
    if not findings:
        return None
    first = findings[0]
    return Refused(op, first.rule, first.message, first.string or None, first.oversize, findings=findings)


def _missed_floor(op: Op, index: Family8 | None) -> str | None:
    """The chips with which an op starts, where the target is older. A floor is one of the conversion: what is
    authored directly is gated by what its validator reads (C13)."""
    if index is None or op.spec.floor is None or "bridge" in op.labels or index >= op.spec.floor.value:
        return None
    return f"{first_chips(Family8(op.spec.floor.value))}; this chip is older"


class _Alike:
    """An op by what its layer depends on: kind, attributes and the types of its operands. It is kept with the answer,
    and must not keep the op's module alive: the op is let go once it has been asked about."""

    __slots__ = ("key", "op")

    def __init__(self, op: Op) -> None:
        self.op: Op | None = op
        self.key = op.kind, tuple(op.attrs.items()), tuple(operand.type for operand in op.operands)

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Alike) and self.key == other.key


@lru_cache(maxsize=65536)
def _asked(alike: _Alike, chip: Facts, route: str) -> tuple[PlacementFinding, ...]:
    op, alike.op = alike.op, None
    assert op is not None
    query = query_of_op(op)
    return () if query is None else validated(query, chip, route)
