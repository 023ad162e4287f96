"""The one answer to "can this node lose a number?", for a program or what the compiler's first phases have of one.

``check``, the warnings of ``compile``, ``risks``, ``diverges`` and the verdicts on two chips all ask here. What they
list of it differs, and :attr:`~aneforge.numerics.losses.Risk.due` says what deserves a word unasked.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from aneforge.chips.assumed import compile_fact
from aneforge.chips.chip import Target
from aneforge.chips.names import chip_label
from aneforge.compiler.legal.findings import NumberFinding
from aneforge.compiler.program import Program
from aneforge.engine.ir import Module
from aneforge.engine.spec import kinds_with
from aneforge.engine.traits import Trait
from aneforge.errors import CrossChipFP16Warning, PrecisionWarning
from aneforge.graph.graph import Graph
from aneforge.graph.tensor import Tensor
from aneforge.numerics.losses import Risk
from aneforge.numerics.node_losses import node_losses, with_rewrites
from aneforge.numerics.ranges import Value, of_array, promised_values
from aneforge.numerics.rules import has_rule, is_clamped_copy
from aneforge.numerics.transfer import Walk, walk
from aneforge.sim.engine import Engine

_CODES = ("si8", "ui8")


@dataclass(frozen=True, eq=False)
class Analysis:
    """The values of a program on one chip, and everything it can lose, nodes in the order of the program."""

    graph: Graph
    names: Mapping[int, str]
    walk: Walk
    risks: tuple[Risk, ...]

    def value_of(self, node: Tensor) -> Value | None:
        """What a node of the graph can be; None where the program does not show it as one value."""
        if node.weight is not None:
            return None if node.weight.encoded is not None else of_array(node.weight.array)
        values = self._values_of(node)
        return values[0] if len(values) == 1 else None

    def size_of(self, node: Tensor) -> float:
        """The largest magnitude of a computed node; infinite where nothing bounds it."""
        values = self._values_of(node)
        bounded = bool(values) and not any(value.special or value.is_open for value in values)
        return max(value.size for value in values) if bounded else math.inf

    def _values_of(self, node: Tensor) -> list[Value]:
        standing = self.walk.module.lineage.get(self.names[node.uid])
        return [] if standing is None else [self.walk.values[op] for op in standing.ops()]


def analysis(
    graph: Graph, names: Mapping[int, str], module: Module, target: Target, known: Mapping[str, Value]
) -> Analysis:
    """Walk a program of a graph with what is known of its inputs and nodes, by name. The program may be unfinished:
    from phase 2 on, all that decides numbers is decided."""
    walked = walk(Engine.of(target), module, known, errors=False)
    ranges = Analysis(graph, names, walked, ())
    of_nodes = node_losses(graph, names, ranges.value_of)
    risks = _once([*of_nodes, *with_rewrites(walked.risks, graph, names)])
    return Analysis(graph, names, walked, tuple(risks))


def _once(risks: Iterable[Risk]) -> list[Risk]:
    """One for each node and rule, the worst: the pieces of a layer that was cut share it."""
    worst: dict[tuple[str, str], Risk] = {}
    for risk in risks:
        known = worst.get((risk.node, risk.rule))
        if known is None or _gravity(risk) > _gravity(known):
            worst[risk.node, risk.rule] = risk
    return list(worst.values())


def _gravity(risk: Risk) -> tuple[float, bool, float]:
    """By the error, by whether it deserves a word unasked, and by how far it reaches."""
    return risk.expected_error or 0.0, risk.due, risk.reaches


_PASSING = {"add", "sub", "mult", "relu", "reduce_avg"}.union(
    *map(kinds_with, (Trait.PORT, Trait.MOVEMENT, Trait.CONTRACTION, Trait.POOL, Trait.AFFINE))
)
"""Kinds that bound nothing: behind an input that nobody bounded, neither is their result."""


def has_questions(module: Module, known: Mapping[str, Value]) -> bool:
    """Whether anything that a program loses can be due: an input or an op that bounds numbers, a sum of many, a copy
    or a kernel with a limit of its own. Without any of them no walk is needed to know that there is nothing to say."""
    if any(not value.is_open for value in known.values()) or not module.kinds <= _PASSING:
        return True
    return any(is_clamped_copy(op) or (op.type is not None and op.type.dtype in _CODES) for op in module.ops)


def due_risks(graph: Graph, program: Program) -> list[Risk]:
    """What a program can lose that is worth a warning, within what its inputs promise."""
    names = graph.names()
    known = promised_values(graph, names)
    if not has_questions(program.module, known):
        return []
    analysed = analysis(graph, names, program.module, program.target, known)
    return [risk for risk in analysed.risks if risk.due]


def arithmetic_of(target: Target) -> tuple[object, ...]:
    """What decides the numbers of a program on a chip, and what is said of them: chips that share it share an
    analysis."""
    engine = Engine.of(target)
    facts = (getattr(engine, part.name) for part in fields(engine) if part.name != "target")
    return *facts, compile_fact(target, "slice_saturates").label()


def as_risk(finding: NumberFinding, node: str, op: str) -> Risk:
    """What a rule knows to be wrong on silicon whatever the data, of a node."""
    return Risk(**{part.name: getattr(finding, part.name) for part in fields(NumberFinding)}, node=node, op=op)


# What a compile warns of: the numbers that ``check`` lists as risks.


_NAMED = 4  # nodes that one warning names
_OF_SOME_CHIPS = ("slice-saturation", "int8-activations")
"""Losses at limits that other chips do not have."""


def warn_losses(graph: Graph, program: Program, stacklevel: int = 2, precision: bool = True) -> int:
    """Warn of every number that ``check`` lists as a risk, once for each rule and message; how many there were.

    ``stacklevel`` counts as in ``warnings.warn``: 2 is the caller's line. Without ``precision`` only limits that other
    chips do not have are told. What only another runtime does wrong is for ``check`` to say.
    """
    due: list[tuple[str, NumberFinding]] = [(risk.node, risk) for risk in due_risks(graph, program)]
    due += [(node, finding) for node, finding in program.risks if "direct" in (finding.runtimes or ("direct",))]
    nodes_of: dict[tuple[str, str, str], tuple[NumberFinding, list[str]]] = {}
    for node, finding in due:
        if precision or finding.rule in _OF_SOME_CHIPS:
            key = finding.rule, finding.message, finding.basis
            nodes_of.setdefault(key, (finding, []))[1].append(node)
    chip = chip_label(program.target.name)
    for first, nodes in nodes_of.values():
        category = CrossChipFP16Warning if first.rule in _OF_SOME_CHIPS else PrecisionWarning
        warnings.warn(_sentence(first, nodes, chip), category, stacklevel=stacklevel)
    return sum(len(nodes) for _, nodes in nodes_of.values())


def _sentence(finding: NumberFinding, nodes: list[str], chip: str) -> str:
    hint = f" {finding.hint[0].upper()}{finding.hint[1:]}." if finding.hint else ""
    about = f"on {chip}, rule {finding.rule}, {finding.basis}"
    return f"{listed(nodes)}: {finding.message.rstrip('.')} ({about}) {finding.evidence.label()}.{hint}"


def listed(names: Sequence[str]) -> str:
    """Some names, and how many more there are."""
    more = len(names) - _NAMED
    shown = ", ".join(names[:_NAMED])
    return f"{shown} and {more} more" if more > 0 else shown


# Where the analysis of ranges stopped: results that nothing bounds, and how much of the program is behind them.


_SHOWN = 5


@dataclass(frozen=True)
class Stop:
    """One node whose result nothing bounds, and why."""

    node: str
    op: str
    reason: str
    behind: int
    """The layers that read it, directly or through others, and were therefore not looked at."""

    def to_json(self) -> dict[str, Any]:
        return dict(self.__dict__)


@dataclass(frozen=True)
class Coverage:
    """How much of a program was looked at."""

    layers: int
    covered: int
    stops: tuple[Stop, ...] = ()

    @property
    def complete(self) -> bool:
        return self.covered == self.layers

    def __add__(self, other: Coverage) -> Coverage:
        return Coverage(self.layers + other.layers, self.covered + other.covered, self.stops + other.stops)

    def to_json(self) -> dict[str, Any]:
        return {"layers": self.layers, "covered": self.covered, "stops": [stop.to_json() for stop in self.stops]}

    def __str__(self) -> str:
        if self.complete:
            return ""
        missed = self.layers - self.covered
        lines = [f"not covered: {missed} of {self.layers} layers, which read a result without known bounds"]
        lines += [
            f"  stopped at {stop.node} ({stop.op}), {stop.behind} layer{'s' if stop.behind > 1 else ''} behind it: "
            f"{stop.reason}"
            for stop in self.stops[:_SHOWN]
        ]
        if len(self.stops) > _SHOWN:
            lines.append(f"  and {len(self.stops) - _SHOWN} more (--json lists all)")
        return "\n".join(lines)


def coverage_of(walked: Walk) -> Coverage:
    """The ops whose operands are bounded are covered; a stop is the first op of a chain that is not."""
    at_risk = {(risk.node, risk.op) for risk in walked.risks}
    layers = covered = 0
    stop_of: dict[Any, int] = {}
    stops: list[list[Any]] = []
    for op in walked.module.ops:
        if op.kind == "live_out":
            continue
        counts = op.layer is not None and bool(op.sources)
        unbounded = [operand for operand in op.operands if walked.values[operand].special]
        layers += counts
        covered += counts and not unbounded
        if unbounded:
            number = next((stop_of[operand] for operand in unbounded if operand in stop_of), None)
            if number is not None:
                stops[number][3] += counts
                stop_of[op] = number
        elif walked.values[op].special and op.kind != "const_in":
            node = op.sources[-1] if op.sources else str(op.attrs.get("name", op.kind))
            if (node, op.kind) in at_risk:
                reason = "it can lose numbers (listed above)"
            elif has_rule(op):
                reason = "its result can leave fp16 within these ranges"
            else:
                reason = f"no rule bounds {op.attrs['type'] if op.kind == 'unit' else op.kind}"
            stop_of[op] = len(stops)
            stops.append([node, op.kind, reason, 0])
    found = sorted((Stop(*stop) for stop in stops if stop[3]), key=lambda stop: -stop.behind)
    return Coverage(layers, covered, tuple(found))
