"""What each op of a program can lose, within the ranges of what it reads: one rule for each kind of op."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from aneforge.chips.assumed import compile_fact
from aneforge.chips.chip import Target
from aneforge.chips.evidence import Fact, fact
from aneforge.chips.limits import FP16_SLICE_SAT, numeric_fact
from aneforge.compiler.legal.findings import ANY_DATA, ANY_FINITE, PROMISED, WORST_CASE, NumberFinding
from aneforge.compiler.legal.rules.base import rule_records
from aneforge.engine.ir import Module, Op
from aneforge.engine.traits import Trait
from aneforge.graph.halves import FP16_MAX
from aneforge.numerics.products import INTEGER_CEILING, largest_integer_sum, largest_sum
from aneforge.numerics.ranges import Value
from aneforge.numerics.rules import (
    has_rule,
    is_clamped_copy,
    is_summed_before_a_table,
    is_whole_power,
    largest_score,
    own_error,
)
from aneforge.numerics.unary import NOTICED, Underflow, underflows_of
from aneforge.sim.engine import Engine
from aneforge.sim.mac import CEILING
from aneforge.sim.rules.contraction import stored_as_int8
from aneforge.text import percent

LOSSES = {
    "slice-saturation": ("N18", "A copy of a slice inside the width of data that may exceed 4094 (A13, A14)."),
    "int8-activations": ("N17", "Data that may exceed 4094 in front of weights that are stored in 8 bits."),
    "accumulator": ("N04", "A sum of products that may reach 32768."),
    "integer-sum": ("N16", "A sum of 8-bit codes that may reach 2^31."),
    "overflow": ("N01", "A result that may exceed 65504, or leave what its function takes."),
    "variance": ("N01", "A norm of data so far from their mean that a square is infinite."),
    "division": ("N01", "A divisor that may be zero."),
    "rounding": ("value-cliff", "Data of 1024 or more in front of a rounding to whole numbers."),
    "underflow": ("N11", "Products, or squares, so small that they are dropped."),
    "cancellation": ("U50", "A long sum of both signs, with a rounding at each step."),
    "remainder": ("N01", "A remainder of quotients above 2048."),
    "infinite-constant": ("N01", "A constant that is infinite in fp16, such as a mask of -1e9."),
}
"""The rules of this analysis: what shows each, and what it is about."""

_LONG = 1024  # numbers in a sum from which its roundings matter, and from which numbers of ordinary size overflow
_E = math.log(FP16_MAX)


@dataclass(frozen=True)
class Risk(NumberFinding):
    """What one layer can lose: the finding, the node, and what removes it."""

    node: str = ""
    op: str = ""
    range: Value | None = None
    """Of what the layer reads."""
    rewrite: str | None = None
    """The safe rewrite of :func:`aneforge.numerics.causes.rewritten` that removes it, where there is one."""
    expected_error: float | None = None
    """The relative error that is expected of the layer's result: infinite where it is lost, None where nothing is
    said."""
    factor: float | None = None
    """What the rewrite scales by, where the ranges decide."""
    likely: bool = False
    """Whether numbers of ordinary size meet it, so that it is worth a word although nobody bounded the input: limits
    that only some chips have, and sums of many numbers."""

    @property
    def lost(self) -> bool:
        """Whether numbers are lost, and not only digits."""
        return self.expected_error == math.inf

    @property
    def due(self) -> bool:
        """Whether ``check`` lists it and ``compile`` warns of it."""
        return self.basis == ANY_DATA or (self.lost and (self.basis == PROMISED or self.likely))

    def to_json(self) -> dict[str, Any]:
        ends = None if self.range is None else [self.range.low, self.range.high, self.range.special]
        own = {name: getattr(self, name) for name in ("node", "op", "rewrite", "factor", "likely", "lost")}
        error = self.expected_error
        known = error if error is not None and math.isfinite(error) else None
        return {**super().to_json(), **own, "range": ends, "expected_error": known}


class Step(NamedTuple):
    """One op on one chip: what it reads, and what it gives."""

    engine: Engine
    module: Module
    op: Op
    read: list[Value]
    value: Value

    @property
    def basis(self) -> str:
        """What a loss of this op rests on."""
        if any(value.is_open for value in self.read):
            return ANY_FINITE
        return PROMISED if self.value.attained else WORST_CASE


def losses_of(step: Step) -> Iterator[Risk]:
    """What an op can lose. An op that reads a lost number is not listed again, but for what is lost of small numbers
    too: products that are dropped, and copies that end at 4094."""
    op = step.op
    yield from _dropped_products(step)
    known = list(_clamped(step))
    if not any(value.special for value in step.read):
        rule = _product if op.is_a(Trait.CONTRACTION) else _RULES.get(op.kind)
        known += rule(step) if rule is not None else ()
    yield from known
    # What makes a number infinite is told, also where no rule has better words; where only bounds one behind another
    # speak for it, the analysis stops there and says so (``stops``).
    first = step.value.special and not any(value.special for value in step.read) and has_rule(op)
    if first and step.basis != WORST_CASE and not any(risk.lost for risk in known):
        yield _risk(step, "overflow", math.inf, FP16_MAX, f"the result of {op.kind} can exceed 65504", _SCALE)


def _risk(step: Step, rule: str, reaches: float, limit: float, message: str, hint: str, **more: Any) -> Risk:
    value = more.pop("value", step.read[0])
    more.setdefault("expected_error", math.inf)
    evidence = evidence_of(rule, step.engine.target)
    return Risk(
        rule, message, evidence, hint, (), "measured run", "conversion",
        limit, reaches, step.basis, "", step.op.kind, value, **more,
    )  # fmt: skip


def evidence_of(rule: str, target: Target | None = None) -> Fact[Any]:
    """What shows that a chip loses numbers by a rule."""
    if rule == "slice-saturation" and target is not None:
        return compile_fact(target, "slice_saturates")
    shown_by = LOSSES[rule][0]
    return _rounding_record()[1] if shown_by == "value-cliff" else _evidence(shown_by)


@cache
def _evidence(source: str) -> Fact[Any]:
    if source.startswith("U"):
        return fact({"v": source, "src": (), "conf": "inferred", "conflict": source})
    return numeric_fact(source)


@cache
def _rounding_record() -> tuple[Mapping[str, Any], Fact[Any]]:
    """The measured verdict on roundings, which no rule of the simulator has."""
    record = next(record for record in rule_records()["value-cliff"] if "round" in record["ops"])
    return record, fact(record, about="rounding to whole numbers")


def _dropped_products(step: Step) -> Iterator[Risk]:
    for loss in underflows_of(step.engine, step.module, step.op, step.read):
        if loss.error >= NOTICED:
            op = step.op
            computed = op.kind == "matmul" and op.operands[1].kind != "const_in"
            computed |= op.kind == "sdpa" and loss.probabilities
            yield _risk(
                step, "underflow", loss.value.size, 2.0**-16, _lost_products(loss),
                f"multiply an operand by {loss.factor:.0f} before the product and divide the result by it (N11, N75)",
                value=loss.value, rewrite="scaled-product" if computed else None,
                expected_error=loss.error, factor=loss.factor,
            )  # fmt: skip


def _lost_products(loss: Underflow) -> str:
    what = f"{loss.terms} {'even probabilities times' if loss.probabilities else 'products of'} values"
    size = "of about 1 (their range is not known)" if loss.assumed else f"up to {loss.value.size:.3g}"
    return f"{what} {size}: each is rounded to 2^-16 or dropped, {percent(loss.error)} of the sum is lost"


def _clamped(step: Step) -> Iterator[Risk]:
    """Limits at 4094: the copy of a slice, and activations in front of 8-bit weights."""
    op, size = step.op, step.read[0].size if step.read else 0.0
    if size <= FP16_SLICE_SAT:
        return
    if is_clamped_copy(op):
        yield _risk(
            step, "slice-saturation", size, FP16_SLICE_SAT,
            "a slice that does not begin at zero of the width makes magnitudes above 4094 infinite",
            "slice another axis (transpose, slice, transpose back), scale the data below 4094 before it, or promise "
            "its size with input(max_abs=...)", rewrite="slice-off-width", likely=True,
        )  # fmt: skip
    elif op.is_a(Trait.CONTRACTION) and step.engine.int8_activations_q4 and stored_as_int8(op):
        yield _risk(
            step, "int8-activations", size, FP16_SLICE_SAT,
            "activations above 4094 are infinite in front of 8-bit weights",
            "scale the activations down, promise their size with input(max_abs=...), or store these weights as fp16 "
            "or in a palette", likely=True,
        )  # fmt: skip


def _product(step: Step) -> Iterator[Risk]:
    reach = largest_sum(step.engine, step.module, step.op, step.read)
    if reach >= CEILING:
        yield _accumulator(step, reach, "scaled-attention" if step.op.kind == "matmul" else None)
    codes = largest_integer_sum(step.engine, step.module, step.op, step.read)
    if codes >= INTEGER_CEILING:
        yield _risk(
            step, "integer-sum", codes, INTEGER_CEILING,
            "a sum of 8-bit codes that reaches 2^31 is infinite, whatever its scale",
            "split the sum over input channels, or store the weights as fp16",
        )  # fmt: skip


def _accumulator(step: Step, reach: float, rewrite: str | None = None) -> Risk:
    return _risk(
        step, "accumulator", reach, CEILING, "a sum whose magnitude reaches 32768 on the way stays infinite",
        "scale an operand down before the product and the result up behind it, or split the sum", rewrite=rewrite,
    )  # fmt: skip


def _attended(step: Step) -> Iterator[Risk]:
    score = largest_score(step.op, *step.read[:2])
    if score >= CEILING:
        yield _accumulator(step, score)
    elif step.value.special and step.read[2].size >= CEILING / 2:
        yield _accumulator(step, step.read[2].size)


def _overflow(limit: float, what: str, hint: str) -> Callable[[Step], Iterator[Risk]]:
    def rule(step: Step) -> Iterator[Risk]:
        if step.value.special:
            yield _risk(step, "overflow", step.read[0].size, limit, what, hint)

    return rule


def _gained(step: Step) -> Iterator[Risk]:
    if step.value.special and is_summed_before_a_table(step.op):
        yield _risk(step, "overflow", step.read[0].size, CEILING,
                    "a sum in front of a table is infinite from 32768 on",
                    "clip the exponent, or use the function for large arguments")  # fmt: skip
    elif step.value.special:
        factor = abs(float(step.op.attrs.get("gain", 1.0))) * (step.read[1].size if len(step.read) > 1 else 1.0)
        yield _risk(step, "overflow", factor * step.read[0].size, FP16_MAX, "a scaled number can exceed 65504", _SCALE)


def _paired(step: Step) -> Iterator[Risk]:
    if step.value.special:
        kind, sizes = step.op.kind, [value.size for value in step.read]
        reach = math.prod(sizes) if kind == "mult" else sum(sizes)
        yield _risk(step, "overflow", reach, FP16_MAX, f"the result of {kind} can exceed 65504", _SCALE)


def _raised(step: Step) -> Iterator[Risk]:
    base, exponent = step.read
    if not step.value.special or base.special or exponent.special:
        return
    if base.low < 0.0 and not is_whole_power(exponent):
        yield _risk(step, "overflow", base.low, 0.0, "a number below zero has no power but whole ones",
                    "clip the base at zero, or take its absolute value")  # fmt: skip
    else:
        grows = exponent.high > 0.0
        limit = FP16_MAX ** (1.0 / (exponent.high if grows else exponent.low or -1.0))
        reach = base.size if grows else min(abs(base.low), abs(base.high)) * (base.low * base.high > 0.0)
        what = "the power can exceed 65504" if grows else "the power of a number near zero can exceed 65504"
        yield _risk(step, "overflow", reach, limit, what, _SCALE)


def _divided(step: Step) -> Iterator[Risk]:
    below = step.read[1]
    if below.low <= 0.0 <= below.high:
        yield _risk(step, "division", math.inf, FP16_MAX, "the divisor can be zero",
                    "add a small number to the divisor, or clip it away from zero", value=below)  # fmt: skip


def _summed(step: Step) -> Iterator[Risk]:
    op, value = step.op, step.read[0]
    count = math.prod(op.operands[0].shape[axis] for axis in op.attrs["axes"])
    squares = bool(op.attrs.get("square_input"))
    term = value.size**2 if squares else value.size
    if step.value.special and op.kind == "reduce_avg":
        yield _risk(step, "overflow", term, FP16_MAX, _SQUARE if squares else "a mean of infinite numbers",
                    "scale the numbers down first")  # fmt: skip
    elif step.value.special:
        what = "squares" if squares else "numbers"
        yield _risk(step, "overflow", count * term, FP16_MAX, f"a sum of {count} {what} can exceed 65504",
                    "promise the size of the data with input(max_abs=...), scale it down first, or take the mean: it "
                    "is finite where the sum is not (af.reduce_sum_to_matmul adds by a product)",
                    rewrite="sum-as-product", likely=count >= _LONG)  # fmt: skip
    elif count >= _LONG and value.low < 0 < value.high and not squares:
        off = own_error(step.engine, op, value)
        message = f"{count} numbers of both signs are added with roundings: up to {off:.3g} off, whatever the sum is"
        yield _risk(step, "cancellation", off, 0.0, message,
                    "add through a product with ones: the accumulators add exactly",
                    rewrite="sum-as-product", expected_error=None)  # fmt: skip


def _normed(step: Step) -> Iterator[Risk]:
    """The mean of squares is finite, however many they are; one square may not be."""
    value = step.read[0]
    reach = min(2 * value.size, value.width) ** 2
    if reach >= FP16_MAX:
        yield _risk(step, "variance", reach, FP16_MAX,
                    "the square of a number more than 255.9 from the mean is infinite; the result is then zero",
                    "scale the input of the norm down: its result does not change")  # fmt: skip
    epsilon = step.op.attrs.get("epsilon", 1.0)
    if step.value.special and float(np.float16(epsilon)) <= 0.0:
        yield _risk(step, "division", 0.0, 2.0**-24,
                    f"epsilon {epsilon:.2g} is zero in fp16: a row of equal numbers divides by zero",
                    "give an epsilon of 6e-8 or more")  # fmt: skip


def _whole(step: Step) -> Iterator[Risk]:
    """The simulator rounds every number rightly; that silicon does not from 1024 on was measured."""
    record, _ = _rounding_record()
    if step.read[0].size >= record["v"]:
        yield _risk(step, "rounding", step.read[0].size, record["v"],
                    f"a rounding of numbers from {record['v']} on is wrong", record["hint"])  # fmt: skip


_SCALE = "scale an operand down, or clip it to the range that is meant"
_SQUARE = "the square of a number above 255.9 is infinite"
_RULES: dict[str, Callable[[Step], Iterator[Risk]]] = {
    "exp2": _overflow(_E, "the power exceeds 65504 from an exponent of 11.09 on (16 for powers of two)",
                      "subtract the largest exponent first, or clip it"),
    "square": _overflow(math.sqrt(FP16_MAX), _SQUARE, "scale it down first"),
    "sqr": _overflow(math.sqrt(FP16_MAX), _SQUARE, "scale it down first"),
    "gain_offset_control": _gained,
    "invert": _overflow(0.0, "the reciprocal of zero is infinite", "keep the divisor away from zero"),
    "r_sqrt": _overflow(0.0, "the reciprocal root of zero is infinite", "add a small number first"),
    "log2": _overflow(0.0, "the logarithm of zero is not finite", "add a small number first"),
    "add": _paired,
    "sub": _paired,
    "mult": _paired,
    "div": _divided,
    "power": _raised,
    "reduce_sum": _summed,
    "reduce_avg": _summed,
    "layer_norm": _normed,
    "instance_norm": _normed,
    "sdpa": _attended,
    "round_nearest": _whole,
}  # fmt: skip
