"""``compare``: one graph simulated on several chips, and where and how far their numbers differ."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from math import prod
from typing import Any, NamedTuple

import numpy as np

from aneforge.chips.chip import Target
from aneforge.chips.devices import split_names
from aneforge.chips.names import DEFAULT
from aneforge.compiler.lower import output_names
from aneforge.compiler.program import Program
from aneforge.engine.ir import Op
from aneforge.errors import ArgumentError
from aneforge.formats.arguments import Chips, Source, chips_of, graph_of, model_name
from aneforge.graph.graph import Graph
from aneforge.graph.reference import evaluate
from aneforge.numerics.compared import Comparison, Distance, NodeDifference, NonFinite, OutputDifference, Pair
from aneforge.progress import Progress
from aneforge.sim.compare import Summary, Tally
from aneforge.sim.engine import MODES, Engine
from aneforge.sim.executor import TraceEntry
from aneforge.sim.fidelity import FIDELITIES, basis
from aneforge.sim.inputs import SEED, default_samples, samples_of
from aneforge.study.partition import Partition
from aneforge.study.runner import RegionsRun, RegionValues, Runner, value_order
from aneforge.study.study import Study

Array = np.ndarray

_HOST_FIDELITY = "assumed"  # computed in float32 and rounded once

FLOAT64 = "float64"
"""The name among the targets for what the graph means, before any chip rounds a number."""


def compare(
    model: Source,
    target: Chips = None,
    inputs: Any = None,
    mode: str = "exact",
    reference: str | Target | None = None,
    *,
    seed: int | None = None,
    samples: int | None = None,
    fail_above: float | None = None,
    dims: Mapping[str, int] | None = None,
    function: str | None = None,
    progress: Progress | None = None,
) -> Comparison:
    """Simulate one model on several chips and show, node by node, where their numbers differ and how far.

    ``target`` names two or more chips (m1, m2 and m5 where it is left out); the first, or ``reference``, is what the
    others are compared with. ``"float64"`` among them adds how far each chip is from what the graph means. ``inputs``
    is one sample (arrays by name, a list of arrays in the order of the graph's inputs, or one array), several (a list
    of dicts or of lists, an iterator, or named arrays with one more axis in front), or the path of an ``.npz`` file.
    Samples are read one at a time, and none is kept. Without inputs ``samples`` are drawn from ``seed`` (0), one of
    them at the ends of the ranges that inputs promise. ``mode`` is ``exact`` or ``fast``. ``.ok`` is False
    where an output differs by more steps of fp16 than ``fail_above``. A chip that refuses the graph is listed with the
    reason, and the others go on. A model that is only in part on the engine is compared region by region as each chip
    runs it; what the host computes in float32 is marked ``host``. ``progress`` hears how many simulations are done, of
    how many, and what is done now.

    >>> import aneforge as af
    >>> found = af.compare(af.input((1, 64), max_abs=8).exp(), "m1,m5")
    >>> found.reference, list(found.pairs), found.ok
    ('m1', ['m5'], True)
    """
    if fail_above is not None and not fail_above >= 0:
        raise ArgumentError("fail_above", f"{fail_above!r} is not a number of steps; give 0 or more.")
    if mode not in MODES:
        raise ArgumentError("mode", f"{mode!r} is not a mode; choose one: {', '.join(MODES)}.")
    graph = graph_of(model, dims, function)
    chips, exact_too = chips_and_float64(DEFAULT if target is None else target, reference)
    feeds = samples_of(graph, inputs, seed, samples)
    if progress is not None:
        progress(0, 0, f"compiling for {', '.join(chips)}")
    splits = Study.on(graph, chips).partitions()
    refused = {name: split.nothing_runs().problem for name, split in splits.items() if not split.runs}
    programs = {name: split for name, split in splits.items() if name not in refused}
    if len(programs) + exact_too < 2 or not programs:
        reasons = "; ".join(f"{name}: {why}" for name, why in refused.items())
        left = ", ".join(programs) or "none"
        raise ArgumentError(
            "target",
            f"a comparison needs two chips that run something of the model; of {', '.join(chips)} there is {left} "
            f"({reasons})",
        )
    base = next(iter(programs)) if reference is None else _label(reference)
    if base in refused:
        raise ArgumentError("reference", f"{base} runs nothing of it, so choose another: {refused[base]}")
    machines = _machines(programs, mode, base)
    drawn = 0 if inputs is not None else default_samples(graph) if samples is None else samples
    count = _simulate(graph, machines, feeds, exact_too, _Listener(progress, drawn * len(machines)))
    of = {chip: machine for machine in machines for chip in machine.chips}
    trust = {chip: _Trust(split, mode == "fast") for chip, split in programs.items()}
    return Comparison(
        reference=base,
        targets={chip: program.target.name for chip, program in programs.items()},
        refused=refused,
        samples=count,
        mode=mode,
        pairs={
            chip: of[chip].pair(chip, machines[0], (trust[base], trust[chip])) for chip in programs if chip != base
        },
        first_non_finite={chip: of[chip].non_finite() for chip in programs},
        float64={chip: of[chip].distances() for chip in programs} if exact_too else {},
        shared=tuple(tuple(machine.chips) for machine in machines if len(machine.chips) > 1),
        outputs={chip: of[chip].summaries() for chip in programs},
        model=model_name(model),
        seed=None if inputs is not None else SEED if seed is None else seed,
        fail_above=fail_above,
        first_sample={chip: of[chip].first_sample for chip in programs},
        fidelity={chip: of[chip].fidelity for chip in programs},
        in_part={chip: split.verdict for chip, split in programs.items() if not split.cut.untouched},
    )


# What was asked for.


def chips_and_float64(target: Any, reference: str | Target | None) -> tuple[dict[str, Target], bool]:
    """Chips by the names they were asked for, the reference among them; and whether float64 was."""
    if reference == FLOAT64:
        raise ArgumentError("reference", f"{FLOAT64} is not a chip. Name it in target to see the error of each chip.")
    listed = (
        split_names(target) if isinstance(target, str) else list(target) if isinstance(target, Iterable) else [target]
    )
    parts = [part.strip() if isinstance(part, str) else part for part in listed]
    named = [part for part in parts if part and not _is_float64(part)]
    exact_too = any(_is_float64(part) for part in parts)
    chips = chips_of(named) if named else {}
    if reference is not None and _label(reference) not in chips:
        chips = {**chips_of(reference), **chips}
    if len(chips) + exact_too < 2 or not chips:
        names = ", ".join([*chips, FLOAT64] if exact_too else chips) or "nothing"
        raise ArgumentError(
            "target", f"a comparison needs two chips, and {names} was named. Write for instance m1,m5."
        )
    return chips, exact_too


def _is_float64(part: Any) -> bool:
    return isinstance(part, str) and part.casefold() == FLOAT64


def _label(chip: str | Target) -> str:
    return chip.name if isinstance(chip, Target) else str(chip)


# Runs.


class _Output:
    """An output in the user's shape: its statistics, and how often the best score is at the same place."""

    def __init__(self, shape: tuple[int, ...], scores: bool) -> None:
        self.tally = Tally()
        self.values = Summary()
        self.axis = score_axis(shape) if scores else None
        self.rows = self.agree = 0
        self.square_error = self.square = self.largest = 0.0  # against float64
        self.lost = 0

    def add(self, first: Array, second: Array) -> None:
        self.tally.add(first, second)
        self.values.add(second)
        if self.axis is not None:
            alike = first.argmax(self.axis) == second.argmax(self.axis)
            self.rows, self.agree = self.rows + alike.size, self.agree + int(alike.sum())

    def add_exact(self, exact: Array, simulated: Array) -> None:
        want, have = (np.asarray(array, np.float64).reshape(-1) for array in (exact, simulated))
        finite = np.isfinite(want) & np.isfinite(have)
        self.lost += int((np.isfinite(want) & ~np.isfinite(have)).sum())
        want, error = want[finite], want[finite] - have[finite]
        self.square_error += float(error @ error)
        self.square += float(want @ want)
        self.largest = max(self.largest, float(np.abs(error).max(initial=0.0)))

    def distance(self) -> Distance:
        share = self.square_error / self.square if self.square else float("inf") if self.square_error else 0.0
        return Distance(share**0.5, self.largest, self.lost)


def score_axis(shape: tuple[int, ...]) -> int | None:
    """Where the scores of classes lie, if an output looks like such: a map of more than one pixel does not."""
    if len(shape) > 3:
        return 1 if shape[1] > 1 and prod(shape[2:]) == 1 else None
    return len(shape) - 1 if shape and shape[-1] > 1 else None


class _Machine:
    """Chips with the same programs and one arithmetic: simulated once for all, compared with the reference's run."""

    def __init__(self, runner: Runner) -> None:
        self.runner = runner
        self.split = runner.partition
        self.shown = value_order(self.split)
        self.chips: list[str] = []
        self.first_sample: dict[str, Array] = {}
        self.fidelity: dict[str, int] = {}
        self._places: dict[str, int] = {}
        self._missing: dict[str, str] = {}
        self._nodes: dict[str, Tally] = {}
        self._outputs = [_Output(output.shape, output.dtype != "bool") for output in self.split.graph.outputs]
        self._lost: tuple[int, TraceEntry] | None = None

    def compare_with(self, first: _Machine) -> None:
        """Every operation whose value both programs have, in the order of the first; why the others are left out."""
        names = self.split.names
        operations = dict.fromkeys(names[node.uid] for node in self.split.cut.operations.counted)
        shared = (name for name in first.shown if name in operations and name in self.shown)
        self._places = {name: first.shown[name] for name in shared}
        self._nodes = {name: Tally() for name in self._places}
        for name in (operation for operation in operations if operation not in self._places):
            reasons = [_why_gone(machine, name) for machine in (first, self)]
            self._missing[name] = "; ".join(dict.fromkeys(reason for reason in reasons if reason))

    def add(
        self, sample: int, first: RegionsRun, mine: RegionsRun, exact: Sequence[Array], base: RegionValues
    ) -> None:
        if not sample:
            self.first_sample, self.fidelity = dict(mine.outputs), dict(mine.fidelity)
        own = base if mine is first else RegionValues(self.split, mine)
        for name in self._places:
            one = base[name]
            self._nodes[name].add(one, one if mine is first else own[name])
        outputs = zip(self._outputs, first.outputs.values(), mine.outputs.values(), strict=True)
        for place, (output, one, two) in enumerate(outputs):
            output.add(one, two)
            if exact:
                output.add_exact(exact[place], two)
        at = mine.first_non_finite
        if at is not None and (self._lost is None or at.layer < self._lost[1].layer):
            self._lost = sample, at

    def non_finite(self) -> NonFinite | None:
        if self._lost is None:
            return None
        sample, at = self._lost
        return NonFinite(at.layer, at.op, at.sources, sample)

    def distances(self) -> dict[str, Distance]:
        names = output_names(self.split.graph)
        return {name: output.distance() for name, output in zip(names, self._outputs, strict=True)}

    def summaries(self) -> dict[str, Summary]:
        names = output_names(self.split.graph)
        return {name: output.values for name, output in zip(names, self._outputs, strict=True)}

    def pair(self, chip: str, first: _Machine, trust: tuple[_Trust, _Trust]) -> Pair:
        nodes = []
        for name, place in self._places.items():
            labels = trust[0].of_node(name), trust[1].of_node(name)
            figures = _statistics(self._nodes[name])
            nodes.append(NodeDifference(name, trust[0].kind(name), place, **figures, fidelity=labels))
        outputs = []
        named = zip(output_names(self.split.graph), self._outputs, strict=True)
        for place, (name, output) in enumerate(named):
            labels = trust[0].of_output(place), trust[1].of_output(place)
            top1 = output.agree / output.rows if output.rows else None
            outputs.append(
                OutputDifference(
                    name,
                    "output",
                    place,
                    **_statistics(output.tally),
                    fidelity=labels,
                    cosine=output.tally.cosine,
                    top1=top1,
                    top1_axis=output.axis,
                )
            )
        return Pair(chip, tuple(nodes), tuple(outputs), self._missing, self is first)


def _why_gone(machine: _Machine, name: str) -> str | None:
    for program in machine.split.programs.values():
        standing = program.lineage.get(name)
        if standing is not None:
            return standing.reason
    return None if name in machine.shown else "it has no value of its own"


def _statistics(tally: Tally) -> dict[str, Any]:
    return {
        "elements": tally.elements,
        "changed": tally.changed,
        "max_ulp": tally.max_ulp,
        "mean_ulp": tally.mean_ulp,
        "scaled_ulp": tally.scaled_ulp,
        "max_abs": tally.max_abs,
        "relative": tally.relative,
        "lost_reference": tally.lost_first,
        "lost_here": tally.lost_second,
    }


def _machines(splits: dict[str, Partition], mode: str, base: str) -> list[_Machine]:
    """The reference's first."""
    machines: dict[tuple[Any, ...], _Machine] = {}
    for name in (base, *(chip for chip in splits if chip != base)):
        key = machine_key(splits[name], mode)
        if key not in machines:
            machines[key] = _Machine(splits[name].runner(mode))
        machines[key].chips.append(name)
    first, *others = machines.values()
    for machine in (first, *others):
        machine.compare_with(first)
    return [first, *others]


def machine_key(split: Partition, mode: str) -> tuple[Any, ...]:
    """What decides every bit of a model on a chip: the cut, the programs and the arithmetic. Chips that share it are
    simulated once."""
    engine = Engine.of(split.target, mode)
    arithmetic = tuple(getattr(engine, field.name) for field in fields(engine) if field.name != "target")
    return (
        tuple(split.device_of.items()),
        tuple(program.fingerprint for program in split.programs.values()),
        arithmetic,
    )


class _Listener(NamedTuple):
    """Who hears of every simulation, of how many; 0 where samples are read one by one and nobody knows."""

    progress: Progress | None
    total: int

    def next(self, done: int, what: str) -> None:
        if self.progress is not None:
            self.progress(done if self.total else 0, self.total, what)


def _simulate(
    graph: Graph,
    machines: list[_Machine],
    samples: Iterable[dict[str, Array]],
    exact_too: bool,
    listener: _Listener,
) -> int:
    """Every sample on every machine, the reference's trace and one other at a time; returns how many samples."""
    names = graph.names()
    leaves = {names[leaf.uid]: leaf for leaf in (*graph.inputs, *graph.parameters)}
    count = 0
    for sample, feeds in enumerate(samples):
        first = machines[0].runner.run(feeds, trace=True)
        fed = {leaves[name]: value for name, value in feeds.items() if name in leaves}
        exact = evaluate(Graph(graph.outputs), fed) if exact_too else ()
        base = RegionValues(machines[0].split, first)
        for number, machine in enumerate(machines):
            listener.next(
                sample * len(machines) + number, f"simulating {', '.join(machine.chips)}, sample {sample + 1}"
            )
            mine = first if machine is machines[0] else machine.runner.run(feeds, trace=True)
            machine.add(sample, first, mine, exact, base)
        count += 1
    if not count:
        raise ArgumentError("inputs", "it holds no sample; a comparison needs at least one.")
    return count


class _Trust:
    """How far the numbers of a model can be trusted on a chip, in all its regions."""

    def __init__(self, split: Partition, fast: bool) -> None:
        self._regions = [_ProgramTrust(program, fast) for program in split.programs.values()]
        self._whole = split.cut.untouched
        self._weakest = _weaker(_HOST_FIDELITY, *(region.weakest for region in self._regions))

    def _home(self, name: str) -> _ProgramTrust | None:
        return next((region for region in self._regions if name in region), None)

    def kind(self, name: str) -> str:
        """The backend op that completes a node; ``host`` for one of the host."""
        home = self._home(name)
        return "host" if home is None else home.kind(name)

    def of_node(self, name: str) -> str:
        home = self._home(name)
        return _HOST_FIDELITY if home is None else home.of_node(name)

    def of_output(self, place: int) -> str:
        """Of the weakest op that leads to an output; of the weakest of all where several regions may."""
        return self._regions[0].of_output(place) if self._whole else self._weakest


class _ProgramTrust:
    """How far the ops of a program can be trusted on its chip."""

    def __init__(self, program: Program, fast: bool) -> None:
        self._target, self._fast = program.target, fast
        self._lineage = program.lineage
        self._nodes: dict[str, str] = {}
        for op in program.module.ops:
            if op.sources and op.layer is not None:
                known = self._nodes.get(op.sources[-1], FIDELITIES[0])
                self._nodes[op.sources[-1]] = _weaker(known, self._of(op))
        leading: dict[Op, str] = {}
        for op in program.module.ops:
            own = self._of(op) if op.layer is not None else FIDELITIES[0]
            leading[op] = _weaker(own, *(leading[operand] for operand in op.operands))
        self._outputs = [
            leading[operand] for op in program.module.ops if op.kind == "live_out" for operand in op.operands
        ]

        self.weakest = _weaker(FIDELITIES[0], *leading.values())
        ports = {port.name for port in program.inputs}
        self._own = {name for name, standing in program.lineage.items() if standing.reason is None} - ports

    def __contains__(self, name: str) -> bool:
        """Whether a node's value is made here."""
        return name in self._own

    def _of(self, op: Op) -> str:
        return basis(op.full_kind, self._target, self._fast)

    def kind(self, name: str) -> str:
        """The backend op that completes a node."""
        *_, last = self._lineage[name].ops()
        return last.kind

    def of_node(self, name: str) -> str:
        """Of the weakest op that ends in a node, and of those that hold it."""
        shown = [self._of(op) for op in self._lineage[name].ops() if op.layer is not None]
        return _weaker(self._nodes.get(name, FIDELITIES[0]), *shown)

    def of_output(self, place: int) -> str:
        """Of the weakest op that leads to an output."""
        return self._outputs[place]


def _weaker(*labels: str) -> str:
    return max(labels, key=FIDELITIES.index)
