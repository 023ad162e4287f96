"""Functions of one number, worked out on every fp16 number that can come in; and what sums of small products lose."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from aneforge.engine.interpret import named_constants, rule_of
from aneforge.engine.ir import Module, Op
from aneforge.engine.traits import Trait
from aneforge.graph.cache import SharedCache
from aneforge.numerics.products import depth_of, shares_in
from aneforge.numerics.ranges import ANYTHING, Value, numbers_of, remembered, rounding
from aneforge.sim.engine import Engine
from aneforge.sim.half import decoded, exponents, widened
from aneforge.sim.mac import LANES, LOSSY_FROM, STEP, rounded_products
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
    if (values[1:] >= values[:-1]).all():
        return values[right], values[left]
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


# What a sum of small products is expected to lose, before it is run.


NOTICED = 0.01
"""An expected error from which a risk is reported."""
_POINTS = 256  # numbers that stand for a range or a kernel
_SAFE = 1024  # steps from which the loss of a product does not count
_LARGEST_FACTOR = 2.0**14  # its reciprocal is the smallest normal number
_TYPICAL = Value(-1.0, 1.0)
"""What values are taken for where nothing bounds them: about those of a normalised network."""


@dataclass(frozen=True)
class Underflow:
    """What a sum of products is expected to lose."""

    error: float
    """The relative error of its result."""
    factor: float
    """The power of two that removes it."""
    terms: int
    value: Value
    """What it was worked out for: the values that meet the probabilities, or the first operand."""
    probabilities: bool = False
    assumed: bool = False
    """Whether nothing bounds the values, so that they were taken to be about one."""


def underflows_of(engine: Engine, module: Module, op: Op, read: Sequence[Value]) -> Iterator[Underflow]:
    """What each sum of products in an op is expected to lose, where that can be said.

    Probabilities are taken to be even, which is where a long row loses most. Other values are taken to be spread over
    their ranges.
    """
    if op.kind == "sdpa":
        keys = op.operands[1].shape[2]
        yield from _of_values(engine, read[0], read[1], op.operands[0].shape[4])
        yield _of_shares(engine, read[2], keys, 1.0)
    elif op.is_a(Trait.CONTRACTION):
        shares = shares_in(module, op)
        if shares is not None:
            yield _of_shares(engine, read[1 - shares.place], shares.count, shares.total)
            return
        weights = _kernel_numbers(module, op)
        if weights is not None or op.operands[1].kind != "const_in":
            yield from _of_values(engine, read[0], read[1], depth_of(op), weights)


def _of_shares(engine: Engine, other: Value, count: int, total: float) -> Underflow:
    values = _TYPICAL if other.special or other.is_open else other
    error = expected_loss(engine, np.array([total / count]), _points_of(values), count)
    return Underflow(error, factor_for(values.size, count), count, values, True, values is not other)


def _of_values(
    engine: Engine, x: Value, other: Value, terms: int, weights: Array | None = None
) -> Iterator[Underflow]:
    if not x.special and not other.special:
        error = expected_loss(engine, _points_of(x), _points_of(other) if weights is None else weights, terms)
        yield Underflow(error, factor_for(terms * x.size * other.size, terms), terms, x)


def expected_loss(engine: Engine, left: Array, right: Array, terms: int) -> float:
    """The relative error of a sum of ``terms`` products of numbers that are drawn from both lists."""
    a, b = (np.asarray(numbers).astype(np.float16).reshape(-1) for numbers in (left, right))
    exact = np.multiply.outer(a.astype(np.float64), b.astype(np.float64))
    scale = math.sqrt(float((exact**2).mean())) if exact.size else 0.0
    if scale == 0.0 or scale > _SAFE * STEP:  # a product loses at most two steps
        return 0.0
    powers = exponents(a)[:, None] + exponents(b)
    wide = decoded(a, engine.flush_subnormals)[:, None], decoded(b, engine.flush_subnormals)[None]
    off = rounded_products(*wide, powers) * STEP - exact
    return _size_of_sum(off, terms) / _size_of_sum(exact, terms)


def _size_of_sum(numbers: Array, terms: int) -> float:
    """The expected magnitude of a sum of independent draws."""
    return math.sqrt(terms * float(numbers.var()) + (terms * float(numbers.mean())) ** 2)


def factor_for(reach: float, most: float) -> float:
    """The power of two that makes products large, while no tile of the sum reaches where some chips round it."""
    room = LOSSY_FROM / LANES / max(reach, 1e-30)
    wanted = 2.0 ** math.ceil(math.log2(max(most, 64.0)))
    return float(min(2.0 ** math.floor(math.log2(room)), 4 * wanted, _LARGEST_FACTOR))


def _points_of(value: Value) -> Array:
    """Numbers that stand for a range, in the middle of equal parts of it."""
    return value.low + (np.arange(_POINTS) + 0.5) / _POINTS * value.width


def _kernel_numbers(module: Module, op: Op) -> Array | None:
    """Some numbers of a stored kernel; None if there is none, or its codes are decoded in other ways."""
    kernel = op.operands[1]
    if kernel.kind != "const_in" or named_constants(module, op):
        return None

    def sample() -> Array:
        numbers = numbers_of(module, kernel).reshape(-1)
        return numbers[:: max(1, numbers.size // _POINTS)][:_POINTS]

    return remembered(("sample", kernel.attrs["weight"]), sample)
