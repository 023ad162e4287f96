"""Gathers and scatters: ops of the graph at known places, otherwise ops of the host."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from aneforge.errors import LoadError
from aneforge.frontends import forms
from aneforge.frontends.importer.op import Op, Rule
from aneforge.frontends.ops.known import STATIC
from aneforge.frontends.values import NoForm, axis_of, shaped
from aneforge.graph import builders as af
from aneforge.graph.tensor import Tensor

__all__ = ["RULES"]

_MOST_PLACES = 1 << 22  # elements of a table of places that the graph stores


def _places(op: Op) -> np.ndarray:
    return op.known("indices").astype(np.int64)


def _gather(op: Op) -> Tensor:
    if op.whole("batch_dims", 0):
        return _gather_in_batches(op)
    x, places = op.tensor(), _places(op)
    places = places.reshape(()) if op.shape("indices") == () else places
    return forms.gathered(x, op.axis(x.ndim, 0), places)


def _gather_in_batches(op: Op) -> Tensor:
    """Any choice of known places. The same op on the element numbers 0, 1, 2... tells which elements it takes."""
    x = op.tensor()
    op.known("indices")
    if x.size > _MOST_PLACES:
        raise NoForm(f"the input has {x.size:,} elements; the limit of a gather in batches is {_MOST_PLACES:,}")
    numbers = np.arange(x.size).reshape(x.shape)
    places = np.asarray(STATIC[op.kind](replace(op, arguments={**op.arguments, "x": [numbers]})))
    return shaped(af.gather(x.reshape(x.size), places.reshape(-1)), places.shape)


def _gather_along(op: Op) -> Tensor:
    x = op.tensor()
    return forms.gathered_elements(x, op.axis(x.ndim, 0), _places(op))


def _gather_nd(op: Op) -> Tensor:
    return forms.gathered_nd(op.tensor(), _places(op), op.whole("batch_dims", 0))


def _windows(op: Op) -> Tensor:
    """Every window of ``size`` elements, one for each ``stride``; two axes replace the one."""
    x, size, stride = op.tensor(), op.whole("size"), op.whole("stride", 1)
    axis = op.axis(x.ndim)
    count = (x.shape[axis] - size) // stride + 1
    if size < 1 or stride < 1 or count < 1:
        raise LoadError(f"windows of {size} at steps of {stride} do not fit {x.shape[axis]} elements")
    return forms.gathered(x, axis, np.arange(count)[:, None] * stride + np.arange(size))


def _reduction(op: Op) -> str:
    mode = op.text("mode", "add")
    return "none" if mode == "update" else mode


def _scatter(op: Op) -> Tensor:
    data, updates, indices = op.tensor("data"), op.tensor("updates"), _places(op)
    axis = op.axis(data.ndim, 0)
    places = np.where(indices < 0, indices + data.shape[axis], indices).reshape(-1)
    lines = shaped(updates, (*data.shape[:axis], places.size, *data.shape[axis + 1 :]))
    return forms.scattered_rows(data, places, lines, axis, _reduction(op))


def _scatter_along(op: Op) -> Tensor:
    data = op.tensor("data")
    return forms.scattered_elements(data, op.axis(data.ndim, 0), _places(op), op.tensor("updates"), _reduction(op))


def _scatter_nd(op: Op) -> Tensor:
    return forms.scattered_nd(op.tensor("data"), _places(op), op.tensor("updates"), _reduction(op))


def _one_hot(op: Op) -> Tensor:
    indices = op.tensor("indices")
    on, off = op.number("on_value", 1.0), op.number("off_value", 0.0)
    depth = op.whole("one_hot_vector_size")
    marks = shaped(af.one_hot(indices, depth, on, off), (*op.shape("indices"), depth))
    axis = axis_of(op.whole("axis", -1), marks.ndim)
    if axis == marks.ndim - 1:
        return marks
    order = list(range(marks.ndim - 1))
    return marks.transpose([*order[:axis], marks.ndim - 1, *order[axis:]])


RULES: dict[str, Rule] = {
    "gather": _gather,
    "gather_along_axis": _gather_along,
    "gather_nd": _gather_nd,
    "one_hot": _one_hot,
    "scatter": _scatter,
    "scatter_along_axis": _scatter_along,
    "scatter_nd": _scatter_nd,
    "sliding_windows": _windows,
}
