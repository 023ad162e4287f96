"""Layouts: on which of the engine's axes each axis of a value lies, chosen so that few values have to be turned.

Lowering puts the user's axes where their rank says (:func:`aneforge.compiler.lower.builder.layout`): rows, or tokens,
on C and features on W. An op that needs them elsewhere gets a transpose on either side. A product with a stored weight
becomes a convolution, whose features lie on C and whose tokens lie along W, so that a row of memory is full of data;
a batched product wants rows on C and heads on H.

Between such ops lie ops that do not mind: sums, norms, softmax, activations, concats. Those that read each other or
the same value are one region, and a region has one layout: a permutation of NDCHW for all of its values. Each border
of a region (a value that comes in, or one that goes out) proposes the permutation that saves its own transpose. The
region takes the proposal with the lowest price over all of its borders, or stays as it is. Every op is looked at once
and a region weighs three proposals at most, so the time is linear.

What a border then costs: nothing where the layouts agree, where a product has a flag for the exchange, or where only
axes of one change places; little where the layer before it has its transpose slot free (listing 22.3) or a view
suffices; a transpose of its own otherwise. Numbers do not change: an op in another layout sums the same elements in
the same order. A slice along the width stays there on chips where it takes the crop data path (N18). No source says
which layouts the vendor's compiler takes (U181).

``straighten-moves`` then writes each chain of transposes and views that is left as one transpose and one view at most,
in the order in which the transpose can be folded: first if the layer before can take it, last if a product's flag can.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

from aneforge.compiler.facts import Facts
from aneforge.compiler.fuse.moves import CAPS, IDENTITY, MOVES, ROWS_TO_COLUMNS, Order, inverse, order_of, pairs_of
from aneforge.compiler.fuse.scales import stored_weight
from aneforge.compiler.fuse.slots import SLOTS, is_barrier, slot_of
from aneforge.compiler.passes import Rewriter, merged_sources, pass_, rewrite_by_kind
from aneforge.engine.interpret import laid_out
from aneforge.engine.ir import Module, Op, TensorType
from aneforge.engine.lineage import see_through
from aneforge.engine.spec import kinds_with
from aneforge.engine.traits import Trait
from aneforge.graph.weights import moved_weight

Shape = tuple[int, ...]
_N, _C, _W = 0, 2, 4
_REDUCTIONS = kinds_with(Trait.REDUCTION)
_ALONG_AXES = _REDUCTIONS | {"softmax", "layer_norm"}
_POINTWISE = kinds_with(Trait.POINTWISE) - {"batch_norm"}
_PER_CHANNEL = kinds_with(Trait.AFFINE) | {"leaky_relu"}
"""Ops whose stored operands lie along the channels and nowhere else."""
_FLEXIBLE = _POINTWISE | _ALONG_AXES | {"concat", "broadcast", "input_view"}


# Orders of axes: result axis i shows axis order[i] of the source.


@lru_cache(maxsize=4096)
def _behind(first: Order, second: Order) -> Order:
    """The order that two moves make together."""
    return tuple([first[axis] for axis in second])


@lru_cache(maxsize=65536)
def _in_order(shape: Shape, order: Order) -> Shape:
    return tuple([shape[axis] for axis in order])


@lru_cache(maxsize=65536)
def _keeps_elements(shape: Shape, order: Order) -> bool:
    """Whether no element changes its place: only axes of one change places with others."""
    wide = [axis for axis in order if shape[axis] > 1]
    return wide == sorted(wide)


@lru_cache(maxsize=4096)
def renaming(before: Shape, after: Shape) -> Order | None:
    """The order that a reshape stands for if it moves whole axes; None where it splits or joins some."""
    wide, narrow = ([axis for axis in range(5) if (before[axis] > 1) == is_wide] for is_wide in (True, False))
    if [before[axis] for axis in wide] != [extent for extent in after if extent > 1]:
        return None
    sources = {True: iter(wide), False: iter(narrow)}
    return tuple([next(sources[extent > 1]) for extent in after])


def _order(move: Op) -> Order | None:
    """The order of axes that a transpose or view shows; None for anything else."""
    if move.kind == "transpose":
        return order_of(move)
    return renaming(move.operands[0].shape, move.shape) if move.kind == "reshape" else None


def _moved(walk: Rewriter, value: Op, order: Order, sources: tuple[str, ...]) -> Op:
    """A value with its axes in another order."""
    assert value.type is not None
    name, layout, attrs = _move_of(value.type, order)
    return walk.emit(name, [value], layout, attrs, sources) if name else value


@lru_cache(maxsize=4096)
def _move_of(type_: TensorType, order: Order) -> tuple[str, TensorType, dict[str, Any]]:
    """The op that shows a tensor in another order, none where nothing changes; its result and its attributes."""
    layout = TensorType(_in_order(type_.shape, order), type_.dtype)
    if not _keeps_elements(type_.shape, order):
        return "anec.transpose", layout, {"transpose_list": pairs_of(order)}
    return "" if layout == type_ else "anec.reshape", layout, {"shape": layout.shape}


# Regions.


class _Border(NamedTuple):
    """A value that enters or leaves a region: the order that its moves show, seen from the fixed side."""

    shape: Shape
    """Of the value on the fixed side."""
    order: Order
    """From the fixed side into the region."""
    turn: int
    """What a transpose there costs."""
    flag: bool
    """Whether the fixed side has a flag for an exchange of C and W."""


_FOLDED, _VIEW, _TRANSPOSE = 1, 1, 4
"""What borders cost: any transpose of its own weighs more than a few that are folded."""


def _price(border: _Border, layout: Order) -> int:
    order = _behind(border.order, layout)
    shape = border.shape
    if _keeps_elements(shape, order):
        return 0 if _in_order(shape, order) == shape else _VIEW
    if border.flag and _is_exchange(shape, order):
        return 0
    return border.turn


def _is_exchange(shape: Shape, order: Order) -> bool:
    turned = _behind(order, ROWS_TO_COLUMNS)
    return _keeps_elements(shape, turned) and _in_order(shape, turned) == shape


def _is_flexible(op: Op, keeps_width_slices: bool) -> bool:
    """Whether an op gives the same numbers in any layout."""
    if op.kind not in _FLEXIBLE or is_barrier(op) or op.type is None:
        return False
    if op.kind == "input_view":
        begins = op.attrs["offset"] == 0 and op.attrs["step"] == 1
        return (begins and op.attrs["dimension"] != _N) or not keeps_width_slices
    if op.kind in _PER_CHANNEL:
        return all(constant.shape == (1, 1, 1, 1, 1) for constant in op.operands[1:])
    if op.kind in _ALONG_AXES:  # several axes are summed in the order in which they lie
        return op.attrs.get("groups", 1) == 1 and sum(op.operands[0].shape[axis] > 1 for axis in op.attrs["axes"]) <= 1
    return True


def _attrs_in(op: Op, layout: Order) -> dict[str, Any] | None:
    """The attributes of an op in another layout; None where the engine has no such form."""
    places = inverse(layout)
    attrs = dict(op.attrs)
    for name in ("axes", "axis", "dimension"):
        if name not in attrs or (name == "axes" and op.kind not in _ALONG_AXES):
            continue
        axes = (attrs[name],) if name != "axes" else attrs[name]
        moved = tuple(sorted(places[axis] for axis in axes))
        if _N in moved:
            return None
        attrs[name] = moved if name == "axes" else moved[0]
    if op.kind == "broadcast":
        attrs["shape"] = _in_order(attrs["shape"], layout)
    return attrs


def _regions(module: Module, keeps_width_slices: bool) -> list[list[Op]]:
    """Flexible ops that read each other or the same value, as groups in the order of the code."""
    above: dict[Op, Op] = {}
    reader_of: dict[Op, Op] = {}

    def root(op: Op) -> Op:
        while above[op] is not op:
            above[op] = above[above[op]]
            op = above[op]
        return op

    for op in module.ops:
        if _is_flexible(op, keeps_width_slices):
            above[op] = op
            for operand in op.operands:
                beside = operand if operand in above else reader_of.setdefault(operand, op)
                if operand.kind != "const_in" and beside is not op:
                    above[root(beside)] = root(op)
    groups: dict[Op, list[Op]] = {}
    for op in above:
        groups.setdefault(root(op), []).append(op)
    return list(groups.values())


def _borders(region: Sequence[Op], layouts: dict[Op, Order]) -> Iterator[_Border]:
    """The borders of a region; ``layouts`` are those that other regions have taken."""
    members, seen = set(region), set()
    for op in region:
        for operand in op.operands:
            if operand in members or operand.kind == "const_in" or operand in seen:
                continue
            seen.add(operand)
            yield _way_in(operand, layouts)
        out: dict[Order, _Border] = {}  # one transpose serves all that read in the same order
        for reader in op.users:
            if reader not in members:
                border = _way_out(op, reader, layouts)
                known = out.setdefault(border.order, border)
                if known.flag and not border.flag:
                    out[border.order] = border
        yield from out.values()


def _source(value: Op) -> tuple[Op, Order]:
    """What the moves that lead to a value begin with, and the order that they show together."""
    order = IDENTITY
    while (step := _order(value)) is not None:
        order, value = _behind(step, order), value.operands[0]
    return value, order


def _way_in(moved: Op, layouts: dict[Op, Order]) -> _Border:
    value, order = _source(moved)
    alone = value.only_user is not None and moved.only_user is not None
    taken = layouts.get(value, IDENTITY)
    folds = alone and _ends_layer(value)
    shape = _in_order(value.shape, taken)
    return _Border(shape, _behind(inverse(taken), order), _FOLDED if folds else _TRANSPOSE, False)


def _way_out(op: Op, reader: Op, layouts: dict[Op, Order]) -> _Border:
    order, value = IDENTITY, op
    while (step := _order(reader)) is not None:
        order, value = _behind(order, step), reader
        if len(reader.users) != 1:
            break
        reader = next(iter(reader.users))
    taken = layouts.get(reader, IDENTITY)
    shape = _in_order(value.shape, taken)
    folds = len(op.users) == 1 and _ends_layer(op)
    back = _behind(inverse(taken), inverse(order))
    return _Border(shape, back, _FOLDED if folds else _TRANSPOSE, _has_flag(reader, value))


def _ends_layer(op: Op) -> bool:
    """Whether an op is an engine op, or follows one through ops that take its slots."""
    for _ in SLOTS:
        if op.is_a(Trait.HOST):
            return not is_barrier(op)
        before = op.operands[0] if op.operands else None
        if before is None or before.only_user is not op or not slot_of(op):
            return False
        op = before
    return False


def _has_flag(reader: Op, value: Op) -> bool:
    """Whether a product reads a value and can read it with C and W exchanged."""
    return reader.kind == "matmul" or (reader.kind == "linear" and not reader.attrs and reader.operands[0] is value)


def _cheapest(region: Sequence[Op], borders: Sequence[_Border], caps: Sequence[int]) -> Order:
    """The layout of a region with the lowest price; as it is where no other is cheaper."""
    proposals = Counter(inverse(border.order) for border in borders if border.order != IDENTITY)
    best, lowest = IDENTITY, sum(_price(border, IDENTITY) for border in borders)
    for layout, _ in proposals.most_common(3):
        price = sum(_price(border, layout) for border in borders)
        if price < lowest and _fits(region, layout, caps):
            best, lowest = layout, price
    return best


def _fits(region: Sequence[Op], layout: Order, caps: Sequence[int]) -> bool:
    shapes = {op.shape for op in region}
    if any(extent > cap for shape in shapes for extent, cap in zip(_in_order(shape, layout), caps, strict=True)):
        return False
    return all(op.kind in _POINTWISE or _attrs_in(op, layout) is not None for op in region)


@pass_("carry-layouts", 1, reads=[*CAPS, "slice_saturates"], only=MOVES)
def carry_layouts(module: Module, chip: Facts) -> int:
    """Give each region of sums, norms, softmax and the like the layout that needs the fewest transposes around it."""
    caps = [chip[name] for name in CAPS]
    layouts: dict[Op, Order] = {}
    region_of: dict[Op, int] = {}
    for number, region in enumerate(_regions(module, chip["slice_saturates"])):
        layout = _cheapest(region, list(_borders(region, layouts)), caps)
        if layout != IDENTITY:
            layouts.update(dict.fromkeys(region, layout))
            region_of.update(dict.fromkeys(region, number))
    if not layouts:
        return 0
    walk = Rewriter(module)
    outgoing: dict[Op, Order] = {}  # moves that read a region, and what they show of its value as it lies now
    # A move out of a region and back into it may become an op of the region itself, so operands are told apart before.
    inside = {op: [region_of.get(operand) == number for operand in op.operands] for op, number in region_of.items()}
    for op in module.ops:
        if op in layouts:
            _carry(walk, op, layouts[op], inside[op], region_of, outgoing)
        elif op in outgoing:
            walk.replace(op, _moved(walk, op.operands[0], outgoing[op], op.sources))
        else:
            walk.keep(op)
    return walk.finish()


def _carry(
    walk: Rewriter,
    op: Op,
    layout: Order,
    inside: Sequence[bool],
    region_of: dict[Op, int],
    outgoing: dict[Op, Order],
) -> None:
    """Turn an op into the layout of its region, in place; what reads it from outside reads it turned back. ``inside``
    says which operands lie in the region."""
    back = inverse(layout)
    outside = _outside(op, back, region_of, outgoing)
    for index, operand in enumerate(op.operands):
        if inside[index]:
            continue
        if operand.kind == "const_in":
            value = _constant_in(walk, operand, layout)
        else:
            source, order = _source(operand)
            value = _moved(walk, source, _behind(order, layout), op.sources)
        if value is not operand:
            op.set_operand(index, value)
    before = op.type
    assert before is not None
    op.attrs = op.attrs if op.kind in _POINTWISE else _attrs_in(op, layout) or {}
    op.type = _move_of(before, layout)[1]
    walk.keep(op)
    walk.changes += 1
    name, _, attrs = _move_of(op.type, back)
    if not name:
        return
    if not outside:
        see_through(op, Op(name, (), before, attrs, op.sources))
        return
    turned_back = walk.emit(name, [op], before, attrs, op.sources)
    op.hand_over(turned_back)
    for reader in outside:
        for index, operand in enumerate(reader.operands):
            if operand is op:
                reader.set_operand(index, turned_back)


def _outside(op: Op, back: Order, region_of: dict[Op, int], outgoing: dict[Op, Order]) -> list[Op]:
    """What reads an op from outside of its region and needs it as it was; moves will show what is carried instead."""
    readers = []
    for reader in op.users:
        if region_of.get(reader) != region_of[op]:
            order = _order(reader)
            if order is None:
                readers.append(reader)
            else:
                outgoing[reader] = _behind(back, order)
    return readers


def _constant_in(walk: Rewriter, constant: Op, layout: Order) -> Op:
    """A stored constant with its axes in another order."""
    assert constant.type is not None
    shape = constant.shape
    type_ = TensorType(_in_order(shape, layout), constant.type.dtype)
    if type_ == constant.type:
        return constant
    weight = stored_weight(walk.module, constant)
    if _keeps_elements(shape, layout):
        return walk.emit("anec.const_in", (), type_, constant.attrs, constant.sources)
    if weight is None:
        return _moved(walk, constant, layout, constant.sources)
    turned = moved_weight(
        f"{shape} in the order {layout}",
        weight,
        (weight.size,),
        lambda numbers: laid_out(numbers, shape).transpose(layout).reshape(-1),
    )
    return walk.stored(turned, type_, constant.sources)


# Chains of transposes and views.


_MOST_MOVES = 6
"""Of a chain that is looked at; longer ones are straightened piece by piece."""


class _Plan(NamedTuple):
    """A chain of moves as one transpose and one view at most."""

    first: Order | None
    """A transpose before the view; None where there is none, or no such form."""
    middle: Shape | None
    """What a view makes of the source before a last exchange of C and W; None where there is no such form."""
    is_view: bool = False


Steps = tuple[tuple[bool, tuple[int, ...]], ...]
"""The moves of a chain in their order: whether each is a transpose, and its order or shape."""


@lru_cache(maxsize=4096)
def _plan(source: Shape, steps: Steps) -> _Plan:
    """How else a chain can be written. Axes are cut into atoms, the runs of elements that no move takes apart."""
    sizes = [extent for extent in source if extent > 1]
    numbers = iter(range(len(sizes)))
    before = [[next(numbers)] if extent > 1 else [] for extent in source]
    after = [list(axis) for axis in before]
    for transposes, value in steps:
        if transposes:
            after = [after[axis] for axis in value]
        else:
            regrouped = _regrouped(after, value, sizes, before)
            if regrouped is None:
                return _Plan(None, None)
            after = regrouped
    start, end = _line(before), _line(after)
    if start == end:
        return _Plan(None, None, True)
    first = _first_turn(before, end)
    exchanged = [after[axis] for axis in ROWS_TO_COLUMNS]
    shape = tuple(prod([sizes[atom] for atom in axis]) for axis in exchanged)
    return _Plan(first, shape if _line(exchanged) == start else None)


def _line(axes: Sequence[Sequence[int]]) -> list[int]:
    return [atom for axis in axes for atom in axis]


def _regrouped(
    axes: list[list[int]], shape: Shape, sizes: list[int], before: list[list[int]]
) -> list[list[int]] | None:
    """The atoms of a view's axes. One that the view takes apart becomes two; None where that cannot be."""
    left = _line(axes)[::-1]
    groups: list[list[int]] = []
    for extent in shape:
        group: list[int] = []
        missing = extent
        while missing > 1:
            atom = left.pop()
            if sizes[atom] > missing:
                if sizes[atom] % missing:
                    return None
                left.append(len(sizes))
                axis = next(axis for axis in before if atom in axis)
                axis.insert(axis.index(atom) + 1, len(sizes))
                sizes.append(sizes[atom] // missing)
                sizes[atom] = missing
            if missing % sizes[atom]:
                return None
            group.append(atom)
            missing //= sizes[atom]
        groups.append(group)
    return groups


def _first_turn(before: list[list[int]], end: list[int]) -> Order | None:
    """The order of the source's axes that gives a line of atoms; an exchange of C and W where that does it."""
    if _line([before[axis] for axis in ROWS_TO_COLUMNS]) == end:
        return ROWS_TO_COLUMNS
    places = {axis[0]: place for place, axis in enumerate(before) if axis}
    wide = [places[atom] for atom in end if atom in places]
    if _line([before[place] for place in wide]) != end:
        return None
    order = list(IDENTITY)
    for place, axis in zip(sorted(wide), wide, strict=True):
        order[place] = axis
    return tuple(order)


@pass_("straighten-moves", 1, requires=["single transposes"], ensures=["straight moves"], only=MOVES)
def straighten_moves(module: Module, chip: Facts) -> int:
    """CollapseTranspose: a chain of transposes and views becomes one of each at most; what undoes itself goes.

    The transpose comes first where the layer before can take it into its slot, and last where a product has a flag.
    """
    return rewrite_by_kind(module, {"transpose": _straightened, "reshape": _straightened})


def _straightened(walk: Rewriter, op: Op) -> Op | None:
    source = op.operands[0]
    if source.kind not in MOVES:
        return None
    chain = [op]
    while source.kind in MOVES and len(chain) < _MOST_MOVES:
        chain.append(source)
        source = source.operands[0]
    steps = tuple((True, order_of(move)) if move.kind == "transpose" else (False, move.shape) for move in chain[::-1])
    plan = _plan(source.shape, steps)
    assert op.type is not None
    sources = merged_sources(*chain[::-1])
    if plan.is_view:
        view = {"shape": op.shape}
        return source if source.type == op.type else walk.emit("anec.reshape", [source], op.type, view, sources)
    turns_last = plan.middle is not None and all(reader.kind == "matmul" for reader in op.users)
    is_straight = len(chain) == 2 and (op.kind == "transpose") != (chain[1].kind == "transpose")
    if plan.first is not None and not turns_last:
        if is_straight and (op.kind == "reshape" or not _has_slot(source, chain)):
            return None
        value = _moved(walk, source, plan.first, sources)
        if value.shape == op.shape:
            return value
        return walk.emit("anec.reshape", [value], op.type, {"shape": op.shape}, sources)
    if plan.middle is None or (is_straight and op.kind == "transpose"):
        return None
    middle = TensorType(plan.middle, op.type.dtype)
    if source.shape != plan.middle:
        source = walk.emit("anec.reshape", [source], middle, {"shape": plan.middle}, sources)
    return _moved(walk, source, ROWS_TO_COLUMNS, sources)


def _has_slot(source: Op, chain: Sequence[Op]) -> bool:
    """Whether the layer before a chain can take a transpose into its slot."""
    return (
        source.is_a(Trait.HOST) and not is_barrier(source) and all(len(op.users) == 1 for op in (source, *chain[1:]))
    )
