"""Run a sweep: plan it, skip what is done, do the rest here or on a cluster, and write each result as it ends."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from aneforge.arguments import Chips, chips_of
from aneforge.cost.estimate import check_scope
from aneforge.errors import ArgumentError
from aneforge.sweep.models import models_of
from aneforge.sweep.plan import Options, Planned, Shard, plan_of
from aneforge.sweep.results import Folder, result_of
from aneforge.sweep.table import Table, read_table
from aneforge.sweep.task import FUNCTION, NEEDED
from aneforge.targets.names import chip_label
from aneforge.workers import Limits, Outcome, run_all

__all__ = ["Progress", "Sweep", "sweep"]

_MISSING = "the worker that had it found no such file; workers need the model under the same path"


@dataclass(frozen=True)
class Progress:
    """How far a sweep is."""

    total: int
    skipped: int = 0
    done: int = 0
    failed: int = 0
    seconds: float = 0.0

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
    target: Chips = "all",
    out: str | Path = "sweep",
    scope: str = "coreml_call",
    *,
    dims: Mapping[str, int] | None = None,
    function: str | None = None,
    shard: str | None = None,
    workers: int | None = None,
    limits: Limits | None = None,
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
    check_scope(scope)
    if workers is not None and workers < 1:
        raise ArgumentError("workers", f"{workers} is not a number of processes. Give 1 or more.")
    part = Shard.of(shard)
    chips = chips_of(target, "all")
    options = Options({name: chip_label(name) for name in chips}, scope)
    listed = [model for model in models_of([str(model) for model in models], dims, function) if part.has(model)]
    folder = Folder(out)
    folder.prepare()
    digests = folder.digests()
    planned = plan_of(listed, options, digests)
    folder.write_digests(digests)
    folder.write_plan(planned, options, part)
    work = _Work(folder, planned, options, limits or Limits(), retry, progress)
    if scheduler is not None:
        from aneforge.sweep.cluster import run_on_cluster

        work.finish(run_on_cluster(scheduler, work.tasks, work.limits))
    else:
        count = min(workers or _cores(), max(1, len(work.tasks)))
        work.finish(run_all(FUNCTION, work.tasks, count, work.limits, work.answer))
    return Sweep(folder.place, read_table(folder.place), work.progress, work.shared)


def _cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _Work:
    """What is left of a plan, and which model does which graph: equal graphs are done once."""

    def __init__(
        self,
        folder: Folder,
        planned: Sequence[Planned],
        options: Options,
        limits: Limits,
        retry: bool,
        tell: Callable[[Progress], None],
    ) -> None:
        self.folder, self.limits, self.tell = folder, limits, tell
        self.shared = 0
        self._done: dict[str, str] = {}
        """The key of a result by its graph."""
        self._leading: dict[str, str] = {}
        """The graph that a task is working on, by the key of its result."""
        self._following: dict[str, list[tuple[dict[str, Any], Outcome]]] = {}
        """Tasks whose graph another is working on."""
        by_key = {one.key: one for one in planned if one.key}
        left = []
        for one in by_key.values():
            result = folder.finished(one, limits, retry)
            if result is None:
                left.append(one)
            elif result["kind"] == "done":
                self._done.setdefault(result["graph"], one.key)
        left.sort(key=lambda one: (-one.bytes, one.key))  # the largest first: the end of a sweep has no long tail
        self.tasks: deque[dict[str, Any]] = deque(_task(one, options) for one in left)
        unreadable = sum(not one.key for one in planned)
        self.progress = Progress(len(by_key) + unreadable, len(by_key) - len(left) + unreadable)

    def answer(self, task: Mapping[str, Any], graph: str) -> str:
        """Whether a task shall work out the rows of its graph."""
        if graph in self._done:
            return "known"
        if graph in self._leading.values() and self._leading.get(task["key"]) != graph:
            return "soon"
        self._leading[task["key"]] = graph
        return NEEDED

    def finish(self, outcomes: Generator[tuple[dict[str, Any], Outcome], None, None]) -> None:
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

    def _results(self, task: dict[str, Any], outcome: Outcome) -> list[tuple[dict[str, Any], Outcome]]:
        """What can be written now that a task has ended: its own result, and those that waited for its graph."""
        graph = self._leading.pop(task["key"], None)
        if outcome.ok and outcome.value.get("missing"):
            return [(task, replace(outcome, kind="missing", error=_MISSING))]
        if outcome.ok and "rows" not in outcome.value:
            followed = outcome.value["graph"]
            if followed in self._done:
                return self._taken_over(task, outcome)
            self._following.setdefault(followed, []).append((task, outcome))
            return []
        followers = self._following.pop(graph, []) if graph is not None else []
        if not outcome.ok:
            self.tasks.extend(follower for follower, _ in followers)  # one of them leads now
            return [(task, outcome)]
        self._done[outcome.value["graph"]] = task["key"]
        ready = [(task, outcome)]
        if followers:
            rows = outcome.value["rows"]
            self.shared += len(followers)
            ready += [(one, replace(told, value={**told.value, "rows": rows})) for one, told in followers]
        return ready

    def _taken_over(self, task: dict[str, Any], outcome: Outcome) -> list[tuple[dict[str, Any], Outcome]]:
        """The rows of a result that is there; a task whose source has been removed meanwhile is done after all."""
        graph = outcome.value["graph"]
        result = self.folder.read(self._done[graph])
        if result is None:
            del self._done[graph]
            self.tasks.append(task)
            return []
        self.shared += 1
        return [(task, replace(outcome, value={**outcome.value, "rows": result["rows"]}))]


def _task(planned: Planned, options: Options) -> dict[str, Any]:
    model = planned.model
    return {
        "key": planned.key,
        "path": model.path,
        "file": str(model.file),
        "place": str(model.place),
        "dims": dict(model.dims),
        "function": model.function,
        "targets": list(options.targets),
        "scope": options.scope,
    }
