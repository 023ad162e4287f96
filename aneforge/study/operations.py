"""The nodes of a graph that a device computes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aneforge.graph.graph import Graph
from aneforge.graph.tensor import Tensor
from aneforge.graph.traits import GraphTrait
from aneforge.graph.views import is_integer_view


class Operations:
    """The nodes of a graph that a device computes, apart from those that only look at integers in another way."""

    def __init__(self, graph: Graph, names: Mapping[int, str]) -> None:
        self.graph, self.names = graph, names
        self.by_name = {name: uid for uid, name in names.items()}
        computed = [node for node in graph.nodes if not node.definition.leaf or node.is_a(GraphTrait.DRAWN)]
        self.views = {node.uid for node in computed if is_integer_view(node)}
        """Not counted as ops: the host does these where it hands integers over."""
        self.port_views = _views_of_ports(computed, self.views)
        """Those among them that read inputs of the model only. They belong to no region."""
        self.placed = [node for node in computed if node.uid not in self.port_views]
        """Every node that has a device."""
        self.counted = tuple(node for node in self.placed if node.uid not in self.views)
        """The ops of the model, as reports count them."""


def _views_of_ports(computed: Sequence[Tensor], views: set[int]) -> dict[int, Tensor]:
    by_uid: dict[int, Tensor] = {}
    for node in computed:
        if node.uid in views and all(operand.definition.leaf or operand.uid in by_uid for operand in node.inputs):
            by_uid[node.uid] = node
    return by_uid
