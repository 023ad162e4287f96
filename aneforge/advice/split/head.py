"""The product with the vocabulary in pieces: each piece gives some of the logits, and what follows is done to each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from aneforge.advice.forms import row_bounds
from aneforge.advice.split.pieces import stand_in_kernel
from aneforge.errors import GraphError
from aneforge.graph.forms import Site, applied, number_of
from aneforge.graph.graph import Graph
from aneforge.graph.node import make
from aneforge.graph.ops.leaf import const
from aneforge.graph.ops.shape import concat
from aneforge.graph.tensor import Tensor
from aneforge.graph.traits import GraphTrait

COUNTS = (1, 2, 4, 8, 16, 32)
"""Pieces that are tried."""
LEAST_ROWS = 1024
"""Rows of one piece: smaller ones are not tried."""
_MOST_NUMBERS = 1 << 28
"""Numbers of one piece: larger ones are not tried, so that a plan stays small in memory."""

Cut = Callable[[Tensor, int, int, int], Tensor]
"""Some places of a constant along an axis: from which one on, and how many."""


def own_numbers(stored: Tensor, axis: int, begin: int, size: int) -> Tensor:
    """The part with the model's own numbers, in the form that they are stored in."""
    weight = stored.weight
    assert weight is not None
    if weight.encoded is None:
        places = [slice(None)] * stored.ndim
        places[axis] = slice(begin, begin + size)
        return const(weight.array[tuple(places)])
    order = [axis % stored.ndim, *(number for number in range(stored.ndim) if number != axis % stored.ndim)]
    part = weight.encoded.transpose(order).rows(begin, begin + size)
    if part is None:
        raise GraphError(f"the form {weight.encoded.name} has blocks that a cut at {begin:,} would divide")
    return const(part.transpose([order.index(number) for number in range(stored.ndim)]))


def other_numbers(stored: Tensor, axis: int, begin: int, size: int) -> Tensor:
    """A part of the same shape that takes no memory, for a price."""
    shape = list(stored.shape)
    shape[axis] = size
    return stand_in_kernel(tuple(shape))


@dataclass(frozen=True)
class HeadCut:
    """The end of a model with its head in pieces."""

    graph: Graph
    parts: dict[str, tuple[str, ...]]
    """The outputs that are to be joined along the last axis, by the name of the whole one."""


def counts_for(head: Tensor) -> list[int]:
    """The numbers of pieces that are tried for a head."""
    outputs = head.shape[-1]
    kernel = head.inputs[1].size
    counts = [count for count in COUNTS if count == 1 or outputs // count >= LEAST_ROWS]
    small = [count for count in counts if kernel // count <= _MOST_NUMBERS]
    return small or counts[-1:]


def in_pieces(graph: Graph, head: Tensor, count: int, cut: Cut) -> HeadCut:
    """A graph with its head, a node of it, in pieces. What follows the head is done to each piece where it goes
    element by element, and the pieces are outputs; otherwise they are joined behind the product."""
    if count == 1:
        return HeadCut(graph, {})
    pieces = [_piece(head, begin, size, cut) for begin, size in row_bounds(head.shape[-1], count)]
    tail = _tail(graph, head)
    names = graph.names()
    if tail is None:
        return HeadCut(_joined(graph, head, pieces), {})
    output = tail[-1] if tail else head
    name = names[output.uid]
    parts = []
    for number, piece in enumerate(pieces):
        value, before = piece, head
        for node in tail:
            operands = [value if operand is before else operand for operand in node.inputs]
            value, before = make(node.definition, operands, node.attrs), node
        parts.append(value.named(f"{name}_{number}"))
    others = [other for other in graph.outputs if other is not output]
    cut_graph = Graph([*parts, *others], graph.states, graph.route)
    return HeadCut(cut_graph, {name: tuple(str(part.name) for part in parts)})


def _piece(head: Tensor, begin: int, size: int, cut: Cut) -> Tensor:
    x, kernel, *rest = head.inputs
    axis = head.definition.kernel_axis
    assert axis is not None
    biases = [bias if bias.size == 1 else cut(bias, bias.ndim - 1, begin, size) for bias in rest]
    return make(head.definition, [x, cut(kernel, axis, begin, size), *biases], head.attrs)


def _tail(graph: Graph, head: Tensor) -> list[Tensor] | None:
    """The operations between the head and the only output that it leads to, in order, where each goes element by
    element with numbers alone; None where one does not."""
    readers: dict[int, list[Tensor]] = {}
    for node in graph.nodes:
        for operand in node.inputs:
            readers.setdefault(operand.uid, []).append(node)
    outputs = {output.uid for output in graph.outputs}
    chain = [head]
    while chain[-1].uid not in outputs or readers.get(chain[-1].uid):
        following = readers.get(chain[-1].uid, [])
        if len(following) != 1 or chain[-1].uid in outputs:
            return None
        chain.append(following[0])
    for before, node in pairwise(chain):
        others: Sequence[Tensor] = [operand for operand in node.inputs if operand is not before]
        is_plain = node.is_a(GraphTrait.POINTWISE) or node.is_a(GraphTrait.FUNCTION)
        if not is_plain or node.shape != head.shape or any(number_of(other) is None for other in others):
            return None
    return chain[1:]


def _joined(graph: Graph, head: Tensor, pieces: Sequence[Tensor]) -> Graph:
    """The graph with the pieces joined behind the head."""

    def build(x: Tensor) -> Tensor:
        again = [make(piece.definition, [x, *piece.inputs[1:]], piece.attrs) for piece in pieces]
        return concat(again, axis=head.ndim - 1)

    return applied(graph, [Site(head, (head.inputs[0],), build)])
