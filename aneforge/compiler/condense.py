"""A long graph of repeated blocks as a short one, for questions about single nodes.

Deep networks repeat a block many times: node after node is the same op on operands as far away. What the compiler's
first phases decide of a node depends on the node, on its neighbours and on the chip, so one repetition inside the
graph has the answers of all. A condensed graph keeps the first, one inner and the last repetition, and says for every
node of the whole graph which of its nodes stands for it. Limits on a whole program (its weights, its depth) are not
about single nodes: a graph that could meet one is not condensed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from itertools import chain
from math import prod
from operator import attrgetter

import numpy as np

from aneforge.compiler.legal.programs import least_ceiling
from aneforge.compiler.legal.rules.base import rule_records
from aneforge.graph.graph import Graph
from aneforge.graph.node import Signature, remade
from aneforge.graph.origins import kept_type
from aneforge.graph.tensor import Tensor
from aneforge.graph.traits import GraphTrait

_FEWEST_NODES = 512  # below it a graph is as quick as a condensed one
_REACH = 48  # nodes of a repetition at least, so that whatever a pass looks at around a node is in the next one
_KEPT = 3  # repetitions: the first, an inner one, the last
_SMALL = 16  # numbers of a constant whose values passes may look at

_uid, _inputs, _signature = attrgetter("uid"), attrgetter("inputs"), attrgetter("signature")


@dataclass(frozen=True, eq=False)
class Condensed:
    """A short graph, and which of its nodes stands for each node of the whole one, by their places."""

    graph: Graph
    stands_for: np.ndarray

    @cached_property
    def places(self) -> dict[int, int]:
        """The place of each node of the short graph, by its id."""
        return {node.uid: place for place, node in enumerate(self.graph.nodes)}

    @cached_property
    def copies(self) -> list[int]:
        """How many nodes each node of the short graph stands for."""
        return np.bincount(self.stands_for, minlength=len(self.graph.nodes)).tolist()


@dataclass(frozen=True)
class _Repetition:
    """The nodes from ``start`` on repeat ``count`` times every ``period``."""

    start: int
    period: int
    count: int

    @property
    def end(self) -> int:
        return self.start + self.period * self.count


def condensed(graph: Graph) -> Condensed | None:
    """The short form of a graph; None where it has none, or where that would hide something."""
    nodes = graph.nodes
    if len(nodes) < _FEWEST_NODES:
        return None
    tokens = _tokens(nodes)
    found = None if tokens is None else _repetition(tokens)
    if found is None:
        return None
    unit = found.period * -(-_REACH // found.period)
    block = _Repetition(found.start, unit, found.period * found.count // unit)
    if block.count <= _KEPT + 1:
        return None
    return _shortened(graph, block)


def _tokens(nodes: list[Tensor]) -> np.ndarray | None:
    """A number for each node that is equal for nodes of the same signature with operands as far away; None where a
    limit on the whole program could be met."""
    count = len(nodes)
    kinds, kind_of = np.unique(np.fromiter(map(id, map(_signature, nodes)), np.int64, count), return_inverse=True)
    firsts = np.full(len(kinds), count)
    np.minimum.at(firsts, kind_of, np.arange(count))
    signatures = [nodes[place].signature for place in firsts.tolist()]
    if _may_meet_a_limit(signatures, np.bincount(kind_of)):
        return None
    arity = np.fromiter(map(len, map(_inputs, nodes)), np.int64, count)
    uids = np.fromiter(map(_uid, nodes), np.int64, count)
    read = np.searchsorted(uids, np.fromiter(map(_uid, chain.from_iterable(map(_inputs, nodes))), np.int64))
    reader = np.repeat(np.arange(count), arity)
    leaf = np.array([signature.op.leaf for signature in signatures])[kind_of]
    fixed = np.array([signature.op.name != "const" for signature in signatures])[kind_of] & leaf
    # An operand is as far away as its reader says; an input is itself, and a constant what its signature says.
    far = np.where(fixed[read], -1 - read, np.where(leaf[read], 0, reader - read))
    place = np.arange(len(read)) - np.repeat(np.cumsum(arity) - arity, arity)
    mixed = (far * 2654435761 + place + 1) * np.int64(0x9E3779B97F4A7C1)
    tokens = kind_of.astype(np.int64) * np.int64(0x5851F42D4C957F2D)
    np.add.at(tokens, reader, mixed ^ (mixed >> 29))
    for kind, signature in enumerate(signatures):
        if signature.op.name == "const" and prod(signature.shape) <= _SMALL:
            for at in np.flatnonzero(kind_of == kind).tolist():
                weight = nodes[at].weight
                tokens[at] ^= 0 if weight is None else hash(weight.key)
    kept = [at for at, node in enumerate(nodes) if node.origins and kept_type(node.origins)]
    tokens[kept] ^= np.int64(0x2545F4914F6CDD1D)
    return tokens


def _may_meet_a_limit(signatures: list[Signature], counts: np.ndarray) -> bool:
    """Whether the weights, the convolutions or the attention layers could be too many for one program."""
    numbers: dict[str, int] = {}
    weight_bytes = 0
    for signature, count in zip(signatures, counts.tolist(), strict=True):
        name = signature.op.name
        numbers[name] = numbers.get(name, 0) + count
        if GraphTrait.STORED in signature.op.traits:
            weight_bytes += 2 * prod(signature.shape) * count
        if name == "softmax" and len(signature.shape) > 1 and signature.shape[-2] == 1:
            numbers["query"] = numbers.get("query", 0) + count
    return (
        weight_bytes > least_ceiling()
        or numbers.get("conv", 0) > _least("chain-depth")
        or numbers.get("query", 0) > _least("decode-layers")
    )


@cache
def _least(rule: str) -> int:
    return min(record["v"] for record in rule_records()[rule])


def _repetition(tokens: np.ndarray) -> _Repetition | None:
    """The longest stretch in which every node is like the one a period before it, for the likeliest period: the
    distance at which the rarest of the frequent nodes returns."""
    _, kind_of, counts = np.unique(tokens, return_inverse=True, return_counts=True)
    frequent = np.flatnonzero(counts > 2 * _KEPT)
    if not len(frequent):
        return None
    rarest = frequent[np.argmin(counts[frequent])]
    distances = np.diff(np.flatnonzero(kind_of == rarest))
    period = int(np.bincount(distances).argmax())
    same = np.concatenate(([False], kind_of[period:] == kind_of[:-period], [False]))
    edges = np.flatnonzero(np.diff(same.astype(np.int8)))
    starts, ends = edges[::2], edges[1::2]
    if not len(starts):
        return None
    longest = int(np.argmax(ends - starts))
    start, length = int(starts[longest]), int(ends[longest] - starts[longest]) + period
    return _Repetition(start, period, length // period)


def _places(count: int, block: _Repetition, tail: list[int]) -> np.ndarray:
    """For each node the place of the one that stands for it; ``tail`` are those of the nodes behind the block."""
    places = np.arange(count)
    inner = slice(block.start + block.period, block.end - block.period)
    last = slice(block.end - block.period, block.end)
    places[inner] = block.start + block.period + (places[inner] - block.start) % block.period
    places[last] = block.start + (_KEPT - 1) * block.period + (places[last] - block.start) % block.period
    places[block.end :] = tail
    return places


def _shortened(graph: Graph, block: _Repetition) -> Condensed | None:
    """The graph without the inner repetitions but one; None where something outside reads one of those."""
    nodes, kept = graph.nodes, block.start + _KEPT * block.period
    first_hidden, last_block = nodes[kept].uid, nodes[block.end - block.period].uid
    shown = {
        own.uid: stand_in
        for own, stand_in in zip(
            nodes[block.end - block.period : block.end], nodes[kept - block.period : kept], strict=True
        )
    }
    for node in nodes[block.end :]:
        if any(first_hidden <= operand.uid < last_block for operand in node.inputs):
            return None
        operands = [shown.get(operand.uid, operand) for operand in node.inputs]
        same = all(mine is own for mine, own in zip(operands, node.inputs, strict=True))
        shown[node.uid] = node if same else remade(node, operands, node.name)
    if any(first_hidden <= output.uid < last_block for output in graph.outputs):
        return None
    short = Graph([shown.get(output.uid, output) for output in graph.outputs], graph.states, graph.route)
    if len(short.nodes) != len(nodes) - (block.count - _KEPT) * block.period:
        return None
    places = {node.uid: place for place, node in enumerate(short.nodes)}
    tail = [places[shown[node.uid].uid] for node in nodes[block.end :]]
    return Condensed(short, _places(len(nodes), block, tail))
