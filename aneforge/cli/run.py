"""``aneforge run``: a model on a simulated chip, arrays in and arrays out."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from aneforge.cli.arrays import read_arrays
from aneforge.cli.model_file import ModelFile, load_model
from aneforge.cli.warned import warnings_on_stderr
from aneforge.cost.estimate import DispatchFloorWarning
from aneforge.errors import AneforgeError
from aneforge.gate.preflight import preflight
from aneforge.graph.graph import Graph
from aneforge.graph.tensor import Tensor
from aneforge.model import Model
from aneforge.model import compile as compile_model
from aneforge.output import text
from aneforge.output.files import write_arrays
from aneforge.regions import partition
from aneforge.sim import native
from aneforge.sim.compare import SEED, Difference, differences, drawn_inputs
from aneforge.sim.nodes import NodeValues

if TYPE_CHECKING:
    from aneforge.sim.executor import Run

ROWS = 12  # nodes of a comparison that are shown; --json has all


@dataclass(frozen=True)
class Options:
    """What the command was asked for."""

    given: str | None = None
    out: str | None = None
    trace: bool = False
    batch: bool = False
    fidelity: str = "exact"
    as_json: bool = False


def run(model: str | ModelFile, chips: str, options: Options) -> None:
    """Compile, simulate, write what was asked for, and say how far the numbers can be trusted."""
    asked = [part.strip() for part in chips.split(",") if part.strip()]
    if not asked:
        raise AneforgeError("--target needs a chip, for instance --target m1 or --target m1,m5")
    graph = load_model(model)
    if not all(preflight(graph, chip, route=None).ok for chip in asked):
        _partitioned(graph, asked, options)
        return
    with warnings_on_stderr(DispatchFloorWarning):  # a simulation asks for numbers, not for times
        compiled = {chip: compile_model(graph, target=chip, fidelity=options.fidelity) for chip in asked}
    first = compiled[asked[0]]
    if options.fidelity == "exact" and native.why_not():
        print(f"{native.why_not()}; exact sums run in NumPy, the same bits and far slower", file=sys.stderr)
    feeds = next(drawn_inputs(graph)) if options.given is None else read_arrays(options.given)
    if options.given is None:
        print(f"inputs were drawn with seed {SEED}; --input FILE.npz gives your own", file=sys.stderr)
    if len(compiled) > 1:
        _compare(compiled, feeds, options)
    elif options.batch:
        _batch(first, feeds, options)
    else:
        _one(first, feeds, options)


def _partitioned(graph: Graph, chips: list[str], options: Options) -> None:
    """A model that is not on the engine whole: its regions in turn, those of the host in float32."""
    if len(chips) > 1 or options.trace or options.batch or options.fidelity != "exact":
        raise AneforgeError(
            "the model has ops off the engine (aneforge partition tells which); such a model runs on one target, "
            "exact and without --trace and --batch"
        )
    found = partition(graph, chips[0])
    on_host = sum(each.device == "host" for each in found.regions)
    print(
        f"{len(found.regions) - on_host} regions on the engine, {on_host} on the host in float32 "
        "(aneforge partition tells which)",
        file=sys.stderr,
    )
    if options.given is None:
        print(f"inputs were drawn with seed {SEED}; --input FILE.npz gives your own", file=sys.stderr)
        feeds = {found.names[each.uid]: _drawn(each) for each in graph.inputs}
    else:
        feeds = read_arrays(options.given)
    outputs = found.run(feeds)
    if options.out is not None:
        _write(options.out, outputs)
    if options.as_json:
        told = {name: {"shape": list(value.shape), "values": _summary(value)} for name, value in outputs.items()}
        print(text.as_json({"target": found.target.name, "outputs": told, "partition": found.to_json()}))
        return
    for name, value in outputs.items():
        print(f"{name} {list(value.shape)} {_summary(value)}")


def _drawn(port: Tensor) -> np.ndarray:
    """Numbers for an input; small whole ones for integers, so that they are likely places of a look-up."""
    rng = np.random.default_rng(SEED)
    if port.dtype in ("int32", "uint8"):
        return rng.integers(0, 2, port.shape)
    return rng.standard_normal(port.shape).astype(np.float16)


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
            (each.layer, each.op, each.slot, each.fidelity, _summary(each.value), each.nodes or "-", each.sources)
            for each in done.trace
        ]
        print(text.columns(("layer", "op", "slot", "fidelity", "values", "is", "from"), rows))


def _print_outputs(done: Run) -> None:
    for name, value in done.outputs.items():
        print(f"{name} {list(value.shape)} {_summary(value)}")
    print(", ".join(f"{count} ops {label}" for label, count in sorted(done.fidelity.items())))
    if done.first_non_finite is not None:
        first = done.first_non_finite
        print(f"first non-finite: layer {first.layer}, {first.op} from {', '.join(first.sources)}")


def _batch(compiled: Model, feeds: dict[str, np.ndarray], options: Options) -> None:
    """Every input on its own; outputs get the axis that the inputs have."""
    if options.given is None or options.trace:
        raise AneforgeError("--batch takes --input FILE.npz, and no --trace: run one of its inputs for that")
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
        told = {name: {"shape": list(value.shape), "values": _summary(value)} for name, value in stacked.items()}
        print(text.as_json({"target": compiled.target.name, "runs": count, "outputs": told, "non_finite": lost}))
        return
    for name, value in stacked.items():
        print(f"{name} {list(value.shape)} {_summary(value)}")
    print(f"{count} runs, {lost} with a number that is not finite")


def _compare(compiled: dict[str, Model], feeds: dict[str, np.ndarray], options: Options) -> None:
    """The same inputs on several chips, node by node against the first."""
    if options.batch or options.trace or options.out is not None:
        raise AneforgeError("--batch, --trace and --output take one target, for instance --target m1")
    runs = {chip: model.run(feeds, trace=True) for chip, model in compiled.items()}
    base, *others = runs
    values = {chip: NodeValues(compiled[chip].program, done) for chip, done in runs.items()}
    found = {chip: differences(values[base], values[chip]) for chip in others}
    if options.as_json:
        print(text.as_json(_comparison(compiled, runs, found)))
        return
    for chip, done in runs.items():
        print(f"{chip} ({compiled[chip].target.name})")
        _print_outputs(done)
    _print_differences(base, found)


def _print_differences(base: str, found: dict[str, list[Difference]]) -> None:
    for chip, nodes in found.items():
        changed = [each for each in nodes if each.changed]
        print(f"\n{chip} against {base}: {len(changed)} of {len(nodes)} nodes that both show differ", end="")
        print(f", first at {changed[0].node}" if changed else "")
        shown = [
            (each.node, each.op, f"{each.changed:,} of {each.elements:,}", _short(each.largest), _short(each.relative))
            for each in changed[:ROWS]
        ]
        heads = ["node", "op", "changed", "largest", "relative"]
        if any(each.lost for each in changed):
            heads.append("infinite here only")
            shown = [(*row, each.lost) for row, each in zip(shown, changed, strict=False)]
        if shown:
            print(text.columns(heads, shown))
        if len(changed) > ROWS:
            print(f"... and {len(changed) - ROWS} more nodes (--json)")


def _short(value: float) -> str:
    return f"{value:.3g}"


def _comparison(
    compiled: dict[str, Model], runs: dict[str, Run], found: dict[str, list[Difference]]
) -> dict[str, object]:
    base = next(iter(runs))
    return {
        "against": base,
        "targets": {chip: _record(compiled[chip], done, False) for chip, done in runs.items()},
        "differences": {chip: [each.to_json() for each in nodes if each.changed] for chip, nodes in found.items()},
    }


def _summary(value: np.ndarray) -> str:
    if value.dtype == bool:
        return f"{int(value.sum())} of {value.size} true"
    wide = value.astype(np.float64)
    finite = wide[np.isfinite(wide)]
    span = f"{finite.min():.6g} to {finite.max():.6g}, mean {finite.mean():.6g}" if finite.size else "nothing finite"
    lost = wide.size - finite.size
    return f"{span}{f', {lost} infinite' if lost else ''}"


def _write(file: str, outputs: dict[str, np.ndarray]) -> None:
    write_arrays(file, outputs)


def _record(compiled: Model, done: Run, trace: bool) -> dict[str, object]:
    record: dict[str, object] = {
        "target": compiled.target.name,
        "outputs": {
            name: {"shape": list(value.shape), "values": _summary(value)} for name, value in done.outputs.items()
        },
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
