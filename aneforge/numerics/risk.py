"""``risks``: where a graph can lose numbers or digits on a chip, within the ranges that are known of its data.

A walk through the compiled program gives what every op can read. Each rule looks at one kind of op, and says what its
operands can reach, which limit that passes, and what to write instead. Only the first loss of a chain is listed: what
comes after an infinite number is lost already.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from aneforge.anec.ir import Op
from aneforge.anec.traits import Trait
from aneforge.arguments import Chips, Source, chip_of, chips_of, graph_of
from aneforge.compiler.compile import resolve_target
from aneforge.compiler.program import Program
from aneforge.defaults import DEFAULT_CHIPS
from aneforge.gate.preflight import preflight
from aneforge.graph.graph import Graph
from aneforge.graph.tensor import Tensor
from aneforge.numerics.products import largest_sum
from aneforge.numerics.ranges import Ranges, known_values, ranges_note, ranges_of
from aneforge.numerics.regions import region_graphs
from aneforge.numerics.transfer import Walk, walk
from aneforge.numerics.values import Value
from aneforge.output import text
from aneforge.output.by_chip import ByChip
from aneforge.output.grouped import grouped, short, some, wrapped
from aneforge.regions.partition import partition_for
from aneforge.sim.engine import Engine
from aneforge.sim.half import LARGEST
from aneforge.sim.mac import CEILING
from aneforge.sim.rules.contraction import stored_as_int8
from aneforge.targets.chip import Target
from aneforge.targets.families import Family
from aneforge.targets.names import chip_label
from aneforge.targets.numeric_facts import FP16_SLICE_SAT

__all__ = ["Risk", "RiskReport", "Risks", "precision_risk", "risks", "risks_on"]

_HEADERS = ("node", "kind", "reaches", "limit", "what")
_MOST_ROWS = 16  # risks up to which each has a row of its own
_LONG = 1024  # numbers in a sum from which roundings of both signs matter
_E = math.log(LARGEST)
_MOST_CONSTANTS = 1 << 22  # numbers of a constant that is looked through


@dataclass(frozen=True)
class Risk:
    """One layer that can lose something."""

    node: str
    op: str
    kind: str
    """``accumulator``, ``crop-path``, ``overflow``, ``cancellation``, ``int8-activations``, ``variance``,
    ``division``, ``infinite-constant`` or the name of a rule of the gate."""
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

    def to_json(self) -> dict[str, Any]:
        ends = None if self.range is None else [self.range.low, self.range.high, self.range.special]
        finite = self.reaches if math.isfinite(self.reaches) else None
        return {**self.__dict__, "range": ends, "reaches": finite}


class Risks(list[Risk]):
    """Those of one graph on one chip, in the order of the program."""

    def __init__(self, risks: Sequence[Risk], target: Target, in_part: str = "") -> None:
        super().__init__(risks)
        self.target = target
        self.in_part = in_part
        """How much of the model is on the engine, where it is not all; the host's part is in float32, with no risk."""

    def to_json(self) -> dict[str, Any]:
        head = {"target": self.target.name, **({"in_part": self.in_part} if self.in_part else {})}
        return {**head, "risks": [risk.to_json() for risk in self]}

    def __str__(self) -> str:
        return self.text()

    def text(self, everything: bool = False, label: str | None = None) -> str:
        """A block for each kind of risk with its worst nodes, or with ``everything`` a row for each risk."""
        chip = label or chip_label(self.target.name)
        parts = [wrapped(f"{chip}: {self.in_part}; the host's part was not looked at")] if self.in_part else []
        if not self:
            return "\n".join([*parts, f"{chip}: nothing can be lost within these ranges"])
        parts.append(f"{chip}: {len(self):,} risk{'s' if len(self) > 1 else ''}")
        if everything or len(self) <= _MOST_ROWS:
            rows = [
                (short(risk.node, 30), risk.kind, _number(risk.reaches), _number(risk.limit), risk.message)
                for risk in self
            ]
            parts.append(text.columns(_HEADERS, rows, fit=True))
            cures = dict.fromkeys(f"{risk.kind}: {risk.suggestion}" for risk in self)
            return "\n".join([*parts, "what to do", *(wrapped(cure, "  ") for cure in cures)])
        for (kind, _), alike in grouped(self, lambda risk: (risk.kind, risk.suggestion)).items():
            parts += _block(kind, alike)
        return "\n".join([*parts, "--all lists every node"])


def _block(kind: str, alike: Sequence[Risk]) -> Iterator[str]:
    """Risks of one kind with one cure: how many, which nodes for example, how far they reach, and what to do."""
    worst = max(alike, key=lambda risk: risk.reaches)
    yield wrapped(f"{kind}, {len(alike):,} node{'s' if len(alike) > 1 else ''}: {some([r.node for r in alike])}")
    yield wrapped(f"reaches {_number(worst.reaches)}, limit {_number(worst.limit)}: {worst.message}", "  ")
    yield wrapped(f"do: {worst.suggestion}", "  ")


def _number(value: float) -> str:
    return "any" if math.isinf(value) else f"{value:.4g}"


class RiskReport(ByChip[Risks]):
    """The risks of one model on each chip. ``ok`` is True where nothing can be lost on any of them."""

    def __init__(self, results: Mapping[str, Risks], note: str) -> None:
        super().__init__(results)
        self.note = note

    @property
    def ok(self) -> bool:
        return not any(self.values())

    def text(self, everything: bool = False) -> str:
        """The report; ``everything`` lists each node."""
        parts = [result.text(everything, chip_label(name)) for name, result in self.items()]
        return "\n\n".join([*parts, *([wrapped(self.note)] if self.note else [])])

    def __str__(self) -> str:
        return self.text()


def risks(
    model: Source,
    target: Chips = None,
    max_abs: float | None = None,
    inputs: Any = None,
    ranges: Ranges = None,
    *,
    dims: Mapping[str, int] | None = None,
    function: str | None = None,
) -> RiskReport:
    """Find what each chip can lose: overflows, clamps and cancellation, each with its range and a cure.

    ``target`` is m1 where it is left out, or the chip of a compiled model. What the inputs can be is said in one of
    three ways: ``max_abs`` bounds every magnitude; ``inputs`` (as for :func:`compare`) are run, and what is seen
    counts; ``ranges`` says it by input, as for :func:`diverges`. Without any of them inputs are what they promise, or
    any finite fp16 number, which nearly every sum can lose. ``risks(...)["m1"]`` is the list of one chip.
    """
    graph = graph_of(model, dims, function)
    chips = chips_of(target, DEFAULT_CHIPS["risks"], model)
    by_chip = {
        name: risks_on(graph, chip, ranges_of(graph, [chip], max_abs, inputs, ranges)) for name, chip in chips.items()
    }
    return RiskReport(by_chip, ranges_note(max_abs, inputs, ranges))


def risks_on(out: Tensor | Sequence[Tensor] | Graph, target: str | int | Target, ranges: Ranges = None) -> Risks:
    """What can be lost on one chip, in every region of the model that its engine runs."""
    graph, chip = Graph.of(out), resolve_target(target)
    split = partition_for(graph, chip)
    split.require_engine()
    if split.cut.untouched:
        return Risks(_of_program(graph, split.programs[0], ranges), chip)
    listed: list[Risk] = []
    for region, part, known in region_graphs(split, ranges):
        listed += _of_program(part, split.programs[region.number], known)
    return Risks(listed, chip, split.verdict)


def _of_program(graph: Graph, program: Program, ranges: Ranges) -> list[Risk]:
    """Those of a graph that a chip takes whole."""
    values = _walked(program, known_values(graph, ranges))
    listed = [*_of_constants(graph)]
    listed += [risk for op in program.module.ops if op.layer is not None for risk in _of_op(values, op)]
    return [*_once(listed), *_of_gate(graph, program.target)]


def precision_risk(
    out: Source,
    verbose: bool = False,
    target: str | int | Target | None = None,
    ranges: Ranges = None,
    *,
    dims: Mapping[str, int] | None = None,
    function: str | None = None,
) -> dict[str, Any]:
    """The risks of a graph on one chip as plain data; ``verbose`` prints them."""
    report = risks_on(graph_of(out, dims, function), chip_of(target, out), ranges)
    if verbose:
        print(report)
    return report.to_json()


def _walked(program: Program, known: dict[str, Value]) -> Walk:
    return walk(Engine.of(program.target), program.module, known)


def _once(listed: Sequence[Risk]) -> list[Risk]:
    """One for each node and kind: the pieces of a layer that was cut share it."""
    largest: dict[tuple[str, str], Risk] = {}
    for risk in listed:
        key = risk.node, risk.kind
        if key not in largest or risk.reaches > largest[key].reaches:
            largest[key] = risk
    return list(largest.values())


def _of_gate(graph: Graph, chip: Target) -> Iterator[Risk]:
    """What the gate knows to be wrong on silicon, such as the sizes of the attention layer."""
    if chip.family5 is None or chip.family5 == Family.OLDER:
        return
    for report in preflight(graph, chip).risk:
        if report.rule == "slice-saturation":  # the walk knows the range of the slice
            continue
        limit = math.nan if report.limit is None else float(report.limit)
        yield Risk(
            report.name, report.op, report.rule or "gate", math.inf, limit, None, report.message, report.hint or ""
        )


def _of_constants(graph: Graph) -> Iterator[Risk]:
    """Constants that are infinite in fp16, such as a mask of -1e9: a row that is masked everywhere has no sum, and
    what is infinite times zero is zero on the engine and not a number elsewhere (N32)."""
    names = graph.names()
    for node in graph.nodes:
        stored = None if node.weight is None or node.weight.encoded is not None else node.weight
        if stored is None or stored.size > _MOST_CONSTANTS or not np.isinf(stored.array).any():
            continue
        yield Risk(names.get(node.uid, node.op), node.op, "infinite-constant", math.inf, LARGEST, None,
                   "the constant is infinite in fp16, which ends at 65504",
                   "mask with -3e4, which is finite in sums too, or choose with a where")  # fmt: skip


def _of_op(walked: Walk, op: Op) -> Iterator[Risk]:
    read = [walked.values[operand] for operand in op.operands]
    if not op.sources or any(value.special for value in read):
        return
    if op.is_a(Trait.CONTRACTION):
        yield from _product(walked, op, read)
    elif op.labels.get("storage") == "q4":
        yield from _cropped(op, read)
    elif op.kind in _RULES:
        yield from _RULES[op.kind](walked, op, read)


def _risk(op: Op, kind: str, reaches: float, limit: float, value: Value, message: str, **more: Any) -> Risk:
    return Risk(op.sources[-1], op.kind, kind, reaches, limit, value, message, **more)


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
        off = walked.values[op].error
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
