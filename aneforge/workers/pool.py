"""Several workers and a list of tasks. A worker that ends in the middle of one is replaced, and the task tried once
more."""

from __future__ import annotations

import os
import select
from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

from aneforge.workers.worker import Limits, Outcome, Worker


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass
class _Busy:
    task: Any
    is_retry: bool
    was_fresh: bool


def run_all(
    function: str,
    tasks: deque[Any],
    count: int,
    limits: Limits,
    answer: Callable[[Any, Any], Any] = lambda task, question: None,
) -> Generator[tuple[Any, Outcome], None, None]:
    """Each task with its outcome, as they end; tasks that the caller adds meanwhile are done too.

    A freed worker has its next task before the outcome is given out, so what the caller does with it takes no time of
    the workers. ``answer(task, question)`` answers what a task asks. All workers have ended when this has.
    """
    pool = _Pool(function, tasks, count, limits)
    try:
        while pool.hand_out():
            ended = pool.collect(answer)
            pool.hand_out()
            yield from ended
    finally:
        pool.end()


class _Pool:
    """Workers with a task, workers without one, and tasks that are to be tried again."""

    def __init__(self, function: str, tasks: deque[Any], count: int, limits: Limits) -> None:
        self._function, self._tasks, self._count, self._limits = function, tasks, count, limits
        self._busy: dict[Worker, _Busy] = {}
        self._idle: list[Worker] = []
        self._again: deque[Any] = deque()

    def hand_out(self) -> bool:
        """Give tasks to workers, at most so many; False if no worker has one."""
        while (self._tasks or self._again) and len(self._busy) < self._count:
            is_retry = not self._tasks
            if is_retry and self._idle:
                self._idle.pop().end()  # a task is tried again in a new process
            worker = self._idle.pop() if self._idle and not is_retry else Worker(self._function, self._limits)
            task = self._again.popleft() if is_retry else self._tasks.popleft()
            self._busy[worker] = _Busy(task, is_retry, worker.tasks_done == 0)
            worker.give(task)
        return bool(self._busy)

    def collect(self, answer: Callable[[Any, Any], Any]) -> list[tuple[Any, Outcome]]:
        """Wait until workers are done; the tasks that have come to an end."""
        ended: list[tuple[Any, Outcome]] = []
        for worker, outcome in _wait(self._busy, answer):
            busy = self._busy.pop(worker)
            if worker.alive:
                self._idle.append(worker)
            if not busy.is_retry and may_differ(outcome, busy.was_fresh):
                self._again.append(busy.task)
            else:
                ended.append((busy.task, outcome))
        return ended

    def end(self) -> None:
        for worker in [*self._busy, *self._idle]:
            worker.end()


def may_differ(outcome: Outcome, was_fresh: bool) -> bool:
    """Whether a new worker may do better: one that died by accident, or that held the memory of earlier tasks."""
    return outcome.kind == "died" or (outcome.kind == "memory" and not was_fresh)


def _wait(pool: dict[Worker, _Busy], answer: Callable[[Any, Any], Any]) -> list[tuple[Worker, Outcome]]:
    """Answer questions until a worker is done or out of time."""
    while True:
        patience = min(worker.seconds_left for worker in pool)
        readable, _, _ = select.select(list(pool), [], [], patience)
        ended: list[tuple[Worker, Outcome]] = []
        for worker in readable:
            asked, outcome = worker.hear()
            for question in asked:
                worker.answer(answer(pool[worker].task, question))
            if outcome is not None:
                ended.append((worker, outcome))
        done = {worker for worker, _ in ended}
        ended += [(worker, worker.out_of_time()) for worker in pool if worker not in done and not worker.seconds_left]
        if ended:
            return ended
