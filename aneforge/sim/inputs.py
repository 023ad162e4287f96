"""The inputs of a run: arrays, a file of arrays, or numbers from a seed, the same on every machine."""

from __future__ import annotations

import hashlib
import math
import zipfile
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from aneforge.errors import AneforgeError, ArgumentError, first_line
from aneforge.files import array_of, check_archive, entry_of, regular_file
from aneforge.graph.graph import Graph
from aneforge.graph.tensor import Tensor
from aneforge.graph.views import promised_range

Array = np.ndarray

SEED = 0
"""The seed of the inputs that are drawn where the user gives none."""

_MIDDLE = 2 * 65535  # of a sum of four 16-bit numbers
_SPREAD = 37837.0  # its standard deviation, 65536 / sqrt(3)
_FARTHEST = 3.47  # what the sum reaches at most, in standard deviations
_AT_THE_ENDS = 1  # the second sample


MOST_DRAWN = 1_000_000
"""Samples from one seed: more are a typing error, and would be drawn for ever."""


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


# The inputs of a run: arrays, a file of arrays, or numbers drawn from a seed. One sample, or several.


Sample = dict[str, np.ndarray]


def samples_of(
    graph: Graph, inputs: Any = None, seed: int | None = None, samples: int | None = None
) -> Iterator[Sample]:
    """Samples by input name, one at a time.

    ``inputs`` is one sample (arrays by name, a list of arrays in the order of the graph's inputs, or one array),
    several (a list of dicts or of lists, an iterator, or named arrays that all have one more axis in front), or the
    path of an ``.npz`` file. Without it samples are drawn from ``seed`` (0). ``samples`` is how many to draw, or how
    many to read at most.
    """
    if samples is not None and (isinstance(samples, bool) or not isinstance(samples, int) or samples < 1):
        raise ArgumentError("samples", f"{samples!r} is not a count; give a whole number, 1 or more.")
    if samples is not None and samples > MOST_DRAWN and inputs is None:
        raise ArgumentError(
            "samples",
            f"{samples:,} is more than are drawn in one run; give at most {MOST_DRAWN:,}, or inputs of your own.",
        )
    if inputs is None:
        if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int) or seed < 0):
            raise ArgumentError("seed", f"{seed!r} is not a seed; give a whole number, 0 or more.")
        count = default_samples(graph) if samples is None else samples
        return drawn_inputs(graph, count, SEED if seed is None else seed)
    if seed is not None:
        raise ArgumentError("seed", "it draws the inputs, and inputs gives them; choose one.")
    if isinstance(inputs, (str, Path)):
        return _of_arrays(graph, read_arrays(str(inputs)), str(inputs), samples)
    if isinstance(inputs, Mapping):
        return _of_arrays(graph, _by_name(graph, inputs), "inputs", samples)
    several = isinstance(inputs, (list, tuple)) and any(isinstance(item, (Mapping, list, tuple)) for item in inputs)
    if several or isinstance(inputs, Iterator):
        return islice((_by_name(graph, sample) for sample in inputs), samples)
    if samples is not None and samples > 1:
        raise ArgumentError("samples", f"{samples} were asked for, and inputs holds 1. Give a list of samples.")
    return iter([_by_name(graph, inputs)])


def _by_name(graph: Graph, sample: Any) -> Sample:
    names = graph.names()
    if isinstance(sample, Mapping):
        return {names[key.uid] if isinstance(key, Tensor) else key: value for key, value in sample.items()}
    ports = [names[port.uid] for port in graph.inputs]
    arrays = list(sample) if isinstance(sample, (list, tuple)) else [sample]
    if len(arrays) != len(ports):
        expected = ", ".join(ports) or "no input"
        raise ArgumentError(
            "inputs", f"{len(arrays)} arrays were given; the graph takes {expected}. Give one array each."
        )
    return dict(zip(ports, arrays, strict=True))


def read_arrays(file: str) -> Sample:
    """The arrays of an ``.npz`` file by name."""
    try:
        with open(regular_file(file, file), "rb") as stream:  # ours to close: NumPy leaves a broken one open
            if not zipfile.is_zipfile(stream):
                raise ValueError("it is not an archive, as np.savez writes it")
            with zipfile.ZipFile(stream) as archive:
                check_archive(archive, file)
                names = archive.namelist()
                return {
                    name.removesuffix(".npy"): array_of(entry_of(archive, name, file), f"{file}: {name}")
                    for name in names
                }
    except (OSError, ValueError, zipfile.BadZipFile, EOFError, MemoryError) as error:
        raise AneforgeError(
            f"{file}: not a file of named arrays (.npz): {first_line(error)}. Write it with np.savez(file, x=array)."
        ) from None


def _of_arrays(graph: Graph, arrays: Sample, source: str, most: int | None) -> Iterator[Sample]:
    """One sample where the arrays have the inputs' ranks; several where all of them have one more axis in front."""
    names = graph.names()
    ranks = {names[port.uid]: len(port.shape) for port in (*graph.inputs, *graph.parameters)}
    unknown = [name for name in arrays if name not in ranks]
    if unknown:
        raise AneforgeError(
            f"{source}: {unknown[0]!r} is not an input of the model. Choose from: {', '.join(ranks) or 'none'}."
        )
    extra_axes = {name: np.ndim(array) - ranks[name] for name, array in arrays.items()}
    if not arrays or any(axes != 1 for axes in extra_axes.values()):
        if most is not None and most > 1:
            raise AneforgeError(
                f"{source}: {most} samples were asked for, and the arrays hold 1. Give arrays with one more axis in "
                "front than the inputs, or no inputs, to draw as many."
            )
        return iter([arrays])
    counts = {name: len(array) for name, array in arrays.items()}
    if len(set(counts.values())) != 1:
        listed = ", ".join(f"{name} {count}" for name, count in counts.items())
        raise AneforgeError(
            f"{source}: the inputs have different numbers of samples ({listed}). Give as many of each."
        )
    count = next(iter(counts.values()))
    return islice(({name: array[place] for name, array in arrays.items()} for place in range(count)), most)
