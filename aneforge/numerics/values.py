"""What is known of a tensor without running it: between which numbers it lies, and how far it may be off.

A ``Value`` holds for every element and every run whose inputs lie in their ranges. It is about the simulated numbers
of one chip: ``low`` and ``high`` enclose the finite ones, ``special`` says whether others may occur, and ``error``
bounds how far a finite one is from what exact arithmetic on the same inputs would give.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from aneforge.sim.half import LARGEST, round_half, round_half_twice

__all__ = ["ANYTHING", "Value", "hull", "of_array", "product_error", "rounded", "rounding", "scaled"]

_RELATIVE, _SMALLEST = 2.0**-11, 2.0**-24
_LOST = 65520.0  # from here on a rounding gives infinity


@dataclass(frozen=True)
class Value:
    low: float
    high: float
    special: bool = False
    """Infinite numbers may occur."""
    error: float = 0.0

    @property
    def size(self) -> float:
        """The largest magnitude of a finite number."""
        return max(abs(self.low), abs(self.high))

    @property
    def width(self) -> float:
        return self.high - self.low

    def with_zero(self) -> Value:
        """As padding with zeros makes it."""
        return replace(self, low=min(self.low, 0.0), high=max(self.high, 0.0))


ANYTHING = Value(-LARGEST, LARGEST, True, math.inf)


def rounding(size: float) -> float:
    """The most that one rounding to fp16 changes a number of this size, subnormal results and both roundings of the
    elementwise path included."""
    return size * _RELATIVE + _SMALLEST


def scaled(size: float, error: float) -> float:
    """What a factor of this size makes of an error; nothing times something unknown is nothing, either way round."""
    return 0.0 if size == 0.0 or error == 0.0 else size * error


def product_error(a: Value, b: Value) -> float:
    """The error of one product of two numbers that are off themselves."""
    return scaled(a.size, b.error) + scaled(b.size, a.error) + scaled(a.error, b.error)


def rounded(low: float, high: float, error: float, special: bool = False) -> Value:
    """Numbers between two bounds, rounded to fp16 once; ``error`` is that before the rounding."""
    size = max(abs(low), abs(high))
    if not math.isfinite(size) or size >= _LOST:
        return ANYTHING
    ends = np.array([low, high])
    both = np.concatenate([round_half(ends), round_half_twice(ends)])  # rounding keeps the order, in one step or two
    return Value(float(both.min()), float(both.max()), special, error + rounding(size))


def hull(values: Iterable[Value]) -> Value:
    """All that any of several tensors may hold."""
    every = list(values)
    return Value(
        min(value.low for value in every),
        max(value.high for value in every),
        any(value.special for value in every),
        max(value.error for value in every),
    )


def of_array(numbers: np.ndarray) -> Value:
    """A constant as it is stored."""
    wide = numbers.astype(np.float64)
    finite = wide[np.isfinite(wide)]
    special = finite.size < wide.size
    if not finite.size:
        return Value(0.0, 0.0, special)
    return Value(float(finite.min()), float(finite.max()), special)
