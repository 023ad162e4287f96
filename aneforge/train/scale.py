"""Advice on the loss scale, from the magnitudes that a backward pass has in float64."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import ceil, floor, inf, log2
from typing import Any

import numpy as np

__all__ = ["LARGEST", "PRODUCT", "ScaleAdvice", "advise"]

LARGEST = 65504.0  # of fp16 (N01)
PRODUCT = 32768.0  # from here a sum of products is infinite (N04)
_NORMAL = 2.0**-14  # below, numbers of fp16 lose digits
_LOST = 2.0**-25  # below, they are zero
_SHARE = 0.01  # of the numbers of a gradient that may lie below _NORMAL (U128)
_ROOM = 8.0  # how far the largest number stays from its ceiling, since later steps differ (U128)


@dataclass(frozen=True)
class ScaleAdvice:
    """What was seen at one loss scale, and which scale fits it."""

    loss_scale: float
    largest: float
    """The magnitude of the backward pass that is nearest to its ceiling, and where that is."""
    ceiling: float
    node: str
    lost: float
    """The share of numbers that are zero in fp16 though they are not in float64."""
    coarse: float
    """The share that fp16 holds with fewer digits."""
    least: float
    """The smallest power of two that keeps all but one number in a hundred of each node above 6e-5."""
    most: float
    """The largest power of two that leaves a factor of eight to every ceiling."""

    @property
    def advised(self) -> float:
        """The scale to use: the least, but not above the most and not below one unless it must be."""
        return min(max(self.least, 1.0), self.most)

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "advised": self.advised}

    def __str__(self) -> str:
        seen = (
            f"loss scale {self.loss_scale:g}: the largest gradient is {self.largest:.3g} of {self.ceiling:.0f} at "
            f"{self.node}; {100 * self.lost:.1f} % are lost, {100 * self.coarse:.1f} % lose digits"
        )
        if self.advised == self.loss_scale:
            return f"{seen}. Keep this scale."
        limit = "" if self.least <= self.most else f" (small gradients want {self.least:g}, the largest forbids it)"
        return f"{seen}. Advised: {self.advised:g}{limit}"


def advise(values: Mapping[str, np.ndarray], ceilings: Mapping[str, float], loss_scale: float) -> ScaleAdvice:
    """Advice from the float64 values of backward nodes by name, which carry ``loss_scale``. ``ceilings`` are those of
    nodes that end below 65504."""
    nearest, node, largest, ceiling = inf, "-", 0.0, LARGEST
    lost = coarse = counted = 0
    least = 2.0**-126
    for name, array in values.items():
        sizes = np.abs(np.asarray(array, np.float64)).reshape(-1)
        sizes = sizes[(sizes > 0) & np.isfinite(sizes)]
        if not sizes.size:
            continue
        top, limit = float(sizes.max()), ceilings.get(name, LARGEST)
        if limit / top < nearest:
            nearest, node, largest, ceiling = limit / top, name, top, limit
        counted += sizes.size
        lost += int((sizes < _LOST).sum())
        coarse += int((sizes < _NORMAL).sum())
        small = float(np.quantile(sizes, _SHARE))
        least = max(least, loss_scale * 2.0 ** ceil(log2(_NORMAL / small) - 1e-9))
    most = _power_below(loss_scale * nearest / _ROOM)
    shares = (count / counted if counted else 0.0 for count in (lost, coarse))
    return ScaleAdvice(loss_scale, largest, ceiling, node, *shares, _power_below(least * 1.5), most)


def _power_below(value: float) -> float:
    return 2.0 ** floor(log2(value)) if 0 < value < inf else 2.0**24


def ceilings_of(nodes: Iterable[tuple[str, str]], clamped: Iterable[str], limit: float) -> dict[str, float]:
    """The ceiling of each node that has one below 65504: products, and slices that clamp."""
    products = {name: PRODUCT for name, op in nodes if op in ("matmul", "linear", "conv", "conv_transpose")}
    return {**products, **dict.fromkeys(clamped, limit)}
