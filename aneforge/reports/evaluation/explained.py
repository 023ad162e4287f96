"""Which layer is behind a difference: the sample where two runs are farthest apart, node by node."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from aneforge.graph.graph import Graph
from aneforge.graph.reference import value_of
from aneforge.reports.evaluation.data import LabelledSample
from aneforge.reports.evaluation.result import Explained
from aneforge.sim.compare import Tally
from aneforge.study.partition import Partition
from aneforge.study.runner import RegionValues, Runner, value_order


def explain_pair(
    names: tuple[str, str],
    splits: tuple[Partition, Partition],
    runners: tuple[Runner, Runner],
    sample: LabelledSample,
    number: int,
) -> Explained | None:
    """The node of the second run, in its order, from which on it differs from the first as its outputs do."""
    runs = [runner.run(sample.feeds, trace=True) for runner in runners]
    base, own = (RegionValues(split, run) for split, run in zip(splits, runs, strict=True))
    return _first(names, splits[1], base, own, number)


def explain_against_float(
    name: str, split: Partition, runner: Runner, graph: Graph, sample: LabelledSample, number: int
) -> Explained | None:
    """The same against what the graph means, computed node by node in float64."""
    names = graph.names()
    values: dict[int, np.ndarray] = {}
    for node in graph.nodes:
        fed = sample.feeds.get(names[node.uid]) if node.op == "input" else None
        value = value_of(node, [values[operand.uid] for operand in node.inputs]) if fed is None else np.asarray(fed)
        values[node.uid] = value
    with np.errstate(over="ignore"):
        base = {names[uid]: value.astype(np.float16) for uid, value in values.items() if value.dtype.kind in "fbiu"}
    own = RegionValues(split, runner.run(sample.feeds, trace=True))
    return _first((name, "float64"), split, base, own, number)


def _first(
    names: tuple[str, str],
    split: Partition,
    base: Mapping[str, np.ndarray],
    own: Mapping[str, np.ndarray],
    number: int,
) -> Explained | None:
    relative: dict[str, float] = {}
    changed = ""
    for node in value_order(split):
        if node in base and node in own and base[node].shape == own[node].shape:
            tally = Tally()
            tally.add(base[node], own[node])
            relative[node] = float("inf") if tally.lost else tally.relative
            changed = changed or (node if tally.changed else "")
    if not changed:
        return None
    last = next(reversed(relative.values()))
    grown = (name for name, size in relative.items() if size > 0 and size >= last / 2)
    node = next(grown, changed)
    return Explained(names[0], names[1], number, node, relative[node], changed)
