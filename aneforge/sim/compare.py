"""Measure how far two results are apart."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np

from aneforge.sim.half import has_special
from aneforge.sim.nodes import NodeValues

Array = np.ndarray

QUANTILE = 1.959963984540054
"""Of the normal distribution, for a confidence of 95 per cent."""


def share_interval(share: float, count: int) -> tuple[float, float]:
    """Between which shares that of all samples lies, by Wilson, where ``count`` of them gave a share."""
    square = QUANTILE**2
    middle = (share + square / (2 * count)) / (1 + square / count)
    half = QUANTILE / (1 + square / count) * sqrt(share * (1 - share) / count + square / (4 * count**2))
    return max(0.0, middle - half), min(1.0, middle + half)


# Statistics.


class Tally:
    """How far two results are apart, over all arrays that are added; the arrays themselves are not kept.

    Steps of fp16 are counted where both numbers are finite, or neither is. A number that is finite on one side only is
    lost on the other, and is counted separately, since no number of steps leads to it.
    """

    def __init__(self) -> None:
        self.elements = 0
        self.changed = 0  # elements with other bits
        self.lost_first = 0  # finite in the second only
        self.lost_second = 0  # finite in the first only
        self.max_ulp = 0
        self.max_abs = 0.0  # this and all below: over pairs that are both finite
        self.largest = 0.0  # the largest number of both
        self._steps = 0
        self._square_gap = 0.0
        self._square_first = 0.0
        self._square_second = 0.0
        self._product = 0.0

    def add(self, first: Array, second: Array) -> None:
        """Add two fp16 arrays, or two boolean arrays, of one shape."""
        a, b = _halves(first), _halves(second)
        self.elements += a.size
        changed = 0 if first is second else int((a.view(np.uint16) != b.view(np.uint16)).sum())
        if has_special(a) or has_special(b):
            finite_a, finite_b = np.isfinite(a), np.isfinite(b)
            self.lost_first += int((finite_b & ~finite_a).sum())
            self.lost_second += int((finite_a & ~finite_b).sum())
            alike, both = finite_a == finite_b, finite_a & finite_b
            self._count(a[alike], b[alike], changed)
            self._measure(a[both], b[both], changed)
        else:
            self._count(a, b, changed)
            self._measure(a, b, changed)
        self.changed += changed

    def _count(self, a: Array, b: Array, changed: int) -> None:
        if changed:
            apart = steps_apart(a, b)
            self.max_ulp = max(self.max_ulp, int(apart.max(initial=0)))
            self._steps += int(apart.sum(dtype=np.int64))

    def _measure(self, a: Array, b: Array, changed: int) -> None:
        first = a.reshape(-1).astype(np.float64)
        self.largest = max(self.largest, float(np.abs(first).max(initial=0.0)))  # NumPy is slow at this in fp16
        square = float(first @ first)
        self._square_first += square
        if not changed:
            self._square_second += square
            self._product += square
            return
        second = b.reshape(-1).astype(np.float64)
        self.largest = max(self.largest, float(np.abs(second).max(initial=0.0)))
        gap = first - second
        self.max_abs = max(self.max_abs, float(np.abs(gap).max(initial=0.0)))
        self._square_second += float(second @ second)
        self._product += float(first @ second)
        self._square_gap += float(gap @ gap)

    @property
    def lost(self) -> int:
        """Elements that are finite on one side only."""
        return self.lost_first + self.lost_second

    @property
    def mean_ulp(self) -> float:
        counted = self.elements - self.lost
        return self._steps / counted if counted else 0.0

    @property
    def scaled_ulp(self) -> float:
        """The largest difference, in fp16 steps of the size at the largest number. Near zero steps are tiny, so that
        many of them may not matter."""
        return self.max_abs / float(np.spacing(np.float16(self.largest))) if self.max_abs else 0.0

    @property
    def relative(self) -> float:
        """The norm of the difference divided by that of the first result, over what is finite in both."""
        if not self._square_gap:
            return 0.0
        return sqrt(self._square_gap / self._square_first) if self._square_first else float("inf")

    @property
    def cosine(self) -> float:
        """The cosine of the angle between both results, over what is finite in both; 1 where nothing differs."""
        if not self._square_gap:
            return 1.0
        size = sqrt(self._square_first) * sqrt(self._square_second)
        return max(-1.0, min(1.0, self._product / size)) if size else 0.0


def _halves(values: Array) -> Array:
    """As contiguous fp16; true is one and false zero. A NaN becomes infinity, which is what the engine reads (N31)."""
    array = np.ascontiguousarray(values, np.float16)
    return np.where(np.isnan(array), np.float16(np.inf), array) if has_special(array) else array


def steps_apart(a: Array, b: Array) -> Array:
    """How many fp16 numbers lie between two arrays, element by element; +0 and -0 count as one number."""
    return np.abs(_rank(a) - _rank(b))


def _rank(values: Array) -> Array:
    bits = values.view(np.uint16).astype(np.int32)
    return np.where(bits & 0x8000, -(bits & 0x7FFF), bits)


# Two runs, node by node.


@dataclass(frozen=True)
class Difference:
    """One node on two chips."""

    node: str
    op: str
    elements: int
    changed: int
    """Elements with other bits."""
    most_steps: int
    """The largest distance, in steps of fp16."""
    largest: float
    """The largest difference between finite results."""
    relative: float
    """The norm of the difference over that of the first chip's result, where both are finite."""
    lost: int
    """Elements that are finite on the first chip only."""

    def to_json(self) -> dict[str, Any]:
        return dict(self.__dict__)


def differences(first: NodeValues, second: NodeValues) -> list[Difference]:
    """Every node that two runs have values of, in the order of the first program, and how far apart they are."""
    shown = first.completed_by()
    return [_difference(name, op, first[name], second[name]) for name, op in shown.items() if name in second]


def _difference(name: str, op: str, first: Array, second: Array) -> Difference:
    apart = Tally()
    apart.add(first, second)
    return Difference(
        name,
        op,
        elements=apart.elements,
        changed=apart.changed,
        most_steps=apart.max_ulp,
        largest=apart.max_abs,
        relative=apart.relative,
        lost=apart.lost_second,
    )


# Summarise an array: its shape, its range and mean, and how much of it is not finite.


class Summary:
    """Figures over all arrays of one shape that are added; the arrays themselves are not kept."""

    def __init__(self, *arrays: np.ndarray) -> None:
        self.shape: tuple[int, ...] = ()
        self.elements = 0
        self.not_finite = 0
        self.true: int | None = None
        self._low, self._high, self._sum = np.inf, -np.inf, 0.0
        for values in arrays:
            self.add(values)

    def add(self, values: np.ndarray) -> None:
        self.shape = values.shape
        self.elements += values.size
        if values.dtype == bool:
            self.true = (self.true or 0) + int(values.sum())
            return
        wide = values.astype(np.float64)
        finite = wide[np.isfinite(wide)]
        self.not_finite += wide.size - finite.size
        if finite.size:
            self._low, self._high = min(self._low, float(finite.min())), max(self._high, float(finite.max()))
            self._sum += float(finite.sum())

    def __str__(self) -> str:
        if self.true is not None:
            return f"{self.true} of {self.elements} true"
        finite = self.elements - self.not_finite
        span = f"{self._low:.6g} to {self._high:.6g}, mean {self._sum / finite:.6g}" if finite else "nothing finite"
        return f"{span}{f', {self.not_finite} infinite' if self.not_finite else ''}"

    def to_json(self) -> dict[str, Any]:
        return {"shape": list(self.shape), "values": str(self)}
