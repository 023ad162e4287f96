"""Tensors in the engine's own memory between the tasks of a layer: their strides, pads and views."""

from __future__ import annotations

from dataclasses import replace

from aneforge.codegen import banks
from aneforge.codegen.dialect import Dialect
from aneforge.codegen.plan import PIECE, Scratch, TaskBuffer
from aneforge.codegen.words import patch_width

_NARROW = 4
_ROWS_OF_GROUPS, _OF_TURNED = 8, 2
_CUT_FROM = 128


def up(value: int, step: int) -> int:
    return -(-value // step) * step


def end_of(tensor: TaskBuffer) -> int:
    return tensor.scratch.base + tensor.scratch.row * tensor.height


def in_scratch(base: int, channels: int, height: int, width: int, pad: int | None = None) -> TaskBuffer:
    """A tensor that the planar engine reads."""
    channel = up(2 * width, banks.BANK)
    line = channel * channels
    if pad is None:
        pad = banks.planar_pad(line, _NARROW) if height > 1 else 0
    return TaskBuffer(channels, height, width, 0, 0, 0, Scratch(base, channel, line + pad, line))


def turned_copy(base: int, like: TaskBuffer, spread: bool = True) -> TaskBuffer:
    """The same with channels and columns exchanged."""
    turned = in_scratch(base, like.width, like.height, like.channels, pad=0)
    return spread_rows(turned) if spread else turned


def spread_rows(tensor: TaskBuffer) -> TaskBuffer:
    """A tensor whose rows lie so far apart that the MAC engine can read eight of them."""
    return _spread(tensor, _OF_TURNED)


def for_groups(dialect: Dialect, tensor: TaskBuffer) -> TaskBuffer:
    """A tensor whose rows are read one image each."""
    return _spread(tensor, 1 << max(0, patch_width(dialect.generation, tensor.width, False) - 3))


def _spread(tensor: TaskBuffer, distance: int) -> TaskBuffer:
    """With rows so far apart that eight of them lie a number of banks from each other."""
    place = tensor.scratch
    pad = banks.pad_of(place.row, _ROWS_OF_GROUPS, distance) if tensor.height > 1 else 0
    return replace(tensor, scratch=replace(place, row=place.row + pad))


def numbers_of_rows(base: int, like: TaskBuffer) -> TaskBuffer:
    """One number for each row of each channel."""
    return in_scratch(base, like.channels, like.height, 1, pad=0)


def one_image(tensor: TaskBuffer, of: int = 0) -> TaskBuffer:
    """One row of a tensor as an image; a result states the whole as the stride of its rows."""
    place = tensor.scratch
    row = place.row * of if of else place.depth
    return replace(tensor, height=1, scratch=Scratch(place.base, place.channel, row, place.depth, place.row))


def rows_for_channels(tensor: TaskBuffer) -> TaskBuffer:
    """Channels and rows exchanged, by the strides."""
    place = tensor.scratch
    if not tensor.in_memory:
        place = Scratch(place.base, place.row, place.channel, place.row * tensor.height)
    return replace(
        tensor,
        channels=tensor.height,
        height=tensor.channels,
        row=tensor.plane,
        plane=tensor.row,
        scratch=place,
    )


def part_along(tensor: TaskBuffer, axis: int, first: int, extents: tuple[int, int, int]) -> TaskBuffer:
    """A part of a tensor along one of its axes: 2 for channels, 3 for rows, 4 for columns."""
    channels, height, width = extents
    part = replace(tensor, channels=channels, height=height, width=width)
    if tensor.in_memory:
        return replace(part, offset=tensor.offset + first * (tensor.plane, tensor.row, 2)[axis - 2])
    place = tensor.scratch
    base = place.base + first * (place.channel, place.row, 2)[axis - 2]
    return replace(part, scratch=replace(place, base=base))


def cuts(dialect: Dialect, columns: int) -> bool:
    """Whether rows in scratch are reduced in pieces of 32 columns."""
    return dialect.cuts_reductions and columns >= _CUT_FROM and columns % PIECE == 0


def cut_row(tensor: TaskBuffer) -> TaskBuffer:
    """One row as several."""
    scratch = replace(tensor.scratch, row=2 * PIECE, depth=2 * PIECE)
    return replace(tensor, height=tensor.width // PIECE, width=PIECE, scratch=scratch)
