"""A worker as its parent sees it: a process, the task it has, and when it is out of time."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from aneforge.errors import AneforgeError
from aneforge.output.text import human_bytes

_START = (
    "import sys; sys.path[:] = sys.argv[1].split({!r}); from aneforge.workers.child import main; main(*sys.argv[2:])"
)
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "ANEFORGE_THREADS")
_FULL = 0.5
"""The share of its memory limit that a worker may hold between two tasks: what one leaves must not fail the next."""


@dataclass(frozen=True)
class Limits:
    """What one task may take: seconds of time, and bytes of the process's address space."""

    seconds: float = 600.0
    bytes: int = 8 << 30

    def __post_init__(self) -> None:
        if self.seconds <= 0:
            raise AneforgeError(f"limit of time: {self.seconds:g} seconds; give more than 0")
        if self.bytes < 256 << 20:
            raise AneforgeError(f"limit of memory: {self.bytes:,} bytes; give at least 256M")


@dataclass(frozen=True)
class Outcome:
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

    def __init__(self, function: str, limits: Limits) -> None:
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

    def hear(self) -> tuple[list[Any], Outcome | None]:
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

    def out_of_time(self) -> Outcome:
        """End a worker whose time is up."""
        self.end()
        limit = f"{self.limits.seconds:g} seconds"
        return Outcome(None, "time", f"took more than {limit}, the limit of time", self._seconds())

    def run(self, task: Any, answer: Callable[[Any], Any] = lambda question: None) -> Outcome:
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

    def _outcome(self, message: dict[str, Any]) -> Outcome:
        self.tasks_done += 1
        if message.get("kind") == "memory":
            self.end()
            limit = human_bytes(self.limits.bytes)
            return Outcome(None, "memory", f"needs more than {limit}, the limit of memory", self._seconds())
        if message["resident"] > _FULL * self.limits.bytes:
            self.end()
        if "value" in message:
            return Outcome(message["value"], seconds=self._seconds())
        return Outcome(None, message["kind"], message["error"], self._seconds())

    def _ended(self) -> Outcome:
        self._process.wait()
        code = self._process.returncode
        self.end()
        how = f"by signal {-code} ({signal.strsignal(-code)})" if code < 0 else f"with status {code}"
        return Outcome(None, "died", f"its process ended {how} before it was done", self._seconds())

    def _seconds(self) -> float:
        return time.monotonic() - self._started
