"""The same graph over several inputs at once, where its ops allow it."""

from __future__ import annotations

from typing import Any

from aneforge.errors import AneforgeError
from aneforge.graph.graph import Graph
from aneforge.graph.node import make
from aneforge.graph.ops.leaf import input as graph_input
from aneforge.graph.tensor import Tensor

__all__ = ["batched"]


def batched(graph: Graph, count: int) -> Graph | None:
    """The graph with a first axis of ``count`` in place of one; None where the first axis is not that of a batch.

    Every value that depends on an input must come out ``count`` times as long along its first axis and else the same.
    """
    names = graph.names()
    copies: dict[int, Tensor] = {}
    try:
        for node in graph.nodes:
            if node.op in ("input", "parameter"):
                if not node.shape or node.shape[0] != 1 or node.weight is not None:
                    return None
                copies[node.uid] = graph_input((count, *node.shape[1:]), node.dtype, name=names[node.uid])
            elif any(operand.uid in copies for operand in node.inputs):
                operands = [copies.get(operand.uid, operand) for operand in node.inputs]
                copy = make(node.definition, operands, _attrs(node, count), name=node.name, weight=node.weight)
                if not node.shape or node.shape[0] != 1 or copy.shape != (count, *node.shape[1:]):
                    return None
                copies[node.uid] = copy
        return Graph([copies[output.uid] for output in graph.outputs])
    except (AneforgeError, KeyError):
        return None  # an op that counts its inputs, or an output that depends on none


def _attrs(node: Tensor, count: int) -> dict[str, Any]:
    """The attributes of a node, with a stated result shape as long as the batch."""
    longer = (count, *node.shape[1:])
    return {name: longer if value == node.shape else value for name, value in node.attrs.items()}
