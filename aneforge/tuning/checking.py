"""Whether two programs give the same numbers: both simulated on the same inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from aneforge.errors import AneforgeError
from aneforge.regions.partition import Partition
from aneforge.sim.inputs import drawn_sample

__all__ = ["Check", "Checker", "distance"]

_EXACT_FLOPS = 8e9  # above it the exact engine takes many seconds a run, and sums are done in single precision

Inputs = Mapping[str, Any] | Sequence[Any] | np.ndarray | None


@dataclass(frozen=True)
class Check:
    """Two programs on the same inputs."""

    error: float
    same_bits: bool


class Checker:
    """Compares programs with an untouched one, whose numbers are made once and only when they are asked for."""

    def __init__(self, untouched: Partition, flops: float, inputs: Inputs = None) -> None:
        self.mode = "exact" if flops <= _EXACT_FLOPS else "fast"
        self._untouched = untouched
        self.feeds = _feeds(untouched, inputs)

    @cached_property
    def _expected(self) -> list[np.ndarray]:
        return list(self._untouched.run(self.feeds, self.mode).values())

    def __call__(self, other: Partition) -> Check:
        """The largest error over all outputs."""
        outputs = list(other.run(self.feeds, self.mode).values())
        pairs = list(zip(self._expected, outputs, strict=True))
        same = all(np.array_equal(a, b, equal_nan=a.dtype.kind == "f") for a, b in pairs)
        return Check(0.0 if same else max(distance(a, b) for a, b in pairs), same)


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
