"""One task as the phases decided it: what is read, from where, what is computed, and where the result goes.

A plan knows no registers. :mod:`aneforge.codegen.words` writes it with the registers of a generation.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from math import prod


@dataclass(frozen=True)
class Scratch:
    """Where a tensor lies in the engine's own memory, in bytes."""

    base: int
    channel: int
    row: int
    depth: int


@dataclass(frozen=True)
class Buffer:
    """A tensor as a task sees it: its extents, the strides of its memory, and its place in scratch."""

    channels: int
    height: int
    width: int
    row: int
    plane: int
    total: int
    scratch: Scratch
    bar: int | None = None
    """The base-address register of its memory; None where it stays in scratch."""
    offset: int = 0

    @property
    def extents(self) -> tuple[int, int, int]:
        return self.channels, self.height, self.width

    @property
    def in_memory(self) -> bool:
        return self.bar is not None


@dataclass(frozen=True)
class Kernel:
    """The window of a convolution."""

    height: int = 1
    width: int = 1
    stride: tuple[int, int] = (1, 1)
    top: int = 0
    left: int = 0
    groups: int = 1
    is_depthwise: bool = False
    """Whether each output channel reads one input channel."""


@dataclass(frozen=True)
class Streams:
    """What a task reads of the constants: a stream of coefficients for each core, and a table."""

    coefficients: tuple[tuple[int, int], ...] = ()
    """Offset and size of each core's stream."""
    table: tuple[int, int] | None = None
    """Offset and size of the activation's table."""
    base: int = 0
    """Where they begin in the constants."""

    @property
    def bytes(self) -> int:
        return sum(size for _, size in self.coefficients) + (self.table[1] if self.table else 0)


@dataclass(frozen=True)
class TaskPlan:
    """One task."""

    number: int
    count: int
    """Of how many tasks; 0 where that is not known yet."""
    engine: str
    """``planar`` or ``mac``."""
    source: Buffer
    result: Buffer
    second: Buffer | None = None
    operation: str = "add"
    """Of the planar engine: add, sub, mul, max or min of two sources; a reduction (reduce_avg, reduce_sum, reduce_max,
    reduce_min) or a pool (average_pool, max_pool) of one; or unknown, where the work has no published words. Of the
    other: convolution or bypass."""
    kernel: Kernel = Kernel()
    streams: Streams = Streams()
    lanes: int = 1
    """Output channels that a core computes side by side."""
    activation: str = "none"
    """none, relu or table."""
    has_bias: bool = False
    transposes_result: bool = False
    kernel_number: int = 0
    """The number of a task that loads weights or a table, from 1; 0 for others."""

    constants_bar: int | None = None
    """The base-address register of the kernels; worked out from the tensors where it is not given."""

    @property
    def final_scale(self) -> int:
        """What the planar engine multiplies its result with, as the bits of a single: 1/N for a mean of N numbers."""
        count = 1
        if self.operation == "reduce_avg":
            sides = zip(self.source.extents, self.result.extents, strict=True)
            count = prod(before for before, after in sides if before != after)
        return int.from_bytes(struct.pack("<f", 1 / count), "little")

    @property
    def is_first(self) -> bool:
        return self.number == 0

    @property
    def is_last(self) -> bool:
        return self.number == self.count - 1

    @property
    def has_kernel(self) -> bool:
        return bool(self.streams.coefficients or self.streams.table)

    @property
    def memory_bytes(self) -> int:
        """What it moves to and from memory."""
        tensors = [self.source, self.result, *([self.second] if self.second else [])]
        return sum(tensor.total for tensor in tensors if tensor.in_memory) + self.streams.bytes
