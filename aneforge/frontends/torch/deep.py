"""Tensors of more axes than any engine has.

A window partition or a grouped shuffle views a tensor under six or more axes, reorders them and views it back. The
axes exist on paper only: the elements stay where they are until somebody needs them, and axes that travel together
move as one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from aneforge.frontends import LoadError
from aneforge.frontends.forms.tall import rearranged
from aneforge.graph.node import MAX_RANK
from aneforge.graph.tensor import Tensor

__all__ = ["MOST_AXES", "Deep"]

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
            raise LoadError(f"a tensor of {x.size} elements cannot take the shape {list(shape)}")
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
        return rearranged(self.flat, self.stored, self.order)

    def around(self, axis: int) -> Tensor:
        """One axis, with all before it and all after it as one each."""
        shape = self.shape
        before, after = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
        return self.laid_out().reshape(before, shape[axis], after)
