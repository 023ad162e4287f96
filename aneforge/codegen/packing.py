"""Weights as the engine reads them: one copy, a stream for each core, in tiles of 64 bytes.

All forms share one layout (enums.json, ``weight_packing_h13_h14``). Output channels are cut into *planes* of ``lanes``
channels. A plane holds a row of ``lanes`` halfwords for each step of the reduction, behind a row of biases where there
are any. Planes are dealt to the 16 cores in turn; a core's stream is its planes, one after the other. What differs:

=========  ==================================================  ====================
rule       channels of a plane                                 rounded to 64 bytes
=========  ==================================================  ====================
dense      the largest power of two up to outputs / 16, <= 16  a stream
matrix     outputs / 16, <= 16                                 a stream
grouped    outputs / 64                                        a plane
depthwise  1                                                   a stream
=========  ==================================================  ====================

The facts do not give the order of the taps of a window (U101), nor how an odd number of channels is dealt (U102), and
the streams of strided convolutions skip zeros in a way that is not resolved (U101). Packing such a kernel takes our
best rule and says ``sampled``. A kernel that the compiler splits into passes is packed one pass at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from aneforge.codegen.bounds import ContainerError

CORES = 16
TILE = 64
"""Bytes that streams are rounded up to."""
_TILE_WORDS = TILE // 2
_GROUPED_PLANES = 64
_LANES = 16
_LANES_OF_SMALL_INPUTS = 32
_SMALL_INPUT = 8
_MATRIX_WORDS = 32768
"""Of a plane, where a matrix is multiplied by more than ``_MATRIX_ROWS`` rows."""
_MATRIX_ROWS = 128

Array = np.ndarray
Streams = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Packed:
    """Weights in the order of the constant section."""

    data: bytes
    streams: Streams
    """Offset and size of each core's stream; fewer than 16 where some cores have no channels."""
    lanes: int
    rule: str
    """dense, matrix, grouped, depthwise or scale."""
    evidence: str
    """``hash`` (equals published bytes), ``formula`` (a published formula) or ``sampled`` (our best rule)."""


@dataclass(frozen=True)
class _Layout:
    """Where the halfwords of one kernel go."""

    rule: str
    outputs: int
    steps: int
    """Of the reduction: weights of an output channel."""
    lanes: int
    has_bias: bool = False

    @property
    def planes(self) -> int:
        return -(-self.outputs // self.lanes)

    @property
    def rows(self) -> int:
        return self.steps + self.has_bias

    @property
    def plane_words(self) -> int:
        words = self.rows * self.lanes
        return _rounded_up(words) if self.rule == "grouped" else words

    @property
    def streams(self) -> Streams:
        streams, offset = [], 0
        for core in range(min(CORES, self.planes)):
            size = 2 * _rounded_up(self._planes_of(core) * self.plane_words)
            streams.append((offset, size))
            offset += size
        return tuple(streams)

    def _planes_of(self, core: int) -> int:
        return len(range(core, self.planes, CORES))

    def pack(self, weights: Array, bias: Array | None) -> bytes:
        """``weights`` is [outputs, steps]."""
        table = np.zeros((self.planes * self.lanes, self.rows), np.uint16)
        if bias is not None:
            table[: self.outputs, 0] = bias.view(np.uint16)
        table[: self.outputs, self.has_bias :] = weights.view(np.uint16)
        planes = table.reshape(self.planes, self.lanes, self.rows)
        streams = self.streams
        packed = np.zeros(sum(streams[-1]) // 2, np.uint16)
        for core in range(len(streams)):
            self._stream(packed, core)[...] = planes[core::CORES].swapaxes(1, 2)
        return packed.tobytes()

    def unpack(self, data: bytes) -> tuple[Array, Array | None]:
        packed = np.frombuffer(data, np.uint16)
        planes = np.empty((self.planes, self.lanes, self.rows), np.uint16)
        for core in range(len(self.streams)):
            planes[core::CORES] = self._stream(packed, core).swapaxes(1, 2)
        table = planes.reshape(-1, self.rows)[: self.outputs].view(np.float16)
        bias = table[:, 0].copy() if self.has_bias else None
        return np.ascontiguousarray(table[:, self.has_bias :]), bias

    def _stream(self, packed: Array, core: int) -> Array:
        """The halfwords of a core as [plane, step, lane], without what rounds them up."""
        start, planes = self.streams[core][0] // 2, self._planes_of(core)
        words = packed[start : start + planes * self.plane_words].reshape(planes, self.plane_words)
        return words[:, : self.rows * self.lanes].reshape(planes, self.rows, self.lanes)


def _rounded_up(words: int) -> int:
    return -(-words // _TILE_WORDS) * _TILE_WORDS


def lanes_of(outputs: int, input_side: int | None = None) -> int:
    """Output channels that a core computes side by side in a dense convolution. ``input_side`` is the longer side of
    the input's plane, where it is known: small inputs leave room for 32."""
    limit = _LANES_OF_SMALL_INPUTS if input_side is not None and input_side <= _SMALL_INPUT else _LANES
    per_core = max(outputs // CORES, 1)
    return min(1 << (per_core.bit_length() - 1), limit)


# Convolutions.


def pack_convolution(
    kernel: Array,
    groups: int = 1,
    bias: Array | None = None,
    stride: tuple[int, int] = (1, 1),
    input_side: int | None = None,
) -> Packed:
    """A kernel of [outputs, inputs / groups, height, width], fp16, and a bias of [outputs], fp16."""
    weights = _halves(kernel, 4, "kernel")
    layout = _layout(weights.shape, groups, bias is not None, input_side)
    if bias is not None:
        bias = _halves(bias, 1, "bias")
        if len(bias) != layout.outputs:
            raise ValueError(f"bias has {len(bias)} values, expected {layout.outputs}: one for each output channel")
    data = layout.pack(weights.reshape(layout.outputs, layout.steps), bias)
    return Packed(data, layout.streams, layout.lanes, layout.rule, _evidence(layout, weights.shape, stride))


def unpack_convolution(
    data: bytes,
    streams: Sequence[tuple[int, int]],
    shape: tuple[int, int, int, int],
    groups: int = 1,
    has_bias: bool = False,
    stride: tuple[int, int] = (1, 1),
    input_side: int | None = None,
) -> tuple[Array, Array | None]:
    """The kernel and bias that were packed. ``data`` begins where the first stream does."""
    del stride  # it changes what is known of the order, not the order
    layout = _layout(shape, groups, has_bias, input_side)
    _check_streams(data, streams, layout)
    weights, bias = layout.unpack(data)
    return weights.reshape(shape), bias


def _layout(shape: tuple[int, ...], groups: int, has_bias: bool, input_side: int | None) -> _Layout:
    outputs, inputs, height, width = shape
    if min(shape) < 1:
        raise ValueError(f"kernel has shape {list(shape)}; every axis must have at least one element")
    if groups < 1 or outputs % groups:
        raise ValueError(f"kernel has {outputs} output channels, which {groups} groups do not divide evenly")
    steps = inputs * height * width
    if groups == 1:
        return _Layout("dense", outputs, steps, lanes_of(outputs, input_side), has_bias)
    if inputs == 1 and outputs == groups:
        return _Layout("depthwise", outputs, steps, 1, has_bias)
    return _Layout("grouped", outputs, steps, max(outputs // _GROUPED_PLANES, 1), has_bias)


def _evidence(layout: _Layout, shape: tuple[int, ...], stride: tuple[int, int]) -> str:
    """The formula says all of a dense kernel of one tap and no step, if every core has the same number of full
    planes. Which core has which planes is not published for the other rules."""
    is_even = layout.outputs % (layout.lanes * CORES) == 0
    is_plain = shape[2:] == (1, 1) and tuple(stride) == (1, 1)
    return "formula" if layout.rule == "dense" and is_even and is_plain else "sampled"


# Matrices.


def pack_matrix(matrix: Array, rows: int = 1) -> Packed:
    """A constant [outputs, reduced] that ``rows`` rows are multiplied by, fp16."""
    weights = _halves(matrix, 2, "matrix")
    layout = _matrix_layout(weights.shape, rows)
    is_even = layout.outputs % (layout.lanes * CORES) == 0
    data = layout.pack(weights, None)
    return Packed(data, layout.streams, layout.lanes, "matrix", "formula" if is_even else "sampled")


def unpack_matrix(data: bytes, streams: Sequence[tuple[int, int]], shape: tuple[int, int], rows: int = 1) -> Array:
    """The matrix that was packed. ``data`` begins where the first stream does."""
    layout = _matrix_layout(shape, rows)
    _check_streams(data, streams, layout)
    return layout.unpack(data)[0]


def _matrix_layout(shape: tuple[int, ...], rows: int) -> _Layout:
    outputs, reduced = shape
    if min(shape) < 1:
        raise ValueError(f"matrix has shape {list(shape)}; every axis must have at least one element")
    lanes = min(max(outputs // CORES, 1), _LANES)
    if rows > _MATRIX_ROWS:
        lanes = max(min(lanes, _MATRIX_WORDS // reduced), 1)
    return _Layout("matrix", outputs, reduced, lanes)


# Scales.


def pack_scale(bias: Array, scale: Array) -> Packed:
    """A scale and a bias for each channel: all biases, then all scales."""
    halves = [_halves(values, 1, name) for values, name in ((bias, "bias"), (scale, "scale"))]
    if len(halves[0]) != len(halves[1]):
        raise ValueError(f"bias has {len(halves[0])} values and scale {len(halves[1])}; they must be equally many")
    data = np.concatenate(halves).tobytes()
    data += bytes(-len(data) % TILE)
    return Packed(data, ((0, len(data)),), 1, "scale", "formula" if 4 * len(scale) == len(data) else "sampled")


def unpack_scale(data: bytes, channels: int) -> tuple[Array, Array]:
    """The bias and the scale that were packed."""
    if len(data) < 4 * channels:
        raise ContainerError(0, f"scales of {channels} channels need {4 * channels} bytes, but {len(data)} are there")
    halves = np.frombuffer(data[: 4 * channels], np.float16)
    return halves[:channels].copy(), halves[channels:].copy()


def _halves(values: Array, axes: int, what: str) -> Array:
    if values.dtype != np.float16 or values.ndim != axes:
        raise ValueError(f"{what} is {values.dtype} with {values.ndim} axes, expected float16 with {axes}")
    return np.ascontiguousarray(values)


def _check_streams(data: bytes, streams: Sequence[tuple[int, int]], layout: _Layout) -> None:
    """A stranger's streams must be those of the shape: nothing is read out of bounds, and nothing guessed."""
    expected = layout.streams
    for core, (there, wanted) in enumerate(zip(streams, expected, strict=False)):
        if tuple(there) != wanted:
            raise ContainerError(
                there[0],
                f"the stream of core {core} is {there[1]} bytes from {there[0]:#x}; a {layout.rule} kernel of "
                f"{layout.outputs} channels and {layout.steps} weights each has {wanted[1]} from {wanted[0]:#x}",
            )
    if len(streams) != len(expected):
        raise ContainerError(
            0, f"{len(streams)} streams of weights, but {layout.outputs} channels need {len(expected)}"
        )
    if len(data) < sum(expected[-1]):
        raise ContainerError(0, f"the streams end at {sum(expected[-1]):#x}, but the weights have {len(data)} bytes")
