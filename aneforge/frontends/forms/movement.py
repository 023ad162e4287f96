"""Slices, pads and other moves that are fixed when a model is read."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from aneforge.frontends import LoadError
from aneforge.frontends.forms.numbers import LARGEST
from aneforge.frontends.values import NoForm
from aneforge.graph import builders as af
from aneforge.graph.tensor import Tensor

__all__ = ["broadcast_to", "gathered", "padded", "parts", "sliced"]

_MOST_PLACES = 1 << 20


def sliced(x: Tensor, axis: int, begin: int, end: int, step: int = 1) -> Tensor:
    """As Python slices: negative places count from the end, places beyond it are cut off."""
    picked = range(x.shape[axis])[slice(begin, end, step)]
    if not len(picked):
        raise LoadError(f"the result is empty along axis {axis}; empty tensors are not supported")
    if len(picked) == x.shape[axis]:
        return x if step > 0 else x.reverse(axis)
    if step != 1 and len(picked) > 1:
        return af.gather(x, np.array(picked), axis=axis)
    sizes = [len(picked) if i == axis else extent for i, extent in enumerate(x.shape)]
    return x.slice_by_size([picked[0] if i == axis else 0 for i in range(x.ndim)], sizes)


def parts(x: Tensor, axis: int, sizes: Sequence[int]) -> list[Tensor]:
    """A tensor cut along an axis into parts of these sizes."""
    found, first = [], 0
    for size in sizes:
        begin = [first if i == axis else 0 for i in range(x.ndim)]
        extent = [int(size) if i == axis else each for i, each in enumerate(x.shape)]
        found.append(x.slice_by_size(begin, extent))
        first += int(size)
    return found


def gathered(x: Tensor, axis: int, indices: np.ndarray) -> Tensor:
    """Known places along an axis, which becomes the axes of ``indices``; negative places count from the end."""
    places = np.where(indices < 0, indices + x.shape[axis], indices).astype(int)
    found = af.gather(x, places.reshape(-1), axis=axis)
    shape = (*x.shape[:axis], *places.shape, *x.shape[axis + 1 :]) or (1,)
    return found if found.shape == shape else found.reshape(*shape)


def broadcast_to(x: Tensor, shape: Sequence[int]) -> Tensor:
    wanted = np.broadcast_shapes(x.shape, tuple(shape))
    raised = x if x.ndim == len(wanted) else x.reshape(*(1,) * (len(wanted) - x.ndim), *x.shape)
    return _tiled(raised, [a // b for a, b in zip(wanted, raised.shape, strict=True)])


def _tiled(x: Tensor, copies: Sequence[int]) -> Tensor:
    return x if all(each == 1 for each in copies) else x.tile(list(copies))


def padded(x: Tensor, widths: Sequence[tuple[int, int]], mode: str = "constant", fill: float = 0.0) -> Tensor:
    """Negative widths cut off; a fill beyond fp16 is infinite. ``mode`` is constant, replicate, reflect, symmetric or
    wrap."""
    if any(width < 0 for pair in widths for width in pair):
        begin = [max(0, -before) for before, _ in widths]
        extent = [size - max(0, -a) - max(0, -b) for size, (a, b) in zip(x.shape, widths, strict=True)]
        x = x.slice_by_size(begin, extent)
        widths = [(max(0, a), max(0, b)) for a, b in widths]
    for axis, pair in enumerate(widths):
        if mode == "wrap" or (mode == "reflect" and max(pair) >= x.shape[axis]):
            if x.shape[axis] + sum(pair) > _MOST_PLACES:
                raise NoForm(f"an axis of {x.shape[axis]} padded by {pair} has more than {_MOST_PLACES:,} places")
            named = np.pad(np.arange(x.shape[axis]), pair, mode=mode)
            x = af.gather(x, named, axis=axis) if any(pair) else x
            widths = [(0, 0) if i == axis else each for i, each in enumerate(widths)]
    fill = fill if abs(fill) <= LARGEST else math.copysign(math.inf, fill)
    return af.pad(x, list(widths), mode, fill) if any(map(any, widths)) else x
