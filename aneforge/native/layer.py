"""One native layer as a netplist states it, and the five dimensions of its tensors."""

from __future__ import annotations

from collections.abc import Mapping
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

# Where the axes of a user's shape lie, by rank, as the compiler lays them out.
_PLACES: tuple[tuple[str, ...], ...] = (
    (),
    ("width",),
    ("channel", "width"),
    ("channel", "height", "width"),
    ("batch", "channel", "height", "width"),
    ("batch", "channel", "depth", "height", "width"),
)


def dimensions(shape: Shape) -> Dimensions:
    """A shape of rank 0 to 5 as batch, channel, depth, height and width."""
    extents = dict(zip(_PLACES[len(shape)], shape, strict=True))
    return Dimensions(*(extents.get(name, 1) for name in Dimensions._fields))


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
