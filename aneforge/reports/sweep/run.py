"""Run a sweep: plan it, skip what is done, do the rest here or on a cluster, and write each result as it ends."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from aneforge.chips.names import chip_label, in_reading_order
from aneforge.cost.calls import check_scope
from aneforge.errors import ArgumentError
from aneforge.formats.arguments import Chips, chips_of
from aneforge.reports.sweep.plan import (
    Digests,
    Planned,
    Shard,
    SweepOptions,
    SweptModel,
    guess_operations,
    models_of,
    plan_of,
)
from aneforge.reports.sweep.results import Folder, result_of
from aneforge.reports.sweep.table import Table, read_table
from aneforge.reports.sweep.task import FUNCTION, NEEDED
from aneforge.reports.workers import WorkerLimits, WorkerOutcome, cores, run_all

_MISSING = "the worker that had it found no such file; workers need the model under the same path"


@dataclass(frozen=True)
class Progress:
    """How far a sweep is."""

    total: int
    skipped: int = 0
    done: int = 0
    failed: int = 0
    seconds: float = 0.0
    is_planned: bool = True
    """Before that, the files of ``done`` models have been read to see what is to be done."""

    @property
    def left(self) -> int:
        return self.total - self.skipped - self.done

    @property
    def rate(self) -> float | None:
        """Models a second; None until one is done."""
        return self.done / self.seconds if self.done and self.seconds else None


@dataclass(frozen=True)
class Sweep:
    """A sweep that has been run: its folder, its table, and what was done this time."""

    folder: Path
    table: Table
    progress: Progress
    shared: int
    """Models that took their rows from one with the same graph."""

    @property
    def ok(self) -> bool:
        return self.table.ok


def sweep(
    models: Sequence[str | Path],
    target: Chips = None,
    out: str | Path = "sweep",
    scope: str | None = None,
    *,
    dims: Mapping[str, int] | None = None,
    function: str | None = None,
    shard: str | None = None,
    workers: int | None = None,
    limits: WorkerLimits | None = None,
    scheduler: str | None = None,
    retry: bool = False,
    progress: Callable[[Progress], None] = lambda now: None,
) -> Sweep:
    """Check and estimate many models on many chips, and keep one small result for each in the folder ``out``.

    ``models`` are paths, patterns, folders or manifests. What has a result already is skipped, so the same call again
    goes on where the last was stopped. A model that cannot be used, takes too long or too much memory (``limits``)
    is a row with an error. ``shard`` (``"2/8"``) does one part of the work, ``scheduler`` runs it on Dask
    distributed, ``workers`` is how many processes run here (one for each core), ``retry`` does failed models again.
    """
    if scope is not None:
        check_scope(scope)
    if workers is not None and workers < 1:
        raise ArgumentError("workers", f"{workers} is not a number of processes. Give 1 or more.")
    part = Shard.of(shard)
    chips = chips_of(target)
    options = SweepOptions({name: chip_label(name) for name in in_reading_order(chips)}, scope)
    listed = [model for model in models_of([str(model) for model in models], dims, function) if part.has(model)]
    folder = Folder(out)
    folder.prepare()
    work = _Work(folder, options, limits or WorkerLimits(), progress)
    work.plan(listed, part, retry)
    if scheduler is not None:
        from aneforge.reports.sweep.cluster import run_on_cluster

        work.finish(run_on_cluster(scheduler, work.tasks, work.limits, work.answer))
    else:
        count = min(workers or cores(), max(1, len(work.tasks)))
        work.finish(run_all(FUNCTION, work.tasks, count, work.limits, work.answer))
    return Sweep(folder.place, read_table(folder.place), work.progress, work.shared)


class _Work:
    """What is left of a plan, and which model does which graph: equal graphs are done once."""

    def __init__(
        self, folder: Folder, options: SweepOptions, limits: WorkerLimits, tell: Callable[[Progress], None]
    ) -> None:
        self.folder, self.options, self.limits, self.tell = folder, options, limits, tell
        self.tasks: deque[dict[str, Any]] = deque()
        self.shared = 0
        self.progress = Progress(0)
        self._done: dict[str, str] = {}
        """The key of a result by its graph."""
        self._leaders: dict[str, str] = {}
        """The key of the task that works on a graph, by the graph."""
        self._led: dict[str, str] = {}
        """The same the other way round."""
        self._following: dict[str, list[tuple[dict[str, Any], WorkerOutcome]]] = {}
        """Tasks whose graph another is working on, with what they found out themselves."""

    def plan(self, models: Sequence[SweptModel], part: Shard, retry: bool) -> None:
        """Write down which model has which result, and make tasks of those without one."""
        total = len(models)

        def tell(count: int) -> None:
            self.tell(Progress(total, done=count, is_planned=False))

        digests = self.folder.digests()
        planned = plan_of(models, self.options, digests, tell)
        self.folder.write_plan(planned, self.options, part)
        self._skip_finished(planned, digests, retry)
        self.folder.write_digests(digests)

    def _skip_finished(self, planned: Sequence[Planned], digests: Digests, retry: bool) -> None:
        """The tasks are the largest first: the end of a sweep then has no long tail."""
        by_key = {one.key: one for one in planned if one.key}
        left: list[tuple[int, Planned]] = []
        for key, one in by_key.items():
            result = self.folder.finished(one, self.limits, retry, digests)
            if result is None:
                left.append((guess_operations(one.model.place), one))
            elif result["kind"] == "done":
                self._done.setdefault(result["graph"], key)
        left.sort(key=lambda pair: -pair[0])
        self.tasks.extend(_task(one, self.options) for _, one in left)
        total = len(by_key) + sum(not one.key for one in planned)
        self.progress = Progress(total, total - len(left))

    def answer(self, task: Mapping[str, Any], graph: str) -> str:
        """Whether a task shall work out the rows of its graph."""
        if graph in self._done:
            return "known"
        key = task["key"]
        if self._leaders.setdefault(graph, key) != key:
            return "soon"
        self._led[key] = graph
        return NEEDED

    def finish(self, outcomes: Generator[tuple[dict[str, Any], WorkerOutcome], None, None]) -> None:
        """Write every result as it ends. Whatever ends this leaves whole results only."""
        started = time.monotonic()
        self.tell(self.progress)
        with closing(outcomes):
            for task, outcome in outcomes:
                for ended, result in self._results(task, outcome):
                    self.folder.write(ended["key"], result_of(ended, result, self.limits))
                    now = self.progress
                    self.progress = replace(
                        now,
                        done=now.done + 1,
                        failed=now.failed + (not result.ok),
                        seconds=time.monotonic() - started,
                    )
                    self.tell(self.progress)

    def _results(self, task: dict[str, Any], outcome: WorkerOutcome) -> list[tuple[dict[str, Any], WorkerOutcome]]:
        """What can be written now that a task has ended: its own result, and those that waited for its graph."""
        followers = self._followers(task["key"])
        outcome = _as_failure(outcome)
        if not outcome.ok:
            self.tasks.extend(follower for follower, _ in followers)  # one of them leads now
            return [(task, outcome)]
        graph = outcome.value["graph"]
        if "rows" not in outcome.value:
            if graph in self._done:
                return self._taken_over(task, outcome)
            if graph in self._leaders:
                self._following.setdefault(graph, []).append((task, outcome))
            else:  # the one that it was to wait for has failed meanwhile
                self.tasks.append(task)
            return []
        self._done[graph] = task["key"]
        self.shared += len(followers)
        rows = outcome.value["rows"]
        return [(task, outcome), *((follower, _with_rows(own, rows)) for follower, own in followers)]

    def _followers(self, key: str) -> list[tuple[dict[str, Any], WorkerOutcome]]:
        """The tasks that waited for the one with this key, which leads no longer."""
        graph = self._led.pop(key, None)
        if graph is None:
            return []
        self._leaders.pop(graph, None)
        return self._following.pop(graph, [])

    def _taken_over(self, task: dict[str, Any], outcome: WorkerOutcome) -> list[tuple[dict[str, Any], WorkerOutcome]]:
        """The rows of a result that is there; a task whose source has been removed meanwhile is done after all."""
        graph = outcome.value["graph"]
        result = self.folder.read(self._done[graph])
        if result is None:
            del self._done[graph]
            self.tasks.append(task)
            return []
        self.shared += 1
        return [(task, _with_rows(outcome, result["rows"]))]


def _as_failure(outcome: WorkerOutcome) -> WorkerOutcome:
    """A task that ended well may say that its model is not there, or is refused."""
    if outcome.ok and "missing" in outcome.value:
        return replace(outcome, kind="missing", error=_MISSING)
    if outcome.ok and "refused" in outcome.value:
        return replace(outcome, kind="input", error=outcome.value["refused"])
    return outcome


def _with_rows(outcome: WorkerOutcome, rows: Any) -> WorkerOutcome:
    return replace(outcome, value={**outcome.value, "rows": rows})


def _task(planned: Planned, options: SweepOptions) -> dict[str, Any]:
    model = planned.model
    return {
        "key": planned.key,
        "path": model.path,
        "file": str(model.file.absolute()),
        "place": str(model.place.absolute()),  # a worker of a cluster has another working folder
        "dims": dict(model.dims),
        "function": model.function,
        "targets": list(options.targets),
        "scope": options.scope,
    }
