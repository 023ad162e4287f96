"""``af.run``: a model simulated on chips, arrays in and arrays out; the report that ``aneforge run`` prints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from aneforge import text
from aneforge.chips.chip import Target
from aneforge.chips.names import chip_label
from aneforge.errors import ArgumentError
from aneforge.formats.arguments import Chips, Source, chips_of, graph_of, model_name
from aneforge.graph.graph import Graph
from aneforge.progress import Progress
from aneforge.sim.compare import Summary
from aneforge.sim.engine import MODES
from aneforge.sim.inputs import SEED, samples_of
from aneforge.study.comparison import Comparison, compare
from aneforge.study.doubts import doubts_of_graph, watched_norms
from aneforge.study.loading import PROGRAM_FILES, ContainerModel, load_program
from aneforge.study.model import Model, warn_of
from aneforge.study.partition import Partition
from aneforge.study.runner import Runner
from aneforge.study.study import Study, refuse_constant
from aneforge.text import ByChip

if TYPE_CHECKING:
    from aneforge.sim.executor import TraceEntry

Array = np.ndarray


@dataclass(frozen=True)
class ChipRun:
    """A model on one simulated chip: ``outputs`` by name, and how far they can be trusted."""

    target: Target
    outputs: dict[str, Array]
    """In the user's shapes; a batch has its axis in front."""
    fidelity: dict[str, int] = field(default_factory=dict)
    """How many ops are exact, modelled or assumed."""
    first_non_finite: TraceEntry | None = None
    trace: tuple[TraceEntry, ...] | None = None
    """Every op of every layer, where it was asked for."""
    batch: int | None = None
    """How many inputs were run, of a batch."""
    batch_non_finite: int = 0
    """How many runs of a batch gave a number that is not finite."""
    partition: Partition | None = None
    """Where the model is not on the engine whole: regions of the host were computed in float32."""
    doubts: tuple[str, ...] = ()
    """Norms that collapsed, and tables that are fits and decide the error of an output; a sentence each."""

    def to_json(self) -> dict[str, Any]:
        outputs = {name: Summary(value).to_json() for name, value in self.outputs.items()}
        record: dict[str, Any] = {"target": self.target.name, "outputs": outputs, "doubts": list(self.doubts)}
        if self.partition is not None:
            record["partition"] = self.partition.to_json()
        if self.batch is not None:
            return {**record, "runs": self.batch, "non_finite": self.batch_non_finite}
        first = self.first_non_finite
        record |= {"fidelity": self.fidelity, "first_non_finite": None if first is None else list(first.sources)}
        if self.trace is not None:
            record["trace"] = [_entry(entry) for entry in self.trace]
        return record

    def __str__(self) -> str:
        lines = [f"{name} {list(value.shape)} {Summary(value)}" for name, value in self.outputs.items()]
        if self.batch is not None:
            return "\n".join([*lines, f"{self.batch} runs, {self.batch_non_finite} with a number that is not finite"])
        lines += [f"doubtful: {doubt}" for doubt in self.doubts]
        if self.fidelity:
            lines.append(", ".join(f"{count} ops {label}" for label, count in sorted(self.fidelity.items())))
        if self.first_non_finite is not None:
            first = self.first_non_finite
            lines.append(f"first non-finite: layer {first.layer}, {first.op} from {', '.join(first.sources)}")
        if self.trace is not None:
            rows = [
                (entry.layer, entry.op, entry.slot, entry.fidelity, str(Summary(entry.value)), entry.nodes or "-",
                 entry.sources)
                for entry in self.trace
            ]  # fmt: skip
            lines.append(text.columns(("layer", "op", "slot", "fidelity", "values", "is", "from"), rows))
        return "\n".join(lines)


def _entry(entry: TraceEntry) -> dict[str, Any]:
    return {
        "layer": entry.layer,
        "op": entry.op,
        "slot": entry.slot,
        "fidelity": entry.fidelity,
        "is": list(entry.nodes),
        "from": list(entry.sources),
    }


class RunResult(ByChip[ChipRun]):
    """What each chip gives. For one chip ``.outputs`` are its arrays by name; for several ``.comparison`` says where
    their numbers differ, and the arrays of each are those of the first sample."""

    def __init__(self, runs: Mapping[str, ChipRun], comparison: Comparison | None, seed: int | None) -> None:
        super().__init__(runs)
        self.comparison = comparison
        self.seed = seed
        """What the inputs were drawn from; None where they were given."""

    @property
    def samples(self) -> int:
        """How many samples were run."""
        return 1 if self.comparison is None else self.comparison.samples

    def to_json(self) -> dict[str, Any]:
        return {
            **super().to_json(),
            "comparison": None if self.comparison is None else self.comparison.to_json(),
        }

    def __str__(self) -> str:
        if self.comparison is None:
            return super().__str__()
        return f"{self.comparison.outputs_text()}\n\n{self.comparison}"


def run(
    model: Source,
    target: Chips = None,
    inputs: Any = None,
    mode: str = "exact",
    trace: bool = False,
    batch: bool = False,
    *,
    seed: int | None = None,
    dims: Mapping[str, int] | None = None,
    function: str | None = None,
    progress: Progress | None = None,
) -> RunResult:
    """Simulate a model on one chip or several; for several, also show where their numbers differ.

    ``target`` is m1 where it is left out, or the chip of a compiled model. ``inputs`` is as for :func:`compare`;
    without it they are drawn from ``seed`` (0). ``mode`` is ``exact``, or ``fast`` with single-precision sums.
    ``trace`` keeps every op of every layer. ``batch`` runs each sample of ``inputs``, whose arrays have one more axis,
    and gives outputs with that axis. Both take one chip. A model that is not on the engine whole runs in regions,
    those of the host in float32. ``progress`` hears how many samples or chips are done, of how many, and what is done
    now.

    >>> import aneforge as af, numpy as np
    >>> print(af.run(af.input((1, 64)) * 2.0, "m1", np.ones((1, 64))))
    mul_0 [1, 64] 2 to 2, mean 2
    1 ops modelled
    """
    if isinstance(model, (str, Path)) and Path(model).suffix.casefold() in PROGRAM_FILES:
        model = load_program(model, mode)
    graph = graph_of(model, dims, function)
    if isinstance(model, ContainerModel):
        return _container_run(model, target, inputs, seed, trace, batch, progress)
    refuse_constant(graph)
    chips = chips_of(target, model, first=True)
    drawn = None if inputs is not None else SEED if seed is None else seed
    if len(chips) > 1:
        if trace or batch:
            raise ArgumentError(
                "trace" if trace else "batch",
                f"it takes one chip, and target names {len(chips)}. Choose one: {', '.join(list(chips)[:6])}.",
            )
        comparison = compare(graph, list(chips), inputs, mode, seed=seed, progress=progress)
        return _several(replace(comparison, model=model_name(model)), chips, drawn)
    ((name, chip),) = chips.items()
    runner = _runner(model, graph, chip, mode)
    split = runner.partition if runner.partition.in_part else None
    if batch:
        return RunResult({name: replace(_batch(runner, inputs, trace, progress), partition=split)}, None, drawn)
    sample = _sample(graph, inputs, seed)
    with watched_norms() as norms:
        done = runner.run(sample, trace)
    steps = tuple(done.trace) if trace else None
    doubts = [*norms.sentences, *doubts_of_graph(graph, {chip_label(name): chip})]
    chip_run = ChipRun(
        chip, done.outputs, done.fidelity, done.first_non_finite, steps, partition=split, doubts=tuple(doubts)
    )
    return RunResult({name: chip_run}, None, drawn)


def _container_run(
    model: ContainerModel,
    target: Chips,
    inputs: Any,
    seed: int | None,
    trace: bool,
    batch: bool,
    progress: Progress | None,
) -> RunResult:
    """A program from a container, on the chip that it is for."""
    chips = chips_of(target, model)
    if list(chips.values()) != [model.target]:
        raise ArgumentError(
            "target", f"the container is for {model.target.name} and runs there only. Leave target out."
        )
    drawn = None if inputs is not None else SEED if seed is None else seed
    if batch:
        if inputs is None or trace:
            raise ArgumentError("batch", "it runs the samples of inputs, and keeps no trace. Give inputs alone.")
        samples, done = list(samples_of(model.graph, inputs)), []
        for sample in samples:
            done.append(model.run(sample))
            if progress is not None:
                progress(len(done), len(samples), "samples")
        outputs = {name: np.stack([run.outputs[name] for run in done]) for name in done[0].outputs} if done else {}
        failed = sum(run.first_non_finite is not None for run in done)
        result = ChipRun(model.target, outputs, batch=len(done), batch_non_finite=failed)
        return RunResult({model.target.name: result}, None, drawn)
    run_ = model.run(_sample(model.graph, inputs, seed), trace)
    steps = tuple(run_.trace) if trace else None
    result = ChipRun(model.target, run_.outputs, run_.fidelity, run_.first_non_finite, steps)
    return RunResult({next(iter(chips)): result}, None, drawn)


def _sample(graph: Graph, inputs: Any, seed: int | None) -> dict[str, Array]:
    if inputs is None:
        return next(samples_of(graph, None, seed, 1))
    several = list(samples_of(graph, inputs, seed))
    if len(several) != 1:
        raise ArgumentError("inputs", f"{len(several)} samples were given, and a run takes 1. Ask for a batch.")
    return several[0]


def _runner(model: Source, graph: Graph, chip: Target, mode: str) -> Runner:
    """A compiled model for this chip and mode is run as it is: it may have been compiled with options of its own."""
    if mode not in MODES:
        raise ArgumentError("mode", f"{mode!r} is not a mode; choose one: {', '.join(MODES)}.")
    if isinstance(model, Model) and model.target == chip and model.mode == mode:
        return Runner.of_model(model)
    runner = Study.on(graph, {chip.name: chip}).partition().runner(mode)
    for compiled in runner.models.values():
        warn_of(compiled, times=False, stacklevel=5)  # a simulation asks for numbers, not for times
    return runner


def _several(comparison: Comparison, chips: Mapping[str, Target], drawn: int | None) -> RunResult:
    runs = {
        name: ChipRun(chips[name], outputs, comparison.fidelity[name])
        for name, outputs in comparison.first_sample.items()
    }
    return RunResult(runs, comparison, drawn)


def _batch(runner: Runner, inputs: Any, trace: bool, progress: Progress | None) -> ChipRun:
    """Every input on its own; outputs get the axis that the inputs have."""
    if inputs is None or trace:
        raise ArgumentError(
            "batch", "it runs the samples of inputs, and keeps no trace. Give inputs, and leave trace out."
        )
    outputs: dict[str, list[Array]] = {}
    count = non_finite = 0
    samples = list(samples_of(runner.partition.graph, inputs))
    for done in runner.run_each(samples):
        for name, value in done.outputs.items():
            outputs.setdefault(name, []).append(value)
        non_finite += done.first_non_finite is not None
        count += 1
        if progress is not None:
            progress(count, len(samples), "samples")
    stacked = {name: np.stack(values) for name, values in outputs.items()}
    return ChipRun(runner.partition.target, stacked, batch=count, batch_non_finite=non_finite)
