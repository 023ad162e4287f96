"""The uploads that the server works on: each has a folder and a process of its own, and both are gone when it ends."""

from __future__ import annotations

import secrets
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from aneforge.errors import AneforgeError, line_of
from aneforge.serve.folder import ServerFolder
from aneforge.serve.task import FUNCTION, REPORT
from aneforge.workers import Limits, Worker

MOST_WAITING = 8
"""Jobs that may wait for their turn."""
MOST_KEPT = 16
"""Jobs that have ended and can still be asked for."""
_CANCELLED = "cancelled"


class BusyError(AneforgeError):
    """Too many jobs are waiting."""


class Job:
    """One upload: where it is stored, how far it is, and what came of it."""

    def __init__(self, name: str, folder: Path) -> None:
        self.id = secrets.token_urlsafe(18)  # nobody guesses the page of another
        self.name = name
        self.folder = folder
        self.state = "waiting"
        """``waiting``, ``working``, ``done`` or ``failed``."""
        self.progress: tuple[str, int, int] = ("waiting for its turn", 0, 0)
        """What is being done, and how much is done of how much; of 0 where that is not known."""
        self.error = ""
        self.report: bytes | None = None
        self.started = time.monotonic()
        self.worker: Worker | None = None
        self.cancelled = False

    @property
    def ended(self) -> bool:
        return self.state in ("done", "failed")

    def to_json(self) -> dict[str, Any]:
        return {
            "job": self.id,
            "name": self.name,
            "state": self.state,
            "progress": self.progress[0],
            "done": self.progress[1],
            "total": self.progress[2],
            "error": self.error,
            "seconds": round(time.monotonic() - self.started, 1),
        }


class Jobs:
    """All jobs of one server. ``close`` ends them and removes every file."""

    def __init__(self, target: str, limits: Limits, at_once: int) -> None:
        self.folder = ServerFolder()
        self._target, self._limits = target, limits
        self._lock = threading.Lock()
        self._jobs: dict[str, Job] = {}
        self._threads = ThreadPoolExecutor(at_once, "job")
        self._most_open = at_once + MOST_WAITING

    def require_room(self) -> None:
        with self._lock:
            if sum(not job.ended for job in self._jobs.values()) >= self._most_open:
                raise BusyError(
                    f"server: {self._most_open} models are being read; at most that many may wait. Try later."
                )

    def add(self, name: str, folder: Path) -> Job:
        """Start on an upload that lies in its folder under its name."""
        job = Job(name, folder)
        with self._lock:
            self._jobs[job.id] = job
            ended = [one.id for one in self._jobs.values() if one.ended]
            for old in ended[: max(0, len(ended) - MOST_KEPT)]:
                del self._jobs[old]
        self._threads.submit(self._run, job)
        return job

    def get(self, token: str) -> Job | None:
        with self._lock:
            return self._jobs.get(token)

    def cancel(self, job: Job) -> None:
        with self._lock:
            job.cancelled = True
            if job.worker is not None and job.worker.alive:
                job.worker.stop()

    def close(self) -> None:
        with self._lock:
            open_jobs = [job for job in self._jobs.values() if not job.ended]
        for job in open_jobs:
            self.cancel(job)
        self._threads.shutdown(wait=True, cancel_futures=True)
        self.folder.close()

    def _run(self, job: Job) -> None:
        """Work on a job, remove its files, and only then say that it has ended."""
        try:
            error = self._work(job)
        except Exception as failure:  # the job is the user's only view of it
            error = line_of(failure)
        finally:
            shutil.rmtree(job.folder, ignore_errors=True)
        state = "failed" if error else "done"
        job.error, job.progress = error, (state, 0, 0)
        job.state = state

    def _work(self, job: Job) -> str:
        """Keep the report of a job; what went wrong, or nothing."""
        with self._lock:
            if job.cancelled:
                return _CANCELLED
            worker = job.worker = Worker(FUNCTION, self._limits)
        job.state = "working"
        try:
            task = {"folder": str(job.folder), "name": job.name, "target": self._target}
            outcome = worker.run(task, lambda step: setattr(job, "progress", tuple(step)))
        finally:
            with self._lock:
                worker.end()
        if outcome.ok:
            job.report = (job.folder / REPORT).read_bytes()
            return ""
        if job.cancelled:
            return _CANCELLED
        names_the_model = outcome.kind in ("input", "fault")
        return outcome.error if names_the_model else f"{job.name}: {outcome.error}"
