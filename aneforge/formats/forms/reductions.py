"""Reductions that drop their axes, positions of extremes, and sorts along any axis."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from aneforge.errors import LoadError
from aneforge.formats.forms.numbers import power, scaled, truth
from aneforge.formats.values import NoForm, Numeric, axis_of, without_axes
from aneforge.graph import builders as af
from aneforge.graph.ops.leaf import const
from aneforge.graph.ops.ranking import global_arg
from aneforge.graph.tensor import Tensor

EXACT = 2048
"""The largest number up to which fp16 holds every integer."""

REDUCTIONS: dict[str, Callable[[Tensor, tuple[int, ...]], Tensor]] = {
    "l1_norm": Tensor.l1_norm,
    "l2_norm": lambda x, axes: x.sum_square(axes).sqrt(),
    "log_sum": Tensor.log_sum,
    "log_sum_exp": Tensor.reduce_log_sum_exp,
    "max": Tensor.amax,
    "mean": Tensor.mean,
    "min": Tensor.amin,
    "prod": Tensor.prod,
    "sum": Tensor.sum,
    "sum_square": Tensor.sum_square,
}
"""What each reduction is, by the names of the common ops; all keep the axes that they reduce."""


def reduced(
    x: Tensor, function: Callable[[Tensor, tuple[int, ...]], Tensor], axes: Sequence[int], keep: bool
) -> Tensor:
    """``function`` keeps the axes that it reduces; they are removed unless ``keep``."""
    result = function(x, tuple(sorted(axes)))
    return result if keep else result.reshape(*without_axes(x.shape, axes))


def whole_position(x: Tensor, largest: bool) -> Tensor:
    """The position of the largest (or smallest) element of a whole tensor, counted row by row: [1]."""
    if x.size - 1 > EXACT:
        raise NoForm(f"positions among {x.size:,} elements are not exact in fp16, which counts to {EXACT:,}")
    return global_arg(x.reshape(1, x.size), largest, 1).reshape(1)


def position(x: Tensor, axis: int, keep: bool, largest: bool = True, last: bool = False) -> Tensor:
    """The position of the largest (or smallest) element of each line; of equal ones the first, or the last."""
    size = x.shape[axis]
    if size - 1 > EXACT:
        raise NoForm(f"positions along {size:,} elements are not exact in fp16, which counts to {EXACT:,}")
    order = [*(i for i in range(x.ndim) if i != axis), axis]
    lines = x if axis == x.ndim - 1 else x.transpose(order)
    flat = lines if lines.ndim == 2 else lines.reshape(-1, size)
    flat = flat.reverse([1]) if last else flat
    positions = (flat if largest else -flat).argmax(-1)
    positions = positions.linear_activation(-1.0, float(size - 1)) if last else positions
    kept_shape = [1 if i == axis else extent for i, extent in enumerate(x.shape)]
    shape = tuple(kept_shape) if keep else without_axes(x.shape, (axis,))
    return positions if positions.shape == shape else positions.reshape(*shape)


def variance(x: Tensor, axes: Sequence[int], correction: float = 1.0) -> tuple[Tensor, Tensor]:
    """The variance and the mean. ``correction`` is subtracted from the number of elements that the sum is divided
    by."""
    count = math.prod(x.shape[axis] for axis in axes)
    if count <= correction:
        raise LoadError(
            f"correction {correction:g} for {count} elements makes the divisor zero or negative; it must be less than "
            f"{count}"
        )
    mean = x.mean(tuple(axes))
    return scaled((x - mean).square().mean(tuple(axes)), count / (count - correction)), mean


def vector_norm(x: Tensor, axes: tuple[int, ...], order: float = 2.0) -> Tensor:
    if order in (1.0, 2.0):
        return x.l1_norm(axes) if order == 1.0 else x.sum_square(axes).sqrt()
    if order in (math.inf, -math.inf):
        return x.abs().amax(axes) if order > 0 else x.abs().amin(axes)
    if order == 0.0:
        return x.not_equal(0.0).cast().sum(axes)
    return power(power(x.abs(), order).sum(axes), 1 / order)


def trace(x: Numeric) -> Tensor:
    """The sum of the diagonal of a matrix."""
    return af.where(truth(np.eye(x.shape[0], x.shape[1])), x, const(np.zeros((1, 1)))).sum((0, 1))


# Sorting along an axis. The engine sorts rows, so the axis moves to the end and the other axes become one.


def in_rows(x: Tensor, axis: int, function: Callable[[Tensor], Tensor]) -> Tensor:
    """Apply a function of rows [rows, elements] along any axis. It may change the number of elements in a row."""
    order = [*(i for i in range(x.ndim) if i != axis), axis]
    lines = x if axis == x.ndim - 1 else x.transpose(order)
    rows = function(lines if lines.ndim == 2 else lines.reshape(-1, x.shape[axis]))
    shape = (*(x.shape[i] for i in order[:-1]), rows.shape[-1])
    back = rows if rows.shape == shape else rows.reshape(*shape)
    return back if axis == x.ndim - 1 else back.transpose([order.index(i) for i in range(x.ndim)])


def sort(x: Tensor, axis: int, descending: bool = False) -> Tensor:
    return in_rows(x, axis, lambda rows: af.sort(rows, descending=descending))


def argsort(x: Tensor, axis: int, descending: bool = False, count: int | None = None) -> Tensor:
    """The positions of the sorted elements in the input, all of them or the first ``count``."""
    if x.shape[axis] - 1 > EXACT:
        raise NoForm(f"positions along {x.shape[axis]:,} elements are not exact in fp16, which counts to {EXACT:,}")

    def places(rows: Tensor) -> Tensor:
        order = af.sort(rows, descending=descending, return_indices=True)
        return order if count is None else order.slice_by_size([0, 0], [rows.shape[0], count])

    return in_rows(x, axis, places)


def topk(x: Tensor, axis: int, count: int, largest: bool = True) -> Tensor:
    return in_rows(x, axis, lambda rows: af.topk(rows, count, largest=largest))


def hard_maximum(x: Numeric, axis: int = -1) -> Tensor:
    """1 at the first maximum along the axis, 0 elsewhere."""
    along = axis_of(axis, x.ndim)
    return in_rows(x, along, lambda rows: af.one_hot(rows.argmax(-1).reshape(rows.shape[0]), rows.shape[1]))
