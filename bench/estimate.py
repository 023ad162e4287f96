"""Speed of estimates, as printed figures; and whether they are those of the compiled programs.

``python bench/estimate.py [--before CHECKOUT]`` estimates a transformer of 10,000 nodes on one chip, and networks of
about 1,000 nodes on all 28 targets, each on a new graph and with everything loaded; the best of several runs. With
``--before``, another checkout of this repository, the same work runs there too, in turns with this one, and the ratio
is printed.

``python bench/estimate.py --check FOLDER`` estimates every exported program below a folder on all targets together,
and compares each estimate with that of a program that was compiled for its chip alone: layers, times, intervals.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROUNDS = 3


def work() -> dict[str, Callable[[], Any]]:
    """Each piece of work with its graph built: a function of no arguments that estimates a new graph of it."""
    import gate
    import networks

    import aneforge as af
    from aneforge.graph import Graph

    def on(out: Any, chips: str) -> Callable[[], Any]:
        return lambda: af.estimate_all(Graph([out]), chips)

    pieces: dict[str, tuple[Any, str]] = {
        "transformer, one chip": (gate.transformer(af, 6_660), "m1"),
        "transformer with own weights, one chip": (gate.decoder(af, gate.weights(gate.layers(6_660))), "m1"),
        "transformer, 28 targets": (gate.transformer(af, 660), "all"),
        "synthetic, 28 targets": (networks.synthetic(1_000), "all"),
        "ResNet-50, 28 targets": (networks.resnet50(), "all"),
        "encoder of 12 layers, 28 targets": (networks.bert_encoder(), "all"),
    }
    return {f"{name} ({len(Graph([out]).nodes):,} nodes)": on(out, chips) for name, (out, chips) in pieces.items()}


def measure() -> dict[str, float]:
    """Seconds of this process for each piece of work, at best."""
    best: dict[str, float] = {}
    for name, estimate in work().items():
        estimate()  # loads the data of the chips
        for _ in range(4):
            gc.collect()  # what the last run left is not this one's
            start = time.process_time()
            estimate()
            best[name] = min(best.get(name, float("inf")), time.process_time() - start)
    return best


def in_child(checkout: Path) -> dict[str, float]:
    """The same work by the package of a checkout; the script and its networks are always these."""
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    command = [sys.executable, str(Path(__file__).resolve()), "--worker"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment, cwd=HERE)  # noqa: S603
    return json.loads(done.stdout.splitlines()[-1])


def compare(before: Path | None) -> None:
    checkouts = [HERE.parent] if before is None else [before, HERE.parent]
    times: list[dict[str, float]] = [{} for _ in checkouts]
    for _ in range(ROUNDS):
        for place, checkout in enumerate(checkouts):
            for name, seconds in in_child(checkout).items():
                times[place][name] = min(times[place].get(name, float("inf")), seconds)
    width = max(map(len, times[-1]))
    heads = "" if before is None else f"{'before':>8}{'now':>8}{'ratio':>8}"
    print(f"{'seconds of the processor':<{width}}{heads}")
    for name, now in times[-1].items():
        figures = f"{now:>8.3f}"
        if before is not None:
            figures = f"{times[0][name]:>8.3f}{now:>8.3f}{times[0][name] / now:>8.2f}"
        print(f"{name:<{width}}{figures}")


def check(folder: Path) -> None:
    """Every estimate of all chips together against that of its program compiled alone."""
    import aneforge as af
    from aneforge.compiler.compile import compile_target
    from aneforge.cost.estimate import estimate_program
    from aneforge.formats.arguments import chips_of
    from aneforge.study.study import Study

    files, chips = sorted(folder.rglob("*.pt2")), chips_of("all")
    compared = different = 0
    for file in files:
        graph = af.load(file)
        for name, split in Study.on(graph, chips).partitions().items():
            for number, program in split.programs.items():
                alone = compile_target(split.graph_of(number), chips[name])
                together, apart = estimate_program(program), estimate_program(alone)
                compared += 1
                if together != apart:
                    different += 1
                    print(f"{file}: region {number} on {name}: {together.us} us together, {apart.us} us alone")
    print(f"{len(files)} models, {compared:,} programs compared, {different} different")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--before", type=Path, help="another checkout of this repository")
    parser.add_argument("--check", type=Path, metavar="FOLDER", help="compare with programs compiled for one chip")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.worker:
        print(json.dumps(measure()))
    elif asked.check:
        check(asked.check)
    else:
        compare(None if asked.before is None else asked.before.resolve())


if __name__ == "__main__":
    main()
