"""Where tensors lie in memory and in scratch: strides from shapes.

Memory: rows are rounded up to 64 bytes, and a matrix lies row by row. Scratch: channels of a row lie side by side at
multiples of 16 bytes; rows and operands that would fall on the same banks are moved on.
"""

from __future__ import annotations

from aneforge.codegen.plan import Buffer, Scratch

BANKS = 0x400
"""Bytes after which the banks of scratch repeat: 64 banks (0x1c8) of 16 bytes."""


def _up(value: int, step: int) -> int:
    return -(-value // step) * step


def scratch_of(channels: int, height: int, width: int, base: int = 0, pad: int = 0) -> Scratch:
    """The place of a tensor in scratch. ``pad`` is what keeps its rows on different banks, where they are not."""
    channel = _up(2 * width, 16)
    line = channels * channel
    row = line + pad if height > 1 and line % BANKS == 0 else line
    return Scratch(base, channel, row, line)


def spaced(base: int) -> int:
    """The base of an operand that is read beside one at zero."""
    return base + 0x40 if base % BANKS == 0 else base


def in_memory(
    channels: int, height: int, width: int, scratch: Scratch, bar: int | None, row: int | None = None
) -> Buffer:
    """A tensor of planes."""
    row = _up(2 * width, 64) if row is None else row
    plane = row * height
    return Buffer(channels, height, width, row, plane, plane * channels, scratch, bar)


def matrix(rows: int, columns: int, scratch: Scratch, bar: int | None, row_bytes: int | None = None) -> Buffer:
    """A matrix: its rows are the channels of one line."""
    plane = _up(2 * columns, 64) if row_bytes is None else row_bytes
    total = plane * rows
    return Buffer(rows, 1, columns, total, plane, total, scratch, bar)
