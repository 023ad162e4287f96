"""What is known of a tensor without running it: between which numbers it lies, and how far it may be off.

A ``Value`` holds for every element and every run whose inputs lie in their ranges. It is about the simulated numbers
of one chip: ``low`` and ``high`` enclose the finite ones, ``special`` says whether others may occur, and ``error``
bounds how far a finite one is from what exact arithmetic on the same inputs would give.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import fields
from typing import Any, NamedTuple, TypeVar

import numpy as np

from aneforge.chips.chip import Target
from aneforge.engine.interpret import laid_out
from aneforge.engine.ir import Module, Op
from aneforge.errors import AneforgeError
from aneforge.graph.cache import SharedCache
from aneforge.graph.graph import Graph
from aneforge.graph.halves import FP16_MAX
from aneforge.graph.tensor import Tensor
from aneforge.graph.views import hands_on, promised_range
from aneforge.graph.weights import Weight
from aneforge.sim.engine import Engine

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


# What is known of the inputs of a program before anybody says more: promises, and what the host hands over.


_MOST = 1 << 26  # numbers of a table that is looked through


def promised_values(graph: Graph, names: Mapping[int, str]) -> dict[str, Value]:
    """What each input can be, by name; any finite number where nobody bounded it."""
    values: dict[str, Value] = {}
    for node in graph.inputs:
        ends = (0.0, 1.0) if node.dtype == "bool" else promised_range(node)
        bounded = ends is not None and ends[1] <= FP16_MAX  # a promise beyond fp16 says nothing
        values[names[node.uid]] = as_stored(*ends) if ends is not None and bounded else OPEN
    return values


def as_stored(low: float, high: float) -> Value:
    """A range as the host rounds what lies in it to fp16."""
    half = np.array([low, high]).astype(np.float16).astype(np.float64)
    return Value(min(low, float(half[0])), max(high, float(half[1])))


def handed_on(nodes: Iterable[Tensor]) -> dict[int, Value]:
    """What nodes of the host give that only pick or move numbers, as an embedding does, by uid."""
    values: dict[int, Value] = {}
    for node in nodes:
        if hands_on(node):
            read = [_ends(operand, values) for operand in node.inputs if operand.dtype == "fp16"]
            known = [value for value in read if value is not None]
            if known and len(known) == len(read):
                low, high = min(value.low for value in known), max(value.high for value in known)
                values[node.uid] = Value(low, high)
    return values


def _ends(operand: Tensor, known: Mapping[int, Value]) -> Value | None:
    if operand.weight is None or operand.weight.encoded is not None or operand.weight.size > _MOST:
        return known.get(operand.uid)
    array = np.asarray(operand.weight.array)
    return Value(float(array.min()), float(array.max())) if np.isfinite(array).all() else None


# What is needed of stored weights, worked out once for each: their keys name their content, so it holds for good.


T = TypeVar("T")
_known: SharedCache[Any] = SharedCache(16384)


def remembered(key: Hashable, make: Callable[[], T]) -> T:
    """What was made for a key before, or is made now; of very much, the oldest is forgotten."""
    entry = _known.get(key)
    return _known.keep(key, make()) if entry is None else entry


def weight_of(module: Module, op: Op) -> Weight:
    """The weight behind a ``const_in``."""
    weight = module.weights.get(op.attrs["weight"])
    if weight is None:
        raise AneforgeError(
            f"weight {op.attrs['weight']!r}: the program does not contain it. Compile the graph again."
        )
    return weight


def numbers_of(module: Module, op: Op) -> np.ndarray:
    """A constant in the layout that its op states."""
    return laid_out(weight_of(module, op).array, op.shape)


# Chips that give the same numbers: those that have the same arithmetic and take the same ops.


def one_of_each_arithmetic(chips: Mapping[str, Target]) -> dict[str, Target]:
    """The first chip of each kind, by the names that the chips have. A family is too coarse for this: an M4 and an M5
    are of one family and differ in tables, divisions and 3 x 3 convolutions."""
    firsts: dict[tuple[object, ...], tuple[str, Target]] = {}
    for name, chip in chips.items():
        engine = Engine.of(chip)
        rules = (getattr(engine, part.name) for part in fields(engine) if part.name != "target")
        firsts.setdefault((chip.family5, *rules), (name, chip))
    return dict(firsts.values())
