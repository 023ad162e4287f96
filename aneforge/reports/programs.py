"""The rows of a report about programs and their layers, and about the reasons of verdicts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from aneforge.advice.estimates import Estimates
from aneforge.chips.assumed import fact_label
from aneforge.chips.names import with_label
from aneforge.compiler.facts import facts_of
from aneforge.compiler.legal.rules.base import OneOf, Structure
from aneforge.compiler.passes import PASSES
from aneforge.compiler.program import Program
from aneforge.compiler.shown import ProgramLayer
from aneforge.cost.estimate import Estimate
from aneforge.graph.node import located
from aneforge.graph.tensor import Tensor
from aneforge.reports.rows import (
    ChangeRow,
    FactRow,
    FindingRow,
    LayerRow,
    OpRow,
    ProgramRow,
    RegionRow,
    StepRow,
    WeightRow,
)
from aneforge.study.answers import Operations
from aneforge.study.checking import GRADES, Check
from aneforge.study.partition import Partition
from aneforge.study.preflight import OpReport, Preflight
from aneforge.study.regions import ENGINE, HOST


def size_of(splits: Mapping[str, Partition]) -> int:
    """How large a model is to whoever compiles or walks it: its operations, or the layers of its largest program where
    these are more. A recurrent network is few operations and very many layers."""
    layers = (sum(len(program.layers) for program in split.programs.values()) for split in splits.values())
    return max([*(split.ops for split in splits.values()), *layers], default=0)


def program_rows(
    splits: Mapping[str, Partition], estimates: Estimates, by_name: Mapping[str, int]
) -> tuple[tuple[ProgramRow, ...], dict[str, int]]:
    """Each distinct program with its chips, and the place of every chip's own."""
    alike: dict[tuple[object, ...], list[str]] = {}
    prints: dict[int, str] = {}  # chips that share a compile share its module, and a fingerprint is a long text
    for name, split in splits.items():
        if name in estimates:
            for program in split.programs.values():
                if id(program.module) not in prints:
                    prints[id(program.module)] = program.fingerprint
            own = (prints[id(program.module)] for program in split.programs.values())
            alike.setdefault((id(split.cut), *own), []).append(name)
    rows, places = [], {}
    for names in alike.values():
        places |= dict.fromkeys(names, len(rows))
        rows.append(_program(names, splits[names[0]], estimates[names[0]], by_name))
    return tuple(rows), places


def _program(names: Sequence[str], split: Partition, estimate: Estimate, by_name: Mapping[str, int]) -> ProgramRow:
    layers = tuple(_layers(split, estimate, by_name))
    steps = tuple(_steps(split, by_name))
    parts = {part.number: part for part in estimate.parts}
    regions = tuple(
        RegionRow(
            region.number,
            region.device,
            tuple(by_name[split.names[node.uid]] for node in region.nodes if split.names[node.uid] in by_name),
            None if region.number not in parts else float(f"{parts[region.number].us:.4g}"),
        )
        for region in split.regions
    )
    programs = split.programs
    totals = [program.stats for program in programs.values()]
    stats = {key: sum(stat[key] for stat in totals) for key in ("segments", "task_groups", "layers", "weight_bytes")}
    stats |= {key: max((stat[key] for stat in totals), default=0) for key in ("peak_l2", "memory_bytes")}
    stats["l2_bytes"] = facts_of(split.target, ("max_operand_bytes",))["max_operand_bytes"]
    assumed = {fact.conflict_id for program in programs.values() for _, _, fact in program.assumptions}
    return ProgramRow(
        tuple(names),
        regions,
        layers,
        tuple(_weights(programs.values(), by_name)),
        tuple(on_chip for program in programs.values() for on_chip in _on_chip(program)),
        steps,
        tuple(sorted(choice for choice in assumed if choice)),
        tuple(_facts(split, steps)),
        stats,
        _chain(split) if stats["layers"] <= _MOST_CHAINED else "",
    )


_MOST_CHAINED = 40
"""Layers of a program whose way to task words is on the page; ``aneforge compile --show all`` has that of any."""


def _chain(split: Partition) -> str:
    """The way of each region's program, one below the other."""
    chains = {number: model.chain().text() for number, model in split.models.items()}
    if len(chains) == 1:
        return next(iter(chains.values()))
    return "\n".join(f"region {number}\n{chain}" for number, chain in chains.items())


def _layers(split: Partition, estimate: Estimate, by_name: Mapping[str, int]) -> Iterator[LayerRow]:
    """The layers of all regions in the order they run, numbered through as estimates number them."""
    times = iter(estimate.layers)
    start = step_start = 0
    for number, program in split.programs.items():
        step_of = {place: step for step, places in enumerate(program.steps) for place in places}
        sizes = {weight.key: weight.stored_bytes for weight in program.weights}
        for layer in program.layers:
            time = next(times, None)
            yield _layer(layer, number, start, step_start + step_of[layer.number], by_name, sizes, time)
        start += len(program.layers)
        step_start += len(program.steps)


def _layer(
    layer: ProgramLayer,
    region: int,
    start: int,
    step: int,
    by_name: Mapping[str, int],
    sizes: Mapping[str, int],
    time: object,
) -> LayerRow:
    buffer = layer.buffer
    return LayerRow(
        number=start + layer.number,
        op=layer.op,
        engine=layer.engine,
        shape=layer.shape,
        sources=_numbers(layer.sources, by_name),
        inputs=tuple(name if isinstance(name, str) else start + name for name in layer.inputs),
        fused=tuple(slot.op for slot in layer.slots),
        region=region,
        segment=layer.segment,
        task_group=layer.task_group,
        step=step,
        space=buffer.space,
        address=buffer.address,
        bytes=buffer.bytes,
        live=buffer.live,
        allocation=layer.allocation.name.lower().replace("_", " "),
        chained=layer.chained,
        beside=None if layer.co_issue is None else start + layer.co_issue,
        passes=layer.passes,
        flops=float(f"{getattr(time, 'flops', 0.0):.4g}"),
        traffic=float(f"{getattr(time, 'traffic', 0.0):.4g}"),
        weight_bytes=sum(sizes.get(key, 0) for key in layer.weights),
    )


def _numbers(names: Iterable[str], by_name: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(by_name[name] for name in names if name in by_name))


def _weights(programs: Iterable[Program], by_name: Mapping[str, int]) -> Iterator[WeightRow]:
    for program in programs:
        for weight in program.weights:
            yield WeightRow(
                _numbers(weight.sources, by_name),
                weight.shape,
                weight.encoding,
                weight.bytes,
                weight.stored_bytes,
                weight.flow or "",
            )


def _on_chip(program: Program) -> list[int]:
    """Bytes on chip at each step."""
    change = np.zeros(len(program.steps) + 1, np.int64)
    for buffer in program.buffers:
        if buffer.space == "l2":
            first, last = buffer.live
            change[first] += buffer.bytes
            change[min(last + 1, len(program.steps))] -= buffer.bytes
    return np.cumsum(change)[:-1].tolist()


def _steps(split: Partition, by_name: Mapping[str, int]) -> Iterator[StepRow]:
    for model in split.models.values():
        for story in model.explain():
            if story.name in by_name:
                for step in story.steps:
                    yield StepRow(by_name[story.name], step.becomes, step.pass_name)


def _facts(split: Partition, steps: Iterable[StepRow]) -> Iterator[FactRow]:
    """What the passes that changed an operation read, once each. Chips that share a program agree in all of it."""
    told: set[str] = set()
    for name in dict.fromkeys(step.pass_ for step in steps):
        reads = PASSES[name].reads if name in PASSES else ()
        facts = facts_of(split.target, reads)
        for key in reads:
            if key not in told:
                told.add(key)
                fact = facts.fact(key)
                value = fact.value if isinstance(fact.value, (bool, int, float, str)) else str(fact.value)
                known = "unknown" if fact.value is None else value
                yield FactRow(fact_label(key), known, fact.label(), fact.confidence)


# What each operation is on each chip, and the reasons of verdicts.


_LETTERS = {
    **{"native": "n", "decompose": "d", "placement": "p", "risk": "k", "unknown": "u", "oversize": "o"},
    "reject": "r",
}
"""Of several lists that name an operation, the last one's letter stays."""


def op_rows(operations: Operations, checked: Check, splits: Mapping[str, Partition]) -> tuple[OpRow, ...]:
    """One row for each operation, in the order of the file."""
    ops = {node.uid: number for number, node in enumerate(operations.counted)}
    statuses = {name: _statuses(checked[name]) for name in splits}
    likely = {chip: part.likely_devices for chip, part in checked.partitions.items()}
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
        nodes = tuple(origin.name for origin in node.origins)
        behind = () if nodes == (name,) else nodes
        by_rules = [split.device_of.get(node.uid, ENGINE) for split in splits.values()]
        given = [likely[chip].get(node.uid, HOST) for chip in splits]
        devices = "" if given == by_rules else "".join("e" if device == ENGINE else "h" for device in given)
        where = located(node.where)
        rows.append(OpRow(ops[node.uid], name, kind, node.shape, where, reads, "".join(letters), behind, devices))
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
    statuses = [status for status in _LETTERS if status != "native"]
    return {entry.name: _LETTERS[status] for status in statuses for entry in result.of(status)}


def finding_rows(checked: Check, by_name: Mapping[str, int], changes: Sequence[ChangeRow]) -> tuple[FindingRow, ...]:
    """Each reason once, with its nodes and chips: the gravest first, then those that concern most."""
    alike: dict[tuple[object, ...], tuple[str, OpReport, dict[str, None], dict[str, None]]] = {}
    for chip, result in checked.items():
        for grade in GRADES:
            for entry in result.of(grade):
                message = with_label(entry.message, entry.target, "this chip")
                key = (grade, entry.rule, repr(entry.limit), entry.basis, message, entry.op)
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
        limit=entry.limit.to_json() if isinstance(entry.limit, (OneOf, Structure)) else entry.limit,
        basis=entry.basis,
        extent=entry.extent,
        hint=entry.hint,
        rewrite=entry.rewrite or "",
        bound="" if entry.bound is None else str(entry.bound),
        says=entry.string,
        sources=tuple(evidence.source),
        conflict=evidence.conflict_id or "",
    )
