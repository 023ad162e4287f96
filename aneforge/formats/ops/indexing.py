"""Gathers and scatters: ops of the graph at known places, otherwise ops of the host."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from aneforge.errors import LoadError
from aneforge.formats import forms
from aneforge.formats.importer.op import FileOp
from aneforge.formats.ops.known import gather
from aneforge.formats.values import Array, NoForm, Value, axis_of, shaped
from aneforge.graph import builders as af
from aneforge.graph.tensor import Tensor

_MOST_PLACES = 1 << 22  # elements of a table of places that the graph stores


def _gather(op: FileOp, x: Tensor, indices: Array, axis: int = 0, batch_dims: int = 0) -> Tensor:
    if batch_dims:
        # The same op on the element numbers 0, 1, 2... tells which elements it takes.
        if x.size > _MOST_PLACES:
            raise NoForm(f"the input has {x.size:,} elements; the limit of a gather in batches is {_MOST_PLACES:,}")
        places = gather(np.arange(x.size).reshape(x.shape), indices, axis, batch_dims)
        return shaped(af.gather(x.reshape(x.size), places.reshape(-1)), places.shape)
    along = axis_of(axis, x.ndim)
    places = indices.astype(np.int64)
    places = places.reshape(()) if op.shape("indices") == () else places
    extent = x.shape[along]
    if places.size and (places.min() < -extent or places.max() >= extent):
        outside = places.max() if places.max() >= extent else places.min()
        raise LoadError(
            f"index {outside} is out of range for axis {along} of {extent} elements; expected {-extent} to "
            f"{extent - 1}"
        )
    return forms.gathered(x, along, places)


def _gather_along(x: Tensor, indices: Array, axis: int = 0) -> Tensor:
    return forms.gathered_elements(x, axis_of(axis, x.ndim), indices.astype(np.int64))


def _gather_nd(x: Tensor, indices: Array, batch_dims: int = 0) -> Tensor:
    return forms.gathered_nd(x, indices.astype(np.int64), batch_dims)


def _windows(x: Tensor, axis: int, size: int, stride: int = 1) -> Tensor:
    """Every window of ``size`` elements, one for each ``stride``; two axes replace the one."""
    along = axis_of(axis, x.ndim)
    count = (x.shape[along] - size) // stride + 1
    if size < 1 or stride < 1 or count < 1:
        raise LoadError(f"windows of {size} at steps of {stride} do not fit {x.shape[along]} elements")
    return forms.gathered(x, along, np.arange(count)[:, None] * stride + np.arange(size))


def _reduction(mode: str) -> str:
    return "none" if mode == "update" else mode


def _scatter(data: Tensor, indices: Array, updates: Tensor, axis: int = 0, mode: str = "add") -> Tensor:
    along = axis_of(axis, data.ndim)
    places = indices.astype(np.int64)
    places = np.where(places < 0, places + data.shape[along], places).reshape(-1)
    lines = shaped(updates, (*data.shape[:along], places.size, *data.shape[along + 1 :]))
    return forms.scattered_rows(data, places, lines, along, _reduction(mode))


def _scatter_along(data: Tensor, indices: Array, updates: Value, axis: int = 0, mode: str = "add") -> Tensor:
    places = indices.astype(np.int64)
    return forms.scattered_elements(data, axis_of(axis, data.ndim), places, updates, _reduction(mode))


def _scatter_nd(data: Tensor, indices: Array, updates: Value, mode: str = "add") -> Tensor:
    return forms.scattered_nd(data, indices.astype(np.int64), updates, _reduction(mode))


def _one_hot(
    op: FileOp,
    indices: Tensor,
    one_hot_vector_size: int,
    axis: int = -1,
    on_value: float = 1.0,
    off_value: float = 0.0,
    from_end: bool = False,
) -> Tensor:
    """``from_end``: a negative place counts from the end."""
    if from_end:
        indices = af.where(indices.less(0.0), indices + float(one_hot_vector_size), indices)
    marks = af.one_hot(indices, one_hot_vector_size, on_value, off_value)
    marks = shaped(marks, (*op.shape("indices"), one_hot_vector_size))
    along = axis_of(axis, marks.ndim)
    if along == marks.ndim - 1:
        return marks
    order = list(range(marks.ndim - 1))
    return marks.transpose([*order[:along], marks.ndim - 1, *order[along:]])


OPS: dict[str, Callable[..., object]] = {
    "gather": _gather,
    "gather_along_axis": _gather_along,
    "gather_nd": _gather_nd,
    "one_hot": _one_hot,
    "scatter": _scatter,
    "scatter_along_axis": _scatter_along,
    "scatter_nd": _scatter_nd,
    "sliding_windows": _windows,
}
