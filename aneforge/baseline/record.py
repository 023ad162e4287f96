"""What a baseline holds: a model on several chips, as it was when somebody last looked."""

from __future__ import annotations

from dataclasses import dataclass, field

FORMAT = 2
CHECKS = ("verdict", "program", "numerics", "estimate")


@dataclass(frozen=True)
class ModelRecord:
    """Which model: how it was named on the command line, and hashes of its nodes and of its weights."""

    name: str
    dims: tuple[str, ...]
    function: str | None
    graph: str
    weights: str

    def command_words(self) -> str:
        """The model as it is typed."""
        words = [self.name, *(f"--dim {size}" for size in self.dims)]
        return " ".join([*words, *([f"--function {self.function}"] if self.function else [])])


@dataclass(frozen=True)
class InputRecord:
    """One input that the numerics rest on."""

    shape: str
    bits: str


@dataclass(frozen=True)
class Refusal:
    """Why no program results: who refused, the user's nodes, and the rule or reason."""

    by: str
    nodes: tuple[str, ...]
    why: str


@dataclass(frozen=True)
class VerdictRecord:
    """What the engine takes of the model. ``nodes`` holds those that are not simply native, each with its status and
    rules."""

    engine: str
    """``yes``, ``in part`` or ``no``."""
    on_engine: int
    """How many ops of the model the engine can take."""
    likely: int
    """How many of them the runtime is likely to give it."""
    refused: Refusal | None
    """Why it is not ``yes``: the first reason."""
    native: int
    nodes: dict[str, str] = field(default_factory=dict)

    @property
    def runs(self) -> bool:
        """Whether the engine computes anything of it."""
        return self.engine != "no"


@dataclass(frozen=True)
class ProgramRecord:
    """The size of a program, in figures that a reviewer would want to see change."""

    segments: int
    """Dispatches: each one more costs a call."""
    task_groups: int
    """How often the on-chip memory is emptied."""
    layers: int
    weight_bytes: int
    """As stored, with the copies that some chips need."""


@dataclass(frozen=True)
class Apart:
    """One output against the same output on the chip that the others are compared with."""

    ulp: int
    """The largest distance, in steps of fp16."""
    elements: int
    """How many elements have other bits."""


@dataclass(frozen=True)
class OutputRecord:
    """One output of a simulated run."""

    shape: str
    bits: str
    elements: int
    finite: int
    max_abs: float | None
    mean: float | None
    sample: str
    """Up to 64 of its values, evenly spaced, as fp16 bits, to show how far a later run has moved."""
    apart: Apart | None


@dataclass(frozen=True)
class EstimateRecord:
    us: float
    low: float
    high: float


@dataclass(frozen=True)
class TargetRecord:
    """One chip. A part is missing where no program results, or where the check was skipped."""

    verdict: VerdictRecord
    program: ProgramRecord | None
    numerics: dict[str, OutputRecord] | None
    estimate: EstimateRecord | None


@dataclass(frozen=True)
class Baseline:
    """The whole file but its heading. ``against`` is the chip whose numbers the others are compared with."""

    aneforge: str
    model: ModelRecord
    checks: tuple[str, ...]
    seed: int | None
    """None where the inputs came from a file."""
    inputs: dict[str, InputRecord]
    against: str | None
    scope: str
    programs: tuple[tuple[str, ...], ...]
    """Targets that get the very same program."""
    targets: dict[str, TargetRecord]
