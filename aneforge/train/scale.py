"""Advice on the loss scale, from the magnitudes that a backward pass has in float64.

Two things lose a small gradient. fp16 has no number below 2^-24, and a sum of products has no digit below 2^-16 (N03,
N11), on every chip. Three things lose a large one: fp16 ends at 65504, sums of products end at 32768 (N04), and slices
that clamp at 4094 (N18).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import ceil, floor, inf, log2
from typing import Any, NamedTuple

import numpy as np

from aneforge.graph.halves import FP16_MAX
from aneforge.graph.node import ops_with
from aneforge.graph.traits import GraphTrait

_BITS = 4  # that a number must keep: as many as gradcheck's tolerance asks for
_SHARE = 0.01  # of the numbers of a node that may keep fewer (U128)
_ROOM = 8.0  # how far the largest number stays from its ceiling, since later steps differ (U128)


class Span(NamedTuple):
    """What an op's result can hold: the value of its last digit at small numbers, and where it ends."""

    digit: float = 2.0**-24
    ceiling: float = FP16_MAX

    @property
    def floor(self) -> float:
        """The smallest number that keeps enough bits."""
        return self.digit * 2.0**_BITS


FP16 = Span()
PRODUCT = Span(2.0**-16, 32768.0)


@dataclass(frozen=True)
class ScaleAdvice:
    """What was seen at one loss scale, and which scale fits it."""

    loss_scale: float
    largest: float
    """The magnitude of the backward pass that is nearest to its ceiling, and where that is."""
    ceiling: float
    node: str
    lost: float
    """The share of numbers that are less than half a digit, so zero."""
    coarse: float
    """The share that keeps fewer than four bits."""
    least: float
    """The smallest power of two at which all but one number in a hundred of each node keeps four bits."""
    most: float
    """The largest power of two that leaves a factor of eight to every ceiling."""

    @property
    def advised(self) -> float:
        """The scale to use: the least, at least one, and never above the most."""
        return min(max(self.least, 1.0), self.most)

    @property
    def fits(self) -> bool:
        """Whether the scale that was used is one of those that fit."""
        return min(self.advised, self.least) <= self.loss_scale <= self.most

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "advised": self.advised, "fits": self.fits}

    def __str__(self) -> str:
        seen = (
            f"loss scale {self.loss_scale:g}: the largest gradient is {self.largest:.3g} of {self.ceiling:.0f} at "
            f"{self.node}; {100 * self.lost:.1f} % are zero, {100 * self.coarse:.1f} % keep fewer than {_BITS} bits"
        )
        if self.fits:
            return f"{seen}. Keep this scale."
        limit = "" if self.least <= self.most else f" (small gradients want {self.least:g}, the largest forbids it)"
        return f"{seen}. Advised: {self.advised:g}{limit}"


def advise(values: Mapping[str, np.ndarray], spans: Mapping[str, Span], loss_scale: float) -> ScaleAdvice:
    """Advice from the float64 values of backward nodes by name, which carry ``loss_scale``; ``spans`` are those of
    nodes that hold less than fp16."""
    nearest, node, largest, ceiling = inf, "-", 0.0, FP16.ceiling
    lost = coarse = counted = 0
    least = 0.0
    for name, array in values.items():
        sizes = np.abs(np.asarray(array, np.float64)).reshape(-1)
        sizes = sizes[(sizes > 0) & np.isfinite(sizes)]
        if not sizes.size:
            continue
        top, span = float(sizes.max()), spans.get(name, FP16)
        if span.ceiling / top < nearest:
            nearest, node, largest, ceiling = span.ceiling / top, name, top, span.ceiling
        counted += sizes.size
        lost += int((sizes < span.digit / 2).sum())
        coarse += int((sizes < span.floor).sum())
        small = float(np.quantile(sizes, _SHARE, method="lower"))
        least = max(least, loss_scale * span.floor / small)
    return ScaleAdvice(
        loss_scale,
        largest,
        ceiling,
        node,
        lost=lost / max(counted, 1),
        coarse=coarse / max(counted, 1),
        least=_power(least, up=True),
        most=_power(loss_scale * nearest / _ROOM, up=False),
    )


def _power(value: float, up: bool) -> float:
    """The power of two next to a number; a gradient that is zero everywhere asks for none."""
    if not 0 < value < inf:
        return 1.0 if up else 2.0**24
    exponent = log2(value)
    return 2.0 ** (ceil(exponent - 1e-9) if up else floor(exponent + 1e-9))


def spans_of(nodes: Iterable[tuple[str, str]], clamped: Iterable[str], limit: float) -> dict[str, Span]:
    """What each node holds that holds less than fp16, from its name and op: products, and slices that clamp."""
    products = {name: PRODUCT for name, op in nodes if op in ops_with(GraphTrait.PRODUCT)}
    return {**products, **dict.fromkeys(clamped, Span(ceiling=limit))}
