"""The simulator against a second model of the engine: one number at a time, in whole numbers and fractions.

Nothing here knows how the simulator works. A compiled program is walked op by op with Python integers, by the
published rules of the arithmetic (numerics.json, named beside each), and every intermediate the simulator gives must
have the same bits. Where no rule says which zero a result is, either is taken (``ANY_ZERO``); where no rule says what
a result is at all (``UNSTATED``), that element and the ops that read it are left out.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from operator import add, mul, sub, truediv
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import aneforge as af
from aneforge.compiler.lower.walk import Port
from aneforge.compiler.program import Program
from aneforge.engine.ir import Module, Op, TensorType
from aneforge.graph import Graph
from aneforge.graph.weights import intern_weight
from aneforge.sim import native
from aneforge.study.model import Model

# ---------------------------------------------------------------------------------------------------------------------
# Numbers: an fp16 number is its 16 bits, a Python integer.

INFINITY, NEGATIVE_INFINITY, PLUS_ZERO, MINUS_ZERO = 0x7C00, 0xFC00, 0x0000, 0x8000
ANY_ZERO = 0x10000
"""A zero whose sign no rule states."""

UNSTATED = 0x20000
"""Whatever the engine gives: no rule says it."""

UNIT = 2**16
"""The accumulator counts in 2^-16 (N03)."""

LIMIT = 2**15 * UNIT
"""From here on an accumulator is infinite (N04)."""


def nearest_whole(exact: Fraction) -> int:
    """The nearest whole number, a tie away from zero."""
    whole = (2 * abs(exact.numerator) + exact.denominator) // (2 * exact.denominator)
    return -whole if exact < 0 else whole


def exponent_of(exact: Fraction) -> int:
    """The largest e with 2^e <= |exact|."""
    numerator, denominator = abs(exact.numerator), exact.denominator
    guess = numerator.bit_length() - denominator.bit_length()
    return guess if Fraction(2) ** guess <= abs(exact) else guess - 1


def to_half(exact: Fraction) -> int:
    """The nearest fp16 number, a tie away from zero; one rounding, subnormal or not (N14, N47)."""
    if exact == 0:
        return PLUS_ZERO
    sign = MINUS_ZERO if exact < 0 else PLUS_ZERO
    if abs(exact) >= 65520:
        return sign | INFINITY
    exponent = max(-14, exponent_of(exact))
    steps = nearest_whole(abs(exact) / Fraction(2) ** (exponent - 10))
    if steps == 0 and sign:
        return ANY_ZERO
    return sign | ((exponent + 14) * 1024 + steps)  # 2048 steps carry into the next exponent by themselves


def to_half_twice(exact: Fraction) -> int:
    """The elementwise unit's rounding: a result below 2^-14 first to 11 significant bits (N53)."""
    if exact != 0 and abs(exact) < Fraction(1, 2**14):
        grid = Fraction(2) ** (exponent_of(exact) - 10)
        exact = nearest_whole(exact / grid) * grid
    return to_half(exact)


def exponent_field(bits: int) -> int:
    return bits >> 10 & 31


def is_nan(bits: int) -> bool:
    return exponent_field(bits) == 31 and bits & 1023 != 0


def multiplier_exponent(bits: int) -> int:
    """The exponent as the multipliers see it: zero and subnormals count as -14 (N11), infinity as 16 (N31)."""
    return max(-14, exponent_field(bits) - 15)


def multiplier_units(bits: int) -> int:
    """The number in 2^-24 as the multipliers see it; an exponent of 31 is one like any other (N31)."""
    if bits == ANY_ZERO:
        return 0
    mantissa = bits & 1023
    size = mantissa if exponent_field(bits) == 0 else (1024 + mantissa) << (exponent_field(bits) - 1)
    return -size if bits & MINUS_ZERO else size


EXPONENTS = [multiplier_exponent(bits) for bits in range(ANY_ZERO)] + [-14]
UNITS = [multiplier_units(bits) for bits in range(ANY_ZERO + 1)]


def finite_value(bits: int) -> Fraction:
    return Fraction(UNITS[bits], 2**24)


def without_nan(bits: int) -> int:
    """NaN is read as plus infinity (N31)."""
    return INFINITY if bits != ANY_ZERO and is_nan(bits) else bits


def is_infinite(bits: int) -> bool:
    return bits in (INFINITY, NEGATIVE_INFINITY)


def is_negative(bits: int) -> bool:
    return bits != ANY_ZERO and bits & MINUS_ZERO != 0


def is_zero(bits: int) -> bool:
    return bits in (PLUS_ZERO, MINUS_ZERO, ANY_ZERO)


# ---------------------------------------------------------------------------------------------------------------------
# Sums of products.


@dataclass(frozen=True)
class Chip:
    """Where chips differ in the arithmetic."""

    winograd: bool = False
    """3 x 3 convolutions are done by the width Winograd form (N56)."""

    tiles: bool = False
    """Terms come in fours, and a four that reaches 4096 is added in fp16 (N08, N09)."""

    reciprocal: bool = False
    """A division is a product with the reciprocal, which is rounded first (N72)."""


CHIPS = {
    "h13": Chip(tiles=True),
    "h14": Chip(),
    "h16g": Chip(),
    "h17": Chip(winograd=True, reciprocal=True),
    "h17s": Chip(winograd=True, reciprocal=True),
    "h18g": Chip(winograd=True, reciprocal=True),
}


def product(a: int, b: int) -> int:
    """Two operands multiplied, in 2^-16: nothing where the exponents are too small, else rounded (N11)."""
    if EXPONENTS[a] + EXPONENTS[b] <= -17:
        return 0
    exact = UNITS[a] * UNITS[b]  # in 2^-48
    return (exact + 2**31) >> 32 if exact >= 0 else -((-exact + 2**31) >> 32)


def start_of(bias: int) -> int:
    """A number as it enters the accumulator by itself, in 2^-16 (N12)."""
    return nearest_whole(Fraction(UNITS[bias], 2**8))


def settled(start: int, products: Iterable[int]) -> int:
    """The sum as fp16: once a partial sum reaches the limit, that infinity for good (N04)."""
    total = start
    for each in itertools.chain((0,), products):
        total += each
        if abs(total) >= LIMIT:
            return INFINITY if total > 0 else NEGATIVE_INFINITY
    return to_half(Fraction(total, UNIT))


def settled_by_tiles(start: int, products: Sequence[int]) -> int:
    """The same on the M1, four terms at a time (N08, N09). Which sums are looked at for an overflow is not stated, so
    nor is the result where any of them reaches the limit."""
    total, largest_seen = start, max(map(abs, itertools.accumulate(products, initial=start)))
    for place in range(0, len(products), 4):
        tile = products[place : place + 4]
        sums = list(itertools.accumulate(tile))
        reached = max(map(abs, (*tile, *sums)))
        if reached < 4096 * UNIT:
            total += sums[-1]
        else:
            in_half = PLUS_ZERO
            for each in tile:
                in_half = to_half(finite_value(in_half) + Fraction(each, UNIT))
                reached = max(reached, abs(UNITS[in_half]) // 2**8)
            total += start_of(in_half)
        largest_seen = max(largest_seen, reached, abs(total))
    return to_half(Fraction(total, UNIT)) if largest_seen < LIMIT else UNSTATED


def sum_of_products(chip: Chip, bias: int, pairs: list[tuple[int, int]]) -> int:
    products = [product(a, b) for a, b in pairs]
    return settled_by_tiles(start_of(bias), products) if chip.tiles else settled(start_of(bias), products)


# ---------------------------------------------------------------------------------------------------------------------
# The ops. Values are integer arrays of bits in NDCHW; a rule takes the chip, the op and its operands.

Bits = np.ndarray


def padded(x: Bits, pads: Sequence[int], fill: int) -> list:
    """D, H and W with their margins, as nested lists of Python integers."""
    return np.pad(x, ((0, 0), pads[0:2], (0, 0), pads[2:4], pads[4:6]), constant_values=fill).tolist()


def bias_of(op: Op, operands: Sequence[Bits]) -> Bits:
    return np.broadcast_to(operands[2], op.shape) if len(operands) > 2 else np.zeros(op.shape, int)


def refuse_stored_forms(op: Op) -> None:
    """Compressed kernels and other paddings are not modelled here."""
    extra = {name for name in op.attrs if name.startswith("kernel_")} - {"kernel_sizes"}
    if extra or op.attrs.get("padding_mode", "Zero") != "Zero":
        raise NotImplementedError(f"{op.name} with {sorted(extra)} {op.attrs.get('padding_mode')}")


def convolution(chip: Chip, op: Op, x: Bits, weight: Bits, *bias: Bits) -> Bits:
    """Terms in the order input channel, kernel row, kernel column.

    Where kernel depth stands in it is not stated: nor is the result, where that decides.
    """
    refuse_stored_forms(op)
    kernel, strides, dilation = (tuple(op.attrs[name]) for name in ("kernel_sizes", "strides", "dilation_rates"))
    if chip.winograd and (kernel[0], kernel[2]) == (1, 3) and steps_taken(op, x) == dilation == (1, 1, 1):  # C76
        return width_winograd(op, x, weight, *bias)
    data, kernels, start = padded(x, op.attrs["explicit_padding"], 0), weight.tolist(), bias_of(op, (x, weight, *bias))
    inner, outer = weight.shape[2], weight.shape[0] // op.attrs["groups"]
    walks = [
        [(c, *tap) for c in range(inner) for tap in np.ndindex(*kernel)],
        [(c, z, i, j) for z in range(kernel[0]) for c in range(inner) for i, j in np.ndindex(*kernel[1:])],
    ]
    walks = walks if kernel[0] > 1 else walks[:1]

    def pair(at: tuple[int, ...], c: int, *tap: int) -> tuple[int, int]:
        n, d, o, h, w = at
        z, y, u = (place * strides[i] + tap[i] * dilation[i] for i, place in enumerate((d, h, w)))
        return data[n][z][o // outer * inner + c][y][u], kernels[o][tap[0]][c][tap[1]][tap[2]]

    result = np.zeros(op.shape, int)
    for at in np.ndindex(op.shape):
        pairs = [[pair(at, *place) for place in walk] for walk in walks]
        found = {sum_of_products(chip, int(start[at]), each) for each in pairs}
        result[at] = found.pop() if len(found) == 1 else UNSTATED
        if chip.tiles and len(pairs[0]) == op.attrs["groups"] == 1:
            result[at] = agreed(int(result[at]), int(start[at]), *pairs[0][0])
    return result


def agreed(found: int, bias: int, a: int, b: int) -> int:
    """A single product on the M1 may pass by the accumulator (N06), and nothing says how it is rounded there: what is
    stated is what comes out as well without the accumulator's grid, with the bias before or after a rounding."""
    if exponent_field(a) == 31 or exponent_field(b) == 31:
        return UNSTATED
    exact, term = finite_value(a) * finite_value(b), finite_value(bias)
    once, product_first = to_half(exact + term), to_half(exact)
    if is_infinite(product_first):
        return UNSTATED
    results = {found, once, to_half(finite_value(product_first) + term)}
    if all(map(is_zero, results)):
        return ANY_ZERO
    return found if len(results) == 1 else UNSTATED


@cache
def rounded_sum(*terms: int, halved: bool = False) -> int:
    """Numbers in 2^-24 added, perhaps halved, and rounded to fp16 once."""
    return to_half(Fraction(sum(terms), 2**25 if halved else 2**24))


def transformed_data(columns: Sequence[int]) -> tuple[int, ...]:
    d0, d1, d2, d3 = (UNITS[bits] for bits in columns)
    return rounded_sum(d0, -d2), rounded_sum(d1, d2), rounded_sum(d2, -d1), rounded_sum(d1, -d3)


def transformed_kernel(row: Sequence[int]) -> tuple[int, ...]:
    g0, g1, g2 = (UNITS[bits] for bits in row)
    return row[0], rounded_sum(g0, g1, g2, halved=True), rounded_sum(g0, -g1, g2, halved=True), row[2]


def steps_taken(op: Op, x: Bits) -> tuple[int, ...]:
    """The strides, without those of an axis where the window stands once and leaves nothing over (U38)."""
    kernel, strides, pads = (op.attrs[name] for name in ("kernel_sizes", "strides", "explicit_padding"))

    def taken(place: int) -> int:
        axis = 2 + place
        stands_once = op.shape[axis] == 1 and x.shape[axis] + pads[2 * place] <= kernel[place]
        return 1 if stands_once else strides[place]

    return strides[0], taken(1), taken(2)


def width_winograd(op: Op, x: Bits, weight: Bits, *bias: Bits) -> Bits:
    """F(2, 3) along the width: two outputs from four columns, four sums over channels and kernel rows (N56).

    An odd width has a column of zeros behind it. Nothing is stated where a sum may overflow, or of infinities.
    """
    pads = list(op.attrs["explicit_padding"])
    pads[5] += op.shape[4] % 2
    data, kernels, start = padded(x, pads, 0), weight.tolist(), bias_of(op, (x, weight, *bias))
    inner, outer = weight.shape[2], weight.shape[0] // op.attrs["groups"]
    result = np.zeros(op.shape, int)
    for n, d, o, h, w in np.ndindex(op.shape):
        if w % 2:
            continue
        first = start_of(int(start[n, d, o, h, w]))
        sums, sizes = [0, first, 0, 0], abs(first)
        for c in range(inner):
            for i in range(weight.shape[3]):
                columns = data[n][d][o // outer * inner + c][h + i][w : w + 4]
                turned = transformed_data(columns), transformed_kernel(kernels[o][0][c][i])
                if any(exponent_field(bits) == 31 for bits in (*columns, *turned[0], *turned[1])):
                    sizes = LIMIT
                for place, (a, b) in enumerate(zip(*turned, strict=True)):
                    sums[place] += product(a, b)
                    sizes += abs(product(a, b))
        even, odd = sums[0] + sums[1] + sums[2], sums[1] - sums[2] - sums[3]
        for place, total in ((w, even), (w + 1, odd)):
            if place < op.shape[4]:
                result[n, d, o, h, place] = UNSTATED if sizes >= LIMIT else to_half(Fraction(total, UNIT))
    return result


def deconvolution(chip: Chip, op: Op, x: Bits, weight: Bits, *bias: Bits) -> Bits:
    """Each output gathers the inputs that reach it, channel by channel.

    Whether the kernel or the input is walked forwards is not stated: where the two disagree, nor is the result. Nor
    is it which four terms the M1 adds together.
    """
    refuse_stored_forms(op)
    kernel, strides, dilation = op.attrs["kernel_sizes"], op.attrs["strides"], op.attrs["dilation_rates"]
    before = op.attrs["explicit_padding"][0::2]
    data, kernels, start = x.tolist(), weight.tolist(), bias_of(op, (x, weight, *bias))
    inner, outer = weight.shape[0] // op.attrs["groups"], weight.shape[2]
    sizes = x.shape[1], x.shape[3], x.shape[4]
    result = np.zeros(op.shape, int)
    for n, d, o, h, w in np.ndindex(op.shape):
        reached = []
        for tap in np.ndindex(*kernel):
            ahead = [place + before[i] - tap[i] * dilation[i] for i, place in enumerate((d, h, w))]
            source = [place // strides[i] for i, place in enumerate(ahead)]
            whole = all(place % strides[i] == 0 for i, place in enumerate(ahead))
            if whole and all(0 <= place < sizes[i] for i, place in enumerate(source)):
                reached.append((tap, source))
        channels = range(o // outer * inner, (o // outer + 1) * inner)
        walks = [
            [(data[n][z][c][y][u], kernels[c][i][o % outer][j][k]) for c in channels for (i, j, k), (z, y, u) in walk]
            for walk in (reached, reached[::-1])
        ]
        found = {sum_of_products(chip, int(start[n, d, o, h, w]), walk) for walk in walks}
        fours = chip.tiles and sum(abs(product(a, b)) for a, b in walks[0]) >= 4096 * UNIT
        result[n, d, o, h, w] = UNSTATED if fours or len(found) > 1 else found.pop()
    return result


def matmul(chip: Chip, op: Op, a: Bits, b: Bits, *bias: Bits) -> Bits:
    """N and H are the batch, C the rows, W the columns; a flag exchanges C and W."""
    a = a.swapaxes(2, 4) if op.attrs.get("transpose_lhs") else a
    b = b.swapaxes(2, 4) if op.attrs.get("transpose_rhs") else b
    start, depth = bias_of(op, (a, b, *bias)), a.shape[4]
    left = np.broadcast_to(a, (op.shape[0], 1, op.shape[2], op.shape[3], depth))
    right = np.broadcast_to(b, (op.shape[0], 1, depth, op.shape[3], op.shape[4]))
    result = np.zeros(op.shape, int)
    for n, d, c, h, w in np.ndindex(op.shape):
        pairs = [(int(left[n, d, c, h, k]), int(right[n, d, k, h, w])) for k in range(depth)]
        result[n, d, c, h, w] = sum_of_products(chip, int(start[n, d, c, h, w]), pairs)
    return result


def linear(chip: Chip, op: Op, x: Bits, weight: Bits, *bias: Bits) -> Bits:
    """The width contracted with a weight of C = out, W = in."""
    refuse_stored_forms(op)
    start = bias_of(op, (x, weight, *bias))
    result = np.zeros(op.shape, int)
    for n, d, c, h, w in np.ndindex(op.shape):
        pairs = [(int(x[n, d, c, h, k]), int(weight[0, 0, w, 0, k])) for k in range(x.shape[4])]
        result[n, d, c, h, w] = sum_of_products(chip, int(start[n, d, c, h, w]), pairs)
    return result


# ---------------------------------------------------------------------------------------------------------------------
# One element at a time.


def plus(a: int, b: int) -> int:
    """inf - inf gives +0 (N32), -0 + 0 gives +0 (N33); of -0 + -0 nothing is said."""
    a, b = without_nan(a), without_nan(b)
    if is_infinite(a) and is_infinite(b):
        return a if a == b else PLUS_ZERO
    if is_infinite(a) or is_infinite(b):
        return a if is_infinite(a) else b
    if is_zero(a) and is_zero(b) and PLUS_ZERO not in (a, b):
        return ANY_ZERO
    return to_half_twice(finite_value(a) + finite_value(b))


def negative_of(bits: int) -> int:
    bits = without_nan(bits)
    return bits if bits == ANY_ZERO else bits ^ MINUS_ZERO


def minus(a: int, b: int) -> int:
    return plus(a, negative_of(b))


def times(a: int, b: int) -> int:
    """0 * inf gives +0 (N32). Which zero another product is, is not said, unless both signs are plus."""
    a, b = without_nan(a), without_nan(b)
    if (is_infinite(a) and is_zero(b)) or (is_infinite(b) and is_zero(a)):
        return PLUS_ZERO
    if is_infinite(a) or is_infinite(b):
        return INFINITY if is_negative(a) == is_negative(b) else NEGATIVE_INFINITY
    if is_zero(a) or is_zero(b):
        return ANY_ZERO if ANY_ZERO in (a, b) or is_negative(a) or is_negative(b) else PLUS_ZERO
    return to_half_twice(finite_value(a) * finite_value(b))


def over(a: int, b: int) -> int:
    """A zero divisor has no sign (N33); 0 / 0 and inf / inf give +0 as every indeterminate form does (N32)."""
    a, b = without_nan(a), without_nan(b)
    if (is_zero(a) and is_zero(b)) or (is_infinite(a) and is_infinite(b)):
        return PLUS_ZERO
    if is_zero(b):
        return NEGATIVE_INFINITY if is_negative(a) else INFINITY
    if is_infinite(a):
        return INFINITY if is_negative(a) == is_negative(b) else NEGATIVE_INFINITY
    if is_infinite(b) or is_zero(a):
        return ANY_ZERO if a == ANY_ZERO or is_negative(a) or is_negative(b) else PLUS_ZERO
    return to_half_twice(finite_value(a) / finite_value(b))


def largest(*numbers: int) -> int:
    """No rounding. Between two zeros of different signs nothing is said."""
    best, *others = (without_nan(bits) for bits in numbers)
    for bits in others:
        if UNITS[bits] > UNITS[best]:
            best = bits
        elif UNITS[bits] == UNITS[best] and bits != best:
            best = ANY_ZERO
    return best


def smallest(*numbers: int) -> int:
    return negative_of(largest(*(negative_of(bits) for bits in numbers)))


def rectified(bits: int) -> int:
    return largest(bits, PLUS_ZERO)


def absolute(bits: int) -> int:
    bits = without_nan(bits)
    return PLUS_ZERO if is_zero(bits) else bits & ~MINUS_ZERO


ELEMENTWISE: dict[str, Callable[..., int]] = {
    "add": plus,
    "sub": minus,
    "mult": times,
    "div": over,
    "max": largest,
    "min": smallest,
    "relu": rectified,
    "abs": absolute,
}


def elementwise(op: Op, *operands: Bits) -> Bits:
    spread = [np.broadcast_to(each, op.shape).reshape(-1).tolist() for each in operands]
    return np.array([ELEMENTWISE[op.kind](*numbers) for numbers in zip(*spread, strict=True)], int).reshape(op.shape)


def gain_offset_control(op: Op, x: Bits, scale: Bits | None = None, offset: Bits | None = None) -> Bits:
    """gain * scale * x + bias + offset, exactly, and one rounding."""
    gain, bias = (Fraction(op.attrs.get(name, default)) for name, default in (("gain", 1.0), ("bias", 0.0)))
    scales = np.broadcast_to(0x3C00 if scale is None else scale, op.shape).reshape(-1).tolist()
    offsets = np.broadcast_to(0 if offset is None else offset, op.shape).reshape(-1).tolist()
    result = []
    for number, factor, term in zip(x.reshape(-1).tolist(), scales, offsets, strict=True):
        bits, slope = without_nan(number), gain * finite_value(factor)
        if is_infinite(bits) and slope == 0:
            result.append(UNSTATED)
        elif is_infinite(bits):
            result.append(INFINITY if is_negative(bits) == (slope < 0) else NEGATIVE_INFINITY)
        else:
            exact = slope * finite_value(bits) + bias + finite_value(term)
            result.append(to_half(exact) if exact else ANY_ZERO)
    return np.array(result, int).reshape(op.shape)


def max_pool(op: Op, x: Bits) -> Bits:
    """The margin loses against every number."""
    data, kernel, stride = padded(x, op.attrs["padding"], NEGATIVE_INFINITY), op.attrs["ksize"], op.attrs["stride"]
    result = np.zeros(op.shape, int)
    for n, d, c, h, w in np.ndindex(op.shape):
        window = [
            data[n][d * stride[0] + z][c][h * stride[1] + i][w * stride[2] + j] for z, i, j in np.ndindex(*kernel)
        ]
        result[n, d, c, h, w] = largest(*window)
    return result


# ---------------------------------------------------------------------------------------------------------------------
# Moves.


def transpose(op: Op, x: Bits) -> Bits:
    order = list(range(5))
    for to, source in op.attrs["transpose_list"]:
        order[to] = source
    return x.transpose(order)


def input_view(op: Op, x: Bits) -> Bits:
    """A width slice by the crop engine of the older chips holds no more than 4094 (N18)."""
    first, count, step = (op.attrs[name] for name in ("offset", "size", "step"))
    taken = np.take(x, [first + step * place for place in range(count)], axis=op.attrs["dimension"])
    if op.labels.get("storage") != "q4":
        return taken
    too_large = (taken != ANY_ZERO) & ((taken & 0x7FFF) > to_half(Fraction(4094)))
    held = np.where(too_large, taken & MINUS_ZERO | INFINITY, taken)
    return np.where((taken & 0x7FFF) > INFINITY, UNSTATED, held)  # of NaN nothing is said


def padding(op: Op, x: Bits) -> Bits:
    if op.attrs["padding_modes"] not in ("Zero", "Background"):
        raise NotImplementedError(op.attrs["padding_modes"])
    background = op.attrs["background_value"] if op.attrs["padding_modes"] == "Background" else 0.0
    return np.pad(x, op.attrs["padding_sizes"], constant_values=to_half(Fraction(background)))


PLAIN: dict[str, Callable[..., Bits]] = {
    **dict.fromkeys(ELEMENTWISE, elementwise),
    "gain_offset_control": gain_offset_control,
    "max_pool": max_pool,
    "reshape": lambda op, x: x.reshape(op.attrs["shape"]),
    "broadcast": lambda op, x: np.broadcast_to(x, op.attrs["shape"]),
    "transpose": transpose,
    "concat": lambda op, *xs: np.concatenate(xs, axis=op.attrs["axis"]),
    "input_view": input_view,
    "padding": padding,
}
SUMS: dict[str, Callable[..., Bits]] = {
    "convolution": convolution,
    "deconvolution": deconvolution,
    "matmul": matmul,
    "linear": linear,
}


# ---------------------------------------------------------------------------------------------------------------------
# A program against the simulator.


def bits_of(values: np.ndarray) -> Bits:
    """fp16 numbers as integers."""
    assert values.dtype == np.float16
    return values.view(np.uint16).astype(int)


def in_layout(values: Bits, shape: tuple[int, ...]) -> Bits:
    """A value of the user's shape in NDCHW: rank 5 is NCDHW there, every other rank keeps its order."""
    return values.transpose(0, 2, 1, 3, 4) if values.ndim == 5 else values.reshape(shape)


@dataclass
class Slow:
    """What the slow model says about a program: bits by op, in the order of the ops; None where nothing is stated."""

    ops: list[Op]
    values: list[Bits | None]
    outputs: dict[str, Bits | None]

    @property
    def compared(self) -> int:
        """How many elements have a stated value."""
        return sum(int((each != UNSTATED).sum()) for each in self.values if each is not None)


def slowly(module: Module, chip: Chip, feeds: dict[str, np.ndarray]) -> Slow:
    made: dict[int, Bits | None] = {}
    slow = Slow([], [], {})
    for op in module.ops:
        operands = [made[each.uid] for each in op.operands]
        if op.kind == "live_in":
            made[op.uid] = in_layout(bits_of(feeds[op.attrs["name"]]), op.shape)
        elif op.kind == "const_in":
            stored = bits_of(np.ascontiguousarray(module.weights[op.attrs["weight"]].array))
            straight = stored.ndim != 5 or stored.shape == op.shape
            made[op.uid] = stored.reshape(op.shape) if straight else in_layout(stored, op.shape)
        elif op.kind == "live_out":
            slow.outputs = dict(zip(op.attrs["names"], operands, strict=True))
        else:
            made[op.uid] = computed(chip, op, operands)
            slow.ops.append(op)
            slow.values.append(made[op.uid])
    return slow


def computed(chip: Chip, op: Op, operands: list[Bits | None]) -> Bits | None:
    if any(each is None or (each == UNSTATED).any() for each in operands):
        return None
    if op.kind == "div" and chip.reciprocal:
        one = np.full(operands[1].shape, 0x3C00)
        inverse = np.array([over(*pair) for pair in zip(one.flat, operands[1].flat, strict=True)], int)
        spread = (np.broadcast_to(each, op.shape).flat for each in (operands[0], inverse.reshape(one.shape)))
        return np.array([times(*pair) for pair in zip(*spread, strict=True)], int).reshape(op.shape)
    value = SUMS[op.kind](chip, op, *operands) if op.kind in SUMS else PLAIN[op.kind](op, *operands)
    assert value.shape == op.shape
    return value


def differences(found: np.ndarray, want: Bits) -> list[str]:
    """Where the bits differ, as text; empty where they do not."""
    got = bits_of(np.ascontiguousarray(found))
    assert got.shape == want.shape
    same = (got == want) | (want == UNSTATED) | ((want == ANY_ZERO) & (got & 0x7FFF == 0))
    return [
        f"{tuple(map(int, place))}: simulator {got[tuple(place)]:#06x}, slow {want[tuple(place)]:#06x}"
        for place in np.argwhere(~same)
    ]


def assert_same_bits(model: Model, chip: str, feeds: dict[str, np.ndarray]) -> Slow:
    """Every intermediate and every output of a run has the bits that the slow model gives."""
    run = model.run(feeds, trace=True)
    slow = slowly(model.program.module, CHIPS[chip], feeds)
    assert [entry.op for entry in run.trace] == [op.kind for op in slow.ops]
    for entry, op, want in zip(run.trace, slow.ops, slow.values, strict=True):
        wrong = [] if want is None else differences(entry.value, want)
        assert not wrong, f"{chip} {op!r} of {', '.join(op.sources)}: {len(wrong)} differ, first {wrong[:4]}"
    for port in model.program.outputs:
        want = slow.outputs[port.name]
        if want is not None:
            want = np.where((want < ANY_ZERO) & (want & 0x7FFF > INFINITY), INFINITY, want)  # no NaN comes out (N31)
            shaped = want.transpose(0, 2, 1, 3, 4) if len(port.user_shape) == 5 else want.reshape(port.user_shape)
            assert not differences(run.outputs[port.name], shaped)
    return slow


@pytest.fixture(params=["native", "plain"])
def form(request, monkeypatch) -> Iterator[str]:
    """Both forms of the simulator's sums: in C, and in NumPy alone."""
    if request.param == "plain":
        monkeypatch.setenv("ANEFORGE_NATIVE", "0")
        native.settings.cache_clear()
        assert not native.available()
    elif not native.available():
        pytest.skip(native.why_not())
    yield request.param
    monkeypatch.undo()
    native.settings.cache_clear()


# ---------------------------------------------------------------------------------------------------------------------
# Random numbers and random graphs.


def normal_numbers(rng: np.random.Generator, count: int) -> Bits:
    return bits_of(rng.normal(0, 0.6, count).astype(np.float16))


def wide_numbers(rng: np.random.Generator, count: int) -> Bits:
    """Every exponent from the subnormals to 2^6, either sign, zeros among them."""
    drawn = rng.integers(0, 22, count) << 10 | rng.integers(0, 1024, count) | rng.integers(0, 2, count) << 15
    return np.where(rng.random(count) < 0.06, drawn & MINUS_ZERO, drawn)


def tie_numbers(rng: np.random.Generator, count: int) -> Bits:
    """Few significant bits at distances at which sums and products fall between two numbers."""
    sizes = [1, 3, 5, 1023, 1025, 2047, 2048, 0.5, 1.5, 2**-5, 2**-8, 3 * 2**-9, 2**-11, 2**-14, 3 * 2**-15, 2**-16]
    sizes += [2**-17, 3 * 2**-18, 2**-24, 3 * 2**-24, 1 + 2**-10, 1 + 3 * 2**-10]
    return bits_of((rng.choice(sizes, count) * rng.choice([-1, 1], count)).astype(np.float16))


def large_numbers(rng: np.random.Generator, count: int) -> Bits:
    """Up to a few hundred each, so that products and sums cross 2^15."""
    drawn = rng.integers(12, 25, count) << 10 | rng.integers(0, 1024, count) | rng.integers(0, 2, count) << 15
    return np.where(rng.random(count) < 0.15, drawn + (6 << 10), drawn)


def any_numbers(rng: np.random.Generator, count: int) -> Bits:
    """Any of the 65536, infinities and NaN among them more often than by chance."""
    special = rng.choice([INFINITY, NEGATIVE_INFINITY, 0x7E00, 0x7F21, MINUS_ZERO, PLUS_ZERO], count)
    drawn = np.where(rng.random(count) < 0.15, special, rng.integers(0, 65536, count))
    return np.where(drawn > NEGATIVE_INFINITY, drawn & 0x7FFF, drawn)  # a NaN with a sign: see the directed cases


def weight_numbers(draw: Callable[..., Bits]) -> Callable[..., Bits]:
    """The same without NaN and infinity, which no graph takes as a weight."""

    def drawn(rng: np.random.Generator, count: int) -> Bits:
        found = draw(rng, count)
        return np.where(found & INFINITY == INFINITY, found & 0x83FF, found)

    return drawn


NUMBERS = {
    "normal": normal_numbers,
    "wide": wide_numbers,
    "ties": tie_numbers,
    "large": large_numbers,
    "any": any_numbers,
}


def numbers(rng: np.random.Generator, kind: str, *shape: int) -> np.ndarray:
    count = int(np.prod(shape))
    return NUMBERS[kind](rng, count).astype(np.uint16).view(np.float16).reshape(shape)


class Maker:
    """A random graph over maps [N, C, H, W]; each step takes one of the last values and makes another."""

    def __init__(self, seed: int, kind: str) -> None:
        self.rng = np.random.default_rng(seed)
        self.kind = kind
        n, c, h, w = (self.pick(choices) for choices in ([1, 1, 2], [1, 2, 3, 4, 6], [3, 4, 5, 6], [3, 4, 5, 6, 7]))
        self.x = af.input((n, c, h, w), name="x")
        self.y = af.input((n, c, h, w), name="y")
        self.values = [self.x, self.y]
        steps = (self.conv, self.conv, self.conv, self.conv_transpose, self.linear, self.product, self.pair, self.pair)
        steps += (self.with_constant, self.single, self.pool, self.join, self.part, self.turn, self.margin)
        for _ in range(self.pick([3, 4, 5, 6, 7, 8])):
            self.values.append(self.pick(steps)(self.pick(self.values[-3:])))

    def pick(self, choices: Sequence[Any]) -> Any:
        return choices[int(self.rng.integers(len(choices)))]

    def weight(self, *shape: int) -> np.ndarray:
        found = weight_numbers(NUMBERS[self.kind])(self.rng, int(np.prod(shape)))
        return found.astype(np.uint16).view(np.float16).reshape(shape)

    def conv(self, v):
        _, c, h, w = v.shape
        kernel = self.pick([(1, 1), (3, 3), (3, 3), (1, 3), (3, 1), (2, 2)])
        dilation = self.pick([(1, 1), (1, 1), (1, 1), (2, 1), (1, 2), (2, 2)])
        pad = self.pick([(0, 0, 0, 0), (1, 1, 1, 1), (1, 1, 1, 1), (0, 1, 1, 0), (2, 0, 0, 2)])
        reach = [dilation[i] * (kernel[i] - 1) + 1 for i in range(2)]
        if h + pad[0] + pad[1] < reach[0] or w + pad[2] + pad[3] < reach[1]:
            kernel, dilation = (1, 1), (1, 1)
        groups = self.pick([each for each in (1, 1, 2, 3, c) if c % each == 0])
        out = groups * self.pick([1, 2] if groups > 1 else [1, 2, 3, 4])
        bias = self.weight(out) if self.rng.random() < 0.5 else None
        made = af.conv(
            v,
            self.weight(out, c // groups, *kernel),
            stride=self.pick([1, 1, 1, 2, (2, 1)]),
            pad=pad,
            dilation=dilation,
            groups=groups,
            bias=bias,
        )
        return made.relu() if self.rng.random() < 0.3 else made

    def conv_transpose(self, v):
        _, c, h, w = v.shape
        if h * w > 42:
            return self.pool(v)
        kernel = self.pick([(1, 1), (2, 2), (3, 3), (1, 3)])
        groups = self.pick([each for each in (1, 1, 2, c) if c % each == 0])
        per = self.pick([1, 2])
        pad = self.pick([0, (0, 0, 0, 1), (1, 0, 0, 0)]) if min(kernel) > 1 else 0
        bias = self.weight(groups * per) if self.rng.random() < 0.5 else None
        return af.conv_transpose(
            v, self.weight(c, per, *kernel), stride=self.pick([1, 2, (1, 2)]), pad=pad, groups=groups, bias=bias
        )

    def linear(self, v):
        n, c, h, w = v.shape
        out = self.pick([2, 3, 5])
        bias = self.weight(out) if self.rng.random() < 0.5 else None
        if self.rng.random() < 0.5:
            return v.linear(self.weight(out, w), bias)
        return v.reshape(n * c, h * w).linear(self.weight(out, h * w), bias).reshape(n, c, 1, out)

    def product(self, v):
        n, c, h, w = v.shape
        form = self.pick(["maps", "stored", "rows", "columns"])
        if form == "maps":
            return v @ v.transpose([0, 1, 3, 2])
        if form == "stored":
            return v @ self.weight(w, 3)
        rows = v.reshape(n * c, h * w)
        if form == "rows" or h * w > 16:
            return (rows @ rows.transpose([1, 0])).reshape(1, 1, n * c, n * c)
        return (rows.transpose([1, 0]) @ rows).reshape(1, 1, h * w, h * w)

    def pair(self, v):
        mate = self.pick([each for each in self.values if each.shape == v.shape])
        operation = self.pick([add, sub, mul, truediv, af.maximum, af.minimum])
        return operation(*self.pick([(v, mate), (mate, v)]))

    def with_constant(self, v):
        other = self.weight(*self.pick([(1, v.shape[1], 1, 1), (1, 1, 1, 1), v.shape]))
        if self.rng.random() < 0.25:
            return v * 0.3 + other
        return self.pick([add, sub, mul])(v, other)

    def single(self, v):
        return v.relu() if self.rng.random() < 0.5 else v.abs()

    def pool(self, v):
        h, w = v.shape[2:]
        size = self.pick([each for each in (1, 2, 3) if each <= min(h, w)])
        return v.max_pool(size, self.pick([1, 2]), pad=self.pick([0, 1, (0, 1, 1, 0)]) if size > 1 else 0)

    def join(self, v):
        mates = [each for each in self.values if each.shape[0] == v.shape[0] and each.shape[2:] == v.shape[2:]]
        return af.concat([v, self.pick(mates)], axis=1) if v.shape[1] <= 6 else v.abs()

    def part(self, v):
        begin = [int(self.rng.integers(size)) if axis else 0 for axis, size in enumerate(v.shape)]
        size = [int(self.rng.integers(1, whole - first + 1)) for whole, first in zip(v.shape, begin, strict=True)]
        return v.slice_by_size([0, *begin[1:]], [v.shape[0], *size[1:]])

    def turn(self, v):
        return v.transpose(self.pick([[0, 1, 3, 2], [0, 2, 1, 3], [0, 3, 2, 1]])) if max(v.shape) <= 8 else v.relu()

    def margin(self, v):
        top, left = self.pick([0, 1]), self.pick([0, 1])
        return af.pad(v, ((0, 0), (0, 0), (top, 1), (left, 0)))

    def results(self) -> list[Any]:
        """The last value, or the last two."""
        return self.values[-2:] if len(self.values) > 3 and self.rng.random() < 0.4 else self.values[-1:]


def assert_random_graph(seed: int, kind: str, chip: str) -> Slow:
    maker = Maker(seed, kind)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", af.PrecisionWarning)  # a known fault of a chip is not what is compared here
        model = af.compile(maker.results(), target=chip)
    feeds = {port.name: numbers(maker.rng, kind, *port.user_shape) for port in model.program.inputs}
    return assert_same_bits(model, chip, feeds)


@pytest.mark.parametrize("kind", NUMBERS)
@pytest.mark.parametrize("chip", ["h13", "h14", "h16g", "h17s", "h18g"])
def test_random_programs_have_the_same_bits(form, chip, kind):
    """Programs of three to eight steps over each kind of numbers; little of them may be beyond the stated rules."""
    elements = compared = 0
    for seed in range(16):
        slow = assert_random_graph(seed, kind, chip)
        elements += sum(int(np.prod(op.shape)) for op in slow.ops)
        compared += slow.compared
    assert compared > elements * (0.9 if kind == "normal" else 0.4 if chip == "h13" else 0.75)


@given(st.integers(100, 2**32), st.sampled_from(list(NUMBERS)), st.sampled_from(list(CHIPS)))
@example(2_249_250_899, "normal", "h13")  # joins two slices: compiling it warns of a pattern the M1 gets wrong
@settings(max_examples=250)
def test_random_programs_of_any_seed(seed, kind, chip):
    assert_random_graph(seed, kind, chip)


# ---------------------------------------------------------------------------------------------------------------------
# The slow model itself: what can be said without it.

EVERY = np.arange(65536, dtype=np.uint16).view(np.float16)


def test_every_fp16_number_rounds_to_itself_and_neighbours_meet_half_way():
    """Whatever lies between two numbers goes to the nearer, and the middle to the one further from zero."""
    for bits in range(1, INFINITY - 1):
        here, after = (Fraction(float(EVERY[each])) for each in (bits, bits + 1))
        middle, step = (here + after) / 2, (after - here) / 8
        assert to_half(here) == bits
        assert to_half(-here) == bits | MINUS_ZERO
        assert to_half(middle) == bits + 1
        assert to_half(-middle) == bits + 1 | MINUS_ZERO
        assert to_half(middle - step) == bits
    assert to_half(Fraction(65520)) == INFINITY
    assert to_half(Fraction(-65520)) == NEGATIVE_INFINITY
    assert to_half(Fraction(65520) - Fraction(1, 2**60)) == 0x7BFF
    assert to_half(Fraction(1, 2**25)) == 1
    assert to_half(Fraction(1, 2**25) - Fraction(1, 2**60)) == PLUS_ZERO


def test_the_multipliers_read_every_finite_number_as_it_is():
    finite = np.isfinite(EVERY)
    assert [Fraction(UNITS[bits], 2**24) for bits in np.flatnonzero(finite)] == [
        Fraction(float(each)) for each in EVERY[finite]
    ]
    assert UNITS[INFINITY] == 2**40
    assert UNITS[0x7E00] == 3 * 2**39
    assert [EXPONENTS[bits] for bits in (0, 1, 0x03FF, 0x0400, 0x3C00, 0x7BFF, INFINITY)] == [
        *(-14, -14, -14, -14),
        *(0, 15, 16),
    ]


# ---------------------------------------------------------------------------------------------------------------------
# Directed cases: the expected number is written down, and both models must give it.


def half(*values: float) -> np.ndarray:
    with np.errstate(over="ignore"):
        return np.array(values, np.float16)


def from_bits(*bits: int) -> np.ndarray:
    return np.array(bits, np.uint16).view(np.float16)


def outputs_of(out: Any, chip: str, **feeds: np.ndarray) -> np.ndarray:
    """The simulator's only result as bits, after the slow model has agreed with every one of them."""
    model = af.compile(out, target=chip)
    slow = assert_same_bits(model, chip, feeds)
    assert all(each is not None and (each != UNSTATED).all() for each in slow.values)
    (found,) = model.run(feeds).outputs.values()
    return found


def channel_sum(chip: str, x: np.ndarray, weights: np.ndarray, bias: float | None = None) -> float:
    """A 1 x 1 convolution: one term for each channel, in that order."""
    fed = af.input((1, len(x), 1, 1), name="x")
    start = None if bias is None else half(bias)
    found = outputs_of(af.conv(fed, weights.reshape(1, -1, 1, 1), bias=start), chip, x=x.reshape(1, -1, 1, 1))
    return float(found.reshape(()))


DIRECT = ["h14", "h16g", "h17s"]
ENDLESS = float("inf")


@pytest.mark.parametrize("chip", DIRECT)
@pytest.mark.parametrize(
    ("terms", "bias", "expected"),
    [
        ((20000, -20000, 20000), None, 20000),
        ((20000, 20000, -20000), None, ENDLESS),
        ((-20000, -20000, 30000), None, -ENDLESS),
        ((-20000, -20000, 30000, 30000, 30000), None, -ENDLESS),
        ((16384, 16376), None, 32768),  # below 2^15 until it is rounded
        ((16384, 16384), None, ENDLESS),
        ((16384, 16384, -16384), None, ENDLESS),
        ((-16384, -16384), None, -ENDLESS),
        ((4992, -10000), 30000, ENDLESS),  # the bias comes first
        ((-10000, 4992), 30000, 24992),
        ((-20000,), 40000, ENDLESS),
        ((0,), -32768, -ENDLESS),
    ],
)
def test_an_overflow_is_for_good_and_depends_on_the_order(form, chip, terms, bias, expected):
    """N04, N12."""
    assert channel_sum(chip, half(*terms), half(*[1] * len(terms)), bias) == expected
    assert channel_sum(chip, half(*[1] * len(terms)), half(*terms), bias) == expected


@pytest.mark.parametrize("chip", DIRECT)
def test_terms_come_by_channel_then_row_then_column(form, chip):
    """Large terms that cancel in this order and in no other."""
    x = af.input((1, 2, 2, 2), name="x")
    ones = np.ones((1, 2, 2, 2), np.float16)
    for signs, expected in (
        (((1, -1), (1, -1), (1, -1), (1, -1)), 0.0),
        (((1, 1), (-1, -1), (1, 1), (-1, -1)), ENDLESS),  # column by column it would cancel
        (((1, 0), (-1, 0), (1, 0), (-1, 0)), 0.0),  # kernel place by kernel place it would not
        (((1, 0), (0, 1), (-1, 0), (0, -1)), ENDLESS),  # kernel place by kernel place it would cancel
        (((0, 1), (0, -1), (0, 1), (0, -1)), 0.0),
    ):
        kernel = 20000 * np.array(signs, np.float16).reshape(1, 2, 2, 2)
        assert outputs_of(af.conv(x, kernel), chip, x=ones).item() == expected


@pytest.mark.parametrize("chip", ["h13", *DIRECT])
@pytest.mark.parametrize(
    ("terms", "expected"),
    [
        ((2048, 1), 2050),
        ((-2048, -1), -2050),
        ((2048, 0.5, 0.25), 2048),
        ((2048, 3), 2052),
        ((1, 2**-11), 1 + 2**-10),
        ((1, 2**-11, -(2**-16)), 1),
        ((-1, -(2**-11)), -1 - 2**-10),
        ((4090, 8), 4100),
    ],
)
def test_a_tie_goes_away_from_zero(form, chip, terms, expected):
    """N14; on every chip, the M1's fours of terms too."""
    assert channel_sum(chip, half(*terms, 0, 0), half(*[1] * len(terms), 0, 0)) == expected


@pytest.mark.parametrize("chip", ["h13", *DIRECT])
@pytest.mark.parametrize(
    ("a", "b", "units"),
    [
        (1.99 * 2**-3, 1.99 * 2**-14, 0),  # exponents -3 and -14: dropped, though nearly 2^-15
        (0.125, 1.5 * 2**-13, 2),  # exponents sum to -16: one and a half
        (2**-2, 2**-14, 1),
        (2**-2, 2**-15, 1),  # a subnormal counts as 2^-14: half a unit, away from zero
        (-(2**-2), 2**-15, -1),
        (2**-2, 2**-15 - 2**-24, 0),
        (2**-3, 2**-14, 0),
        (1, 2**-17, 1),
        (1, 2**-24, 0),
        (256, 2**-24, 1),
        (128, 2**-24, 1),
        (127, 2**-24, 0),
        (2**-8, 2**-8, 1),
        (2**-9, 1.99 * 2**-8, 0),
    ],
)
def test_small_products_are_rounded_or_dropped(form, chip, a, b, units):
    """N11, in 2^-16."""
    assert channel_sum(chip, half(a, 0), half(b, 0)) == units * 2**-16
    assert channel_sum(chip, half(b, 0), half(a, 0)) == units * 2**-16
    assert channel_sum(chip, half(a, a, a), half(b, b, b)) == 3 * units * 2**-16


@pytest.mark.parametrize("chip", ["h13", *DIRECT])
@pytest.mark.parametrize(
    ("bias", "units"),
    [
        *((2**-24, 0), (2**-17, 1), (-(2**-17), -1), (2**-17 - 2**-24, 0), (3 * 2**-18, 1), (3 * 2**-17, 2)),
        *((-(5 * 2**-17), -3), (2**-16 + 2**-24, 1), (-0.0, 0)),
    ],
)
def test_a_bias_is_rounded_to_the_accumulators_step(form, chip, bias, units):
    """N12."""
    assert channel_sum(chip, half(0, 0), half(1, 1), bias) == units * 2**-16
    assert channel_sum(chip, half(2**-16, 0), half(1, 1), bias) == (units + 1) * 2**-16


@pytest.mark.parametrize("chip", DIRECT)
@pytest.mark.parametrize(
    ("bits", "weight", "expected"),
    [
        *((INFINITY, 0.25, 16384), (NEGATIVE_INFINITY, 0.25, -16384), (INFINITY, 0.5, ENDLESS)),
        *((INFINITY, 0, 0), (INFINITY, 2**-16, 1), (INFINITY, 2**-24, 2**-8), (NEGATIVE_INFINITY, 1, -ENDLESS)),
        *((0x7E00, 0.25, 24576), (0xFE00, 0.25, -24576), (0x7FFF, 0.125, 16376), (0x7E00, -1, -ENDLESS)),
    ],
)
def test_multipliers_read_infinity_and_nan_as_numbers(form, chip, bits, weight, expected):
    """N31: infinity is 2^16, NaN larger."""
    assert channel_sum(chip, from_bits(bits, 0x3C00), half(weight, 0)) == expected
    a, b = af.input((1, 2), name="a"), af.input((2, 1), name="b")
    found = outputs_of(a @ b, chip, a=from_bits(bits, 0x3C00).reshape(1, 2), b=half(weight, 0).reshape(2, 1))
    assert found.item() == expected


@pytest.mark.parametrize("chip", DIRECT)
def test_a_sum_of_nothing_is_plus_zero(form, chip):
    """N33: minus zero does not come out of an accumulator."""
    for x, weight, bias in ((-0.0, 1, None), (-0.0, 1, -0.0), (-(2**-24), 1, None), (1, -(2**-24), -(2**-24))):
        found = channel_sum(chip, half(x, 0), half(weight, 0), bias)
        assert found == 0
        assert not np.signbit(found)


@pytest.mark.parametrize(("large", "expected"), [(1024, 2048), (4096, 5116)])
def test_the_m1_loses_what_shares_a_four_with_4096(form, large, expected):
    """N08: one 4096 and 1024 ones are 5116 there, and exactly 5120 elsewhere."""
    terms = half(large, *[1] * 1024)
    assert channel_sum("h13", terms, half(*[1] * 1025)) == expected
    assert channel_sum("h16g", terms, half(*[1] * 1025)) == large + 1024


@pytest.mark.parametrize("size", [1024, 3000, 4090, 4096, 8000, 16000, 30000])
def test_the_m1_keeps_every_fourth_one_beside_large_terms(form, size):
    """N09: of sixteen ones, each behind +B and -B, four are left from 4096 on."""
    terms = half(*[size, -size, 1] * 16)
    assert channel_sum("h13", terms, half(*[1] * 48)) == (4 if size >= 4096 else 16)
    assert channel_sum("h16g", terms, half(*[1] * 48)) == 16


def test_the_m1_adds_a_large_four_term_by_term(form):
    """A large term and its opposite, moved through the places of two fours; the small ones beside them are 9.25."""
    found = []
    for place in range(4):
        terms = half(*[0] * place, 0.5, 8000, 3, -8000, 0.75, 5, *[0] * (3 - place))
        found.append(channel_sum("h13", terms, half(*[1] * len(terms))))
        assert channel_sum("h16g", terms, half(*[1] * len(terms))) == 9.25
    # Beside 8000 a four counts in fours: (8000 + 3 - 8000 = 4) + 5.75; 8004 - 7996; 8000 - 7992; 0.5 + 4.75 + 5.
    assert found == [9.75, 8, 8, 10.25]


def test_a_single_product_of_the_m1_has_no_ceiling(form):
    """N06: one channel, one by one; 60000 there and infinite elsewhere."""
    out = af.conv(af.input((1, 1, 1, 1), name="x"), np.full((1, 1, 1, 1), 240.0))
    x = half(250).reshape(1, 1, 1, 1)
    assert af.compile(out, target="h13").run({"x": x}).outputs["conv_0"].item() == 60000
    assert outputs_of(out, "h16g", x=x).item() == ENDLESS


@pytest.mark.parametrize("chip", ["h17", "h17s", "h18g"])
@pytest.mark.parametrize("width", [3, 4, 5, 6, 7])
def test_the_winograd_form_at_every_width(form, chip, width):
    """N56: even and odd widths with and without margins, groups and a bias; and it is not the direct sum."""
    rng = np.random.default_rng(width)
    x = af.input((2, 4, 5, width), name="x")
    fed = rng.normal(size=x.shape).astype(np.float16)
    differs = False
    for pad, groups in (((0, 0, 0, 0), 1), ((1, 1, 1, 1), 1), ((0, 1, 1, 0), 2), ((1, 1, 1, 1), 4)):
        weight = rng.normal(0, 0.4, (4, 4 // groups, 3, 3)).astype(np.float16)
        out = af.conv(x, weight, pad=pad, groups=groups, bias=rng.normal(size=4).astype(np.float16))
        differs |= (outputs_of(out, chip, x=fed) != outputs_of(out, "h16g", x=fed)).any()
    assert differs


@pytest.mark.parametrize("taps", [1, 2, 5])
def test_the_winograd_form_at_other_heights(form, taps):
    """C76: the form is along the width only, so that any number of rows takes it."""
    rng = np.random.default_rng(taps)
    x = af.input((1, 3, 6, 5), name="x")
    fed = rng.normal(size=x.shape).astype(np.float16)
    out = af.conv(x, rng.normal(0, 0.4, (4, 3, taps, 3)).astype(np.float16), pad=(0, 1, 1, 1))
    assert (outputs_of(out, "h17s", x=fed) != outputs_of(out, "h16g", x=fed)).any()


@pytest.mark.parametrize("chip", ["h17s", "h18g"])
def test_the_winograd_transforms_round_to_fp16(form, chip):
    """One row of data and one of the kernel: what the transforms round away, and what the direct sum gives instead."""
    x = af.input((1, 1, 3, 4), name="x")
    for data, kernel, expected, direct in (
        ((2048, 0, 1, 0), (1, 0, 0), [2048, 0], [2048, 0]),  # d0 - d2 is 2047, which fp16 holds
        ((2048, 0, -1, 0), (1, 0, 0), [2050, 0], [2048, 0]),  # 2049 becomes 2050; 2049 in the end is a tie again
        ((0, 1, 0, 0), (2048, 1, 0), [1.5, 2048], [1, 2048]),  # half of 2049 becomes 1025, half of 2047 is held
        ((0, 2048, 0, 0), (2**-24, 0, 0), [0, 2**-12], [0, 2**-13]),  # half of the smallest number is the smallest
    ):
        rows, weight = np.zeros((1, 1, 3, 4), np.float16), np.zeros((1, 1, 3, 3), np.float16)
        rows[0, 0, 1], weight[0, 0, 1] = data, kernel
        assert outputs_of(af.conv(x, weight), chip, x=rows).reshape(-1).tolist() == expected
        assert outputs_of(af.conv(x, weight), "h16g", x=rows).reshape(-1).tolist() == direct


# ---------------------------------------------------------------------------------------------------------------------
# Elementwise.


def in_pairs(operation: Callable[..., Any], chip: str, a: np.ndarray, b: np.ndarray) -> list[int]:
    shape = (1, 1, 1, len(a))
    out = operation(af.input(shape, name="a"), af.input(shape, name="b"))
    return bits_of(outputs_of(out, chip, a=a.reshape(shape), b=b.reshape(shape))).reshape(-1).tolist()


OPERATIONS = {"add": add, "sub": sub, "mul": mul, "div": truediv, "maximum": af.maximum, "minimum": af.minimum}
SPECIAL = [PLUS_ZERO, MINUS_ZERO, 1, 0x8001, 0x03FF, 0x0400, 0x8400, 0x1000, 0x3BFF, 0x3C00, 0xBC00, 0x3C01, 0x4000]
SPECIAL += [
    0x6800,
    0x6801,
    0x7400,
    0x7800,
    0x7BFF,
    0xFBFF,
    INFINITY,
    NEGATIVE_INFINITY,
    0x7C01,
    0x7E00,
    0xFE00,
    0xFFFF,
]


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("chip", ["h13", "h16g", "h18g"])
def test_every_pair_of_special_numbers(form, chip, name):
    a, b = zip(*itertools.product(SPECIAL, repeat=2), strict=True)
    found = in_pairs(OPERATIONS[name], chip, from_bits(*a), from_bits(*b))
    assert len(set(found)) > 10
    assert not any(is_nan(bits) for bits in found)


@pytest.mark.parametrize("chip", ["h13", "h14", "h16g", "h18g"])
def test_what_is_written_about_elementwise_results(form, chip):
    """N31, N32, N33, N44, N47, N53."""
    infinite, nan = from_bits(INFINITY)[0], from_bits(0x7E00)[0]

    def one(operation, a, b):
        (bits,) = in_pairs(operation, chip, half(a), half(b))
        return bits

    assert one(add, 2048, 1) == to_half(Fraction(2050))
    assert one(sub, -2048, 1) == to_half(Fraction(-2050))
    assert one(add, 65504, 0) == 0x7BFF
    assert one(add, 65504, 16) == INFINITY
    assert one(mul, 256, 256) == INFINITY
    assert one(add, -0.0, 0.0) == PLUS_ZERO
    assert one(sub, 1.5, 1.5) == PLUS_ZERO
    assert one(add, 2**-24, 0) == 1
    assert one(sub, infinite, infinite) == PLUS_ZERO
    assert one(sub, nan, infinite) == PLUS_ZERO
    assert one(mul, 0, infinite) == PLUS_ZERO
    assert one(mul, -0.0, infinite) == PLUS_ZERO
    assert one(mul, -2, nan) == NEGATIVE_INFINITY
    assert one(truediv, 1, -0.0) == INFINITY
    assert one(truediv, -1, -0.0) == NEGATIVE_INFINITY
    assert one(truediv, 0, 0) == PLUS_ZERO
    assert one(truediv, 6, 3) == to_half(Fraction(2))  # also by a reciprocal: 1.99951 lies in the middle
    assert one(truediv, 10, 3) == (0x42AA if CHIPS[chip].reciprocal else 0x42AB)
    assert one(truediv, 1, 3) == 0x3555
    assert one(truediv, 2**-24, 2) == 1
    assert one(af.maximum, nan, 5) == INFINITY


@pytest.mark.parametrize("chip", ["h13", "h16g", "h18g"])
def test_small_products_are_rounded_twice(form, chip):
    """N53: 855.326 units of 2^-24 become 855.5 with eleven bits, and then 856."""
    a, b = half(1714 * 2**-18), half(2044 * 2**-18)
    assert in_pairs(mul, chip, a, b) == [856]
    assert in_pairs(mul, chip, -a, b) == [856 | MINUS_ZERO]


@given(
    st.sampled_from(list(OPERATIONS)),
    st.lists(st.tuples(st.integers(0, 65535), st.integers(0, 65535)), min_size=40, max_size=40),
    st.sampled_from(["h13", "h14", "h16g", "h18g"]),
)
@settings(max_examples=60)
def test_any_pair_of_numbers(name, pairs, chip):
    a, b = zip(*pairs, strict=True)
    assert len(in_pairs(OPERATIONS[name], chip, from_bits(*a), from_bits(*b))) == 40


@pytest.mark.parametrize("operation", [mul, truediv])
def test_results_around_the_smallest_numbers(form, operation):
    """Products and quotients between 2^-26 and 2^-13, where the second rounding happens."""
    rng = np.random.default_rng(5)
    a = rng.integers(0, 20, 3000) << 10 | rng.integers(0, 1024, 3000) | rng.integers(0, 2, 3000) << 15
    target = -rng.integers(13, 27, 3000)
    exponent = target - np.maximum((a >> 10 & 31) - 15, -14)
    exponent = np.clip(exponent if operation is mul else -exponent, -14, 15)
    b = exponent + 15 << 10 | rng.integers(0, 1024, 3000)
    found = in_pairs(operation, "h16g", from_bits(*a), from_bits(*np.where(b >= INFINITY, b - 1024, b)))
    assert sum(0 < bits & 0x7FFF < 1024 for bits in found) > 800


@pytest.mark.parametrize("chip", ["h13", "h16g", "h18g"])
def test_gain_and_offset_round_once(form, chip):
    """One rounding also below 2^-14, over every kind of number."""
    rng = np.random.default_rng(11)
    x = af.input((1, 4, 8, 8), name="x")
    for kind, gain in itertools.product(NUMBERS, (0.3, -7.0, 2.0**-9)):
        offset = Maker(int(rng.integers(2**32)), "wide").weight(1, 4, 1, 1)
        model = af.compile(x * gain + offset, target=chip)
        assert "gain_offset_control" in model.program.module.kinds
        slow = assert_same_bits(model, chip, {"x": numbers(rng, kind, *x.shape)})
        assert slow.compared == 256


def test_gain_and_offset_are_one_step(form):
    """2054 * 3 - 1 is 6161 and so 6160; the product alone would become 6164, and less one stay so."""
    x = af.input((1, 1, 1, 1), name="x")
    assert outputs_of(x * 3.0 + -1.0, "h16g", x=half(2054).reshape(1, 1, 1, 1)).item() == 6160


@pytest.mark.parametrize("chip", ["h13", "h16g"])
def test_relu_reads_any_nan_as_infinity(chip):
    x = af.input((1, 1, 1, 1), name="x")
    found = af.compile(x.relu(), target=chip).run({"x": from_bits(0xFE00).reshape(1, 1, 1, 1)}).outputs["relu_0"]
    assert found.item() == ENDLESS


@pytest.mark.parametrize("chip", ["h13", "h14", "h16g", "h17s", "h18g"])
def test_a_width_slice_holds_4094_where_the_crop_engine_does(form, chip):
    """N18."""
    x = af.input((1, 1, 1, 6), name="x")
    out = x.slice_by_size([0, 0, 0, 1], [1, 1, 1, 5])
    found = outputs_of(out, chip, x=half(1, 4094, -4096, 65504, -0.0, 2**-24).reshape(1, 1, 1, 6)).reshape(-1).tolist()
    crop = chip in ("h13", "h14")
    assert found == [4094, -ENDLESS if crop else -4096, ENDLESS if crop else 65504, 0, 2**-24]


# ---------------------------------------------------------------------------------------------------------------------
# Ops that the graph language does not reach: programs written by hand.


def by_hand(kind: str, chip: str, x: np.ndarray, stored: Sequence[np.ndarray], shape: tuple[int, ...], **attrs: Any):
    """A program of one op over NDCHW values, the first fed and the others stored: its result, which is checked."""
    source = Op("anec.live_in", (), TensorType(x.shape), {"name": "x"}, ("x",))
    weights = [intern_weight(each, "weight") for each in stored]
    constants = [Op("anec.const_in", (), TensorType(each.shape), {"weight": each.key}, ("w",)) for each in weights]
    made = Op(f"anec.{kind}", (source, *constants), TensorType(shape), attrs, (kind,))
    made.layer, made.slot = 0, "primary"
    result = Op("anec.live_out", (made,), None, {"names": ("out",)})
    module = Module([source, *constants, made, result], {each.key: each for each in weights})
    ports = [
        Port(name, (n, c, d, h, w), (n, d, c, h, w), "f16")
        for name, (n, d, c, h, w) in (("x", x.shape), ("out", shape))
    ]
    program = Program(af.target(chip), module, (ports[0],), (ports[1],), [])
    model = Model(Graph.of(af.input((1, 1), name="unused").relu()), program)
    fed = {"x": np.ascontiguousarray(x.transpose(0, 2, 1, 3, 4))}
    slow = assert_same_bits(model, chip, fed)
    assert slow.compared
    return model.run(fed).outputs["out"]


def in_depth(kernel: Sequence[int], **settings_: Any) -> dict[str, Any]:
    plain = {"strides": (1, 1, 1), "dilation_rates": (1, 1, 1), "groups": 1, "explicit_padding": (0,) * 6}
    return {**plain, "kernel_sizes": tuple(kernel), **settings_}


@pytest.mark.parametrize("kind", ["normal", "wide", "ties", "large", "any"])
@pytest.mark.parametrize("chip", ["h14", "h16g", "h18g"])
def test_convolutions_in_depth(form, chip, kind):
    """Kernels over depth, rows and columns, with strides, margins, dilation, groups and a batch."""
    rng = np.random.default_rng(len(kind))
    maker = Maker(3, kind)
    x = numbers(rng, kind, 2, 4, 4, 4, 5)
    bias = maker.weight(1, 1, 4, 1, 1)
    for kernel, groups, shape, changed in (
        ((2, 2, 2), 1, (2, 3, 4, 3, 4), {}),
        ((3, 1, 2), 2, (2, 2, 4, 4, 4), {}),
        ((2, 2, 1), 4, (2, 2, 4, 2, 5), {"strides": (2, 2, 1)}),
        ((2, 3, 2), 1, (2, 5, 4, 4, 3), {"explicit_padding": (1, 1, 1, 1, 0, 0), "dilation_rates": (1, 1, 2)}),
    ):
        weight = maker.weight(4, kernel[0], 4 // groups, *kernel[1:])
        by_hand("convolution", chip, x, (weight, bias), shape, **in_depth(kernel, groups=groups, **changed))
        by_hand("convolution", chip, x, (weight,), shape, **in_depth(kernel, groups=groups, **changed))


def test_a_convolution_in_depth_adds_what_it_says(form):
    x = np.ones((1, 2, 1, 1, 1), np.float16)
    for places, expected in (((2048, 1), 2050), ((20000, 20000), ENDLESS), ((20000, -20000), 0)):
        kernel = half(*places).reshape(1, 2, 1, 1, 1)
        assert by_hand("convolution", "h16g", x, (kernel,), (1, 1, 1, 1, 1), **in_depth((2, 1, 1))).item() == expected


@pytest.mark.parametrize("kind", ["normal", "wide", "ties", "large", "any"])
@pytest.mark.parametrize("chip", ["h14", "h16g", "h18g"])
def test_the_linear_op_and_a_product_with_a_bias(form, chip, kind):
    rng, maker = np.random.default_rng(1), Maker(4, kind)
    x = numbers(rng, kind, 2, 1, 3, 2, 7)
    by_hand("linear", chip, x, (maker.weight(1, 1, 5, 1, 7), maker.weight(1, 1, 1, 1, 5)), (2, 1, 3, 2, 5))
    by_hand("linear", chip, x, (maker.weight(1, 1, 5, 1, 7),), (2, 1, 3, 2, 5))
    right = maker.weight(2, 1, 7, 2, 4)
    by_hand("matmul", chip, x, (right, maker.weight(1, 1, 1, 1, 4)), (2, 1, 3, 2, 4))
    turned = maker.weight(2, 1, 4, 2, 3)
    by_hand("matmul", chip, x, (turned,), (2, 1, 7, 2, 4), transpose_lhs=True, transpose_rhs=True)


@pytest.mark.parametrize("chip", ["h13", "h14", "h16g", "h17s", "h18g"])
def test_every_place_of_a_batch(form, chip):
    """Three images through a chain have the bits that each has alone, and those of the slow model."""
    rng = np.random.default_rng(2)
    first, second, last = (
        rng.normal(0, 0.5, shape).astype(np.float16) for shape in ((3, 2, 3, 3), (3, 2, 2, 2), (4, 8))
    )

    def chain(count):
        x = af.input((count, 2, 4, 4), name="x")
        y = af.conv_transpose(af.conv(x, first, pad=1).relu(), second, stride=2)
        return y.max_pool(2, 2).reshape(count, 4, 8).linear(last)

    images = numbers(rng, "normal", 3, 2, 4, 4)
    together = outputs_of(chain(3), chip, x=images)
    for place in range(3):
        alone = outputs_of(chain(1), chip, x=images[place : place + 1])
        np.testing.assert_array_equal(bits_of(together[place]), bits_of(alone[0]))
