"""Where a model runs: ``af.partition``, and the compute plan of a model as a Mac would likely report it.

The devices of a plan are those of the published placement (a cheapest way through the operations,
:mod:`aneforge.study.placement`, U51), and so are the costs: one estimate for each operation on the device it is placed
on. The GPU is not modelled.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite

from aneforge.chips.names import DEFAULT, chip_label, one_chip, with_label
from aneforge.formats.arguments import Chips, Source
from aneforge.study.partition import Partition, Partitions
from aneforge.study.placement import op_estimates
from aneforge.study.plan_files import CPU, ENGINE, ComputePlan, PlannedOp
from aneforge.study.regions import ENGINE as ON_ENGINE
from aneforge.study.regions import sentence
from aneforge.study.study import Study

_NOTE = "Predicted by the published placement model; costs are its estimates for single operations. GPU: not modelled."


def partition(
    model: Source,
    target: Chips = None,
    by: str | None = None,
    *,
    os: str | None = None,
    runtime: str | None = None,
    dims: Mapping[str, int] | None = None,
    function: str | None = None,
) -> Partitions:
    """Split a model into regions of the engine and regions of the host, for each chip.

    ``target`` is the default chips where it is left out, or the chip of a compiled model. ``by`` is ``rules``
    (everything that the engine can take goes there), ``runtime`` (without what the runtime keeps off) or ``placement``
    (what Core ML would likely choose); left out, it is ``runtime`` where a runtime is asked about or reads the file as
    it is, else ``rules``. An op that a region's own limits exclude moves to the host with its reason. For
    one chip the attributes of its :class:`Partition` can be read from the result: ``af.partition(model,
    "m1").regions``.

    ``os`` is the version of the system and ``runtime`` who runs the model, as for :class:`Study`.

    >>> import aneforge as af
    >>> out = af.topk(af.input((1, 64)).relu(), 5)
    >>> [region.device for region in af.partition(out, "m1").regions]
    ['engine', 'host']
    """
    study = Study(model, target, os=os, runtime=runtime, dims=dims, function=function)
    return Partitions(study.judged() if by is None else study.partitions(by))


def compute_plan(
    model: Source,
    target: str | None = None,
    *,
    dims: Mapping[str, int] | None = None,
    function: str | None = None,
) -> ComputePlan:
    """Predict the compute plan of a model on one chip: the device of each operation, why, and its part of the cost.

    ``target`` is the first default chip where it is left out.
    """
    name = one_chip(target or DEFAULT)
    (split,) = Study(model, name, dims=dims, function=function).judged().values()
    return plan_of_partition(split, name)


def plan_of_partition(split: Partition, name: str) -> ComputePlan:
    """The plan of a model that was split by the rules."""
    counted = split.cut.operations.counted
    away = {**split.refusals, **split.kept_off}
    allowed = {node.uid: node.uid not in away for node in counted}
    devices = split.likely_devices
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
            why = with_label(sentence(away[node.uid]), split.target, label)
        elif on_engine:
            why = f"engine {_digits(engine)}, CPU {_digits(host)} us"
        else:
            why = "not worth starting the engine for"
        known = isfinite(cost) and whole > 0 and node.op != "host"
        supported = (CPU, ENGINE) if allowed[node.uid] else (CPU,)
        kind = str(node.attrs["kind"]) if node.op == "host" else node.op
        weight = float(f"{cost / whole:.4g}") if known else None
        rows.append(PlannedOp(split.names[node.uid], kind, ENGINE if on_engine else CPU, supported, weight, why=why))
    says = f"{split.says[0].upper()}{split.says[1:]}."
    return ComputePlan(tuple(rows), label, predicted=True, notes=(says, _NOTE))


def _digits(us: float) -> str:
    """Three digits, never a power of ten."""
    return f"{float(f'{us:.3g}'):,.12g}"
