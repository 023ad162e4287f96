# pyright: reportMissingImports=false
"""The tasks of a sweep on Dask distributed: each Dask worker keeps child processes with the same limits as here
(``cluster_worker``).

What a task asks goes through the scheduler to the process that sweeps, as an event, and the answer comes back as a
call: so equal graphs are done once on the cluster too.
"""

from __future__ import annotations

import logging
import secrets
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from queue import Empty, SimpleQueue
from typing import Any

from aneforge.errors import AneforgeError, first_line, install_hint
from aneforge.reports.sweep.cluster_worker import code_there, end_children, run_there, take_answer
from aneforge.reports.sweep.plan import code_digest
from aneforge.reports.workers import WorkerLimits, WorkerOutcome
from aneforge.version import __version__

_PATIENCE = "20s"
"""How long a scheduler may take to answer."""
_LOOK_SECONDS = 5.0
"""How often the connection is looked at while nothing comes."""


def run_on_cluster(
    address: str, tasks: deque[Any], limits: WorkerLimits, answer: Callable[[Any, Any], Any]
) -> Generator[tuple[Any, WorkerOutcome], None, None]:
    """Each task with its outcome, as they end; tasks that the caller adds meanwhile are done too.

    ``answer(task, question)`` answers what a task asks. The workers of the cluster read the model files by the same
    paths.
    """
    if not tasks:
        return
    _require_dask(address)
    with _quiet_log():
        client = _connect(address)
        try:
            _require_same_code(client, address)
            yield from _Submitted(client, address, limits, answer).run(tasks)
        finally:
            client.close()


@contextmanager
def _quiet_log() -> Iterator[None]:
    """Dask logs what goes wrong as tracebacks; here each of these is one line."""
    loggers = [
        logging.getLogger(name) for name in list(logging.root.manager.loggerDict) if name.startswith("distributed")
    ]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _require_dask(address: str) -> None:
    try:
        import distributed  # noqa: F401
    except ModuleNotFoundError:
        raise AneforgeError(
            f"--scheduler {address}: needs Dask distributed. Install it with {install_hint('cluster')}."
        ) from None


def _connect(address: str) -> Any:
    from distributed import Client

    try:
        return Client(address, timeout=_PATIENCE, set_as_default=False)
    except (OSError, ValueError, TypeError) as error:
        why = first_line(error)
        raise AneforgeError(f"--scheduler {address}: cannot be reached ({why}); check the address") from None


def _require_same_code(client: Any, address: str) -> None:
    """Results are kept under the version and its code, so every worker must have the same."""
    try:
        codes = client.run(code_there)
    except Exception as error:  # whatever the cluster answers
        why = first_line(error)
        raise AneforgeError(f"--scheduler {address}: its workers need aneforge {__version__} ({why})") from None
    if not codes:
        raise AneforgeError(f"--scheduler {address}: it has no workers; start some with dask worker {address}")
    for worker, (version, code) in codes.items():
        if version != __version__:
            raise AneforgeError(f"--scheduler {address}: {worker} has aneforge {version}; it needs {__version__}")
        if code != code_digest():
            raise AneforgeError(
                f"--scheduler {address}: {worker} has other files of aneforge {version} than this machine. Install "
                "the same on both."
            )


class _Submitted:
    """The tasks that the cluster has, and what it sends: questions and ends, in one queue."""

    def __init__(self, client: Any, address: str, limits: WorkerLimits, answer: Callable[[Any, Any], Any]) -> None:
        self._client, self._address, self._limits, self._answer = client, address, limits, answer
        self._topic = f"aneforge-sweep-{secrets.token_hex(8)}"
        self._waiting: dict[str, tuple[Any, Any]] = {}
        """A task and its future, by the key of the result."""
        self._inbox: SimpleQueue[tuple[str, Any]] = SimpleQueue()
        self._priority = 0

    def run(self, tasks: deque[Any]) -> Generator[tuple[Any, WorkerOutcome], None, None]:
        self._client.subscribe_topic(self._topic, lambda event: self._inbox.put(("question", event[1])))
        try:
            while True:
                while tasks:
                    self._submit(tasks.popleft())
                if not self._waiting:
                    return
                kind, about = self._next_message()
                if kind == "question":
                    self._reply(about)
                else:
                    task, future = self._waiting.pop(about)
                    yield task, self._outcome(future)
        finally:
            self._leave()

    def _next_message(self) -> tuple[str, Any]:
        while True:
            try:
                return self._inbox.get(timeout=_LOOK_SECONDS)
            except Empty:
                self._require_connection()

    def _require_connection(self) -> None:
        if self._client.status != "running":
            raise AneforgeError(
                f"--scheduler {self._address}: the connection is lost; results so far are kept. Run the same command "
                "again to go on."
            )

    def _leave(self) -> None:
        """Free the cluster of what it still does for this sweep, as far as it can be reached."""
        if self._client.status == "running":
            self._client.unsubscribe_topic(self._topic)
            self._client.cancel([future for _, future in self._waiting.values()])
            self._client.run(end_children, self._topic, on_error="ignore")

    def _submit(self, task: Any) -> None:
        self._priority -= 1  # in their order: the largest first
        key = task["key"]
        about = (task, asdict(self._limits), self._topic, code_digest())
        future = self._client.submit(run_there, *about, pure=False, priority=self._priority, retries=0)
        self._waiting[key] = task, future
        future.add_done_callback(lambda _: self._inbox.put(("end", key)))

    def _reply(self, question: Mapping[str, str]) -> None:
        task, _ = self._waiting.get(question["key"], (None, None))
        if task is None:  # it ended without waiting
            return
        answer = self._answer(task, question["graph"])
        self._client.run(take_answer, question["number"], answer, workers=[question["worker"]], on_error="ignore")

    def _outcome(self, future: Any) -> WorkerOutcome:
        from distributed.scheduler import KilledWorker

        if future.cancelled():
            self._require_connection()
        error = future.exception()
        if error is None:
            return WorkerOutcome(**future.result())
        if isinstance(error, KilledWorker):
            return WorkerOutcome(None, "died", "the workers of the cluster that had it ended before it was done")
        raise AneforgeError(f"--scheduler {self._address}: a worker failed ({first_line(error)}); see its log")
