"""How well a sweep uses a machine: ``python bench/sweep.py [FOLDER] [--target all]``.

Without a folder, networks of different sizes are written as saved graphs. Prints how much of the time the workers had
a task (what they used of a core is less where other programs run), what a task costs besides its own work (handed
out, taken back, its result written), the time of a second run that skips everything, and the most memory that a worker
held. Figures only.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import tempfile
import time
from collections import deque
from pathlib import Path

import numpy as np

import aneforge as af
from aneforge.graph.graph import Graph
from aneforge.output.files import write_whole
from aneforge.sweep import sweep
from aneforge.workers import Limits, run_all

MODELS, TASKS = 60, 1000


def no_work(task: object, ask: object) -> dict[str, object]:
    """A task that does nothing, with a result as large as that of a model on 28 targets."""
    return {
        "rows": [{"target": f"h{number}", "us": number / 3, "rules": ["reject:some-rule"]} for number in range(60)]
    }


def write_models(folder: Path) -> None:
    """Networks of 10 to 70 convolutions, none with the weights of another."""
    rng = np.random.default_rng(0)
    for number in range(MODELS):
        x = af.input((1, 16, 56, 56), name="x")
        for _ in range(10 + number):
            kernel = (rng.standard_normal((16, 16, 3, 3)) * 0.05).astype(np.float16)
            x = af.conv(x, kernel, pad=1).relu()
        Graph([x]).save(folder / f"net{number:02d}.aneforge")


def cpu_seconds() -> float:
    """What ended children have used."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def overhead(folder: Path, workers: int) -> tuple[float, float]:
    """Milliseconds of a core for a task without work, and of writing its result."""
    writing = 0.0
    count = 0
    start = 0.0
    for task, outcome in run_all("sweep:no_work", deque(range(TASKS + workers)), workers, Limits()):
        count += 1
        if count <= workers:  # the processes have started
            start = time.perf_counter()
            writing = 0.0
            continue
        before = time.perf_counter()
        write_whole(folder / f"{task}.json", json.dumps(outcome.value), synced=False)
        writing += time.perf_counter() - before
    wall = time.perf_counter() - start
    return 1e3 * wall / TASKS * workers, 1e3 * writing / TASKS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", help="a folder of models (default: networks that are written for this)")
    parser.add_argument("--target", default="all")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    asked = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).parent))
    workers = asked.workers or 1
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        if asked.folder is None:
            (place / "models").mkdir()
            write_models(place / "models")
        models = [asked.folder or str(place / "models")]
        used, start = cpu_seconds(), time.perf_counter()
        done = sweep(models, asked.target, place / "out", workers=workers)
        wall = time.perf_counter() - start
        busy = (cpu_seconds() - used) / wall / workers
        results = [json.loads(file.read_text()) for file in (place / "out" / "results").iterdir()]
        occupied = sum(result["seconds"] for result in results) / wall / workers
        memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        count = done.progress.done
        print(f"{count} models on {len({row['target'] for row in done.table.rows})} targets, {workers} workers")
        print(f"  {wall:.1f} s, {count / wall:.1f} models/s; {len(done.table.failed)} without an answer")
        print(f"  each worker had a task {100 * occupied:.0f} % of the time; it used {100 * busy:.0f} % of a core")
        print(f"  the largest worker held {memory:.0f} MB at most")
        start = time.perf_counter()
        sweep(models, asked.target, place / "out", workers=workers)
        print(f"  again: {time.perf_counter() - start:.2f} s, everything is skipped")
        (place / "none").mkdir()
        task, writing = overhead(place / "none", workers)
        print(f"  a task without work takes {task:.2f} ms of a core; writing its result {writing:.2f} ms")


if __name__ == "__main__":
    main()
