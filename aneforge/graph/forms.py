"""Equivalent forms: a named change of one place in a graph that keeps its meaning, and how several of them are applied
to a graph at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from aneforge.graph.graph import Graph
from aneforge.graph.node import remade
from aneforge.graph.ops.leaf import input as graph_input
from aneforge.graph.origins import merged
from aneforge.graph.tensor import Tensor
from aneforge.graph.traits import GraphTrait


@dataclass(frozen=True)
class FormContext:
    """What a precondition may use beside the node. Whether a form pays off is decided by its estimate, not by its
    precondition."""

    users: Mapping[int, int]
    """How many nodes and outputs read each node."""
    working_set: float = math.inf
    """Bytes of a layer's tensors above which a chip moves them out to memory and in again."""
    long_sum: int = 2048
    """The length from which splitting a product's sum is considered."""
    factors: Mapping[int, float] = field(default_factory=dict)
    """By node, the factor or size that the ranges of the data ask for; a form has its own default."""

    def is_private(self, node: Tensor) -> bool:
        """Whether a node is read only once, so that its reader can be built another way without it."""
        return self.users.get(node.uid, 0) == 1


def context_of(graph: Graph, working_set: float = math.inf, factors: Mapping[int, float] | None = None) -> FormContext:
    """The context of a graph's nodes on a chip with such a working set."""
    users: dict[int, int] = {output.uid: 1 for output in graph.outputs}
    for node in graph.nodes:
        for operand in node.inputs:
            users[operand.uid] = users.get(operand.uid, 0) + 1
    return FormContext(users, working_set, factors=factors or {})


@dataclass(frozen=True, eq=False)
class Site:
    """One place where a form fits: the node it replaces, what that node is computed from, and the new form."""

    node: Tensor
    operands: tuple[Tensor, ...]
    """The values it starts from; everything between them and the node is rebuilt."""
    build: Callable[..., Tensor]
    """Takes the operands, in order, and builds the same value in the new form."""
    traits: Any = None
    """What else decides its price besides the shapes, such as the bytes of an encoded weight."""


@dataclass(frozen=True)
class OtherForm:
    """One equivalent form. ``find`` is its precondition: a node to its site, or None where it does not fit."""

    kind: str
    """``attention``, ``tiling``, ``form`` or ``encoding``."""
    name: str
    doc: str
    find: Callable[[Tensor, FormContext], Site | None]

    @property
    def lossy(self) -> bool:
        """Whether the weights themselves are rounded, so that it is tried only where an error is allowed."""
        return self.kind == "encoding"


def number_of(node: Tensor) -> float | None:
    """The number of a constant that is one number; None for any other node."""
    if node.op != "const" or node.weight is None or node.weight.size != 1:
        return None
    return float(node.weight.array.reshape(-1)[0])


def scale_of(step: Tensor, product: Tensor) -> float | None:
    """The factor of a step that only scales a product; None for any other step."""
    if step.op == "linear_activation":
        return float(step.attrs["alpha"]) if step.attrs["beta"] == 0 else None
    if not step.is_a(GraphTrait.SCALING):
        return None
    left, right = step.inputs
    number = number_of(right if left is product else left)
    if number is None or step.op == "mul":
        return number
    return 1 / number if left is product and number else None


def applied(graph: Graph, sites: Sequence[Site]) -> Graph:
    """The graph with those places in their new form: the same inputs, outputs and names."""
    chosen = {site.node.uid: site for site in sites}
    names = graph.names()
    rebuilt: dict[int, Tensor] = {}
    for node in graph.nodes:
        site = chosen.get(node.uid)
        if site is not None:
            operands = tuple(rebuilt.get(operand.uid, operand) for operand in site.operands)
            rebuilt[node.uid] = _signed(site, names[node.uid], site.build(*operands), operands)
        elif any(operand.uid in rebuilt for operand in node.inputs):
            rebuilt[node.uid] = remade(node, [rebuilt.get(operand.uid, operand) for operand in node.inputs], node.name)
    outputs = []
    for node in graph.outputs:
        rebuilt[node.uid] = _as_output(rebuilt.get(node.uid, node), names[node.uid])
        outputs.append(rebuilt[node.uid])
    changed = Graph(outputs, graph.states, graph.route)
    changed.file = graph.file
    return changed


def _as_output(node: Tensor, name: str) -> Tensor:
    """An output under its own name, because callers use the name, which must not depend on other nodes."""
    if node.name == name or node.definition.leaf:
        return node
    return remade(node, node.inputs, name)


def _signed(site: Site, name: str, result: Tensor, operands: Sequence[Tensor]) -> Tensor:
    """Give the new nodes the user's line, the origins of all that they stand for, and names that lead back to the
    user's node."""
    known = {operand.uid for operand in operands}
    origins = merged(*(node.origins for node in rebuilt_by(site)))
    for number, built in enumerate(_between(result, known)):
        built.where, built.origins = site.node.where, origins
        built.name = built.name or f"{name}.{number}"
    result.name = name
    return result


def _between(node: Tensor, ends: set[int]) -> list[Tensor]:
    """The nodes between ``ends`` and a node, in order."""
    seen = {node.uid: node}
    stack = [node]
    while stack:
        for operand in stack.pop().inputs:
            if operand.uid not in seen and operand.uid not in ends:
                seen[operand.uid] = operand
                stack.append(operand)
    return [seen[uid] for uid in sorted(seen)]


def rebuilt_by(site: Site) -> list[Tensor]:
    """The nodes that a site computes another way, with the constants among them."""
    return _between(site.node, {operand.uid for operand in site.operands})


def covered(site: Site) -> frozenset[int]:
    """The nodes that a site replaces, without constants: two sites that share one exclude each other."""
    return frozenset(node.uid for node in rebuilt_by(site) if node.op != "const")


def apart(sites: Iterable[Site]) -> list[Site]:
    """Sites that share no node: of two that do, the first."""
    taken: set[int] = set()
    free: list[Site] = []
    for site in sites:
        nodes = covered(site)
        if not nodes & taken:
            taken |= nodes
            free.append(site)
    return free


def alone(site: Site) -> tuple[Graph, Graph] | None:
    """A site by itself, before and after, with inputs in place of its operands. None where an operand cannot be an
    input."""
    if any(operand.dtype == "bool" for operand in site.operands):
        return None
    ports = {
        operand.uid: operand if operand.op == "const" else graph_input(operand.shape, operand.dtype)
        for operand in site.operands
    }
    copies = dict(ports)
    for node in _between(site.node, set(ports)):
        if not node.definition.leaf:
            copies[node.uid] = remade(node, [copies.get(operand.uid, operand) for operand in node.inputs], None)
    after = site.build(*(ports[operand.uid] for operand in site.operands))
    return Graph([copies[site.node.uid]]), Graph([after])


def likeness(site: Site) -> tuple[Any, ...]:
    """A key that is equal for sites that cost the same, without building anything."""
    inside = rebuilt_by(site)
    places = {node.uid: number for number, node in enumerate((*site.operands, *inside))}
    nodes = tuple(
        (
            node.op,
            node.signature.attrs,
            node.shape,
            node.signature.inputs,
            tuple(places.get(operand.uid, -1) for operand in node.inputs),
        )
        for node in inside
    )
    return (*((operand.shape, operand.dtype) for operand in site.operands), nodes, site.traits)
