"""Reductions that drop their axes, and positions of extremes along any axis."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from aneforge.frontends.values import NoForm, without_axes
from aneforge.graph.tensor import Tensor

__all__ = ["EXACT", "position", "reduced"]

EXACT = 2048
"""The largest number up to which fp16 holds every whole one."""


def reduced(
    x: Tensor, function: Callable[[Tensor, tuple[int, ...]], Tensor], axes: Sequence[int], keep: bool
) -> Tensor:
    """``function`` keeps the axes it reduces; they fall away unless ``keep``."""
    found = function(x, tuple(sorted(axes)))
    return found if keep else found.reshape(*without_axes(x.shape, axes))


def position(x: Tensor, axis: int, keep: bool, largest: bool = True, last: bool = False) -> Tensor:
    """Where the largest (or smallest) element of each line is, the first of equals, or the last."""
    size = x.shape[axis]
    if size - 1 > EXACT:
        raise NoForm(f"positions along {size:,} elements are not exact in fp16, which counts to {EXACT:,}")
    order = [*(i for i in range(x.ndim) if i != axis), axis]
    lines = x if axis == x.ndim - 1 else x.transpose(order)
    flat = lines if lines.ndim == 2 else lines.reshape(-1, size)
    flat = flat.reverse([1]) if last else flat
    found = (flat if largest else -flat).argmax(-1)
    found = found.linear_activation(-1.0, float(size - 1)) if last else found
    kept = [1 if i == axis else extent for i, extent in enumerate(x.shape)]
    shape = tuple(kept) if keep else without_axes(x.shape, (axis,))
    return found if found.shape == shape else found.reshape(*shape)
