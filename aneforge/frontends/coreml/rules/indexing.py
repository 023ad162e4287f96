"""Gathers and scatters: with known places they are ops of the graph, else the host's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from aneforge.frontends import LoadError
from aneforge.frontends.coreml.op import OnHost, Op, Rule, shaped
from aneforge.frontends.coreml.static import STATIC
from aneforge.frontends.values import axis_of
from aneforge.graph import builders as af
from aneforge.graph.tensor import Tensor

__all__ = ["RULES"]

_MOST_PLACES = 1 << 22  # of a table of places that a graph holds as numbers


def _gather(op: Op) -> Tensor:
    if op.whole("batch_dims", 0):
        return _picked(op)
    x, indices = op.tensor(), op.known("indices").astype(np.int64)
    axis = op.axis(x.ndim, 0)
    places = np.where(indices < 0, indices + x.shape[axis], indices).reshape(-1)
    found = af.gather(x, places, axis=axis)
    own = () if op.shape("indices") == () else indices.shape
    return shaped(found, (*x.shape[:axis], *own, *x.shape[axis + 1 :]))


def _picked(op: Op) -> Tensor:
    """Any choice of known places: the same op over the numbers of the places says which elements it takes."""
    x = op.tensor()
    if x.size > _MOST_PLACES:
        raise OnHost(f"a table of {x.size:,} places is too large for the graph")
    numbers = np.arange(x.size).reshape(x.shape)
    places = np.asarray(STATIC[op.kind](replace(op, given={**op.given, "x": [numbers]})))
    return shaped(af.gather(x.reshape(x.size), places.reshape(-1)), places.shape)


def _known_places(op: Op) -> Tensor:
    op.known("indices")
    return _picked(op)


def _windows(op: Op) -> Tensor:
    """Every run of ``size`` elements, one each ``stride``, on two axes in place of one."""
    x, size, stride = op.tensor(), op.whole("size"), op.whole("stride", 1)
    axis = op.axis(x.ndim)
    count = (x.shape[axis] - size) // stride + 1
    if size < 1 or stride < 1 or count < 1:
        raise LoadError(f"windows of {size} at steps of {stride} along {x.shape[axis]} elements")
    places = (np.arange(count)[:, None] * stride + np.arange(size)).reshape(-1)
    return shaped(af.gather(x, places, axis=axis), (*x.shape[:axis], count, size, *x.shape[axis + 1 :]))


def _mode(op: Op) -> str:
    mode = op.text("mode", "add")
    if mode not in ("update", "add", "sub"):
        raise OnHost(f"a scatter by {mode!r} has no form on the engine")
    return mode


def _scattered(x: Tensor, places: np.ndarray, updates: Tensor, mode: str, axis: int = 0) -> Tensor:
    chosen = places.reshape(-1).tolist()
    if mode == "update":
        if len(set(chosen)) != len(chosen):
            raise OnHost("it sets one place twice, and the last one counts")
        return af.scatter(x, chosen, updates, axis)
    return af.scatter(x, chosen, -updates if mode == "sub" else updates, axis, mode="add")


def _scatter(op: Op) -> Tensor:
    data, updates, indices = op.tensor("data"), op.tensor("updates"), op.known("indices").astype(np.int64)
    axis = op.axis(data.ndim, 0)
    places = np.where(indices < 0, indices + data.shape[axis], indices)
    lines = shaped(updates, (*data.shape[:axis], places.size, *data.shape[axis + 1 :]))
    return _scattered(data, places, lines, _mode(op), axis)


def _scatter_along(op: Op) -> Tensor:
    data, updates, indices = op.tensor("data"), op.tensor("updates"), op.known("indices").astype(np.int64)
    axis = axis_of(op.whole("axis", 0), data.ndim)
    if updates.size > _MOST_PLACES:
        raise OnHost(f"a table of {updates.size:,} places is too large for the graph")
    places = np.indices(updates.shape)
    places[axis] = np.where(indices < 0, indices + data.shape[axis], indices)
    flat = np.asarray(np.ravel_multi_index(tuple(places), data.shape))
    found = _scattered(data.reshape(data.size), flat, updates.reshape(updates.size), _mode(op))
    return shaped(found, data.shape)


def _scatter_nd(op: Op) -> Tensor:
    data, updates, indices = op.tensor("data"), op.tensor("updates"), op.known("indices").astype(np.int64)
    depth = indices.shape[-1]
    lead, rest = data.shape[:depth], data.shape[depth:]
    whole = indices + np.where(indices < 0, np.array(lead), 0)
    flat = np.asarray(np.ravel_multi_index(tuple(np.moveaxis(whole, -1, 0)), lead))
    rows = data.reshape(int(np.prod(lead)), int(np.prod(rest, dtype=int)))
    found = _scattered(rows, flat, updates.reshape(flat.size, rows.shape[1]), _mode(op))
    return shaped(found, data.shape)


def _one_hot(op: Op) -> Tensor:
    indices = op.tensor("indices")
    on, off = op.number("on_value", 1.0), op.number("off_value", 0.0)
    own = op.shape("indices")
    depth = op.whole("one_hot_vector_size")
    found = shaped(af.one_hot(indices, depth, on, off), (*own, depth))
    axis = axis_of(op.whole("axis", -1), found.ndim)
    if axis == found.ndim - 1:
        return found
    order = list(range(found.ndim - 1))
    return found.transpose([*order[:axis], found.ndim - 1, *order[axis:]])


RULES: dict[str, Rule] = {
    "gather": _gather,
    "gather_along_axis": _known_places,
    "gather_nd": _known_places,
    "one_hot": _one_hot,
    "scatter": _scatter,
    "scatter_along_axis": _scatter_along,
    "scatter_nd": _scatter_nd,
    "sliding_windows": _windows,
}
