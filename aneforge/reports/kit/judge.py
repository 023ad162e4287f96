"""What results show: which hypothesis of which unknown a chip behaves as, and what stays open."""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from aneforge import text
from aneforge.codegen.bounds import ContainerError
from aneforge.codegen.container import Container, read_container
from aneforge.codegen.record import is_own_debug
from aneforge.cost.machines import Relu, measured_copies
from aneforge.errors import AneforgeError
from aneforge.reports.kit.experiments import (
    COPIES,
    HOST,
    NAME,
    PLACEMENT,
    PROGRAM,
    TIMES,
    WORDS,
    Experiment,
    Hypothesis,
    experiments,
)
from aneforge.reports.kit.predict import KitSetting, Prediction, digest_of, predictions
from aneforge.reports.kit.programs import reading_of
from aneforge.reports.kit.results import CaseResult, KitResults, ResultsError
from aneforge.study.plan_files import ENGINE, ComputePlan, plan_from_json

CONFIRMS, CONTRADICTS, NONE, OPEN, NOT_RUN = "confirms", "contradicts", "none", "open", "not run"
OUTCOMES = {
    CONFIRMS: "the chip behaves as was chosen, and other readings are excluded",
    CONTRADICTS: "the chip behaves as another reading",
    NONE: "no reading that anybody thought of gives this",
    OPEN: "the results do not decide it",
    NOT_RUN: "it was not run, or not on the engine",
}
_FITS = 0.08
"""How far times may be from a law, as a share of them, and still follow it."""
_CLEARER = 2.0
"""How many times farther off the next law must be."""
_NOISY = 0.25
"""The middle half of the times of one model is apart by more than this: nothing is read from them."""
_GENERAL = "as assumed"
"""How a hypothesis begins that is another one on each chip."""
_RATE = 1.35
"""Two rates of copies are one where they are closer than this factor."""


@dataclass(frozen=True)
class KitOutcome:
    """What one experiment shows."""

    experiment: Experiment
    status: str
    alive: tuple[Hypothesis, ...] = ()
    """The hypotheses that predict what was seen; nobody can tell them apart on this chip."""
    excluded: tuple[Hypothesis, ...] = ()
    says: str = ""

    @property
    def unknown(self) -> str:
        """What its hypotheses are about."""
        return self.experiment.about[0]

    @property
    def unknowns(self) -> list[str]:
        """All that it decides: of those behind the first only whether they stand as chosen."""
        return [self.unknown, *(number for number in self.experiment.about[1:] if number.startswith("U"))]

    @property
    def reading(self) -> int | None:
        """Which reading of the unknown it speaks for: 0 is the choice."""
        known = [row.stands_for for row in self.alive if row.stands_for is not None]
        return min(known, default=None)

    def in_words(self, chip: str) -> str:
        head = f"{self.experiment.id} {self.experiment.name} ({', '.join(self.experiment.about)})"
        if self.status in (CONFIRMS, CONTRADICTS):
            number = self.experiment.hypotheses.index(self.alive[0]) + 1
            said = [row.name for row in self.alive if not row.name.startswith(_GENERAL)]
            names = " or ".join(said or [row.name for row in self.alive])
            verb = "as was chosen" if self.status == CONFIRMS else f"against the choice of {self.unknown}"
            tail = f"; {self.says}" if self.says else ""
            against = [name for name in self.experiment.about[1:] if name.startswith("C")]
            contradicts = f"; it bears on {', '.join(against)}" if against and self.status == CONTRADICTS else ""
            return f"{head}: your {chip} behaves as hypothesis {number}: {names} ({verb}){contradicts}{tail}"
        return f"{head}: {OUTCOMES[self.status]}{f': {self.says}' if self.says else ''}"

    def to_json(self) -> dict[str, Any]:
        return {
            "experiment": self.experiment.id,
            "about": list(self.experiment.about),
            "status": self.status,
            "alive": [row.name for row in self.alive],
            "excluded": [row.name for row in self.excluded],
            "reading": self.reading,
            "says": self.says,
        }


@dataclass(frozen=True)
class Findings:
    """What one file of results shows."""

    results: KitResults
    outcomes: tuple[KitOutcome, ...]
    disagreements: tuple[str, ...] = ()

    def by_unknown(self) -> dict[str, list[KitOutcome]]:
        """What decides something about each unknown."""
        decided: dict[str, list[KitOutcome]] = {}
        for row in self.outcomes:
            if row.status in (CONFIRMS, CONTRADICTS, NONE):
                for number in row.unknowns:
                    decided.setdefault(number, []).append(row)
        return decided

    @property
    def settled(self) -> list[str]:
        """The unknowns that stand as chosen on this chip."""
        return [number for number, rows in self.by_unknown().items() if all(row.status == CONFIRMS for row in rows)]

    @property
    def reopened(self) -> list[str]:
        """The unknowns of which something speaks against the choice."""
        return [number for number, rows in self.by_unknown().items() if any(row.status != CONFIRMS for row in rows)]

    def __str__(self) -> str:
        machine = self.results.machine
        lines = [f"{machine.chip} ({self.results.target.name}), {machine.os} ({machine.build})", ""]
        lines += [row.in_words(machine.chip) for row in self.outcomes if row.status != NOT_RUN]
        idle = [row.experiment.id for row in self.outcomes if row.status == NOT_RUN]
        lines += [
            "",
            f"as chosen: {', '.join(self.settled) or 'none'}",
            f"reopened: {', '.join(self.reopened) or 'none'}",
        ]
        lines += [f"not run, or not on the engine: {', '.join(idle)}"] if idle else []
        return "\n".join([*lines, *self.disagreements])

    def to_json(self) -> dict[str, Any]:
        machine = self.results.machine
        about = {"chip": machine.chip, "target": self.results.target.name, "os": machine.os, "build": machine.build}
        outcomes = [row.to_json() for row in self.outcomes]
        decided = {"as_chosen": self.settled, "reopened": self.reopened, "disagreements": list(self.disagreements)}
        return {**about, "outcomes": outcomes, **decided}


def judged(results: KitResults, others: Sequence[KitResults] = ()) -> Findings:
    """What results show; ``others`` are earlier ones, of which a disagreement is named."""
    setting = KitSetting(results.machine.chip, results.machine.os)
    outcomes = tuple(_outcome(results, entry, setting) for entry in experiments().values())
    return Findings(results, outcomes, tuple(disagreements(results, others)))


def disagreements(results: KitResults, others: Sequence[KitResults]) -> Iterable[str]:
    """Words and devices that two machines with one engine do not have in common: a conflict, and not an average."""
    for other in others:
        if other.target.td_generation != results.target.td_generation:
            continue
        for entry in experiments().values():
            one, two = (_exact(each.cases(entry), entry) for each in (results, other))
            if one and two and one != two:
                yield (
                    f"conflict: {entry.id} {entry.name}: {results.machine.chip} ({results.machine.os}) and "
                    f"{other.machine.chip} ({other.machine.os}) differ; neither is taken"
                )


def _exact(rows: Sequence[CaseResult], experiment: Experiment) -> Any:
    """What two machines with one engine must have in common."""
    if not rows or any(row.status != "ran" for row in rows):
        return None
    if experiment.kind == WORDS:
        on = all(_on_engine(row, experiment) for row in rows)
        return [{name: out.sha256 for name, out in row.outputs.items()} for row in rows] if on else None
    return [_devices(row, experiment) for row in rows] if experiment.kind == PLACEMENT else None


def _outcome(results: KitResults, experiment: Experiment, setting: KitSetting) -> KitOutcome:
    rows = results.cases(experiment)
    if not rows or not experiment.asks_of(setting.chip) or all(row.status == "skipped" for row in rows):
        return KitOutcome(experiment, NOT_RUN)
    failed = [row for row in rows if row.status != "ran"]
    if failed and experiment.watch != ("compiles",):
        return KitOutcome(experiment, NOT_RUN, says=failed[0].message)
    if experiment.kind == WORDS and not all(_on_engine(row, experiment) for row in rows):
        return KitOutcome(experiment, NOT_RUN, says="Core ML kept it off the engine")
    if not all(row.stable for row in rows):
        return KitOutcome(experiment, OPEN, says="two calls gave different numbers")
    said = predictions(experiment, setting)
    if all(row.cases is None for row in said):
        return KitOutcome(experiment, OPEN, says="no hypothesis says anything about this chip")
    try:
        alive, says = _JUDGES[experiment.kind](results, rows, [row for row in said if row.cases is not None])
    except AneforgeError as error:
        return KitOutcome(experiment, OPEN, says=str(error))
    return _decided(experiment, said, alive, says)


def _decided(
    experiment: Experiment, said: Sequence[Prediction], alive: list[Prediction] | None, says: str
) -> KitOutcome:
    """The outcome by what is left alive; None where the results do not decide."""
    if alive is None:
        return KitOutcome(experiment, OPEN, says=says)
    if not alive:
        return KitOutcome(experiment, NONE, excluded=experiment.hypotheses, says=says)
    kept = tuple(row.hypothesis for row in alive)
    gone = tuple(row.hypothesis for row in said if row.hypothesis not in kept and row.cases is not None)
    if not gone and len(said) > 1:
        return KitOutcome(experiment, OPEN, kept, says="on this chip all hypotheses predict the same")
    chosen = any(row.stands_for == 0 for row in kept) or (len(said) == 1)
    return KitOutcome(experiment, CONFIRMS if chosen else CONTRADICTS, kept, gone, says)


# One judge for each kind: the hypotheses that stay alive (None: undecided), and what else to say.

Judgement = tuple["list[Prediction] | None", str]


def _judge_words(results: KitResults, rows: Sequence[CaseResult], said: Sequence[Prediction]) -> Judgement:
    seen = [{name: out.sha256 for name, out in row.outputs.items()} for row in rows]
    alive = [p for p in said if [{n: digest_of(w) for n, w in case.items()} for case in p.cases or ()] == seen]
    if alive:
        return alive, ""
    scores = [(_equal_words(rows, p), p.hypothesis.name) for p in said]
    (share, name) = max(scores, key=lambda score: score[0])
    return [], f"the nearest is {name!r} with {share:.1%} of the words"


def _equal_words(rows: Sequence[CaseResult], prediction: Prediction) -> float:
    equal = total = 0
    for row, case in zip(rows, prediction.cases or (), strict=True):
        for name, out in row.outputs.items():
            words = case[name][: len(out.array)]
            equal, total = equal + int((words == out.array).sum()), total + len(words)
    return equal / max(total, 1)


def _judge_placement(results: KitResults, rows: Sequence[CaseResult], said: Sequence[Prediction]) -> Judgement:
    experiment = experiments()[rows[0].id]
    seen = [_devices(row, experiment) for row in rows]
    off = [name for case in seen for name, taken in case.items() if not taken]
    return [p for p in said if list(p.cases or ()) == seen], f"off the engine: {', '.join(off)}" if off else ""


def _judge_times(results: KitResults, rows: Sequence[CaseResult], said: Sequence[Prediction]) -> Judgement:
    """The law whose shape the times follow: a start and a rate of the machine's own are allowed for."""
    if max(row.spread for row in rows) > _NOISY:
        return None, "the times of one model are too far apart"
    seen = np.array([row.us for row in rows])
    groups = text.grouped(said, lambda p: p.key)
    misfits = sorted((_misfit(seen, np.array(group[0].cases)), key) for key, group in groups.items())
    best, key = misfits[0]
    says = f"times are {best:.0%} off this law"
    if best > _FITS:
        return [], f"times are {best:.0%} off the nearest law"
    if len(misfits) > 1 and misfits[1][0] < max(_CLEARER * best, 0.02):
        return None, "the laws are too close to each other for these times"
    return groups[key], says


def _misfit(seen: np.ndarray, law: np.ndarray) -> float:
    """How far times are from a law at best, with a start and a rate that are free."""
    columns = np.stack([1 / seen, law / seen], axis=1)
    (start, rate), *_ = np.linalg.lstsq(columns, np.ones(len(seen)), rcond=None)
    if rate <= 0:
        return float("inf")
    return float(np.sqrt(np.mean((columns @ np.array([start, rate]) - 1) ** 2)))


def _judge_copies(results: KitResults, rows: Sequence[CaseResult], said: Sequence[Prediction]) -> Judgement:
    rate = copies_of(results).copy_gbs
    off = {id(p): abs(np.log(p.cases[0] / rate)) for p in said if p.cases}
    nearest = min(said, key=lambda p: off[id(p)])
    says = f"the host copies {rate:.1f} GB/s"
    return ([nearest] if off[id(nearest)] < np.log(_RATE) else []), says


def copies_of(results: KitResults) -> Any:
    """The rate of the host's copies and the start of a call, from the experiment about copies."""
    experiment = next(entry for entry in experiments().values() if entry.kind == COPIES)
    rows = results.cases(experiment)
    if not rows or any(row.status != "ran" for row in rows):
        raise AneforgeError(
            f"{experiment.id} was not run, which measures copies. Run it: python3 run.py {experiment.id}"
        )
    sizes = [int(np.prod(experiment.inputs(case)["x"].shape)) for case in experiment.cases]
    calls = [Relu(size, row.us) for size, row in zip(sizes, rows, strict=True)]
    return measured_copies(calls, KitSetting(results.machine.chip).name)


def _judge_host(results: KitResults, rows: Sequence[CaseResult], said: Sequence[Prediction]) -> Judgement:
    inside = []
    for prediction in said:
        bands: Any = prediction.cases
        if all(low <= row.us <= high for row, (low, high) in zip(rows, bands, strict=True)):
            inside.append(prediction)
    return (inside or None), ", ".join(f"{row.us:,.0f} us" for row in rows)


def _judge_name(results: KitResults, rows: Sequence[CaseResult], said: Sequence[Prediction]) -> Judgement:
    names = results.machine.engine_names
    if not names:
        return None, "the engine's name could not be read"
    return [p for p in said if p.cases and p.cases[0] in names], f"the system says {', '.join(names)}"


def _judge_programs(results: KitResults, rows: Sequence[CaseResult], said: Sequence[Prediction]) -> Judgement:
    watch = experiments()[rows[0].id].watch
    seen = [reading_of(_program(row), watch) if row.status == "ran" else {"compiles": False} for row in rows]
    shown = "; ".join(", ".join(f"{name} {value}" for name, value in case.items()) for case in seen)
    return [p for p in said if list(p.cases or ()) == seen], shown if len(shown) < 90 else ""


def _program(row: CaseResult) -> Container:
    try:
        container = read_container(_unpacked(row.program))
        section = container.section("__debug_info", "__DEBUG")
    except (ContainerError, binascii.Error, zlib.error) as error:
        raise ResultsError(f"{row.id} case {row.case + 1}: its program cannot be read: {error}") from None
    if section is not None and is_own_debug(container.contents(section).data):
        raise ResultsError(f"{row.id} case {row.case + 1}: the program must be the vendor's; aneforge wrote this one")
    return container


def _unpacked(program: str) -> bytes:
    """The bytes of a program, which the runner packed; no more of them than a program of the kit has."""
    return zlib.decompressobj().decompress(base64.b64decode(program, validate=True), _MOST_PROGRAM)


_MOST_PROGRAM = 64 << 20

_JUDGES = {
    WORDS: _judge_words,
    PLACEMENT: _judge_placement,
    TIMES: _judge_times,
    COPIES: _judge_copies,
    HOST: _judge_host,
    NAME: _judge_name,
    PROGRAM: _judge_programs,
}


def plan_of(row: CaseResult) -> ComputePlan:
    """The compute plan of one model."""
    return plan_from_json({"operations": list(row.plan)}, f"{row.id} case {row.case + 1}")


def _devices(row: CaseResult, experiment: Experiment) -> dict[str, bool]:
    """Whether the engine can take each operation that is watched."""
    plan = {op.name: ENGINE in (op.preferred, *op.supported) for op in plan_of(row).operations}
    return {name: plan.get(name, False) for name in experiment.watch}


def _on_engine(row: CaseResult, experiment: Experiment) -> bool:
    """Whether Core ML put the operations whose numbers are looked at on the engine."""
    if row.status != "ran" or not row.plan:
        return False
    preferred: Mapping[str, str | None] = {op.name: op.preferred for op in plan_of(row).operations}
    return all(preferred.get(name) == ENGINE for name in experiment.outputs(experiment.cases[row.case]))
