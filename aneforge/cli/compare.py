"""Several chips at once: ``aneforge compare``, and ``aneforge run`` with more than one chip. One implementation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from aneforge.cli import say
from aneforge.cli.arrays import input_samples
from aneforge.cli.model_file import ModelFile, load_model
from aneforge.cli.plot import writable
from aneforge.errors import AneforgeError
from aneforge.graph.graph import Graph
from aneforge.numerics.comparison import Comparison, compare
from aneforge.output import text
from aneforge.output.files import write_whole
from aneforge.sim import native


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
    seed: int | None = None


def run(model: str | ModelFile, chips: str, options: Options) -> int:
    """Print the comparison, draw it if asked; 1 if an output differs by more than is allowed."""
    if options.samples is not None and options.samples < 1:
        raise AneforgeError(f"--samples takes a number from 1 on, not {options.samples}")
    if options.fail_above is not None and not options.fail_above >= 0:
        raise AneforgeError(f"--fail-above takes a number of steps from 0 on, not {options.fail_above}")
    picture = None if options.plot is None else writable(options.plot)
    found, above = show(model, load_model(model), chips, options)
    if picture is not None:
        write_whole(picture, found.heatmap_svg(f"{Path(str(model)).name}: where chips part"))
        say.note(f"wrote {picture}")
    return 1 if above else 0


def show(
    model: str | ModelFile, graph: Graph, chips: str, options: Options, outputs: bool = False
) -> tuple[Comparison, dict]:
    """Simulate on every chip and print the differences, behind the outputs of each chip if asked for."""
    warn_if_slow(options.fidelity)
    found = compare(graph, chips, _inputs(graph, options), options.fidelity, options.reference)
    above = {} if options.fail_above is None else found.exceeds(options.fail_above)
    if options.as_json:
        print(text.as_json({"model": str(model), "ok": not above, "failed": list(above), **found.to_json()}))
    else:
        if outputs:
            _print_outputs(found)
        print(found)
    _say_failed(found, above, options)
    return found, above


def warn_if_slow(fidelity: str) -> None:
    if fidelity == "exact" and native.why_not():
        say.note(f"{native.why_not()}; exact sums run in NumPy, the same bits and far slower")


def _inputs(graph: Graph, options: Options) -> Iterator[dict[str, np.ndarray]]:
    return input_samples(graph, options.given, options.seed, options.samples)


def _print_outputs(found: Comparison) -> None:
    for chip, outputs in found.outputs.items():
        print(f"{chip} ({found.targets[chip]})")
        for name, values in outputs.items():
            print(f"{name} {list(values.shape)} {values}")
    print()


def _say_failed(found: Comparison, above: dict, options: Options) -> None:
    for chip, outputs in above.items():
        for each in outputs:
            lost = f" and {each.lost:,} numbers finite on one of both only" if each.lost else ""
            say.note(
                f"fails: {each.node} on {chip} differs from {found.reference} by {each.max_ulp:,} steps{lost}; "
                f"--fail-above {options.fail_above:g}"
            )
