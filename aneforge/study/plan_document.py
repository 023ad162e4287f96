"""A compute plan: each operation with the device that Core ML prefers, those that can run it, its part of the cost.

The JSON form uses the names of Core ML's own interface (``preferredComputeDevice``, ``supportedComputeDevices``,
``estimatedCost.weight``), so that a plan that is predicted here and one that is dumped on a Mac are read alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from aneforge.output import text
from aneforge.output.grouped import short

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
