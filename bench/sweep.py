"""How well a sweep uses a machine: ``python bench/sweep.py [FOLDER] [--target all] [--json]``. Figures only.

Without a folder, networks of different sizes are built from the examples and written as saved graphs. Prints

- how busy the cores are: processor time of the workers and of the sweep itself over wall time and cores. Other
  programs take some of it; what the workers waited for a core (Linux) is added for the share of an idle machine
- what a task costs besides its own work: to plan it, hand it out and take it back, write its result, read it again
- the memory of the largest worker, and what one worker holds that does the same task many times
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import resource
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import aneforge as af
from aneforge.chips.names import chip_label
from aneforge.files import write_whole
from aneforge.graph.graph import Graph
from aneforge.reports.sweep import sweep
from aneforge.reports.sweep.plan import Digests, SweepOptions, guess_operations, models_of, plan_of
from aneforge.reports.sweep.table import read_table
from aneforge.reports.sweep.task import FUNCTION
from aneforge.reports.workers import WorkerLimits, run_all

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
TASKS, ROUNDS = 1000, 40


# Models.


def examples() -> Iterator[tuple[str, Any]]:
    """Networks with weights of their own: transformers of several depths, a ResNet, a U-Net, recurrent ones."""
    vit, lstm = example("vit"), example("lstm")
    for depth in (12, 10, 8, 6, 4, 2):
        vit.DEPTH = depth
        yield f"vit{depth}", vit.build()
    for steps in (32, 16, 8):
        lstm.STEPS = steps
        yield f"lstm{steps}", lstm.build()
    for name in ("resnet", "unet_block"):
        module = example(name)
        yield from ((f"{name}{number}", module.build()) for number in range(3))
    yield from ((f"plain{layers}", plain(layers)) for layers in range(10, 60, 2))


def example(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def plain(layers: int) -> Any:
    rng = np.random.default_rng(layers)
    x = af.input((1, 16, 56, 56), name="x")
    for _ in range(layers):
        x = af.conv(x, (rng.standard_normal((16, 16, 3, 3)) * 0.05).astype(np.float16), pad=1).relu()
    return x


# What processes use.


class Watch(threading.Thread):
    """Looks at the children of this process: seconds that each ran and waited for a core, and the memory it held."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.waited: dict[str, float] = {}
        self.resident: dict[str, int] = {}
        self._is_over = threading.Event()

    def run(self) -> None:
        while not self._is_over.wait(0.02):
            for listing in Path("/proc/self/task").glob("*/children"):
                for child in listing.read_text().split():
                    self._look(child)

    def _look(self, child: str) -> None:
        try:
            self.waited[child] = int(Path("/proc", child, "schedstat").read_text().split()[1]) / 1e9
            pages = int(Path("/proc", child, "statm").read_text().split()[1])
        except (OSError, ValueError, IndexError):
            return  # it has ended, or this is not Linux
        self.resident[child] = max(self.resident.get(child, 0), pages * os.sysconf("SC_PAGE_SIZE"))

    def end(self) -> None:
        self._is_over.set()
        self.join()


def cpu_seconds(who: int) -> float:
    """What this process, or its children that have ended, used."""
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime


def busy(models: list[str], target: str, out: Path, workers: int) -> dict[str, float]:
    """A whole sweep, from reading the files to the table."""
    watch = Watch()
    watch.start()
    children, own = cpu_seconds(resource.RUSAGE_CHILDREN), cpu_seconds(resource.RUSAGE_SELF)
    start = time.perf_counter()
    done = sweep(models, target, out, workers=workers)
    wall = time.perf_counter() - start
    watch.end()
    children = cpu_seconds(resource.RUSAGE_CHILDREN) - children
    own = cpu_seconds(resource.RUSAGE_SELF) - own
    waited = sum(watch.waited.values())
    again = time.perf_counter()
    sweep(models, target, out, workers=workers)
    return {
        "models": done.progress.done,
        "targets": len({row["target"] for row in done.table.rows}),
        "without_answer": len(done.table.failed),
        "seconds": wall,
        "workers_share": children / wall / workers,
        "share": (children + own) / wall / workers,
        "share_with_waiting": (children + own + waited) / wall / workers,
        "load": os.getloadavg()[0],
        "largest_worker_mb": max(watch.resident.values(), default=0) / 2**20,
        "seconds_again": time.perf_counter() - again,
    }


# What a task costs besides its work.


def no_work(task: object, ask: object) -> dict[str, object]:
    """A task that does nothing, with a result as large as that of a model on all targets."""
    rows = [{"target": f"h{number}", "us": number / 3, "rules": ["reject:some-rule"]} for number in range(60)]
    return {"rows": rows, "graph": "", "beside": {}}


def added(place: Path, workers: int) -> dict[str, float]:
    """Milliseconds of a core for each of many small tasks."""
    (place / "models").mkdir(parents=True)
    x = af.input((1, 4, 8, 8), name="x")
    Graph([x.relu()]).save(place / "models" / "0.aneforge")
    content = (place / "models" / "0.aneforge").read_bytes()
    for number in range(TASKS):
        (place / "models" / f"{number}.aneforge").write_bytes(content + bytes(number))
    options = SweepOptions({name: chip_label(name) for name in ("m1", "m5")}, "coreml_call")
    start = time.process_time()
    for planned in plan_of(models_of([str(place / "models")]), options, Digests({})):
        guess_operations(planned.model.place)
    planning = time.process_time() - start
    handing, writing = handed_out(place, workers)
    done = sweep([EXAMPLES / "convnet.plist"], "all", place / "one", workers=1)
    start = time.process_time()
    for _ in range(100):
        read_table(done.folder)
    reading = (time.process_time() - start) / 100
    parts = {"plan": planning / TASKS, "hand_out": handing, "write": writing, "read": reading}
    return {"added_ms": 1e3 * sum(parts.values()), **{f"{name}_ms": 1e3 * value for name, value in parts.items()}}


def handed_out(place: Path, workers: int) -> tuple[float, float]:
    """Seconds of a core for a task without work, and of writing its result."""
    (place / "results").mkdir()
    writing = start = 0.0
    for count, (task, outcome) in enumerate(
        run_all("sweep:no_work", deque(range(TASKS + workers)), workers, WorkerLimits())
    ):
        if count < workers:  # the processes have started
            start = time.perf_counter()
            continue
        before = time.perf_counter()
        write_whole(place / "results" / f"{task}.json", json.dumps(outcome.value), synced=False)
        writing += time.perf_counter() - before
    wall = time.perf_counter() - start
    return (wall - writing) / TASKS * workers, writing / TASKS


# Memory.


def memory_of(file: Path) -> dict[str, float]:
    """What a worker holds after its first task, and at most over many."""
    task = {"place": str(file), "file": str(file), "dims": {}, "function": None, "targets": ["m1", "m5"]}
    watch = Watch()
    watch.start()
    first = 0
    for _, outcome in run_all(
        FUNCTION, deque([{**task, "scope": "coreml_call"}] * ROUNDS), 1, WorkerLimits(), wants_rows
    ):
        assert outcome.ok, outcome.error
        first = first or max(watch.resident.values(), default=0)
    watch.end()
    most = max(watch.resident.values(), default=0)
    return {"first_mb": first / 2**20, "most_mb": most / 2**20}


def wants_rows(task: object, graph: object) -> str:
    return "rows"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", help="a folder or a manifest of models (default: made from the examples)")
    parser.add_argument("--target", default="all")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).parent))  # for the workers, which call no_work
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        (place / "models").mkdir()
        for name, out in examples():
            Graph.of(out).save(place / "models" / f"{name}.aneforge")
        used = busy([asked.folder or str(place / "models")], asked.target, place / "out", asked.workers)
        cost = added(place / "added", asked.workers)
        memory = memory_of(place / "models" / "resnet0.aneforge")
    if asked.json:
        print(json.dumps({**used, **cost, **memory}))
        return
    show(used, cost, memory, asked.workers)


def show(used: dict[str, float], cost: dict[str, float], memory: dict[str, float], workers: int) -> None:
    models = f"{used['models']:.0f} models on {used['targets']:.0f} targets, {workers} workers"
    print(f"{models}: {used['seconds']:.1f} s; {used['without_answer']:.0f} without an answer")
    print(f"  busy: {100 * used['share']:.0f} % of {workers} cores ({100 * used['workers_share']:.0f} % by workers)")
    waiting = f"with their waits for a core {100 * used['share_with_waiting']:.0f} %; load {used['load']:.1f}"
    print(f"        {waiting}")
    print(f"  again, with everything skipped: {used['seconds_again']:.2f} s")
    parts = ", ".join(f"{name} {cost[f'{name}_ms']:.2f}" for name in ("plan", "hand_out", "write", "read"))
    print(f"  added to a task: {cost['added_ms']:.2f} ms of a core ({parts})")
    print(f"  largest worker: {used['largest_worker_mb']:.0f} MB")
    sizes = f"{memory['first_mb']:.0f} MB after the first, {memory['most_mb']:.0f} MB at most"
    print(f"  one task {ROUNDS} times: {sizes}")


if __name__ == "__main__":
    main()
