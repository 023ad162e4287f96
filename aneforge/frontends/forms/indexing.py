"""Gathers and scatters at places that are fixed when a model is read."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from aneforge.frontends import LoadError
from aneforge.frontends.values import NoForm, Value, as_tensor
from aneforge.graph import builders as af
from aneforge.graph.tensor import Tensor

__all__ = ["gathered_elements", "gathered_nd", "scattered_elements", "scattered_nd", "scattered_rows"]

Array = np.ndarray

_MOST_INDICES = 1 << 24
_MOST_PLACES = 1 << 18  # of one op: the program holds each of them
_REDUCTIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "mul": lambda old, new: old * new,
    "max": af.maximum,
    "min": af.minimum,
}


def gathered_elements(x: Tensor, axis: int, indices: Array) -> Tensor:
    """For each place of ``indices``, the element of ``x`` at that place, with the index as its position along the
    axis."""
    _check_count(indices)
    places = _count_from_start(indices, x.shape[axis])
    alike = np.moveaxis(places, axis, -1).reshape(-1, places.shape[axis])
    other_axes_match = all(a == b for i, (a, b) in enumerate(zip(x.shape, places.shape, strict=True)) if i != axis)
    if other_axes_match and (alike == alike[0]).all():
        return _pick(x, alike[0], axis)
    grid = np.indices(places.shape)
    grid[axis] = places
    flat = np.ravel_multi_index(tuple(grid), x.shape).reshape(-1)
    return _pick(x.reshape(x.size), flat, 0).reshape(*places.shape)


def gathered_nd(x: Tensor, indices: Array, batch_axes: int = 0) -> Tensor:
    """Each line of ``indices`` names a place along the axes after the first ``batch_axes``. Those are shared by ``x``
    and ``indices``."""
    depth = indices.shape[-1]
    lead = x.shape[: batch_axes + depth]
    trailing = x.shape[batch_axes + depth :]
    shape = (*indices.shape[:-1], *trailing)
    parts = [_count_from_start(indices[..., i], x.shape[batch_axes + i]) for i in range(depth)]
    batch = np.indices(indices.shape[:-1])[:batch_axes]
    rows = np.ravel_multi_index((*batch, *parts), lead).reshape(-1)
    result = _pick(x.reshape(math.prod(lead), *([math.prod(trailing)] if trailing else [])), rows, 0)
    return result.reshape(*(shape or (1,)))


def _pick(x: Tensor, places: Array, axis: int) -> Tensor:
    if len(places) > _MOST_PLACES:
        raise NoForm(f"{len(places):,} elements are picked one by one; the limit is {_MOST_PLACES:,}")
    if len(places) == x.shape[axis] and (places == np.arange(len(places))).all():
        return x
    return af.gather(x, places.astype(int), axis=axis)


def _check_count(indices: Array) -> None:
    if indices.size > _MOST_INDICES:
        raise NoForm(f"the indices have {indices.size:,} elements; the limit is {_MOST_INDICES:,}")


def _count_from_start(indices: Array, extent: int) -> Array:
    """Indices from the start of the axis; negative ones count from its end."""
    places = np.where(indices < 0, indices + extent, indices).astype(np.int64)
    if places.size == 0 or places.min() < 0 or places.max() >= extent:
        raise LoadError(
            f"an index is out of range for an axis of {extent} elements; it must be {-extent} to {extent - 1}"
        )
    return places


def scattered_elements(x: Tensor, axis: int, indices: Array, updates: Value, reduction: str = "none") -> Tensor:
    """The opposite of :func:`gathered_elements`: the updates replace elements, or are combined with them."""
    _check_count(indices)
    places = _count_from_start(indices, x.shape[axis])
    tensor = as_tensor(updates)
    alike = np.moveaxis(places, axis, -1).reshape(-1, places.shape[axis])
    other_axes_match = all(a == b for i, (a, b) in enumerate(zip(x.shape, places.shape, strict=True)) if i != axis)
    if other_axes_match and (alike == alike[0]).all():
        return scattered_rows(x, alike[0], tensor, axis, reduction)
    grid = np.indices(places.shape)
    grid[axis] = places
    flat = np.ravel_multi_index(tuple(grid), x.shape).reshape(-1)
    return scattered_rows(x.reshape(x.size), flat, tensor.reshape(tensor.size), 0, reduction).reshape(*x.shape)


def scattered_nd(x: Tensor, indices: Array, updates: Value, reduction: str = "none") -> Tensor:
    """Each line of ``indices`` names the place along the first axes where an update goes."""
    depth = indices.shape[-1]
    lead, trailing = x.shape[:depth], x.shape[depth:]
    parts = [_count_from_start(indices[..., i], x.shape[i]) for i in range(depth)]
    block = _block(parts) if reduction == "none" else None
    if block is not None:
        return _with_block(x, as_tensor(updates), block)
    rows = np.ravel_multi_index(tuple(parts), lead).reshape(-1)
    tail = [math.prod(trailing)] if trailing else []
    table, lines = x.reshape(math.prod(lead), *tail), as_tensor(updates).reshape(len(rows), *tail)
    return scattered_rows(table, rows, lines, 0, reduction).reshape(*x.shape)


def _block(places: Sequence[Array]) -> list[range] | None:
    """The ranges of a block of neighbours that is named in order, one for each axis; None for any other places."""
    ranges = [range(int(place.min()), int(place.max()) + 1) for place in places]
    if math.prod(len(extent) for extent in ranges) != places[0].size:
        return None
    wanted = np.meshgrid(*(np.arange(extent.start, extent.stop) for extent in ranges), indexing="ij")
    named = all((place.reshape(-1) == grid.reshape(-1)).all() for place, grid in zip(places, wanted, strict=True))
    return ranges if named else None


def _with_block(x: Tensor, updates: Tensor, block: Sequence[range]) -> Tensor:
    """``x`` with a block of its first axes replaced: one join for each axis that the block does not fill."""
    result = updates.reshape(*(len(extent) for extent in block), *x.shape[len(block) :])
    for axis in reversed(range(len(block))):

        def side(begin: int, end: int, axis: int = axis) -> list[Tensor]:
            outer = block[:axis]
            first = [*(extent.start for extent in outer), begin, *(0,) * (x.ndim - axis - 1)]
            sizes = [*(len(extent) for extent in outer), end - begin, *x.shape[axis + 1 :]]
            return [x.slice_by_size(first, sizes)] if end > begin else []

        parts = [*side(0, block[axis].start), result, *side(block[axis].stop, x.shape[axis])]
        result = parts[0] if len(parts) == 1 else af.concat(parts, axis=axis)
    return result


def scattered_rows(x: Tensor, places: Array, updates: Tensor, axis: int, reduction: str) -> Tensor:
    """Replace places along one axis by the updates, or combine them. If a place is named twice, the last update
    replaces it; combined updates all apply, one after the other."""
    if len(places) > _MOST_PLACES:
        raise NoForm(f"{len(places):,} elements are replaced one by one; the limit is {_MOST_PLACES:,}")
    if reduction in ("add", "sub"):
        updates = -updates if reduction == "sub" else updates
        return af.scatter(x, places.tolist(), updates, axis, mode="add")
    if reduction == "none":
        last_use = {int(place): index for index, place in enumerate(places)}
        chosen = np.array(sorted(last_use.values()))
        return af.scatter(x, places[chosen].tolist(), _pick(updates, chosen, axis), axis)
    if reduction == "div":
        updates, reduction = updates.inverse(0.0), "mul"
    if reduction not in _REDUCTIONS:
        raise NoForm(f"reduction {reduction!r} is not supported; use none, add, sub, mul, div, max or min")
    counts: Counter[int] = Counter()
    turns = np.zeros(len(places), int)  # how often each place was named before
    for index, place in enumerate(places.tolist()):
        turns[index] = counts[place]
        counts[place] += 1
    for turn in range(int(turns.max()) + 1):
        chosen = np.flatnonzero(turns == turn)
        old = _pick(x, places[chosen], axis)
        new = _REDUCTIONS[reduction](old, _pick(updates, chosen, axis))
        x = af.scatter(x, places[chosen].tolist(), new, axis)
    return x
