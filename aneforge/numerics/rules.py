"""What each backend op makes of values on one chip: one rule for each kind of op, or for all ops of a trait.

An op without a rule may give anything, which is always true and says nothing. Where two programs compute an op by the
same steps from the same numbers, their results are equal whatever is known of them (``identity``).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from aneforge.chips.assumed import constant
from aneforge.chips.limits import FP16_SLICE_SAT
from aneforge.engine.ir import Module, Op
from aneforge.engine.traits import Trait
from aneforge.graph.halves import FP16_MAX
from aneforge.numerics.products import SHARES_OVER, product
from aneforge.numerics.ranges import ANYTHING, Value, hull, product_error, rounded, rounding, scaled
from aneforge.numerics.unary import through
from aneforge.sim.engine import Engine
from aneforge.sim.mac import CEILING
from aneforge.sim.rules.planar import TABLES

_TRUTH = Value(0.0, 1.0)


def value_of(engine: Engine, module: Module, op: Op, read: list[Value]) -> Value:
    """What an op gives for what it reads."""
    if op.is_a(Trait.CONTRACTION):
        return product(engine, module, op, read)
    if op.is_a(Trait.COMPARISON):
        return _TRUTH._replace(error=1.0 if any(value.error or value.special for value in read) else 0.0)
    if op.is_a(Trait.MOVEMENT):
        return _moved(op, read)
    rule = _RULES.get(op.kind)
    if rule is not None:
        return rule(engine, op, *read)
    return through(engine, op, read[0]) if _is_function(op) else ANYTHING


def has_rule(op: Op) -> bool:
    """Whether an op's result is bounded by anything; one without a rule may give any number."""
    bounded = (Trait.CONTRACTION, Trait.COMPARISON, Trait.MOVEMENT)
    return op.kind in _RULES or _is_function(op) or any(op.is_a(trait) for trait in bounded)


def _is_function(op: Op) -> bool:
    """A function of one number."""
    return op.is_a(Trait.POINTWISE) and len(op.operands) == 1


def own_error(engine: Engine, op: Op, *read: Value) -> float:
    """The error that an op adds itself, to operands that are exact."""
    return _RULES[op.kind](engine, op, *(value._replace(error=0.0) for value in read)).error


def is_clamped_copy(op: Op) -> bool:
    """Whether a copy goes through fixed point, where magnitudes above 4094 become infinite (N18)."""
    return op.labels.get("storage") == "q4"


def _moved(op: Op, read: list[Value]) -> Value:
    """Moves change no number, except a crop that goes through fixed point."""
    if op.kind == "select":
        chosen = hull(read[1:])
        moved = chosen._replace(error=chosen.width + chosen.error) if read[0].error else chosen
    elif op.kind == "gather_nd":
        uncertain = any(value.error for value in read[1:])  # fixed indices are an attribute, not an operand
        moved = read[0]._replace(error=read[0].width + read[0].error) if uncertain else read[0]
    else:
        moved = hull(read)
    fill = op.attrs.get("background_value")
    if fill is not None:
        moved = hull([moved.with_zero(), Value(float(fill), float(fill))])
    if is_clamped_copy(op) and (moved.special or moved.size > FP16_SLICE_SAT):
        low, high = (min(max(end, -FP16_SLICE_SAT), FP16_SLICE_SAT) for end in (moved.low, moved.high))
        return moved._replace(low=low, high=high, special=True)
    return moved


def _paired(engine: Engine, op: Op, a: Value, b: Value) -> Value:
    if a.special or b.special:
        return ANYTHING
    if op.kind == "mult":
        return _product_of(a, b)
    if op.kind == "add":
        return rounded(a.low + b.low, a.high + b.high, a.error + b.error)
    most = 0.0 if takes_off_its_maximum(op) else a.high - b.low
    return rounded(min(a.low - b.high, most), most, a.error + b.error)


def takes_off_its_maximum(op: Op) -> bool:
    """x - max(x), in front of an exponential: never above zero, whatever x is."""
    x, top = op.operands
    return top.kind == "reduce_max" and top.operands[0] is x and not top.attrs.get("square_input")


def _divided(engine: Engine, op: Op, a: Value, b: Value) -> Value:
    least = min(abs(b.low), abs(b.high))
    if a.special or b.special or b.low <= 0.0 <= b.high:
        return ANYTHING
    known = least > b.error  # else exact arithmetic might divide by zero, and nothing bounds the distance to it
    if engine.reciprocal_divide:
        ends = 1 / b.low, 1 / b.high
        inverse = rounded(min(ends), max(ends), b.error / (least * (least - b.error)) if known else math.inf)
        return _product_of(a, inverse)
    corners = [one / two for one in (a.low, a.high) for two in (b.low, b.high)]
    error = (a.error + scaled(a.size, b.error) / least) / (least - b.error) if known else math.inf
    return rounded(min(corners), max(corners), error)


def _product_of(a: Value, b: Value) -> Value:
    if a.special or b.special:
        return ANYTHING
    corners = [one * two for one in (a.low, a.high) for two in (b.low, b.high)]
    return rounded(min(corners), max(corners), product_error(a, b))


def is_whole_power(exponent: Value) -> bool:
    """Whether numbers of any sign but zero have this power."""
    return exponent.low == exponent.high and float(exponent.low).is_integer()


def _powered(engine: Engine, op: Op, base: Value, exponent: Value) -> Value:
    """In order on each side of zero, and across it where the exponent is one whole number from one on."""
    whole, power = is_whole_power(exponent), exponent.low
    positive = base.low > 0.0 or (base.low == 0.0 and power >= 0.0)
    if base.special or exponent.special or not (positive or (whole and (power >= 1.0 or base.high < 0.0))):
        return ANYTHING
    error = 0.0 if base.error == exponent.error == 0.0 else math.inf
    with np.errstate(over="ignore"):
        corners = [float(np.power(one, two)) for one in (base.low, base.high) for two in (power, exponent.high)]
        if error and whole and power >= 1.0:
            error = scaled(power * float(np.power(base.size + base.error, power - 1.0)), base.error)
    if base.low < 0.0 < base.high:
        corners.append(0.0)
    return rounded(min(corners), max(corners), error)


def _picked(engine: Engine, op: Op, a: Value, b: Value) -> Value:
    choose = max if op.kind == "max" else min
    ends = choose(a.low, b.low), choose(a.high, b.high)
    return Value(*ends, a.special or b.special, max(a.error, b.error))


def _kept(engine: Engine, op: Op, x: Value) -> Value:
    """The largest or smallest of some numbers is one of them, or the square of one."""
    return _entering(op, x)


def _pooled(engine: Engine, op: Op, x: Value) -> Value:
    """Weighted means; a window may count zeros around the map."""
    if x.special:
        return ANYTHING
    wide = x.with_zero()
    return rounded(wide.low, wide.high, x.error)


def _gained(engine: Engine, op: Op, x: Value, *vectors: Value) -> Value:
    if any(value.special for value in (x, *vectors)):
        return ANYTHING
    gain, bias = float(op.attrs.get("gain", 1.0)), float(op.attrs.get("bias", 0.0))
    scale = vectors[0] if vectors else Value(1.0, 1.0)
    offset = vectors[1] if len(vectors) > 1 else Value(0.0, 0.0)
    factors = [gain * end for end in (scale.low, scale.high)]
    corners = [one * two for one in factors for two in (x.low, x.high)]
    low, high = min(corners) + bias + offset.low, max(corners) + bias + offset.high
    size = max(abs(factor) for factor in factors)
    error = scaled(size, x.error) + scaled(abs(gain) * scale.error, x.size + x.error) + offset.error
    if is_summed_before_a_table(op) and max(abs(low), abs(high)) >= CEILING:
        return ANYTHING
    return rounded(low, high, error)


def is_summed_before_a_table(op: Op) -> bool:
    """Whether the accumulators add the offset of a gain, because a table of its own layer reads it (U49)."""
    return any(user.layer == op.layer and user.kind in TABLES for user in op.users)


def _count(op: Op) -> int:
    return math.prod(op.operands[0].shape[axis] for axis in op.attrs["axes"])


def _sum_of(x: Value, count: int) -> tuple[float, float, float]:
    """Bounds of a sum on the planar path before it is stored, and its error: trees and runs with the bits of fp16,
    then exactly (U50)."""
    tree, run = constant("reduction_tree"), constant("reduction_run")
    group = tree * run
    wide = x.with_zero() if count % group else x
    steps = int(math.log2(tree)) + run - 1
    inside = min(count, group) * wide.size
    local = steps * rounding(2 * inside) * -(-count // group)
    low = count * x.low - local
    return (max(low, 0.0) if x.low >= 0.0 else low), count * x.high + local, count * x.error + local


def _entering(op: Op, x: Value) -> Value:
    if not op.attrs.get("square_input") or x.special:
        return x
    largest, least = x.size**2, 0.0 if x.low <= 0.0 <= x.high else min(abs(x.low), abs(x.high)) ** 2
    return rounded(least, largest, product_error(x, x))


def _summed(engine: Engine, op: Op, x: Value) -> Value:
    entering = _entering(op, x)
    return ANYTHING if entering.special else rounded(*_sum_of(entering, _count(op)))


def _averaged(engine: Engine, op: Op, x: Value) -> Value:
    entering = _entering(op, x)
    if entering.special:
        return ANYTHING
    count = _count(op)
    low, high, error = _sum_of(entering, count)
    share = float(np.float16(1 / count))
    off = abs(share - 1 / count) * (max(abs(low), abs(high)) + error)
    return rounded(low * share, high * share, error * share + off)


def _softmax(engine: Engine, op: Op, x: Value) -> Value:
    """Shares of one: each lies between zero and one but for the roundings of powers, sum and quotient."""
    return Value(0.0, 1.0 + 2.0**-6, False, 1.0 + 2.0**-6) if not x.special else ANYTHING


def _normed(engine: Engine, op: Op, x: Value, *affine: Value) -> Value:
    """No element of n is further from their mean than root n of their spread; what the roundings add is in the margin.

    Squares that are too small for fp16 count as zero, so that only epsilon divides; a square that is lost makes the
    result zero.
    """
    groups = op.attrs.get("groups", 1)
    count = _count(op) // groups
    epsilon = float(np.float16(op.attrs["epsilon"]))
    if x.special or epsilon <= 0.0 or any(value.special for value in affine):
        return ANYTHING
    reach = 1.1 * math.sqrt(count) + 2.0**-11 * epsilon**-0.5
    gain = max((value.size for value in affine[:1]), default=1.0)
    offset = max((value.size for value in affine[1:2]), default=0.0)
    most = rounded(-reach * gain - offset, reach * gain + offset, 0.0)
    return most._replace(error=2 * most.high)


def _attended(engine: Engine, op: Op, q: Value, k: Value, v: Value, scale: Value, *mask: Value) -> Value:
    """A mean of the values, with weights that add up to one but for their roundings."""
    keys = op.operands[1].shape[2]
    scores = largest_score(op, q, k)
    if any(value.special for value in (q, k, v, scale, *mask)) or scores >= CEILING or scores * scale.size >= FP16_MAX:
        return ANYTHING
    if not op.attrs.get("subtract_max"):  # the sum of the powers has to be finite
        largest = scores * scale.size + sum(plane.size for plane in mask)
        if largest > math.log(FP16_MAX) or keys * math.exp(largest) >= FP16_MAX:
            return ANYTHING
    reach = SHARES_OVER * v.size + keys * 2.0**-15
    return Value(-reach, reach, False, 2 * reach) if reach < CEILING else ANYTHING


def largest_score(op: Op, q: Value, k: Value) -> float:
    """The most that a product of a query and a key can reach, with what fixed point and tiles may add."""
    return (1.0 + 2.0**-8) * op.operands[0].shape[4] * (q.size * k.size + 2.0**-15)


def _dequantised(engine: Engine, op: Op, x: Value) -> Value:
    scale, zero = float(op.attrs["scale"]), float(op.attrs["zero_point"])
    ends = (x.low - zero) * scale, (x.high - zero) * scale
    return ANYTHING if x.special else rounded(min(ends), max(ends), scaled(abs(scale), x.error))


def _quantised(engine: Engine, op: Op, x: Value) -> Value:
    """Codes, in the order of the numbers; an error may move a number over the edge of one."""
    least, most = (0.0, 255.0) if op.attrs["to"] == "ui8" else (-128.0, 127.0)
    scale, zero = float(op.attrs["scale"]), float(op.attrs["zero_point"])
    error = 0.0 if x.error == 0.0 else min(x.error / abs(scale) + 1.0, most - least)
    if x.special or scale <= 0:
        return Value(least, most, False, most - least if x.special else error)
    low, high = (
        min(max(math.copysign(math.floor(abs(end / scale) + 0.5), end) + zero, least), most) for end in (x.low, x.high)
    )
    return Value(low, high, False, error)


_RULES: dict[str, Callable[..., Value]] = {
    "add": _paired,
    "sub": _paired,
    "mult": _paired,
    "div": _divided,
    "power": _powered,
    "max": _picked,
    "min": _picked,
    "reduce_max": _kept,
    "reduce_min": _kept,
    "max_pool": _kept,
    "average_pool": _pooled,
    "resize": _pooled,
    "cast": lambda engine, op, x: x,
    "gain_offset_control": _gained,
    "reduce_sum": _summed,
    "reduce_avg": _averaged,
    "softmax": _softmax,
    "layer_norm": _normed,
    "instance_norm": _normed,
    "sdpa": _attended,
    "quant": _quantised,
    "dequant": _dequantised,
}
