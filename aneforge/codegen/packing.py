"""Weights as the engine reads them: one copy, a stream for each core, in tiles of 64 bytes.

Output channels are cut into *planes* of ``lanes`` channels. A plane holds a row of ``lanes`` halfwords for each step
of the reduction, behind a row of biases where there are any. Planes are dealt to the 16 cores in turn; a core's stream
is its planes, one after the other. What differs:

=========  ========================================================  ====================
rule       channels of a plane                                       rounded to 64 bytes
=========  ========================================================  ====================
dense      the largest power of two up to outputs / 16, 16 at most;  a stream
           channels left over go to planes of the next smaller one
grouped    outputs / 64                                              a plane
depthwise  1                                                         a stream
skipping   as dense; a plane holds the values that are not zero,     a plane
           and marks of the others (:mod:`aneforge.codegen.zeros`)
=========  ========================================================  ====================

The facts do not give the order of the taps of a window (U101), nor how an odd number of channels is dealt (U102).
Packing such a kernel takes our best rule and says ``sampled``. A kernel of several tasks is packed one task at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from aneforge.codegen import zeros
from aneforge.codegen.bounds import ContainerError

CORES = 16
TILE = 64
"""Bytes that streams are rounded up to."""
_TILE_WORDS = TILE // 2
_GROUPED_PLANES = 64
_LANES = 16
_LANES_OF_SMALL_INPUTS = 32
_SMALL_INPUT = 8
_SMALL_OUTPUTS = 512
"""Outputs from which 32 lanes are used for small inputs."""

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
    """dense, grouped, depthwise, skipping or scale."""
    evidence: str
    """``hash`` (equals published bytes), ``formula`` (a published formula) or ``sampled`` (our best rule)."""


@dataclass(frozen=True)
class _Chunk:
    """Output channels in planes of one width."""

    first: int
    outputs: int
    lanes: int

    @property
    def planes(self) -> int:
        return -(-self.outputs // self.lanes)

    def planes_of(self, core: int) -> int:
        return len(range(core, self.planes, CORES))


@dataclass(frozen=True)
class _Layout:
    """Where the halfwords of one kernel go."""

    rule: str
    outputs: int
    steps: int
    """Of the reduction: weights of an output channel."""
    lanes: int
    has_bias: bool = False

    @cached_property
    def chunks(self) -> tuple[_Chunk, ...]:
        if self.rule not in ("dense", "skipping"):
            return (_Chunk(0, self.outputs, self.lanes),)
        chunks, first, lanes = [], 0, self.lanes
        while first < self.outputs:
            left = self.outputs - first
            lanes = min(lanes, lanes_of(left, limit=lanes))
            size = left if lanes == 1 else left - left % (lanes * CORES)
            chunks.append(_Chunk(first, size, lanes))
            first += size
        return tuple(chunks)

    @property
    def rows(self) -> int:
        return self.steps + self.has_bias

    def words_of(self, chunk: _Chunk) -> int:
        words = self.rows * chunk.lanes
        return _rounded_up(words) if self.rule == "grouped" else words

    @property
    def streams(self) -> Streams:
        streams, offset = [], 0
        for core in range(CORES):
            words = sum(chunk.planes_of(core) * self.words_of(chunk) for chunk in self.chunks)
            if words:
                streams.append((offset, 2 * _rounded_up(words)))
                offset += 2 * _rounded_up(words)
        return tuple(streams)

    def table(self, weights: Array, bias: Array | None, chunk: _Chunk) -> Array:
        """The rows of each channel of a chunk, full planes: [channel, row]."""
        rows = np.zeros((chunk.planes * chunk.lanes, self.rows), np.uint16)
        end = chunk.first + chunk.outputs
        if bias is not None:
            rows[: chunk.outputs, 0] = bias[chunk.first : end].view(np.uint16)
        rows[: chunk.outputs, self.has_bias :] = weights[chunk.first : end].view(np.uint16)
        return rows.reshape(chunk.planes, chunk.lanes, self.rows)

    def pack(self, weights: Array, bias: Array | None) -> bytes:
        """``weights`` is [outputs, steps]."""
        streams = self.streams
        packed = np.zeros(sum(streams[-1]) // 2, np.uint16)
        for chunk, parts in self._parts(packed):
            planes = self.table(weights, bias, chunk)
            for core, part in enumerate(parts):
                part[...] = planes[core::CORES].swapaxes(1, 2)
        return packed.tobytes()

    def unpack(self, data: bytes) -> tuple[Array, Array | None]:
        packed = np.frombuffer(data, np.uint16)
        tables = []
        for chunk, parts in self._parts(packed):
            planes = np.empty((chunk.planes, chunk.lanes, self.rows), np.uint16)
            for core, part in enumerate(parts):
                planes[core::CORES] = part.swapaxes(1, 2)
            tables.append(planes.reshape(-1, self.rows)[: chunk.outputs])
        table = np.concatenate(tables).view(np.float16)
        bias = table[:, 0].copy() if self.has_bias else None
        return np.ascontiguousarray(table[:, self.has_bias :]), bias

    def _parts(self, packed: Array) -> Iterator[tuple[_Chunk, list[Array]]]:
        """Each chunk with its halfwords in the stream of each core as [plane, step, lane], without what rounds them
        up."""
        starts = [start // 2 for start, _ in self.streams]
        for chunk in self.chunks:
            parts = []
            for core in range(min(CORES, chunk.planes)):
                planes, size = chunk.planes_of(core), self.words_of(chunk)
                words = packed[starts[core] : starts[core] + planes * size].reshape(planes, size)
                starts[core] += planes * size
                parts.append(words[:, : self.rows * chunk.lanes].reshape(planes, self.rows, chunk.lanes))
            yield chunk, parts


def _rounded_up(words: int) -> int:
    return -(-words // _TILE_WORDS) * _TILE_WORDS


def lanes_of(outputs: int, input_side: int | None = None, limit: int | None = None) -> int:
    """Output channels that a core computes side by side in a dense convolution. ``input_side`` is the longer side of
    the input's plane, where it is known: small inputs leave room for 32 from 512 outputs on."""
    if limit is None:
        small = input_side is not None and input_side <= _SMALL_INPUT and outputs >= _SMALL_OUTPUTS
        limit = _LANES_OF_SMALL_INPUTS if small else _LANES
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
    if tuple(stride) != (1, 1) and layout.rule != "grouped":
        return _skipping(replace(layout, rule="skipping"), weights, bias)
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
    """The kernel and bias that were packed. ``data`` begins where the first stream does; a ``stride`` of more than one
    stands for a stream without its zeros."""
    layout = _layout(shape, groups, has_bias, input_side)
    if tuple(stride) != (1, 1) and layout.rule != "grouped":
        return _unskipped(replace(layout, rule="skipping"), data, streams, shape)
    _check_streams(data, streams, layout)
    weights, bias = layout.unpack(data)
    return weights.reshape(shape), bias


def _skipping(layout: _Layout, weights: Array, bias: Array | None) -> Packed:
    """A kernel whose window steps further than one: planes of values that are not zero."""
    outputs, inputs, height, width = weights.shape
    order = np.array(zeros.order_of(height, width))
    taps = np.zeros((outputs, inputs, height * width + 1), np.uint16)
    taps[:, :, : height * width] = weights.reshape(outputs, inputs, -1).view(np.uint16)
    steps = taps[:, :, order].reshape(outputs, -1)  # taps that do not exist are the zero behind the others
    cores: list[list[bytes]] = [[] for _ in range(CORES)]
    for chunk in layout.chunks:
        for plane in range(chunk.planes):
            first = chunk.first + plane * chunk.lanes
            part = slice(first, min(first + chunk.lanes, chunk.first + chunk.outputs))
            lanes = np.zeros((steps.shape[1], chunk.lanes), np.uint16)
            lanes[:, : steps[part].shape[0]] = steps[part].T
            head = np.zeros(chunk.lanes, np.uint16)
            if bias is not None:
                head[: steps[part].shape[0]] = bias[part].view(np.uint16)
            cores[plane % CORES].append(zeros.plane_bytes(head, lanes))
    data, streams = bytearray(), []
    for planes in filter(None, cores):
        size = sum(map(len, planes))
        streams.append((len(data), size))
        for plane in planes:
            data += plane
    return Packed(bytes(data), tuple(streams), layout.lanes, "skipping", "formula")


def _unskipped(
    layout: _Layout, data: bytes, streams: Sequence[tuple[int, int]], shape: tuple[int, int, int, int]
) -> tuple[Array, Array | None]:
    outputs, inputs, height, width = shape
    order = zeros.order_of(height, width)
    weights = np.zeros((outputs, inputs * len(order)), np.uint16)
    bias = np.zeros(outputs, np.uint16)
    places = [start for start, _ in streams]
    ends = [start + size for start, size in streams]
    for chunk in layout.chunks:
        for plane in range(chunk.planes):
            core = plane % CORES
            if core >= len(places):
                raise ContainerError(0, f"{len(streams)} streams of weights, but the channels need more")
            head, lanes, places[core] = zeros.read_plane(
                data, places[core], ends[core], chunk.lanes, inputs * len(order)
            )
            first = chunk.first + plane * chunk.lanes
            part = slice(first, min(first + chunk.lanes, chunk.first + chunk.outputs))
            count = weights[part].shape[0]
            weights[part], bias[part] = lanes.T[:count], head[:count]
    taps = np.zeros((outputs, inputs, height * width + 1), np.uint16)
    taps[:, :, np.array(order)] = weights.reshape(outputs, inputs, -1)
    kernel = np.ascontiguousarray(taps[:, :, : height * width]).view(np.float16).reshape(shape)
    return kernel, bias.view(np.float16) if layout.has_bias else None


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
    """The formula says all of a dense kernel of one tap, if every core has the same number of full planes. Which core
    has which planes is not published for the other rules."""
    del stride
    is_even = layout.outputs % CORES == 0
    is_plain = shape[2:] == (1, 1)
    return "formula" if layout.rule == "dense" and is_even and is_plain else "sampled"


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
