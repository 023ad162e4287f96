"""What is known of a tensor without running it: between which numbers it lies, and how far it may be off.

A ``Value`` holds for every element and every run whose inputs lie in their ranges. It is about the simulated numbers
of one chip: ``low`` and ``high`` enclose the finite ones, ``special`` says whether others may occur, and ``error``
bounds how far a finite one is from what exact arithmetic on the same inputs would give.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from aneforge.graph.halves import FP16_MAX

_RELATIVE, _SMALLEST = 2.0**-11, 2.0**-24
_LOST = 65520.0  # from here on a rounding gives infinity
_BITS, _GRID = 11, -24

NOT_KNOWN, EACH_ALONE, ALL_AT_ONCE, STORED = range(4)
"""How far the ends of a value are numbers that some input gives: not known, for each element by itself, for all
elements at once in any mixture, and a constant."""


class Value(NamedTuple):
    low: float
    high: float
    special: bool = False
    """Infinite numbers may occur."""
    error: float = 0.0
    open_low: bool = False
    """Whether the lower end rests on an input that nobody bounded; the interval holds for every finite one."""
    open_high: bool = False
    attained: int = ALL_AT_ONCE

    @property
    def size(self) -> float:
        """The largest magnitude of a finite number."""
        return max(abs(self.low), abs(self.high))

    @property
    def width(self) -> float:
        return self.high - self.low

    @property
    def is_open(self) -> bool:
        """Whether it rests on an input that nobody bounded."""
        return self.open_low or self.open_high

    def with_zero(self) -> Value:
        """As padding with zeros makes it."""
        low, high = min(self.low, 0.0), max(self.high, 0.0)
        return self if (low, high) == (self.low, self.high) else self._replace(low=low, high=high)

    def shrunk(self) -> Value:
        """The same if inputs that nobody bounded were smaller by half: open ends move towards zero."""
        if not self.is_open:
            return self
        low = self.low / 2 if self.open_low and self.low < 0.0 else self.low
        high = self.high / 2 if self.open_high and self.high > 0.0 else self.high
        return Value(low, max(low, high), False, self.error)


OPEN = Value(-FP16_MAX, FP16_MAX, False, 0.0, True, True)
"""Any finite number: an input that nobody bounded."""
ANYTHING = Value(-FP16_MAX, FP16_MAX, True, math.inf)


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
    if not size < _LOST:
        return ANYTHING
    # Rounding keeps the order, in one step or in the two of elementwise results (N53).
    least, most = (_half(low), _half(_half(low, None))), (_half(high), _half(_half(high, None)))
    return Value(min(least), max(most), special, error + rounding(size))


def _half(number: float, grid: int | None = _GRID) -> float:
    """The nearest number of 11 bits, ties away from zero, and of no finer step than 2^grid."""
    exponent = math.frexp(number)[1] - _BITS
    step = exponent if grid is None or exponent > grid else grid
    return math.copysign(math.ldexp(math.floor(math.ldexp(abs(number), -step) + 0.5), step), number)


def hull(values: Iterable[Value]) -> Value:
    """All that any of several tensors may hold."""
    every = list(values)
    if len(every) == 1:
        return every[0]
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
        return Value(0.0, 0.0, special, attained=STORED)
    return Value(float(finite.min()), float(finite.max()), special, attained=STORED)
