"""What a sum of small products is expected to lose, before it is run.

The engine rounds every product to 2^-16 and drops those whose exponents add up to -17 or less (N11). A sum of many
small products, such as probabilities over thousands of keys times their values, loses per cents that way (N73, N75).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from aneforge.anec.interpret import named_constants
from aneforge.anec.ir import Module, Op
from aneforge.anec.traits import Trait
from aneforge.numerics.products import depth_of, shares_in
from aneforge.numerics.stored import numbers_of, remembered
from aneforge.numerics.values import Value
from aneforge.sim.engine import Engine
from aneforge.sim.half import decoded, exponents
from aneforge.sim.mac import STEP, rounded_products
from aneforge.sim.tiles import LANES, LOSSY_FROM

Array = np.ndarray
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
    error = expected_loss(engine, np.array([total / count]), _spread(values), count)
    return Underflow(error, factor_for(values.size, count), count, values, True, values is not other)


def _of_values(
    engine: Engine, x: Value, other: Value, terms: int, weights: Array | None = None
) -> Iterator[Underflow]:
    if not x.special and not other.special:
        error = expected_loss(engine, _spread(x), _spread(other) if weights is None else weights, terms)
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


def _spread(value: Value) -> Array:
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
