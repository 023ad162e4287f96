"""Where Core ML would likely put each op, among those that the rules allow on the engine.

The published method is a shortest path over estimates for each op, with fixed costs for starting the engine, for
changing the device and for each result that the engine hands out (cost_model.json ``placement_model_m4``, C30; how the
costs add up along a program is our choice U51). Ops are taken in the order of the graph.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aneforge.compiler.legal.rules.placement import estimate_us
from aneforge.compiler.legal.translate import query_of
from aneforge.graph.graph import Graph
from aneforge.graph.tensor import Tensor
from aneforge.study.split import ENGINE, HOST
from aneforge.targets import store
from aneforge.targets.evidence import Fact, fact


def fixed_costs() -> tuple[dict[str, float], Fact[Any]]:
    """Microseconds to start the engine, to change the device, and for a result of the engine; and their evidence."""
    document = store.load("cost_model")
    model = document["placement_model_m4"]
    names = {"launch": "launch_ane_ms", "switch": "switch_ms", "output": "output_on_ane_ms"}
    costs = {name: 1000.0 * model[key] for name, key in names.items()}
    return costs, fact({**model, "v": costs}, document["evidence"], about="fixed costs of placement")


def likely(graph: Graph, eligible: Mapping[int, bool]) -> dict[int, str]:
    """A device for every node that computes: the cheapest way through the graph in order."""
    costs, _ = fixed_costs()
    handed_out = {output.uid for output in graph.outputs}
    order = [node for node in graph.nodes if node.uid in eligible]
    best = {HOST: 0.0, ENGINE: float("inf")}
    came_from: list[dict[str, str]] = []
    for node in order:
        engine, host = op_estimates(node)
        stay, start = best[ENGINE], best[HOST] + costs["launch"]
        back, on = best[ENGINE] + costs["switch"], best[HOST]
        came_from.append({ENGINE: ENGINE if stay <= start else HOST, HOST: HOST if on <= back else ENGINE})
        at_output = costs["output"] if node.uid in handed_out else 0.0
        on_engine = min(stay, start) + engine + at_output if eligible[node.uid] else float("inf")
        best = {ENGINE: on_engine, HOST: min(on, back) + host}
    device = ENGINE if best[ENGINE] < best[HOST] else HOST
    devices: dict[int, str] = {}
    for node, step in zip(reversed(order), reversed(came_from), strict=True):
        devices[node.uid] = device
        device = step[device]
    return devices


def op_estimates(node: Tensor) -> tuple[float, float]:
    """Microseconds on the engine and on the host, by the published placement: for one op, without fixed costs."""
    if node.op == "host":
        return float("inf"), 0.0  # there is nothing to choose
    return estimate_us(query_of(node.signature))
