"""What workers of the tests do: each function takes a task and ``ask``, as those of a sweep do."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import numpy as np

from aneforge.errors import AneforgeError, LoadError


def double(task, ask):
    print("libraries print what they like")
    os.write(2, b"and write to stderr")
    return 2 * task


def asks(task, ask):
    return [ask(question) for question in task]


def sleep(task, ask):
    time.sleep(task)
    return "woke up"


def refuse(task, ask):
    raise AneforgeError(f"{task}: refused; give another")


def stumble(task, ask):
    return {}[task]


def die(task, ask):
    """Leaves a line for each attempt; succeeds from the ``task["lives"]`` attempt on."""
    log = Path(task["log"])
    with log.open("a") as stream:
        stream.write("tried\n")
    if len(log.read_text().splitlines()) < task["lives"]:
        os.kill(os.getpid(), signal.SIGKILL)
    return "alive"


def grow(task, ask):
    held = np.ones(task, np.uint8)
    return int(held[-1])


def grow_in_a_reader(task, ask):
    try:
        return grow(task, ask)
    except MemoryError:
        raise LoadError("model: it cannot be read; give another") from None


def hold(task, ask):
    """Keeps memory between tasks, as a cache would."""
    kept = sys.modules[__name__].__dict__.setdefault("_kept", [])
    kept.append(np.ones(task, np.uint8))
    return os.getpid()


def pid(task, ask):
    return os.getpid()
