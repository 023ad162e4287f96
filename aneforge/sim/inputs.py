"""Draw the inputs of a model where the user gives none: one way for every command, the same on every machine."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator

import numpy as np

from aneforge.graph.graph import Graph
from aneforge.graph.promises import promised_range
from aneforge.graph.tensor import Tensor

Array = np.ndarray

SEED = 0
"""The seed of the inputs that are drawn where the user gives none."""

_MIDDLE = 2 * 65535  # of a sum of four 16-bit numbers
_SPREAD = 37837.0  # its standard deviation, 65536 / sqrt(3)
_FARTHEST = 3.47  # what the sum reaches at most, in standard deviations
_AT_THE_ENDS = 1  # the second sample


def drawn_inputs(graph: Graph, samples: int = 1, seed: int = SEED) -> Iterator[dict[str, Array]]:
    """Samples from a seed, one at a time. The second lies at the ends of the ranges that inputs declare."""
    return (drawn_sample(graph, seed, number) for number in range(samples))


def default_samples(graph: Graph) -> int:
    """How many samples to draw: two where an input has a range, so that its ends are among them."""
    return 2 if any(promised_range(port) is not None for port in graph.inputs) else 1


def drawn_sample(graph: Graph, seed: int = SEED, number: int = 0) -> dict[str, Array]:
    """Every input by name: about normal, with a spread of one, or over the whole range where the input declares one
    (``max_abs``, or the 0 to 255 of bytes). Sample 1 lies at the ends of these ranges.

    The bits come from a hash of the seed and the name, and the rest is integers and one rounding, so a later NumPy,
    another machine or an additional input of the model changes nothing.
    """
    names = graph.names()
    again = f" {number}" if number else ""
    at_the_ends = number == _AT_THE_ENDS
    return {names[port.uid]: _drawn(port, f"{seed} {names[port.uid]}{again}", at_the_ends) for port in graph.inputs}


def _drawn(port: Tensor, key: str, at_the_ends: bool) -> Array:
    raw = hashlib.shake_128(key.encode()).digest(8 * math.prod(port.shape))
    parts = np.frombuffer(raw, "<u2").reshape(-1, 4).astype(np.int64)
    ends = promised_range(port)
    if at_the_ends and ends is not None:
        values = np.where(parts[:, 0] & 1, ends[1], ends[0])
    elif port.dtype != "fp16":
        # Small integers, so that they are likely to be valid indices of a look-up.
        values = parts[:, 0] >> 8 if port.dtype == "uint8" else parts[:, 0] & 1
    else:
        scale = 1.0 if ends is None else ends[1] / _FARTHEST
        values = (parts.sum(axis=1) - _MIDDLE) / _SPREAD * scale
    if port.dtype != "fp16":
        return values.astype(np.int64).reshape(port.shape)
    return _within(values.astype(np.float16), ends).reshape(port.shape)


def _within(values: Array, ends: tuple[float, float] | None) -> Array:
    """Values inside a range: where rounding to fp16 passes its end, the number before it."""
    if ends is None:
        return values
    over = np.abs(values.astype(np.float64)) > ends[1]
    return np.where(over, np.nextafter(values, np.float16(0)), values)
