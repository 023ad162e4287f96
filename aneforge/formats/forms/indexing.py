"""Gathers and scatters at places that are fixed when a model is read."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from aneforge.errors import LoadError
from aneforge.formats.forms.movement import broadcast_to, gathered, sliced
from aneforge.formats.values import NoForm, Value, as_tensor, shaped
from aneforge.graph import builders as af
from aneforge.graph.tensor import Tensor

Array = np.ndarray

_MOST_INDICES = 1 << 24
_MOST_NUMBERED = 1 << 24
_MOST_UPDATED = 1 << 22
_MOST_PLACES = 1 << 18  # of one op: the program holds each of them
_REDUCTIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "mul": lambda old, new: old * new,
    "max": af.maximum,
    "min": af.minimum,
}


def gathered_elements(x: Tensor, axis: int, indices: Array) -> Tensor:
    """For each place of ``indices``, the element of ``x`` at that place, with the index as its position along the
    axis."""
    rows, flat = _rows_or_elements(x, axis, indices)
    return _pick(x, rows, axis) if rows is not None else picked(x, flat)


def _rows_or_elements(x: Tensor, axis: int, indices: Array) -> tuple[Array | None, Array]:
    """Places along the axis where they are the same for all lines; else None. Then the numbers of the elements."""
    if indices.size > _MOST_INDICES:
        raise NoForm(f"the indices have {indices.size:,} elements; the limit is {_MOST_INDICES:,}")
    places = _count_from_start(indices, x.shape[axis])
    lines = np.moveaxis(places, axis, -1).reshape(-1, places.shape[axis])
    other_axes_match = all(a == b for i, (a, b) in enumerate(zip(x.shape, places.shape, strict=True)) if i != axis)
    if other_axes_match and (lines == lines[0]).all():
        return lines[0], places
    grid = np.indices(places.shape)
    grid[axis] = places
    return None, np.asarray(np.ravel_multi_index(tuple(grid), x.shape))


def element_numbers(x: Tensor) -> Array:
    """The numbers 0, 1, 2... in the shape of a tensor: what an index takes of them says which elements it picks."""
    if x.size > _MOST_NUMBERED:
        raise NoForm(f"it picks single elements of a tensor of {x.size:,}; the limit is {_MOST_NUMBERED:,}")
    return np.arange(x.size).reshape(x.shape)


def picked(x: Tensor, numbers: Array) -> Tensor:
    """The elements of these numbers, in the shape of ``numbers``."""
    return shaped(_pick(x.reshape(x.size), numbers.reshape(-1), 0), numbers.shape)


def picked_rows(x: Tensor, axis: int, indices: Array) -> Tensor:
    """Like :func:`gathered`; neighbours in order are a slice."""
    places = _count_from_start(indices, x.shape[axis])
    flat = places.reshape(-1)
    if not (np.diff(flat) == 1).all():
        return gathered(x, axis, places)
    line = sliced(x, axis, int(flat[0]), int(flat[-1]) + 1)
    return shaped(line, (*x.shape[:axis], *places.shape, *x.shape[axis + 1 :]))


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
    rows, flat = _rows_or_elements(x, axis, indices)
    if rows is not None:
        return scattered_rows(x, rows, as_tensor(updates), axis, reduction)
    return written(x, flat, as_tensor(updates), reduction)


def written(x: Tensor, numbers: Array, updates: Tensor, reduction: str = "none") -> Tensor:
    """Replace the elements of these numbers by the updates, or combine them."""
    lines = updates if updates.size == numbers.size else broadcast_to(updates, numbers.shape)
    flat = x.reshape(x.size), numbers.reshape(-1), lines.reshape(lines.size)
    return scattered_rows(*flat, 0, reduction).reshape(*x.shape)


def written_rows(x: Tensor, axis: int, indices: Array, values: Tensor, reduction: str = "none") -> Tensor:
    """Write lines at known places along an axis; neighbours in order are one block."""
    places = indices.reshape(-1) % x.shape[axis]
    shape = (*x.shape[:axis], len(places), *x.shape[axis + 1 :])
    lines = shaped(values, shape) if values.size == math.prod(shape) else broadcast_to(values, shape)
    if reduction == "none" and (np.diff(places) == 1).all():
        return _with_block(x, lines, [*map(range, x.shape[:axis]), range(int(places[0]), int(places[-1]) + 1)])
    return scattered_rows(x, places, lines, axis, reduction)


def marked_rows(x: Tensor, axis: int, values: Tensor, is_written: Tensor, marks: Tensor | None) -> Tensor:
    """Write lines at computed places along an axis. ``is_written`` [places] is true where something is written, and
    ``marks`` [places, values] has a 1 for the value that goes there; one value needs no marks."""
    size, before, after = x.shape[axis], math.prod(x.shape[:axis]), math.prod(x.shape[axis + 1 :])
    shape = (*x.shape[:axis], 1 if marks is None else marks.shape[1], *x.shape[axis + 1 :])
    lines = values if values.size == math.prod(shape) else broadcast_to(values, shape)
    lines = shaped(lines, (before, shape[axis], after))
    lines = lines if marks is None else marks @ lines
    return shaped(af.where(is_written.reshape(1, size, 1), lines, shaped(x, (before, size, after))), x.shape)


def placed(x: Tensor, update: Tensor, block: Sequence[slice]) -> Tensor:
    """Replace a block of ``x``. Without steps it is joined with what is around it."""
    places = [range(extent)[axis_slice] for extent, axis_slice in zip(x.shape, block, strict=True)]
    if any(len(axis_places) != extent for axis_places, extent in zip(places, update.shape, strict=True)):
        raise LoadError(
            f"the update has shape {list(update.shape)}; expected {[len(axis_places) for axis_places in places]}"
        )
    if any(axis_places.step != 1 and len(axis_places) > 1 for axis_places in places):
        if x.size > _MOST_UPDATED:
            raise NoForm(f"the input has {x.size:,} elements; the limit of an update with steps is {_MOST_UPDATED:,}")
        flat = np.arange(x.size).reshape(x.shape)[tuple(block)].reshape(-1)
        return af.scatter(x.reshape(x.size), flat.tolist(), update.reshape(update.size)).reshape(*x.shape)
    return _with_block(x, update, [range(axis_places[0], axis_places[-1] + 1) for axis_places in places])


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
    result = shaped(updates, (*(len(extent) for extent in block), *x.shape[len(block) :]))
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
