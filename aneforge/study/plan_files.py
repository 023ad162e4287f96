"""Compute plans: which device Core ML prefers for each operation; as a document, and as files from a Mac.

The JSON form uses the names of Core ML's own interface (``preferredComputeDevice``, ``supportedComputeDevices``,
``estimatedCost.weight``), so that a plan that is predicted here and one that is dumped on a Mac are read alike.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aneforge import text
from aneforge.errors import AneforgeError, first_line
from aneforge.text import short

SCHEMA = 1
ENGINE, CPU, GPU = "neuralEngine", "cpu", "gpu"
DEVICES = {ENGINE: "Neural Engine", CPU: "CPU", GPU: "GPU"}
"""The devices of a plan, and how people call them."""
_MOST_ROWS = 40


@dataclass(frozen=True)
class PlannedOp:
    """One operation of a plan."""

    name: str
    """The name of its first output, as in the model; empty where the file does not say."""
    op: str
    """Its kind, without the version in front (``ios17.conv`` is ``conv``)."""
    preferred: str | None
    """A key of :data:`DEVICES`; None where the plan has no answer, as for constants."""
    supported: tuple[str, ...] = ()
    weight: float | None = None
    """Its part of the cost of the whole model, 0 to 1; None where it is not estimated."""
    us: float | None = None
    """The time of the operation alone, where somebody measured it."""
    why: str = ""

    def to_json(self) -> dict[str, Any]:
        row: dict[str, Any] = {
            "outputs": [{"name": self.name}],
            "operatorName": self.op,
            "preferredComputeDevice": self.preferred,
            "supportedComputeDevices": list(self.supported),
            "estimatedCost": None if self.weight is None else {"weight": self.weight},
        }
        return row | {key: value for key, value in (("us", self.us), ("why", self.why)) if value}


@dataclass(frozen=True)
class ComputePlan:
    """The operations of one model on one chip, in the order of the model."""

    operations: tuple[PlannedOp, ...]
    chip: str = ""
    """The chip as the file names it; empty where it does not."""
    os: str = ""
    predicted: bool = False
    """Whether aneforge worked it out. Such a plan is never evidence."""
    latency_us: float | None = None
    """The time of one call, where somebody measured it."""
    notes: tuple[str, ...] = ()

    def counts(self) -> dict[str, int]:
        """Operations by the device that is preferred."""
        counted = [op.preferred for op in self.operations if op.preferred is not None]
        return {device: counted.count(device) for device in DEVICES if device in counted}

    def to_json(self) -> dict[str, Any]:
        head: dict[str, Any] = {"schema": SCHEMA, "kind": "compute plan", "predicted": self.predicted}
        about = {"chip": self.chip, "os": self.os, "latency_us": self.latency_us, "notes": list(self.notes)}
        head |= {key: value for key, value in about.items() if value}
        return head | {"operations": [op.to_json() for op in self.operations]}

    def text(self, everything: bool = False) -> str:
        """The plan as a table; ``everything`` lists each operation, not only the most costly ones."""
        listed = list(self.operations)
        if not everything and len(listed) > _MOST_ROWS:
            listed = sorted(listed, key=lambda op: -(op.weight or 0.0))[:_MOST_ROWS]
        rows = [
            (
                short(op.name),
                op.op,
                DEVICES.get(op.preferred or "", "unknown"),
                ", ".join(DEVICES[device] for device in op.supported),
                "?" if op.weight is None else f"{100 * op.weight:.1f}",
                op.why,
            )
            for op in listed
        ]
        heads = ("operation", "kind", "preferred", "can run on", "cost %", "why")
        total = ", ".join(f"{count:,} on the {DEVICES[device]}" for device, count in self.counts().items())
        lines = [f"{len(self.operations):,} operations: {total}", "", text.columns(heads, rows, fit=True)]
        if len(listed) < len(self.operations):
            lines.append(f"the {len(listed)} most costly; --all lists every operation")
        return "\n".join([*lines, *(["", *self.notes] if self.notes else [])])

    def __str__(self) -> str:
        return self.text()


# Compute plans as files. Core ML publishes an interface (``MLComputePlan``) and no file format, so people write what
# they read from it; Xcode's performance report has no published format either (U134). What is read here is JSON
# whose operations carry the interface's own names, as Swift, Objective-C or coremltools spell them, at any depth
# that ``docs/guide/plan.md`` shows. Anything else is refused with what was expected.


_MOST_BYTES = 64 << 20
_LISTS = ("operations", "layers", "rows", "ops")
_NESTED = ("structure", "plan", "computePlan", "compute_plan", "main")
_SPELLED: dict[str, tuple[str, ...]] = {
    "name": ("name", "identity", "output", "outputName", "output_name", "path"),
    "op": ("operatorName", "operator_name", "operator_type", "op", "type", "kind"),
    "preferred": (
        "preferredComputeDevice",
        "preferred_compute_device",
        "preferred",
        "computeDevice",
        "compute_device",
        "device",
    ),
    "supported": ("supportedComputeDevices", "supported_compute_devices", "supported", "devices"),
    "weight": ("estimatedCost", "estimated_cost", "estimatedCostWeight", "estimated_cost_weight", "weight", "cost"),
    "us": ("us", "time_us", "latency_us"),
    "ms": ("ms", "time_ms", "latency_ms", "medianTimeMs"),
    "usage": ("deviceUsage", "device_usage", "computeDeviceUsage"),
}
_DEVICE_WORDS = {
    "neuralengine": ENGINE,
    "mlneuralenginecomputedevice": ENGINE,
    "ane": ENGINE,
    "ne": ENGINE,
    "cpu": CPU,
    "mlcpucomputedevice": CPU,
    "gpu": GPU,
    "mlgpucomputedevice": GPU,
}
_VERSION = re.compile(r"^[A-Za-z]+\d+\.")
_SHAPE = (
    'an object with "operations": a list of objects with "operatorName", "preferredComputeDevice" and, where '
    'known, "outputs", "supportedComputeDevices" and "estimatedCost"; see docs/guide/plan.md'
)


def read_plan(path: str | Path) -> ComputePlan:
    """The plan in a JSON file."""
    file = Path(path)
    try:
        if file.is_file() and file.stat().st_size > _MOST_BYTES:
            raise AneforgeError(f"{path}: {file.stat().st_size:,} bytes; a compute plan has at most {_MOST_BYTES:,}.")
        document = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise AneforgeError(f"{path}: cannot be read ({error.strerror or error})") from None
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        raise AneforgeError(f"{path}: not JSON ({first_line(error)}); expected {_SHAPE}") from None
    return plan_from_json(document, str(path))


def plan_from_json(document: Any, where: str = "plan") -> ComputePlan:
    """The plan that a document holds."""
    head = document if isinstance(document, Mapping) else {}
    if head.get("kind") == "compute plan" and head.get("schema") != SCHEMA:
        raise AneforgeError(
            f"{where}: schema {head.get('schema')!r}; this version reads {SCHEMA}. Write the plan again."
        )
    listed = _operations(document)
    if listed is None:
        raise AneforgeError(f"{where}: not a compute plan; expected {_SHAPE}")
    operations = tuple(_operation(row, f"{where}: operation {place}") for place, row in enumerate(listed))
    if not any(op.preferred for op in operations):
        raise AneforgeError(f"{where}: no operation has a preferred device; expected {_SHAPE}")
    latency = _positive(head.get("latency_us"), f"{where}: latency_us")
    chip, system = (head.get(key) if isinstance(head.get(key), str) else "" for key in ("chip", "os"))
    return ComputePlan(operations, str(chip), str(system), head.get("predicted") is True, latency)


def _operations(document: Any) -> Sequence[Any] | None:
    """The list of operations: the document itself, under its own name, or one level inside."""
    if isinstance(document, list):
        return document
    if not isinstance(document, Mapping):
        return None
    for key in _LISTS:
        if isinstance(document.get(key), list):
            return document[key]
    inside = [document[key] for key in _NESTED if isinstance(document.get(key), Mapping)]
    return next((found for part in inside if (found := _operations(part)) is not None), None)


def _operation(row: Any, where: str) -> PlannedOp:
    if not isinstance(row, Mapping):
        raise AneforgeError(f"{where}: not an object; expected {_SHAPE}")
    usage = _value(row, "usage")
    used = {**row, **usage} if isinstance(usage, Mapping) else row
    kind = _value(row, "op")
    if not isinstance(kind, str) or not kind:
        raise AneforgeError(f"{where}: it names no operator; expected {_SHAPE}")
    supported = _value(used, "supported") or []
    if not isinstance(supported, (list, tuple)):
        raise AneforgeError(f"{where}: supported devices: expected a list, not {supported!r}.")
    us, ms = (_positive(_value(row, key), f"{where}: time") for key in ("us", "ms"))
    return PlannedOp(
        _name(row),
        _VERSION.sub("", kind),
        _device(_value(used, "preferred"), where),
        tuple(dict.fromkeys(device for item in supported if (device := _device(item, where)))),
        _weight(_value(row, "weight"), where),
        us if us is not None else None if ms is None else 1000 * ms,
        str(row.get("why") or ""),
    )


def _value(row: Mapping[str, Any], key: str) -> Any:
    return next((row[name] for name in _SPELLED[key] if row.get(name) is not None), None)


def _name(row: Mapping[str, Any]) -> str:
    outputs = row.get("outputs")
    if isinstance(outputs, list) and outputs:
        first = outputs[0]
        name = first.get("name") if isinstance(first, Mapping) else first
        if isinstance(name, str):
            return name
    name = _value(row, "name")
    return name if isinstance(name, str) else ""


def _device(value: Any, where: str) -> str | None:
    if isinstance(value, Mapping):
        value = value.get("name") or value.get("type")
    if value is None or value == "":
        return None
    word = re.sub(r"[^a-z]", "", str(value).casefold())
    if word not in _DEVICE_WORDS:
        known = ", ".join(DEVICES)
        raise AneforgeError(f"{where}: {value!r} is not a device; expected one of: {known}.")
    return _DEVICE_WORDS[word]


def _weight(value: Any, where: str) -> float | None:
    if isinstance(value, Mapping):
        value = value.get("weight")
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        raise AneforgeError(f"{where}: estimated cost {value!r}; expected a part of the whole, 0 to 1.")
    return float(value)


def _positive(value: Any, where: str) -> float | None:
    if value is None:
        return None
    good = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and value > 0
    if not good:
        raise AneforgeError(f"{where}: {value!r} is not a time; expected a number above 0.")
    return float(value)
