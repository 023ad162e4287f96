"""How good a model's outputs are for its task, next to those of the fp16 model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from aneforge.errors import ArgumentError

__all__ = ["METRICS", "Metric", "metric_of"]

Outputs = dict[str, np.ndarray]
Metric = Callable[[Sequence[Outputs], Sequence[Outputs]], float]
"""Takes the outputs of each sample by name, then those of the fp16 model, and gives one number."""


def _top1(outputs: Sequence[Outputs], expected: Sequence[Outputs]) -> float:
    """The share of rows of the first output whose largest number is at the same place as with fp16 weights."""
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
