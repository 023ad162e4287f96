"""Speed and memory of the compiler: figures only, nothing is asserted.

``python bench/compile.py`` compiles ResNet-50, a 12-layer encoder, a 24-layer decoder, a U-Net and synthetic graphs of
up to 50 k ops through all phases for one target on one core, ResNet-50 for all 28 targets, and
prints how time grows. Each network runs in a process of its own, so that its peak memory is its own. Ops are the
nodes of the user's graph without inputs and constants; the exponent is the slope of log(time) over log(ops).
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import resource
import subprocess
import sys
import time
from typing import Any

import networks

from aneforge.graph import Graph
from aneforge.model import compile as compile_model
from aneforge.study.programs import compile_all

SIZES = (2_000, 10_000, 50_000)
TARGET = "h13"
REPEATS = 3


def source_ops(graph: Graph) -> int:
    return sum(node.op not in ("input", "parameter", "const") for node in graph.nodes)


def built(name: str) -> Graph:
    if name.startswith("synthetic"):
        return Graph([networks.synthetic(int(name.partition("-")[2]))])
    return Graph([networks.NETWORKS[name]()])


def measure(name: str) -> dict[str, Any]:
    """One network in this process: the best of several runs, and the peak of the whole process."""
    graph = built(name)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    weights = sum(weight.size * 2 for weight in graph.weights.values())
    seconds = []
    for _ in range(REPEATS - 1):
        start = time.perf_counter()
        compile_model(graph, target=TARGET)
        seconds.append(time.perf_counter() - start)
        gc.collect()  # what this run left, so that the peak is that of one compile
    start = time.perf_counter()
    program = compile_model(graph, target=TARGET).program
    seconds.append(time.perf_counter() - start)
    found = {
        "ops": source_ops(graph),
        "first": seconds[0],
        "seconds": min(seconds),
        "layers": len(program),
        "weights": weights,
        "built": before,
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "phases": {str(number): 0.0 for number in range(5)},
    }
    for entry in program.log:
        found["phases"][str(entry.phase)] += entry.seconds
    return found


def measure_all(name: str) -> dict[str, Any]:
    graph = built(name)
    seconds = []
    for _ in range(REPEATS - 1):
        start = time.perf_counter()
        compile_all(graph, "all")
        seconds.append(time.perf_counter() - start)
    start = time.perf_counter()
    compiled = compile_all(graph, "all")
    seconds.append(time.perf_counter() - start)
    start = time.perf_counter()
    distinct = compiled.distinct
    return {
        "targets": len(compiled),
        "refused": len(compiled.refused),
        "distinct": distinct,
        "first": seconds[0],
        "seconds": min(seconds),
        "counting": time.perf_counter() - start,
    }


def in_child(mode: str, name: str) -> dict[str, Any]:
    done = subprocess.run(  # noqa: S603
        [sys.executable, __file__, f"--{mode}", name], check=True, capture_output=True, text=True
    )
    return json.loads(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--every", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one or asked.every:
        print(json.dumps(measure(asked.one) if asked.one else measure_all(asked.every)))
        return
    names = [*(name for name in networks.NETWORKS if name != "synthetic"), *(f"synthetic-{size}" for size in SIZES)]
    print(f"one target ({TARGET}), all phases, best of {REPEATS}; 'first' includes loading the target data")
    print(f"{'network':<17}{'ops':>7}{'layers':>8}{'first s':>9}{'best s':>8}{'ops/s':>8}  phases 0-4 ms              "
          f"{'weights MB':>11}{'peak MB':>9}{'bound MB':>9}")  # fmt: skip
    found = {}
    for name in names:
        row = found[name] = in_child("one", name)
        phases = " ".join(f"{1000 * seconds:>6.0f}" for seconds in row["phases"].values())
        bound = 3 * row["weights"] / 1e6 + 200
        print(f"{name:<17}{row['ops']:>7}{row['layers']:>8}{row['first']:>9.3f}{row['seconds']:>8.3f}"
              f"{row['ops'] / row['seconds']:>8.0f} {phases}  {row['weights'] / 1e6:>10.1f}{row['peak'] / 1e6:>9.0f}"
              f"{bound:>9.0f}", flush=True)  # fmt: skip
    large = found[f"synthetic-{SIZES[-1]}"]
    for size in SIZES[:-1]:  # the smallest graph fits the second-level cache, the others do not
        small = found[f"synthetic-{size}"]
        slope = math.log(large["seconds"] / small["seconds"]) / math.log(large["ops"] / small["ops"])
        print(f"growth from {small['ops']} to {large['ops']} ops: exponent {slope:.2f}")
    every = in_child("every", "resnet50")
    print(f"resnet50 for all 28 targets: {every['seconds']:.2f} s (first {every['first']:.2f} s), "
          f"{every['targets']} programs, {every['distinct']} distinct, {every['refused']} targets refuse it; "
          f"{every['counting']:.2f} s more to count the distinct ones")  # fmt: skip


if __name__ == "__main__":
    main()
