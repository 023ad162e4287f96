"""Several workers and a list of tasks. A worker that ends in the middle of one is replaced, and the task tried once
more."""

from __future__ import annotations

import select
from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

from aneforge.workers.worker import Limits, Outcome, Worker

__all__ = ["run_all"]


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
    pool: dict[Worker, _Busy] = {}
    again: deque[Any] = deque()
    idle: list[Worker] = []

    def hand_out() -> None:
        while (tasks or again) and len(pool) < count:
            is_retry = not tasks
            if is_retry and idle:
                idle.pop().end()  # a task is tried again in a new process
            worker = idle.pop() if idle and not is_retry else Worker(function, limits)
            pool[worker] = _Busy(again.popleft() if is_retry else tasks.popleft(), is_retry, worker.tasks_done == 0)
            worker.give(pool[worker].task)

    try:
        while True:
            hand_out()
            if not pool:
                return
            ended: list[tuple[Any, Outcome]] = []
            for worker, outcome in _wait(pool, answer):
                busy = pool.pop(worker)
                if worker.alive:
                    idle.append(worker)
                if not busy.is_retry and _may_differ(outcome, busy.was_fresh):
                    again.append(busy.task)
                else:
                    ended.append((busy.task, outcome))
            hand_out()
            yield from ended
    finally:
        for worker in [*pool, *idle]:
            worker.end()


def _may_differ(outcome: Outcome, was_fresh: bool) -> bool:
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
