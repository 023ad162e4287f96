"""Who hands a program to the engine, what each of them keeps off it, and where Core ML would likely put each op.

The published method is a shortest path over estimates for each op, with fixed costs for starting the engine, for
changing the device and for each result that the engine hands out (cost_model.json ``placement_model_m4``, C30; how the
costs add up along a program is our choice U51). Ops are taken in the order of the graph.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from aneforge.chips import store
from aneforge.chips.chip import Target
from aneforge.chips.evidence import Fact, fact
from aneforge.compiler.legal.findings import PlacementFinding
from aneforge.compiler.legal.query import RUNTIME_LABELS
from aneforge.compiler.legal.rules.programs import estimate_us
from aneforge.compiler.legal.translate import query_of
from aneforge.compiler.refusal import Refusal
from aneforge.compiler.storage import flow_of
from aneforge.errors import AneforgeError, ArgumentError
from aneforge.graph.graph import Graph
from aneforge.graph.node import Signature
from aneforge.graph.tensor import Tensor
from aneforge.study.answers import Operations
from aneforge.study.preflight import Preflight
from aneforge.study.regions import ENGINE, HOST, Refusals


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
    return _estimates_of(node.signature)


@lru_cache(maxsize=65536)
def _estimates_of(signature: Signature) -> tuple[float, float]:
    return estimate_us(query_of(signature))


# Who hands a program to the engine, and what each of them keeps off it although the chip could run it.


DEFAULT_RUNTIMES = ("coreml", "coreai", "direct")


@dataclass(frozen=True)
class Runtime:
    """Who hands the program to the engine."""

    name: str
    label: str
    scope: str
    """Which call is timed."""
    route: str | None = None
    """How its programs reach the chip, where that is not the usual way."""
    whole: bool = False
    """Whether one layer that it keeps off the engine takes the whole model off (C56: Core AI, to the GPU)."""
    hands_to: str = ""
    """The runtime that it hands parts of the file to, and which may keep more off the engine."""

    @property
    def names(self) -> tuple[str, ...]:
        """The runtimes whose words count; the last one hands the program to the engine."""
        return (self.name, self.hands_to) if self.hands_to else (self.name,)


SETTING = "ANEFORGE_RUNTIME"

_KNOWN = {
    "coreml": Runtime("coreml", RUNTIME_LABELS["coreml"], "coreml_call"),
    "coreai": Runtime("coreai", RUNTIME_LABELS["coreai"], "coreai_call", whole=True),
    "direct": Runtime("direct", "direct authoring", "direct_call", route="direct"),
    **{
        name: Runtime(name, RUNTIME_LABELS[name], "coreml_call", hands_to="coreml")
        for name in ("ort-coreml", "ort-coreml-mlprogram")
    },
}
_OF_SCOPE = {"coreml_call": "coreml", "app_call": "coreml", "coreai_call": "coreai"}


def runtimes_of(names: str | Iterable[str]) -> list[Runtime]:
    """Runtimes by name, as on the command line, of those whose programs weights are chosen for."""
    listed = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    if not listed:
        raise ArgumentError("runtimes", f"the list is empty; choose from: {', '.join(DEFAULT_RUNTIMES)}.")
    return [_named(name, "runtimes", DEFAULT_RUNTIMES) for name in dict.fromkeys(listed)]


def runtime_called(name: str) -> Runtime:
    """A runtime by its name."""
    return _named(name, "runtime", _KNOWN)


def _named(name: str, argument: str, known: Iterable[str]) -> Runtime:
    if name not in known:
        raise ArgumentError(argument, f"{name!r} is not a runtime; choose from: {', '.join(known)}.")
    return _KNOWN[name]


def asked_runtime(name: str | None, graph: Graph) -> Runtime | None:
    """The runtime that a question is about: the one that is named, that of the setting, or the one that reads the
    model's file as it is; None where it is about the engine alone."""
    asked = name if name is not None else os.environ.get(SETTING, "")
    if not asked:
        own = "" if graph.file is None else graph.file.runtime
        return _KNOWN[own] if own else None
    try:
        runtime = runtime_called(asked)
    except ArgumentError as error:
        if name is not None:
            raise
        raise AneforgeError(f"{SETTING}: {str(error).partition(': ')[2]}") from None
    if runtime.hands_to and (graph.file is None or runtime.name not in graph.file.providers.taken):
        raise ArgumentError("runtime", f"{runtime.name} reads ONNX files, and the model is none. Give an .onnx file.")
    return runtime


def runtime_of_scope(scope: str) -> Runtime:
    """The runtime whose call a scope is; Core ML where it is none's: a call of a program that was compiled here."""
    return replace(_KNOWN[_OF_SCOPE.get(scope, "coreml")], scope=scope)


def is_call_of(scope: str, runtime: Runtime) -> bool:
    """Whether a scope is a call of a runtime, so that what the runtime keeps off the engine is not on it."""
    return scope == runtime.scope and (scope in _OF_SCOPE or runtime.route is not None)


def kept_off(report: Preflight, operations: Operations, runtime: Runtime) -> Refusals:
    """The nodes that a runtime keeps off the engine though the chip could run them, each with the reason."""
    away: Refusals = {}
    for entry in report.placement:
        findings = tuple(one for one in entry.findings if not set(runtime.names).isdisjoint(one.runtimes))
        if findings and entry.name in operations.by_name:
            away[operations.by_name[entry.name]] = Refusal(
                entry.name, findings[0].rule, findings[0].message, findings=findings
            )
    return away


_CUT_OUT = ("fp32-program",)
"""Rules whose ops leave the engine alone: around softmaxes in fp32, 13 regions of granite stayed on an M4's."""


def leaves_whole(away: Refusals, runtime: Runtime) -> bool:
    """Whether a model leaves the engine whole, by what a runtime keeps off it."""
    return runtime.whole and any(refusal.rule not in _CUT_OUT for refusal in away.values())


_OF_PROVIDER = Fact("stays on the CPU", ("ORT",), "decoded", "what ONNX Runtime's Core ML provider takes")
_KEEPS_FP32 = "OG15"


def declined(graph: Graph, names: Mapping[int, str], runtime: Runtime) -> dict[str, PlacementFinding]:
    """The nodes that a runtime does not hand on, by name, each with the reason; none of a runtime that takes all."""
    if not runtime.hands_to or graph.file is None:
        return {}
    providers = graph.file.providers
    computed = ((node, providers.declined(node.origins, runtime.name)) for node in graph.nodes if node.origins)
    return {names[node.uid]: _declined(node.op, runtime, why) for node, why in computed if why}


def _declined(op: str, runtime: Runtime, why: str) -> PlacementFinding:
    hint = "hand Core ML the whole model: 'aneforge export MODEL -o FILE.mlpackage'"
    if _KEEPS_FP32 in why:
        hint = "write the ONNX file in float16, or use ModelFormat=NeuralNetwork, which computes in float16"
    return PlacementFinding(
        "ort-provider", f"{op} stays off the engine: {why}.", _OF_PROVIDER, hint, (runtime.name,), "frontend",
        effect="off-engine",
    )  # fmt: skip


def unknown_time(graph: Graph, target: Target, runtime: Runtime) -> str:
    """Why nobody knows the time of a call, where that is so; empty elsewhere."""
    palettes = any(
        weight.encoded is not None and weight.encoded.form == "palette" for weight in graph.weights.values()
    )
    if not palettes or not expands_palettes(target, runtime):
        return ""
    return f"{runtime.label} was seen to expand palettes in every call there, 2 to 10 times slower than fp16 (C55)"


def expands_palettes(target: Target, runtime: Runtime) -> bool:
    """Whether a runtime was seen to expand palettes in every call, where the engine itself would stream them (C55)."""
    return flow_of(target, "lut4").streams and not flow_of(target, "lut4", runtime=runtime.names[-1]).streams
