"""``af.pwl``: any function of one number, given by its knots, from ordinary layers (the last section of chapter 26).

Linear, rectifier, linear. Every stretch between two knots has a channel of its own:

- ``t = (x - knot) * 2^e``, where the power of two brings the width of the stretch to 1 .. 2;
- ``u = min(relu(t), width)``: 0 before the stretch, its width behind it;
- the sum of all ``u`` with weights, from the first value on, and a power of two that keeps it where the accumulators
  are finest.

At a knot every ``u`` is 0 or the width of its stretch, whatever a chip rounds ``x - knot`` to: the width is rounded
down, and the clamp takes off the rest. What remains is a sum of known products. The accumulators round each of them to
2^-16, so the weights are found from the left to the right, in parts (high, low, lower), each of which corrects what is
missing so far. The result is checked before the graph is built.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from aneforge.errors import GraphError
from aneforge.graph.builders import conv, minimum
from aneforge.graph.halves import FP16_MAX
from aneforge.graph.node import entry
from aneforge.graph.ops.leaf import as_tensor, const
from aneforge.graph.tensor import Tensor

_STEP = 2.0**-16
"""What a product is rounded to in an accumulator (N03)."""
_DROPPED = -17
"""A product is lost where the exponents of its operands add up to this or less (N14)."""
_LOSSLESS = 4095.0
"""Below 4096 no chip adds terms in fp16 (N08, N09)."""
_ABOVE = 8192.0
"""More than any sum."""
_LANES = 4
"""Terms that the M1 adds at a time."""
_PARTS = 3
"""Numbers of fp16 that make one weight."""
"""The end of fp16."""
_POWERS = 15
"""fp16 holds the powers of two from -15 to 15 as gains."""
_EXTENT = 16384
"""What every chip takes along the height and the width (0x138, 0x140)."""


@entry
def pwl(x: Tensor, knots: Sequence[float], values: Sequence[float]) -> Tensor:
    """A piecewise-linear function of every element: straight between the knots, constant outside them.

    At a knot the result is the value of the table, to the bit, on every chip. Knots and values are numbers of fp16;
    others are rounded. Knots must rise.
    """
    places, table = _knots(knots), _numbers(values, "values")
    if len(places) != len(table):
        raise GraphError(f"values has {len(table)} numbers for {len(places)} knots; give one value for each knot")
    curve = _Curve(places, table)
    x = as_tensor(x, "x")
    plane = x.reshape(*_plane(x.shape))
    steps = (plane - _channels(curve.starts)) * _channels(curve.gains)
    ramps = minimum(steps.relu(), _channels(curve.widths))
    sums = conv(ramps, curve.weights.reshape(1, -1, 1, 1), bias=[curve.first])
    apart = minimum(sums, _ABOVE)  # no sum is larger; it keeps the scale from being folded into the small weights
    return (apart * 2.0**-curve.power).reshape(*x.shape)


def _channels(numbers: np.ndarray) -> Tensor:
    return const(numbers.reshape(1, -1, 1, 1))


def _plane(shape: tuple[int, ...]) -> tuple[int, int, int, int]:
    """One channel: as much along the width and the height as every chip has room for, the rest along the batch."""
    *outer, width = shape
    columns = next(size for size in range(min(width, _EXTENT), 0, -1) if width % size == 0)
    outer.append(width // columns)
    rows = 1
    while outer and rows * outer[-1] <= _EXTENT:
        rows *= outer.pop()
    return math.prod(outer), 1, rows, columns


def _numbers(values: Any, what: str) -> np.ndarray:
    try:
        with np.errstate(over="ignore"):
            halves = np.asarray(values, np.float64).astype(np.float16)
    except (TypeError, ValueError):
        raise GraphError(f"{what} must be a list of numbers") from None
    if halves.ndim != 1 or len(halves) < 2:
        raise GraphError(f"{what} must be a list of at least two numbers")
    if not np.isfinite(halves).all():
        place = int(np.flatnonzero(~np.isfinite(halves))[0])
        raise GraphError(f"{what}[{place}] is {np.asarray(values)[place]}; it must be finite in fp16")
    return halves.astype(np.float64)


def _knots(knots: Any) -> np.ndarray:
    places = _numbers(knots, "knots")
    for place, step in enumerate(np.diff(places), 1):
        if step <= 0:
            fault = "the same number of fp16" if step == 0 else "not in order"
            raise GraphError(
                f"knots[{place - 1}] and knots[{place}] are {fault} ({places[place - 1]:g} and {places[place]:g}); "
                "knots must rise"
            )
        if step > FP16_MAX:
            raise GraphError(f"knots[{place - 1}] and knots[{place}] are {step:g} apart; fp16 ends at 65504")
    return places


class _Curve:
    """The constants of the three layers, checked against the table."""

    def __init__(self, knots: np.ndarray, values: np.ndarray) -> None:
        spans = _rounded_down(np.diff(knots))
        powers = np.clip(-np.floor(np.log2(spans)), -_POWERS, _POWERS)
        widths = spans * 2.0**powers
        steps = np.abs(np.diff(values))
        tiles = np.convolve(steps, np.ones(_LANES))
        largest, steepest = max(np.abs(values).max(), tiles.max()), (steps / widths).max()
        room = [limit / size for limit, size in ((_LOSSLESS, largest), (FP16_MAX, steepest)) if size]
        self.power = int(np.clip(math.floor(math.log2(min(room))), -_POWERS, _POWERS)) if room else 0
        self.first = values[0] * 2.0**self.power
        targets = values * 2.0**self.power / _STEP
        weights = np.zeros((_PARTS, len(spans)))
        sums = [_away(targets[0])]
        for place, width in enumerate(widths):
            total = sums[-1]
            for part in range(_PARTS):
                weight = float(np.float16(np.clip((targets[place + 1] - total) * _STEP / width, -FP16_MAX, FP16_MAX)))
                weights[part, place] = weight
                total += _product(weight, float(width))
            sums.append(total)
        self.weights = weights.reshape(-1)
        self.starts, self.gains, self.widths = (np.tile(line, _PARTS) for line in (knots[:-1], 2.0**powers, widths))
        self._check(knots, values, np.array(sums) * _STEP)

    def _check(self, knots: np.ndarray, values: np.ndarray, sums: np.ndarray) -> None:
        """Refuse a table that the sums cannot give to the bit, however a chip rounds a tie."""
        wanted = values * 2.0**self.power
        halves = wanted.astype(np.float16)
        room = np.spacing(np.abs(halves)).astype(np.float64) / 2
        room = np.where(np.frexp(halves.astype(np.float64))[0] == 0.5, room / 2, room)  # finer below a power of two
        wrong = (halves.astype(np.float64) != wanted) | (np.abs(sums - wanted) >= room)
        if wrong.any():
            place = int(np.flatnonzero(wrong)[0])
            fine = 2.0**-self.power * _STEP
            raise GraphError(
                f"values[{place}] = {values[place]:g} at knot {knots[place]:g} cannot be reproduced: beside a value "
                f"of {np.abs(values).max():g} the sums of the engine have steps of {fine:g}; give values that differ "
                "less in size, or the sum of two tables"
            )


def _rounded_down(spans: np.ndarray) -> np.ndarray:
    """The largest numbers of fp16 that are not above."""
    halves = spans.astype(np.float16)
    above = halves.astype(np.float64) > spans
    return np.where(above, np.nextafter(halves, np.float16(0)), halves).astype(np.float64)


def _product(weight: float, width: float) -> float:
    """One term in an accumulator, in its steps."""
    if _exponent(weight) + _exponent(width) <= _DROPPED:
        return 0.0
    return _away(weight * width / _STEP)


def _exponent(number: float) -> int:
    """As the product rule counts it: a subnormal has -14 (N11)."""
    return max(math.frexp(number)[1] - 1, -14)


def _away(value: float) -> float:
    return math.trunc(value + math.copysign(0.5, value))
