"""``risks``: where a graph can lose numbers or digits on a chip, within the ranges that are known of its data.

A walk through the compiled program gives what every op can read. Each rule looks at one kind of op, and says what its
operands can reach, which limit that passes, and what to write instead. Only the first loss of a chain is listed: what
comes after an infinite number is lost already.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from aneforge.arguments import Chips, Source, chip_of, chips_of, graph_of
from aneforge.compiler.compile import compile_target, resolve_target
from aneforge.compiler.program import Program
from aneforge.compiler.refusal import CompileError
from aneforge.defaults import DEFAULT_CHIPS
from aneforge.gate.preflight import preflight
from aneforge.graph.graph import Graph
from aneforge.graph.tensor import Tensor
from aneforge.numerics.cures import with_fitting_rewrites
from aneforge.numerics.losses import Risk, losses_of
from aneforge.numerics.node_losses import node_losses, with_rewrites
from aneforge.numerics.ranges import Ranges, known_values, ranges_note, ranges_of
from aneforge.numerics.stops import Coverage, coverage_of
from aneforge.numerics.transfer import Walk, walk
from aneforge.numerics.values import Value, of_array
from aneforge.output import text
from aneforge.output.by_chip import ByChip
from aneforge.sim.engine import Engine
from aneforge.targets.chip import Target
from aneforge.targets.families import Family

__all__ = ["Risk", "RiskReport", "Risks", "precision_risk", "risks", "risks_on"]

_HEADERS = ("node", "kind", "reaches", "limit", "error", "what")


class Risks(list[Risk]):
    """Those of one graph on one chip, in the order of the program; ``coverage`` says what was not looked at."""

    def __init__(self, risks: Sequence[Risk], target: Target, coverage: Coverage | None = None) -> None:
        super().__init__(risks)
        self.target = target
        self.coverage = coverage or Coverage(0, 0)

    def to_json(self) -> dict[str, Any]:
        listed = [risk.to_json() for risk in self]
        return {"target": self.target.name, "risks": listed, "coverage": self.coverage.to_json()}

    def __str__(self) -> str:
        missed = [str(self.coverage)] if str(self.coverage) else []
        if not self:
            if missed:
                return "\n".join([f"{self.target.name}: no risk was found in what could be bounded", *missed])
            return f"{self.target.name}: nothing can be lost within these ranges"
        rows = [
            (risk.node, risk.kind, _number(risk.reaches), _number(risk.limit), _error(risk), risk.message)
            for risk in self
        ]
        head = f"{self.target.name}: {len(self)} risk{'s' if len(self) > 1 else ''}"
        return "\n".join([head, text.columns(_HEADERS, rows), "what to do", *_cures(self), *missed])


def _cures(risks: Sequence[Risk]) -> list[str]:
    """What to do, once for each kind and rewrite."""
    forms: dict[str, dict[str, None]] = {}
    for risk in risks:
        known = forms.setdefault(f"  {risk.kind}: {risk.suggestion}", {})
        known |= {risk.rewrite: None} if risk.rewrite else {}
    return [line for cure, names in forms.items() for line in (cure, *(f"    --out applies {name}" for name in names))]


def _number(value: float) -> str:
    return "any" if math.isinf(value) else f"{value:.4g}"


def _error(risk: Risk) -> str:
    if risk.expected_error is None:
        return "-"
    return "lost" if math.isinf(risk.expected_error) else f"{100 * risk.expected_error:.2g} %"


class RiskReport(ByChip[Risks]):
    """The risks of one model on each chip. ``ok`` is True where nothing can be lost on any of them."""

    def __init__(self, results: Mapping[str, Risks], note: str) -> None:
        super().__init__(results)
        self.note = note

    @property
    def ok(self) -> bool:
        return not any(self.values())

    def __str__(self) -> str:
        return super().__str__() + (f"\n\n{self.note}" if self.note else "")


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
    notes = [ranges_note(max_abs, inputs, ranges)]
    if inputs is None and not all(found.coverage.complete for found in by_chip.values()):
        notes.append("ranges that data show (--input FILE.npz) are narrower, and usually cover the whole model")
    return RiskReport(by_chip, "\n".join(note for note in notes if note))


def risks_on(out: Tensor | Sequence[Tensor] | Graph, target: str | int | Target, ranges: Ranges = None) -> Risks:
    """What can be lost on one chip. Of a model that is not on the engine whole, the regions on the engine."""
    graph, chip = Graph.of(out), resolve_target(target)
    known = known_values(graph, ranges)
    listed: list[Risk] = []
    coverage = Coverage(0, 0)
    for program, part in _programs(graph, chip):
        ports = {name: value for name, value in known_values(part, None).items() if name not in known}
        walked = walk(Engine.of(program.target), program.module, {**ports, **known})
        found, covered = _of_program(walked, part)
        listed += found
        coverage += covered
    found = with_fitting_rewrites(graph, _once(listed), chip)
    return Risks([*found, *_of_gate(graph, chip)], chip, coverage)


def _programs(graph: Graph, chip: Target) -> Iterator[tuple[Program, Graph]]:
    """The program of a graph, or those of its regions on the engine."""
    try:
        program = compile_target(graph, chip)
    except CompileError:
        from aneforge.regions.partition import partition_for

        split = partition_for(graph, chip)
        if not split.models:
            raise
        for number, model in split.models.items():
            yield model.program, split.graph_of(number)
        return
    yield program, graph


def _of_program(walked: Walk, graph: Graph) -> tuple[list[Risk], Coverage]:
    names = graph.names()
    of_ops = [risk for op in walked.module.ops if op.layer is not None for risk in losses_of(walked, op)]

    def range_of(node: Tensor) -> Value | None:
        if node.weight is not None:
            return None if node.weight.encoded is not None else of_array(node.weight.array)
        standing = walked.module.lineage.get(names[node.uid])
        ops = [] if standing is None else list(standing.ops())
        return walked.values.get(ops[0]) if len(ops) == 1 else None

    of_nodes = list(node_losses(graph, names, range_of))
    return [*of_nodes, *with_rewrites(of_ops, graph, names)], coverage_of(walked, of_ops)


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
    return {"target": report.target.name, "risks": report.to_json()["risks"]}


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
