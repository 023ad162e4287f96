"""What each hypothesis says that a chip would show: worked out by the simulator, the check, the compiler or the cost
model, under what the hypothesis supposes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import isfinite
from typing import Any

import numpy as np

from aneforge.chips.chip import Target
from aneforge.chips.devices import chip_records
from aneforge.chips.names import target as target_of
from aneforge.chips.suppose import supposing
from aneforge.chips.systems import system_of_report
from aneforge.compiler.legal.judge import judge
from aneforge.compiler.legal.translate import query_of
from aneforge.compiler.refusal import CompileError
from aneforge.cost.constants import basis_of
from aneforge.cost.machines import assumed_copies
from aneforge.cost.parts import host_band
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
from aneforge.study.model import Model, build
from aneforge.study.plan import plan_of_partition
from aneforge.study.plan_files import ENGINE
from aneforge.study.study import Study

SCOPE = "coreml_call"


@dataclass(frozen=True)
class KitSetting:
    """Where an experiment runs."""

    chip: str
    """The product, such as M3 Pro."""
    os: str | None = None
    """The version of the system, such as macOS 26.1."""

    @property
    def name(self) -> str:
        """The product as look-ups take it: A18 alone is also a family."""
        return f"product:{self.chip}" if self.chip in chip_records() else self.chip

    @property
    def target(self) -> Target:
        return target_of(self.name)


@dataclass(frozen=True)
class Prediction:
    """What a hypothesis says that would be observed in each case; None where it says nothing on this chip."""

    hypothesis: Hypothesis
    cases: tuple[Any, ...] | None
    refusal: str = ""

    @property
    def key(self) -> str:
        """Equal for hypotheses that nobody can tell apart on this chip."""
        return repr([_plain(case) for case in self.cases or ()])

    def in_words(self, place: int = 0) -> str:
        """What is predicted, for a line; of results their first words from some place on."""
        if _is_words((self.cases or ({},))[0]):
            results = (self.cases or ({},))[0].items()
            shown = (" ".join(f"{word:04x}" for word in words[place : place + 4].tolist()) for _, words in results)
            where = f"from word {place} on" if place else "begins"
            return "; ".join(f"{name} {where} {words}" for (name, _), words in zip(results, shown, strict=True))
        shown = ", ".join(_number(case) for case in self.cases or ())
        return shown if len(shown) < 100 else f"{shown[:97]}..."

    def to_json(self) -> dict[str, Any]:
        shown = None if self.cases is None else [_shown(case) for case in self.cases]
        return {"hypothesis": self.hypothesis.name, "stands_for": self.hypothesis.stands_for, "predicted": shown}


def predictions(experiment: Experiment, setting: KitSetting) -> list[Prediction]:
    """What every hypothesis of an experiment says of one chip."""
    if not experiment.asks_of(setting.chip):
        return [Prediction(hypothesis, None, "asked of other chips") for hypothesis in experiment.hypotheses]
    return [_prediction(experiment, hypothesis, setting) for hypothesis in experiment.hypotheses]


def _prediction(experiment: Experiment, hypothesis: Hypothesis, setting: KitSetting) -> Prediction:
    observe = _OBSERVERS[experiment.kind]
    try:
        with supposing(hypothesis.suppose):
            return Prediction(
                hypothesis, tuple(observe(experiment, case, hypothesis, setting) for case in experiment.cases)
            )
    except CompileError as error:
        return Prediction(hypothesis, None, str(error))


def words_of(array: np.ndarray) -> np.ndarray:
    """Numbers as fp16 words; every NaN is the same."""
    halves = np.ascontiguousarray(array, np.float16).reshape(-1)
    return np.where(np.isnan(halves), np.uint16(0x7E00), halves.view(np.uint16))


def digest_of(words: np.ndarray) -> str:
    """The hash of words in their order, little endian."""
    return hashlib.sha256(words.astype("<u2").tobytes()).hexdigest()


def simulated(
    experiment: Experiment, case: Mapping[str, Any], hypothesis: Hypothesis, setting: KitSetting
) -> dict[str, np.ndarray]:
    """The words of every result, as the simulator gives them."""
    model = build(experiment.graph_of(case, hypothesis), setting.target)
    results = model(*experiment.inputs(case).values())
    arrays = results if isinstance(results, (list, tuple)) else [results]
    return {name: words_of(array) for name, array in zip(experiment.outputs(case), arrays, strict=True)}


def _placed(
    experiment: Experiment, case: Mapping[str, Any], hypothesis: Hypothesis, setting: KitSetting
) -> dict[str, bool]:
    """Whether the engine can take each operation that is watched."""
    graph, os = experiment.graph_of(case, hypothesis), setting.os and system_of_report(setting.os)
    (split,) = Study(graph, setting.name, os=os, runtime="coreml").judged().values()
    plan = plan_of_partition(split, setting.name)
    taken = {op.name: ENGINE in op.supported for op in plan.operations if op.name in experiment.watch}
    for node in graph.nodes:  # Core ML replaces no op by others, as the compiler here does
        if taken.get(node.name or ""):
            query, route = query_of(node.signature), "coreml_placement"
            if experiment.form == "fp32":
                query, route = replace(query, dtype="fp32"), "conversion"
            taken[node.name or ""] = judge(query, setting.target, route, os).runs
    return {name: not runs for name, runs in taken.items()} if hypothesis.says == "otherwise" else taken


def _timed(experiment: Experiment, case: Mapping[str, Any], hypothesis: Hypothesis, setting: KitSetting) -> float:
    """Microseconds of one call."""
    return _program(experiment.id, experiment.cases.index(case), setting.name).estimate(SCOPE).us


@lru_cache(maxsize=16)
def _program(experiment: str, case: int, chip: str) -> Model:
    """The program that is timed: hypotheses about times suppose constants of the cost model, which no pass reads."""
    entry = experiments()[experiment]
    return build(entry.graph_of(entry.cases[case]), target_of(chip))


def _copied(experiment: Experiment, case: Mapping[str, Any], hypothesis: Hypothesis, setting: KitSetting) -> float:
    """GB/s of the host's copies."""
    return hypothesis.factor * assumed_copies(basis_of(setting.target), SCOPE)


def _on_the_host(
    experiment: Experiment, case: Mapping[str, Any], hypothesis: Hypothesis, setting: KitSetting
) -> tuple[float, float]:
    """Between which times the host's work lies."""
    graph = experiment.graph_of(case, hypothesis)
    low, high = host_band(node for node in graph.nodes if not node.definition.leaf)
    return {"within": (low, high), "above": (high, float("inf")), "below": (0.0, low)}[hypothesis.side]


def _named(experiment: Experiment, case: Mapping[str, Any], hypothesis: Hypothesis, setting: KitSetting) -> str:
    """What the system calls the engine."""
    record = chip_records().get(setting.chip)
    reported = record.reported.value if record is not None else None
    name = reported or setting.target.name
    compiled = record.compile.value if record is not None else None
    plain = name.rstrip("abcdefghijklmnopqrstuvwxyz")
    return {"reported": name, "compile": compiled or name, "g": f"{plain}g", "a": f"{plain}a"}[hypothesis.says]


def _compiled(experiment: Experiment, case: Mapping[str, Any], hypothesis: Hypothesis, setting: KitSetting) -> Any:
    """Tasks of the program for the target of the case, which any Mac can compile for."""
    from aneforge.codegen.emission import emit
    from aneforge.reports.kit.programs import reading_of

    graph = experiment.graph_of(case, hypothesis)
    if experiment.watch == ("compiles",):
        build(graph, case["target"], route="direct")
        return {"compiles": not (hypothesis.says == "refused" and case != experiment.cases[0])}
    program = build(graph, case["target"]).program
    reading = reading_of(emit(program), experiment.watch)
    layers = [_ENGINES[layer.engine] for layer in program.layers if layer.engine != "view"]
    if "engines" in reading and len(layers) == len(reading["engines"]):
        reading["engines"] = layers  # the words of a layer on another engine are not published
    return reading


_ENGINES = {"NE": "MAC", "DMA": "MAC", "PE": "planar", "TE": "planar"}
"""How the tasks of a program are told apart: those of the planar engine, and all others."""


_OBSERVERS = {
    WORDS: simulated,
    PLACEMENT: _placed,
    TIMES: _timed,
    COPIES: _copied,
    HOST: _on_the_host,
    PROGRAM: _compiled,
    NAME: _named,
}


def first_apart(said: Sequence[Prediction]) -> int:
    """The first word at which not all predictions of a result are the same; 0 where they are no words."""
    tables = [row.cases[0] for row in said if row.cases and _is_words(row.cases[0])]
    if len(tables) < 2:
        return 0
    lines = np.stack([np.concatenate(list(table.values())) for table in tables])
    apart = (lines != lines[0]).any(axis=0)
    return int(np.argmax(apart)) if len(tables[0]) == 1 and apart.any() else 0


def _plain(case: Any) -> Any:
    return {name: digest_of(words) for name, words in case.items()} if _is_words(case) else case


def _shown(case: Any) -> Any:
    """A prediction as the manifest states it: hashes and the first words of long results."""
    if not _is_words(case):
        # JSON has no infinity: a band without an end has null there.
        return [part if isfinite(part) else None for part in case] if isinstance(case, tuple) else case
    return {
        name: {"sha256": digest_of(w), "first": [f"{word:04x}" for word in w[:8].tolist()]} for name, w in case.items()
    }


def _number(case: Any) -> str:
    if isinstance(case, float):
        return f"{case:,.0f}" if case >= 100 else f"{case:.3g}"
    if isinstance(case, tuple):
        return " to ".join(_number(part) for part in case)
    return ", ".join(f"{name} {value}" for name, value in case.items()) if isinstance(case, dict) else str(case)


def _is_words(case: Any) -> bool:
    return isinstance(case, dict) and any(isinstance(value, np.ndarray) for value in case.values())
