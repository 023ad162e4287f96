# pyright: reportMissingImports=false
"""The tasks of a sweep on Dask distributed: each Dask worker keeps child processes with the same limits as here."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Generator, Mapping
from dataclasses import asdict
from typing import Any

from aneforge.errors import AneforgeError, first_line, install_hint
from aneforge.sweep.task import FUNCTION, NEEDED
from aneforge.version import __version__
from aneforge.workers import Limits, Outcome, Worker

__all__ = ["run_on_cluster"]

_PATIENCE = "20s"
"""How long a scheduler may take to answer."""


def run_on_cluster(address: str, tasks: deque[Any], limits: Limits) -> Generator[tuple[Any, Outcome], None, None]:
    """Each task with its outcome, as they end. The workers of the cluster read the model files by the same paths."""
    if not tasks:
        return
    try:
        from distributed import Client, as_completed
        from distributed.scheduler import KilledWorker
    except ImportError:
        raise AneforgeError(
            f"--scheduler {address}: needs Dask distributed. Install it with {install_hint('cluster')}."
        ) from None
    try:
        client = Client(address, timeout=_PATIENCE, set_as_default=False)
    except (OSError, ValueError, TypeError) as error:
        told = first_line(error)
        raise AneforgeError(f"--scheduler {address}: cannot be reached ({told}); check the address") from None
    waiting: dict[Any, Any] = {}
    try:
        _require_version(client, address)
        count = len(tasks)
        for number in range(count):
            task = tasks.popleft()
            future = client.submit(
                run_there, task, asdict(limits), pure=False, priority=count - number, key=None, retries=0
            )
            waiting[future] = task
        for future in as_completed(list(waiting), loop=client.loop):
            error = future.exception()
            if error is None:
                outcome = Outcome(**future.result())
            elif isinstance(error, KilledWorker):
                outcome = Outcome(None, "died", "the workers of the cluster that had it ended before it was done")
            else:
                raise AneforgeError(f"--scheduler {address}: a worker failed ({first_line(error)}); see its log")
            yield waiting.pop(future), outcome
        client.run(end_children)
    finally:
        client.cancel(list(waiting))
        client.close()


def _require_version(client: Any, address: str) -> None:
    """Results are kept under the version, so every worker must have this one."""
    try:
        versions = client.run(version_there)
    except Exception as error:  # whatever the cluster answers
        told = first_line(error)
        raise AneforgeError(f"--scheduler {address}: its workers need aneforge {__version__} ({told})") from None
    if not versions:
        raise AneforgeError(f"--scheduler {address}: it has no workers; start some with dask worker {address}")
    for worker, version in versions.items():
        if version != __version__:
            raise AneforgeError(f"--scheduler {address}: {worker} has aneforge {version}; it needs {__version__}")


# On the worker of the cluster.

_own = threading.local()
_children: set[Worker] = set()
_lock = threading.Lock()


def version_there() -> str:
    return __version__


def run_there(task: Mapping[str, Any], limits: Mapping[str, Any]) -> dict[str, Any]:
    """Do a task in the child of this thread; in a new one once more if the child died."""
    for attempt in (1, 2):
        child, was_fresh = _child(Limits(**limits))
        outcome = child.run(dict(task), lambda graph: NEEDED)
        if outcome.kind not in ("died", "memory") or attempt == 2 or (outcome.kind == "memory" and was_fresh):
            break
    return asdict(outcome)


def _child(limits: Limits) -> tuple[Worker, bool]:
    child: Worker | None = getattr(_own, "child", None)
    if child is None or not child.alive or child.limits != limits:
        if child is not None:
            child.end()
        child = Worker(FUNCTION, limits)
        with _lock:
            _children.add(child)
        _own.child = child
    return child, child.tasks_done == 0


def end_children() -> None:
    """End what a sweep has started, so that an idle cluster holds no memory for it."""
    with _lock:
        while _children:
            _children.pop().end()
