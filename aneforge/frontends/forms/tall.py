"""Tensors with more axes than the engine has, between two reshapes.

Models cut images into windows, and join them again, by a reshape to six axes or more, a transpose, and a reshape back.
Nothing is computed between the two reshapes. The tensor with many axes is a temporary node. The reshape back moves the
elements of its source directly, so the node drops out of the graph. If something else reads it, the gate refuses it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from aneforge.frontends import LoadError
from aneforge.frontends.values import NoForm
from aneforge.graph.node import MAX_RANK, Signature, definition, factory
from aneforge.graph.tensor import Tensor

__all__ = ["rearranged", "reshaped", "transposed"]


def reshaped(x: Tensor, shape: Sequence[int]) -> Tensor:
    """Reshape a tensor of any rank to a shape of any rank. One extent may be -1; an empty shape becomes (1,)."""
    target = _complete_shape(shape, x.size) or (1,)
    if x.ndim > MAX_RANK:
        x = rearranged(*_source(x))
    return x.reshape(*target) if len(target) <= MAX_RANK else _unchecked_node(x, "reshape", {"to": target}, target)


def transposed(x: Tensor, order: Sequence[int]) -> Tensor:
    if x.ndim <= MAX_RANK:
        return x if [axis % x.ndim for axis in order] == list(range(x.ndim)) else x.transpose(list(order))
    perm = tuple(int(axis) % x.ndim for axis in order)
    if sorted(perm) != list(range(x.ndim)):
        raise LoadError(f"the order {list(order)} does not name each of {x.ndim} axes once")
    return _unchecked_node(x, "transpose", {"perm": perm}, tuple(x.shape[axis] for axis in perm))


def _unchecked_node(x: Tensor, kind: str, attrs: dict[str, Any], shape: tuple[int, ...]) -> Tensor:
    """A node without the checks of the graph, which would refuse it."""
    operand = (x.shape, x.dtype, "" if x.weight is None else x.weight.encoding)
    signature = Signature(definition(kind), tuple(attrs.items()), (operand,), shape, x.dtype, ())
    return factory.tensor(signature, (x,), None, None, x.where)


def _source(x: Tensor) -> tuple[Tensor, tuple[int, ...], tuple[int, ...]]:
    """The source of a tensor with many axes, the shape it was reshaped to, and the order of its axes."""
    order = tuple(range(x.ndim))
    while x.op == "transpose":
        order = tuple(x.attrs["perm"][axis] for axis in order)
        x = x.inputs[0]
    if x.op != "reshape":
        raise NoForm(f"{x.op} gives a tensor of {x.ndim} axes; the limit of the engine is {MAX_RANK}")
    return x.inputs[0], x.shape, order


def _complete_shape(shape: Sequence[int], size: int) -> tuple[int, ...]:
    """The shape with its -1, if any, replaced by the extent that fits ``size`` elements."""
    known_size = math.prod(extent for extent in shape if extent != -1)
    if list(shape).count(-1) > 1 or known_size < 1 or size % known_size or (-1 not in shape and known_size != size):
        raise LoadError(f"{size} elements do not fit the shape {list(shape)}")
    return tuple(size // known_size if extent == -1 else int(extent) for extent in shape)


def rearranged(x: Tensor, shape: Sequence[int], order: Sequence[int]) -> Tensor:
    """The elements of ``x`` reshaped to ``shape`` and transposed by ``order``; the result may have any shape of that
    size. Axes that stay side by side move as one. If there are still too many axes, they move block by block."""
    extents, moves = _merge_axes(shape, order)
    if moves == sorted(moves):  # no element moves, and in one line they could be too many for an axis
        return x
    if len(extents) <= MAX_RANK:
        return x.reshape(*extents).transpose(moves)
    current = list(range(len(extents)))
    for place in range(len(extents)):
        first = current.index(moves[place])
        if first == place:
            continue
        last = first + 1
        while (
            last < len(current) and place + last - first < len(moves) and current[last] == moves[place + last - first]
        ):
            last += 1
        sides = [current[:place], current[place:first], current[first:last], current[last:]]
        x = x.reshape(*(math.prod(extents[axis] for axis in side) for side in sides)).transpose([0, 2, 1, 3])
        current = [*sides[0], *sides[2], *sides[1], *sides[3]]
    return x


def _merge_axes(shape: Sequence[int], order: Sequence[int]) -> tuple[list[int], list[int]]:
    """The same move with as few axes as possible: axes of one element are dropped, and neighbours that stay neighbours
    become one axis."""
    wide_axes = [axis for axis in order if shape[axis] != 1]
    if not wide_axes:
        return [1], [0]
    runs: list[list[int]] = [[wide_axes[0]]]
    numbered = [axis for axis in range(len(shape)) if shape[axis] != 1]
    for axis in wide_axes[1:]:
        behind = numbered.index(runs[-1][-1]) + 1
        if behind < len(numbered) and numbered[behind] == axis:
            runs[-1].append(axis)
        else:
            runs.append([axis])
    run_order = sorted(range(len(runs)), key=lambda run: runs[run][0])
    extents = [math.prod(shape[axis] for axis in runs[run]) for run in run_order]
    return extents, [run_order.index(run) for run in range(len(runs))]
