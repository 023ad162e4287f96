"""Tensors of more axes than the engine has, on their way from one reshape to another.

Models cut images into windows, and join them again, by a reshape to six axes or more, a transpose, and a reshape back.
Between the two reshapes nothing is computed. The tall tensor is noted as a node that no graph may keep: the reshape
back moves the elements of what it came from, and leaves it behind. Where something else reads it, the gate refuses it.
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
    """A tensor of any rank under a shape of any rank (one extent may be -1); no axis is a line of one."""
    wanted = _filled(shape, x.size) or (1,)
    if x.ndim > MAX_RANK:
        x = rearranged(*_source(x))
    return x.reshape(*wanted) if len(wanted) <= MAX_RANK else _noted(x, "reshape", {"to": wanted}, wanted)


def transposed(x: Tensor, order: Sequence[int]) -> Tensor:
    if x.ndim <= MAX_RANK:
        return x if [each % x.ndim for each in order] == list(range(x.ndim)) else x.transpose(list(order))
    perm = tuple(int(each) % x.ndim for each in order)
    if sorted(perm) != list(range(x.ndim)):
        raise LoadError(f"the order {list(order)} does not name each of {x.ndim} axes once")
    return _noted(x, "transpose", {"perm": perm}, tuple(x.shape[axis] for axis in perm))


def _noted(x: Tensor, kind: str, attrs: dict[str, Any], shape: tuple[int, ...]) -> Tensor:
    """A node that the guards of the graph would refuse."""
    operand = (x.shape, x.dtype, "" if x.weight is None else x.weight.encoding)
    signature = Signature(definition(kind), tuple(attrs.items()), (operand,), shape, x.dtype, ())
    return factory.tensor(signature, (x,), None, None, x.where)


def _source(x: Tensor) -> tuple[Tensor, tuple[int, ...], tuple[int, ...]]:
    """What a tall tensor was made of, under which shape, and the order of its axes."""
    order = tuple(range(x.ndim))
    while x.op == "transpose":
        order = tuple(x.attrs["perm"][axis] for axis in order)
        x = x.inputs[0]
    if x.op != "reshape":
        raise NoForm(f"{x.op} gives a tensor of {x.ndim} axes; no engine takes more than {MAX_RANK}")
    return x.inputs[0], x.shape, order


def _filled(shape: Sequence[int], size: int) -> tuple[int, ...]:
    """A shape whose one open extent follows from the rest."""
    rest = math.prod(each for each in shape if each != -1)
    if list(shape).count(-1) > 1 or rest < 1 or size % rest or (-1 not in shape and rest != size):
        raise LoadError(f"{size} elements do not fit the shape {list(shape)}")
    return tuple(size // rest if each == -1 else int(each) for each in shape)


def rearranged(x: Tensor, shape: Sequence[int], order: Sequence[int]) -> Tensor:
    """The elements of ``x``, seen as ``shape``, with the axes in ``order``; the result's own shape is any that holds
    them. Axes that stay side by side move as one; what is still too tall moves block by block."""
    extents, moves = _merged(shape, order)
    if len(extents) <= MAX_RANK:
        seen = x.reshape(*extents)
        return seen if moves == sorted(moves) else seen.transpose(moves)
    now = list(range(len(extents)))
    for place in range(len(extents)):
        first = now.index(moves[place])
        if first == place:
            continue
        last = first + 1
        while last < len(now) and place + last - first < len(moves) and now[last] == moves[place + last - first]:
            last += 1
        sides = [now[:place], now[place:first], now[first:last], now[last:]]
        x = x.reshape(*(math.prod(extents[axis] for axis in side) for side in sides)).transpose([0, 2, 1, 3])
        now = [*sides[0], *sides[2], *sides[1], *sides[3]]
    return x


def _merged(shape: Sequence[int], order: Sequence[int]) -> tuple[list[int], list[int]]:
    """The same move with as few axes as can be: those of one element fall away, neighbours that stay so are one."""
    kept = [axis for axis in order if shape[axis] != 1]
    if not kept:
        return [1], [0]
    runs: list[list[int]] = [[kept[0]]]
    numbered = [axis for axis in range(len(shape)) if shape[axis] != 1]
    for axis in kept[1:]:
        behind = numbered.index(runs[-1][-1]) + 1
        if behind < len(numbered) and numbered[behind] == axis:
            runs[-1].append(axis)
        else:
            runs.append([axis])
    first = sorted(range(len(runs)), key=lambda run: runs[run][0])
    extents = [math.prod(shape[axis] for axis in runs[run]) for run in first]
    return extents, [first.index(run) for run in range(len(runs))]
