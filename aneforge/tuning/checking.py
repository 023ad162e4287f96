"""Whether two programs give the same numbers: both simulated on the same inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from aneforge.errors import AneforgeError
from aneforge.sim.inputs import drawn_sample
from aneforge.study.partition import Partition

__all__ = ["Check", "Checker", "distance"]

_EXACT_FLOPS = 8e9  # above it the exact engine takes many seconds a run, and sums are done in single precision

Inputs = Mapping[str, Any] | Sequence[Any] | np.ndarray | None
Outputs = dict[str, np.ndarray]


@dataclass(frozen=True)
class Check:
    """Two programs on the same inputs."""

    error: float
    same_bits: bool
    cosine: float = 1.0
    """Of all outputs laid end to end, the smallest of the samples."""


class Checker:
    """Compares programs with an untouched one, whose numbers are made once and only when they are asked for.

    ``samples`` are inputs by name, one mapping each; without them there is one sample, ``inputs``.
    """

    def __init__(
        self,
        untouched: Partition,
        flops: float,
        inputs: Inputs = None,
        samples: Sequence[Mapping[str, np.ndarray]] | None = None,
        mode: str | None = None,
    ) -> None:
        self.mode = mode or ("exact" if flops <= _EXACT_FLOPS else "fast")
        self._untouched = untouched
        self.samples = [_feeds(untouched, inputs)] if samples is None else list(samples)

    @cached_property
    def expected(self) -> list[Outputs]:
        """The untouched outputs of each sample."""
        return self.outputs(self._untouched)

    def outputs(self, split: Partition) -> list[Outputs]:
        """The outputs of each sample by name."""
        runner = split.runner(self.mode)
        return [runner.run(feeds).outputs for feeds in self.samples]

    def __call__(self, other: Partition) -> Check:
        """The largest error over all outputs and samples."""
        return self.compared(self.outputs(other))

    def compared(self, outputs: Sequence[Outputs]) -> Check:
        pairs = [
            list(zip(expected.values(), actual.values(), strict=True))
            for expected, actual in zip(self.expected, outputs, strict=True)
        ]
        flat = [pair for sample in pairs for pair in sample]
        if all(np.array_equal(a, b, equal_nan=a.dtype.kind == "f") for a, b in flat):
            return Check(0.0, True)
        return Check(max(distance(a, b) for a, b in flat), False, min(map(_cosine, pairs)))


def _cosine(pairs: Sequence[tuple[np.ndarray, np.ndarray]]) -> float:
    """Between two sets of outputs, each laid end to end; NaN where a number is not finite."""
    one, other = (np.concatenate([np.asarray(pair[i], np.float64).reshape(-1) for pair in pairs]) for i in (0, 1))
    if not (np.isfinite(one).all() and np.isfinite(other).all()):
        return float("nan")
    lengths = float(np.linalg.norm(one) * np.linalg.norm(other))
    return float(one @ other) / lengths if lengths else float(np.array_equal(one, other))


def distance(expected: np.ndarray, actual: np.ndarray) -> float:
    """The largest difference, relative to the largest number that was expected. Infinite where only one of the two is
    a number."""
    one, other = (np.asarray(array, np.float64) for array in (expected, actual))
    usual = np.isfinite(one) & np.isfinite(other)
    alike = (one == other) | (np.isnan(one) & np.isnan(other))
    if not (usual | alike).all():
        return float("inf")
    gap = float(np.abs(one[usual] - other[usual]).max(initial=0.0))
    largest = float(np.abs(one[usual]).max(initial=0.0))
    if gap == 0.0:
        return 0.0
    return gap / largest if largest else float("inf")


def _feeds(split: Partition, inputs: Inputs) -> dict[str, np.ndarray]:
    """The user's inputs by name, or numbers drawn from a fixed seed."""
    ports = [split.names[port.uid] for port in split.graph.inputs]
    names = ", ".join(ports)
    if inputs is None:
        return drawn_sample(split.graph)
    if isinstance(inputs, Mapping):
        missing = [port for port in ports if port not in inputs]
        if missing:
            raise AneforgeError(f"{missing[0]}: this input has no value. The graph takes {names}.")
        return dict(inputs)
    arrays = [inputs] if isinstance(inputs, np.ndarray) else list(inputs)
    if len(arrays) != len(ports):
        raise AneforgeError(f"inputs: {len(arrays)} were given; the graph takes {len(ports)}: {names}.")
    return dict(zip(ports, arrays, strict=True))
