"""Elements picked and replaced at places that are fixed when a model is read."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable

import numpy as np

from aneforge.frontends import LoadError
from aneforge.frontends.values import NoForm, Value, as_tensor
from aneforge.graph import builders as af
from aneforge.graph.tensor import Tensor

__all__ = ["gathered_elements", "gathered_nd", "scattered_elements", "scattered_nd", "scattered_rows"]

Array = np.ndarray

_MOST_INDICES = 1 << 24
_MOST_PLACES = 1 << 18  # of one op: every one of them is written into the program
_JOINED: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "mul": lambda old, new: old * new,
    "max": af.maximum,
    "min": af.minimum,
}


def gathered_elements(x: Tensor, axis: int, indices: Array) -> Tensor:
    """For each place of ``indices`` the element of ``x`` there, with the index in place of its own along the axis."""
    _limited(indices)
    places = _counted(indices, x.shape[axis])
    alike = np.moveaxis(places, axis, -1).reshape(-1, places.shape[axis])
    others_whole = all(a == b for i, (a, b) in enumerate(zip(x.shape, places.shape, strict=True)) if i != axis)
    if others_whole and (alike == alike[0]).all():
        return _picked(x, alike[0], axis)
    grid = np.indices(places.shape)
    grid[axis] = places
    flat = np.ravel_multi_index(tuple(grid), x.shape).reshape(-1)
    return _picked(x.reshape(x.size), flat, 0).reshape(*places.shape)


def gathered_nd(x: Tensor, indices: Array, batch_axes: int = 0) -> Tensor:
    """Lines of ``indices`` name a place along the axes behind the first ``batch_axes``, which are walked together."""
    depth = indices.shape[-1]
    lead = x.shape[: batch_axes + depth]
    rest = x.shape[batch_axes + depth :]
    shape = (*indices.shape[:-1], *rest)
    parts = [_counted(indices[..., i], x.shape[batch_axes + i]) for i in range(depth)]
    batch = np.indices(indices.shape[:-1])[:batch_axes]
    rows = np.ravel_multi_index((*batch, *parts), lead).reshape(-1)
    found = _picked(x.reshape(math.prod(lead), *([math.prod(rest)] if rest else [])), rows, 0)
    return found.reshape(*(shape or (1,)))


def _picked(x: Tensor, places: Array, axis: int) -> Tensor:
    if len(places) > _MOST_PLACES:
        raise NoForm(f"{len(places):,} places are picked one by one; a program holds up to {_MOST_PLACES:,}")
    if len(places) == x.shape[axis] and (places == np.arange(len(places))).all():
        return x
    return af.gather(x, places.astype(int), axis=axis)


def _limited(indices: Array) -> None:
    if indices.size > _MOST_INDICES:
        raise NoForm(f"{indices.size:,} places are picked one by one; the limit is {_MOST_INDICES:,}")


def _counted(indices: Array, extent: int) -> Array:
    """Negative places count from the end."""
    places = np.where(indices < 0, indices + extent, indices).astype(np.int64)
    if places.size == 0 or places.min() < 0 or places.max() >= extent:
        raise LoadError(f"an index is outside an axis of {extent}")
    return places


def scattered_elements(x: Tensor, axis: int, indices: Array, updates: Value, reduction: str = "none") -> Tensor:
    """The opposite of :func:`gathered_elements`: elements are replaced by, or joined with, the updates."""
    _limited(indices)
    places = _counted(indices, x.shape[axis])
    given = as_tensor(updates)
    alike = np.moveaxis(places, axis, -1).reshape(-1, places.shape[axis])
    others_whole = all(a == b for i, (a, b) in enumerate(zip(x.shape, places.shape, strict=True)) if i != axis)
    if others_whole and (alike == alike[0]).all():
        return scattered_rows(x, alike[0], given, axis, reduction)
    grid = np.indices(places.shape)
    grid[axis] = places
    flat = np.ravel_multi_index(tuple(grid), x.shape).reshape(-1)
    return scattered_rows(x.reshape(x.size), flat, given.reshape(given.size), 0, reduction).reshape(*x.shape)


def scattered_nd(x: Tensor, indices: Array, updates: Value, reduction: str = "none") -> Tensor:
    """Lines of ``indices`` name the places along the first axes where the updates go."""
    depth = indices.shape[-1]
    lead, rest = x.shape[:depth], x.shape[depth:]
    parts = [_counted(indices[..., i], x.shape[i]) for i in range(depth)]
    rows = np.ravel_multi_index(tuple(parts), lead).reshape(-1)
    tail = [math.prod(rest)] if rest else []
    table, lines = x.reshape(math.prod(lead), *tail), as_tensor(updates).reshape(len(rows), *tail)
    return scattered_rows(table, rows, lines, 0, reduction).reshape(*x.shape)


def scattered_rows(x: Tensor, places: Array, updates: Tensor, axis: int, reduction: str) -> Tensor:
    """Places along one axis replaced by, or joined with, the updates. Of places that are named twice the last one
    counts, or all in turn if they are joined."""
    if len(places) > _MOST_PLACES:
        raise NoForm(f"{len(places):,} places are replaced one by one; a program holds up to {_MOST_PLACES:,}")
    if reduction in ("add", "sub"):
        updates = -updates if reduction == "sub" else updates
        return af.scatter(x, places.tolist(), updates, axis, mode="add")
    if reduction == "none":
        last = {int(place): at for at, place in enumerate(places)}
        kept = np.array(sorted(last.values()))
        return af.scatter(x, places[kept].tolist(), _picked(updates, kept, axis), axis)
    if reduction == "div":
        updates, reduction = updates.inverse(0.0), "mul"
    if reduction not in _JOINED:
        raise NoForm(f"a scatter by {reduction!r} has no form on the engine")
    seen: Counter[int] = Counter()
    turns = np.zeros(len(places), int)  # how often each place was named before
    for at, place in enumerate(places.tolist()):
        turns[at] = seen[place]
        seen[place] += 1
    for turn in range(int(turns.max()) + 1):
        kept = np.flatnonzero(turns == turn)
        old = _picked(x, places[kept], axis)
        new = _JOINED[reduction](old, _picked(updates, kept, axis))
        x = af.scatter(x, places[kept].tolist(), new, axis)
    return x
