"""What a report holds, row by row: every format of a report is written from these."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from typing import Any

from aneforge.study.outcomes import grade_of

STATUSES = {
    "n": "native",
    "d": "decomposed",
    "r": "rejected",
    "o": "too large",
    "k": "risk",
    "u": "unknown",
    "p": "kept off by a runtime",
    "h": "on the host",
}
"""What an operation is on a chip, by the letter of :attr:`OpRow.statuses`."""
BOUNDS = {"c": "compute", "w": "weights", "a": "activations", "d": "dispatch"}
"""What a layer's time is mostly spent on, by the letter of :attr:`ChipRow.layer_bounds`."""


def short(value: float) -> float:
    """Four digits: more than an estimate has, and a quarter of the bytes."""
    return float(f"{value:.4g}")


def _plain(value: Any) -> Any:
    """As JSON has it, which has no number that is not finite: such a one is not known."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if hasattr(value, "to_json"):
        return value.to_json()
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value


class ReportRow:
    """A frozen record that is JSON by its fields; rows are many, so empty fields are left out."""

    def to_json(self) -> dict[str, Any]:
        values = ((part.name, _plain(getattr(self, part.name))) for part in fields(self))  # type: ignore[arg-type]
        return {name: value for name, value in values if value not in (None, "", [], {})}


@dataclass(frozen=True)
class OpRow(ReportRow):
    """One operation of the user's model, in the order of the file."""

    number: int
    name: str
    op: str
    shape: tuple[int, ...]
    where: str
    inputs: tuple[int, ...] = ()
    """The operations whose results it reads."""
    statuses: str = ""
    """One letter of :data:`STATUSES` for each chip of the report."""
    nodes: tuple[str, ...] = ()
    """The nodes of the model file that it comes from, where that is not just the node of its name."""
    likely: str = ""
    """For each chip ``e`` where the runtime would likely give it to the engine, else ``h``; empty where that is the
    device by the rules everywhere."""


@dataclass(frozen=True)
class SpanRow(ReportRow):
    """A piece of a call beside its layers: ``call``, ``copies``, ``crossing`` or ``host``."""

    kind: str
    us: float
    before: int
    """How many layers of the programs come before it."""
    region: int | None = None


@dataclass(frozen=True)
class LoadRow(ReportRow):
    """A stage of the life of a program besides steady calls, as a band in words."""

    stage: str
    band: str
    basis: str


@dataclass(frozen=True)
class ChipRow(ReportRow):
    """What one chip makes of the model."""

    name: str
    label: str
    target: str
    verdict: str
    """What the engine can take, in the words of :class:`aneforge.study.outcomes.Outcome`."""
    likely: str
    """What the runtime would likely give it: ``all``, ``416 of 417`` or ``none``."""
    ops: int
    engine_ops: int
    counts: dict[str, int]
    """Operations by status."""
    program: int | None = None
    """The place of its programs in the report; None where nothing runs."""
    also: tuple[str, ...] = ()
    """Other products with this engine: the same answers, other times."""
    engines: tuple[str, ...] = ()
    """Who says that it has this engine, and that the other products have it."""
    us: float | None = None
    interval: tuple[float, ...] = ()
    engine_us: float | None = None
    energy_mj: float | None = None
    shares: dict[str, float] = field(default_factory=dict)
    """Microseconds of the call by what they are spent on."""
    basis: str = ""
    basis_measured: bool = False
    peak: float | None = None
    """Operations a microsecond at most, and bytes: the roof."""
    bandwidth: float | None = None
    layer_us: tuple[float, ...] = ()
    """The time of each layer of its programs, in their order."""
    layer_bounds: str = ""
    """One letter of :data:`BOUNDS` for each layer."""
    weight_bytes: int = 0
    peak_l2: int = 0
    l2_bytes: int = 0
    memory_bytes: int = 0
    refused: str = ""
    """Why no engine runs any of it."""
    older: bool = False
    """A chip from before those that the published rules begin with."""
    spans: tuple[SpanRow, ...] = ()
    """What the call consists of beside the layers: with ``layer_us`` it adds up to ``us``."""
    macs: float = 0.0
    """Multiply-adds of a call: half of the layers' arithmetic."""
    traffic: float = 0.0
    """Bytes that pass the engine in a call."""
    loads: tuple[LoadRow, ...] = ()
    """Loading, waking and memory."""

    @property
    def grade(self) -> str:
        """One word for the verdict."""
        return grade_of(self.verdict)


@dataclass(frozen=True)
class FindingRow(ReportRow):
    """One reason of a verdict, with everything that it concerns. Its ``id`` is stable from run to run."""

    id: str
    rule: str
    grade: str
    """reject, oversize, risk, placement or decompose."""
    verdict: str
    message: str
    nodes: tuple[int, ...]
    chips: tuple[str, ...]
    evidence: str
    confidence: str
    stage: str
    route: str
    limit: Any = None
    """A number, ``{"one_of": [...]}`` or ``{"structure": name}``."""
    extent: Any = None
    basis: str = ""
    """What a finding about numbers rests on."""
    hint: str = ""
    rewrite: str = ""
    bound: str = ""
    says: str = ""
    """The compiler's own words."""
    sources: tuple[str, ...] = ()
    conflict: str = ""
    changes: tuple[int, ...] = ()
    """Changes of the report that are about one of its nodes."""


@dataclass(frozen=True)
class LayerRow(ReportRow):
    """One layer of a program: what one pass of an engine does."""

    number: int
    op: str
    engine: str
    shape: tuple[int, ...]
    sources: tuple[int, ...]
    inputs: tuple[int | str, ...]
    fused: tuple[str, ...] = ()
    region: int = 0
    segment: int = 0
    task_group: int = 0
    step: int = 0
    space: str = ""
    address: int | None = None
    bytes: int = 0
    live: tuple[int, ...] = ()
    allocation: str = ""
    chained: bool = False
    beside: int | None = None
    passes: int = 1
    flops: float = 0.0
    traffic: float = 0.0
    weight_bytes: int = 0


@dataclass(frozen=True)
class RegionRow(ReportRow):
    """A part of the model that one device runs."""

    number: int
    device: str
    ops: tuple[int, ...]
    us: float | None = None
    interval: tuple[float, ...] = ()


@dataclass(frozen=True)
class StepRow(ReportRow):
    """What one pass made of an operation."""

    op: int
    becomes: tuple[str, ...]
    pass_: str


@dataclass(frozen=True)
class WeightRow(ReportRow):
    """A stored constant of a program."""

    sources: tuple[int, ...]
    shape: tuple[int, ...]
    encoding: str
    bytes: int
    stored_bytes: int
    flow: str = ""


@dataclass(frozen=True)
class FactRow(ReportRow):
    """A fact of the chip that a pass read, and who says so."""

    name: str
    value: Any
    evidence: str
    confidence: str


@dataclass(frozen=True)
class ProgramRow(ReportRow):
    """The programs of chips that compile the model alike."""

    chips: tuple[str, ...]
    regions: tuple[RegionRow, ...]
    layers: tuple[LayerRow, ...]
    weights: tuple[WeightRow, ...]
    on_chip: tuple[int, ...]
    """Bytes on chip at every step of the schedule."""
    steps: tuple[StepRow, ...]
    """How each operation became what it is."""
    assumed: tuple[str, ...] = ()
    """Choices of ours that the compile rests on."""
    facts: tuple[FactRow, ...] = ()
    """What the passes of its steps read."""
    stats: dict[str, Any] = field(default_factory=dict)
    chain: str = ""
    """What every phase changed, the memory map and the task words; empty for a program of many layers."""


@dataclass(frozen=True)
class ChangeRow(ReportRow):
    """A change that was worked out, and the call after it on each chip that it helps."""

    name: str
    kind: str
    """precision, rewrite, cut or call."""
    cause: str
    what: str
    how: str
    numbers: str
    nodes: tuple[int, ...]
    us: dict[str, float]
    saved: dict[str, float]
    """The share of the call; below zero where it takes longer."""


@dataclass(frozen=True)
class StoredRow(ReportRow):
    """One stored form in every layer that can have it. A chip that is not named has no published answer."""

    name: str
    what: str
    layers: int
    bytes: int
    """Of all weights as they are stored in the file."""
    rounding: float | None
    """The root mean square of what the form changes over that of the weights, on a sample."""
    streaming: dict[str, int]
    """By chip, the layers whose kernel is read as it is stored; the others are expanded to fp16."""
    program_bytes: dict[str, int]
    us: dict[str, float]
    """The call, where it is known."""
    why: dict[str, str] = field(default_factory=dict)
    """Why a time is not known, or what leaves the engine."""
    evidence: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class RiskRow(ReportRow):
    """Operations in which a chip can lose numbers for the same reason."""

    id: str
    op: str
    kind: str
    message: str
    suggestion: str
    nodes: tuple[int, ...]
    chips: tuple[str, ...]
    worst: int | None = None
    """The operation that reaches furthest."""
    reaches: float | None = None
    limit: float | None = None
    lost: bool = False
    rewrite: str = ""
    basis: str = ""
    """What it rests on: promised, worst case, any finite input or any data."""


@dataclass(frozen=True)
class DivergenceRow(ReportRow):
    """Nodes in which chips can give other numbers than the reference for the same reason."""

    reference: str
    chips: tuple[str, ...]
    nodes: tuple[int, ...]
    worst: int | None = None
    """The node that can differ most."""
    bound: float | None = None
    """By how much at most; None where one chip can lose a number that the other keeps."""
    causes: tuple[str, ...] = ()
    """Empty where the nodes only read what differs already."""
    excluded: bool = False
    """The chips' ways differ, and the range of the data keeps both on the same one."""


@dataclass(frozen=True)
class MeasuredRow(ReportRow):
    """One operation as predicted here and as a Mac planned or timed it."""

    op: int
    predicted: str
    measured: str
    supported: tuple[str, ...] = ()
    predicted_share: float | None = None
    share: float | None = None
    us: float | None = None


@dataclass(frozen=True)
class MeasuredTable(ReportRow):
    """A file from a Mac beside the predictions for its chip."""

    chip: str
    file: str
    rows: tuple[MeasuredRow, ...]
    only_measured: tuple[str, ...] = ()
    """Operations of the file that have no partner in the model."""
    only_predicted: tuple[int, ...] = ()
    predicted: bool = False
    """Whether aneforge wrote the file: then nothing in it was measured."""
    os: str = ""
    latency_us: float | None = None

    @property
    def agreeing(self) -> int:
        """Operations on the predicted device."""
        return sum(row.predicted == row.measured for row in self.rows)
