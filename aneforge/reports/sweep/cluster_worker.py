"""What a worker of a Dask cluster does for a sweep: a task in a child process, whose questions it passes on.

The answer comes as a call to the worker's main thread (:func:`take_answer`); the thread of the task waits for it.
"""

# pyright: reportMissingImports=false
from __future__ import annotations

import secrets
import threading
from collections.abc import Mapping
from dataclasses import asdict
from queue import Empty, SimpleQueue
from typing import Any

from aneforge.reports.sweep.plan import code_digest
from aneforge.reports.sweep.task import FUNCTION, NEEDED
from aneforge.reports.workers import Worker, WorkerLimits, WorkerOutcome, may_differ
from aneforge.version import __version__

_ANSWER_SECONDS = 60.0
"""How long a task waits for an answer; without one it does its own work, which is never wrong."""
_own = threading.local()
_lock = threading.Lock()
_idle: set[Worker] = set()
_running: dict[Worker, str] = {}
"""Children with a task, and the topic of the sweep that it belongs to."""
_ended_topics: set[str] = set()
"""Sweeps that are over: what still runs for them is not tried again."""
_answers: dict[str, SimpleQueue[str]] = {}
"""Where the tasks of this process wait for answers, by the number of their question."""


def code_there() -> tuple[str, str]:
    """The version of aneforge and its code."""
    return __version__, code_digest()


def run_there(task: Mapping[str, Any], limits: Mapping[str, Any], topic: str, code: str) -> dict[str, Any]:
    """Do a task in the child of this thread; in a new one once more if the child died. ``code`` is that of the process
    that sweeps: a worker may have joined since the others were asked for theirs."""
    if code != code_digest():
        raise RuntimeError("it has other files of aneforge; install the same everywhere")
    outcome, was_fresh = _run_in_child(task, WorkerLimits(**limits), topic)
    if may_differ(outcome, was_fresh) and topic not in _ended_topics:
        outcome, _ = _run_in_child(task, WorkerLimits(**limits), topic)
    return asdict(outcome)


def take_answer(number: str, answer: str) -> None:
    """Called by the process that sweeps."""
    waiting = _answers.get(number)
    if waiting is not None:
        waiting.put(answer)


def end_children(topic: str) -> None:
    """End what works for a sweep, and what has no work: an idle cluster holds no memory for it."""
    with _lock:
        _ended_topics.add(topic)
        for child, own_topic in _running.items():
            if own_topic == topic:
                child.stop()
        while _idle:
            _idle.pop().end()


def _run_in_child(task: Mapping[str, Any], limits: WorkerLimits, topic: str) -> tuple[WorkerOutcome, bool]:
    """The outcome of a task, and whether the child was new."""
    with _lock:
        child: Worker | None = getattr(_own, "child", None)
        _idle.discard(child)  # type: ignore[arg-type]
        if child is None or not child.alive or child.limits != limits:
            if child is not None:
                child.end()
            child = _own.child = Worker(FUNCTION, limits)
        _running[child] = topic
    was_fresh = child.tasks_done == 0
    try:
        return child.run(dict(task), lambda graph: _ask(topic, task["key"], graph)), was_fresh
    finally:
        with _lock:
            del _running[child]
            if child.alive:
                _idle.add(child)


def _ask(topic: str, key: str, graph: str) -> str:
    """What the process that sweeps answers."""
    from distributed import get_worker

    worker = get_worker()
    number = secrets.token_hex(8)
    waiting: SimpleQueue[str] = SimpleQueue()
    _answers[number] = waiting
    try:
        worker.log_event(topic, {"number": number, "key": key, "graph": graph, "worker": worker.address})
        return waiting.get(timeout=_ANSWER_SECONDS)
    except Empty:
        return NEEDED
    finally:
        del _answers[number]
