"""Reductions that drop their axes, and positions of extremes along any axis."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from aneforge.frontends.values import without_axes
from aneforge.graph.tensor import Tensor

__all__ = ["position", "reduced"]


def reduced(
    x: Tensor, function: Callable[[Tensor, tuple[int, ...]], Tensor], axes: Sequence[int], keep: bool
) -> Tensor:
    """``function`` keeps the axes it reduces; they fall away unless ``keep``."""
    found = function(x, tuple(sorted(axes)))
    return found if keep else found.reshape(*without_axes(x.shape, axes))


def position(x: Tensor, axis: int, keep: bool, largest: bool = True) -> Tensor:
    """Where the largest (or smallest) element of each line is, the first of equals."""
    order = [*(i for i in range(x.ndim) if i != axis), axis]
    lines = x if axis == x.ndim - 1 else x.transpose(order)
    flat = lines.reshape(-1, lines.shape[-1])
    found = (flat if largest else -flat).argmax(-1)
    kept = [1 if i == axis else extent for i, extent in enumerate(x.shape)]
    return found.reshape(*(kept if keep else without_axes(x.shape, (axis,))))
