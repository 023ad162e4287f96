"""``af.partition``: a graph split into regions of the engine and regions of the host, which can be run."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np

from aneforge.arguments import Chips, Source, chips_of, graph_of
from aneforge.compiler.refusal import CompileError
from aneforge.defaults import DEFAULT_CHIPS
from aneforge.errors import AneforgeError, ArgumentError
from aneforge.gate.preflight import preflight
from aneforge.graph.graph import Graph
from aneforge.graph.reference import value_of
from aneforge.graph.tensor import Tensor
from aneforge.model import Model, build
from aneforge.output.by_chip import ByChip
from aneforge.ports import check_bytes
from aneforge.regions.placement import fixed_costs, likely
from aneforge.regions.split import ENGINE, HOST, Crossing, Region, crossings, split
from aneforge.targets.chip import Target

__all__ = ["WAYS", "Partition", "partition", "partition_for"]

WAYS = {
    "rules": "every op that the rules allow is on the engine",
    "placement": "what Core ML's own placement would likely choose among those",
}
_ATTEMPTS = 16  # ops that a compile refuses move to the host, this often


class Partition:
    """One graph on one chip: ``regions`` in the order they run, ``reasons`` why a node is not on the engine.

    ``eligible`` counts the ops that the rules allow there, ``placed`` those that Core ML would likely put there.
    """

    def __init__(self, graph: Graph, target: Target, by: str, reasons: dict[int, str]) -> None:
        self.graph, self.target, self.by, self.reasons = graph, target, by, reasons
        self.names = graph.names()
        computed = [node for node in graph.nodes if not node.definition.leaf]
        eligible = {node.uid: node.uid not in reasons for node in computed}
        by_rules = {uid: ENGINE if able else HOST for uid, able in eligible.items()}
        by_placement = likely(graph, eligible)
        self.eligible = sum(eligible.values())
        self.placed = sum(device == ENGINE for device in by_placement.values())
        self.device_of = by_rules if by == "rules" else by_placement
        self.regions = split(graph, self.device_of)
        self.crossings: list[Crossing] = crossings(self.regions, self.names)

    @property
    def whole(self) -> bool:
        """Whether everything runs on the engine in one go."""
        return [region.device for region in self.regions] == [ENGINE]

    def graph_of(self, number: int) -> Graph:
        """One region as a graph of its own, to compile or to export; what crosses into it are its inputs."""
        if not 0 <= number < len(self.regions):
            raise AneforgeError(
                f"region {number}: there are {len(self.regions)} regions. Choose 0 to {len(self.regions) - 1}."
            )
        return self.regions[number].graph(self.names)

    @cached_property
    def models(self) -> dict[int, Model]:
        """The compiled engine regions, by number."""
        compiled = {}
        for region in self.regions:
            if region.device == ENGINE:
                compiled[region.number] = build(self.graph_of(region.number), self.target)
        return compiled

    # Costs.

    @cached_property
    def fixed_us(self) -> float:
        """What starting the engine, changing devices and handing results out cost, by the published constants."""
        costs, _ = fixed_costs()
        engine = [region for region in self.regions if region.device == ENGINE]
        changes = sum(a.device != b.device for a, b in zip(self.regions, self.regions[1:], strict=False))
        handed_out = sum(len(region.outputs) for region in engine)
        return len(engine) * costs["launch"] + changes * costs["switch"] + handed_out * costs["output"]

    # Running.

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The outputs by name: engine regions are simulated, host regions computed in float32."""
        values: dict[int, np.ndarray] = {}
        ports = {self.names[port.uid]: port for port in self.graph.inputs}
        for name, value in feeds.items():
            if name not in ports:
                raise AneforgeError(f"{name}: not an input of the graph. Choose from: {', '.join(ports)}.")
            if ports[name].dtype == "uint8":
                check_bytes(name, value)
            values[ports[name].uid] = np.asarray(value)
        missing = [name for name, port in ports.items() if port.uid not in values]
        if missing:
            raise AneforgeError(f"{missing[0]}: this input has no value. The graph takes {', '.join(ports)}.")
        for region in self.regions:
            if region.device == HOST:
                _run_on_host(region, values)
            else:
                self._run_on_engine(region, values)
        return {self.names[output.uid]: values[output.uid] for output in self.graph.outputs}

    def _run_on_engine(self, region: Region, values: dict[int, np.ndarray]) -> None:
        model = self.models[region.number]
        fed = {self.names[port.uid]: values[port.uid] for port in region.inputs if port.op != "parameter"}
        done = model.run(fed).outputs
        for output in region.outputs:
            value = done[self.names[output.uid]]
            values[output.uid] = value > 0.5 if output.dtype == "bool" else value

    # Telling.

    def to_json(self) -> dict[str, Any]:
        costs, evidence = fixed_costs()
        return {
            "target": self.target.name,
            "by": self.by,
            "eligible": self.eligible,
            "placed": self.placed,
            "ops": len(self.device_of),
            "on_engine": sum(device == ENGINE for device in self.device_of.values()),
            "regions": [region.to_json(self.names) for region in self.regions],
            "crossings": [crossing.to_json() for crossing in self.crossings],
            "reasons": {self.names[uid]: why for uid, why in self.reasons.items()},
            "fixed_us": self.fixed_us,
            "constants_us": costs,
            "evidence": evidence.to_json(),
        }

    def __str__(self) -> str:
        from aneforge.regions.listing import partition_text

        return partition_text(self)

    def __repr__(self) -> str:
        return f"<Partition for {self.target.name}: {len(self.regions)} regions, {len(self.crossings)} crossings>"


def partition(
    model: Source,
    target: Chips = None,
    by: str = "rules",
    *,
    dims: Mapping[str, int] | None = None,
    function: str | None = None,
) -> ByChip[Partition]:
    """Split a model into regions of the engine and regions of the host, for each chip.

    ``target`` is m1 where it is left out, or the chip of a compiled model. ``by`` is ``rules`` (everything that is
    eligible goes to the engine) or ``placement`` (what Core ML would likely choose). Engine regions are compiled; an
    op that the compiler refuses although the rules allow it moves to the host with its reason. For one chip the
    attributes of its :class:`Partition` can be read from the result: ``af.partition(model, "m1").regions``.
    """
    if by not in WAYS:
        raise ArgumentError("by", f"{by!r} is not a way to partition; choose one: {', '.join(WAYS)}.")
    graph = graph_of(model, dims, function)
    chips = chips_of(target, DEFAULT_CHIPS["partition"], model)
    return ByChip({name: partition_for(graph, chip, by) for name, chip in chips.items()})


def partition_for(graph: Graph, chip: Target, by: str = "rules") -> Partition:
    """The split of a graph for one chip."""
    reasons, refused = _refusals(graph, chip), {}
    for _ in range(_ATTEMPTS):
        reasons |= refused
        attempt = Partition(graph, chip, by, reasons)
        refused = _refused_when_compiled(attempt)
        if not refused:
            return attempt
    raise ArgumentError(
        "model",
        f"no partition for {chip.name} after {_ATTEMPTS} attempts; the last was refused: "
        f"{next(iter(refused.values()))}",
    )


def _refusals(graph: Graph, chip: Target) -> dict[int, str]:
    """Why nodes are off the engine, by the gate's rules."""
    report = preflight(graph, chip)
    by_name = {name: uid for uid, name in graph.names().items()}
    reasons: dict[int, str] = {}
    for node_report in (*report.reject, *report.oversize):
        reasons.setdefault(by_name[node_report.name], f"{node_report.message} {node_report.evidence.label()}")
    for node in graph.nodes:
        if "int32" in (node.dtype, *(operand.dtype for operand in node.inputs)) and not node.definition.leaf:
            reasons.setdefault(node.uid, "the engine computes no integers")
    return reasons


def _refused_when_compiled(attempt: Partition) -> dict[int, str]:
    try:
        _ = attempt.models
    except CompileError as error:
        by_name = {name: uid for uid, name in attempt.names.items()}
        blamed = [by_name[name] for name in error.sources if name in by_name]
        on_engine = [uid for uid in blamed if attempt.device_of.get(uid) == ENGINE]
        if not on_engine:
            raise
        return {on_engine[-1]: f"{error.reason} (refused by {error.refused_by})"}
    return {}


def _run_on_host(region: Region, values: dict[int, np.ndarray]) -> None:
    """Node by node, every result rounded to float32."""
    for node in region.nodes:
        operands = [_operand(operand, values) for operand in node.inputs]
        result = value_of(node, operands)
        values[node.uid] = result if node.dtype in ("bool", "int32") else result.astype(np.float32)


def _operand(operand: Tensor, values: Mapping[int, np.ndarray]) -> np.ndarray:
    value = values.get(operand.uid, None if operand.weight is None else operand.weight.array)
    return np.asarray(value, bool if operand.dtype == "bool" else np.float64)
