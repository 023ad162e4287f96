"""A plan from a Mac as rows of the silicon format, which a person can send in.

A row holds what the format describes and nothing else: kind of operation, shapes, chip, system, answer. Names of
operations, of the model, of files and of people stay behind. Rows of operations say what Core ML planned (route
``coreml_placement``), not that a call was timed. Where the file has the time of a call, one more row has it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from aneforge.chips.families import Family
from aneforge.chips.names import chip_label
from aneforge.chips.names import target as target_of
from aneforge.compiler.legal.query import QueryError
from aneforge.compiler.legal.translate import query_of
from aneforge.errors import AneforgeError
from aneforge.graph.graph import Graph
from aneforge.graph.tensor import Tensor
from aneforge.study.agreement import verdict
from aneforge.study.answers import answers_about
from aneforge.study.plan_files import ENGINE, ComputePlan, PlannedOp
from aneforge.study.study import Study

SOURCE = "contributed"
_SYSTEM = re.compile(r"(macOS|iOS|iPadOS|visionOS|tvOS|watchOS) \d+(\.\d+){0,2}( \([0-9A-Za-z]+\))?")
_SOURCE = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")


def contributed_rows(
    plan: ComputePlan, chip: str, system: str, graph: Graph | None = None, source: str = SOURCE
) -> list[dict[str, Any]]:
    """One row for each kind of case in the plan. ``graph`` gives the shapes, which a plan does not have: without it a
    row says only that some operation of this kind was taken or left."""
    about = {**_about(plan, chip, system, source), "route": "coreml_placement"}
    shaped = {} if graph is None else _nodes(graph)
    rows: dict[str, dict[str, Any]] = {}
    for op in plan.operations:
        if op.preferred is not None:
            row = _row(op, about, shaped.get(op.name), source)
            rows.setdefault(row["id"], row)
    if not rows:
        raise AneforgeError("plan: no operation has a preferred device, so there is nothing to send.")
    return list(rows.values())


def timed_row(plan: ComputePlan, chip: str, system: str, graph: Graph, source: str = SOURCE) -> dict[str, Any] | None:
    """The time of a call with how much the model computes and moves there; None where the file has no time, or part of
    the model was planned elsewhere than on the engine."""
    if plan.latency_us is None or set(plan.counts()) != {ENGINE}:
        return None
    about = _about(plan, chip, system, source)
    split = Study(graph, target_of(chip)).partition()
    layers = split.estimate().layers
    weights = [weight for program in split.programs.values() for weight in program.weights]
    encodings = sorted({weight.encoding for weight in weights if weight.flow is not None}) or ["fp16"]
    row: dict[str, Any] = {
        **about,
        "op_class": "network",
        "workload": f"network of {len(plan.operations):,} operations",
        "inputs": [list(node.shape) for node in graph.nodes if node.op == "input"],
        "outputs": [list(node.shape) for node in graph.outputs],
        "flops": float(sum(layer.flops for layer in layers)),
        "weight_bytes": float(sum(weight.stored_bytes for weight in weights)),
        "act_bytes": max(0.0, sum(layer.traffic for layer in layers) - sum(weight.stored_bytes for weight in weights)),
        "dtype": "fp16",
        "weight_enc": ", ".join(encodings),
        "latency_us": plan.latency_us,
        "scope": "coreml_call",
        "source": source,
        "quality": "contributed",
    }
    return with_id(row)


def _about(plan: ComputePlan, chip: str, system: str, source: str) -> dict[str, Any]:
    """What all rows of a file share; refuses what is no evidence."""
    if plan.predicted:
        raise AneforgeError("plan: aneforge predicted it, and a prediction is not evidence. Give the plan of a Mac.")
    checked_origin(system, source)
    target = target_of(chip)
    return {"chip": chip_label(chip), "target": target.name, "tier": Family(target.family5).name, "os": system}


def checked_origin(system: str, source: str) -> None:
    """Refuses a system or a source that could name a machine or a person."""
    if not _SYSTEM.fullmatch(system):
        raise AneforgeError(f"--os {system}: write the system and its version, for instance: --os 'macOS 26.1'")
    if not _SOURCE.fullmatch(source):
        raise AneforgeError(f"--source {source}: use up to 40 small letters, digits and hyphens, for instance lab-7")


def with_id(row: dict[str, Any]) -> dict[str, Any]:
    """A row with an id in front that follows from what it says."""
    stated = json.dumps(row, sort_keys=True)
    return {"id": hashlib.blake2b(stated.encode(), digest_size=6).hexdigest(), **row}


def _nodes(graph: Graph) -> dict[str, Tensor]:
    operations = answers_about(graph).about(graph).operations
    return {operations.names[node.uid]: node for node in operations.counted if node.op != "host"}


def _row(op: PlannedOp, about: Mapping[str, Any], node: Tensor | None, source: str) -> dict[str, Any]:
    taken = ENGINE in op.supported or op.preferred == ENGINE
    answer = {
        "verdict": "accept" if taken else "cpu",
        "placed": "ane" if op.preferred == ENGINE else op.preferred,
        "confidence": "high" if op.supported else "medium",
        "source": source,
        "notes": "from a compute plan; inside a network",
    }
    row: dict[str, Any] = {"op": op.op, "shapes": None, **about, **answer}
    if node is not None:
        row |= _case(node)
        row = row if _is_readable(row) else {**row, "attrs": {}}
    if not _is_readable(row):
        raise AneforgeError(f"plan: {op.op} cannot be written as a row of the silicon format. Leave it out.")
    return with_id(row)


def _case(node: Tensor) -> dict[str, Any]:
    """What was asked of the engine, as the format spells it."""
    query = query_of(node.signature)
    attrs = {name: value for name, value in query.attrs.items() if name != "interior" and _is_plain(value)}
    return {
        "op": query.op,
        "shapes": [None if shape is None else list(shape) for shape in query.shapes or ()],
        "const": {name: list(shape) for name, shape in query.const.items()},
        "attrs": attrs,
        "dtype": query.dtype if isinstance(query.dtype, str) else list(query.dtype),
    }


def _is_plain(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(_is_plain(item) for item in value)
    return value is None or isinstance(value, (bool, int, float, str))


def _is_readable(row: Mapping[str, Any]) -> bool:
    """Whether the gate can answer the row: what is sent in is what ``aneforge measure gate`` reads."""
    try:
        verdict(row)
    except (QueryError, ValueError, TypeError):
        return False
    return True
