"""``aneforge run``: a model on a simulated chip, arrays in and arrays out; several chips go to ``compare``."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from aneforge.cli import compare, say
from aneforge.cli.arrays import input_samples, read_arrays
from aneforge.cli.model_file import ModelFile, load_model
from aneforge.cli.warned import warnings_on_stderr
from aneforge.cost.estimate import DispatchFloorWarning
from aneforge.errors import AneforgeError
from aneforge.gate.preflight import preflight
from aneforge.graph.graph import Graph
from aneforge.model import Model
from aneforge.model import compile as compile_model
from aneforge.output import text
from aneforge.output.files import write_arrays
from aneforge.regions import partition
from aneforge.sim.summary import Summary
from aneforge.targets.listed import chip_list

if TYPE_CHECKING:
    from aneforge.sim.executor import Run


@dataclass(frozen=True)
class Options:
    """What the command was asked for."""

    given: str | None = None
    out: str | None = None
    trace: bool = False
    batch: bool = False
    fidelity: str = "exact"
    as_json: bool = False
    seed: int | None = None


def run(model: str | ModelFile, chips: str, options: Options) -> None:
    """Compile, simulate, write what was asked for, and say how far the numbers can be trusted; compare many chips."""
    asked = chip_list(chips)
    graph = load_model(model)
    fits = [chip for chip in asked if preflight(graph, chip, route=None).ok]
    if len(asked) > 1 and fits:
        _several(model, graph, asked, options)
    elif not fits:
        _partitioned(graph, asked, options)
    else:
        _alone(graph, asked[0], options)


def _several(model: str | ModelFile, graph: Graph, chips: list[str], options: Options) -> None:
    """What ``aneforge compare`` does, behind the outputs of each chip."""
    if options.batch or options.trace or options.out is not None:
        raise AneforgeError("--batch, --trace and --out take one target, for instance --target m1")
    comparison = compare.Options(options.given, fidelity=options.fidelity, as_json=options.as_json, seed=options.seed)
    compare.show(model, graph, ",".join(chips), comparison, outputs=True)


def _alone(graph: Graph, chip: str, options: Options) -> None:
    with warnings_on_stderr(DispatchFloorWarning):  # a simulation asks for numbers, not for times
        compiled = compile_model(graph, target=chip, fidelity=options.fidelity)
    compare.warn_if_slow(options.fidelity)
    if options.batch:
        _batch(compiled, options)
    else:
        _one(compiled, _feeds(graph, options), options)


def _feeds(graph: Graph, options: Options) -> dict[str, np.ndarray]:
    """One sample: of the file, or the first that every command draws."""
    if options.given is not None and options.seed is None:
        return read_arrays(options.given)
    return next(input_samples(graph, options.given, options.seed, 1))


def _partitioned(graph: Graph, chips: list[str], options: Options) -> None:
    """A model that is not on the engine whole: its regions in turn, those of the host in float32."""
    if len(chips) > 1 or options.trace or options.batch or options.fidelity != "exact":
        raise AneforgeError(
            "the model has ops off the engine (aneforge partition tells which); such a model runs on one target, "
            "exact and without --trace and --batch"
        )
    found = partition(graph, chips[0])
    on_host = sum(each.device == "host" for each in found.regions)
    say.note(
        f"{len(found.regions) - on_host} regions on the engine, {on_host} on the host in float32 "
        "(aneforge partition tells which)"
    )
    outputs = found.run(_feeds(graph, options))
    if options.out is not None:
        _write(options.out, outputs)
    if options.as_json:
        shown = {name: Summary(value).to_json() for name, value in outputs.items()}
        print(text.as_json({"target": found.target.name, "outputs": shown, "partition": found.to_json()}))
        return
    for name, value in outputs.items():
        print(f"{name} {list(value.shape)} {Summary(value)}")


def _one(compiled: Model, feeds: dict[str, np.ndarray], options: Options) -> None:
    done = compiled.run(feeds, trace=options.trace)
    if options.out is not None:
        _write(options.out, done.outputs)
    if options.as_json:
        print(text.as_json(_record(compiled, done, options.trace)))
        return
    _print_outputs(done)
    if options.trace:
        rows = [
            (each.layer, each.op, each.slot, each.fidelity, str(Summary(each.value)), each.nodes or "-", each.sources)
            for each in done.trace
        ]
        print(text.columns(("layer", "op", "slot", "fidelity", "values", "is", "from"), rows))


def _print_outputs(done: Run) -> None:
    for name, value in done.outputs.items():
        print(f"{name} {list(value.shape)} {Summary(value)}")
    print(", ".join(f"{count} ops {label}" for label, count in sorted(done.fidelity.items())))
    if done.first_non_finite is not None:
        first = done.first_non_finite
        print(f"first non-finite: layer {first.layer}, {first.op} from {', '.join(first.sources)}")


def _batch(compiled: Model, options: Options) -> None:
    """Every input on its own; outputs get the axis that the inputs have."""
    if options.given is None or options.trace:
        raise AneforgeError("--batch takes --input FILE.npz, and no --trace: run one of its inputs for that")
    feeds = read_arrays(options.given)
    outputs: dict[str, list[np.ndarray]] = {}
    lost = 0
    count = len(next(iter(feeds.values()))) if feeds else 0
    for number, done in enumerate(compiled.batch(feeds), 1):
        for name, value in done.outputs.items():
            outputs.setdefault(name, []).append(value)
        lost += done.first_non_finite is not None
        if sys.stderr.isatty():
            print(f"\r{number} of {count}", end="\n" if number == count else "", file=sys.stderr, flush=True)
    stacked = {name: np.stack(values) for name, values in outputs.items()}
    if options.out is not None:
        _write(options.out, stacked)
    if options.as_json:
        told = {name: Summary(value).to_json() for name, value in stacked.items()}
        print(text.as_json({"target": compiled.target.name, "runs": count, "outputs": told, "non_finite": lost}))
        return
    for name, value in stacked.items():
        print(f"{name} {list(value.shape)} {Summary(value)}")
    print(f"{count} runs, {lost} with a number that is not finite")


def _write(file: str, outputs: dict[str, np.ndarray]) -> None:
    write_arrays(file, outputs)


def _record(compiled: Model, done: Run, trace: bool) -> dict[str, object]:
    record: dict[str, object] = {
        "target": compiled.target.name,
        "outputs": {name: Summary(value).to_json() for name, value in done.outputs.items()},
        "fidelity": done.fidelity,
        "first_non_finite": None if done.first_non_finite is None else list(done.first_non_finite.sources),
    }
    if trace:
        record["trace"] = [
            {
                "layer": each.layer,
                "op": each.op,
                "slot": each.slot,
                "fidelity": each.fidelity,
                "is": list(each.nodes),
                "from": list(each.sources),
            }
            for each in done.trace
        ]
    return record
