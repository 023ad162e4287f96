"""What lies where while a program runs: values by their places, and the strides in which they lie there.

A tensor that is read in other strides than it was written is still the same bytes: as long as both walk over them in
the same order, one is a view of the other. Several tensors side by side are read as one, and a part of one by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from math import prod
from typing import Generic, TypeVar

SCRATCH = -1
"""The base of a place in the engine's own memory, beside the numbers of base-address registers."""
Place = tuple[int, int]
"""A base-address register and an offset, or :data:`SCRATCH` and an address."""
Shape = tuple[int, ...]
_ELEMENT = 2
Value = TypeVar("Value")


@dataclass(frozen=True)
class Layout:
    """A tensor of five axes, and the bytes from one element of each axis to the next."""

    shape: Shape
    strides: Shape
    lanes: int = 1
    """Rows that lie side by side, as a kernel is read."""

    @property
    def is_in_order(self) -> bool:
        """Whether memory has the axes in the order of the tensor; the rows of on-chip memory hold all channels."""
        strides = [stride for extent, stride in zip(self.shape, self.strides, strict=True) if extent > 1]
        return all(one >= other for one, other in pairwise(strides))

    @property
    def axes(self) -> Shape:
        """Extents and strides without axes of one element; where memory has the order of the tensor, neighbours that
        touch count as one. Equal axes are the same elements in the same order."""
        parts: list[tuple[int, int]] = []
        for extent, stride in zip(self.shape, self.strides, strict=True):
            if extent == 1:
                continue
            if parts and parts[-1][1] == extent * stride and self.is_in_order:
                parts[-1] = parts[-1][0] * extent, stride
            else:
                parts.append((extent, stride))
        return (self.lanes, self.is_in_order, *(number for part in parts for number in part))

    @property
    def span(self) -> int:
        """Bytes from its first element to the one behind its last."""
        ends = zip(self.shape, self.strides, strict=True)
        return sum((extent - 1) * stride for extent, stride in ends) + _ELEMENT

    def covers(self, offset: int) -> bool:
        """Whether one of its elements lies so many bytes behind the first."""
        for stride, extent in sorted(zip(self.strides, self.shape, strict=True), reverse=True):
            if extent > 1 and stride:
                number = offset // stride
                if number >= extent:
                    return False
                offset -= number * stride
        return offset == 0

    def cuts_of(self, part: Layout, offset: int) -> tuple[tuple[int, int, int], ...] | None:
        """Axis, first element and count of each axis that a part has less of, so many bytes behind the first element;
        None where it is no part."""
        cuts = []
        for axis in sorted(range(len(self.shape)), key=lambda axis: -self.strides[axis]):
            extent, count, stride = self.shape[axis], part.shape[axis], self.strides[axis]
            first = offset // stride if extent > 1 and stride else 0
            if first + count > extent or (count > 1 and part.strides[axis] != stride):
                return None
            offset -= first * stride if extent > 1 else 0
            if count < extent:
                cuts.append((axis, first, count))
        return tuple(cuts) if offset == 0 else None

    def under(self, shape: Shape) -> Layout:
        """The same elements under a shape with its axes of one element elsewhere; itself under any other."""
        steps = [(extent, stride) for extent, stride in zip(self.shape, self.strides, strict=True) if extent > 1]
        if [extent for extent, _ in steps] != [extent for extent in shape if extent > 1]:
            return self
        left = iter(steps)
        return replace(self, shape=shape, strides=tuple(next(left)[1] if extent > 1 else 0 for extent in shape))

    def cut(self, axis: int, extent: int) -> Layout:
        """A part of it along an axis."""
        return replace(self, shape=(*self.shape[:axis], extent, *self.shape[axis + 1 :]))


@dataclass(frozen=True)
class FoundPiece(Generic[Value]):
    """A value, or a part of it, that is a part of what is read."""

    value: Value
    shape: Shape
    """Of the value."""
    cuts: tuple[tuple[int, int, int], ...] = ()
    """Axis, first element and count of each axis of which only a part is read."""


@dataclass(frozen=True)
class ReadValue(Generic[Value]):
    """What lies at a place: one piece, or several side by side along an axis."""

    pieces: tuple[FoundPiece[Value], ...]
    axis: int = 0

    @property
    def whole(self) -> Value | None:
        """The value, if it is all of one."""
        return self.pieces[0].value if len(self.pieces) == 1 and not self.pieces[0].cuts else None


@dataclass(frozen=True)
class _Entry(Generic[Value]):
    offset: int
    shape: Shape
    """Of the value; it may be the user's where the layout is the engine's."""
    value: Value
    layout: Layout | None


class Memory(Generic[Value]):
    """The newest values of each place, with their views."""

    def __init__(self) -> None:
        self._entries: dict[int, dict[int, list[_Entry[Value]]]] = {}

    def write(self, place: Place, value: Value, shape: Shape, layout: Layout | None = None) -> None:
        """A value takes the place of what lay there, and of what began where it lies now. Without a layout it is
        found by its shape alone."""
        entries = self._entries.setdefault(place[0], {})
        if layout is not None:
            start, end = place[1], place[1] + layout.span
            for offset in [offset for offset in entries if start < offset < end and layout.covers(offset - start)]:
                del entries[offset]
        entries.pop(place[1], None)  # the newest comes last
        entries[place[1]] = [_Entry(place[1], shape, value, layout)]

    def view(self, place: Place, value: Value, shape: Shape, layout: Layout | None = None) -> None:
        """The same bytes in another shape."""
        at = self._entries.setdefault(place[0], {}).setdefault(place[1], [])
        at.append(_Entry(place[1], shape, value, layout))

    def read(self, place: Place, layout: Layout) -> ReadValue[Value] | None:
        """What lies at a place in a layout; None where nothing does, or only in part."""
        axes = layout.axes
        here = self._entries.get(place[0], {}).get(place[1], [])[::-1]
        exact = next((entry for entry in here if entry.shape == layout.shape and _fits(entry, layout)), None)
        same = (
            entry for entry in here if layout.is_in_order and entry.layout is not None and entry.layout.axes == axes
        )
        entry = exact or next(same, None)
        if entry is not None:
            return ReadValue((FoundPiece(entry.value, entry.shape),))
        return self._joined(place, layout) or self._part(place, layout) or self._block(place, layout)

    def _joined(self, place: Place, layout: Layout) -> ReadValue[Value] | None:
        """Values side by side along one axis."""
        for axis, extent in enumerate(layout.shape):
            if extent == 1:
                continue
            pieces: list[FoundPiece[Value]] = []
            start = 0
            while start < extent:
                offset = place[1] + start * layout.strides[axis]
                entry, count = self._beside(place[0], offset, layout, axis)
                if entry is None or count > extent - start:
                    break
                pieces.append(FoundPiece(entry.value, entry.shape))
                start += count
            if start == extent:
                return ReadValue(tuple(pieces), axis)
        return None

    def _beside(self, base: int, offset: int, layout: Layout, axis: int) -> tuple[_Entry[Value] | None, int]:
        """The newest value at an offset that is a part of a layout along an axis, and its extent there."""
        others = prod(layout.shape) // layout.shape[axis]
        for entry in self._entries.get(base, {}).get(offset, [])[::-1]:
            count, rest = divmod(prod(entry.shape), others)
            if not rest and entry.layout is not None and layout.cut(axis, count).axes == entry.layout.axes:
                return entry, count
        return None, 0

    def _part(self, place: Place, layout: Layout) -> ReadValue[Value] | None:
        """A part of a value along one of its axes."""
        axes, wanted = layout.axes, prod(layout.shape)
        for entry in self._all(place[0]):
            own = entry.layout
            if own is None or own.shape != entry.shape or entry.offset > place[1]:
                continue
            for axis, (extent, stride) in enumerate(zip(own.shape, own.strides, strict=True)):
                count, rest = divmod(wanted, prod(own.shape) // extent)
                if rest or not 0 < count < extent or not stride:
                    continue
                first, rest = divmod(place[1] - entry.offset, stride)
                if not rest and first + count <= extent and own.cut(axis, count).axes == axes:
                    return ReadValue((FoundPiece(entry.value, entry.shape, ((axis, first, count),)),))
        return None

    def _block(self, place: Place, layout: Layout) -> ReadValue[Value] | None:
        """A part of a value along several of its axes."""
        for entry in self._all(place[0]):
            own = entry.layout
            if own is None or own.shape != entry.shape or own.lanes != layout.lanes or entry.offset > place[1]:
                continue
            cuts = own.cuts_of(layout, place[1] - entry.offset)
            if cuts is not None:
                return ReadValue((FoundPiece(entry.value, entry.shape, cuts),))
        return None

    def _all(self, base: int) -> Iterator[_Entry[Value]]:
        for entries in reversed(list(self._entries.get(base, {}).values())):
            yield from reversed(entries)


def _fits(entry: _Entry[Value], layout: Layout) -> bool:
    return entry.layout is None or entry.layout.axes == layout.axes
