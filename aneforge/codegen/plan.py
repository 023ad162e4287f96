"""One task as the phases decided it.

A plan knows no registers. :mod:`aneforge.codegen.words` writes it with the registers of a generation.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass


@dataclass(frozen=True)
class Scratch:
    """Where a tensor lies in the engine's own memory, in bytes."""

    base: int
    channel: int
    row: int
    depth: int
    group: int = 0
    """From one image to the next, where a task has several."""


@dataclass(frozen=True)
class TaskBuffer:
    """A tensor as a task sees it: its extents, the strides of its memory, and its place in scratch. Of several images
    or groups it is one."""

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

    @property
    def moved_bytes(self) -> int:
        """What reading or writing it moves: rows of whole lines."""
        return self.channels * self.height * (-(-2 * self.width // _LINE) * _LINE)


_LINE = 64


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

    @property
    def is_point(self) -> bool:
        return (self.height, self.width) == (1, 1)

    @property
    def skips_zeros(self) -> bool:
        """Whether its stream holds the values that are not zero, and marks of the others."""
        return self.stride != (1, 1)


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


_FIRST_IS_STRETCHED = 0xF
"""Bits of the mask."""
_CORES_OF_NUMBERS = 8
_WHOLE, PIECE = 128, 32
"""Columns of a row that the engine takes at a time, and those of a piece where the last one would be narrower."""
FIRST = 0x00500030
"""Nothing is known of what ran before a program: every earlier source and result may lie at the same place."""


@dataclass(frozen=True)
class Waits:
    """What of earlier tasks the places of a task in scratch share with them: bits of the configuration words."""

    source: int = FIRST
    second: int = FIRST
    result: int = FIRST


@dataclass(frozen=True)
class TaskPlan:
    """One task."""

    number: int
    count: int
    """Of how many tasks; 0 where that is not known yet."""
    engine: str
    """``planar`` or ``mac``."""
    source: TaskBuffer
    result: TaskBuffer
    second: TaskBuffer | None = None
    operation: str = "add"
    """Of the planar engine: add, sub, mul, max, min or abs; a reduction (reduce_avg, reduce_sum, reduce_max,
    reduce_min, reduce_squares) or a pool (average_pool, max_pool) of one; or unknown, where the work has no published
    words. Of the other: convolution, bypass, or largest and total of all channels."""
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
    rate: float = 1.0
    """Bytes a nanosecond that its memory moves, as the vendor's compiler counts."""
    images: int = 1
    """How many times it runs, each time a group further."""
    mask: int = 0
    """Axes over which a source is stretched, and sources that are turned."""
    is_vector: bool = False
    """Whether the second source is a number for each channel, from the constants."""
    numbers: tuple[float, float] | None = None
    """What a planar task of one source adds, and what it multiplies with."""
    post_scale: float = 1.0
    """What the MAC engine multiplies its result with."""
    same_bias: float = 0.0
    """What it adds to every output channel."""
    table: str = ""
    """The activation whose table the task reads."""
    tile: int | None = None
    """Rows that it computes at a time; None for all."""
    waits: Waits = Waits()
    kept: tuple[tuple[int, int], ...] = ()
    """Starts and ends in scratch of what later tasks need."""
    source_is_handed: bool = False
    """Whether the task before hands its result over through the queue of memory (h13)."""
    result_is_handed: bool = False
    result_is_awaited: bool = False
    """Whether the next task reads from memory what this one writes there."""
    is_biased: bool = False
    """Whether a table's task adds an epsilon to its source."""
    dealt: tuple[int, int] = (0, 0)
    """Where cores take parts of one channel: the logs of how many parts lie side by side, and below each other."""
    in_pieces: bool = False
    """Whether it takes a few columns at a time, so that the task behind it follows it."""
    result_in_strides: bool = False
    """Whether the result lies in scratch in strides of its own before it goes to memory."""
    mean_of: int = 1
    """How many numbers a mean is of."""
    kernel_bar: int | None = None
    """The base-address register of a kernel that is a tensor, or that an earlier task wrote; None for constants."""
    kernel_offset: int = 0
    kernel_task: int | None = None
    """The number of the task that wrote the kernel."""
    result_lanes: int = 1
    """Rows of the result that lie side by side in memory: the form in which it is read as a kernel."""
    planar_table: str = ""
    """What follows a reduction: invert or r_sqrt."""
    epsilon: float = 0.0
    """What is added in front of it."""
    behind_reduction: bool = False
    """Whether the task before is a reduction of the same engine."""
    depth: int = 1
    """Rows of a map, where channels count as rows."""
    depth_step: int = 0
    """Bytes from one of them to the next."""
    source_stays: bool = False
    """Whether a source that comes from memory stays in scratch for later tasks."""

    @property
    def final_scale(self) -> int:
        """What the planar engine multiplies its result with, as the bits of a single: 1/N for a mean of N numbers."""
        count = self.mean_of if self.operation in ("reduce_avg", "reduce_squares") else 1
        return int.from_bytes(struct.pack("<f", 1 / count), "little")

    @property
    def outputs(self) -> int:
        """Output channels that cores share."""
        if self.kernel_bar is not None:
            return self.result.channels // self.lanes
        if self.across_channels:
            return 1
        if self.turns_numbers:
            return _CORES_OF_NUMBERS
        if self.operation == "bypass":
            return max(self.result.channels, self.source.channels) if self.transposes_result else self.source.channels
        return self.result.width if self.transposes_result else self.result.channels * self.groups

    @property
    def turns_numbers(self) -> bool:
        """Whether it turns a map of one column."""
        return (
            self.operation == "bypass"
            and self.transposes_result
            and self.source.extents[1:] != (1, 1)
            and (self.source.width == 1)
        )

    @property
    def whole(self) -> TaskBuffer:
        """The source that is not stretched; the result, where the only one is."""
        if self.operation == "tile":
            return self.result
        return self.second if self.second is not None and self.mask & _FIRST_IS_STRETCHED else self.source

    @property
    def result_columns(self) -> int:
        """Columns that the engine computes, before the result is turned."""
        return self.result.channels if self.transposes_result else self.result.width

    @property
    def groups(self) -> int:
        """Of a convolution whose output channels each read several, and not all, of the inputs."""
        return 1 if self.kernel.is_depthwise else self.kernel.groups

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
    def rows(self) -> int:
        """Rows of the result that a tile has."""
        height = max(self.whole.height, 1) if self.is_reduction else self.result.height
        return height if self.tile is None else self.tile

    @property
    def is_reduction(self) -> bool:
        return self.operation.startswith("reduce_")

    @property
    def across_channels(self) -> bool:
        """Whether the MAC engine makes one number of all channels, without a kernel."""
        return self.operation in ("largest", "total")

    @property
    def is_cut(self) -> bool:
        """Whether rows are wider than the engine takes at a time and no multiple of its pieces."""
        return self.whole.height > 1 and self.whole.width > _WHOLE and self.whole.width % PIECE != 0

    @property
    def result_goes_in_strides(self) -> bool:
        """Whether a result in memory has strides in scratch: a turned one, and a single channel without gaps."""
        if self.operation == "bypass":
            return self.transposes_result and self.result_lanes == 1
        return self.across_channels and self.result.row == 2 * self.result.width

    @property
    def memory_bytes(self) -> int:
        """What it moves to and from memory; rows that two tiles read count twice."""
        times = self.images * self.groups
        tensors = [self.source, self.result, *([self.second] if self.second else [])]
        moved = sum(tensor.moved_bytes for tensor in tensors if tensor.in_memory) * times
        if self.depth > 1 and self.source.in_memory:
            moved += self.source.moved_bytes * (self.depth - 1)
        if self.tile is not None and self.source.in_memory:
            again = (-(-self.result.height // self.tile) - 1) * max(0, self.kernel.height - self.kernel.stride[0])
            moved += again * self.source.row * self.source.channels * times
        kernel = self.streams.bytes if self.kernel_bar is None else 2 * self.result.channels * self.source.channels
        return moved + kernel
