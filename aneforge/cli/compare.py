"""``aneforge compare``: one model on several simulated chips, and where their numbers part."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from aneforge.cli.arrays import read_arrays, samples_of
from aneforge.cli.model_file import ModelFile, load_model
from aneforge.cli.plot import writable
from aneforge.errors import AneforgeError
from aneforge.graph.graph import Graph
from aneforge.numerics.comparison import Comparison, compare
from aneforge.output import text
from aneforge.output.files import write_whole
from aneforge.sim import native
from aneforge.sim.compare import SEED, drawn_inputs
from aneforge.targets.listed import chip_list


@dataclass(frozen=True)
class Options:
    """What the command was asked for."""

    given: str | None = None
    samples: int | None = None
    reference: str | None = None
    plot: str | None = None
    fail_above: float | None = None
    fidelity: str = "exact"
    as_json: bool = False


def run(model: str | ModelFile, chips: str, options: Options) -> int:
    """Print the comparison, draw it if asked; 1 if an output differs by more than is allowed."""
    if options.samples is not None and options.samples < 1:
        raise AneforgeError(f"--samples takes a number from 1 on, not {options.samples}")
    if options.fail_above is not None and not options.fail_above >= 0:
        raise AneforgeError(f"--fail-above takes a number of steps from 0 on, not {options.fail_above}")
    picture = None if options.plot is None else writable(options.plot)
    graph = load_model(model)
    if options.fidelity == "exact" and native.why_not():
        print(f"{native.why_not()}; exact sums run in NumPy, the same bits and far slower", file=sys.stderr)
    found = compare(graph, chip_list(chips), _inputs(graph, options), options.fidelity, options.reference)
    above = {} if options.fail_above is None else found.exceeds(options.fail_above)
    if options.as_json:
        print(text.as_json({"model": str(model), "ok": not above, "failed": list(above), **found.to_json()}))
    else:
        print(found)
    if picture is not None:
        write_whole(picture, found.heatmap_svg(f"{Path(str(model)).name}: where chips part"))
        print(f"wrote {picture}", file=sys.stderr)
    _say_failed(found, above, options)
    return 1 if above else 0


def _inputs(graph: Graph, options: Options) -> Iterator[dict[str, np.ndarray]]:
    if options.given is not None:
        return samples_of(graph, read_arrays(options.given), options.given, options.samples)
    count = options.samples or 1
    told = "inputs were" if count == 1 else f"inputs of {count} samples were"
    print(f"{told} drawn with seed {SEED}; --input FILE.npz gives your own", file=sys.stderr)
    return drawn_inputs(graph, count)


def _say_failed(found: Comparison, above: dict, options: Options) -> None:
    for chip, outputs in above.items():
        for each in outputs:
            lost = f" and {each.lost:,} numbers finite on one of both only" if each.lost else ""
            print(
                f"fails: {each.node} on {chip} differs from {found.reference} by {each.max_ulp:,} steps{lost}; "
                f"--fail-above {options.fail_above:g}",
                file=sys.stderr,
            )
