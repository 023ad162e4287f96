"""Reshapes, slices, joins and picks; reductions, sorts and running sums along axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from aneforge.frontends import LoadError
from aneforge.frontends.coreai_rules.op import Op, Rule, shaped
from aneforge.frontends.coreai_rules.records import Block
from aneforge.frontends.coreai_rules.static import scan_way, slices, split_sizes
from aneforge.frontends.forms import (
    LARGEST,
    as_number,
    broadcast_to,
    cumulative_sum,
    gathered_elements,
    gathered_nd,
    padded,
    parts,
    position,
    scattered_elements,
    scattered_nd,
    sliced,
    transposed,
    truth,
)
from aneforge.frontends.values import Value, axis_of
from aneforge.graph import builders as af
from aneforge.graph.tensor import Tensor

__all__ = ["RULES"]


# Shapes.


def _reshape(op: Op) -> Value:
    return shaped(op.value(0), op.results[0].static or op.numbers(1, "the shape"))


def _expand_dims(op: Op) -> Value:
    axes = op.numbers(1, "the axes")
    rank = op.rank(0) + len(axes)
    places = {axis_of(axis, rank) for axis in axes}
    inner = iter(op.tensor(0).shape if op.rank(0) else ())
    return shaped(op.value(0), [1 if axis in places else next(inner) for axis in range(rank)])


def _shrink_dims(op: Op) -> Value:
    axes = op.axes(1)
    return shaped(op.value(0), [extent for axis, extent in enumerate(op.tensor(0).shape) if axis not in axes])


def _broadcast_to(op: Op) -> Tensor:
    return broadcast_to(op.tensor(0), op.numbers(1, "the shape") or [1])


def _broadcast_in_dims(op: Op) -> Tensor:
    x = op.tensor(0)
    shape = list(x.shape)
    for axis, size in zip(op.axes(2), op.numbers(1, "the sizes"), strict=True):
        shape[axis] = size
    return broadcast_to(x, shape)


def _tile(op: Op) -> Tensor:
    x, times = op.tensor(0), op.numbers(1, "the repetitions")
    return x.tile([1] * (x.ndim - len(times)) + times)


def _transpose(op: Op) -> Tensor:
    return transposed(op.tensor(0), [axis_of(axis, op.rank(0)) for axis in op.numbers(1, "the order")])


# Parts.


def _along(x: Tensor, axis: int, places: range) -> Tensor:
    if not len(places):
        raise LoadError("a slice that holds nothing")
    if places.step == 1:
        return sliced(x, axis, places.start, places.stop)
    if len(places) == x.shape[axis]:
        return x.reverse([axis])
    return af.gather(x, list(places), axis=axis)


def _slice(op: Op) -> Tensor:
    x = op.tensor(0)
    for axis, places in enumerate(slices(op, x.shape, op.results[0].shape)):
        x = x if places == range(x.shape[axis]) else _along(x, axis, places)
    return x


def _slice_update(op: Op) -> Tensor:
    x = op.tensor(0)
    return _updated(x, slices(op, x.shape, op.types[4].shape), op.tensor(4), 0)


def _updated(x: Tensor, places: Sequence[range], update: Tensor, axis: int) -> Tensor:
    """Along the first axis that is not replaced as a whole; what is replaced there may keep parts along the others."""
    while axis < x.ndim and places[axis] == range(x.shape[axis]):
        axis += 1
    if axis == x.ndim:
        return update
    at = places[axis]
    rest = places[axis + 1 :]
    whole = all(each == range(extent) for each, extent in zip(rest, x.shape[axis + 1 :], strict=True))
    inner = update if whole else _updated(_along(x, axis, at), places, update, axis + 1)
    if at.step != 1:
        return af.scatter(x, list(at), inner, axis)
    sides = [range(at.start), range(at.stop, x.shape[axis])]
    before, after = ([_along(x, axis, each)] if len(each) else [] for each in sides)
    return af.concat([*before, inner, *after], axis=axis) if before or after else inner


def _split(op: Op) -> list[Tensor]:
    x, axis = op.tensor(0), op.axis(2)
    return parts(x, axis, split_sizes(op, x.shape[axis]))


def _concat(op: Op) -> Tensor:
    found = [op.tensor(place) for place in range(1, len(op.given))]
    return af.concat(found, axis=axis_of(op.whole(0, "the axis"), op.rank(1)))


def _pad(op: Op) -> Tensor:
    flat, mode = op.numbers(1, "the padding"), op.text("padding_mode", "constant")
    widths = list(zip(flat[::2], flat[1::2], strict=True))
    fill = op.number(2, "the fill") if mode == "constant" else 0.0
    return padded(op.tensor(0), widths, "wrap" if mode == "circular" else mode, fill)


# Picks.


def _gather_along(op: Op) -> Tensor:
    return gathered_elements(op.tensor(0), op.axis(2), op.known(1, "the places"))


def _gather_nd(op: Op) -> Tensor:
    return gathered_nd(op.tensor(0), op.known(1, "the places"))


def _scatter_along(op: Op) -> Tensor:
    mode = op.text("scatter_mode", "update")
    updates = op.tensor(2)
    if mode in ("sub", "div"):
        updates, mode = (-updates, "add") if mode == "sub" else (updates.inverse(0.0), "mul")
    way = "none" if mode == "update" else mode
    return scattered_elements(op.tensor(0), op.axis(3), op.known(1, "the places"), updates, way)


def _scatter_nd(op: Op) -> Tensor:
    (block,) = op.regions
    if block.operations or len(block.arguments) != 2 or block.outputs != (block.arguments[1][0],):
        raise LoadError("updates that are joined with what was there by a block of their own")
    return scattered_nd(op.tensor(0), op.known(1, "the places"), op.tensor(2))


# Along axes.


def _reduction(function: Callable[[Tensor, tuple[int, ...]], Tensor]) -> Rule:
    def rule(op: Op) -> Tensor:
        axes = op.axes(1)
        return function(op.tensor(0), tuple(sorted(axes))) if axes else op.tensor(0)

    return rule


def _truth(function: Callable[[Tensor, tuple[int, ...]], Tensor]) -> Rule:
    reduced = _reduction(function)
    return lambda op: truth(_one(reduced(op)))


def _one(value: Value | Sequence[Value]) -> Tensor:
    assert isinstance(value, Tensor)
    return value


_JOINED: dict[str, tuple[Callable[[Tensor, tuple[int, ...]], Tensor], Callable[[Tensor, Tensor], Tensor], float]] = {
    "add": (Tensor.sum, lambda a, b: a + b, 0.0),
    "mul": (Tensor.prod, lambda a, b: a * b, 1.0),
    "maximum": (Tensor.amax, af.maximum, float("-inf")),
    "minimum": (Tensor.amin, af.minimum, float("inf")),
}


def _reduce(op: Op) -> Tensor:
    """With a block that says how two elements are joined, and what they start from."""
    (block,) = op.regions
    kind = _only(block)
    if kind not in _JOINED:
        raise LoadError("a reduction whose block is more than one sum, product, maximum or minimum")
    function, join, neutral = _JOINED[kind]
    first = op.number(2, "what it starts from")
    found = _one(_reduction(function)(op))
    idle = first == neutral or (
        kind in ("maximum", "minimum") and abs(first) > LARGEST and (first < 0) == (neutral < 0)
    )
    return found if idle else join(found, as_number(op.value(2)))


def _only(block: Block) -> str:
    """The one operation that a block makes of its two arguments."""
    if len(block.operations) != 1 or block.outputs != tuple(each for each, _ in block.operations[0].results):
        return ""
    return block.operations[0].kind


def _reduce_index(op: Op) -> Tensor:
    (block,) = op.regions
    best, candidate = (each for each, _ in block.arguments)
    if _only(block) != "greater" or set(block.operations[0].operands) != {best, candidate}:
        raise LoadError("a position whose block is more than one comparison")
    largest = block.operations[0].operands == (candidate, best)
    first = op.number(2, "what it starts from")
    if (first > -LARGEST if largest else first < LARGEST) or op.whole(3, "the first place") != 0:
        raise LoadError(f"a position that starts from {first:g}, which elements may not reach")
    return position(op.tensor(0), op.axis(1), keep=True, largest=largest)


def _scan(op: Op) -> Tensor:
    """Sums are a product with a triangle of ones; the rest joins each element with those at 1, 2, 4... before it."""
    x, axis, back = op.tensor(0), op.axis(1), bool(op.whole(2, "the direction"))
    way = scan_way(op)
    if way == "sum":
        return cumulative_sum(x, axis, reverse=back)
    join = {"product": _JOINED["mul"][1], "min": af.minimum, "max": af.maximum}[way]
    found, extent, step = x.reverse([axis]) if back else x, x.shape[axis], 1
    while step < extent:
        joined = join(sliced(found, axis, step, extent), sliced(found, axis, 0, extent - step))
        found = af.concat([sliced(found, axis, 0, step), joined], axis=axis)
        step *= 2
    return found.reverse([axis]) if back else found


def _sorted(indices: bool) -> Rule:
    def rule(op: Op) -> Tensor:
        x, axis = op.tensor(0), op.axis(1)
        order = [*(i for i in range(x.ndim) if i != axis), axis]
        lines = x.transpose(order)
        flat = lines.reshape(-1, x.shape[axis])
        found = af.sort(flat, descending=bool(op.whole(2, "the direction")), return_indices=indices)
        return found.reshape(*lines.shape).transpose([order.index(i) for i in range(x.ndim)])

    return rule


RULES: dict[str, Rule] = {
    "all": _truth(Tensor.amin),
    "any": _truth(Tensor.amax),
    "argmax": lambda op: position(op.tensor(0), op.axis(1), keep=True),
    "argsort": _sorted(indices=True),
    "broadcast_in_dims": _broadcast_in_dims,
    "broadcast_to": _broadcast_to,
    "concat": _concat,
    "expand_dims": _expand_dims,
    "gather_along_axis": _gather_along,
    "gather_nd": _gather_nd,
    "pad": _pad,
    "reduce": _reduce,
    "reduce_index": _reduce_index,
    "reduce_max": _reduction(Tensor.amax),
    "reduce_mean": _reduction(Tensor.mean),
    "reduce_min": _reduction(Tensor.amin),
    "reduce_product": _reduction(Tensor.prod),
    "reduce_sum": _reduction(Tensor.sum),
    "reshape": _reshape,
    "reverse": lambda op: op.tensor(0).reverse(op.axes(1)),
    "scan": _scan,
    "scatter_along_axis": _scatter_along,
    "scatter_nd": _scatter_nd,
    "shrink_dims": _shrink_dims,
    "slice": _slice,
    "slice_update": _slice_update,
    "softmax": lambda op: op.tensor(0).softmax(op.axis(1)),
    "sort": _sorted(indices=False),
    "split": _split,
    "tile": _tile,
    "transpose": _transpose,
}
