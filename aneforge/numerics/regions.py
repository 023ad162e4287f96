"""A model that is only in part on the engine: each region of the engine as a graph, with what is known of its inputs.

What the host hands over is bounded where it only picks or moves numbers, as an embedding does: by the numbers of its
table. Of everything else that crosses between regions nothing is known but that it is an fp16 number, unless data show
more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from aneforge.graph.graph import Graph
from aneforge.graph.tensor import Tensor
from aneforge.graph.views import hands_on
from aneforge.numerics.ranges import Ranges, known_values
from aneforge.regions.partition import Partition
from aneforge.regions.split import ENGINE, HOST, Region
from aneforge.sim.half import LARGEST

__all__ = ["behind", "region_graphs"]

_MOST = 1 << 26  # numbers of a table that is looked through
Ends = tuple[float, float]


def region_graphs(split: Partition, ranges: Ranges) -> Iterator[tuple[Region, Graph, dict[str, Any]]]:
    """Every engine region with its graph and the ranges of its inputs and nodes, by name."""
    given = {name: (value.low, value.high) for name, value in known_values(split.graph, ranges).items()}
    handed = _handed_on(split)
    for region in split.regions:
        if region.device != ENGINE:
            continue
        graph = split.graph_of(region.number)
        known = set(graph.names().values())
        by_name: dict[str, Any] = {name: ends for name, ends in given.items() if name in known}
        for port in region.inputs:
            name = split.names[port.uid]
            if name in known:
                by_name.setdefault(name, handed.get(port.uid, (-LARGEST, LARGEST)))
        yield region, graph, by_name


def _handed_on(split: Partition) -> dict[int, Ends]:
    """Between which numbers the results of the host lie that it only picked or moved, and their operands."""
    ends: dict[int, Ends] = {}
    on_host = [node for region in split.regions if region.device == HOST for node in region.nodes]
    for node in on_host:
        if not hands_on(node):
            continue
        read = [_ends(operand, ends) for operand in node.inputs if operand.dtype == "fp16"]
        bounds = [bound for bound in read if bound is not None]
        if bounds and len(bounds) == len(read):
            ends[node.uid] = min(low for low, _ in bounds), max(high for _, high in bounds)
    return ends


def _ends(operand: Tensor, known: Mapping[int, Ends]) -> Ends | None:
    if operand.weight is None or operand.weight.encoded is not None or operand.weight.size > _MOST:
        return known.get(operand.uid)
    array = np.asarray(operand.weight.array)
    return (float(array.min()), float(array.max())) if np.isfinite(array).all() else None


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
