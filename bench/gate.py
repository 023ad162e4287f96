"""Speed of the graph language and its gate, and the same work done by the public peer. Prints figures only.

``python bench/gate.py [--peer PYTHON] [--build]`` builds and checks chains and transformer stacks of about 1 k, 10 k
and 100 k nodes. With ``--peer``, the interpreter of an environment that holds the package ``aneforge==0.4.0``
(``make bench-peer`` makes one), the same script runs there in the same session and the ratio is printed. ``--build``
leaves out the checks, which take minutes.

The layers of a transformer share their weights; those of "own weights" have arrays of their own, which are made before
the clock starts. A check is the verdict with its counts; "reports" is a check with the report of every single node
read. The growth exponent is the slope of log(time) over log(nodes) from 1 k to 100 k nodes.

The first preflight is that of a new process which has imported the package and built a graph: what it imports and
reads counts. "From source" is the same where Python finds no bytecode and may write none.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

SIZES = (1_000, 10_000, 100_000)


def chain(af: Any, nodes: int) -> Any:
    """A pointwise chain: the worst case for anything that recurses."""
    x = af.input((1, 64, 32, 32))
    y = x
    for step in range(nodes - 1):
        y = y.relu() if step % 2 else y.tanh()
    return y


def transformer(af: Any, nodes: int) -> Any:
    """Decoder-shaped layers over [128, 64]: products, softmax, norms, gelu."""
    return decoder(af, weights(1) * layers(nodes))


WIDTH, HEADS, OPS = 64, 4, 23  # ops in a layer


def layers(nodes: int) -> int:
    return math.ceil(nodes / 22)


def weights(count: int) -> list[tuple[Any, ...]]:
    """The arrays of some layers."""
    import numpy as np

    rng = np.random.default_rng(0)
    shapes = (*[(WIDTH, WIDTH)] * 4, (4 * WIDTH, WIDTH), (WIDTH, 4 * WIDTH))
    made = []
    for number in range(count):
        products = [rng.normal(0, 0.1, shape).astype(np.float32) for shape in shapes]
        made.append((*products, np.full(WIDTH, 1 + number / count, np.float32), np.zeros(WIDTH, np.float32)))
    return made


def decoder(af: Any, stack: list[tuple[Any, ...]]) -> Any:
    x = af.input((128, WIDTH))
    for *square, up, down, gamma, beta in stack:
        normal = x.layer_norm(gamma, beta)
        parts = [normal.linear(weight) for weight in square[:3]]
        q, k, v = (part.reshape(128, HEADS, WIDTH // HEADS).transpose([1, 0, 2]) for part in parts)
        scores = (q @ k.transpose([0, 2, 1])).softmax(-1)
        mixed = (scores @ v).transpose([1, 0, 2]).reshape(128, WIDTH).linear(square[3])
        x = x + mixed
        x = x + x.layer_norm(gamma, beta).linear(up).gelu().linear(down)
    return x


def best(action: Callable[[], Any], runs: int) -> tuple[float, Any]:
    least, result = math.inf, None
    for _ in range(runs):
        result = None  # gives back the memory of the last run before the clock starts
        start = time.perf_counter()
        result = action()
        least = min(least, time.perf_counter() - start)
    return least, result


def lists(result: Any) -> tuple[Any, ...]:
    return result.native, result.decompose, result.reject, result.oversize


def count(result: Any) -> int:
    return sum(len(entries) for entries in lists(result))


def read_all(result: Any) -> int:
    return sum(1 for entries in lists(result) for report in entries if report.op)


def worker(check: bool) -> dict[str, Any]:
    """The common part: what both packages can do, in the package of this interpreter."""
    import aneforge as af
    from aneforge import _targets as tg

    figures: dict[str, Any] = {"version": getattr(af, "__version__", "?")}
    work: dict[str, tuple[int, Callable[[], Any]]] = {}
    work |= {f"chain {size}": (size - 1, partial(chain, af, size)) for size in SIZES}
    work |= {f"transformer {size}": (OPS * layers(size), partial(transformer, af, size)) for size in SIZES}
    work["own weights 10000"] = OPS * layers(10_000), partial(decoder, af, weights(layers(10_000)))
    for name, (nodes, build) in work.items():
        runs = 2 if name.endswith("100000") else 5
        record: dict[str, Any] = {"nodes": nodes}
        try:
            record["build_s"], out = best(build, 2 * runs)
            if check:
                record["check_s"], _ = best(lambda out=out: count(tg.preflight(out, 2)), runs)
                record["read_s"], _ = best(lambda out=out: read_all(tg.preflight(out, 2)), runs)
        except Exception as error:
            record["error"] = f"{type(error).__name__}: {str(error)[:80]}"
        figures[name] = record
    return figures


FIRST = """
import json, time
start = time.perf_counter()
import aneforge as af
import numpy as np
imported = time.perf_counter()
x = af.input((128, 64))
y = x.layer_norm(np.ones(64), np.zeros(64)).linear(np.ones((256, 64), np.float32)).gelu().softmax(-1)
built = time.perf_counter()
af.preflight(y, "M1").counts
print(json.dumps([imported - start, built - imported, time.perf_counter() - built]))
"""


def first_preflight(bytecode: bool, runs: int = 5) -> list[float]:
    """Seconds of a new process to import, to build and to check for the first time, in its quickest run."""
    with tempfile.TemporaryDirectory() as folder:  # bytecode goes there, whatever lies beside the source
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
        environment["PYTHONPYCACHEPREFIX"] = folder
        if bytecode:
            runs += 1  # the first one writes it
        else:
            environment["PYTHONDONTWRITEBYTECODE"] = "1"
        command = [sys.executable, "-c", FIRST]
        answers = [
            subprocess.run(command, capture_output=True, text=True, check=True, env=environment)  # noqa: S603
            for _ in range(runs)
        ]
    return min((json.loads(answer.stdout) for answer in answers), key=lambda times: times[-1])


def all_targets(size: int = 100_000) -> dict[str, float]:
    import aneforge as af

    out = transformer(af, size)
    one, _ = best(lambda: count(af.preflight(out, "h13")), 5)
    many, _ = best(lambda: [count(result) for result in af.preflight_all(out).values()], 5)
    return {"one": one, "all": many}


def walk_rate(size: int = 10_000) -> float:
    """Backend ops a second of the range analysis, with everything that it read of weights known."""
    import aneforge as af
    from aneforge.compiler.survey import survey
    from aneforge.numerics.promises import promised_values
    from aneforge.numerics.transfer import walk
    from aneforge.sim.engine import Engine

    graph, chip = af.Graph.of(transformer(af, size)), af.target("h13")
    draft = survey(graph, [chip])[chip.name].draft
    assert draft is not None
    known, engine = promised_values(graph, graph.names()), Engine.of(chip)
    seconds, _ = best(lambda: walk(engine, draft.code, known, errors=False), 5)
    return len(draft.code) / seconds


def exponent(figures: dict[str, Any], work: str, key: str) -> float:
    small, large = figures[f"{work} {SIZES[0]}"], figures[f"{work} {SIZES[-1]}"]
    return math.log(large[key] / small[key]) / math.log(large["nodes"] / small["nodes"])


def run_peer(python: str, check: bool) -> dict[str, Any]:
    # -I: with PYTHONPATH set to this tree, the peer would be this package.
    command = [python, "-I", str(Path(__file__).resolve()), "--worker", *([] if check else ["--build"])]
    answer = subprocess.run(command, capture_output=True, text=True, check=True, cwd="/")  # noqa: S603
    return json.loads(answer.stdout.splitlines()[-1])


def rate(record: dict[str, Any], key: str) -> float:
    return record["nodes"] / record[key]


def show(figures: dict[str, Any], peer: dict[str, Any] | None) -> None:
    columns = {"build_s": "build", "check_s": "check", "read_s": "reports"}
    columns = {key: name for key, name in columns.items() if key in figures["chain 1000"]}
    print(
        f"{'nodes/s':20}{'nodes':>9}"
        + "".join(f"{name:>12}" for name in columns.values())
        + ("".join(f"{f'peer {name}':>15}{'ratio':>7}" for name in columns.values()) if peer else "")
    )
    for key, record in figures.items():
        if key == "version":
            continue
        line = f"{key:20}{record['nodes']:>9,}" + "".join(f"{rate(record, name):>12,.0f}" for name in columns)
        other = peer[key] if peer else None
        if other and "error" in other:
            line += f"  peer: {other['error']}"
        elif other:
            for name in columns:
                line += f"{rate(other, name):>15,.0f}{rate(record, name) / rate(other, name):>7.2f}"
        print(line)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--peer", help="Python of an environment with aneforge==0.4.0")
    parser.add_argument("--build", action="store_true", help="build rates and the first preflight only")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        print(json.dumps(worker(not arguments.build)))
        return
    figures = worker(not arguments.build)
    peer = run_peer(arguments.peer, not arguments.build) if arguments.peer else None
    show(figures, peer)
    for words, bytecode in (("", True), (", from source", False)):
        imported, built, checked = first_preflight(bytecode)
        print(f"first preflight{words}: {checked:.3f} s; import {imported:.3f} s, build {built:.3f} s", end="; ")
        print(f"together {imported + built + checked:.3f} s")
    if arguments.build:
        return
    for work in ("chain", "transformer"):
        built, checked = (exponent(figures, work, key) for key in ("build_s", "check_s"))
        print(f"growth exponent of {work}: build {built:.2f}, check {checked:.2f}")
    print(f"range analysis of a transformer: {walk_rate():,.0f} ops/s")
    times = all_targets()
    print(f"one target {times['one']:.3f} s, all 28 {times['all']:.3f} s: {times['all'] / times['one']:.1f} times")


if __name__ == "__main__":
    main()
