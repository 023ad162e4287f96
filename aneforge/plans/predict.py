"""The compute plan of a model as a Mac would likely report it.

Devices are those of the published placement (a cheapest way through the operations, ``regions/placement.py``, U51),
and so are the costs: one estimate for each operation on the device it is placed on. The GPU is not modelled.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite

from aneforge.arguments import Source, graph_of
from aneforge.defaults import DEFAULT_CHIPS
from aneforge.plans.document import CPU, ENGINE, ComputePlan, PlannedOp
from aneforge.regions.partition import Partition, partitions_for
from aneforge.regions.placement import likely, op_estimates
from aneforge.regions.split import ENGINE as ON_ENGINE
from aneforge.targets.listed import one_chip
from aneforge.targets.names import chip_label, with_label
from aneforge.targets.names import target as target_of

__all__ = ["compute_plan", "plan_of_partition"]

_NOTE = "Predicted by the published placement model; costs are its estimates for single operations. GPU: not modelled."


def compute_plan(
    model: Source,
    target: str | None = None,
    *,
    dims: Mapping[str, int] | None = None,
    function: str | None = None,
) -> ComputePlan:
    """Predict the compute plan of a model on one chip: the device of each operation, why, and its part of the cost.

    ``target`` is m1 where it is left out.
    """
    graph = graph_of(model, dims, function)
    name = one_chip(target or DEFAULT_CHIPS["plan"])
    return plan_of_partition(partitions_for(graph, {name: target_of(name)})[name], name)


def plan_of_partition(split: Partition, name: str) -> ComputePlan:
    """The plan of a model that was split by the rules."""
    counted = split.cut.operations.counted
    allowed = {node.uid: node.uid not in split.refusals for node in counted}
    devices = likely(split.graph, allowed)
    estimates = [op_estimates(node) for node in counted]
    costs = [
        engine if devices[node.uid] == ON_ENGINE else host
        for node, (engine, host) in zip(counted, estimates, strict=True)
    ]
    whole = sum(cost for cost in costs if isfinite(cost))
    label = chip_label(name)
    rows = []
    for node, (engine, host), cost in zip(counted, estimates, costs, strict=True):
        on_engine = devices[node.uid] == ON_ENGINE
        if not allowed[node.uid]:
            why = with_label(split.reasons.get(node.uid, "refused by the engine's rules"), split.target, label)
        elif on_engine:
            why = f"engine {_digits(engine)}, CPU {_digits(host)} us"
        else:
            why = "not worth starting the engine for"
        known = isfinite(cost) and whole > 0 and node.op != "host"
        supported = (CPU, ENGINE) if allowed[node.uid] else (CPU,)
        kind = str(node.attrs["kind"]) if node.op == "host" else node.op
        weight = float(f"{cost / whole:.4g}") if known else None
        rows.append(PlannedOp(split.names[node.uid], kind, ENGINE if on_engine else CPU, supported, weight, why=why))
    return ComputePlan(tuple(rows), label, predicted=True, notes=(_NOTE,))


def _digits(us: float) -> str:
    """Three digits, never a power of ten."""
    return f"{float(f'{us:.3g}'):,.12g}"
