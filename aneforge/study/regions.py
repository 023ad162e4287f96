"""Regions of a graph: groups of nodes on one device that can run in one go, in an order that respects every edge."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

from aneforge.chips.chip import Target
from aneforge.compiler.program import Program
from aneforge.compiler.refusal import Refusal
from aneforge.graph.graph import Graph
from aneforge.graph.node import DTYPES, remade
from aneforge.graph.ops.leaf import cast
from aneforge.graph.ops.leaf import input as graph_input
from aneforge.graph.tensor import Tensor
from aneforge.graph.traits import GraphTrait
from aneforge.graph.views import moves_only
from aneforge.study.answers import Answers, Operations, Shelf

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


def split(graph: Graph, device_of: Mapping[int, str], starts: Collection[int] = ()) -> list[Region]:
    """Regions in the order they run. A node's level is how often the device changes on the way to it at most, or one
    of the nodes that ``starts`` a program is passed; nodes of one level and device are a region, so no region waits
    for itself."""
    computed = [node for node in graph.nodes if node.uid in device_of]
    devices = set(device_of.values())
    if len(devices) == 1 and not starts:
        return [region_of(graph, computed, devices.pop())] if computed else []
    levels = _as_late_as_possible(computed, device_of, starts, _as_early_as_possible(computed, device_of, starts))
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


def _as_early_as_possible(
    computed: Sequence[Tensor], device_of: Mapping[int, str], starts: Collection[int]
) -> dict[int, int]:
    levels: dict[int, int] = {}
    for node in computed:
        device, is_start = device_of[node.uid], node.uid in starts
        before = [
            levels[operand.uid] + (is_start or device_of[operand.uid] != device)
            for operand in node.inputs
            if operand.uid in levels
        ]
        levels[node.uid] = max(before, default=0)
    return levels


def _as_late_as_possible(
    computed: Sequence[Tensor], device_of: Mapping[int, str], starts: Collection[int], early: Mapping[int, int]
) -> dict[int, int]:
    """Nodes that only a later region reads join it, and results that nobody reads join the last one of their device:
    fewer regions, fewer crossings."""
    last: dict[str, int] = dict.fromkeys((ENGINE, HOST), 0)
    for node in computed:
        last[device_of[node.uid]] = max(last[device_of[node.uid]], early[node.uid])
    levels: dict[int, int] = {}
    latest: dict[int, int] = {}
    for node in reversed(computed):
        device, is_start = device_of[node.uid], node.uid in starts
        levels[node.uid] = latest.get(node.uid, last[device])
        for operand in node.inputs:
            if operand.uid in device_of:
                bound = levels[node.uid] - (is_start or device_of[operand.uid] != device)
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


# A graph cut into regions: the same cut for all chips that leave the same ops to the host, with its programs.


class Cut:
    """Regions in the order they run, and what crosses between them."""

    def __init__(
        self,
        answers: Answers,
        shelf: Shelf,
        device_of: Mapping[int, str],
        route: str | None = None,
        starts: frozenset[int] = frozenset(),
    ) -> None:
        self.starts = starts
        """The nodes with which a further program begins, because the one before would be too large."""
        self._answers, self.shelf = answers, shelf
        self.graph, self.names, self.operations = shelf.graph, shelf.names, shelf.operations
        self.device_of, self.route = dict(device_of), route
        self.targets: dict[str, Target] = {}
        """The chips that have this cut; they are compiled together."""

    @cached_property
    def regions(self) -> list[Region]:
        return split(self.graph, self.device_of, self.starts)

    @cached_property
    def crossings(self) -> list[Crossing]:
        return crossings(self.regions, self.names)

    @property
    def whole(self) -> bool:
        """Whether everything runs on the engine in one go."""
        return len(self.regions) < 2 and all(region.device == ENGINE for region in self.regions)

    @cached_property
    def untouched(self) -> bool:
        """Whether the only region is the graph as it was given, with its own ports."""
        views = self.operations.port_views or self.starts
        return not views and all(device == ENGINE for device in self.device_of.values())

    @property
    def on_engine(self) -> tuple[Region, ...]:
        return tuple(region for region in self.regions if region.device == ENGINE)

    def graph_of(self, region: Region) -> Graph:
        """One region as a graph; the model's own graph where that is the only region. Cuts that have a region in
        common share its graph, and with it all that is known of it."""
        if self.untouched:
            return self.graph
        border = (*(port.uid for port in region.inputs), None, *(output.uid for output in region.outputs))
        key = "region", tuple(node.uid for node in region.nodes), border
        return self.shelf.once(key, lambda: region.graph(self.names))

    def shelf_of(self, region: Region) -> Shelf:
        """What is known of a region's graph."""
        return self._answers.about(self.graph_of(region))

    def programs(self, target: Target) -> Mapping[int, Program]:
        """The compiled engine regions of one chip, by number. All chips of the cut are compiled at the first call."""
        members = list(self.targets.values())
        if self.untouched:  # also a model without operations, which has a program and no region
            return {0: self.shelf.program(target, self.route, members)}
        return {region.number: self.shelf_of(region).program(target, self.route, members) for region in self.on_engine}


# Why ops of a model are not on the engine: what the compiler's own phases refuse, of the whole and of each region.


Refusals = dict[int, Refusal]
"""By the node that is refused."""

IDLE = "moves-only"
_IDLE_REASON = "it only moves numbers between ops of the host, which is not worth a start of the engine"
_FEW_REASON = "it computes few numbers between ops of the host, which is not worth a start of the engine"
_FEW = 1 << 14  # numbers that a region computes: microseconds on the host, and a start of the engine takes more


def sentence(refusal: Refusal) -> str:
    """One refusal in words, with its evidence, without the node."""
    if not refusal.findings:
        return refusal.reason
    words = " ".join(f"{finding.message.rstrip('.')}." for finding in refusal.findings)
    return f"{words} {refusal.findings[0].evidence.label()}"


def refused_nodes(operations: Operations, refusals: Mapping[str, Refusal], chip: str) -> Refusals:
    """Refusals by node, with the chip's name filled in."""
    named = {operations.by_name[name]: refusal for name, refusal in refusals.items() if name in operations.by_name}
    return {uid: refusal.on(chip) for uid, refusal in named.items()}


def refused_in_regions(cut: Cut, targets: Sequence[Target], whole_regions: bool) -> dict[str, Refusals]:
    """Everything that the chips refuse of the engine regions of a cut. A region that is refused for a reason that no
    node of it bears is refused whole, as is every refused one where ``whole_regions`` says so."""
    refused: dict[str, Refusals] = {target.name: {} for target in targets}
    for region in cut.on_engine:
        for name, refusals in cut.shelf_of(region).refusals(targets, cut.route).items():
            if not refusals:
                continue
            blamed = {
                uid: refusal
                for uid, refusal in refused_nodes(cut.operations, refusals, name).items()
                if cut.device_of.get(uid) == ENGINE
            }
            if whole_regions or not blamed:
                first = next(iter(refusals.values())).on(name)
                blamed = {node.uid: first.of(cut.names[node.uid]) for node in region.nodes} | blamed
            refused[name] |= blamed
    return refused


def idle_regions(cut: Cut) -> Refusals:
    """The nodes of engine regions that compute no numbers, or few of them from truth values of the host and for the
    host alone, as masks of token ids are."""
    if len(cut.regions) < 2:
        return {}
    made_by = {crossing.tensor.uid: crossing.source for crossing in cut.crossings}
    read_by = {crossing.tensor.uid: crossing.readers for crossing in cut.crossings}
    handed_out = {output.uid for output in cut.graph.outputs}

    def is_for_host(region: Region) -> bool:
        from_host = all(
            port.dtype != "fp16" and port.uid in made_by and made_by[port.uid].device != ENGINE
            for port in region.inputs
        )
        return from_host and all(
            output.uid not in handed_out and all(reader.device != ENGINE for reader in read_by.get(output.uid, ()))
            for output in region.outputs
        )

    return {
        node.uid: Refusal(cut.names[node.uid], IDLE, reason)
        for region in cut.on_engine
        if (reason := _why_idle(region, is_for_host)) is not None
        for node in region.nodes
    }


def _multiplies(node: Tensor) -> bool:
    return node.is_a(GraphTrait.PRODUCT) or node.op == "sdpa"


def _why_idle(region: Region, is_for_host: Callable[[Region], bool]) -> str | None:
    if all(moves_only(node) or node.dtype == "bool" for node in region.nodes):
        return _IDLE_REASON
    if sum(node.size for node in region.nodes) > _FEW or any(_multiplies(node) for node in region.nodes):
        return None
    return _FEW_REASON if is_for_host(region) else None
