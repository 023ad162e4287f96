"""The folder of an evaluation: what was asked for, and the scores of every sample that is done.

Samples are written some at a time, each file whole or not at all, so that a run which was killed goes on where it was,
and shards of one data set may be done anywhere and merged.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from aneforge.documents import Misshapen, read_json, typed
from aneforge.errors import AneforgeError, LoadError, first_line
from aneforge.files import write_whole

SCHEMA = "aneforge-evaluation-1"
_PLAN = "plan.json"
_MOST = 256  # samples in one file
_SECONDS = 15.0  # of work that a kill may cost


@dataclass
class SampleScores:
    """One sample: its scores by run and metric, or why it has none."""

    sample: int
    name: str
    label: int | None = None
    scores: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    classes: dict[str, int] = field(default_factory=dict)
    """The class that each run says, where the output is a list of scores."""
    apart: dict[str, float] = field(default_factory=dict)
    """How far each run is from the first one: the norm of the difference over that of the result."""
    error: str = ""

    def to_json(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if value not in ("", None, {})}


@dataclass(frozen=True)
class EvaluationPlan:
    """What decides the scores, besides the samples."""

    model: str
    graph: str
    """The graph by content."""
    data: str
    identity: str
    """The data by content."""
    total: int
    """How many samples are evaluated in all shards."""
    runs: Mapping[str, Mapping[str, Any]]
    """What each run is, by its name: chip, form of the weights."""
    metrics: tuple[str, ...]
    reference: str | None
    mode: str
    code: str
    refused: Mapping[str, str] = field(default_factory=dict)
    """Runs that no chip does, with the reason."""

    @property
    def key(self) -> str:
        """The same for everything that may be put together. Names of files do not count: shards may lie elsewhere."""
        parts = [SCHEMA, self.graph, self.identity, self.total, self.runs, self.metrics, self.reference, self.mode]
        text = json.dumps([*parts, self.code], default=dict, sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    def to_json(self) -> dict[str, Any]:
        return {"schema": SCHEMA, "key": self.key, **self.__dict__, "runs": dict(self.runs)}


class RecordFolder:
    """A folder that an evaluation writes to; without a place nothing is kept."""

    def __init__(self, place: str | Path | None, asked: EvaluationPlan) -> None:
        self.place = None if place is None else Path(place)
        self.asked = asked
        self.done: dict[int, SampleScores] = {}
        self._unwritten: list[SampleScores] = []
        self._since = time.monotonic()

    def prepare(self, again: bool = False) -> None:
        """Read what is done, or refuse a folder that cannot be written or is that of something else."""
        if self.place is None:
            return
        try:
            self._samples.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise AneforgeError(f"--out {self.place}: cannot be a folder of results ({error.strerror})") from None
        if not os.access(self._samples, os.W_OK | os.X_OK):
            raise AneforgeError(f"--out {self.place}: the folder cannot be written. Choose another, or its mode.")
        plan = self.place / _PLAN
        if plan.exists():
            known = _plan_of(self.place)
            if known.key != self.asked.key and not again:
                raise AneforgeError(
                    f"--out {self.place}: holds another evaluation ({_difference(known, self.asked)}). Choose another "
                    "folder, or remove it."
                )
            self.done = _alike(_records(self.place))
        write_whole(plan, json.dumps(self.asked.to_json(), indent=1, default=dict))

    @property
    def _samples(self) -> Path:
        assert self.place is not None
        return self.place / "samples"

    def add(self, record: SampleScores) -> None:
        self.done[record.sample] = record
        self._unwritten.append(record)
        if len(self._unwritten) >= _MOST or time.monotonic() - self._since > _SECONDS:
            self.flush()

    def flush(self) -> None:
        """Write what is not written yet."""
        if self.place is not None and self._unwritten:
            content = json.dumps([record.to_json() for record in self._unwritten])
            write_whole(self._samples / f"{self._unwritten[0].sample:09d}.json", content, synced=False)
        self._unwritten, self._since = [], time.monotonic()


def _records(place: Path) -> Iterator[SampleScores]:
    """Every sample that is done. A file that is cut off is as good as none."""
    for file in sorted((place / "samples").glob("*.json")):
        try:
            yield from typed(list[SampleScores], read_json(file))
        except (LoadError, Misshapen):
            continue


def _alike(records: Iterable[SampleScores]) -> dict[int, SampleScores]:
    """Samples by number, those with the same runs, metrics and vectors as most: others are as good as none."""
    listed = list(records)

    def form(record: SampleScores) -> tuple[Any, ...]:
        return tuple(
            (run, metric, len(vector))
            for run, metrics in sorted(record.scores.items())
            for metric, vector in sorted(metrics.items())
        )

    counts = Counter(form(record) for record in listed if not record.error)
    usual = max(counts, key=counts.__getitem__, default=())
    return {record.sample: record for record in listed if record.error or form(record) == usual}


def _plan_of(place: Path) -> EvaluationPlan:
    try:
        document = typed(dict[str, Any], read_json(place / _PLAN))
        asked = {name: value for name, value in document.items() if name not in ("schema", "key")}
        return typed(EvaluationPlan, asked)
    except (LoadError, Misshapen) as error:
        raise AneforgeError(
            f"{place}: not a folder of an evaluation ({first_line(error)}); run aneforge evaluate --out first."
        ) from None


def _difference(one: EvaluationPlan, two: EvaluationPlan) -> str:
    words = {"graph": "another model", "identity": "other data", "code": "another version of aneforge"}
    names = [name for name in EvaluationPlan.__dataclass_fields__ if getattr(one, name) != getattr(two, name)]
    names = [name for name in names if name not in ("model", "data", "refused")]
    return ", ".join(words.get(name, f"other {name}") for name in names) or "another schema"


def read_folders(places: list[Path]) -> tuple[EvaluationPlan, dict[int, SampleScores]]:
    """The evaluation that several folders are parts of."""
    first = _plan_of(places[0])
    records: list[SampleScores] = []
    for place in places:
        asked = _plan_of(place)
        if asked.key != first.key:
            raise AneforgeError(f"{place}: not of the same evaluation as {places[0]} ({_difference(first, asked)}).")
        records += _records(place)
    return first, _alike(records)


def rows_of(records: list[SampleScores], run: str, metric: str) -> np.ndarray:
    """The vectors of a run and metric, a row for each sample."""
    return np.array([record.scores[run][metric] for record in records], np.float64)
