"""The folder of a sweep: a plan that says which model has which result, and the results by their keys.

Every file is there whole or not at all, and a result never changes: a sweep that was killed goes on where it was, and
several may write to one folder at a time.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

from aneforge.documents import Misshapen, read_json, typed
from aneforge.errors import AneforgeError, LoadError
from aneforge.files import write_whole
from aneforge.reports.sweep.plan import SCHEMA, Digests, Planned, Shard, SweepOptions
from aneforge.reports.sweep.task import ABSENT
from aneforge.reports.workers import WorkerLimits, WorkerOutcome
from aneforge.text import whole_number
from aneforge.version import __version__

_DIGESTS = "digests.json"


@dataclass(frozen=True)
class SweepPlan:
    """The models of one sweep, or of one shard of it, and the options that all have."""

    models: Sequence[Planned]
    options: SweepOptions
    version: str


class Folder:
    """A folder that a sweep writes to, or that a table is made of."""

    def __init__(self, place: str | Path) -> None:
        self.place = Path(place)
        self._results = self.place / "results"

    def prepare(self) -> None:
        """Create it, and refuse what cannot be written before the work, not after it."""
        try:
            self._results.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise AneforgeError(f"--out {self.place}: cannot be a folder of results ({error.strerror})") from None
        if not os.access(self._results, os.W_OK | os.X_OK):
            raise AneforgeError(
                f"--out {self.place}: the folder cannot be written. Choose another, or change its mode."
            )

    # Results.

    def read(self, key: str) -> dict[str, Any] | None:
        """A result, or None where there is none that can be read."""
        try:
            result = read_json(self._results / f"{key}.json")
            typed(_Done if isinstance(result, dict) and result.get("kind") == "done" else _NotDone, result)
        except (LoadError, Misshapen):
            return None
        return result if result["schema"] == SCHEMA and result["key"] == key else None

    def write(self, key: str, result: Mapping[str, Any]) -> None:
        """Not synced: that takes longer than a small model, and a result that is cut off is done again."""
        write_whole(self._results / f"{key}.json", json.dumps(result), synced=False)

    def finished(self, planned: Planned, limits: WorkerLimits, retry: bool, digests: Digests) -> dict[str, Any] | None:
        """The result of a model if nothing would change by doing it again."""
        result = self.read(planned.key) if planned.key else None
        if result is None or not _same_files(result["beside"], planned.model.place, digests):
            return None
        kind = result["kind"]
        if kind == "done":
            return result
        # A Python file that failed may find now what it lacked then, and nothing says where it looked.
        if retry or kind == "missing" or planned.model.is_python:
            return None
        is_allowed_more = {
            "time": limits.seconds > result["seconds_limit"],
            "memory": limits.bytes > result["bytes_limit"],
        }
        return None if is_allowed_more.get(kind) else result

    # Plans.

    def write_plan(self, models: Sequence[Planned], options: SweepOptions, shard: Shard) -> None:
        """Write the plan of a shard; plans of another division of the same work go."""
        document = {
            "schema": SCHEMA,
            "aneforge": __version__,
            **options.to_json(),
            "models": [planned.to_json() for planned in models],
        }
        write_whole(self.place / shard.file, json.dumps(document, indent=1))
        for file in self.place.glob("plan*.json"):
            if not _is_of(file.name, shard):
                file.unlink(missing_ok=True)

    def plans(self) -> list[SweepPlan]:
        """The plans of all shards, in order."""
        files = sorted(self.place.glob("plan*.json"), key=lambda file: _shard_number(file.name))
        if not files:
            raise AneforgeError(
                f"{self.place}: not a folder of a sweep (it has no plan.json). Run aneforge sweep first."
            )
        return [_read_plan(file) for file in files]

    # Digests of model files that have not changed.

    def digests(self) -> Digests:
        try:
            return Digests(typed(dict[str, str], read_json(self.place / _DIGESTS)))
        except (LoadError, Misshapen):
            return Digests({})

    def write_digests(self, digests: Digests) -> None:
        write_whole(self.place / _DIGESTS, json.dumps(digests.known), synced=False)


class _Answer(TypedDict):
    """A row of a model on one chip."""

    target: str
    chip: str
    verdict: str
    rules: list[str]


class _Times(_Answer, total=False):
    ops: int
    engine_ops: int
    host_ops: int
    us: float | None
    us_low: float | None
    us_high: float | None
    energy_mj: float | None
    weight_bytes: int
    memory_bytes: int
    peak_l2: int


class _Result(TypedDict):
    schema: int
    key: str
    kind: str
    beside: dict[str, str]


class _Done(_Result):
    graph: str
    rows: list[_Times]


class _NotDone(_Result):
    error: str
    seconds_limit: float
    bytes_limit: int


class _PlannedModel(TypedDict):
    path: str
    revision: str
    dims: dict[str, int]
    function: str | None
    key: str
    error: str


class _PlanDocument(TypedDict):
    aneforge: str
    targets: dict[str, str]
    scope: str | None
    models: list[_PlannedModel]


def result_of(task: Mapping[str, Any], outcome: WorkerOutcome, limits: WorkerLimits) -> dict[str, Any]:
    """The document of a result. Seconds are for people; no table has them, since they differ from run to run."""
    head = {
        "schema": SCHEMA,
        "aneforge": __version__,
        "key": task["key"],
        "model": task["path"],
        "kind": outcome.kind,
        "seconds": round(outcome.seconds, 3),
    }
    if outcome.ok:
        return {**head, **outcome.value}
    limited = {"seconds_limit": limits.seconds, "bytes_limit": limits.bytes}
    error = outcome.error.removeprefix(f"{Path(task['place']).name}: ")  # its rows name the model, and copies share it
    beside = (outcome.value or {}).get("beside", {})
    return {**head, "error": error, "beside": beside, **limited}


def _same_files(beside: Mapping[str, str], place: Path, digests: Digests) -> bool:
    """Whether the files that a model was read from besides its own are what they were, or still absent."""
    folder = place.resolve().parent
    try:
        return all(
            digests.of(folder / name) == digest if (folder / name).exists() else digest == ABSENT
            for name, digest in beside.items()
        )
    except (OSError, ValueError):
        return False


def _is_of(name: str, shard: Shard) -> bool:
    """Whether a plan is of the division that this shard belongs to."""
    return name == "plan.json" if shard.count == 1 else name.endswith(f"-of-{shard.count}.json")


def _shard_number(name: str) -> int:
    parts = name.split(".")
    number = parts[1].partition("-")[0] if len(parts) == 3 else "0"
    return whole_number(number) or 0


def _read_plan(file: Path) -> SweepPlan:
    try:
        document = typed(_PlanDocument, read_json(file))
        options = SweepOptions(document["targets"], document["scope"])
        return SweepPlan([Planned.from_json(row) for row in document["models"]], options, document["aneforge"])
    except (LoadError, ValueError, KeyError, TypeError, AttributeError):
        raise AneforgeError(f"{file}: not a plan of a sweep; run the sweep again to write a new one") from None
