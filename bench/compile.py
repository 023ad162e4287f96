"""Speed and memory of the compiler: figures only, nothing is asserted.

``python bench/compile.py`` compiles ResNet-50, a 12-layer encoder, a 24-layer decoder, a U-Net and synthetic graphs of
up to 50 k ops through all phases for one target on one core, ResNet-50 for all 28 targets, and
prints how time grows. Each network runs in a process of its own, so that its peak memory is its own. Ops are the
nodes of the user's graph without inputs and constants; the exponent is the slope of log(time) over log(ops).

``python bench/compile.py --bars`` prints the figures that have a bar, and their bars: ops a second of ``af.compile``
for the chain and the transformer of ``bench/gate.py`` (CPU time of the first compile of a fresh graph, in a process
that has compiled a small one), how that grows from 1 k to 100 k nodes, and ``af.estimate`` of the transformer.
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
import warnings
from typing import Any

import gate
import networks

import aneforge as af
from aneforge.graph import Graph
from aneforge.study.model import compile as compile_model
from aneforge.study.programs import compile_all

SIZES = (2_000, 10_000, 50_000)
TARGET = "h13"
REPEATS = 3
LEAST_RATE, MOST_GROWTH, MOST_ESTIMATE = 30_000, 1.1, 0.4
"""The bars: source ops a second, the exponent, and seconds of an estimate."""


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


def measure_first(name: str) -> dict[str, Any]:
    """``compile-chain-10000``: CPU seconds of the first call on a fresh graph, in this process."""
    verb, work, size = name.split("-")
    call = {"compile": af.compile, "estimate": af.estimate}[verb]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        call(getattr(gate, work)(af, 100), target=TARGET)  # loads the modules and the target's data
        out = getattr(gate, work)(af, int(size))
        ops = source_ops(Graph([out]))
        start = time.process_time()
        call(out, target=TARGET)
        seconds = time.process_time() - start
    return {"ops": ops, "seconds": seconds, "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}


def bars() -> None:
    """Each figure with a bar beside it."""
    for work in ("chain", "transformer"):
        rows = {size: in_child("first", f"compile-{work}-{size}") for size in gate.SIZES}
        for size in gate.SIZES[1:]:
            row = rows[size]
            print(
                f"compile of a {work} of {row['ops']:,} ops: {row['ops'] / row['seconds']:,.0f} ops/s "
                f"(bar: at least {LEAST_RATE:,}), {row['seconds']:.3f} s, peak {row['peak'] / 1e6:.0f} MB",
                flush=True,
            )
        small, large = rows[gate.SIZES[0]], rows[gate.SIZES[-1]]
        slope = math.log(large["seconds"] / small["seconds"]) / math.log(large["ops"] / small["ops"])
        print(f"growth of a {work} from {small['ops']:,} to {large['ops']:,} ops: exponent {slope:.2f} "
              f"(bar: at most {MOST_GROWTH})")  # fmt: skip
    row = in_child("first", "estimate-transformer-10000")
    print(f"estimate of a transformer of {row['ops']:,} ops: {row['seconds']:.3f} s (bar: below {MOST_ESTIMATE} s)")


def in_child(mode: str, name: str) -> dict[str, Any]:
    done = subprocess.run(  # noqa: S603
        [sys.executable, __file__, f"--{mode}", name], check=True, capture_output=True, text=True
    )
    return json.loads(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--every", help=argparse.SUPPRESS)
    parser.add_argument("--first", help=argparse.SUPPRESS)
    parser.add_argument("--bars", action="store_true", help="the figures that have a bar, and nothing else")
    asked = parser.parse_args()
    for action, name in ((measure, asked.one), (measure_all, asked.every), (measure_first, asked.first)):
        if name:
            print(json.dumps(action(name)))
            return
    bars()
    if asked.bars:
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
