"""What each op of a compiled program can lose, within the ranges of what it reads: one rule for each kind of op."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from aneforge.anec.ir import Op
from aneforge.anec.traits import Trait
from aneforge.numerics.products import largest_sum
from aneforge.numerics.transfer import Walk, own_error
from aneforge.numerics.underflow import NOTICED, Loss, product_loss
from aneforge.numerics.values import Value
from aneforge.sim.half import LARGEST
from aneforge.sim.mac import CEILING
from aneforge.sim.rules.contraction import stored_as_int8
from aneforge.targets.numeric_facts import FP16_SLICE_SAT

__all__ = ["Risk", "losses_of"]

_LOST = ("accumulator", "crop-path", "overflow", "int8-activations", "variance")
"""Kinds where a number becomes infinite, or the result zero."""
_LONG = 1024  # numbers in a sum from which roundings of both signs matter
_E = math.log(LARGEST)


@dataclass(frozen=True)
class Risk:
    """One layer that can lose something."""

    node: str
    op: str
    kind: str
    """``accumulator``, ``crop-path``, ``overflow``, ``underflow``, ``cancellation``, ``int8-activations``,
    ``variance``, ``division``, ``remainder``, ``infinite-constant`` or the name of a rule of the gate."""
    reaches: float
    """How large the number at risk can get; infinite where nothing bounds it."""
    limit: float
    """What the chip holds."""
    range: Value | None
    """Of what the layer reads."""
    message: str
    suggestion: str
    rewrite: str | None = None
    """The safe rewrite of :func:`aneforge.numerics.rewritten` that removes it, where there is one."""
    expected_error: float | None = None
    """The relative error that is expected of the layer's result: infinite where it is lost, None where nothing is
    said."""
    factor: float | None = None
    """What the rewrite scales by, where the ranges decide."""

    def to_json(self) -> dict[str, Any]:
        ends = None if self.range is None else [self.range.low, self.range.high, self.range.special]
        lost = {"reaches": _finite(self.reaches), "expected_error": _finite(self.expected_error)}
        return {**self.__dict__, "range": ends, **lost, "lost": self.expected_error == math.inf}


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def losses_of(walked: Walk, op: Op) -> Iterator[Risk]:
    """What an op can lose. Behind a loss nothing more is told, but for products of probabilities: those lose digits
    whatever else is known."""
    read = [walked.values[operand] for operand in op.operands]
    if not op.sources:
        return
    if op.is_a(Trait.CONTRACTION):
        yield from _underflow(walked, op, read)
    if any(value.special for value in read):
        return
    if op.is_a(Trait.CONTRACTION):
        yield from _product(walked, op, read)
    elif op.labels.get("storage") == "q4":
        yield from _cropped(op, read)
    elif op.kind in _RULES:
        yield from _RULES[op.kind](walked, op, read)


def _risk(op: Op, kind: str, reaches: float, limit: float, value: Value, message: str, **more: Any) -> Risk:
    if kind in _LOST:
        more.setdefault("expected_error", math.inf)
    return Risk(op.sources[-1], op.kind, kind, reaches, limit, value, message, **more)


def _underflow(walked: Walk, op: Op, read: list[Value]) -> Iterator[Risk]:
    loss = product_loss(walked.engine, walked.module, op, read)
    if loss is None or loss.error < NOTICED:
        return
    yield _risk(
        op, "underflow", loss.value.size, 2.0**-16, loss.value, _lost_products(loss),
        suggestion="multiply an operand by a power of two before the product and divide the result by it (N11, N75)",
        rewrite="scaled-product" if op.kind == "matmul" and op.operands[1].kind != "const_in" else None,
        expected_error=loss.error, factor=loss.factor,
    )  # fmt: skip


def _lost_products(loss: Loss) -> str:
    what = f"{loss.terms} {'even probabilities times' if loss.probabilities else 'products of'} values"
    size = "of about 1 (their range is not known)" if loss.assumed else f"up to {loss.value.size:.3g}"
    return f"{what} {size}: each is rounded to 2^-16 or dropped, {_per_cent(loss.error)} of the sum is lost"


def _per_cent(share: float) -> str:
    return f"{100 * share:.2g} %"


def _product(walked: Walk, op: Op, read: list[Value]) -> Iterator[Risk]:
    if walked.engine.int8_activations_q4 and stored_as_int8(op) and read[0].size > FP16_SLICE_SAT:
        yield _risk(
            op, "int8-activations", read[0].size, FP16_SLICE_SAT, read[0],
            "activations above 4094 are infinite in front of 8-bit weights",
            suggestion="scale the activations down, or store these weights as fp16 or in a palette",
        )  # fmt: skip
    reach = largest_sum(walked.engine, walked.module, op, read)
    if reach >= CEILING:
        yield _risk(
            op, "accumulator", reach, CEILING, read[0],
            "a sum whose magnitude reaches 32768 on the way stays infinite",
            suggestion="scale an operand down before the product and the result up behind it, or split the sum",
            rewrite="scaled-attention" if op.kind == "matmul" else None,
        )  # fmt: skip


def _cropped(op: Op, read: list[Value]) -> Iterator[Risk]:
    if read[0].size > FP16_SLICE_SAT:
        yield _risk(
            op, "crop-path", read[0].size, FP16_SLICE_SAT, read[0],
            "a slice that does not begin at zero of the width makes magnitudes above 4094 infinite",
            suggestion="slice another axis (transpose, slice, transpose back), or scale the data below 4094 before it",
            rewrite="slice-off-width",
        )  # fmt: skip


def _overflow(limit: float, what: str, suggestion: str) -> Callable[[Walk, Op, list[Value]], Iterator[Risk]]:
    def rule(walked: Walk, op: Op, read: list[Value]) -> Iterator[Risk]:
        if walked.values[op].special:
            yield _risk(op, "overflow", read[0].size, limit, read[0], what, suggestion=suggestion)

    return rule


def _paired(walked: Walk, op: Op, read: list[Value]) -> Iterator[Risk]:
    if walked.values[op].special:
        sizes = [value.size for value in read]
        reach = math.prod(sizes) if op.kind == "mult" else sum(sizes)
        yield _risk(op, "overflow", reach, LARGEST, read[0], f"the result of {op.kind} can exceed 65504",
                    suggestion="scale an operand down, or clip it to the range that is meant")  # fmt: skip


def _divided(walked: Walk, op: Op, read: list[Value]) -> Iterator[Risk]:
    below = read[1]
    if below.low <= 0.0 <= below.high:
        yield _risk(op, "division", math.inf, LARGEST, below, "the divisor can be zero",
                    suggestion="add a small number to the divisor, or clip it away from zero")  # fmt: skip


def _summed(walked: Walk, op: Op, read: list[Value]) -> Iterator[Risk]:
    count = math.prod(op.operands[0].shape[axis] for axis in op.attrs["axes"])
    value = read[0]
    squares = bool(op.attrs.get("square_input"))
    term = value.size**2 if squares else value.size
    if walked.values[op].special and op.kind == "reduce_avg":
        yield _risk(op, "overflow", term, LARGEST, value, _SQUARE if squares else "a mean of infinite numbers",
                    suggestion="scale the numbers down first")  # fmt: skip
    elif walked.values[op].special:
        what = "squares" if squares else "numbers"
        yield _risk(op, "overflow", count * term, LARGEST, value, f"a sum of {count} {what} can exceed 65504",
                    suggestion="scale the numbers down first, or take the mean: it is finite where the sum is not",
                    rewrite="sum-as-product")  # fmt: skip
    elif count >= _LONG and value.low < 0 < value.high and not squares:
        off = own_error(walked.engine, op, value)
        message = f"{count} numbers of both signs are added with roundings: up to {off:.3g} off, whatever the sum is"
        yield _risk(op, "cancellation", off, 0.0, value, message,
                    suggestion="add through a product with ones: the accumulators add exactly",
                    rewrite="sum-as-product")  # fmt: skip


def _normed(walked: Walk, op: Op, read: list[Value]) -> Iterator[Risk]:
    """The mean of squares is finite, however many they are; one square may not be."""
    reach = min(2 * read[0].size, read[0].width) ** 2
    if reach >= LARGEST:
        yield _risk(op, "variance", reach, LARGEST, read[0],
                    "the square of a number more than 255.9 from the mean is infinite; the result is then zero",
                    suggestion="scale the input of the norm down: its result does not change")  # fmt: skip


_SQUARE = "the square of a number above 255.9 is infinite"
_RULES: dict[str, Callable[[Walk, Op, list[Value]], Iterator[Risk]]] = {
    "exp2": _overflow(_E, "the power exceeds 65504 from an exponent of 11.09 on (16 for powers of two)",
                      "subtract the largest exponent first, or clip it"),
    "square": _overflow(math.sqrt(LARGEST), _SQUARE, "scale it down first"),
    "sqr": _overflow(math.sqrt(LARGEST), _SQUARE, "scale it down first"),
    "gain_offset_control": _overflow(CEILING, "in front of a table the accumulators add, and end at 32768: softplus "
                                     "breaks near 10.4", "clip the exponent, or use the function for large arguments"),
    "invert": _overflow(0.0, "the reciprocal of zero is infinite", "keep the divisor away from zero"),
    "r_sqrt": _overflow(0.0, "the reciprocal root of zero is infinite", "add a small number first"),
    "log2": _overflow(0.0, "the logarithm of zero is not finite", "add a small number first"),
    "add": _paired,
    "sub": _paired,
    "mult": _paired,
    "div": _divided,
    "reduce_sum": _summed,
    "reduce_avg": _summed,
    "layer_norm": _normed,
    "instance_norm": _normed,
}  # fmt: skip
