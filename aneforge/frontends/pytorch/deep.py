"""Tensors of more axes than any engine supports.

A window partition or a grouped shuffle views a tensor with six or more axes, reorders them and views it back. The
reader only records the axes and their order. The elements move when an op needs them, and axes that stay together
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
    """The elements of ``flat``, viewed with the shape ``stored``, with its axes permuted to ``order``."""

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
        """Return the elements in the order of the axes; the shape may be any."""
        return rearranged(self.flat, self.stored, self.order)

    def around(self, axis: int) -> Tensor:
        """Return the elements with three axes: all before ``axis``, ``axis``, and all after it."""
        shape = self.shape
        before, after = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
        return self.laid_out().reshape(before, shape[axis], after)
