"""One native layer as a netplist states it, and the five dimensions of its tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

Shape = tuple[int, ...]


class Dimensions(NamedTuple):
    """The port shape five-tuple of table 22.6."""

    batch: int
    channel: int
    depth: int
    height: int
    width: int


AXES = ("Width", "Height", "Channel", "Depth")
"""The names that parameters have for axes. The batch has none."""
AXIS_NAMES = ("Batch", "Depth", "Channel", "Height", "Width")
"""The axes of a tensor of the engine, NDCHW."""
AXIS_PLACES = {name: AXIS_NAMES.index(name) for name in AXES}
"""Where an axis that parameters name lies in NDCHW."""

PLACES_OF_RANK: tuple[tuple[int, ...], ...] = ((), (4,), (2, 4), (2, 3, 4), (0, 2, 3, 4), (0, 2, 1, 3, 4))
"""Where each axis of a user's shape lies in NDCHW, by rank, as the compiler lays them out."""


def rank5(shape: Sequence[int]) -> tuple[int, ...]:
    """A user's shape laid out as NDCHW.

    Rank 4 is NCHW with depth one, rank 5 is NCDHW as written; rank 3 is CHW, rank 2 is rows as channels and
    columns as width (a matrix [M, K] is C = M, W = K: listing 22.1), rank 1 is a line along the width.
    """
    laid = [1] * len(AXIS_NAMES)
    for place, extent in zip(PLACES_OF_RANK[len(shape)], shape, strict=True):
        laid[place] = extent
    return tuple(laid)


def dimensions(shape: Shape) -> Dimensions:
    """A shape of rank 0 to 5 as batch, channel, depth, height and width."""
    n, d, c, h, w = rank5(shape)
    return Dimensions(n, c, d, h, w)


@dataclass(frozen=True)
class Layer:
    """A unit: its type, its typed parameters and the shapes of its bottoms.

    Parameters hold numbers, never fp16 bit patterns: those exist in a file only. ``bottoms`` are shapes of rank 0 to
    5, as :func:`dimensions` reads them. ``fields`` holds what a unit states outside its Params (``OutputChannels``,
    ``NumGroups``).
    """

    type: str
    params: Mapping[str, Any] = field(default_factory=dict)
    bottoms: tuple[Shape, ...] = ()
    fields: Mapping[str, Any] = field(default_factory=dict)
