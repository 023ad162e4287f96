"""Slices along one axis that never start inside the width.

A slice with an offset on the last axis goes through a fixed-point mover on A13 and A14 that turns values above 4094
into infinity (seed page, "slice saturation"). A rewrite must not bring that hazard into a graph that did not have
it, so pieces are cut along an axis that is not the last: where it is, an axis of one is added behind it.
"""

from __future__ import annotations

from collections.abc import Sequence

from aneforge.graph.node import MAX_RANK
from aneforge.graph.ops.shape import concat
from aneforge.graph.tensor import Tensor


class Cut:
    """A tensor laid out so that ``axis`` can be cut; :meth:`whole` restores the layout of a result."""

    def __init__(self, x: Tensor, axis: int) -> None:
        self.rank, self.swap = x.ndim, None
        self.last = axis == x.ndim - 1
        self.axis = axis
        self.x = x
        if self.last and x.ndim < MAX_RANK:
            self.x = x.reshape(*x.shape, 1)
        elif self.last:
            self.swap = [*range(x.ndim - 2), x.ndim - 1, x.ndim - 2]
            self.x = x.transpose(self.swap)
            self.axis = x.ndim - 2

    def piece(self, begin: int, size: int) -> Tensor:
        """``size`` elements from ``begin``; the tensor itself where that is all of it."""
        if size == self.x.shape[self.axis]:
            return self.x
        starts = [begin if i == self.axis else 0 for i in range(self.x.ndim)]
        sizes = [size if i == self.axis else extent for i, extent in enumerate(self.x.shape)]
        return self.x.slice_by_size(starts, sizes)

    def whole(self, result: Tensor) -> Tensor:
        """A result in the layout of ``x``, back in the user's layout."""
        if self.swap is not None:
            return result.transpose(self.swap)
        return result.reshape(result.shape[:-1]) if self.last else result

    def like(self, tensor: Tensor) -> Cut:
        """Another tensor of the same rank in the same layout."""
        return Cut(tensor, self.rank - 1 if self.last else self.axis)


def joined(parts: Sequence[Tensor], axis: int) -> Tensor:
    """Parts along one axis; a single part is itself."""
    return parts[0] if len(parts) == 1 else concat(list(parts), axis)
