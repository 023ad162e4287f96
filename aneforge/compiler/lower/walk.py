"""The walk over a graph: ports, every node once, and the results by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from aneforge.compiler.lower.builder import DTYPES, Builder, layout, rules
from aneforge.engine.ir import AnecError, Module, Op, TensorType
from aneforge.engine.lineage import Standing
from aneforge.errors import AneforgeError
from aneforge.graph.graph import Graph
from aneforge.graph.node import Shape, definitions, ops_with
from aneforge.graph.tensor import Tensor
from aneforge.graph.traits import GraphTrait
from aneforge.graph.weights import Weight


@dataclass(frozen=True)
class Port:
    """Where values enter or leave: the user's shape and the layout the program has it in."""

    name: str
    user_shape: Shape
    ndchw_shape: Shape
    dtype: str
    initial: Weight | None = None
    """The value a trainable parameter starts with, or what the host draws; None for an input that the user feeds."""
    is_state: bool = False
    """It holds a state, or what becomes of it: the value stays where it is between calls."""

    def starting(self, value: Weight | None) -> Port:
        """The same with a value to start with, where there is one."""
        return self if value is None else replace(self, initial=value)

    def to_ndchw(self, array: np.ndarray) -> np.ndarray:
        """A value of the user's shape as the program takes it."""
        value = np.asarray(array)
        if value.shape != self.user_shape:
            raise AneforgeError(
                f"{self.name}: shape {list(value.shape)} does not fit; expected {list(self.user_shape)}"
            )
        moved = value.transpose(0, 2, 1, 3, 4) if value.ndim == 5 else value
        return moved.reshape(self.ndchw_shape)

    def from_ndchw(self, array: np.ndarray) -> np.ndarray:
        """A result of the program in the user's shape."""
        value = np.asarray(array)
        if value.shape != self.ndchw_shape:
            raise AneforgeError(
                f"{self.name}: stored shape {list(value.shape)} does not fit; expected {list(self.ndchw_shape)}"
            )
        moved = value.transpose(0, 2, 1, 3, 4) if len(self.user_shape) == 5 else value
        return moved.reshape(self.user_shape)


@dataclass
class Lowered:
    """A graph in the engine's language, and the ports that connect it with the user's shapes."""

    module: Module
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]


def rewritten_ops() -> frozenset[str]:
    """Graph ops without any form in the engine's language: phase 0 replaces each of them."""
    known = rules()
    ports = ops_with(GraphTrait.PORT) | ops_with(GraphTrait.STORED)
    return frozenset(name for name in definitions() if name not in ports and name not in known and name != "host")


def lower(
    out: Tensor | Sequence[Tensor] | Graph,
    names: Mapping[int, str] | None = None,
    stands: Mapping[int, tuple[str, ...]] | None = None,
    source: Graph | None = None,
) -> Lowered:
    """The graph as backend ops, the user's shapes as NDCHW. It does not depend on a chip: the rules of phase 0 come
    before it, and phase 2 after it.

    A graph that was rewritten comes with its lineage: ``names`` gives the user's node behind each node by uid,
    ``stands`` those whose value it is where that is not just itself, ``source`` the graph as it was.
    """
    graph = Graph.of(out)
    states = (graph if source is None else source).states
    build = Builder(graph, names)
    names = build.names
    known = rules()
    inputs: list[Port] = []
    for node in graph.nodes:
        op_name = node.signature.op.name
        build.sources = (names[node.uid],)
        if op_name == "const":
            continue
        if node.is_a(GraphTrait.PORT):
            name = names[node.uid]
            port = Port(name, node.shape, layout(node.shape), DTYPES[node.dtype], node.weight, name in states)
            inputs.append(port)
            build.values[node.uid] = build.emit("live_in", (), port.ndchw_shape, {"name": port.name}, port.dtype)
            continue
        lower_node = known.get(op_name)
        if lower_node is None:
            raise build.refuse(node, "has no backend op; run phase 0, which rewrites it, first")
        first = len(build.ops)
        value = lower_node(build, node)
        # An op that takes a batch away, or adds one, works in the layout that has room for it.
        build.values[node.uid] = value if len(node.shape) != 3 else build.stored_reshape(value, layout(node.shape))
        if node.signature.op.native_layer:
            _mark_bridge(build.ops[first:])
    module, outputs = _finish(build, stands or {}, graph if source is None else source)
    return Lowered(module, tuple(inputs), outputs)


def _mark_bridge(ops: list[Op]) -> None:
    """Mark the layer of a native node, which cuts a segment of its own, unlike ops that only lay out its operands."""
    for op in reversed(ops):
        if op.kind not in ("reshape", "transpose", "const_in"):
            op.mark(bridge=True)
            return


def _finish(build: Builder, stands: Mapping[int, tuple[str, ...]], source: Graph) -> tuple[Module, tuple[Port, ...]]:
    build.sources = ()
    results = [build.value(node) for node in build.graph.outputs]
    labels, states = output_names(source, build.names), set(source.states.values())
    outputs = tuple(
        Port(label, node.shape, layout(node.shape), DTYPES[node.dtype], is_state=label in states)
        for label, node in zip(labels, build.graph.outputs, strict=True)
    )
    build.ops.append(Op("anec.live_out", results, None, {"names": labels}))
    module = Module(build.ops, build.weights)
    own = {node.uid for node in source.nodes}
    for node in build.graph.nodes:
        value = build.values.get(node.uid)
        if value is None:
            continue
        itself = (build.names[node.uid],) if node.uid in own else ()
        for name in stands.get(node.uid, itself):
            module.lineage[name] = standing = Standing(value, node.shape)
            value.stands += (standing,)
    module.lowered_to = _kinds_by_node(build.ops)
    module.losing = "part of how its reader was lowered"
    module.sweep()  # transposes that became flags
    for port, op in zip(outputs, results, strict=True):
        if op.type != TensorType(port.ndchw_shape, port.dtype):
            raise AnecError(f"{port.name}: lowered to {op.type}; expected {list(port.ndchw_shape)} {port.dtype}")
    return module, outputs


def _kinds_by_node(ops: Sequence[Op]) -> dict[str, frozenset[str]]:
    """The kinds of ops behind each node. Few sets of kinds occur, so each is stored once."""
    kinds: dict[str, frozenset[str]] = {}
    none: frozenset[str] = frozenset()
    joined: dict[tuple[frozenset[str], str], frozenset[str]] = {}
    for op in ops:
        kind = op.kind
        for name in op.sources:
            known = kinds.get(name, none)
            if kind not in known:
                key = known, kind
                if key not in joined:
                    joined[key] = known | {kind}
                kinds[name] = joined[key]
    return kinds


def output_names(graph: Graph, names: Mapping[int, str] | None = None) -> tuple[str, ...]:
    """The user's names of the outputs, made distinct where one tensor is returned twice."""
    names, labels = graph.names() if names is None else names, []
    for node in graph.outputs:
        label = names[node.uid]
        while label in labels:
            label += "_again"
        labels.append(label)
    return tuple(labels)
