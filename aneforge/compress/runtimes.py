"""What becomes of a model with stored weights by each way to the engine: what stays on the engine, and its time.

The rules that ``aneforge check`` asks say which layers a runtime keeps off the engine. The times are those of
``aneforge estimate``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from aneforge.compiler.legal.query import RUNTIMES
from aneforge.compiler.refusal import Refusal
from aneforge.errors import ArgumentError
from aneforge.gate.preflight import OpReport, preflights
from aneforge.graph.graph import Graph
from aneforge.regions.cut import Operations
from aneforge.regions.partition import Partition, partitions_for, split_for
from aneforge.regions.reasons import Refusals
from aneforge.targets.chip import Target
from aneforge.targets.families import Family
from aneforge.tuning.pricing import figure
from aneforge.tuning.records import Figure
from aneforge.tuning.stored_forms import expands_palettes

__all__ = [
    "DEFAULT_RUNTIMES",
    "Placement",
    "Runtime",
    "kept_off_anywhere",
    "placement",
    "placements",
    "runtime_of_scope",
    "runtimes_of",
]

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


def runtime_of_scope(scope: str) -> Runtime:
    """The way to the engine whose call a scope is; Core ML's where it is only part of a call."""
    known = next((runtime for runtime in _KNOWN.values() if runtime.scope == scope), None)
    return known or replace(_KNOWN["coreml"], scope=scope)


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
    splits = partitions_for(graph, {chip.name: chip}, route=runtime.route)
    return placements(graph, splits, runtime, palettes, {} if fp16 is None else {chip.name: fp16})[chip.name]


def placements(
    graph: Graph,
    splits: Mapping[str, Partition],
    runtime: Runtime,
    palettes: bool = False,
    fp16: Mapping[str, Placement] | None = None,
) -> dict[str, Placement]:
    """The same for several chips: ``splits`` are the partitions of the graph by the runtime's route."""
    away = _kept_off(graph, {name: split.target for name, split in splits.items()}, runtime)
    without = {} if runtime.whole else _without(graph, splits, away, runtime)
    placed = {}
    for name, split in splits.items():
        if away.get(name):
            first = next(iter(away[name].values()))
            why, rule = f"{first.message} {first.evidence.label()}", first.rule
            placed[name] = (
                _on_gpu(split, why, rule, runtime) if runtime.whole else _timed(without[name], runtime, why, rule)
            )
        elif palettes and expands_palettes(split.target, runtime.scope):
            seen = f"{runtime.label} was seen to expand palettes in every call there"
            why = f"{seen}, 2 to 10 times slower than fp16 (C55)"
            placed[name] = Placement(split.on_engine, split.ops, None, why, "C55")
        else:
            why, rule = _first_reason(split)
            before = (fp16 or {}).get(name)
            fewer = runtime.whole and before is not None and split.on_engine < before.on_engine
            placed[name] = _on_gpu(split, why, rule, runtime) if fewer else _timed(split, runtime, why, rule)
    return placed


def _timed(split: Partition, runtime: Runtime, why: str, rule: str) -> Placement:
    return Placement(split.on_engine, split.ops, figure(split.estimate(runtime.scope)), why, rule)


def _without(
    graph: Graph, splits: Mapping[str, Partition], away: Mapping[str, Mapping[str, OpReport]], runtime: Runtime
) -> dict[str, Partition]:
    """The partitions with what the runtime keeps off on the host, for the chips where it does."""
    operations = Operations(graph)
    targets: dict[str, Target] = {}
    refused: dict[str, Refusals] = {}
    for name, reports in away.items():
        split = splits[name]
        kept_off = {
            operations.by_name[node]: Refusal(node, report.rule, report.message, findings=report.findings)
            for node, report in reports.items()
            if node in operations.by_name
        }
        if kept_off:
            targets[split.target.name] = split.target
            refused[split.target.name] = {**split.refusals, **kept_off}
    partitions = split_for(operations, list(targets.values()), refused, route=runtime.route)
    return {
        name: partitions.get(splits[name].target.name, splits[name]).of_product(splits[name].target) for name in away
    }


def _on_gpu(split: Partition, why: str, rule: str, runtime: Runtime) -> Placement:
    """The whole model beside the engine, where nothing is known of its time (U119)."""
    return Placement(0, split.ops, None, f"{why} {runtime.label} then gives the whole model to the GPU.", rule)


def _first_reason(split: Partition) -> tuple[str, str]:
    for uid, why in split.reasons.items():
        return f"{split.names[uid]}: {why}", split.refusals[uid].rule
    return "", ""


def _kept_off(graph: Graph, chips: Mapping[str, Target], runtime: Runtime) -> dict[str, dict[str, OpReport]]:
    """The nodes that a runtime keeps off the engine though the chip could run them, by chip and name. The rules know
    nothing of chips below their floor."""
    known = {name: chip for name, chip in chips.items() if chip.family5 not in (None, Family.OLDER)}
    reports = preflights(graph, known, runtime.route) if known else {}
    return {
        name: {
            risk.name: risk
            for risk in report.risk
            if any(finding.effect == "cpu" and runtime.name in finding.runtimes for finding in risk.findings)
        }
        for name, report in reports.items()
    }


def kept_off_anywhere(graph: Graph, chip: Target) -> str:
    """What is published of runtimes that keep a layer of the graph off the engine, whichever was asked about."""
    for runtime in _KNOWN.values():
        for reports in _kept_off(graph, {chip.name: chip}, runtime).values():
            for report in reports.values():
                return f"{report.message} {report.evidence.label()}"
    return ""
