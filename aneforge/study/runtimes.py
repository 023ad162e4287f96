"""Who hands a program to the engine, and what each of them keeps off it although the chip could run it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from aneforge.codecs import flow_of
from aneforge.compiler.legal.query import RUNTIMES
from aneforge.compiler.refusal import Refusal
from aneforge.errors import ArgumentError
from aneforge.graph.graph import Graph
from aneforge.study.operations import Operations
from aneforge.study.preflight import Preflight
from aneforge.study.reasons import Refusals
from aneforge.targets.chip import Target

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


_KNOWN = {
    "coreml": Runtime("coreml", RUNTIMES["coreml"], "coreml_call"),
    "coreai": Runtime("coreai", RUNTIMES["coreai"], "coreai_call", whole=True),
    "direct": Runtime("direct", "direct authoring", "direct_call", route="direct"),
}
_OF_SCOPE = {"coreml_call": "coreml", "app_call": "coreml", "coreai_call": "coreai"}


def runtimes_of(names: str | Iterable[str]) -> list[Runtime]:
    """Runtimes by name, as on the command line."""
    listed = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    wrong = [name for name in listed if name not in _KNOWN]
    if wrong or not listed:
        what = f"{wrong[0]!r} is not a runtime" if wrong else "the list is empty"
        raise ArgumentError("runtimes", f"{what}; choose from: {', '.join(_KNOWN)}.")
    return [_KNOWN[name] for name in dict.fromkeys(listed)]


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
        findings = tuple(one for one in entry.findings if runtime.name in one.runtimes)
        if findings and entry.name in operations.by_name:
            away[operations.by_name[entry.name]] = Refusal(
                entry.name, findings[0].rule, findings[0].message, findings=findings
            )
    return away


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
    return flow_of(target, "lut4").streams and not flow_of(target, "lut4", runtime=runtime.name).streams
