"""What becomes of a model with stored weights by each way to the engine: what stays on the engine, and its time.

The rules that ``aneforge check`` asks say which layers a runtime keeps off the engine. The times are those of
``aneforge estimate``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from aneforge.compiler.legal.query import RUNTIMES
from aneforge.compiler.refusal import Refusal
from aneforge.errors import ArgumentError
from aneforge.gate.preflight import OpReport, preflights
from aneforge.graph.graph import Graph
from aneforge.regions.cut import Operations
from aneforge.regions.partition import Partition, partitions_for, split_for
from aneforge.targets.chip import Target
from aneforge.targets.families import Family
from aneforge.tuning.pricing import figure
from aneforge.tuning.records import Figure
from aneforge.tuning.stored_forms import expands_palettes

__all__ = ["DEFAULT_RUNTIMES", "Placement", "Runtime", "kept_off_anywhere", "placement", "runtimes_of"]

DEFAULT_RUNTIMES = ("coreml", "coreai", "direct")


@dataclass(frozen=True)
class Runtime:
    """Who hands the program to the engine."""

    name: str
    label: str
    route: str
    """How the program reaches the chip."""
    scope: str
    """Which call is timed."""
    whole: bool = False
    """Whether one layer that it keeps off the engine takes the whole model off (C56: Core AI, to the GPU)."""


_KNOWN = {
    "coreml": Runtime("coreml", RUNTIMES["coreml"], "conversion", "coreml_call"),
    "coreai": Runtime("coreai", RUNTIMES["coreai"], "conversion", "coreai_call", whole=True),
    "direct": Runtime("direct", "direct", "direct", "direct_call"),
}


def runtimes_of(names: str | Iterable[str]) -> list[Runtime]:
    listed = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    wrong = [name for name in listed if name not in _KNOWN]
    if wrong or not listed:
        what = f"{wrong[0]!r} is not a runtime" if wrong else "the list is empty"
        raise ArgumentError("runtimes", f"{what}; choose from: {', '.join(_KNOWN)}.")
    return [_KNOWN[name] for name in dict.fromkeys(listed)]


@dataclass(frozen=True)
class Placement:
    """One graph by one runtime on one chip."""

    on_engine: int
    ops: int
    figure: Figure | None
    """The time of a call; None where nobody knows it."""
    why: str = ""
    """Why something is not on the engine, or why the time is not known."""
    source: str = ""
    """The rule or conflict behind ``why``."""

    @property
    def us(self) -> float | None:
        return None if self.figure is None else self.figure.us

    def to_json(self) -> dict[str, Any]:
        time = None if self.figure is None else self.figure.to_json()
        return {**self.__dict__, "figure": time}


def placement(
    graph: Graph, chip: Target, runtime: Runtime, palettes: bool = False, fp16: Placement | None = None
) -> Placement:
    """Where a graph runs by a runtime and how long it takes.

    ``palettes`` says that weights of it are palettes, ``fp16`` is where the model runs with fp16 weights.
    """
    split = partitions_for(graph, {chip.name: chip}, route=runtime.route)[chip.name]
    away = _kept_off(graph, chip, runtime)
    if away:
        first = next(iter(away.values()))
        why, rule = f"{first.message} {first.evidence.label()}", first.rule
        if runtime.whole:
            return _on_gpu(split, why, rule, runtime)
        refusals = {**split.refusals}
        operations = Operations(graph)
        for name, report in away.items():
            uid = operations.by_name.get(name)
            if uid is not None:
                refusals[uid] = Refusal(name, report.rule, report.message, findings=report.findings)
        split = split_for(operations, [chip], {chip.name: refusals}, route=runtime.route)[chip.name]
        return Placement(split.on_engine, split.ops, figure(split.estimate(runtime.scope)), why, rule)
    if palettes and expands_palettes(chip, runtime.scope):
        why = f"{runtime.label} was seen to expand palettes in every call there, 2 to 10 times slower than fp16 (C55)"
        return Placement(split.on_engine, split.ops, None, why, "C55")
    why, rule = _first_reason(split)
    if runtime.whole and fp16 is not None and split.on_engine < fp16.on_engine:
        return _on_gpu(split, why, rule, runtime)
    return Placement(split.on_engine, split.ops, figure(split.estimate(runtime.scope)), why, rule)


def _on_gpu(split: Partition, why: str, rule: str, runtime: Runtime) -> Placement:
    """The whole model beside the engine, where nothing is known of its time (U119)."""
    return Placement(0, split.ops, None, f"{why} {runtime.label} then gives the whole model to the GPU.", rule)


def _first_reason(split: Partition) -> tuple[str, str]:
    for uid, why in split.reasons.items():
        return f"{split.names[uid]}: {why}", split.refusals[uid].rule
    return "", ""


def _kept_off(graph: Graph, chip: Target, runtime: Runtime) -> dict[str, OpReport]:
    """The nodes that a runtime keeps off the engine though the chip could run them, by name."""
    if chip.family5 in (None, Family.OLDER):  # the rules know nothing of chips below their floor
        return {}
    report = preflights(graph, {chip.name: chip}, runtime.route)[chip.name]
    return {
        risk.name: risk
        for risk in report.risk
        if any(finding.effect == "cpu" and runtime.name in finding.runtimes for finding in risk.findings)
    }


def kept_off_anywhere(graph: Graph, chip: Target) -> str:
    """What is published of runtimes that keep a layer of the graph off the engine, whichever was asked about."""
    for runtime in _KNOWN.values():
        for report in _kept_off(graph, chip, runtime).values():
            return f"{report.message} {report.evidence.label()}"
    return ""
