"""``compare``: one graph simulated on several chips, and where and how far their numbers part."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from math import prod
from typing import Any

import numpy as np

from aneforge.anec.ir import Op
from aneforge.compiler.compile import compile_all, resolve_target
from aneforge.compiler.lower import output_names
from aneforge.compiler.program import Program
from aneforge.errors import AneforgeError
from aneforge.graph.graph import Graph
from aneforge.graph.reference import evaluate
from aneforge.graph.tensor import Tensor
from aneforge.model import Model
from aneforge.numerics.compared import Comparison, Distance, NodeDifference, NonFinite, OutputDifference, Pair
from aneforge.sim.compare import Tally
from aneforge.sim.engine import MODES, Engine
from aneforge.sim.executor import Run, TraceEntry
from aneforge.sim.fidelity import FIDELITIES, basis
from aneforge.sim.inputs import default_samples, drawn_inputs
from aneforge.sim.nodes import NodeValues, node_order
from aneforge.sim.summary import Summary
from aneforge.targets.chip import Target
from aneforge.targets.listed import chip_list

__all__ = ["FLOAT64", "Comparison", "compare"]

Array = np.ndarray

FLOAT64 = "float64"
"""The name among the targets for what the graph means, before any chip rounds a number."""


def compare(
    out: Tensor | Sequence[Tensor] | Graph,
    targets: str | Iterable[str | Target],
    inputs: Any = None,
    fidelity: str = "exact",
    reference: str | Target | None = None,
) -> Comparison:
    """Simulate one graph on several chips and tell, node by node, where their numbers part and how far.

    ``targets`` are two or more chips; the first, or ``reference``, is what the others are held against. ``"float64"``
    among them adds how far each chip is from what the graph means. ``inputs`` is one sample (arrays by name, a list of
    arrays in the order of the graph's inputs, or one array) or several of them (a list of dicts or of lists, or any
    iterator: samples are read one at a time, and none is kept). Without inputs samples are drawn from a seed, one of
    them at the ends of the ranges that inputs promise. A chip
    that refuses the graph is listed with the reason, and the others go on.
    """
    if fidelity not in MODES:
        raise AneforgeError(f"fidelity is {fidelity!r}: say one of {', '.join(MODES)}")
    graph = Graph.of(out)
    asked, exact_too = _asked(targets, reference)
    compiled = compile_all(graph, list(asked.values()))
    refused = {name: str(compiled.refused[at.name]) for name, at in asked.items() if at.name in compiled.refused}
    found = {name: compiled[at.name] for name, at in asked.items() if name not in refused}
    if len(found) + exact_too < 2 or not found:
        reasons = "; ".join(f"{name}: {why}" for name, why in refused.items())
        left = ", ".join(found) or "none"
        raise AneforgeError(
            f"a comparison needs two chips with a program; of {', '.join(asked)} there is {left} ({reasons})"
        )
    base = next(iter(found)) if reference is None else _label(reference)
    if base in refused:
        raise AneforgeError(f"the reference {base} has no program, so choose another: {refused[base]}")
    machines = _machines(graph, found, fidelity, base)
    given = drawn_inputs(graph, default_samples(graph)) if inputs is None else _samples(graph, inputs)
    samples = _simulate(graph, machines, given, exact_too)
    of = {chip: machine for machine in machines for chip in machine.chips}
    trust = {chip: _Trust(program, fidelity == "fast") for chip, program in found.items()}
    return Comparison(
        reference=base,
        targets={chip: program.target.name for chip, program in found.items()},
        refused=refused,
        samples=samples,
        fidelity=fidelity,
        pairs={chip: of[chip].pair(chip, machines[0], (trust[base], trust[chip])) for chip in found if chip != base},
        first_non_finite={chip: of[chip].non_finite() for chip in found},
        float64={chip: of[chip].distances() for chip in found} if exact_too else {},
        shared=tuple(tuple(each.chips) for each in machines if len(each.chips) > 1),
        outputs={chip: of[chip].summaries() for chip in found},
    )


# What was asked for.


def _asked(targets: Any, reference: str | Target | None) -> tuple[dict[str, Target], bool]:
    """Chips by the names they were asked for, the reference among them; and whether float64 was."""
    if isinstance(targets, str):
        targets = _named(targets)
    listed = list(targets) if isinstance(targets, Iterable) else [targets]
    if reference == FLOAT64:
        raise AneforgeError(f"the reference is a chip; name {FLOAT64} among the targets to see the error of each")
    exact_too = FLOAT64 in listed
    chips = [each for each in listed if each != FLOAT64]
    if reference is not None and _label(reference) not in map(_label, chips):
        chips.insert(0, reference)
    asked = {_label(each): resolve_target(each) for each in chips}
    if len(asked) + exact_too < 2 or not asked:
        named = ", ".join([*asked, FLOAT64] if exact_too else asked) or "nothing"
        raise AneforgeError(f"a comparison needs two chips, for instance m1 and m5; {named} was named")
    return asked, exact_too


def _named(text: str) -> list[str]:
    """The chips in a text as on the command line; ``float64`` may be among them."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    chips = [part for part in parts if part.casefold() != FLOAT64]
    exact = [FLOAT64] if len(chips) < len(parts) else []
    return [*(chip_list(",".join(chips)) if chips else ()), *exact]


def _label(chip: str | Target) -> str:
    return chip.name if isinstance(chip, Target) else str(chip)


def _samples(graph: Graph, inputs: Any) -> Iterator[dict[str, Array]]:
    """Each sample by name. A list holds samples where its members are dicts or lists, and arrays in order if not."""
    names = graph.names()
    ports = [names[each.uid] for each in graph.inputs]

    def named(sample: Any) -> dict[str, Array]:
        if isinstance(sample, Mapping):
            return {names[key.uid] if isinstance(key, Tensor) else key: value for key, value in sample.items()}
        arrays = list(sample) if isinstance(sample, (list, tuple)) else [sample]
        if len(arrays) != len(ports):
            told = ", ".join(ports) or "no input"
            raise AneforgeError(f"the graph takes {told}, so one array each; {len(arrays)} were given")
        return dict(zip(ports, arrays, strict=True))

    held = isinstance(inputs, (list, tuple)) and any(isinstance(each, (Mapping, list, tuple)) for each in inputs)
    return map(named, inputs) if held or isinstance(inputs, Iterator) else iter([named(inputs)])


# Runs.


class _Output:
    """An output in the user's shape: its statistics, and how often the best score is at the same place."""

    def __init__(self, shape: tuple[int, ...], scores: bool) -> None:
        self.tally = Tally()
        self.values = Summary()
        self.axis = _score_axis(shape) if scores else None
        self.rows = self.agree = 0
        self.square_error = self.square = self.largest = 0.0  # against float64
        self.lost = 0

    def add(self, first: Array, second: Array) -> None:
        self.tally.add(first, second)
        self.values.add(second)
        if self.axis is not None:
            alike = first.argmax(self.axis) == second.argmax(self.axis)
            self.rows, self.agree = self.rows + alike.size, self.agree + int(alike.sum())

    def add_exact(self, exact: Array, found: Array) -> None:
        want, have = (np.asarray(each, np.float64).reshape(-1) for each in (exact, found))
        finite = np.isfinite(want) & np.isfinite(have)
        self.lost += int((np.isfinite(want) & ~np.isfinite(have)).sum())
        want, error = want[finite], want[finite] - have[finite]
        self.square_error += float(error @ error)
        self.square += float(want @ want)
        self.largest = max(self.largest, float(np.abs(error).max(initial=0.0)))

    def distance(self) -> Distance:
        share = self.square_error / self.square if self.square else float("inf") if self.square_error else 0.0
        return Distance(share**0.5, self.largest, self.lost)


def _score_axis(shape: tuple[int, ...]) -> int | None:
    """Where the scores of classes lie, if an output looks like such: a map of more than one pixel does not."""
    if len(shape) > 3:
        return 1 if shape[1] > 1 and prod(shape[2:]) == 1 else None
    return len(shape) - 1 if shape and shape[-1] > 1 else None


class _Machine:
    """Chips with one program and one arithmetic: simulated once for all of them, held against the reference's run."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.shown = node_order(model.program)
        self.chips: list[str] = []
        self._places: dict[str, int] = {}
        self._missing: dict[str, str] = {}
        self._nodes: dict[str, Tally] = {}
        self._outputs = [_Output(each.shape, each.dtype != "bool") for each in model.graph.outputs]
        self._lost: tuple[int, TraceEntry] | None = None

    def hold_against(self, first: _Machine) -> None:
        """Every operation whose value both programs have, in the order of the first; why the others are left out."""
        names = self.model.graph.names()
        operations = dict.fromkeys(names[each.uid] for each in self.model.graph.operations)
        shared = (name for name in first.shown if name in operations and name in self.shown)
        self._places = {name: first.shown[name] for name in shared}
        self._nodes = {name: Tally() for name in self._places}
        for name in (each for each in operations if each not in self._places):
            reasons = [_why_gone(machine, name) for machine in (first, self)]
            self._missing[name] = "; ".join(dict.fromkeys(reason for reason in reasons if reason))

    def add(self, sample: int, first: Run, mine: Run, exact: Sequence[Array], base: NodeValues) -> None:
        own = base if mine is first else NodeValues(self.model.program, mine)
        for name in self._places:
            one = base[name]
            self._nodes[name].add(one, one if mine is first else own[name])
        given = zip(self._outputs, first.outputs.values(), mine.outputs.values(), strict=True)
        for place, (output, one, two) in enumerate(given):
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
        names = output_names(self.model.graph)
        return {name: output.distance() for name, output in zip(names, self._outputs, strict=True)}

    def summaries(self) -> dict[str, Summary]:
        names = output_names(self.model.graph)
        return {name: output.values for name, output in zip(names, self._outputs, strict=True)}

    def pair(self, chip: str, first: _Machine, trust: tuple[_Trust, _Trust]) -> Pair:
        nodes = []
        for name, place in self._places.items():
            labels = trust[0].of_node(name), trust[1].of_node(name)
            figures = _statistics(self._nodes[name])
            nodes.append(NodeDifference(name, trust[0].kind(name), place, **figures, fidelity=labels))
        outputs = []
        named = zip(output_names(self.model.graph), self._outputs, strict=True)
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
    standing = machine.model.program.lineage.get(name)
    return "it has no value of its own" if standing is None else standing.reason


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


def _machines(graph: Graph, found: dict[str, Program], fidelity: str, base: str) -> list[_Machine]:
    """The reference's first."""
    machines: dict[tuple[Any, ...], _Machine] = {}
    for name in (base, *(each for each in found if each != base)):
        program = found[name]
        engine = Engine.of(program.target, fidelity)
        arithmetic = tuple(getattr(engine, field.name) for field in fields(engine) if field.name != "target")
        key = (program.fingerprint, arithmetic)
        if key not in machines:
            machines[key] = _Machine(Model(graph, program, fidelity))
        machines[key].chips.append(name)
    made = list(machines.values())
    for each in made:
        each.hold_against(made[0])
    return made


def _simulate(graph: Graph, machines: list[_Machine], given: Iterable[dict[str, Array]], exact_too: bool) -> int:
    """Every sample on every machine, the reference's trace and one other at a time; returns how many samples."""
    names = graph.names()
    leaves = {names[each.uid]: each for each in (*graph.inputs, *graph.parameters)}
    count = 0
    for sample, feeds in enumerate(given):
        first = machines[0].model.run(feeds, trace=True)
        fed = {leaves[name]: value for name, value in feeds.items() if name in leaves}
        exact = evaluate(Graph(graph.outputs), fed) if exact_too else ()
        base = NodeValues(machines[0].model.program, first)
        for each in machines:
            mine = first if each is machines[0] else each.model.run(feeds, trace=True)
            each.add(sample, first, mine, exact, base)
        count += 1
    if not count:
        raise AneforgeError("no sample was given; a comparison needs one at least")
    return count


class _Trust:
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
            leading[op] = _weaker(own, *(leading[each] for each in op.operands))
        self._outputs = [leading[each] for op in program.module.ops if op.kind == "live_out" for each in op.operands]

    def _of(self, op: Op) -> str:
        kind = f"unit:{op.attrs['type']}" if op.kind == "unit" else op.kind
        return basis(kind, self._target, self._fast)

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
