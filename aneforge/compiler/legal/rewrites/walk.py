"""The walk: every node once, operands first, no recursion."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from aneforge.compiler.legal.rewrites.bounds import Bound
from aneforge.compiler.legal.rewrites.host import HostInput
from aneforge.compiler.legal.rewrites.registry import Context, Result, Rule, decompositions
from aneforge.compiler.legal.rewrites.rejection import RejectedOp, reject_words
from aneforge.errors import FamilyError
from aneforge.graph.graph import Graph
from aneforge.graph.node import OpDef, Shape, definition, make
from aneforge.graph.ops.leaf import input as graph_input
from aneforge.graph.tensor import Tensor
from aneforge.targets.chip import Target
from aneforge.targets.evidence import Fact
from aneforge.targets.families import Family, as_family
from aneforge.targets.names import target as find_target
from aneforge.targets.ops import op_routes, op_status

__all__ = ["Change", "Retargeted", "retarget"]


@dataclass(frozen=True, eq=False)
class Change:
    """One rewritten node."""

    node: Tensor
    rule: str
    result: Tensor
    why: str
    evidence: Fact[Any]
    bound: str

    def __str__(self) -> str:
        return f"{self.node.op}: {self.why} Rule {self.rule}; {self.bound} {self.evidence.label()}"


@dataclass(frozen=True, eq=False)
class Retargeted:
    """A graph for one chip, what was changed in it, and what the host must supply."""

    outputs: tuple[Tensor, ...]
    changes: tuple[Change, ...]
    host_inputs: tuple[HostInput, ...]
    origins: dict[int, Tensor]
    """The user's node behind every node that was made anew, by the new node's uid."""

    def names(self, graph: Graph) -> dict[int, str]:
        """A name for every node after rewriting: that of the node in the user's graph which it stands for."""
        given = graph.names()
        fresh = {uid: given[node.uid] for uid, node in self.origins.items()}
        return {**self.graph.names(), **given, **fresh}

    @property
    def graph(self) -> Graph:
        return Graph(self.outputs)

    def host_feeds(self) -> dict[Tensor, np.ndarray]:
        """The numbers that repeat the reference, ready for ``evaluate``."""
        return {each.tensor: each.values() for each in self.host_inputs}


def retarget(
    out: Tensor | Sequence[Tensor] | Graph, target: int | str | Target, keep: frozenset[str] = frozenset()
) -> Retargeted:
    """The graph with every op below its floor replaced by ops the chip has.

    ``target`` is a five-tier family, a compiler target or a chip name. ``keep`` names graph ops to leave as they are
    because a later stage rewrites them. Raises :class:`RejectedOp` for an op that the chip refuses and no rewrite
    can replace.
    """
    graph = Graph.of(out)
    walk = _Walk(*_family_of(target))
    walk.statuses |= dict.fromkeys(keep, "native")
    return walk.run(graph)


def _family_of(target: int | str | Target) -> tuple[Family, str]:
    """The family that decides, and the chip as messages name it."""
    if isinstance(target, int):
        family = as_family(target)
        return family, f"family {family.name}"
    found = find_target(target)
    if found.family5 is None:
        raise FamilyError(f"{found.name} belongs to no family, so no op has a floor to meet on it")
    asked = target if isinstance(target, str) and target != found.name else None
    return found.family5, f"{asked} ({found.name}, family {found.family5.name})" if asked else (
        f"{found.name} (family {found.family5.name})"
    )


class _Walk:
    def __init__(self, family: Family, chip: str) -> None:
        self.family, self.chip = family, chip
        self.rules = decompositions()
        self.statuses: dict[str, str] = {}
        self.changes: list[Change] = []
        self.host_inputs: list[HostInput] = []
        self.origins: dict[int, Tensor] = {}
        self.current: Tensor | None = None

    def run(self, graph: Graph) -> Retargeted:
        made: dict[int, Tensor] = {}  # only nodes that became another node
        for node in graph.nodes:
            status = self.statuses.get(node.op) or self._status(node.definition)
            if status == "native":
                if made and any(operand.uid in made for operand in node.inputs):
                    copied = made[node.uid] = _copy(node, tuple(made.get(each.uid, each) for each in node.inputs))
                    self.origins[copied.uid] = node
                continue
            inputs = tuple(made.get(each.uid, each) for each in node.inputs)
            made[node.uid] = self._replaced(node, inputs, status)
        outputs = tuple(made.get(each.uid, each) for each in graph.outputs)
        return Retargeted(outputs, tuple(self.changes), tuple(self.host_inputs), self.origins)

    def _status(self, declared: OpDef) -> str:
        status = op_status(declared.gate_name, self.family)
        self.statuses[declared.name] = status
        return status

    def _native(self, op: str) -> bool:
        return (self.statuses.get(op) or self._status(definition(op))) == "native"

    def _replaced(self, node: Tensor, inputs: tuple[Tensor, ...], status: str) -> Tensor:
        routes = op_routes(node.definition.gate_name)
        evidence = routes.main[self.family]
        rule = self.rules.get(node.op) if status == "decompose" else None
        if rule is None:
            raise RejectedOp(node, self.chip, reject_words(node.op, evidence), evidence)
        self.current = node
        made = rule.apply(Context(node, inputs, self._host, self._native))
        found = made if isinstance(made, Result) else Result(made)
        for each in _sign(node, rule, found.tensor, inputs):
            self.origins[each.uid] = node
        bound: Bound = found.bound or rule.bound
        why = self._why(node.op, [family for family, fact in routes.main.items() if fact.value == "native"])
        self.changes.append(Change(node, rule.name, found.tensor, why, evidence, str(bound)))
        return found.tensor

    def _why(self, op: str, native: list[Family]) -> str:
        if not native:
            return f"{op} has no native form on any family, so not on {self.chip}."
        return f"{op} is native from family {min(native).name}; {self.chip} is below that floor."

    def _host(
        self, distribution: str, shape: Shape, parameters: tuple[float, float], seed: int, max_abs: float | None
    ) -> Tensor:
        node = self.current
        assert node is not None
        name = f"{node.name or node.op}.host{len(self.host_inputs)}"
        tensor = graph_input(shape, max_abs=max_abs, name=name)
        self.host_inputs.append(HostInput(tensor, name, shape, distribution, parameters, seed))
        return tensor


def _copy(node: Tensor, inputs: tuple[Tensor, ...]) -> Tensor:
    """The same op on other operands, under its own name and line."""
    copied = make(node.definition, inputs, node.attrs, name=node.name, weight=node.weight)
    copied.where = node.where
    return copied


def _sign(node: Tensor, rule: Rule, result: Tensor, inputs: tuple[Tensor, ...]) -> list[Tensor]:
    """Give what a rule made the user's line, and names that lead back: the result keeps the user's own. Returns it."""
    known = {each.uid for each in inputs}
    if result.uid in known:
        return []
    stem = f"{node.name or node.op}.{rule.name}"
    stack, seen, fresh = [result], {result.uid}, []
    while stack:
        each = stack.pop()
        fresh.append(each)
        for operand in each.inputs:
            if operand.uid not in known and operand.uid not in seen:
                seen.add(operand.uid)
                stack.append(operand)
    for number, each in enumerate(sorted(fresh, key=lambda made: made.uid)):
        each.where = node.where
        if each.name is None:
            each.name = f"{stem}.{number}"
    if result.op != "input":
        result.name = node.name or stem
    return fresh
