"""Regions of a graph: groups of nodes on one device that can run in one go, in an order that respects every edge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from aneforge.graph.graph import Graph
from aneforge.graph.node import DTYPES, remade
from aneforge.graph.ops.leaf import cast
from aneforge.graph.ops.leaf import input as graph_input
from aneforge.graph.tensor import Tensor
from aneforge.graph.traits import GraphTrait

ENGINE, HOST = "engine", "host"


@dataclass(frozen=True, eq=False)
class Region:
    """Nodes that run in one go on one device; ``inputs`` come from outside, ``outputs`` are read outside."""

    number: int
    device: str
    nodes: tuple[Tensor, ...]
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]

    def graph(self, names: Mapping[int, str]) -> Graph:
        """The region as a graph of its own, under the names of the whole. What other regions hand in are inputs of
        fp16; truth values travel as 0 and 1."""
        copies: dict[int, Tensor] = {source.uid: _port(source, names[source.uid]) for source in self.inputs}
        cast_outputs = {output.uid for output in self.outputs if output.dtype == "bool"}
        for node in self.nodes:
            operands = [copies.get(operand.uid, operand) for operand in node.inputs]
            name = None if node.uid in cast_outputs else names[node.uid]  # the cast that hands it out has its name
            copies[node.uid] = remade(node, operands, name)
        return Graph([_handed_on(copies[output.uid], names[output.uid]) for output in self.outputs])

    def to_json(self, names: Mapping[int, str]) -> dict[str, Any]:
        return {
            "region": self.number,
            "device": self.device,
            "nodes": [names[node.uid] for node in self.nodes],
            "inputs": [names[port.uid] for port in self.inputs],
            "outputs": [names[output.uid] for output in self.outputs],
        }


def _port(source: Tensor, name: str) -> Tensor:
    """What a region reads in place of a tensor that another one makes; inputs of the model stay what they are."""
    if source.definition.leaf:
        return source
    port = graph_input(source.shape, "int32" if source.dtype == "int32" else "fp16", name=name)
    return port.greater(0.5) if source.dtype == "bool" else port


def _handed_on(node: Tensor, name: str) -> Tensor:
    handed = cast(node) if node.dtype == "bool" else node
    return handed if handed.name == name else handed.named(name)


@dataclass(frozen=True, eq=False)
class Crossing:
    """One tensor that one region makes and another reads."""

    tensor: Tensor
    name: str
    source: Region
    readers: tuple[Region, ...]

    @property
    def bytes(self) -> int:
        return prod(self.tensor.shape) * DTYPES[self.tensor.dtype]

    def to_json(self) -> dict[str, Any]:
        return {
            "tensor": self.name,
            "shape": list(self.tensor.shape),
            "type": self.tensor.dtype,
            "bytes": self.bytes,
            "from": self.source.number,
            "to": [region.number for region in self.readers],
        }


def split(graph: Graph, device_of: Mapping[int, str]) -> list[Region]:
    """Regions in the order they run. A node's level is how often the device changes on the way to it at most; nodes of
    one level and device are a region, so no region waits for itself."""
    computed = [node for node in graph.nodes if node.uid in device_of]
    devices = set(device_of.values())
    if len(devices) == 1:
        return [region_of(graph, computed, devices.pop())] if computed else []
    levels = _as_late_as_possible(computed, device_of, _as_early_as_possible(computed, device_of))
    members: dict[tuple[int, str], list[Tensor]] = {}
    for node in computed:
        members.setdefault((levels[node.uid], device_of[node.uid]), []).append(node)
    home = {node.uid: key for key, nodes in members.items() for node in nodes}
    read_outside = {output.uid for output in graph.outputs}
    for node in computed:
        read_outside |= {operand.uid for operand in node.inputs if home.get(operand.uid) != home[node.uid]}
    regions = []
    for number, key in enumerate(sorted(members)):
        nodes = members[key]
        inputs = {
            operand.uid: operand
            for node in nodes
            for operand in node.inputs
            if home.get(operand.uid) != key and not _is_inside(operand)
        }
        outputs = tuple(node for node in nodes if node.uid in read_outside)
        regions.append(Region(number, key[1], tuple(nodes), tuple(inputs.values()), outputs))
    return regions


def _is_inside(node: Tensor) -> bool:
    """Whether a leaf is part of what reads it, so that no port brings it in."""
    return node.op == "const" or (node.definition.leaf and node.is_a(GraphTrait.DRAWN))


def region_of(graph: Graph, nodes: Sequence[Tensor], device: str, number: int = 0) -> Region:
    """Some nodes of a graph as a region: what they read from outside, and what is read outside."""
    inside = {node.uid for node in nodes}
    read_outside = {output.uid for output in graph.outputs}
    for node in graph.nodes:
        if node.inputs and node.uid not in inside:
            read_outside |= {operand.uid for operand in node.inputs}
    inputs = {
        operand.uid: operand
        for node in nodes
        for operand in node.inputs
        if operand.uid not in inside and not _is_inside(operand)
    }
    outputs = tuple(node for node in nodes if node.uid in read_outside)
    return Region(number, device, tuple(nodes), tuple(inputs.values()), outputs)


def _as_early_as_possible(computed: Sequence[Tensor], device_of: Mapping[int, str]) -> dict[int, int]:
    levels: dict[int, int] = {}
    for node in computed:
        device = device_of[node.uid]
        before = [
            levels[operand.uid] + (device_of[operand.uid] != device)
            for operand in node.inputs
            if operand.uid in levels
        ]
        levels[node.uid] = max(before, default=0)
    return levels


def _as_late_as_possible(
    computed: Sequence[Tensor], device_of: Mapping[int, str], early: Mapping[int, int]
) -> dict[int, int]:
    """Nodes that only a later region reads join it, and results that nobody reads join the last one of their device:
    fewer regions, fewer crossings."""
    last: dict[str, int] = dict.fromkeys((ENGINE, HOST), 0)
    for node in computed:
        last[device_of[node.uid]] = max(last[device_of[node.uid]], early[node.uid])
    levels: dict[int, int] = {}
    latest: dict[int, int] = {}
    for node in reversed(computed):
        device = device_of[node.uid]
        levels[node.uid] = latest.get(node.uid, last[device])
        for operand in node.inputs:
            if operand.uid in device_of:
                bound = levels[node.uid] - (device_of[operand.uid] != device)
                latest[operand.uid] = min(latest.get(operand.uid, bound), bound)
    return levels


def crossings(regions: Sequence[Region], names: Mapping[int, str]) -> list[Crossing]:
    """Every tensor that leaves the region that made it for another."""
    readers: dict[int, list[Region]] = {}
    for region in regions:
        for port in region.inputs:
            readers.setdefault(port.uid, []).append(region)
    return [
        Crossing(output, names[output.uid], region, tuple(readers[output.uid]))
        for region in regions
        for output in region.outputs
        if output.uid in readers
    ]
