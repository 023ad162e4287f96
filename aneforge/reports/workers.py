"""Work in processes of its own, within limits of time and memory: a bad model ends its process and nothing else.

``worker`` is the side of the parent, ``child`` the process itself, ``pool`` several of them with a list of tasks.
A task and its result are JSON. The parent's main module is never imported again, so scripts need no guard.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

from aneforge.errors import AneforgeError
from aneforge.text import human_bytes

# A worker as its parent sees it: a process, the task it has, and when it is out of time.


_START = (
    "import sys; sys.path[:] = sys.argv[1].split({!r}); "
    "from aneforge.reports.worker_process import main; main(*sys.argv[2:])"
)
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "ANEFORGE_THREADS")
_FULL = 0.5
"""The share of its memory limit that a worker may hold between two tasks: what one leaves must not fail the next."""


@dataclass(frozen=True)
class WorkerLimits:
    """What one task may take: seconds of time, and bytes of the process's address space."""

    seconds: float = 600.0
    bytes: int = 8 << 30

    def __post_init__(self) -> None:
        if self.seconds <= 0:
            raise AneforgeError(f"limit of time: {self.seconds:g} seconds; give more than 0")
        if self.bytes < 256 << 20:
            raise AneforgeError(f"limit of memory: {self.bytes:,} bytes; give at least 256M")


@dataclass(frozen=True)
class WorkerOutcome:
    """How a task ended: its value, or what kind of failure and one line that says it."""

    value: Any = None
    kind: str = "done"
    """``done``, ``input`` (the model cannot be used), ``fault`` (of aneforge), ``time``, ``memory`` or ``died``."""
    error: str = ""
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        return self.kind == "done"


class Worker:
    """A child process that does one task at a time. ``run`` waits for one; a pool uses the parts."""

    def __init__(self, function: str, limits: WorkerLimits) -> None:
        self.limits = limits
        self.tasks_done = 0
        self.alive = True
        self._started = self._deadline = 0.0
        self._unread = b""
        path = os.pathsep.join(os.path.abspath(entry) for entry in sys.path)
        command = [sys.executable, "-c", _START.format(os.pathsep), path, function, str(limits.bytes)]
        # A session of its own: Ctrl-C on the terminal is for the parent, which ends its workers itself.
        self._process = subprocess.Popen(  # noqa: S603 - this interpreter and our own module
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            start_new_session=True,
            env={**os.environ, **dict.fromkeys(_ONE_THREAD, "1")},
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def fileno(self) -> int:
        """Readable when the worker has something to say, or has ended."""
        return self._process.stdout.fileno()  # type: ignore[union-attr]

    @property
    def seconds_left(self) -> float:
        return max(0.0, self._deadline - time.monotonic())

    def give(self, task: Any) -> None:
        """Hand over a task; its time starts now."""
        self._started = time.monotonic()
        self._deadline = self._started + self.limits.seconds
        self._send({"task": task})

    def answer(self, value: Any) -> None:
        self._send({"answer": value})

    def hear(self) -> tuple[list[Any], WorkerOutcome | None]:
        """What the worker asked, and how its task ended if it has: call it when ``fileno`` is readable."""
        data = os.read(self.fileno(), 1 << 16)
        if not data:
            return [], self._ended()
        lines = (self._unread + data).split(b"\n")
        self._unread = lines.pop()
        asked = []
        for line in lines:
            message = json.loads(line)
            if "ask" in message:
                asked.append(message["ask"])
            else:
                return asked, self._outcome(message)
        return asked, None

    def out_of_time(self) -> WorkerOutcome:
        """End a worker whose time is up."""
        self.end()
        limit = f"{self.limits.seconds:g} seconds"
        return WorkerOutcome(None, "time", f"took more than {limit}, the limit of time", self._seconds())

    def run(self, task: Any, answer: Callable[[Any], Any] = lambda question: None) -> WorkerOutcome:
        """Do one task and wait for its end."""
        self.give(task)
        while True:
            readable, _, _ = select.select([self], [], [], self.seconds_left)
            if not readable:
                return self.out_of_time()
            asked, outcome = self.hear()
            for question in asked:
                self.answer(answer(question))
            if outcome is not None:
                return outcome

    def end(self) -> None:
        """End the process and whatever it started, now, and wait until it has ended."""
        self.alive = False
        self.stop()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                stream.close()  # type: ignore[union-attr]

    def stop(self) -> None:
        """End the process from another thread: the one that waits for a task hears that it died."""
        with contextlib.suppress(OSError):
            if hasattr(os, "killpg"):
                os.killpg(self._process.pid, signal.SIGKILL)
            else:
                self._process.kill()

    def _send(self, message: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):  # it has died: hear says so
            view = memoryview(json.dumps(message).encode() + b"\n")
            while view:
                view = view[self._process.stdin.write(view) :]  # type: ignore[union-attr]

    def _outcome(self, message: dict[str, Any]) -> WorkerOutcome:
        self.tasks_done += 1
        if message.get("kind") == "memory":
            self.end()
            limit = human_bytes(self.limits.bytes)
            return WorkerOutcome(None, "memory", f"needs more than {limit}, the limit of memory", self._seconds())
        if message["resident"] > _FULL * self.limits.bytes:
            self.end()
        if "value" in message:
            return WorkerOutcome(message["value"], seconds=self._seconds())
        return WorkerOutcome(None, message["kind"], message["error"], self._seconds())

    def _ended(self) -> WorkerOutcome:
        self._process.wait()
        code = self._process.returncode
        self.end()
        how = f"by signal {-code} ({signal.strsignal(-code)})" if code < 0 else f"with status {code}"
        return WorkerOutcome(None, "died", f"its process ended {how} before it was done", self._seconds())

    def _seconds(self) -> float:
        return time.monotonic() - self._started


# Several workers and a list of tasks. A worker that ends in the middle of one is replaced, and the task tried once
# more.


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
    limits: WorkerLimits,
    answer: Callable[[Any, Any], Any] = lambda task, question: None,
) -> Generator[tuple[Any, WorkerOutcome], None, None]:
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

    def __init__(self, function: str, tasks: deque[Any], count: int, limits: WorkerLimits) -> None:
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

    def collect(self, answer: Callable[[Any, Any], Any]) -> list[tuple[Any, WorkerOutcome]]:
        """Wait until workers are done; the tasks that have come to an end."""
        ended: list[tuple[Any, WorkerOutcome]] = []
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


def may_differ(outcome: WorkerOutcome, was_fresh: bool) -> bool:
    """Whether a new worker may do better: one that died by accident, or that held the memory of earlier tasks."""
    return outcome.kind == "died" or (outcome.kind == "memory" and not was_fresh)


def _wait(pool: dict[Worker, _Busy], answer: Callable[[Any, Any], Any]) -> list[tuple[Worker, WorkerOutcome]]:
    """Answer questions until a worker is done or out of time."""
    while True:
        patience = min(worker.seconds_left for worker in pool)
        readable, _, _ = select.select(list(pool), [], [], patience)
        ended: list[tuple[Worker, WorkerOutcome]] = []
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
