"""What is true of a model now: the same facts that a baseline holds, with the reasons and lines behind them."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from aneforge.baseline.inputs import array_hash, given_inputs, shape_text
from aneforge.baseline.record import (
    CHECKS,
    Apart,
    Baseline,
    EstimateRecord,
    InputRecord,
    ModelRecord,
    OutputRecord,
    ProgramRecord,
    Refusal,
    TargetRecord,
    VerdictRecord,
)
from aneforge.compiler.compile import Compiled, compile_all
from aneforge.compiler.program import Program
from aneforge.compiler.refusal import CompileError
from aneforge.errors import AneforgeError
from aneforge.gate.preflight import Preflight, preflight_all
from aneforge.graph.graph import Graph
from aneforge.graph.tensor import Tensor
from aneforge.output.progress import Progress
from aneforge.sim.inputs import drawn_sample
from aneforge.targets.names import chip_label
from aneforge.targets.names import target as find_target

if TYPE_CHECKING:
    from aneforge.cost.estimate import Estimate

__all__ = ["STATUS_RANK", "Named", "NodeReason", "Observed", "Plan", "observe"]

Array = np.ndarray
SCOPE = "coreml_call"
SAMPLE = 64
# Gravest last; what is rejected and what is too large both have no program.
STATUS_RANK = {"native": 0, "decompose": 1, "risk": 2, "oversize": 3, "reject": 3}


@dataclass(frozen=True)
class Named:
    """How a model was asked for."""

    name: str = "model"
    dims: tuple[str, ...] = ()
    function: str | None = None


@dataclass(frozen=True)
class Plan:
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
    out: Tensor | Sequence[Tensor] | Graph,
    targets: Sequence[str],
    plan: Plan | None = None,
    named: Named | None = None,
    progress: Progress | None = None,
) -> Observed:
    """Check, compile, simulate and estimate a model for every target; ``progress`` hears each step."""
    graph, plan, named, say = Graph.of(out), plan or Plan(), named or Named(), progress or _silent
    unknown = [check for check in plan.checks if check not in CHECKS]
    if unknown:
        raise AneforgeError(f"{unknown[0]}: not a check; choose from: {', '.join(CHECKS)}.")
    chosen = list(dict.fromkeys(find_target(name).name for name in targets))
    if not chosen:
        raise AneforgeError("target: a baseline needs at least one chip. Name one, for instance m1.")
    say(0, 0, f"compiling for {len(chosen)} targets")
    reports = preflight_all(graph, chosen)
    compiled = compile_all(graph, chosen)
    reasons: dict[tuple[str, str], NodeReason] = {}
    verdicts = {name: _verdict(reports[name], compiled.refused.get(name), reasons) for name in chosen}
    arrays: dict[str, Array] = {}
    outputs: dict[str, dict[str, Array]] = {}
    not_run: dict[str, str] = {}
    if "numerics" in plan.checks and len(compiled):
        arrays = drawn_sample(graph, plan.seed) if plan.feeds is None else given_inputs(graph, plan.feeds)
        outputs = _simulated(graph, compiled, arrays, not_run, say)
    against = _against(plan.against, outputs)
    records = {
        name: TargetRecord(
            verdicts[name],
            _program(compiled[name]) if name in compiled and "program" in plan.checks else None,
            _numerics(outputs[name], outputs.get(against or "") if name != against else None)
            if name in outputs
            else None,
            _estimate(compiled[name]) if name in compiled and "estimate" in plan.checks else None,
        )
        for name in chosen
    }
    baseline = Baseline(
        aneforge=_version(),
        model=ModelRecord(named.name, named.dims, named.function, *_hashes(graph)),
        checks=tuple(check for check in CHECKS if check in plan.checks),
        seed=plan.seed if plan.feeds is None else None,
        inputs={name: InputRecord(shape_text(array.shape), array_hash(array)) for name, array in arrays.items()},
        against=against,
        scope=SCOPE,
        programs=tuple(map(tuple, compiled.groups())) if "program" in plan.checks else (),
        targets=records,
    )
    names = graph.names()
    places = {names[node.uid]: node.where for node in graph.nodes}
    refusals = {name: str(error) for name, error in compiled.refused.items()}
    return Observed(baseline, places, reasons, refusals, not_run)


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


def _verdict(
    report: Preflight, refused: CompileError | None, reasons: dict[tuple[str, str], NodeReason]
) -> VerdictRecord:
    nodes: dict[str, str] = {}
    for status in ("decompose", "risk", "oversize", "reject"):  # a node may be in two lists: the gravest stays
        for node_report in getattr(report, status):
            rules = ", ".join(dict.fromkeys(finding.rule for finding in node_report.findings))
            nodes[node_report.name] = f"{status} {rules}".strip()
            reasons[report.target.name, node_report.name] = NodeReason(node_report.message, node_report.hint)
    native = {node_report.name for node_report in report.native} - set(nodes)
    return VerdictRecord(refused is None, _refusal(refused, nodes), len(native), nodes)


def _refusal(error: CompileError | None, nodes: Mapping[str, str]) -> Refusal | None:
    """Without line numbers, which move with every edit."""
    if error is None:
        return None
    judged = [nodes[name] for name in error.sources if _first_rule(nodes.get(name, "")) == error.rule]
    why = judged[0] if judged else error.reject or re.sub(r" at [^\s:]+:\d+", "", error.reason)
    return Refusal(error.refused_by, error.sources, why)


def _first_rule(verdict: str) -> str:
    """``oversize conv-kernel-width, extent`` names the rule that decides first."""
    return verdict.partition(" ")[2].partition(",")[0]


def _program(program: Program) -> ProgramRecord:
    stats = program.stats
    return ProgramRecord(stats["segments"], stats["task_groups"], stats["layers"], stats["kernel_bytes"])


def _estimate(program: Program) -> EstimateRecord:
    from aneforge.cost.estimate import estimate_program

    estimate: Estimate = estimate_program(program, SCOPE)
    return EstimateRecord(round(estimate.us, 3), *(round(end, 3) for end in estimate.interval))


def _simulated(
    graph: Graph, compiled: Compiled, feeds: Mapping[str, Array], not_run: dict[str, str], say: Progress
) -> dict[str, dict[str, Array]]:
    """Outputs by target. A program that cannot be simulated takes nothing from the others."""
    from aneforge.model import Model

    outputs = {}
    for number, (name, program) in enumerate(compiled.items()):
        say(number, len(compiled), f"simulating {chip_label(name)}")
        try:
            done = Model(graph, program).run(feeds).outputs
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
