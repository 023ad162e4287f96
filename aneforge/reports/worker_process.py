"""The process that does the work: it takes tasks as lines of JSON, and gives back what a function makes of them.

It ends with its parent, however that ended: a thread waits for the end of the pipe that tasks come from. What
libraries print goes nowhere, since the pipe of results is a copy that only this module knows.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import sys
import threading
from collections.abc import Callable
from importlib import import_module
from typing import Any

from aneforge.errors import is_input_error, line_of

Ask = Callable[[Any], Any]
"""Puts a question to the parent, or tells it how far the work is; returns the answer."""


def main(function: str, most_bytes: str) -> None:
    """Do tasks until the parent closes the pipe. ``function`` (``module:name``) is called with a task and ``ask``."""
    tasks, results = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1):
        os.dup2(nowhere, stream)
    _limit_memory(int(most_bytes))
    inbox: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(tasks, inbox), daemon=True).start()

    def reply(message: dict[str, Any]) -> None:
        results.write(json.dumps(message).encode() + b"\n")
        results.flush()

    def ask(question: Any) -> Any:
        reply({"ask": question})
        return json.loads(inbox.get())["answer"]

    module, _, name = function.partition(":")
    work: Any = None
    while True:
        task = json.loads(inbox.get())["task"]
        try:
            if work is None:  # within the limits, and what fails is told as that of a task
                work = getattr(import_module(module), name)
            answer = {"value": work(task, ask)}
        except Exception as error:
            answer = {"error": line_of(error), "kind": kind_of(error)}
        reply({**answer, "resident": resident_bytes()})


def kind_of(error: BaseException) -> str:
    """Whose failure it is: ``input``, ``memory`` or ``fault`` (of aneforge). A reader may say in its own words that
    memory has run out: what it met first counts."""
    met: BaseException | None = error
    while met is not None:
        if isinstance(met, MemoryError):
            return "memory"
        met = met.__cause__ or met.__context__
    return "input" if is_input_error(error) else "fault"


def _listen(tasks: Any, inbox: queue.SimpleQueue[bytes]) -> None:
    for line in tasks:
        inbox.put(line)
    os._exit(0)  # nobody is there to take a result


def _limit_memory(most_bytes: int) -> None:
    """Bound the address space, where the system can; a crash leaves no file of the memory behind."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource  # not on Windows

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if most_bytes:
            resource.setrlimit(resource.RLIMIT_AS, (most_bytes, most_bytes))


def resident_bytes() -> int:
    """The memory that this process holds now; the most it ever held where the system says no more, else 0."""
    with contextlib.suppress(OSError, ValueError, IndexError), open("/proc/self/statm", encoding="ascii") as stream:
        return int(stream.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    with contextlib.suppress(ImportError):
        import resource

        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024
    return 0
