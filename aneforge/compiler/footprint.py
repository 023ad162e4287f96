"""How tensors lie on chip and in memory, and how many bytes they take: one answer for the scheduler and the layout."""

from __future__ import annotations

from math import gcd, prod
from typing import NamedTuple

from aneforge.compiler.facts import Facts
from aneforge.engine.ir import Op, TensorType

# The banks of the on-chip memory: 64 of 16 bytes each (fusion.json ``bank``).


BANK_BYTES = 16
_MOVED_ON = 2 * BANK_BYTES


def bank(address: int, banks: int = 64) -> int:
    """The bank that holds a byte."""
    return address // BANK_BYTES % banks


def conflict_depth(rows: int, stride: int, banks: int = 64) -> int:
    """How many of the first ``rows`` rows meet in one bank; one means no conflict."""
    distinct = banks // gcd(stride // BANK_BYTES, banks)
    return -(-rows // distinct)


def spread_rows(row_bytes: int, rows: int, banks: int = 64, moved_on: int = _MOVED_ON) -> int:
    """Bytes from one row to the next: neighbouring rows that would begin on the same bank are moved on (U34)."""
    return row_bytes + moved_on if rows > 1 and conflict_depth(2, row_bytes, banks) > 1 else row_bytes


MEMORY_LINE = 64
"""Strides of tensors in memory are whole lines: the registers hold no others (programs.json ``align``)."""


class Strides(NamedTuple):
    """The bytes from one channel to the next and from one row to the next, and of the whole tensor.

    On chip the channels of a row lie side by side, so a row is longer than a channel of it. In memory a channel is a
    plane of rows. Published programs of every generation show both (facts: hwx examples).
    """

    channel: int
    row: int
    bytes: int

    def start(self, axis: int, at: int, shape: tuple[int, ...], element: int) -> int:
        """Where a piece begins that starts at place ``at`` of an axis (NDCHW, not the batch) of this tensor."""
        _, depth, _, _, _ = shape
        return at * (self.bytes // depth // shape[0], self.channel, self.row, element)[axis - 1]


class Footprint:
    """Strides and sizes on one chip. A pass that uses it declares 0x1c0 and 0x1c8."""

    def __init__(self, chip: Facts) -> None:
        self._granule: int = max(chip["dram_alignment"], BANK_BYTES)
        self._banks: int = chip["l2_bank_align"]
        self.rules = (self._granule, self._banks)
        """Equal for chips on which every tensor has the same size."""
        self._strides: dict[TensorType, Strides] = {}

    def on_chip(self, value: Op) -> Strides:
        """A tensor in L2: rows of all channels, neighbouring rows on different banks."""
        type_ = _type(value)
        strides = self._strides.get(type_)
        if strides is None:
            n, d, c, h, w = type_.shape
            channel = _up(w * type_.element_bytes, self._granule)
            row = spread_rows(c * channel, h, self._banks)
            strides = self._strides[type_] = Strides(channel, row, n * d * h * row)
        return strides

    def bytes(self, value: Op) -> int:
        """What a value takes on chip."""
        strides = self._strides.get(value.type)  # type: ignore[arg-type] # asked for every value of a program
        return self.on_chip(value).bytes if strides is None else strides.bytes

    def same_bytes(self, first: Op, second: Op) -> bool:
        """Whether two shapes of the same elements can share a stretch: equal rows, or no gaps between rows at all."""
        first_type, second_type = _type(first), _type(second)
        if first_type.dtype != second_type.dtype:
            return False
        return first_type.shape[4] == second_type.shape[4] or (self._dense(first_type) and self._dense(second_type))

    def _dense(self, type_: TensorType) -> bool:
        return type_.shape[4] * type_.element_bytes % self._granule == 0


def in_memory(value: Op, line: int = MEMORY_LINE) -> Strides:
    """A tensor in memory: planes of rows, each row of whole lines."""
    type_ = _type(value)
    row = _up(type_.shape[4] * type_.element_bytes, line)
    return Strides(type_.shape[3] * row, row, prod(type_.shape[:4]) * row)


def _up(value: int, step: int) -> int:
    return -(-value // step) * step


def _type(value: Op) -> TensorType:
    assert value.type is not None
    return value.type
