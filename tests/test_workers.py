"""Workers: a result or one line for every task, whatever the process does, and nothing left running."""

from __future__ import annotations

import os
import time
from collections import deque

import pytest

from aneforge.errors import AneforgeError
from aneforge.reports.workers import Worker, WorkerLimits, may_differ, run_all

MEMORY = WorkerLimits(60, 1 << 30)


@pytest.fixture
def worker_of():
    started = []

    def start(function, limits=MEMORY):
        started.append(Worker(f"worker_kit:{function}", limits))
        return started[-1]

    yield start
    for worker in started:
        worker.end()


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_worker_does_task_after_task_whatever_libraries_print(worker_of):
    worker = worker_of("double")
    assert [worker.run(number).value for number in (1, 2, 3)] == [2, 4, 6]
    assert worker.tasks_done == 3


def test_a_large_task_and_a_large_result_pass(worker_of):
    text = "x" * 300_000
    assert worker_of("double").run([text]).value == [text, text]


def test_a_worker_asks_its_parent(worker_of):
    outcome = worker_of("asks").run(["one", "two"], lambda question: question.upper())
    assert outcome.ok
    assert outcome.value == ["ONE", "TWO"]


def test_an_error_is_one_line_and_the_worker_goes_on(worker_of):
    worker = worker_of("refuse")
    outcome = worker.run("net")
    assert (outcome.kind, outcome.error) == ("input", "net: refused; give another")
    assert worker.alive
    assert worker.run("other").error == "other: refused; give another"


def test_a_fault_of_ours_is_said_to_be_one(worker_of):
    outcome = worker_of("stumble").run("key")
    assert outcome.kind == "fault"
    assert outcome.error.startswith("internal error in aneforge")
    assert "KeyError: 'key'" in outcome.error


def test_a_task_that_takes_too_long_is_ended(worker_of):
    worker = worker_of("sleep", WorkerLimits(0.8))
    outcome = worker.run(600)
    assert (outcome.kind, outcome.error) == ("time", "took more than 0.8 seconds, the limit of time")
    assert not worker.alive
    assert not is_running(worker.pid)


@pytest.mark.parametrize("function", ["grow", "grow_in_a_reader"])
def test_a_task_that_needs_too_much_memory_is_ended(worker_of, function):
    worker = worker_of(function)
    outcome = worker.run(2 << 30)
    assert (outcome.kind, outcome.error) == ("memory", "needs more than 1.00 GB, the limit of memory")
    assert not worker.alive


def test_a_process_that_dies_says_how(worker_of, tmp_path):
    outcome = worker_of("die").run({"log": str(tmp_path / "log"), "lives": 9})
    assert outcome.kind == "died"
    assert outcome.error == "its process ended by signal 9 (Killed) before it was done"


def test_a_worker_that_keeps_much_memory_is_not_used_again(worker_of):
    worker = worker_of("hold")
    assert worker.run(600 << 20).ok
    assert not worker.alive


def test_a_worker_ends_with_its_parent():
    """Its pipe closes, however the parent ended."""
    worker = Worker("worker_kit:sleep", MEMORY)
    worker.give(600)
    worker._process.stdin.close()  # what the system does for a process that is gone
    assert worker._process.wait(timeout=30) == 0
    worker.end()


def outcomes(function, tasks, count=2, limits=MEMORY):
    return sorted(run_all(f"worker_kit:{function}", deque(tasks), count, limits), key=lambda pair: str(pair[0]))


def test_a_pool_does_every_task_in_at_most_so_many_processes():
    done = outcomes("pid", range(12))
    assert [task for task, _ in done] == sorted(range(12), key=str)
    assert 1 <= len({outcome.value for _, outcome in done}) <= 2


def test_a_pool_tries_a_task_once_more_in_a_new_process(tmp_path):
    tasks = [{"log": str(tmp_path / f"log{lives}"), "lives": lives} for lives in (1, 2, 3)]
    done = [outcome for _, outcome in outcomes("die", tasks)]
    assert [outcome.kind for outcome in done] == ["done", "done", "died"]
    assert [len((tmp_path / f"log{lives}").read_text().splitlines()) for lives in (1, 2, 3)] == [1, 2, 2]


def test_only_what_may_end_otherwise_is_tried_again(worker_of, tmp_path):
    died = worker_of("die").run({"log": str(tmp_path / "log"), "lives": 9})
    full = worker_of("grow").run(2 << 30)
    slow = worker_of("sleep", WorkerLimits(0.5)).run(60)
    assert may_differ(died, was_fresh=True)
    assert may_differ(full, was_fresh=False)
    assert not may_differ(full, was_fresh=True)
    assert not may_differ(slow, was_fresh=False)


def test_tasks_that_are_added_meanwhile_are_done_too():
    tasks = deque([1])
    values = []
    for task, outcome in run_all("worker_kit:double", tasks, 2, MEMORY):
        values.append(outcome.value)
        if task < 4:
            tasks.append(task + 1)
    assert values == [2, 4, 6, 8]


def test_a_pool_that_is_left_leaves_no_process():
    pool = run_all("worker_kit:pid", deque(range(5)), 1, MEMORY)
    _, outcome = next(pool)
    pool.close()
    deadline = time.monotonic() + 30
    while is_running(outcome.value) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_running(outcome.value)


@pytest.mark.parametrize(("limits", "told"), [((0, 1 << 30), "more than 0"), ((5, 1 << 20), "at least 256M")])
def test_limits_that_nothing_can_meet_are_refused(limits, told):
    with pytest.raises(AneforgeError, match=told):
        WorkerLimits(*limits)
