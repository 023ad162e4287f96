"""Bounds of convolutions and matrix products, from the numbers of their weights and the chip's way of adding.

A product is rounded to 2^-16 or, where its exponents are small, dropped; an accumulator that reaches 2^15 on the way
is infinite for good. So the sum of magnitudes decides whether a result can be lost, and the count of terms bounds what
the fixed point costs. The Winograd form adds two roundings to fp16, of the transformed map and of the transformed
kernel.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from aneforge.chips.limits import FP16_SLICE_SAT
from aneforge.engine.interpret import named_constants
from aneforge.engine.interpret_contraction import unpacked
from aneforge.engine.ir import Module, Op
from aneforge.engine.traits import Trait
from aneforge.numerics.ranges import ANYTHING, Value, numbers_of, product_error, remembered, rounded, rounding, scaled
from aneforge.sim.convolution import winograd_kernels
from aneforge.sim.engine import Engine
from aneforge.sim.half import decoded
from aneforge.sim.int8 import Integers, integer_operands
from aneforge.sim.mac import CEILING, LANES, LOSSY_FROM
from aneforge.sim.rules.contraction import (
    is_decoded_on_host,
    kernel_as_read,
    passes_no_accumulator,
    replicates_edges,
    stored_as_int8,
    sums_codes,
    takes_winograd,
    without_scale,
)
from aneforge.sim.rules.moves import MOVES

Array = np.ndarray
_DROPPED = 2.0**-15  # more than any product that is rounded or dropped loses
_SUBNORMAL = 2.0**-14
INTEGER_CEILING = 2.0**31
"""A sum of codes that reaches it is infinite (N16)."""
SHARES_OVER = 1.05
"""What shares of one can add up to with the roundings of powers, sum and quotient."""


@dataclass(frozen=True)
class _Kernel:
    """Stored weights by output: sums over the terms of each, as the chip reads them."""

    terms: int
    positive: Array
    negative: Array
    decoding: Array
    """How far they are from what was meant, in all."""
    low: float
    high: float
    winograd: tuple[tuple[Array, Array], ...] = ()
    """For each of the four transformed kernels: its magnitudes, and what its rounding changes."""

    @property
    def magnitudes(self) -> Array:
        return self.positive - self.negative

    @property
    def largest(self) -> float:
        return max(-self.low, self.high)


@dataclass(frozen=True)
class Shares:
    """An operand of a product whose numbers along the summed axis are positive and add up to a total."""

    place: int
    count: int
    total: float


def shares_in(module: Module, op: Op) -> Shares | None:
    """The operand of a matrix product that is a softmax along the summed axis, looked at through moves and gains."""
    if op.kind != "matmul":
        return None
    for place, operand in enumerate(op.operands[:2]):
        source, total = operand, 1.0
        while source.kind != "softmax":
            gain = _gain(module, source)
            if gain is None:
                break
            source, total = source.operands[0], total * gain
        else:
            count = math.prod(source.operands[0].shape[axis] for axis in source.attrs["axes"])
            if count == depth_of(op):
                return Shares(place, count, total)
    return None


def _gain(module: Module, op: Op) -> float | None:
    """The largest factor by which an op changes positive numbers; None if it does more than move and scale them."""
    if op.kind in MOVES and len(op.operands) == 1:
        return 1.0
    vectors = op.operands[1:]
    if op.kind != "gain_offset_control" or any(vector.kind != "const_in" for vector in vectors):
        return None
    peaks = [float(np.abs(numbers_of(module, vector)).max()) for vector in vectors]
    if op.attrs.get("bias") or any(peaks[1:]):
        return None
    return abs(float(op.attrs.get("gain", 1.0))) * (peaks[0] if peaks else 1.0)


def product_form(engine: Engine, module: Module, op: Op) -> tuple[object, ...]:
    """What the rule of a product looks at beside its attributes, its types and what it reads: stored numbers, and
    where its operands come from."""
    weights = tuple(operand.attrs.get("weight") for operand in op.operands[1:])
    if op.kind == "matmul":
        return *weights, shares_in(module, op)
    kernel = op.operands[1].type
    if kernel is None or kernel.dtype == "f16":
        return weights
    codes = integer_operands(engine, op)
    return *weights, is_decoded_on_host(op), codes and (codes.scale, codes.zero_point, codes.moved)


def arithmetic(engine: Engine, op: Op, value: Value, other: Value | None = None) -> tuple[object, ...]:
    """What of a chip's arithmetic decides the bits of this op, given what its operands can be."""
    if op.kind == "sdpa":
        return engine.flush_subnormals, engine.tile_losses, engine.tables
    integers = integer_operands(engine, op) is not None
    clamped = engine.int8_activations_q4 and stored_as_int8(op) and _beyond(value, FP16_SLICE_SAT)
    planar = op.kind == "convolution" and passes_no_accumulator(engine, op)
    codes = op.is_a(Trait.STORED_KERNEL) and sums_codes(engine, op)
    winograd = takes_winograd(engine, op)
    weight = other.size if other is not None else math.inf
    tiles = engine.tile_losses and (value.special or LANES * value.size * weight >= LOSSY_FROM)
    return engine.flush_subnormals, tiles, integers, clamped, planar, codes, winograd


def _beyond(value: Value, limit: float) -> bool:
    return value.special or value.size > limit


def product(engine: Engine, module: Module, op: Op, values: list[Value]) -> Value:
    """The value of a convolution, deconvolution, linear layer or matrix product."""
    if any(value.special for value in values):
        return ANYTHING
    integers = integer_operands(engine, op)
    if integers is not None and op.operands[1].kind == "const_in":
        return _of_integers(module, op, integers, values[0], values[2] if len(values) > 2 else Value(0.0, 0.0))
    if engine.int8_activations_q4 and stored_as_int8(op) and values[0].size > FP16_SLICE_SAT:
        return ANYTHING
    bias = values[2] if len(values) > 2 else Value(0.0, 0.0)
    if op.kind == "matmul" or op.operands[1].kind != "const_in":
        return _computed(engine, op, values[0], values[1], bias, shares_in(module, op))
    kernel = _kernel(engine, module, op)
    x = values[0]
    if op.kind == "deconvolution" or (any(op.attrs.get("explicit_padding", ())) and not replicates_edges(op)):
        x = x.with_zero()
    if op.kind == "convolution" and passes_no_accumulator(engine, op):
        return _planar(kernel, x, bias)
    if sums_codes(engine, op):
        return _scaled(_summed(engine, kernel, x, Value(0.0, 0.0), np.zeros(len(kernel.positive))), module, op, bias)
    return _summed(engine, kernel, x, bias, _starts(module, op, len(kernel.positive)))


def _scaled(total: Value, module: Module, op: Op, bias: Value) -> Value:
    """A sum of codes behind its scale and bias, which the gain-offset unit applies."""
    if total.special:
        return ANYTHING
    scales = decoded(np.ascontiguousarray(named_constants(module, op)["kernel_scale"].astype(np.float16)))
    ends = [end * float(scale) for end in (total.low, total.high) for scale in (scales.min(), scales.max())]
    error = scaled(float(np.abs(scales).max()), total.error)
    return rounded(min(ends) + bias.low, max(ends) + bias.high, error + bias.error)


def _of_integers(module: Module, op: Op, integers: Integers, x: Value, bias: Value) -> Value:
    """A sum of codes: exact up to 2^31, then one rounding. What it reads as fp16 numbers is what they stand for, but
    for the rounding of each."""
    if any(op.attrs.get("explicit_padding", ())):
        x = x.with_zero()
    positive, negative, codes = _remembered_codes(module, op)
    weight = float((positive - negative).max(initial=0.0))
    if _largest_integer(codes, integers, x) >= INTEGER_CEILING:
        return ANYTHING
    apart = rounding(x.size)
    off = scaled(weight, apart)
    high = float((positive * x.high + negative * x.low).max(initial=-math.inf)) + bias.high + off
    low = float((positive * x.low + negative * x.high).min(initial=math.inf)) + bias.low - off
    return rounded(low, high, scaled(weight, x.error + apart) + bias.error)


def _remembered_codes(module: Module, op: Op) -> tuple[Array, Array, float]:
    names = tuple(str(op.attrs[name]) for name in op.spec.stored if name in op.attrs)
    key = "codes", op.operands[1].attrs["weight"], op.operands[1].shape, names, op.kind, op.attrs.get("groups")
    return remembered(key, lambda: _sums_of_codes(module, op))


def _largest_integer(codes: float, integers: Integers, x: Value) -> float:
    """The largest sum of products of codes; what is read may be rounded to the next code."""
    return codes * (x.size / integers.scale + 1.0)


def largest_integer_sum(engine: Engine, module: Module, op: Op, values: list[Value]) -> float:
    """The largest magnitude that a sum of codes can reach; zero where no codes are summed as integers."""
    integers = integer_operands(engine, op)
    if integers is None or op.operands[1].kind != "const_in":
        return 0.0
    x = values[0].with_zero() if any(op.attrs.get("explicit_padding", ())) else values[0]
    return _largest_integer(_remembered_codes(module, op)[2], integers, x)


def _sums_of_codes(module: Module, op: Op) -> tuple[Array, Array, float]:
    """By output, the positive and the negative weights that stored codes stand for; and the largest sum of codes."""
    stored, named = numbers_of(module, op.operands[1]).astype(np.float64), named_constants(module, op)
    outputs = 0 if op.kind == "convolution" else 2
    rows = _rows(op, unpacked(op, stored, outputs, **named))
    codes = _rows(op, unpacked(op, stored, outputs, **without_scale(named)))
    most = float(np.abs(codes).sum(axis=1).max(initial=0.0))
    return np.maximum(rows, 0).sum(axis=1), np.minimum(rows, 0).sum(axis=1), most


def largest_sum(engine: Engine, module: Module, op: Op, values: list[Value]) -> float:
    """The largest magnitude that an accumulator of a product can reach on the way."""
    if integer_operands(engine, op) is not None:
        return 0.0
    x, bias = values[0], (values[2].size if len(values) > 2 else 0.0)
    if op.kind == "matmul" or op.operands[1].kind != "const_in":
        shares = shares_in(module, op)
        if shares is not None:
            return SHARES_OVER * shares.total * values[1 - shares.place].size + bias
        return depth_of(op) * x.size * values[1].size + bias
    kernel = _kernel(engine, module, op)
    if kernel.winograd:
        sizes = np.sum([size for size, _ in kernel.winograd], axis=0)
        return float(sizes.max()) * 2 * x.size + bias
    return float(kernel.magnitudes.max(initial=0.0)) * x.size + bias


def _starts(module: Module, op: Op, outputs: int) -> Array:
    """The bias of each output where it is stored, else zero: its interval is added apart."""
    if len(op.operands) > 2 and op.operands[2].kind == "const_in":
        return np.abs(decoded(np.ascontiguousarray(numbers_of(module, op.operands[2]))).reshape(-1))
    return np.zeros(outputs)


def _kernel(engine: Engine, module: Module, op: Op) -> _Kernel:
    names = tuple(str(op.attrs[name]) for name in op.spec.stored if name in op.attrs)
    form = takes_winograd(engine, op)
    key = op.operands[1].attrs["weight"], op.operands[1].shape, names, op.kind, op.attrs.get("groups"), form
    on_host, flush, codes = is_decoded_on_host(op), engine.flush_subnormals, sums_codes(engine, op)
    return remembered(("kernel", *key, on_host, flush, codes), lambda: _summed_up(engine, module, op, form))


def _summed_up(engine: Engine, module: Module, op: Op, form: bool) -> _Kernel:
    stored, named = numbers_of(module, op.operands[1]), named_constants(module, op)
    outputs = 0 if op.kind == "convolution" else 2
    read = np.ascontiguousarray(kernel_as_read(engine, op, stored, outputs, named))
    named = without_scale(named) if sums_codes(engine, op) else named
    rows = _rows(op, decoded(read, engine.flush_subnormals))
    meant = _rows(op, unpacked(op, stored.astype(np.float64), outputs, **named)) if named else _rows(op, decoded(read))
    transformed: tuple[tuple[Array, Array], ...] = ()
    if form:
        shaped = read.reshape(read.shape[0], -1, *read.shape[3:])
        turned = [
            decoded(np.ascontiguousarray(kernel)).reshape(len(kernel), -1) for kernel in winograd_kernels(shaped)[0]
        ]
        pairs = zip(turned, _transforms(decoded(shaped)), strict=True)
        transformed = tuple((np.abs(one).sum(axis=1), np.abs(one - two).sum(axis=1)) for one, two in pairs)
    return _Kernel(
        terms=rows.shape[1],
        positive=np.maximum(rows, 0).sum(axis=1),
        negative=np.minimum(rows, 0).sum(axis=1),
        decoding=np.abs(rows - meant).sum(axis=1),
        low=float(rows.min(initial=0.0)),
        high=float(rows.max(initial=0.0)),
        winograd=transformed,
    )


def _transforms(kernel: Array) -> list[Array]:
    first, middle, last = kernel[..., 0], kernel[..., 1], kernel[..., 2]
    transformed = (first, (first + middle + last) / 2, (first - middle + last) / 2, last)
    return [rows.reshape(len(rows), -1) for rows in transformed]


def _rows(op: Op, kernel: Array) -> Array:
    """One row of terms for each output."""
    if op.kind == "linear":
        return kernel[0, 0, :, 0, :]
    if op.kind == "deconvolution":
        groups, inputs = op.attrs["groups"], kernel.shape[0] // op.attrs["groups"]
        split = kernel.reshape(groups, inputs, *kernel.shape[1:])  # groups, inputs, depths, outputs, rows, columns
        return split.transpose(0, 3, 1, 2, 4, 5).reshape(groups * kernel.shape[2], -1)
    return kernel.reshape(kernel.shape[0], -1)


def _summed(engine: Engine, kernel: _Kernel, x: Value, bias: Value, starts: Array) -> Value:
    weight = kernel.magnitudes
    fixed = kernel.terms * _DROPPED + float(weight.max(initial=0.0)) * _SUBNORMAL * engine.flush_subnormals
    inside = np.zeros(len(weight))
    apart = scaled(float(kernel.decoding.max(initial=0.0)), x.size + x.error)
    reach = weight * x.size
    if kernel.winograd:
        step, most = rounding(2 * x.size), 2 * x.size
        fixed = 4 * kernel.terms / 3 * _DROPPED
        reach = np.zeros(len(weight))
        for size, gap in kernel.winograd:
            inside = inside + most * gap + step * size
            reach = reach + size * (most + step)
    elif engine.tile_losses and LANES * x.size * kernel.largest >= LOSSY_FROM:
        inside = inside + reach * 2.0**-9
    if (reach + inside + fixed + starts + bias.size).max(initial=0.0) >= CEILING:
        return ANYTHING
    off = float((inside + fixed).max(initial=0.0))
    error = scaled(float(weight.max(initial=0.0)), x.error) + off + apart + bias.error
    high = float((kernel.positive * x.high + kernel.negative * x.low).max(initial=-math.inf)) + bias.high + off
    low = float((kernel.positive * x.low + kernel.negative * x.high).min(initial=math.inf)) + bias.low - off
    return rounded(low, high, error)


def _planar(kernel: _Kernel, x: Value, bias: Value) -> Value:
    """One input channel and one element: a product and a sum of the elementwise path."""
    corners = [weight * number for weight in (kernel.low, kernel.high) for number in (x.low, x.high)]
    off = scaled(float(kernel.decoding.max()), x.size + x.error)
    result = rounded(min(corners), max(corners), scaled(kernel.largest, x.error) + off)
    if result.special:
        return ANYTHING
    return rounded(result.low + bias.low, result.high + bias.high, result.error + bias.error)


def _computed(engine: Engine, op: Op, a: Value, b: Value, bias: Value, shares: Shares | None) -> Value:
    """Both sides are computed: every term may be as large as the largest of both."""
    terms = depth_of(op)
    padded = op.kind != "matmul"
    a = a.with_zero() if padded else a
    reach = terms * a.size * b.size
    fixed = terms * (_DROPPED + _SUBNORMAL * max(a.size, b.size) * engine.flush_subnormals)
    if engine.tile_losses and LANES * a.size * b.size >= LOSSY_FROM:
        fixed += reach * 2.0**-9
    if takes_winograd(engine, op):
        # Transformed kernels are at most three halves of the kernel, transformed maps twice the map.
        most, smaller = 2 * a.size, 1.5 * b.size
        fixed += 4 * terms / 3 * (rounding(most) * (smaller + rounding(smaller)) + most * rounding(smaller) + _DROPPED)
        reach = 4 * terms / 3 * (most + rounding(most)) * (smaller + rounding(smaller))
    if shares is not None:
        return _weighed(shares, b if shares.place == 0 else a, fixed, bias)
    if reach + fixed + bias.size >= CEILING:
        return ANYTHING
    corners = [one * two for one in (a.low, a.high) for two in (b.low, b.high)]
    error = terms * product_error(a, b) + fixed + bias.error
    low, high = terms * min(corners) - fixed + bias.low, terms * max(corners) + fixed + bias.high
    return rounded(low, high, error)


def _weighed(shares: Shares, values: Value, fixed: float, bias: Value) -> Value:
    """A mean of values times a total: no sum on the way is larger than that of the largest value."""
    most = SHARES_OVER * shares.total
    if most * values.size + fixed + bias.size >= CEILING:
        return ANYTHING
    wide = values.with_zero()
    error = most * (values.error + wide.width) + fixed + bias.error  # the shares themselves are not known to a digit
    return rounded(most * wide.low - fixed + bias.low, most * wide.high + fixed + bias.high, error)


def depth_of(op: Op) -> int:
    """How many products a sum has."""
    left, right = op.operands[0].shape, op.operands[1].shape
    if op.kind == "matmul":
        return left[2] if op.attrs.get("transpose_lhs") else left[4]
    if op.kind == "linear":
        return left[4]
    return math.prod(right) // right[0] if op.kind == "convolution" else right[0] * right[1] * right[3] * right[4]
