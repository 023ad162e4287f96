"""Parts of a model as graphs of their own: for a price with weights that stand in, or with the model's own weights."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aneforge.advice.split.structure import ModelStructure
from aneforge.advice.stored import stand_in_sites
from aneforge.compiler.storage import Storage, encodable_layers
from aneforge.graph.forms import Site, applied
from aneforge.graph.graph import Graph
from aneforge.graph.node import make
from aneforge.graph.ops.leaf import CONST
from aneforge.graph.tensor import Tensor
from aneforge.graph.traits import GraphTrait
from aneforge.graph.weights import known_weight
from aneforge.study.regions import ENGINE, region_of

_LARGE = 1 << 12
"""Numbers from which a stored kernel gets a stand-in."""


def piece_of(structure: ModelStructure, nodes: Sequence[Tensor]) -> Graph:
    """Some operations as a graph: what they read from others are inputs, what others read are outputs, under the names
    of the whole. States of the model whose new value they work out stay states."""
    graph, names = structure.graph, structure.names
    region = region_of(graph, nodes, ENGINE)
    inside, outputs = {names[port.uid] for port in region.inputs}, {names[node.uid] for node in region.outputs}
    states = {old: new for old, new in graph.states.items() if old in inside and new in outputs}
    return Graph(region.graph(names).outputs, states, graph.route)


def with_stand_ins(graph: Graph, storage: Storage | None = None) -> Graph:
    """The graph with other weights of the same shapes and form: times and verdicts depend on those, and nothing of
    the model's own is read. ``storage`` is the form of weights that the model has in fp16."""
    if storage is not None:
        sites = stand_in_sites(storage, encodable_layers(graph).values())
        graph = applied(graph, sites) if sites else graph
    kernels = [site for node in graph.nodes if (site := _stand_in(node)) is not None]
    return applied(graph, kernels) if kernels else graph


def _stand_in(node: Tensor) -> Site | None:
    if not node.is_a(GraphTrait.STORED_KERNEL) or len(node.inputs) < 2 or node.inputs[0].op == "const":
        return None
    x, kernel, *rest = node.inputs
    weight = kernel.weight
    if kernel.op != "const" or weight is None or weight.encoded is not None or kernel.size < _LARGE:
        return None

    def build(x: Tensor) -> Tensor:
        return make(node.definition, [x, stand_in_kernel(kernel.shape), *rest], node.attrs)

    return Site(node, (x,), build)


def stand_in_kernel(shape: tuple[int, ...]) -> Tensor:
    """A constant of a shape that takes no memory."""
    repeated = np.broadcast_to(np.float16(0.01), shape)
    return make(CONST, weight=known_weight(f"stand-in {shape}", repeated), placed=False)
