"""A model that is only in part on the engine: each region of the engine as a graph, with what is known of its inputs.

What the host hands over is bounded where it only picks or moves numbers, as an embedding does: by the numbers of its
table. Of everything else that crosses between regions nothing is known but that it is an fp16 number, unless data show
more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from aneforge.graph.graph import Graph
from aneforge.numerics.promises import handed_on
from aneforge.numerics.values import OPEN, Value
from aneforge.study.partition import Partition
from aneforge.study.ranges import Ranges, known_values
from aneforge.study.split import ENGINE, HOST, Region


def region_graphs(split: Partition, ranges: Ranges) -> Iterator[tuple[Region, Graph, dict[str, Value]]]:
    """Every engine region with its graph and the ranges of its inputs and nodes, by name."""
    given = known_values(split.graph, ranges)
    handed = handed_on(node for region in split.regions if region.device == HOST for node in region.nodes)
    for region in split.regions:
        if region.device != ENGINE:
            continue
        graph = split.graph_of(region.number)
        known = set(graph.names().values())
        by_name = {name: value for name, value in given.items() if name in known}
        for port in region.inputs:
            name = split.names[port.uid]
            if name in known:
                by_name.setdefault(name, handed.get(port.uid, OPEN))
        yield region, graph, by_name


def behind(split: Partition, number: int, others: Sequence[int]) -> bool:
    """Whether a region reads, directly or through further regions, what one of some others gives."""
    made_by = {output.uid: region.number for region in split.regions for output in region.outputs}
    wanted, seen, waiting = set(others), {number}, [number]
    while waiting:
        for port in split.regions[waiting.pop()].inputs:
            source = made_by.get(port.uid)
            if source is not None and source not in seen:
                if source in wanted:
                    return True
                seen.add(source)
                waiting.append(source)
    return False
