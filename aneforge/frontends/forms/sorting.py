"""Sorting along an axis. The engine sorts rows, so the axis moves to the end and the other axes become one."""

from __future__ import annotations

from collections.abc import Callable

from aneforge.frontends.forms.reductions import EXACT
from aneforge.frontends.values import NoForm, Numeric, axis_of
from aneforge.graph import builders as af
from aneforge.graph.tensor import Tensor

__all__ = ["argsort", "hard_maximum", "in_rows", "sort", "topk"]


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
