"""Kernels and tables in the constants by the plainest rule: planes of output channels dealt to the cores in turn.

It has the interface of the packing rules that follow published constant sections, and stands in for them where a
container is only read back here. A record of a build names the rule, so that nobody takes it for the vendor's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from aneforge.sim.tables import activation as simulated

__all__ = ["TABLES", "Packed", "TableBytes", "activation_of", "pack_convolution", "table_bytes", "unpack_convolution"]

Array = np.ndarray
CORES, TILE, TABLE_BYTES = 16, 64, 128
TABLES = ("sigmoid", "tanh", "gelu", "swish", "erf", "exp2", "log2", "sqrt", "r_sqrt", "invert", "sin", "cos")
"""Activations that are a table and have no settings."""


@dataclass(frozen=True)
class Packed:
    """A kernel as the cores read it."""

    data: bytes
    streams: tuple[tuple[int, int], ...]
    """Offset and size of each core's stream."""
    lanes: int
    rule: str
    evidence: str


@dataclass(frozen=True)
class TableBytes:
    """A table of an activation."""

    data: bytes
    evidence: str


def lanes_of(outputs: int) -> int:
    """Output channels that a core computes side by side."""
    lanes = 1
    while lanes < 16 and 2 * lanes <= outputs // CORES:
        lanes *= 2
    return lanes


def pack_convolution(kernel: Array, groups: int, bias: Array | None, stride: tuple[int, int]) -> Packed:
    """A kernel [outputs, inputs, height, width] in streams. A plane has a row of biases, then a row of each step."""
    outputs = kernel.shape[0]
    lanes = lanes_of(outputs)
    rows = kernel.reshape(outputs, -1)
    if bias is not None:
        rows = np.concatenate([bias.reshape(outputs, 1), rows], axis=1)
    planes = -(-outputs // lanes)
    padded = np.zeros((planes * lanes, rows.shape[1]), np.float16)
    padded[:outputs] = rows
    by_plane = np.ascontiguousarray(padded.reshape(planes, lanes, -1).transpose(0, 2, 1))
    data, streams = bytearray(), []
    for core in range(min(CORES, planes)):
        stream = by_plane[core::CORES].tobytes()
        size = -(-len(stream) // TILE) * TILE
        streams.append((len(data), size))
        data += stream + bytes(size - len(stream))
    return Packed(bytes(data), tuple(streams), lanes, "planes in turn", "none: a rule of our own")


def unpack_convolution(
    data: bytes,
    streams: Sequence[tuple[int, int]],
    shape: tuple[int, int, int, int],
    groups: int,
    has_bias: bool,
    stride: tuple[int, int],
) -> tuple[Array, Array | None]:
    """The kernel and the bias of streams: the inverse of :func:`pack_convolution`."""
    outputs = shape[0]
    lanes = lanes_of(outputs)
    steps = int(np.prod(shape[1:])) + int(has_bias)
    planes = -(-outputs // lanes)
    by_plane = np.zeros((planes, steps, lanes), np.float16)
    if len(streams) != min(CORES, planes):
        raise ValueError(f"{len(streams)} streams of coefficients; a kernel of {outputs} outputs has {planes} planes")
    for core, (start, size) in enumerate(streams):
        part = by_plane[core::CORES]
        if start < 0 or part.nbytes > size or start + part.nbytes > len(data):
            raise ValueError(f"the stream of core {core} has {size} bytes; the kernel needs {part.nbytes}")
        by_plane[core::CORES] = np.frombuffer(data, np.float16, part.size, start).reshape(part.shape)
    rows = by_plane.transpose(0, 2, 1).reshape(planes * lanes, steps)[:outputs]
    bias = np.ascontiguousarray(rows[:, 0]) if has_bias else None
    return np.ascontiguousarray(rows[:, int(has_bias) :]).reshape(shape), bias


@cache
def table_bytes(activation: str, generation: str) -> TableBytes:
    """33 results of the simulated activation between -8 and 8, behind the ends of the range."""
    results = simulated(activation, (), "m1" if generation == "h13" else "m6")
    inputs = np.linspace(-8, 8, 33).astype(np.float16)
    ends = np.array([-8, 8], np.float16)
    knots = results[inputs.view(np.uint16)]
    table = np.zeros(TABLE_BYTES // 2, np.float16)
    table[:37] = np.concatenate([ends, results[ends.view(np.uint16)], knots])
    return TableBytes(table.tobytes(), "none: samples of the simulated function")


def activation_of(data: bytes, generation: str) -> str | None:
    """Which activation a table is; None for a table that is not one of ours."""
    return next((name for name in TABLES if table_bytes(name, generation).data == data[:TABLE_BYTES]), None)
