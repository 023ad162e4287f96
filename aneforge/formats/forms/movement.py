"""Slices, pads and other moves that are fixed when a model is read."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from aneforge.errors import LoadError
from aneforge.formats.values import NoForm, Value, as_tensor
from aneforge.graph import builders as af
from aneforge.graph.halves import FP16_MAX
from aneforge.graph.tensor import Tensor

_MOST_PLACES = 1 << 20


def reshaped(x: Tensor, shape: Sequence[int]) -> Tensor:
    """The same elements in another shape. One extent may be -1; an empty shape becomes (1,)."""
    known_size = math.prod(extent for extent in shape if extent != -1)
    fits = known_size == x.size if -1 not in shape else known_size > 0 and x.size % known_size == 0
    if list(shape).count(-1) > 1 or not fits:
        raise LoadError(f"{x.size} elements do not fit the shape {list(shape)}")
    return x.reshape(*([x.size // known_size if extent == -1 else int(extent) for extent in shape] or [1]))


def transposed(x: Tensor, order: Sequence[int]) -> Tensor:
    if sorted(int(axis) % x.ndim for axis in order) != list(range(x.ndim)):
        raise LoadError(f"the order {list(order)} does not name each of {x.ndim} axes once")
    perm = [int(axis) % x.ndim for axis in order]
    return x if perm == list(range(x.ndim)) else x.transpose(perm)


def sliced(x: Tensor, axis: int, begin: int, end: int, step: int = 1) -> Tensor:
    """A slice as in Python: negative places count from the end, places beyond the end are ignored."""
    picked = range(x.shape[axis])[slice(begin, end, step)]
    if not len(picked):
        raise LoadError(f"the result is empty along axis {axis}; every axis must have at least one element")
    if len(picked) == x.shape[axis]:
        return x if step > 0 else x.reverse(axis)
    if step != 1 and len(picked) > 1:
        return af.gather(x, np.array(picked), axis=axis)
    sizes = [len(picked) if i == axis else extent for i, extent in enumerate(x.shape)]
    return x.slice_by_size([picked[0] if i == axis else 0 for i in range(x.ndim)], sizes)


def parts(x: Tensor, axis: int, sizes: Sequence[int]) -> list[Tensor]:
    """A tensor cut along an axis into parts of these sizes."""
    pieces, offset = [], 0
    for size in sizes:
        begin = [offset if i == axis else 0 for i in range(x.ndim)]
        extents = [int(size) if i == axis else extent for i, extent in enumerate(x.shape)]
        pieces.append(x.slice_by_size(begin, extents))
        offset += int(size)
    return pieces


def joined(values: Sequence[Value], axis: int) -> Tensor:
    return as_tensor(values[0]) if len(values) == 1 else af.concat([as_tensor(value) for value in values], axis=axis)


def stacked(values: Sequence[Value], axis: int) -> Tensor:
    return af.stack([as_tensor(value) for value in values], axis=axis)


def gathered(x: Tensor, axis: int, indices: np.ndarray) -> Tensor:
    """Pick known places along an axis, which is replaced by the axes of ``indices``. Negative places count from the
    end."""
    places = np.where(indices < 0, indices + x.shape[axis], indices).astype(int)
    result = af.gather(x, places.reshape(-1), axis=axis)
    shape = (*x.shape[:axis], *places.shape, *x.shape[axis + 1 :]) or (1,)
    return result if result.shape == shape else result.reshape(*shape)


def broadcast_to(x: Tensor, shape: Sequence[int]) -> Tensor:
    target = np.broadcast_shapes(x.shape, tuple(shape))
    raised = x if x.ndim == len(target) else x.reshape(*(1,) * (len(target) - x.ndim), *x.shape)
    copies = [a // b for a, b in zip(target, raised.shape, strict=True)]
    return raised if all(count == 1 for count in copies) else raised.tile(copies)


def rolled(x: Tensor, axis: int, shift: int) -> Tensor:
    """Move elements along an axis; those that leave at the end come back at the start."""
    places = shift % x.shape[axis]
    return af.concat(parts(x, axis, [x.shape[axis] - places, places])[::-1], axis=axis) if places else x


def padded(x: Tensor, widths: Sequence[tuple[int, int]], mode: str = "constant", fill: float = 0.0) -> Tensor:
    """Pad each axis; negative widths remove elements, and a fill beyond fp16 is infinite. ``mode`` is constant,
    replicate, reflect, symmetric or wrap."""
    if any(width < 0 for pair in widths for width in pair):
        begin = [max(0, -before) for before, _ in widths]
        extent = [size - max(0, -a) - max(0, -b) for size, (a, b) in zip(x.shape, widths, strict=True)]
        x = x.slice_by_size(begin, extent)
        widths = [(max(0, a), max(0, b)) for a, b in widths]
    for axis, pair in enumerate(widths):
        if mode == "wrap" or (mode == "reflect" and max(pair) >= x.shape[axis]):
            if x.shape[axis] + sum(pair) > _MOST_PLACES:
                raise NoForm(
                    f"axis {axis} of {x.shape[axis]} padded by {pair} is too long; the limit is {_MOST_PLACES:,}"
                )
            named = np.pad(np.arange(x.shape[axis]), pair, mode=mode)
            x = af.gather(x, named, axis=axis) if any(pair) else x
            widths = [(0, 0) if i == axis else width for i, width in enumerate(widths)]
    fill = fill if abs(fill) <= FP16_MAX else math.copysign(math.inf, fill)
    return af.pad(x, list(widths), mode, fill) if any(map(any, widths)) else x
