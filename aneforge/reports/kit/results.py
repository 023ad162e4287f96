"""The file that a runner writes on a Mac: read as a stranger's file, and refused where it cannot be what it says."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from aneforge.chips.chip import Target
from aneforge.chips.devices import find_devices, is_identifier
from aneforge.cost.constants import basis_of, physique_of
from aneforge.documents import read_json, typed
from aneforge.errors import AneforgeError, UnknownNameError, first_line
from aneforge.reports.kit.experiments import MEASURED_TIMES, PROGRAM, SEED, WORDS, Experiment, experiments
from aneforge.reports.kit.predict import KitSetting
from aneforge.reports.kit.runner.run import MOST_WORDS, seal
from aneforge.reports.kit.write import RESULTS_KIND, SCHEMA
from aneforge.study.contribute import checked_origin
from aneforge.version import __version__

_MOST_BYTES = 64 << 20
_RUNNERS = ("run.py", "run.swift")
_LEAST_US = 5.0  # no call of Core ML is known to take less than ten times as long
_ABOVE_PEAK = 2.0  # times the announced rate, which no layer passes
_PASSES = 4.0  # times the memory's bandwidth: caches are faster
_AGAIN = "Run the kit again, and send the file as it was written."


class ResultsError(AneforgeError):
    """A file of results that cannot be used."""


@dataclass(frozen=True)
class KitStamp:
    """Which kit asked."""

    version: str
    seed: int
    digest: str


@dataclass(frozen=True)
class RunnerStamp:
    """Which runner, and what a time covers."""

    name: str
    scope: str
    library: str


@dataclass(frozen=True)
class MachineStamp:
    """The machine without anything that names its owner."""

    chip: str
    model: str
    os: str
    build: str
    memory_gb: int
    engine_names: tuple[str, ...]
    power: str
    low_power: bool
    thermal: str


@dataclass(frozen=True)
class ResultWords:
    """One result as fp16 words: all of them where they are few."""

    shape: tuple[int, ...]
    sha256: str
    words: str

    @cached_property
    def array(self) -> np.ndarray:
        return np.frombuffer(bytes.fromhex(self.words), ">u2").astype(np.uint16)

    @property
    def count(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True)
class CaseResult:
    """What one case of an experiment gave."""

    id: str
    case: int
    asked: str
    status: str
    message: str = ""
    thermal: str = ""
    plan: tuple[dict[str, Any], ...] = ()
    times_ns: tuple[int, ...] = ()
    outputs: dict[str, ResultWords] = field(default_factory=dict)
    stable: bool = True
    program: str = ""

    @property
    def us(self) -> float:
        """The median of the times."""
        return median(self.times_ns) / 1e3

    @property
    def spread(self) -> float:
        """How far the middle half of the times is apart, of their median."""
        low, high = np.quantile(self.times_ns, (0.25, 0.75))
        return float((high - low) / median(self.times_ns))


@dataclass(frozen=True)
class KitResults:
    """Everything that a runner wrote."""

    schema: int
    kind: str
    kit: KitStamp
    machine: MachineStamp
    runner: RunnerStamp
    results: tuple[CaseResult, ...]
    took_s: float
    digest: str

    @property
    def target(self) -> Target:
        return KitSetting(self.machine.chip).target

    def cases(self, experiment: Experiment) -> list[CaseResult]:
        """The results of an experiment in the order of its cases; empty where one is missing."""
        rows = sorted((row for row in self.results if row.id == experiment.id), key=lambda row: row.case)
        return rows if len(rows) == len(experiment.cases) else []


def is_results(document: Any) -> bool:
    """Whether a document says that it is a file of results."""
    return isinstance(document, dict) and document.get("kind") == RESULTS_KIND


def read_results(path: str | Path) -> KitResults:
    """The results in a file, held against everything that can be checked without the machine."""
    return results_of(read_json(path, _MOST_BYTES), str(path))


def results_of(document: Any, where: str) -> KitResults:
    """The results in a document."""
    if not is_results(document):
        raise ResultsError(f"{where}: not results of a kit; expected the file that run.py or run.swift wrote.")
    marks = [name for name in ("simulated", "predicted") if document.get(name)]
    if marks:
        raise ResultsError(f"{where}: it says that it is {marks[0]}, and a prediction is not evidence. {_AGAIN}")
    try:
        results: KitResults = typed(KitResults, document)
        expected = seal(document)
    except (ValueError, KeyError, TypeError, AttributeError) as error:  # Misshapen is a ValueError
        raise ResultsError(f"{where}: {first_line(error)}. {_AGAIN}") from None
    for problem in _problems(results, expected):
        raise ResultsError(f"{where}: {problem}")
    return results


def _problems(results: KitResults, expected: str) -> Iterator[str]:
    """Why a file cannot be used, the gravest reason first."""
    kit = results.kit
    if results.schema != SCHEMA or kit.version != __version__:
        yield (
            f"schema {results.schema}, from a kit of aneforge {kit.version}; this is aneforge {__version__}, schema "
            f"{SCHEMA}. Use that version, or write a new kit and run it."
        )
    if kit.seed != SEED:
        yield f"seed {kit.seed}; the kit's is {SEED}. {_AGAIN}"
    if results.runner.name not in _RUNNERS:
        yield f"runner {results.runner.name!r} is not one of {', '.join(_RUNNERS)}. {_AGAIN}"
    if results.digest != expected:
        yield f"its digest does not fit what it says: it was cut or changed. {_AGAIN}"
    yield from _machine_problems(results.machine)
    seen: set[tuple[str, int]] = set()
    for row in results.results:
        here = f"{row.id} case {row.case + 1}"
        experiment = experiments().get(row.id)
        if experiment is None or not 0 <= row.case < len(experiment.cases):
            yield f"{here}: this kit has no such experiment. {_AGAIN}"
            return
        if (row.id, row.case) in seen:
            yield f"{here}: it is there twice. {_AGAIN}"
        seen.add((row.id, row.case))
        if row.asked != experiment.digest():
            yield f"{here}: the question ({row.asked[:8]}) is not the one of this kit. Write a new kit and run it."
        if row.status == "ran":
            yield from (f"{here}: {problem}. {_AGAIN}" for problem in _case_problems(results, row, experiment))
    total = sum(sum(row.times_ns) for row in results.results) / 1e9
    if total > results.took_s + 0.2:
        yield f"the calls take {total:.1f} s, and the whole run {results.took_s:.1f} s: times were changed. {_AGAIN}"


def _machine_problems(machine: MachineStamp) -> Iterator[str]:
    try:
        target = KitSetting(machine.chip).target
        devices = find_devices(machine.model) if is_identifier(machine.model) else []
    except UnknownNameError as error:
        yield f"machine: {error}"
        return
    chips = {device.chip for device in devices}
    if chips and machine.chip not in chips:
        yield f"machine: {machine.model} has {' or '.join(sorted(chips))}, and the file says {machine.chip}. {_AGAIN}"
    try:
        checked_origin(f"{machine.os} ({machine.build})" if machine.build else machine.os, "kit")
    except AneforgeError:
        yield f"machine: {machine.os!r} with build {machine.build!r} is not a system. {_AGAIN}"
    digits = "".join(filter(str.isdigit, target.name))
    for name in machine.engine_names:
        if "".join(filter(str.isdigit, name)) != digits:
            yield f"machine: an {machine.chip} has an engine of {target.name}, and the file says {name}. {_AGAIN}"


def _case_problems(results: KitResults, row: CaseResult, experiment: Experiment) -> Iterator[str]:
    """What is impossible about one case."""
    for name, result in row.outputs.items():
        kept = min(result.count, MOST_WORDS)
        try:
            words = result.array
        except ValueError:
            yield f"{name}: its words are not hexadecimal"
            return
        if len(words) != kept:
            yield f"{name}: {len(words)} words, expected {kept} for {list(result.shape)}"
        elif kept == result.count and hashlib.sha256(words.astype("<u2").tobytes()).hexdigest() != result.sha256:
            yield f"{name}: its hash is not that of its words"
    case = experiment.cases[row.case]
    if experiment.kind == WORDS:
        outputs = experiment.graph_of(case).outputs
        expected = {name: node.shape for name, node in zip(experiment.outputs(case), outputs, strict=True)}
        shapes = {name: result.shape for name, result in row.outputs.items()}
        if shapes != expected:
            yield f"it has the results {_listed(shapes)}, expected {_listed(expected)}"
    if experiment.kind == PROGRAM or not experiment.graph:
        return
    if not row.times_ns:
        yield "it has no times"
        return
    least = _least_us(experiment, row.case, results.target, results.machine.chip)
    if min(row.times_ns) < 1e3 * least:
        yield f"a call of {min(row.times_ns) / 1e3:.1f} us is impossible: the chip needs {least:.1f} us or more"
    if experiment.kind in MEASURED_TIMES and len(set(row.times_ns)) < len(row.times_ns) // 3:
        yield "its times repeat each other, as no clock does"


def _listed(shapes: dict[str, tuple[int, ...]]) -> str:
    return ", ".join(f"{name} {list(shape)}" for name, shape in shapes.items()) or "none"


def _least_us(experiment: Experiment, number: int, target: Target, chip: str) -> float:
    """What no machine with this chip can stay below: announced rates, with room."""
    if experiment.units == "cpuOnly":
        return _LEAST_US / 5
    record = experiment.record(experiment.cases[number])
    moved = 2.0 * sum(math.prod(recipe["shape"]) for recipe in record["inputs"].values())
    weights = [recipe["shape"] for recipe in record.get("weights", {}).values()]
    physique = physique_of(basis_of(target).chip)
    products = sum(math.prod(shape) for shape in weights)
    return max(_LEAST_US, moved / (_PASSES * physique.memory), products / (_ABOVE_PEAK * physique.macs))
