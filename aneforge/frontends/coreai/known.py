"""Operations of Core AI that differ from the common ops, on known values: slices, splits, scans and broadcasts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from aneforge.errors import LoadError
from aneforge.frontends.importer import host
from aneforge.frontends.importer.op import Op
from aneforge.frontends.ops import known
from aneforge.frontends.ops.known import bounded, wide

Array = np.ndarray
_SCANS = ("sum", "product", "min", "max")


def _places(start: int, end: int, step: int, extent: int, count: int | None) -> range:
    """The places that a slice names. A negative place counts from the end; then it is clipped to the axis.

    For negative steps the documentation of the language and its package (1.0.0b3) differ on an end before the first
    place: the package stops before that place. The number of places that the file states shows which one applies."""
    if step == 0:
        raise LoadError("the step of a slice must not be 0")
    low, high = (0, extent) if step > 0 else (-1, extent - 1)
    first = min(max(start + extent if start < 0 else start, 0), high)
    places = range(first, min(max(end + extent if end < low else end, low), high), step)
    if step > 0 or count in (None, len(places)):
        return places
    return range(first, min(max(end + extent if end < 0 else end, 0), extent), step)


def slice_places(op: Op, shape: Sequence[int], stated: Sequence[int | None] | None) -> list[range]:
    """The places along each axis; ``stated`` is their number in the file."""
    starts, ends, steps = (op.numbers(name) for name in ("begin", "end", "stride"))
    counts = [None] * len(shape) if stated is None else list(stated)
    if not len(starts) == len(ends) == len(steps) == len(shape) == len(counts):
        raise LoadError(f"{len(starts)} starts, {len(ends)} ends and {len(steps)} steps do not fit {list(shape)}")
    return [_places(*axis) for axis in zip(starts, ends, steps, shape, counts, strict=True)]


def _stated_shape(kind: Any) -> Sequence[int | None] | None:
    return None if kind is None else kind.shape


def _slice(op: Op) -> Array:
    x = op.known("x")
    return x[np.ix_(*slice_places(op, x.shape, _stated_shape(op.out_type())))]


def _slice_update(op: Op) -> Array:
    x = np.array(op.known("x"))
    x[np.ix_(*slice_places(op, x.shape, _stated_shape(op.type_of("update"))))] = op.known("update")
    return x


def split_sizes(op: Op, extent: int) -> list[int]:
    """The size of each part, or one size for all of them."""
    sizes = op.numbers("split_sizes")
    if op.shape("split_sizes"):
        return sizes
    if sizes[0] < 1:
        raise LoadError(f"the size of a part is {sizes[0]}; it must be 1 or more")
    return [min(sizes[0], extent - first) for first in range(0, extent, sizes[0])]


def _split(op: Op) -> list[Array]:
    x = op.known("x")
    axis = op.axis(x.ndim)
    return np.split(x, np.cumsum(split_sizes(op, x.shape[axis]))[:-1], axis)


def spread_shape(op: Op, shape: Sequence[int]) -> list[int]:
    """A shape with some of its extents replaced."""
    target = list(shape)
    for axis, size in zip(op.axes(len(target)), op.numbers("sizes"), strict=True):
        target[axis] = size
    return target


def _broadcast_in_dims(op: Op) -> Array:
    x = op.known("x")
    return np.broadcast_to(x, bounded(spread_shape(op, x.shape)))


def _broadcast_shapes(op: Op) -> Array:
    return np.array(np.broadcast_shapes(tuple(op.numbers("x")), tuple(op.numbers("y"))))


def scan_function(op: Op) -> str:
    """The name of the scan's function; the file may give it as a number."""
    scan_op = op.text("scan_op", "sum").partition(" ")[0]
    name = _SCANS[int(scan_op)] if scan_op.isdigit() and int(scan_op) < len(_SCANS) else scan_op
    if name not in _SCANS:
        raise LoadError(f"scan_op is {scan_op!r}; choose one: {', '.join(_SCANS)}")
    return name


def _scan(op: Op) -> Array:
    functions = {"sum": np.add, "product": np.multiply, "min": np.minimum, "max": np.maximum}
    x, backwards = wide(op), op.truth("reverse")
    axis = op.axis(x.ndim)
    running = functions[scan_function(op)].accumulate(np.flip(x, axis) if backwards else x, axis=axis)
    return np.flip(running, axis) if backwards else running


STATIC: dict[str, Callable[[Op], Any]] = {
    **known.STATIC,
    "broadcast_in_dims": _broadcast_in_dims,
    "broadcast_shapes": _broadcast_shapes,
    "scan": _scan,
    "slice": _slice,
    "slice_update": _slice_update,
    "split": _split,
}

evaluate = partial(host.evaluate, table=STATIC)
"""Computes the host ops of this language."""
