"""What each operation is on each chip, and the reasons of verdicts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

from aneforge.compiler.legal.rules.base import OneOf, Structure
from aneforge.graph.node import located
from aneforge.graph.tensor import Tensor
from aneforge.report.rows import ChangeRow, FindingRow, OpRow
from aneforge.study.checking import GRADES, Check
from aneforge.study.operations import Operations
from aneforge.study.partition import Partition
from aneforge.study.preflight import OpReport, Preflight
from aneforge.targets.names import with_label

_LETTERS = {"native": "n", "decompose": "d", "placement": "p", "risk": "k", "oversize": "o", "reject": "r"}
"""Of several lists that name an operation, the last one's letter stays."""


def op_rows(operations: Operations, checked: Check, splits: Mapping[str, Partition]) -> tuple[OpRow, ...]:
    """One row for each operation, in the order of the file."""
    ops = {node.uid: number for number, node in enumerate(operations.counted)}
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
        nodes = tuple(origin.name for origin in node.origins)
        behind = () if nodes == (name,) else nodes
        rows.append(OpRow(ops[node.uid], name, kind, node.shape, located(node.where), reads, "".join(letters), behind))
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
