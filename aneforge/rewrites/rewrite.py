"""What a rewrite is: a named change of one place in a graph that leaves its meaning as it was, and how several of them
are applied to a graph at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aneforge.graph.graph import Graph
from aneforge.graph.node import make
from aneforge.graph.ops.leaf import input as graph_input
from aneforge.graph.tensor import Tensor
from aneforge.targets.assumed import compile_fact
from aneforge.targets.chip import Target

__all__ = ["KINDS", "Rewrite", "Scene", "Site", "alone", "applied", "covered", "scene_of"]

KINDS = ("attention", "tiling", "route", "encoding")


@dataclass(frozen=True)
class Scene:
    """What a precondition may ask: the chip's working set, and who reads a node. Whether a form pays is a matter of
    its price, not of its precondition."""

    working_set: float
    """Bytes of a layer's tensors above which they go out to memory and in again."""
    users: Mapping[int, int]
    """How many nodes and outputs read each node."""
    long_sum: int = 2048
    """The length from which a product's sum is worth splitting at all."""

    def private(self, node: Tensor) -> bool:
        """Read once: nobody misses it when its reader is built another way."""
        return self.users.get(node.uid, 0) == 1


def scene_of(graph: Graph, target: Target) -> Scene:
    """What preconditions may ask of this graph on this chip."""
    users: dict[int, int] = {each.uid: 1 for each in graph.outputs}
    for node in graph.nodes:
        for operand in node.inputs:
            users[operand.uid] = users.get(operand.uid, 0) + 1
    return Scene(compile_fact(target, "max_operand_bytes").value, users)


@dataclass(frozen=True, eq=False)
class Site:
    """One place where a rewrite fits: the node it replaces, what that node is computed from, and the other way."""

    node: Tensor
    operands: tuple[Tensor, ...]
    """The values it starts from; everything between them and the node is built anew."""
    build: Callable[..., Tensor]
    """The operands, in order, to the same value by the other way."""
    traits: Any = None
    """What else decides its price besides the shapes, such as the bytes of an encoded weight."""


@dataclass(frozen=True)
class Rewrite:
    """One equivalent form. ``find`` is its precondition: a node to its site, or None where it does not fit."""

    kind: str
    name: str
    doc: str
    find: Callable[[Tensor, Scene], Site | None]

    @property
    def lossy(self) -> bool:
        """The weights themselves are rounded, so it is tried only where an error is allowed."""
        return self.kind == "encoding"


def applied(graph: Graph, sites: Sequence[Site]) -> Graph:
    """The graph with those places built the other way: the same inputs, outputs and names."""
    chosen = {site.node.uid: site for site in sites}
    names = graph.names()
    made: dict[int, Tensor] = {}
    for node in graph.nodes:
        site = chosen.get(node.uid)
        if site is not None:
            operands = tuple(made.get(each.uid, each) for each in site.operands)
            made[node.uid] = _signed(node, names[node.uid], site.build(*operands), operands)
        elif any(operand.uid in made for operand in node.inputs):
            made[node.uid] = _copy(node, [made.get(each.uid, each) for each in node.inputs], node.name)
    outputs = []
    for node in graph.outputs:
        made[node.uid] = _as_output(made.get(node.uid, node), names[node.uid])
        outputs.append(made[node.uid])
    return Graph(outputs, graph.states)


def _as_output(node: Tensor, name: str) -> Tensor:
    """Callers know an output by its name, which must not depend on how many nodes stand before it."""
    if node.name == name or node.definition.leaf:
        return node
    return _copy(node, node.inputs, name)


def _copy(node: Tensor, inputs: Sequence[Tensor], name: str | None) -> Tensor:
    copied = make(node.definition, inputs, node.attrs, name=name, weight=node.weight)
    copied.where = node.where
    return copied


def _signed(node: Tensor, name: str, result: Tensor, operands: Sequence[Tensor]) -> Tensor:
    """What was built has the user's line, and names that lead back to the user's node."""
    known = {each.uid for each in operands}
    for number, each in enumerate(_between(result, known)):
        each.where = node.where
        each.name = each.name or f"{name}.{number}"
    result.name = name
    return result


def _between(node: Tensor, ends: set[int]) -> list[Tensor]:
    """The nodes that lead to one, back to where ``ends`` begin, in order."""
    seen = {node.uid: node}
    stack = [node]
    while stack:
        for operand in stack.pop().inputs:
            if operand.uid not in seen and operand.uid not in ends:
                seen[operand.uid] = operand
                stack.append(operand)
    return [seen[uid] for uid in sorted(seen)]


def covered(site: Site) -> frozenset[int]:
    """The nodes that a site replaces, constants aside: two sites that share one exclude each other."""
    inside = _between(site.node, {each.uid for each in site.operands})
    return frozenset(each.uid for each in inside if each.op != "const")


def alone(site: Site) -> tuple[Graph, Graph, tuple[Any, ...]] | None:
    """A site by itself, as it is and as it would be, with inputs in place of its operands; and a key that equal sites
    share. None where an operand cannot be an input."""
    if any(each.dtype == "bool" for each in site.operands):
        return None
    ports = {each.uid: each if each.op == "const" else graph_input(each.shape, each.dtype) for each in site.operands}
    inside = _between(site.node, set(ports))
    made = dict(ports)
    for node in inside:
        if not node.definition.leaf:
            made[node.uid] = _copy(node, [made.get(each.uid, each) for each in node.inputs], None)
    after = site.build(*(ports[each.uid] for each in site.operands))
    return Graph([made[site.node.uid]]), Graph([after]), _key(site, inside)


def _key(site: Site, inside: Sequence[Tensor]) -> tuple[Any, ...]:
    places = {each.uid: number for number, each in enumerate((*site.operands, *inside))}
    nodes = tuple(
        (
            each.op,
            each.signature.attrs,
            each.shape,
            each.signature.inputs,
            tuple(places.get(operand.uid, -1) for operand in each.inputs),
        )
        for each in inside
    )
    return (*((each.shape, each.dtype) for each in site.operands), nodes, site.traits)
