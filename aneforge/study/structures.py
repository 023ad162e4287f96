"""Structures that messages of runtimes name as causes, looked for in a graph where no rule of a chip speaks.

Each is a function of the graph that gives the nodes that show it. That a node is there does not mean that a chip
refuses it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from aneforge.compiler.legal.patterns import attention_extents
from aneforge.graph.graph import Graph
from aneforge.graph.tensor import Tensor
from aneforge.graph.traits import GraphTrait

_STATE_STEP = 32  # E89: a state whose width is no multiple of it
_FEW = 4  # E08: fewer queries than this
_INTEGERS = "int32"


def _states(graph: Graph) -> list[Tensor]:
    return [node for node in graph.inputs if node.name in graph.states]


def _two_states(graph: Graph) -> Iterator[Tensor]:
    states = _states(graph)
    yield from states if len(states) > 1 else ()


def _odd_state(graph: Graph) -> Iterator[Tensor]:
    yield from (node for node in _states(graph) if node.shape and node.shape[-1] % _STATE_STEP)


def _of_rank(least: int) -> Callable[[Graph], Iterator[Tensor]]:
    def find(graph: Graph) -> Iterator[Tensor]:
        yield from (node for node in graph.nodes if len(node.shape) >= least)

    return find


def _by_op(*ops: str) -> Callable[[Graph], Iterator[Tensor]]:
    def find(graph: Graph) -> Iterator[Tensor]:
        yield from (node for node in graph.nodes if node.op in ops)

    return find


def _int8_weights(graph: Graph) -> Iterator[Tensor]:
    for node in graph.nodes:
        weight = node.weight
        if weight is not None and weight.encoded is not None and weight.encoded.bits == 8:
            yield node


def _recurrence(graph: Graph) -> Iterator[Tensor]:
    yield from (node for node in graph.nodes if node.is_a(GraphTrait.RECURRENT))


def _few_queries(graph: Graph) -> Iterator[Tensor]:
    for node in graph.nodes:
        extents = attention_extents(node)
        if extents is not None and extents[0] < _FEW:
            yield node


def _batch(graph: Graph) -> Iterator[Tensor]:
    yield from (node for node in graph.inputs if len(node.shape) > 2 and node.shape[0] > 1)


def _integers(graph: Graph) -> Iterator[Tensor]:
    yield from (node for node in graph.nodes if node.dtype == _INTEGERS and not node.definition.leaf)


def _comparison(graph: Graph) -> Iterator[Tensor]:
    yield from (node for node in graph.nodes if node.dtype == "bool" or node.op == "select")


def _zero_size(graph: Graph) -> Iterator[Tensor]:
    yield from (node for node in graph.nodes if 0 in node.shape)


def _odd_softmax(graph: Graph) -> Iterator[Tensor]:
    for node in graph.nodes:
        if node.op == "softmax":
            width = node.shape[node.attrs["axis"]]
            if width & (width - 1):
                yield node


STRUCTURES: dict[str, Callable[[Graph], Iterator[Tensor]]] = {
    "any-state": lambda graph: iter(_states(graph)),
    "two-states": _two_states,
    "odd-state": _odd_state,
    "rank-5": _of_rank(5),
    "rank-6": _of_rank(6),
    "int8-weights": _int8_weights,
    "recurrence": _recurrence,
    "few-queries": _few_queries,
    "fused-attention": _by_op("sdpa"),
    "batch": _batch,
    "position-op": _by_op("argmax", "argmin", "arg_max", "arg_min", "topk", "sort", "topk_vectors", "sort_vectors"),
    "gather": _by_op("gather", "gather_places", "gather_nd"),
    "integers": _integers,
    "comparison": _comparison,
    "transposed-convolution": _by_op("conv_transpose", "conv_transpose3d"),
    "zero-size": _zero_size,
    "odd-softmax": _odd_softmax,
}
"""By the name that ``error_causes.json`` uses. ``open-shapes`` is asked of the file, not of the graph."""
