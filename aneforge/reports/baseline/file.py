"""The file of a baseline: read with one clear error for all that can be wrong, written whole or not at all."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from aneforge.chips.chip import target_names
from aneforge.documents import Misshapen, read_json, typed
from aneforge.errors import AneforgeError, LoadError
from aneforge.files import write_whole
from aneforge.graph.graph import Graph

# The numbers of a file that a model is run on, and hashes of numbers.


Array = np.ndarray


def given_inputs(graph: Graph, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """Somebody's own arrays, in the order of the inputs, if they fit these."""
    names = graph.names()
    ports = {names[port.uid]: port for port in graph.inputs}
    takes = ", ".join(f"{name} {list(port.shape)}" for name, port in ports.items())
    for name in feeds:
        if name not in ports:
            raise AneforgeError(f"{name}: not an input of the model. Choose from: {takes}.")
    for name, port in ports.items():
        if name not in feeds:
            raise AneforgeError(f"{name}: this input has no value. The model takes {takes}.")
        if feeds[name].shape != port.shape or feeds[name].dtype.kind not in "fiub":
            shown = f"{feeds[name].dtype} {list(feeds[name].shape)}"
            raise AneforgeError(f"{name}: {shown} was given; the input takes numbers of shape {list(port.shape)}.")
    return {name: feeds[name] for name in ports}


def array_hash(array: Array) -> str:
    """Equal for the same numbers in the same type and shape, on every machine."""
    contiguous = np.ascontiguousarray(array)
    little = contiguous.astype(contiguous.dtype.newbyteorder("<"), copy=False)
    digest = hashlib.blake2b(f"{little.dtype.str} {contiguous.shape}".encode(), digest_size=12)
    digest.update(little.tobytes())
    return digest.hexdigest()


def shape_text(shape: tuple[int, ...]) -> str:
    """``1x3x8x8``: one word, so that a shape is one line of a file."""
    return "x".join(map(str, shape)) or "scalar"


# What a baseline holds: a model on several chips, as it was when somebody last looked.


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
class BaselineRefusal:
    """Why no program results: who refused, the user's nodes, and the rule or reason."""

    by: str
    nodes: tuple[str, ...]
    why: str


@dataclass(frozen=True)
class VerdictRecord:
    """What the engine takes of the model. ``nodes`` holds those that are not simply native, each with its status and
    rules."""

    engine: str
    """As :attr:`aneforge.study.outcomes.Outcome.words` has it."""
    on_engine: int
    """How many ops of the model the engine can take."""
    likely: int
    """How many of them the runtime is likely to give it."""
    refused: BaselineRefusal | None
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


KIND = "aneforge baseline"


class BaselineError(AneforgeError):
    """A baseline that cannot be compared with. ``replaceable``: it is one of ours, so ``--update`` may replace it."""

    def __init__(self, message: str, replaceable: bool = False) -> None:
        super().__init__(message)
        self.replaceable = replaceable


def baseline_text(baseline: Baseline) -> str:
    """The file's content; the same baseline gives the same bytes, one fact on a line."""
    document = {"kind": KIND, "format": FORMAT, **dataclasses.asdict(baseline)}
    return json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def save_baseline(baseline: Baseline, path: str | Path, overwrite: bool = False) -> None:
    """Write a baseline. One that is there stays unless ``overwrite`` says otherwise."""
    file = Path(path)
    if not overwrite and (file.exists() or file.is_symlink()):
        raise AneforgeError(f"{file}: the file exists and was not changed. Use aneforge ci update to replace it.")
    write_whole(file, baseline_text(baseline))


def load_baseline(path: str | Path) -> Baseline:
    """Read a baseline, and check all of it."""
    file = Path(path)
    try:
        document = read_json(file)
    except LoadError as error:
        raise BaselineError(f"{error}; restore the committed file, or remove it and run aneforge ci record") from None
    if not isinstance(document, dict) or document.get("kind") != KIND:
        raise BaselineError(f"{file}: not a baseline of aneforge (it lacks 'kind': '{KIND}'); give another file")
    if document.get("format") != FORMAT:
        raise BaselineError(
            f"{file}: a baseline of format {document.get('format')!r}, and aneforge {_own_version()} reads format "
            f"{FORMAT} (it was written by aneforge {document.get('aneforge', 'unknown')}); use that version, or "
            "replace it with aneforge ci update",
            replaceable=True,
        )
    try:
        return _checked(typed(Baseline, _without_head(document)))
    except Misshapen as error:
        raise BaselineError(
            f"{file}: {error}; restore the committed file, or replace it with aneforge ci update", replaceable=True
        ) from None


def _without_head(document: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in document.items() if name not in ("kind", "format")}


def _own_version() -> str:
    from aneforge.version import __version__

    return __version__


def _checked(baseline: Baseline) -> Baseline:
    """What types cannot say: names must point at something."""
    unknown = [check for check in baseline.checks if check not in CHECKS]
    if unknown:
        raise Misshapen(f"'checks' holds {unknown[0]!r}; it takes {', '.join(CHECKS)}")
    strange = [name for name in baseline.targets if name not in target_names()]
    if strange:
        raise Misshapen(f"target {strange[0]!r} is none that aneforge {_own_version()} knows")
    named = [name for group in baseline.programs for name in group] + [baseline.against]
    lost = [name for name in named if name is not None and name not in baseline.targets]
    if lost:
        raise Misshapen(f"{lost[0]!r} is named and not among the targets")
    for name, record in baseline.targets.items():
        for output, numbers in (record.numerics or {}).items():
            if not re.fullmatch("([0-9a-f]{4})*", numbers.sample):
                raise Misshapen(f"'targets.{name}.numerics.{output}.sample' is not a text of fp16 bits")
        if record.estimate is not None and not record.estimate.us > 0:
            raise Misshapen(f"'targets.{name}.estimate.us' is {record.estimate.us}, not a time")
    return baseline
