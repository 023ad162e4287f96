"""Regions of a graph: groups of nodes on one device that can run in one go, in an order that respects every edge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from aneforge.graph.graph import Graph
from aneforge.graph.node import DTYPES, make
from aneforge.graph.ops.leaf import cast
from aneforge.graph.ops.leaf import input as graph_input
from aneforge.graph.tensor import Tensor

__all__ = ["ENGINE", "HOST", "Crossing", "Region", "crossings", "split"]

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
        """The region as a graph of its own. What comes in are inputs of fp16; truth values travel as 0 and 1."""
        made: dict[int, Tensor] = {}
        for each in self.inputs:
            if each.op == "input":
                made[each.uid] = each
            else:
                port = graph_input(each.shape, name=names[each.uid])
                made[each.uid] = port.greater(0.5) if each.dtype == "bool" else port
        cast_outputs = {each.uid for each in self.outputs if each.dtype == "bool"}
        for node in self.nodes:
            operands = [made.get(operand.uid, operand) for operand in node.inputs]
            name = None if node.uid in cast_outputs else node.name  # the cast that hands it out has its name
            made[node.uid] = make(node.definition, operands, node.attrs, name=name, weight=node.weight)
        return Graph([_handed_on(made[each.uid], names[each.uid]) for each in self.outputs])

    def to_json(self, names: Mapping[int, str]) -> dict[str, Any]:
        return {
            "region": self.number,
            "device": self.device,
            "nodes": [names[each.uid] for each in self.nodes],
            "inputs": [names[each.uid] for each in self.inputs],
            "outputs": [names[each.uid] for each in self.outputs],
        }


def _handed_on(node: Tensor, name: str) -> Tensor:
    held = cast(node) if node.dtype == "bool" else node
    return held if held.name == name else held.named(name)


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
            "to": [each.number for each in self.readers],
        }


def split(graph: Graph, device_of: Mapping[int, str]) -> list[Region]:
    """Regions in the order they run. A node's level is how often the device changes on the way to it at most; nodes of
    one level and device are a region, so no region waits for itself."""
    computed = [node for node in graph.nodes if node.uid in device_of]
    levels = _as_late_as_possible(computed, device_of, _as_early_as_possible(computed, device_of))
    members: dict[tuple[int, str], list[Tensor]] = {}
    for node in computed:
        members.setdefault((levels[node.uid], device_of[node.uid]), []).append(node)
    home = {node.uid: key for key, nodes in members.items() for node in nodes}
    read_outside = {each.uid for each in graph.outputs}
    for node in computed:
        read_outside |= {each.uid for each in node.inputs if home.get(each.uid) != home[node.uid]}
    regions = []
    for number, key in enumerate(sorted(members)):
        nodes = members[key]
        inputs = {
            each.uid: each
            for node in nodes
            for each in node.inputs
            if home.get(each.uid) != key and each.op != "const"
        }
        outputs = tuple(node for node in nodes if node.uid in read_outside)
        regions.append(Region(number, key[1], tuple(nodes), tuple(inputs.values()), outputs))
    return regions


def _as_early_as_possible(computed: Sequence[Tensor], device_of: Mapping[int, str]) -> dict[int, int]:
    levels: dict[int, int] = {}
    for node in computed:
        device = device_of[node.uid]
        before = [levels[each.uid] + (device_of[each.uid] != device) for each in node.inputs if each.uid in levels]
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
        for each in node.inputs:
            if each.uid in device_of:
                bound = levels[node.uid] - (device_of[each.uid] != device)
                latest[each.uid] = min(latest.get(each.uid, bound), bound)
    return levels


def crossings(regions: Sequence[Region], names: Mapping[int, str]) -> list[Crossing]:
    """Every tensor that leaves the region that made it for another."""
    found = []
    for region in regions:
        for each in region.outputs:
            readers = tuple(other for other in regions if any(each is port for port in other.inputs))
            if readers:
                found.append(Crossing(each, names[each.uid], region, readers))
    return found
