"""What can be asked of a chip: the experiments of ``experiments.json``, and which of them a person wants."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from aneforge.chips.evidence import conflicts
from aneforge.documents import typed
from aneforge.errors import ArgumentError
from aneforge.graph.graph import Graph
from aneforge.reports.kit.graphs import built, inputs_of, with_case

WORDS, PLACEMENT, TIMES, COPIES, HOST, PROGRAM, NAME = (
    "words", "placement", "times", "copies", "host", "programs", "name",
)  # fmt: skip
KINDS = {
    WORDS: "the exact numbers that the engine gives",
    PLACEMENT: "which operations Core ML puts on the engine",
    TIMES: "how the time of a call grows with its work",
    COPIES: "how fast the host copies, and how long a call takes to start",
    HOST: "how fast the host computes",
    PROGRAM: "what the vendor's compiler makes of a network",
    NAME: "what the system calls its engine",
}
"""What each kind of experiment observes."""
MEASURED_TIMES = (TIMES, COPIES, HOST)
SEED = 0
_FILE = Path(__file__).with_name("experiments.json")


@dataclass(frozen=True)
class Hypothesis:
    """One way in which a chip may behave, and how the package predicts what would be seen then."""

    name: str
    suppose: Mapping[str, Any]
    """Facts and constants that hold then (:mod:`aneforge.chips.suppose`)."""
    stands_for: int | None = None
    """Which reading of the first unknown: 0 is what was chosen, 1 the first alternative, and so on."""
    graph: Mapping[str, Any] | None = None
    """Another graph that gives the numbers of this hypothesis, where no parameter of the simulator does."""
    factor: float = 1.0
    """Of a rate: how many times what is assumed."""
    side: str = "within"
    """Of a band: within, above or below."""
    says: str = ""
    """Of a name: reported, compile, g or a; of a placement: otherwise; of a compile: refused."""


@dataclass(frozen=True)
class Experiment:
    """One question to a chip."""

    id: str
    name: str
    about: tuple[str, ...]
    """The unknowns that it bears on; its hypotheses are about the first."""
    kind: str
    asks: str
    hypotheses: tuple[Hypothesis, ...]
    graph: Mapping[str, Any] = field(default_factory=dict)
    cases: tuple[dict[str, Any], ...] = ({},)
    watch: tuple[str, ...] = ()
    """The operations whose device is looked at."""
    units: str = "cpuAndNeuralEngine"
    """What Core ML may use."""
    form: str = ""
    """Of the package: fp32 for its types; range or listed for rows that a call chooses."""
    chips: tuple[str, ...] = ()
    """The products that it asks something of; all where none is named."""

    def asks_of(self, chip: str) -> bool:
        """Whether the question is about a chip."""
        return not self.chips or chip in self.chips

    def record(self, case: Mapping[str, Any], hypothesis: Hypothesis | None = None) -> dict[str, Any]:
        """What the graph of a case is made of."""
        alternative = None if hypothesis is None else hypothesis.graph
        return with_case(self.graph if alternative is None else alternative, case)

    def graph_of(self, case: Mapping[str, Any], hypothesis: Hypothesis | None = None) -> Graph:
        """The graph of a case, or the one that stands for a hypothesis."""
        return built(self.record(case, hypothesis), SEED)

    def package_graph(self, case: Mapping[str, Any]) -> Graph:
        """The graph as it is run: with work around it that the engine is started for, where one op is looked at."""
        return built(self.run_record(case), SEED)

    def run_record(self, case: Mapping[str, Any]) -> dict[str, Any]:
        record = self.record(case)
        if self.kind != WORDS:
            return record
        ballast = document()["ballast"]
        return {
            "inputs": {**record["inputs"], **ballast["inputs"]},
            "weights": {**record.get("weights", {}), **ballast["weights"]},
            "steps": [ballast["before"], *record["steps"], ballast["after"]],
            "outputs": [*self.outputs(case), ballast["after"][0]],
        }

    def outputs(self, case: Mapping[str, Any]) -> list[str]:
        """The names of the results that are looked at."""
        record = self.record(case)
        return list(record.get("outputs", [record["steps"][-1][0]]))

    def inputs(self, case: Mapping[str, Any]) -> dict[str, np.ndarray]:
        return inputs_of(self.record(case), SEED)

    def run_inputs(self, case: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """The same with those of the work around it."""
        return inputs_of(self.run_record(case), SEED)

    def part(self, case: int) -> str:
        """The name of one case, as files have it."""
        return f"{self.id}-{self.name}" if len(self.cases) == 1 else f"{self.id}-{self.name}-{case + 1}"

    def digest(self) -> str:
        """Of the question and its numbers: what a result must name to be an answer to it."""
        asked = [
            self.id,
            self.kind,
            self.units,
            self.form,
            self.watch,
            [self.run_record(case) for case in self.cases] if self.graph else [],
        ]
        return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:32]


@cache
def document() -> dict[str, Any]:
    return json.loads(_FILE.read_text(encoding="utf-8"))


@cache
def experiments() -> dict[str, Experiment]:
    """Every experiment by its id, in the order of the file."""
    rows = document()["experiments"]
    return {row["id"]: typed(Experiment, row, row["id"]) for row in rows}


def chosen(about: Sequence[str] = ()) -> list[Experiment]:
    """The experiments about some unknowns (U50), kinds (words, times) or ids (X01); all where nothing is named."""
    listed = list(experiments().values())
    wanted = [word.strip() for word in about if word.strip()]
    picked = []
    for word in wanted:
        hits = [
            entry
            for entry in listed
            if word.upper() in (entry.id, *entry.about) or word.lower() in (entry.kind, *entry.about)
        ]
        if not hits:
            raise ArgumentError("about", _nothing_about(word))
        picked += hits
    return listed if not wanted else [entry for entry in listed if entry in picked]


def _nothing_about(word: str) -> str:
    if word.upper() in conflicts():
        return (
            f"{word.upper()}: no experiment of the kit bears on it; `aneforge explain {word.upper()}` says what would"
        )
    return f"{word!r} is not an unknown, an experiment or a kind; choose from {', '.join(KINDS)}, or name U50 or X01"


def unknowns_of(entries: Iterable[Experiment]) -> list[str]:
    """The unknowns that some experiments bear on, each once."""
    return list(dict.fromkeys(number for entry in entries for number in entry.about if number.upper() in conflicts()))
