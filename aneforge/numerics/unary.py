"""Functions of one number: worked out on every fp16 number that can come in, so nothing about them is estimated."""

from __future__ import annotations

import math
from functools import cache

import numpy as np

from aneforge.anec.interpret import rule_of
from aneforge.anec.ir import Op
from aneforge.anec.traits import Trait
from aneforge.graph.cache import SharedCache
from aneforge.numerics.values import ANYTHING, Value, rounding
from aneforge.sim.engine import Engine
from aneforge.sim.half import widened
from aneforge.sim.rules import prepared

Array = np.ndarray


@cache
def _halves() -> Array:
    """Every fp16 number from -infinity to infinity in order, one zero."""
    numbers = np.arange(65536, dtype=np.uint16).view(np.float16)
    numbers = numbers[~np.isnan(numbers) & (numbers.view(np.uint16) != 0x8000)]
    order = np.argsort(numbers.astype(np.float64), kind="stable")
    return numbers[order]


@cache
def _wide() -> Array:
    return _halves().astype(np.float64)


def through(engine: Engine, op: Op, value: Value) -> Value:
    """What an op without other operands makes of a value.

    The chip's own results for every number in the interval give the new interval and the local error. What an error of
    the input does is the variation of the exact function around each of those numbers.
    """
    wide, table = _wide(), _table(engine, op)
    low, high = (-math.inf, math.inf) if value.special else (value.low, value.high)
    part = int(wide.searchsorted(low, "left")), int(wide.searchsorted(high, "right"))
    ends = table.ends(*part)
    if ends is None:
        return ANYTHING
    special = not table.is_finite(*part)
    result = Value(*ends, special, math.inf)
    if special or value.special or not math.isfinite(value.error):
        return result if special else Value(result.low, result.high, False, _spread(op, result))
    if op.is_a(Trait.EXACT):  # it picks or clamps: never steeper than one
        return Value(result.low, result.high, False, value.error)
    error = _error(op, wide, table.results[slice(*part)].astype(np.float64), part, value.error)
    return Value(result.low, result.high, False, min(error, _spread(op, result)))


class _Table:
    """The chip's results of a function for every fp16 number, in the order of the numbers."""

    def __init__(self, results: Array) -> None:
        self.results = results
        finite = np.isfinite(results)
        # How many results before a place are not finite.
        self._lost = np.concatenate(([0], np.cumsum(~finite))).astype(np.int32)
        self._rises = bool(finite.all() and (np.diff(results) >= 0).all())

    def is_finite(self, first: int, last: int) -> bool:
        return bool(self._lost[first] == self._lost[last])

    def ends(self, first: int, last: int) -> tuple[float, float] | None:
        """The least and the largest finite result between two places; None where there is none."""
        if last - first <= self._lost[last] - self._lost[first]:
            return None
        if self._rises:
            return float(self.results[first]), float(self.results[last - 1])
        inside = self.results[first:last]
        finite = inside if self.is_finite(first, last) else inside[np.isfinite(inside)]
        return float(finite.min()), float(finite.max())


_known: SharedCache[_Table] = SharedCache(16)


def _table(engine: Engine, op: Op) -> _Table:
    """Worked out once for all ops of one kind and attributes: networks repeat them, with other numbers."""
    key = engine, op.kind, op.type and op.type.dtype, *op.attrs.items()
    table = _known.get(key)
    if table is None:
        simulated = prepared(engine, op, None, {}).call(_halves().reshape(1, 1, 1, 1, -1)).reshape(-1)
        table = _known.keep(key, _Table(simulated.astype(np.float32)))
    return table


def _exact(op: Op, numbers: Array) -> Array:
    with np.errstate(all="ignore"):
        return np.asarray(rule_of(op)(op, widened(numbers).reshape(1, 1, 1, 1, -1)), np.float64).reshape(-1)


def _spread(op: Op, result: Value) -> float:
    """The exact function's own reach is not known here, so only that of functions with ends bounds an error."""
    ends = _ENDS.get(op.kind)
    return math.inf if ends is None else max(result.high, ends[1]) - min(result.low, ends[0])


_ENDS = {
    "sigmoid": (0.0, 1.0),
    "high_precision_sigmoid": (0.0, 1.0),
    "tanh": (-1.0, 1.0),
    "erf": (-1.0, 1.0),
    "sin": (-1.0, 1.0),
    "cos": (-1.0, 1.0),
    "sign": (-1.0, 1.0),
}


def _error(op: Op, wide: Array, results: Array, part: tuple[int, int], error: float) -> float:
    """The largest of |result - f(x)| over the numbers of the interval and all x as far from them as the error says."""
    first, last = part
    reach_low, reach_high = wide[first] - error, wide[last - 1] + error
    start = max(int(np.searchsorted(wide, reach_low, "right")) - 1, 0)
    end = min(int(np.searchsorted(wide, reach_high, "left")) + 1, wide.size)
    around = _halves()[start:end]
    exact = _exact(op, around)
    if not np.isfinite(exact).all():
        return math.inf
    numbers = wide[first:last]
    left = np.maximum(np.searchsorted(wide[start:end], numbers - error, "right") - 1, 0)
    right = np.minimum(np.searchsorted(wide[start:end], numbers + error, "left"), exact.size - 1)
    highest, lowest = _extremes(exact, left, right)
    most = np.maximum(np.abs(results - highest), np.abs(results - lowest)).max()
    # Between two neighbouring fp16 numbers a smooth function leaves their values by far less than a rounding.
    return float(most) + rounding(float(np.abs(exact).max()))


def _extremes(values: Array, left: Array, right: Array) -> tuple[Array, Array]:
    """The largest and the smallest of ``values[left .. right]``, for many ranges at once."""
    levels = [(values, values)]
    while 2 ** len(levels) <= values.size:
        high, low = levels[-1]
        half = 2 ** (len(levels) - 1)
        levels.append((np.maximum(high[:-half], high[half:]), np.minimum(low[:-half], low[half:])))
    length = right - left + 1
    level = np.floor(np.log2(length)).astype(int)
    highest, lowest = np.empty(left.size), np.empty(left.size)
    for number in np.flatnonzero(np.bincount(level)):  # np.unique would import numpy.ma
        some = level == number
        high, low = levels[number]
        other = right[some] - 2**number + 1
        highest[some] = np.maximum(high[left[some]], high[other])
        lowest[some] = np.minimum(low[left[some]], low[other])
    return highest, lowest
