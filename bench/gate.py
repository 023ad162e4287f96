"""Speed of the graph language, its gate and its estimates, and the same work done by the public peer. Prints figures.

``python bench/gate.py [--peer PYTHON] [--build]`` builds and checks chains and transformer stacks of about 1 k, 10 k
and 100 k nodes. With ``--peer``, the interpreter of an environment that holds the package ``aneforge==0.4.0``
(``make bench-peer`` makes one), the same script runs there in the same session and the ratio is printed. ``--build``
leaves out the checks. All times are CPU time, and every check is the first one of a graph that was just built.

The layers of a transformer share their weights; those of "own weights" have arrays of their own, which are made before
the clock starts. A check is the verdict with its counts; "reports" is a check with the report of every single node
read. The growth exponent is the slope of log(time) over log(nodes) from 1 k to 100 k nodes.

The first preflight is that of a new process which has imported the package and built a graph: what it imports and
reads counts. "From source" is the same where Python finds no bytecode and may write none. Where a bar was set for a
figure, it stands beside it.
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


def weights(count: int, dtype: str = "float32") -> list[tuple[Any, ...]]:
    """The arrays of some layers."""
    import numpy as np

    rng = np.random.default_rng(0)
    shapes = (*[(WIDTH, WIDTH)] * 4, (4 * WIDTH, WIDTH), (WIDTH, 4 * WIDTH))
    stack = []
    for number in range(count):
        products = [rng.normal(0, 0.1, shape).astype(dtype) for shape in shapes]
        stack.append((*products, np.full(WIDTH, 1 + number / count, dtype), np.zeros(WIDTH, dtype)))
    return stack


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


def best(action: Callable[[Any], Any], runs: int, prepare: Callable[[], Any] = lambda: None) -> float:
    """The least CPU time of an action on something that is prepared anew for each run."""
    least = math.inf
    for _ in range(runs):
        prepared = prepare()
        start = time.process_time()
        result = action(prepared)
        least = min(least, time.process_time() - start)
        del prepared, result  # gives back the memory of this run before the next one begins
    return least


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
    for dtype in ("float32", "float16"):
        stack = weights(layers(10_000), dtype)
        work[f"own {dtype} 10000"] = OPS * layers(10_000), partial(decoder, af, stack)
    for name, (nodes, build) in work.items():
        runs = 2 if name.endswith("100000") else 5
        record: dict[str, Any] = {"nodes": nodes}
        try:
            record["build_s"] = best(lambda _, build=build: build(), 2 * runs)
            if check:
                record["check_s"] = best(lambda out: count(tg.preflight(out, 2)), runs, build)
                record["read_s"] = best(lambda out: read_all(tg.preflight(out, 2)), runs, build)
                if name == "transformer 10000":
                    record["estimate_s"] = best(af.estimate, 3, build)
        except Exception as error:
            record["error"] = f"{type(error).__name__}: {str(error)[:80]}"
        figures[name] = record
    return figures


FIRST = """
import json, time
start = time.process_time()
import aneforge as af
import numpy as np
imported = time.process_time()
x = af.input((128, 64))
y = x.layer_norm(np.ones(64), np.zeros(64)).linear(np.ones((256, 64), np.float32)).gelu().softmax(-1)
built = time.process_time()
af.preflight(y, "M1").counts
print(json.dumps([imported - start, built - imported, time.process_time() - built]))
"""


def first_preflight(bytecode: bool, runs: int = 5) -> list[float]:
    """CPU seconds of a new process to import, to build and to check for the first time, in its quickest run."""
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


def all_targets(size: int = 100_000) -> tuple[float, float]:
    """Seconds of a first check for one target, and for all."""
    import aneforge as af

    build = partial(transformer, af, size)
    one = best(lambda out: count(af.preflight(out, "h13")), 3, build)
    return one, best(lambda out: [count(result) for result in af.preflight_all(out).values()], 3, build)


def compiler_starts() -> int:
    """How often a report of the detector on two chips starts the compiler."""
    from aneforge.compiler.draft import Draft
    from aneforge.reports import report

    starts = 0
    start = Draft.of.__func__  # type: ignore[attr-defined]

    def counted(cls: type, *given: Any) -> Any:
        nonlocal starts
        starts += 1
        return start(cls, *given)

    Draft.of = classmethod(counted)  # type: ignore[assignment,method-assign]
    try:
        report(str(Path(__file__).parent.parent / "examples" / "detector.onnx"), "m1,m5")
    finally:
        Draft.of = classmethod(start)  # type: ignore[assignment,method-assign]
    return starts


def walk_rate(size: int = 10_000) -> float:
    """Backend ops a second of the range analysis, with everything that it read of weights known."""
    import aneforge as af
    from aneforge.compiler.survey import survey
    from aneforge.numerics.ranges import promised_values
    from aneforge.numerics.transfer import walk
    from aneforge.sim.engine import Engine

    graph, chip = af.Graph.of(transformer(af, size)), af.target("h13")
    draft = survey(graph, [chip])[chip.name].draft
    assert draft is not None
    known, engine = promised_values(graph, graph.names()), Engine.of(chip)
    seconds = best(lambda _: walk(engine, draft.code, known, errors=False), 5)
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


def show_bars(figures: dict[str, Any], peer: dict[str, Any] | None) -> None:
    """Each figure that a bar was set for, beside it."""
    for work in ("chain", "transformer"):
        for size in SIZES[1:]:
            ratio = ""
            other = peer and peer[f"{work} {size}"]
            if other and "error" not in other:
                ratio = f", {rate(figures[f'{work} {size}'], 'check_s') / rate(other, 'check_s'):.1f} times the peer"
            told(f"preflight, {work} {size:,}", f"{rate(figures[f'{work} {size}'], 'check_s'):,.0f} nodes/s{ratio}",
                 "1,000,000, ahead of the peer")  # fmt: skip
    one, many = all_targets()
    told("preflight for 28 targets over one", f"{many / one:.2f} times", "1.3")
    seconds = figures["transformer 10000"]["estimate_s"]
    told("estimate, transformer 10,000", f"{seconds:.2f} s", "0.4")
    told("compiler starts of the detector's report on two chips", str(compiler_starts()), "31")


def told(what: str, figure: str, bar: str) -> None:
    print(f"{what}: {figure} (bar: {bar})")


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
    for dtype, bar in (("float16", "200,000"), ("float32", "150,000")):
        told(
            f"building with fresh {dtype} arrays",
            f"{rate(figures[f'own {dtype} 10000'], 'build_s'):,.0f} nodes/s",
            bar,
        )
    for words, bytecode in (("", True), (", from source", False)):
        imported, built, checked = first_preflight(bytecode)
        together = f"import {imported:.3f} s, build {built:.3f} s"
        told(f"first preflight{words}", f"{checked:.3f} s; {together}", "0.150 after the import")
    if arguments.build:
        return
    for work in ("chain", "transformer"):
        built, checked = (exponent(figures, work, key) for key in ("build_s", "check_s"))
        print(f"growth exponent of {work}: build {built:.2f}, check {checked:.2f}")
    print(f"range analysis of a transformer: {walk_rate():,.0f} ops/s")
    show_bars(figures, peer)


if __name__ == "__main__":
    main()
