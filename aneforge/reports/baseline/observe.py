"""What is true of a model now: the same facts that a baseline holds, with the reasons and lines behind them."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from aneforge.chips.names import chip_label
from aneforge.chips.names import target as find_target
from aneforge.errors import AneforgeError
from aneforge.formats.arguments import Source
from aneforge.graph.graph import Graph
from aneforge.progress import Progress
from aneforge.reports.baseline.file import (
    CHECKS,
    Apart,
    Baseline,
    BaselineRefusal,
    EstimateRecord,
    InputRecord,
    ModelRecord,
    OutputRecord,
    ProgramRecord,
    TargetRecord,
    VerdictRecord,
    array_hash,
    given_inputs,
    shape_text,
)
from aneforge.sim.inputs import drawn_sample
from aneforge.study.partition import Partition
from aneforge.study.preflight import Preflight
from aneforge.study.study import Study

if TYPE_CHECKING:
    from aneforge.cost.estimate import Estimate

Array = np.ndarray
SAMPLE = 64
# Gravest last; what is rejected and what is too large both have no program.
STATUS_RANK = {"native": 0, "decompose": 1, "placement": 2, "risk": 3, "unknown": 3, "oversize": 4, "reject": 4}


@dataclass(frozen=True)
class Named:
    """How a model was asked for."""

    name: str = "model"
    dims: tuple[str, ...] = ()
    function: str | None = None


@dataclass(frozen=True)
class ObservationPlan:
    """What is looked at: which checks, on which inputs (a seed, or arrays by name), compared with which chip."""

    checks: Sequence[str] = CHECKS
    seed: int = 0
    feeds: Mapping[str, Array] | None = None
    against: str | None = None
    """The chip that others are compared with; the first one that has a program if none is named."""


@dataclass(frozen=True)
class NodeReason:
    """Why a node has its status on a chip, and what to do."""

    message: str
    hint: str


@dataclass(frozen=True)
class Observed:
    """The facts, and what stands behind them: lines of nodes, reasons by target and node, and full refusals."""

    baseline: Baseline
    places: dict[str, tuple[str, int] | None] = field(default_factory=dict)
    reasons: dict[tuple[str, str], NodeReason] = field(default_factory=dict)
    refusals: dict[str, str] = field(default_factory=dict)
    not_run: dict[str, str] = field(default_factory=dict)
    """Why a program was not simulated, by target."""


def observe(
    model: Source,
    targets: Sequence[str],
    plan: ObservationPlan | None = None,
    named: Named | None = None,
    progress: Progress | None = None,
) -> Observed:
    """Check, compile, simulate and estimate a model for every target; ``progress`` hears each step."""
    plan, named, say = plan or ObservationPlan(), named or Named(), progress or _silent
    unknown = [check for check in plan.checks if check not in CHECKS]
    if unknown:
        raise AneforgeError(f"{unknown[0]}: not a check; choose from: {', '.join(CHECKS)}.")
    chosen = list(dict.fromkeys(find_target(name).name for name in targets))
    if not chosen:
        raise AneforgeError("target: a baseline needs at least one chip. Name one, for instance m1.")
    say(0, 0, f"compiling for {len(chosen)} targets")
    study = Study(model, chosen)
    splits, reports = study.judged(), study.preflights()
    running = {name: split for name, split in splits.items() if split.runs}
    reasons: dict[tuple[str, str], NodeReason] = {}
    verdicts = {name: _verdict(splits[name], reports[name], reasons) for name in chosen}
    arrays: dict[str, Array] = {}
    outputs: dict[str, dict[str, Array]] = {}
    not_run: dict[str, str] = {}
    if "numerics" in plan.checks and running:
        graph = study.graph
        arrays = drawn_sample(graph, plan.seed) if plan.feeds is None else given_inputs(graph, plan.feeds)
        outputs = _simulated(running, arrays, not_run, say)
    against = _against(plan.against, outputs)
    estimates = study.estimates()[0] if "estimate" in plan.checks else {}
    records = {
        name: TargetRecord(
            verdicts[name],
            _program(running[name]) if name in running and "program" in plan.checks else None,
            _numerics(outputs[name], outputs.get(against or "") if name != against else None)
            if name in outputs
            else None,
            _estimate(estimates[name]) if name in estimates else None,
        )
        for name in chosen
    }
    baseline = Baseline(
        aneforge=_version(),
        model=ModelRecord(named.name, named.dims, named.function, *_hashes(study.graph)),
        checks=tuple(check for check in CHECKS if check in plan.checks),
        seed=plan.seed if plan.feeds is None else None,
        inputs={name: InputRecord(shape_text(array.shape), array_hash(array)) for name, array in arrays.items()},
        against=against,
        scope=study.scope,
        programs=_groups(running) if "program" in plan.checks else (),
        targets=records,
    )
    places = {study.names[node.uid]: node.where for node in study.graph.nodes}
    refusals = {name: str(split.nothing_runs()) for name, split in splits.items() if not split.runs}
    return Observed(baseline, places, reasons, refusals, not_run)


def _groups(running: Mapping[str, Partition]) -> tuple[tuple[str, ...], ...]:
    """Targets with equal programs, in the order of the targets."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for name, split in running.items():
        alike.setdefault(tuple(program.fingerprint for program in split.programs.values()), []).append(name)
    return tuple(map(tuple, alike.values()))


def _silent(done: int, total: int, what: str) -> None:
    pass


def _version() -> str:
    from aneforge.version import __version__

    return __version__


def _hashes(graph: Graph) -> tuple[str, str]:
    """The content of a model in two parts: nodes with their shapes, names and settings; and weights in order."""
    document = graph.to_json(weights=False)
    weights = [record.pop("weight", None) for record in document["nodes"]]
    return _hash(document), _hash(weights)


def _hash(value: object) -> str:
    text = json.dumps(value, sort_keys=True, default=str)
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


def _verdict(split: Partition, report: Preflight, reasons: dict[tuple[str, str], NodeReason]) -> VerdictRecord:
    nodes: dict[str, str] = {}
    for status in STATUS_RANK:  # a node may be in two lists: the gravest stays
        for node_report in report.of(status) if status != "native" else ():
            rules = ", ".join(dict.fromkeys(finding.rule for finding in node_report.findings))
            nodes[node_report.name] = f"{status} {rules}".strip()
            reasons[report.target.name, node_report.name] = NodeReason(node_report.message, node_report.hint)
    native = {node_report.name for node_report in report.native} - set(nodes)
    return VerdictRecord(
        split.outcome.words, split.on_engine, split.placed, _refusal(split, nodes), len(native), nodes
    )


def _refusal(split: Partition, nodes: Mapping[str, str]) -> BaselineRefusal | None:
    """Without line numbers, which move with every edit."""
    first = next((split.refusals[uid] for uid in split.reasons), None)
    if first is None:
        return None
    why = nodes.get(first.node) or first.reject or re.sub(r" at [^\s:]+:\d+", "", first.reason)
    return BaselineRefusal(first.rule, first.sources or (first.node,), why)


def _program(split: Partition) -> ProgramRecord:
    """All programs of a model together: one, or those of its regions."""
    stats = [program.stats for program in split.programs.values()]
    return ProgramRecord(
        *(sum(stat[key] for stat in stats) for key in ("segments", "task_groups", "layers", "kernel_bytes"))
    )


def _estimate(estimate: Estimate) -> EstimateRecord:
    return EstimateRecord(round(estimate.us, 3), *(round(end, 3) for end in estimate.interval))


def _simulated(
    running: Mapping[str, Partition], feeds: Mapping[str, Array], not_run: dict[str, str], say: Progress
) -> dict[str, dict[str, Array]]:
    """Outputs by target. A program that cannot be simulated takes nothing from the others."""
    outputs = {}
    for number, (name, split) in enumerate(running.items()):
        say(number, len(running), f"simulating {chip_label(name)}")
        try:
            done = split.run(feeds)
        except AneforgeError as error:
            not_run[name] = f"{chip_label(name)}: not simulated: {error}"
        else:
            outputs[name] = {port: _half(value) for port, value in done.items()}
    return outputs


def _half(value: Array) -> Array:
    """Results as fp16; truth values are 0 and 1."""
    return np.ascontiguousarray(value.astype(np.float16, copy=False))


def _against(reference: str | None, outputs: Mapping[str, object]) -> str | None:
    if reference is not None:
        return reference if reference in outputs else None
    return next(iter(outputs), None)


def _numerics(outputs: Mapping[str, Array], base: Mapping[str, Array] | None) -> dict[str, OutputRecord]:
    return {name: _output(value, None if base is None else base.get(name)) for name, value in outputs.items()}


def _output(value: Array, base: Array | None) -> OutputRecord:
    from aneforge.sim.compare import steps_apart

    finite = value[np.isfinite(value)].astype(np.float64)
    apart = None
    if base is not None and base.shape == value.shape:
        steps = steps_apart(base, value)
        changed = int((base.view(np.uint16) != value.view(np.uint16)).sum())
        apart = Apart(int(steps.max(initial=0)), changed)
    return OutputRecord(
        shape=shape_text(value.shape),
        bits=array_hash(value),
        elements=value.size,
        finite=finite.size,
        max_abs=_short(np.abs(finite).max()) if finite.size else None,
        # fp16 numbers are whole multiples of 2^-24: float64 adds them without rounding, in any order.
        mean=_short(finite.mean()) if finite.size else None,
        sample=_sample(value),
        apart=apart,
    )


def _short(value: float) -> float:
    return float(f"{float(value):.6g}")


def _sample(value: Array) -> str:
    flat = value.reshape(-1)
    places = np.unique(np.linspace(0, max(flat.size - 1, 0), min(SAMPLE, flat.size)).astype(np.int64))
    return flat[places].astype("<f2").tobytes().hex()
