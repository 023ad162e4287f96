"""Short sequences of ops that some rule knows, found by the structure of the graph."""

from __future__ import annotations

from collections.abc import Iterator

from aneforge.compiler.legal.query import Query
from aneforge.graph.graph import Graph
from aneforge.graph.tensor import Tensor

__all__ = ["matched_patterns"]

_ENDS = frozenset(
    ("concat", "sqrt", "rsqrt", "exp", "exp2", "log", "sigmoid", "tanh", "gelu", "silu", "erf", "softplus", "inverse")
)


def matched_patterns(graph: Graph) -> Iterator[tuple[Tensor, Query]]:
    """Every place in a graph that a rule about sequences wants to see."""
    for node in graph.nodes:
        if node.op in _ENDS:
            query = _pattern(node)
            if query is not None:
                yield node, query


def _pattern(node: Tensor) -> Query | None:
    from aneforge.compiler.legal.check import has_width_offset

    if node.op == "concat":
        offset = [each for each in node.inputs if has_width_offset(each.signature)]
        return Query("chain:concat", attrs={"graph": "slices along the width, concat"}) if len(offset) > 1 else None
    before = node.inputs[0]
    if before.op != "square":
        return None
    return Query("chain:square", (before.shape,), attrs={"graph": f"square, then {node.op}"})
