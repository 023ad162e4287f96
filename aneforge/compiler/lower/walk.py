"""The walk over a graph: ports, every node once, and the results by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from aneforge.anec import AnecError, Module, Op, TensorType
from aneforge.compiler.lower.builder import DTYPES, Builder, layout, rules
from aneforge.errors import AneforgeError
from aneforge.graph.graph import Graph
from aneforge.graph.node import Shape, definitions
from aneforge.graph.tensor import Tensor
from aneforge.graph.weights import Weight
from aneforge.targets.chip import Target, all_targets
from aneforge.targets.families import as_family
from aneforge.targets.names import target as find_target

__all__ = ["Lowered", "Port", "lower", "retargeted_ops"]


@dataclass(frozen=True)
class Port:
    """Where values enter or leave: the user's shape and the layout the program has it in."""

    name: str
    user_shape: Shape
    ndchw_shape: Shape
    dtype: str
    initial: Weight | None = None
    """The value a trainable parameter starts with, or what the host draws; None for an input that the user feeds."""

    def to_ndchw(self, array: np.ndarray) -> np.ndarray:
        """A value of the user's shape as the program takes it."""
        given = np.asarray(array)
        if given.shape != self.user_shape:
            raise AneforgeError(f"{self.name} has shape {list(self.user_shape)}, {list(given.shape)} was given")
        moved = given.transpose(0, 2, 1, 3, 4) if given.ndim == 5 else given
        return moved.reshape(self.ndchw_shape)

    def from_ndchw(self, array: np.ndarray) -> np.ndarray:
        """A result of the program in the user's shape."""
        given = np.asarray(array)
        if given.shape != self.ndchw_shape:
            raise AneforgeError(f"{self.name} is stored as {list(self.ndchw_shape)}, not {list(given.shape)}")
        moved = given.transpose(0, 2, 1, 3, 4) if len(self.user_shape) == 5 else given
        return moved.reshape(self.user_shape)


@dataclass
class Lowered:
    """A graph in the engine's language, and the ports that connect it with the user's shapes."""

    module: Module
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]


def retargeted_ops() -> frozenset[str]:
    """Graph ops without any form in the engine's language: retargeting replaces each of them."""
    known = rules()
    return frozenset(name for name in definitions() if not _is_port(name) and name not in known and name != "host")


def _is_port(name: str) -> bool:
    return name in ("input", "parameter", "const")


def lower(
    out: Tensor | Sequence[Tensor] | Graph,
    target: str | int | Target | None = None,
    names: Mapping[int, str] | None = None,
) -> Lowered:
    """The graph as backend ops, the user's shapes as NDCHW.

    ``target`` (a target, a chip's name or a five-tier family) adds the limits that are checked before lowering;
    without one only what holds everywhere is checked. ``names`` gives the lineage of a graph that was rewritten: the
    user's node behind each node, by uid. Ops that no engine has must be gone: retarget first.
    """
    graph = Graph.of(out)
    build = Builder(graph, _target(target), names)
    names = build.names
    known = rules()
    inputs: list[Port] = []
    for node in graph.nodes:
        name = node.signature.op.name
        build.sources = (names[node.uid],)
        if name == "const":
            continue
        if name in ("input", "parameter"):
            port = Port(names[node.uid], node.shape, layout(node.shape), DTYPES[node.dtype], node.weight)
            inputs.append(port)
            build.values[node.uid] = build.emit("live_in", (), port.ndchw_shape, {"name": port.name}, port.dtype)
            continue
        found = known.get(name)
        if found is None:
            raise build.refuse(
                node, "no engine has this op; retarget the graph first (aneforge.compiler.legal.rewrites)"
            )
        first = len(build.ops)
        build.values[node.uid] = found(build, node)
        if node.signature.op.native_layer:
            _mark_bridge(build.ops[first:])
    module, outputs = _finish(build)
    return Lowered(module, tuple(inputs), outputs)


def _mark_bridge(made: list[Op]) -> None:
    """The layer of a native node cuts a segment of its own; what only lays out its operands does not."""
    for op in reversed(made):
        if op.kind not in ("reshape", "transpose", "const_in"):
            op.labels["bridge"] = True
            return


def _finish(build: Builder) -> tuple[Module, tuple[Port, ...]]:
    build.sources = ()
    outputs: list[Port] = []
    results: list[Op] = []
    labels: set[str] = set()
    for node in build.graph.outputs:
        label = build.names[node.uid]
        while label in labels:  # one tensor may be asked for twice
            label += "_again"
        labels.add(label)
        results.append(build.value(node))
        outputs.append(Port(label, node.shape, layout(node.shape), DTYPES[node.dtype]))
    build.ops.append(Op("anec.live_out", results, None, {"names": tuple(port.name for port in outputs)}))
    module = Module(build.ops, build.weights)
    module.sweep()  # transposes that became flags
    for port, op in zip(outputs, results, strict=True):
        if op.type != TensorType(port.ndchw_shape, port.dtype):
            raise AnecError(f"{port.name} was lowered to {op.type}, not to {list(port.ndchw_shape)} {port.dtype}")
    return module, tuple(outputs)


def _target(target: str | int | Target | None) -> Target | None:
    if target is None or isinstance(target, Target):
        return target
    if isinstance(target, int):  # a five-tier family: its first target stands for it
        family = as_family(target)
        return next(each for each in all_targets(only_28=True) if each.family5 == family)
    return find_target(target)
