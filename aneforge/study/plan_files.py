"""Compute plans: which device Core ML prefers for each operation; as a document, and as files from a Mac.

The JSON form uses the names of Core ML's own interface (``preferredComputeDevice``, ``supportedComputeDevices``,
``estimatedCost.weight``), so that a plan that is predicted here and one that is dumped on a Mac are read alike.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aneforge import text
from aneforge.documents import read_json
from aneforge.errors import AneforgeError, LoadError
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
    said: str = ""
    """The file's own word for the preferred device, where it is not one of Core ML's: Core AI calls the GPU mps."""

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
class PlannedRegion:
    """One part of a model that a runtime runs on one device, as Core AI divides a model."""

    name: str
    device: str
    """A key of :data:`DEVICES`."""
    operations: int | None = None
    """How many operations it has; None where the file does not say."""
    said: str = ""
    """The file's own word for the device, where it is another."""

    def to_json(self) -> dict[str, Any]:
        row: dict[str, Any] = {"name": self.name, "device": self.said or self.device}
        return row if self.operations is None else row | {"operations": self.operations}

    def __str__(self) -> str:
        count = "" if self.operations is None else f", {self.operations:,} operations"
        return f"{self.name}: {device_label(self.device, self.said)}{count}"


def device_label(device: str | None, said: str = "") -> str:
    """How people call a device, with the file's own word behind it where that is another."""
    label = DEVICES.get(device or "", "unknown")
    return f"{label} ({said})" if said else label


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
    regions: tuple[PlannedRegion, ...] = ()
    """The parts that a runtime made of the model, where the file lists them."""

    @property
    def uses_gpu(self) -> bool:
        """Whether a region or an operation is meant for the GPU."""
        return GPU in (*(region.device for region in self.regions), *(op.preferred for op in self.operations))

    def counts(self) -> dict[str, int]:
        """Operations by the device that is preferred."""
        counted = [op.preferred for op in self.operations if op.preferred is not None]
        return {device: counted.count(device) for device in DEVICES if device in counted}

    def to_json(self) -> dict[str, Any]:
        head: dict[str, Any] = {"schema": SCHEMA, "kind": "compute plan", "predicted": self.predicted}
        about = {"chip": self.chip, "os": self.os, "latency_us": self.latency_us, "notes": list(self.notes)}
        head |= {key: value for key, value in about.items() if value}
        if self.regions:
            head["regions"] = [region.to_json() for region in self.regions]
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
                device_label(op.preferred, op.said),
                ", ".join(DEVICES[device] for device in op.supported),
                "?" if op.weight is None else f"{100 * op.weight:.1f}",
                op.why,
            )
            for op in listed
        ]
        heads = ("operation", "kind", "preferred", "can run on", "cost %", "why")
        total = ", ".join(f"{count:,} on the {DEVICES[device]}" for device, count in self.counts().items())
        lines = _region_lines(self.regions)
        if self.operations:
            lines += [f"{len(self.operations):,} operations: {total}", "", text.columns(heads, rows, fit=True)]
        if len(listed) < len(self.operations):
            lines.append(f"the {len(listed)} most costly; --all lists every operation")
        return "\n".join([*lines, *(["", *self.notes] if self.notes else [])])

    def __str__(self) -> str:
        return self.text()


def _region_lines(regions: Sequence[PlannedRegion]) -> list[str]:
    """How many regions each device has, then each region with its device."""
    if not regions:
        return []
    labels = [device_label(region.device, region.said) for region in regions]
    total = ", ".join(f"{labels.count(label):,} on the {label}" for label in dict.fromkeys(labels))
    return [f"{len(regions):,} regions: {total}", *(f"  {region}" for region in regions)]


# Compute plans as files. Core ML publishes an interface (``MLComputePlan``) and no file format, so people write what
# they read from it; Xcode's performance report has no published format either (U134). What is read here is JSON
# whose operations carry the interface's own names, as Swift, Objective-C or coremltools spell them, at any depth
# that ``docs/guide/plan.md`` shows. Anything else is refused with what was expected.


MOST_BYTES = 64 << 20
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
    "mps": GPU,
    "mpsgraph": GPU,
}
_OTHER_WORDS = ("mps", "mpsgraph")
"""Words of Core AI, which are shown beside the device that they stand for."""
_VERSION = re.compile(r"^[A-Za-z]+\d+\.")
_SHAPE = (
    'an object with "operations": a list of objects with "operatorName", "preferredComputeDevice" and, where '
    'known, "outputs", "supportedComputeDevices" and "estimatedCost"; see docs/guide/plan.md'
)


def read_plan(path: str | Path) -> ComputePlan:
    """The plan in a JSON file."""
    try:
        document = read_json(Path(path), MOST_BYTES)
    except LoadError as error:
        raise AneforgeError(f"{error}; expected {_SHAPE}") from None
    return plan_from_json(document, str(path))


def plan_from_json(document: Any, where: str = "plan") -> ComputePlan:
    """The plan that a document holds."""
    head = document if isinstance(document, Mapping) else {}
    if head.get("kind") == "compute plan" and head.get("schema") != SCHEMA:
        raise AneforgeError(
            f"{where}: schema {head.get('schema')!r}; this version reads {SCHEMA}. Write the plan again."
        )
    regions = _regions(head.get("regions"), where)
    listed = _operations(document)
    if listed is None and regions:
        listed = []
    if listed is None:
        raise AneforgeError(f"{where}: not a compute plan; expected {_SHAPE}")
    operations = tuple(_operation(row, f"{where}: operation {place}") for place, row in enumerate(listed))
    if not regions and not any(op.preferred for op in operations):
        raise AneforgeError(f"{where}: no operation has a preferred device; expected {_SHAPE}")
    latency = _positive(head.get("latency_us"), f"{where}: latency_us")
    chip, system = (head.get(key) if isinstance(head.get(key), str) else "" for key in ("chip", "os"))
    predicted = head.get("predicted") is True
    return ComputePlan(operations, str(chip), str(system), predicted, latency, regions=regions)


def _regions(listed: Any, where: str) -> tuple[PlannedRegion, ...]:
    """The regions that a document lists, each with a device."""
    if listed is None:
        return ()
    if not isinstance(listed, list):
        raise AneforgeError(f"{where}: regions: expected a list of objects with a device.")
    regions = []
    for place, row in enumerate(listed):
        here = f"{where}: region {place}"
        device = _device(_value(row, "preferred"), here) if isinstance(row, Mapping) else None
        if device is None:
            raise AneforgeError(f"{here}: it names no device; expected an object with a device, such as ane or mps.")
        operations = row.get("operations")
        count = len(operations) if isinstance(operations, list) else operations
        if count is not None and (isinstance(count, bool) or not isinstance(count, int) or count < 0):
            raise AneforgeError(f"{here}: operations: expected a list or a number, not {count!r}.")
        name = row.get("name") if isinstance(row.get("name"), str) else f"region {place}"
        regions.append(PlannedRegion(str(name), device, count, _own_word(_value(row, "preferred"))))
    return tuple(regions)


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
        _own_word(_value(used, "preferred")),
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


def _own_word(value: Any) -> str:
    """The file's word for a device, where Core ML has another."""
    word = str(value.get("name") or value.get("type") or "") if isinstance(value, Mapping) else str(value or "")
    return word if word.casefold() in _OTHER_WORDS else ""


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
