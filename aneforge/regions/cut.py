"""A graph cut into regions: the same cut for all chips that refuse the same ops, with the programs of its regions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aneforge.compiler.compile import programs_for
from aneforge.compiler.program import Program
from aneforge.graph.graph import Graph
from aneforge.graph.tensor import Tensor
from aneforge.graph.views import is_integer_view
from aneforge.regions.split import ENGINE, Crossing, Region, crossings, split
from aneforge.targets.chip import Target

__all__ = ["Cut", "Operations"]

_COMPUTED_LEAVES = ("random_uniform", "random_normal")


class Operations:
    """The nodes of a graph that a device computes, apart from those that only look at integers in another way."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.names = graph.names()
        self.by_name = {name: uid for uid, name in self.names.items()}
        computed = [node for node in graph.nodes if not node.definition.leaf or node.op in _COMPUTED_LEAVES]
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


class Cut:
    """Regions in the order they run, and what crosses between them."""

    def __init__(self, operations: Operations, device_of: Mapping[int, str], route: str | None = None) -> None:
        self.operations, self.device_of, self.route = operations, dict(device_of), route
        self.graph, self.names = operations.graph, operations.names
        self.regions: list[Region] = split(self.graph, device_of)
        self.crossings: list[Crossing] = crossings(self.regions, self.names)
        self.targets: dict[str, Target] = {}
        """The chips that have this cut; they share the compiles."""
        self._graphs: dict[int, Graph] = {}
        self._programs: dict[str, dict[int, Program]] = {}

    @property
    def whole(self) -> bool:
        """Whether everything runs on the engine in one go."""
        return len(self.regions) < 2 and all(region.device == ENGINE for region in self.regions)

    @property
    def untouched(self) -> bool:
        """Whether the only region is the graph as it was given, with its own ports."""
        return self.whole and not self.operations.port_views

    @property
    def on_engine(self) -> tuple[Region, ...]:
        return tuple(region for region in self.regions if region.device == ENGINE)

    def graph_of(self, region: Region) -> Graph:
        """One region as a graph; the model's own graph where that is the only region."""
        if region.number not in self._graphs:
            self._graphs[region.number] = self.graph if self.untouched else region.graph(self.names)
        return self._graphs[region.number]

    def programs(self, target: Target) -> Mapping[int, Program]:
        """The compiled engine regions of one chip, by number. All chips of the cut are compiled at the first call."""
        if target.name not in self._programs:
            waiting = [chip for name, chip in self.targets.items() if name not in self._programs]
            compiled = {
                region.number: programs_for(self.graph_of(region), waiting, route=self.route)
                for region in self.on_engine
            }
            for chip in waiting:
                self._programs[chip.name] = {number: programs[chip.name] for number, programs in compiled.items()}
        return self._programs[target.name]

    def compiled_already(self, target: Target, program: Program) -> None:
        """Note the program of a chip that takes the graph as it is."""
        self.targets[target.name] = target
        self._programs[target.name] = {0: program}
