"""The walk: every node once, operands first; equal nodes become one, and the rules of its op are tried on each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from aneforge.graph.graph import Graph
from aneforge.graph.node import remade
from aneforge.graph.ops.leaf import const
from aneforge.graph.origins import merged, nodes_since, passed_over, stamp
from aneforge.graph.recognise.algebra import Scene, SpellingRule
from aneforge.graph.recognise.table import RULES
from aneforge.graph.reference import value_of
from aneforge.graph.tensor import Tensor
from aneforge.graph.traits import GraphTrait

_MOST_STEPS = 32  # rules that apply to one node, one after another; more would mean that two of them disagree
_MOST_FIXED = 1 << 20  # elements of a constant that is computed here
_NOTHING = "it changes nothing"


@dataclass(frozen=True)
class Recognised:
    """A graph in the spelling that all formats share, and how often each rule applied."""

    graph: Graph
    counts: Mapping[str, int] = field(default_factory=dict)


def recognised(graph: Graph) -> Recognised:
    """The same function in the spelling that all formats share: the same inputs, outputs and names."""
    walk = _Walk(graph)
    return Recognised(walk.run(), dict(walk.counts))


class _Walk:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.counts: Counter[str] = Counter()
        self.scene = Scene(graph.nodes, graph.outputs)
        self._now: dict[int, Tensor] = {}  # what stands for each node of the graph
        self._known: dict[Any, Tensor] = {}  # nodes by what they compute
        self.reasons: dict[int, str] = {}  # why nodes of the file are gone, where no node comes from them

    def run(self) -> Graph:
        names = self.graph.names()
        for node in self.graph.nodes:
            if node.definition.leaf:
                self._now[node.uid] = self._earliest(node) if node.op == "const" else node
            else:
                self._now[node.uid] = self._settled(node, self._on_new_operands(node))
        outputs: list[Tensor] = []
        for output in self.graph.outputs:
            outputs.append(_as_output(self._now[output.uid], names[output.uid], outputs))
        graph = Graph(_in_order(outputs), self.graph.states, self.graph.route)
        if self.graph.file is not None:
            graph.file = replace(self.graph.file, reasons={**self.reasons, **self.graph.file.reasons})
            graph.name_by_origins()
        return graph

    def _on_new_operands(self, node: Tensor) -> Tensor:
        operands = [self._now[operand.uid] for operand in node.inputs]
        if all(new is old for new, old in zip(operands, node.inputs, strict=True)):
            return node
        return self.scene.stand(remade(node, operands, node.name), node)

    def _settled(self, node: Tensor, current: Tensor) -> Tensor:
        """What stands for a node: the rules are applied to it, and to every node that they make on the way, operands
        first, until none fits. The last one carries the name of the node, unless a rule chose one."""
        for _ in range(_MOST_STEPS):
            earlier = self._earliest(current)
            if earlier is not current:
                earlier.origins = merged(earlier.origins, current.origins)
                return self.scene.stand(earlier, current)
            if _is_fixed(current):
                self.counts["constant"] += 1
                constant = _constant(current)
                constant.origins = merged(current.origins, *(operand.origins for operand in current.inputs))
                current = self.scene.stand(constant, current)
                continue
            found = self._first(current)
            if found is None:
                return current
            rule, result = found
            self.counts[rule.name] += 1
            current = self.scene.stand(self._with_settled_operands(node, current, result), current)
        return current

    def _with_settled_operands(self, node: Tensor, before: Tensor, result: Tensor) -> Tensor:
        """What a rule made, with the rules applied to each of its inner nodes."""
        settled: dict[int, Tensor] = {}
        built = nodes_since(before.uid, [result])
        if built:
            stamp(before, built, result)
        else:
            gone = merged(*(passed.origins for passed in passed_over(before, (), result)))
            self.reasons |= dict.fromkeys((origin.number for origin in gone), _NOTHING)
        for new in built:
            new.where = node.where
            operands = [settled.get(operand.uid, operand) for operand in new.inputs]
            changed = any(now is not old for now, old in zip(operands, new.inputs, strict=True))
            inner = remade(new, operands, None) if changed else new
            if new is result:
                inner.name = new.name or node.name
                return inner
            settled[new.uid] = inner if inner.definition.leaf else self._settled(node, inner)
        return result

    def _earliest(self, node: Tensor) -> Tensor:
        """An earlier node that computes the same, or the node itself; ports and random numbers are never the same."""
        if _may_differ(node) or (node.definition.leaf and node.op != "const"):
            return node
        weight = None if node.weight is None else node.weight.key
        key = (node.op, node.signature.attrs, tuple(operand.uid for operand in node.inputs), weight, node.shape)
        return self._known.setdefault(key, node)

    def _first(self, node: Tensor) -> tuple[SpellingRule, Tensor] | None:
        for rule in RULES.get(node.op, ()):
            result = rule.apply(node, self.scene)
            if result is not None and result is not node:
                return rule, result
        return None


def _may_differ(node: Tensor) -> bool:
    """Whether two nodes that read the same may give different numbers."""
    return node.op == "host" or node.is_a(GraphTrait.DRAWN)


def _is_fixed(node: Tensor) -> bool:
    """Whether a node computes the same numbers in every run, and few enough to keep them."""
    if node.definition.leaf or node.dtype != "fp16" or _may_differ(node) or node.size > _MOST_FIXED:
        return False
    return all(_is_small_constant(operand) for operand in node.inputs)


def _is_small_constant(node: Tensor) -> bool:
    """A weight in a compressed form stays as it is: its numbers would be a dense constant."""
    plain = node.op == "const" and node.weight is not None and node.weight.encoded is None
    return plain and node.size <= _MOST_FIXED


def _constant(node: Tensor) -> Tensor:
    operands = [value_of(operand, []) for operand in node.inputs]
    with np.errstate(all="ignore"):
        return const(value_of(node, operands))


def _as_output(tensor: Tensor, name: str, others: Sequence[Tensor]) -> Tensor:
    """An output under its own name: callers ask for it. A node that gives two outputs is there twice."""
    if tensor.name == name and all(tensor is not other for other in others):
        return tensor
    if tensor.definition.leaf:
        view = tensor.reshape(*tensor.shape).named(name)
        view.origins = tensor.origins
        return view
    return remade(tensor, tensor.inputs, name)


def _in_order(outputs: Sequence[Tensor]) -> list[Tensor]:
    """The same nodes numbered anew, each behind its operands and as late as they allow: exporters write independent
    nodes in different orders, and the order decides how a program is scheduled."""
    placed: dict[int, Tensor] = {}
    stack = list(reversed(outputs))
    while stack:
        node = stack[-1]
        missing = [operand for operand in node.inputs if operand.uid not in placed]
        if node.uid in placed or not missing:
            stack.pop()
            if node.uid not in placed:
                placed[node.uid] = _placed(node, placed)
        else:
            stack.extend(reversed(missing))
    return [placed[output.uid] for output in outputs]


def _placed(node: Tensor, placed: Mapping[int, Tensor]) -> Tensor:
    if node.definition.leaf and node.op != "const":
        return node  # ports keep their order
    return remade(node, [placed[operand.uid] for operand in node.inputs], node.name)
