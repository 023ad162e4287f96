"""Partitions of graphs that tests build themselves."""

from __future__ import annotations

from collections.abc import Mapping

from aneforge.chips.chip import Target
from aneforge.graph.graph import Graph
from aneforge.study.partition import Partition
from aneforge.study.study import Study


def partitions_for(graph: Graph, chips: Mapping[str, Target], by: str = "rules") -> dict[str, Partition]:
    return Study.on(graph, chips).partitions(by)


def partition_for(graph: Graph, chip: Target) -> Partition:
    return Study.on(graph, {chip.name: chip}).partition()
