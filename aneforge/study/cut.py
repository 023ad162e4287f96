"""A graph cut into regions: the same cut for all chips that leave the same ops to the host, with its programs."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from aneforge.compiler.program import Program
from aneforge.graph.graph import Graph
from aneforge.study.answers import Answers, Shelf
from aneforge.study.split import ENGINE, Crossing, Region, crossings, split
from aneforge.targets.chip import Target


class Cut:
    """Regions in the order they run, and what crosses between them."""

    def __init__(self, answers: Answers, shelf: Shelf, device_of: Mapping[int, str], route: str | None = None) -> None:
        self._answers, self.shelf = answers, shelf
        self.graph, self.names, self.operations = shelf.graph, shelf.names, shelf.operations
        self.device_of, self.route = dict(device_of), route
        self.targets: dict[str, Target] = {}
        """The chips that have this cut; they are compiled together."""

    @cached_property
    def regions(self) -> list[Region]:
        return split(self.graph, self.device_of)

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
        return not self.operations.port_views and all(device == ENGINE for device in self.device_of.values())

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
