"""Tensors of more axes than any engine has.

A window partition or a grouped shuffle views a tensor under six or more axes, reorders them and views it back. The
axes exist on paper only: the elements stay where they are until somebody needs them, and axes that travel together
move as one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from aneforge.frontends import LoadError
from aneforge.graph.node import MAX_RANK
from aneforge.graph.tensor import Tensor

__all__ = ["MOST_AXES", "Deep", "turned"]

MOST_AXES = MAX_RANK


@dataclass(frozen=True)
class Deep:
    """A tensor on paper: the elements of ``flat``, seen under ``stored`` axes, taken in ``order``."""

    flat: Tensor
    stored: tuple[int, ...]
    order: tuple[int, ...]

    @classmethod
    def of(cls, x: Tensor, shape: Sequence[int]) -> Deep:
        if x.size != math.prod(shape):
            raise LoadError(f"{x.size} elements under the shape {list(shape)}")
        return cls(x, tuple(shape), tuple(range(len(shape))))

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.stored[axis] for axis in self.order)

    @property
    def ndim(self) -> int:
        return len(self.stored)

    def permuted(self, order: Sequence[int]) -> Deep:
        return Deep(self.flat, self.stored, tuple(self.order[axis] for axis in order))

    def laid_out(self) -> Tensor:
        """The elements in the order of the axes, of whatever shape."""
        return turned(self.flat, self.stored, self.order)

    def around(self, axis: int) -> Tensor:
        """One axis, with all before it and all after it as one each."""
        shape = self.shape
        before, after = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
        return self.laid_out().reshape(before, shape[axis], after)


def turned(x: Tensor, shape: Sequence[int], order: Sequence[int]) -> Tensor:
    """The elements of ``x``, seen under ``shape``, in another order of axes; the result has few axes."""
    groups = _travelling([axis for axis in order if shape[axis] != 1])
    if len(groups) <= 1:
        return x
    extents = [math.prod(shape[axis] for axis in group) for group in groups]
    rank = {place: number for number, place in enumerate(sorted(range(len(groups)), key=lambda i: groups[i][0]))}
    wanted = [rank[place] for place in range(len(groups))]  # as the groups lie in the result
    sizes = [extent for _, extent in sorted(zip(wanted, extents, strict=True))]
    if len(groups) <= MOST_AXES:
        return x.reshape(*sizes).transpose(wanted)
    return _one_by_one(x, sizes, wanted)


def _travelling(order: Sequence[int]) -> list[list[int]]:
    """Axes that stay neighbours, as one."""
    present = sorted(order)
    following = dict(pairwise(present))
    groups: list[list[int]] = []
    for axis in order:
        if groups and following.get(groups[-1][-1]) == axis:
            groups[-1].append(axis)
        else:
            groups.append([axis])
    return groups


def _one_by_one(x: Tensor, sizes: Sequence[int], order: Sequence[int]) -> Tensor:
    """Too many axes at once: each in turn is moved to its place, the others in three lumps."""
    present, found = list(range(len(sizes))), x
    for place, axis in enumerate(order):
        here = present.index(axis)
        if here == place:
            continue
        lumps = (present[:place], present[place:here], [axis], present[here + 1 :])
        found = found.reshape(*(math.prod(sizes[each] for each in lump) for lump in lumps)).transpose([0, 2, 1, 3])
        present = [*lumps[0], axis, *lumps[1], *lumps[3]]
    return found
