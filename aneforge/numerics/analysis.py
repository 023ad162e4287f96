"""The one answer to "can this node lose a number?", for a program or what the compiler's first phases have of one.

``check``, the warnings of ``compile``, ``risks``, ``diverges`` and the verdicts on two chips all ask here. What they
list of it differs, and :attr:`~aneforge.numerics.losses.Risk.due` says what deserves a word unasked.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields

from aneforge.anec.ir import Module
from aneforge.anec.spec import kinds_with
from aneforge.anec.traits import Trait
from aneforge.compiler.legal.findings import NumberFinding
from aneforge.compiler.program import Program
from aneforge.graph.graph import Graph
from aneforge.graph.tensor import Tensor
from aneforge.numerics.losses import Risk
from aneforge.numerics.node_losses import node_losses, with_rewrites
from aneforge.numerics.promises import promised_values
from aneforge.numerics.rules import is_clamped_copy
from aneforge.numerics.transfer import Walk, walk
from aneforge.numerics.values import Value, of_array
from aneforge.sim.engine import Engine
from aneforge.targets.assumed import compile_fact
from aneforge.targets.chip import Target

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
