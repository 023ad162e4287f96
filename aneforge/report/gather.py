"""Gather a report: one model on many chips, from the answers that the other parts give. Nothing is worked out here."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from aneforge.advice import Advice
from aneforge.arguments import Chips, Source, chips_of, graph_of, model_name
from aneforge.checking import GRADES, Check
from aneforge.estimates import DEFAULT_CHANGES, Estimates, estimates_of
from aneforge.gate.preflight import OpReport, Preflight, preflights
from aneforge.graph.graph import Graph
from aneforge.graph.node import located
from aneforge.graph.tensor import Tensor
from aneforge.numerics.losses import Risk
from aneforge.numerics.risk import Risks, risks_on
from aneforge.plans.document import ComputePlan
from aneforge.process import quiet_collector
from aneforge.regions.cut import Operations
from aneforge.regions.partition import Partition, partitions_for
from aneforge.report.differing import divergence_rows, one_of_each_family
from aneforge.report.document import Report
from aneforge.report.measured import overlay
from aneforge.report.programs import program_rows
from aneforge.report.rows import BOUNDS, ChangeRow, ChipRow, FindingRow, OpRow, ProgramRow, RiskRow
from aneforge.targets.names import chip_label, with_label

__all__ = ["SCOPE", "report"]

SCOPE = "coreml_call"
"""What a time covers where nobody says: a call in an app."""
_LETTERS = {"native": "n", "decompose": "d", "reject": "r", "oversize": "o", "risk": "k"}
_BOUNDS = {word: letter for letter, word in BOUNDS.items()}
_MOST_NUMERIC_CHIPS = 6
Progress = Callable[[str], None]
Measured = tuple[ComputePlan, str, str | None]
"""A plan from a Mac, the name of its file, and its chip where the file does not name it."""


def report(
    model: Source,
    target: Chips = "all",
    scope: str = SCOPE,
    changes: int = DEFAULT_CHANGES,
    max_abs: float | None = None,
    measured: Measured | None = None,
    *,
    dims: Mapping[str, int] | None = None,
    function: str | None = None,
    progress: Progress | None = None,
) -> Report:
    """Gather everything that is known of a model on chips: verdicts and reasons, programs, times, risks and changes
    that would help.

    ``target`` is all 28 targets where it is left out. ``scope`` is what a time covers (see ``af.estimate_all``),
    ``changes`` how many changes are worked out for each chip, ``max_abs`` the largest magnitude of any input, which
    the numeric risks are about. ``measured`` is a compute plan that a Mac gave (``aneforge.plans.read_plan``), shown
    beside the predictions. ``progress`` is told what is being done. ``report(...).save("page.html")`` writes the
    page; Markdown, CSV, JSON and a Perfetto trace go by the suffix too.
    """
    say = progress or (lambda what: None)
    say("reading the model")
    graph = graph_of(model, dims, function)
    chips = chips_of(target, "all")
    with quiet_collector():
        say("asking every chip")
        checked = Check(graph, preflights(graph, chips, None), graph.route, ("reject", "oversize"), model_name(model))
        say("compiling and estimating")
        splits = partitions_for(graph, chips)
        estimates = estimates_of(splits, scope, changes=changes)
        say("working out what would help")
        advice = estimates.advice
        say("looking for numbers that get lost")
        lost = _risks(graph, splits, max_abs)
        say("comparing the numbers of chips")
        differing, note = divergence_rows(graph, splits, max_abs)
        say("writing down the programs")
        gathered = _gathered(model, graph, checked, splits, estimates, advice, lost, max_abs)
        table = None if measured is None else overlay(*measured, splits, gathered.ops)
        return replace(gathered, divergences=differing, divergence_note=note, measured=table)


def _gathered(
    model: Source,
    graph: Graph,
    checked: Check,
    splits: Mapping[str, Partition],
    estimates: Estimates,
    advice: Mapping[str, Advice],
    lost: Mapping[str, Risks],
    max_abs: float | None,
) -> Report:
    operations = Operations(graph)
    ops = {node.uid: number for number, node in enumerate(operations.counted)}
    by_name = {operations.names[uid]: number for uid, number in ops.items()}
    changes = _changes(advice, by_name)
    programs, places = program_rows(splits, estimates, by_name)
    return Report(
        model=_model(model, graph, operations),
        scope=_scope_of(estimates),
        max_abs=max_abs,
        chips=tuple(_chip(name, checked, splits[name], estimates, places.get(name), programs) for name in splits),
        ops=_ops(operations, ops, checked, splits),
        findings=_findings(checked, by_name, changes),
        programs=programs,
        changes=changes,
        risks=_risk_rows(lost, by_name),
        risk_chips=tuple(lost),
        doubts=tuple(checked.doubts),
        source=Path(model) if isinstance(model, (str, Path)) else None,
    )


def _model(model: Source, graph: Graph, operations: Operations) -> dict[str, object]:
    names = operations.names
    ports = [node for node in graph.nodes if node.op == "input"]

    def shown(nodes: Sequence[Tensor]) -> list[dict[str, object]]:
        return [{"name": names[node.uid], "shape": list(node.shape), "dtype": node.dtype} for node in nodes]

    return {
        "name": Path(model).name if isinstance(model, (str, Path)) else model_name(model),
        "inputs": shown(ports),
        "outputs": shown(graph.outputs),
        "operations": len(operations.counted),
        "weights": len(graph.weights),
        "parameters": int(sum(np.prod(weight.shape, dtype=np.int64) for weight in graph.weights.values())),
    }


def _scope_of(estimates: Estimates) -> str:
    return next((estimate.scope for estimate in estimates.values()), SCOPE)


# Chips.


def _chip(
    name: str,
    checked: Check,
    split: Partition,
    estimates: Estimates,
    place: int | None,
    programs: Sequence[ProgramRow],
) -> ChipRow:
    counts = {grade: count for grade, count in checked[name].counts.items() if count}
    row = ChipRow(
        name, chip_label(name), split.target.name, checked.verdicts[name], split.ops, split.on_engine, counts, place
    )
    if name not in estimates:
        return replace(row, refused=with_label(str(estimates.refused[name]), split.target, chip_label(name)))
    estimate = estimates[name]
    # A compiler target goes by the product whose times are shown (U84): h13 is also an M1, with another call.
    row = replace(row, label=estimate.basis.label)
    stats = programs[place].stats if place is not None else {}
    return replace(
        row,
        us=_short(estimate.us),
        interval=tuple(_short(end) for end in estimate.interval),
        engine_us=_short(estimate.engine_us),
        energy_mj=None if estimate.energy_mj is None else _short(estimate.energy_mj),
        shares={part: _short(us) for part, us in estimate.shares().items()},
        basis=estimate.basis.rule,
        basis_measured=estimate.basis.measured,
        peak=_short(estimate.roof.peak),
        bandwidth=_short(estimate.roof.bandwidth),
        layer_us=tuple(_short(layer.us) for layer in estimate.layers),
        layer_bounds="".join(_BOUNDS.get(layer.bound, "d") for layer in estimate.layers),
        **{key: int(stats.get(key, 0)) for key in ("weight_bytes", "peak_l2", "l2_bytes", "memory_bytes")},
    )


def _short(value: float) -> float:
    """Four digits: more than an estimate has, and a quarter of the bytes."""
    return float(f"{value:.4g}")


# Operations and reasons.


def _ops(
    operations: Operations, ops: Mapping[int, int], checked: Check, splits: Mapping[str, Partition]
) -> tuple[OpRow, ...]:
    statuses = {name: _statuses(checked[name]) for name in splits}
    rows = []
    for node in operations.counted:
        name = operations.names[node.uid]
        letters = [
            "h" if split.device_of.get(node.uid) == "host" and statuses[chip].get(name, "n") in "nd" else
            statuses[chip].get(name, "n")
            for chip, split in splits.items()
        ]  # fmt: skip
        reads = tuple(dict.fromkeys(ops[operand.uid] for operand in _computed(node, ops)))
        kind = str(node.attrs["kind"]) if node.op == "host" else node.op
        rows.append(OpRow(ops[node.uid], name, kind, node.shape, located(node.where), reads, "".join(letters)))
    return tuple(rows)


def _computed(node: Tensor, ops: Mapping[int, int]) -> list[Tensor]:
    """The operations that a node reads, through whatever only looks at their results in another way."""
    operands: list[Tensor] = []
    waiting = list(node.inputs)
    while waiting:
        operand = waiting.pop()
        if operand.uid in ops:
            operands.append(operand)
        elif not operand.definition.leaf:
            waiting += operand.inputs
    return operands[::-1]


def _statuses(result: Preflight) -> dict[str, str]:
    reports = {
        "decompose": result.decompose,
        "risk": result.risk,
        "oversize": result.oversize,
        "reject": result.reject,
    }
    return {entry.name: _LETTERS[grade] for grade, entries in reports.items() for entry in entries}


def _findings(checked: Check, by_name: Mapping[str, int], changes: Sequence[ChangeRow]) -> tuple[FindingRow, ...]:
    """Each reason once, with its nodes and chips: the gravest first, then those that concern most."""
    alike: dict[tuple[object, ...], tuple[str, OpReport, dict[str, None], dict[str, None]]] = {}
    for chip, result in checked.items():
        for grade in GRADES:
            for entry in getattr(result, grade):
                message = with_label(entry.message, entry.target, "this chip")
                key = (grade, entry.rule, repr(entry.limit), message, entry.op)
                _, _, nodes, chips = alike.setdefault(key, (grade, entry, {}, {}))
                nodes.setdefault(entry.name)
                chips.setdefault(chip)
    rows = [_finding(grade, entry, list(nodes), list(chips), by_name) for grade, entry, nodes, chips in alike.values()]
    rows.sort(key=lambda row: (GRADES.index(row.grade), -len(row.chips), -len(row.nodes), row.id))
    touched = [set(change.nodes) for change in changes]
    about = [tuple(place for place, nodes in enumerate(touched) if nodes & set(row.nodes)) for row in rows]
    return tuple(replace(row, changes=places) for row, places in zip(rows, about, strict=True))


def _finding(
    grade: str, entry: OpReport, nodes: Sequence[str], chips: Sequence[str], by_name: Mapping[str, int]
) -> FindingRow:
    message = with_label(entry.message or "rewritten", entry.target, "this chip")
    identity = json.dumps([grade, entry.rule, entry.op, sorted(nodes)])
    digest = hashlib.blake2b(identity.encode(), digest_size=4).hexdigest()
    evidence = entry.evidence
    return FindingRow(
        id=f"{entry.rule or grade}-{digest}",
        rule=entry.rule,
        grade=grade,
        verdict=entry.verdict_words or entry.verdict,
        message=message,
        nodes=tuple(by_name[name] for name in nodes if name in by_name),
        chips=tuple(chips),
        evidence=evidence.label(),
        confidence=evidence.confidence or "unknown",
        stage=entry.stage,
        route=entry.route,
        limit=entry.limit,
        extent=entry.extent,
        hint=entry.hint,
        rewrite=entry.rewrite or "",
        bound="" if entry.bound is None else str(entry.bound),
        says=entry.string,
        sources=tuple(evidence.source),
        conflict=evidence.conflict_id or "",
    )


# What would help, and what gets lost.


def _changes(advice: Mapping[str, Advice], by_name: Mapping[str, int]) -> tuple[ChangeRow, ...]:
    """Each change once, with the call after it on every chip: what helps most chips first."""
    rows: dict[tuple[str, str], ChangeRow] = {}
    for chip, listed in advice.items():
        for change in listed.changes:
            nodes = tuple(by_name[name] for name in change.nodes if name in by_name)
            row = rows.setdefault(
                (change.name, change.what),
                ChangeRow(change.name, change.cause, change.what, change.how, change.numbers, nodes, {}, {}),
            )
            row.us[chip], row.saved[chip] = _short(change.us), _short(change.saved)
    return tuple(sorted(rows.values(), key=lambda row: (-len(row.us), -max(row.saved.values()))))


def _risks(graph: Graph, splits: Mapping[str, Partition], max_abs: float | None) -> dict[str, Risks]:
    """By chip: of those that are alike in their arithmetic the first, up to six."""
    from aneforge.numerics.ranges import ranges_of

    some = list(one_of_each_family(splits).items())[:_MOST_NUMERIC_CHIPS]
    return {name: risks_on(graph, chip, ranges_of(graph, [chip], max_abs, None, None)) for name, chip in some}


def _risk_rows(lost: Mapping[str, Risks], by_name: Mapping[str, int]) -> tuple[RiskRow, ...]:
    alike: dict[tuple[object, ...], tuple[Risk, list[str]]] = {}
    for chip, risks in lost.items():
        for risk in risks:
            alike.setdefault((risk.node, risk.kind, risk.message), (risk, []))[1].append(chip)
    return tuple(
        RiskRow(
            node=by_name.get(risk.node),
            op=risk.op,
            kind=risk.kind,
            message=risk.message,
            suggestion=risk.suggestion or "",
            chips=tuple(chips),
            reaches=risk.reaches if math.isfinite(risk.reaches) else None,
            limit=risk.limit,
            lost=risk.expected_error == math.inf,
            rewrite=risk.rewrite or "",
        )
        for risk, chips in alike.values()
    )
