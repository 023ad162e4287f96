"""What a change does to the numbers: the changed model and the untouched one, simulated on the same inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import fsum
from typing import Any

import numpy as np

from aneforge.cost.estimate import Estimate
from aneforge.errors import AneforgeError, ArgumentError
from aneforge.sim.inputs import samples_of
from aneforge.study.partition import Partition

_EXACT_FLOPS = 8e9  # above it the exact engine takes many seconds a run, and sums are done in single precision

Outputs = dict[str, np.ndarray]
Metric = Callable[[Sequence[Outputs], Sequence[Outputs]], float]
"""Takes the outputs of each sample by name, then those of the untouched model, and gives one number."""


@dataclass(frozen=True)
class Deviation:
    """How far two programs are apart on the same inputs."""

    error: float
    same_bits: bool
    cosine: float = 1.0
    """Of all outputs laid end to end, the smallest of the samples."""


class Checker:
    """Compares programs with an untouched one, whose numbers are made once and only when they are asked for.

    ``samples`` are inputs by name, one mapping each. Without a mode large models are simulated fast, others exactly.
    """

    def __init__(
        self,
        untouched: Partition,
        estimate: Estimate,
        samples: Iterable[Mapping[str, np.ndarray]],
        mode: str | None = None,
    ) -> None:
        flops = fsum(layer.flops for layer in estimate.layers)
        self.mode = mode or ("exact" if flops <= _EXACT_FLOPS else "fast")
        self._untouched = untouched
        self.samples = list(samples)

    @classmethod
    def on(cls, untouched: Partition, estimate: Estimate, inputs: Any) -> Checker:
        """On the user's inputs, or on one sample from a fixed seed."""
        samples = list(samples_of(untouched.graph, inputs, samples=1 if inputs is None else None))
        ports = [untouched.names[port.uid] for port in untouched.graph.inputs]
        for port in ports:
            if any(port not in sample for sample in samples):
                raise AneforgeError(f"{port}: this input has no value. The graph takes {', '.join(ports)}.")
        return cls(untouched, estimate, samples)

    @cached_property
    def expected(self) -> list[Outputs]:
        """The untouched outputs of each sample."""
        return self.outputs(self._untouched)

    def outputs(self, split: Partition) -> list[Outputs]:
        """The outputs of each sample by name."""
        runner = split.runner(self.mode)
        return [runner.run(feeds).outputs for feeds in self.samples]

    def __call__(self, other: Partition) -> Deviation:
        """The largest error over all outputs and samples."""
        return self.compared(self.outputs(other))

    def compared(self, outputs: Sequence[Outputs]) -> Deviation:
        pairs = [
            list(zip(expected.values(), actual.values(), strict=True))
            for expected, actual in zip(self.expected, outputs, strict=True)
        ]
        flat = [pair for sample in pairs for pair in sample]
        if all(np.array_equal(a, b, equal_nan=a.dtype.kind == "f") for a, b in flat):
            return Deviation(0.0, True)
        return Deviation(max(distance(a, b) for a, b in flat), False, min(map(_cosine, pairs)))


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


def _top1(outputs: Sequence[Outputs], expected: Sequence[Outputs]) -> float:
    """The share of rows of the first output whose largest number is at the same place as in the untouched model."""
    same = [
        np.argmax(next(iter(ours.values())), axis=-1) == np.argmax(next(iter(theirs.values())), axis=-1)
        for ours, theirs in zip(outputs, expected, strict=True)
    ]
    return float(np.mean(np.concatenate([np.atleast_1d(part).reshape(-1) for part in same])))


def _rmse(outputs: Sequence[Outputs], expected: Sequence[Outputs]) -> float:
    """The root of the mean square difference over all outputs."""
    gaps = [
        (ours[name].astype(np.float64) - theirs[name].astype(np.float64)).reshape(-1)
        for ours, theirs in zip(outputs, expected, strict=True)
        for name in theirs
    ]
    return float(np.sqrt(np.mean(np.concatenate(gaps) ** 2)))


METRICS: dict[str, Metric] = {"top1": _top1, "rmse": _rmse}


def metric_of(metric: str | Metric | None) -> Metric | None:
    """A metric by name, or the user's own function, which must give one number."""
    if metric is None:
        return None
    if isinstance(metric, str):
        if metric not in METRICS:
            raise ArgumentError(
                "metric", f"{metric!r} is not a metric; choose one: {', '.join(METRICS)}, or give a function."
            )
        return METRICS[metric]
    if not callable(metric):
        raise ArgumentError("metric", f"{metric!r} is neither a name nor a function of two lists of outputs.")
    own = metric

    def checked(outputs: Sequence[Outputs], expected: Sequence[Outputs]) -> float:
        try:
            value: Any = own(outputs, expected)
            return float(value)
        except Exception as error:  # the user's own code: say where it failed
            problem = f"the function failed: {type(error).__name__}: {error}. It takes two lists of outputs by name."
            raise ArgumentError("metric", problem) from None

    return checked
