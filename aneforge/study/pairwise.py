"""Two chips: every layer in which they can give different numbers, by how much at most, and why.

Both programs are walked with intervals and errors. A value that both compute by the same steps from the same numbers
is equal, whatever it is. Another can differ by no more than both errors together, counted from the last values that
are equal, and by no more than both intervals are wide. Where the chips' ways differ but the range of the data keeps
both on the same path, the layer is listed as excluded.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aneforge import text
from aneforge.chips.chip import Target
from aneforge.chips.names import chip_label, with_label
from aneforge.compiler.compile import resolve_target
from aneforge.compiler.program import Program
from aneforge.engine.ir import Op
from aneforge.engine.lineage import Standing
from aneforge.errors import ArgumentError
from aneforge.formats.arguments import Chips, Source
from aneforge.graph.graph import Graph
from aneforge.graph.tensor import Tensor
from aneforge.graph.traits import GraphTrait
from aneforge.numerics.causes import causes_of
from aneforge.numerics.moves import Digests, digests
from aneforge.numerics.ranges import Value, hull
from aneforge.numerics.transfer import Walk, walk
from aneforge.progress import Progress
from aneforge.sim.engine import Engine
from aneforge.sim.fidelity import basis
from aneforge.sim.nodes import node_order
from aneforge.study.partition import Partition
from aneforge.study.ranges import Ranges, behind, known_values, ranges_note, ranges_of, region_graphs
from aneforge.study.study import Study
from aneforge.text import ByChip, grouped, short, some, wrapped

_CHANNELS = 2
_MOST_ROWS = 24  # divergences up to which each has a row of its own
_MOST_NAMES = 6
_INHERITED = "inherited"


@dataclass(frozen=True)
class Divergence:
    """One layer of a graph on two chips."""

    node: str
    op: str
    bound: float
    """The most that two elements can differ; infinite where one chip may lose a number that the other keeps."""
    causes: tuple[str, ...]
    """What differs in the layer itself; empty where it only inherits."""
    inherited: bool
    """What it reads may differ already."""
    excluded: bool
    """The chips' ways differ here, and the range of the data keeps both on the same one."""
    ranges: tuple[Value, Value]
    """What it can be on each of the two."""

    @property
    def may_be_lost(self) -> bool:
        """Whether a number can be finite on one chip only."""
        return math.isinf(self.bound)

    def to_json(self) -> dict[str, Any]:
        return {
            "node": self.node,
            "op": self.op,
            "bound": None if math.isinf(self.bound) else self.bound,
            "may_be_lost": self.may_be_lost,
            "causes": list(self.causes),
            "inherited": self.inherited,
            "excluded": self.excluded,
            "ranges": [[value.low, value.high, value.special] for value in self.ranges],
        }


class Divergences(list[Divergence]):
    """Those of one graph, in the order of the first chip's program."""

    def __init__(
        self,
        divergences: Sequence[Divergence],
        targets: tuple[Target, Target],
        compared: int,
        unproven: Sequence[str] = (),
    ) -> None:
        super().__init__(divergences)
        self.targets = targets
        self.compared = compared
        """Nodes that both programs show."""
        self.unproven = tuple(unproven)
        """Nodes that are equal by the model, which is not exact for them: the chips are of different generations, and
        some op in front of them, or their own, is modelled or assumed on one of the two."""
        self.unbounded: tuple[str, ...] = ()
        """Nodes of regions that read what differs already, through the host: by how much they differ is not known."""
        self.in_part = ""
        """How much of the model is on the engine of both, where it is not all."""

    @property
    def real(self) -> list[Divergence]:
        """Those that the ranges do not exclude."""
        return [divergence for divergence in self if not divergence.excluded]

    @property
    def first(self) -> Divergence | None:
        """The first node that can differ, or None."""
        return next(iter(self.real), None)

    def of(self, node: str) -> Divergence | None:
        """What is known of one node, by name, or None."""
        return next((divergence for divergence in self if divergence.node == node), None)

    def to_json(self) -> dict[str, Any]:
        names = [target.name for target in self.targets]
        layers = [divergence.to_json() for divergence in self]
        head = {"targets": names, "compared": self.compared, "in_part": self.in_part or None}
        return {**head, "layers": layers, "unproven": list(self.unproven), "unbounded": list(self.unbounded)}

    def __str__(self) -> str:
        return self.text()

    def text(self, everything: bool = False, labels: tuple[str, str] | None = None) -> str:
        """Nodes by what differs in them, with examples, or with ``everything`` a row for each node."""
        one, two = labels or tuple(chip_label(target.name) for target in self.targets)
        lines = [wrapped(f"{self.in_part} of both; the host's part is the same for both")] if self.in_part else []
        if not self and not self.unproven and not self.unbounded:
            same = f"{one} and {two} give the same bits in all {self.compared} nodes that both show"
            return "\n".join([*lines, same])
        lines.append(f"{one} against {two}: {len(self.real)} of {self.compared} nodes can differ")
        if self and (everything or len(self) <= _MOST_ROWS):
            lines += self._rows((one, two))
        elif self:
            lines += self._blocks((one, two))
        most = max(len(self.unproven), len(self.unbounded)) if everything else _MOST_NAMES
        if self.unproven:
            names = some(self.unproven, most)
            lines.append(wrapped(f"equal by the model only, which is not exact for them: {names}"))
        if self.unbounded:
            names = some(self.unbounded, most)
            lines.append(wrapped(f"they read through the host what differs already, so nothing bounds them: {names}"))
        return "\n".join(lines)

    def _rows(self, labels: Sequence[str]) -> Iterator[str]:
        """A row for each node, and below it what differs in the node itself."""
        why = [self._named(_why(entry), labels) for entry in self]
        cells = [
            (
                short(entry.node),
                entry.op,
                _most(entry),
                _range_text(entry.ranges[0]),
                words if words == _INHERITED else "",
            )
            for entry, words in zip(self, why, strict=True)
        ]
        head, rule, *rows = text.columns(("node", "op", "at most", "range", "why"), cells).splitlines()
        yield from (head, rule)
        for row, words in zip(rows, why, strict=True):
            yield row
            if words != _INHERITED:
                yield wrapped(words, "    ")

    def _blocks(self, labels: Sequence[str]) -> Iterator[str]:
        """A block for each reason: how many nodes, which for example, and the most that one can differ."""
        yield wrapped(f"first: {self[0].node}, {self[0].op}, {_at_most(self[0])}")
        for why, alike in grouped(self, _why).items():
            ops = some(list(dict.fromkeys(entry.op for entry in alike)))
            names = some([entry.node for entry in alike])
            worst = max(alike, key=lambda entry: entry.bound)
            yield wrapped(f"{len(alike):,} node{'s' if len(alike) > 1 else ''} ({ops}): {names}")
            yield wrapped(f"{_at_most(worst)} in {worst.node}: {self._named(why, labels)}", "  ")
        yield "--all lists every node"

    def _named(self, words: str, labels: Sequence[str]) -> str:
        """A reason with the chips as people call them."""
        for target, label in zip(self.targets, labels, strict=True):
            words = with_label(words, target, label)
        return words


def _at_most(divergence: Divergence) -> str:
    return "numbers can be lost" if divergence.may_be_lost else f"at most {divergence.bound:.3g}"


def _most(divergence: Divergence) -> str:
    return "lost" if divergence.may_be_lost else f"{divergence.bound:.3g}"


def _range_text(value: Value) -> str:
    return f"{value.low:.4g} to {value.high:.4g}" + (", or infinite" if value.special else "")


def _why(divergence: Divergence) -> str:
    if divergence.excluded:
        return f"excluded by its range: {'; '.join(divergence.causes)}"
    return "; ".join([*divergence.causes, *([_INHERITED] if divergence.inherited else [])])


class DivergenceReport(ByChip[Divergences]):
    """Every chip compared with the first. ``same`` is True where no node can differ and all of them are proven."""

    def __init__(self, results: Mapping[str, Divergences], reference: str, note: str) -> None:
        super().__init__(results)
        self.reference = reference
        self.note = note

    @property
    def same(self) -> bool:
        """Whether all chips are shown to give the same bits."""
        return not any(result.real or result.unproven or result.unbounded for result in self.values())

    def to_json(self) -> dict[str, Any]:
        return {"reference": self.reference, **super().to_json()}

    def text(self, everything: bool = False) -> str:
        """The report; ``everything`` lists each node."""
        first = chip_label(self.reference)
        parts = [result.text(everything, (first, chip_label(name))) for name, result in self.items()]
        return "\n\n".join([*parts, *([wrapped(self.note)] if self.note else [])])

    def __str__(self) -> str:
        return self.text()


def diverges(
    model: Source,
    target: Chips = None,
    max_abs: float | None = None,
    inputs: Any = None,
    ranges: Ranges = None,
    *,
    dims: Mapping[str, int] | None = None,
    function: str | None = None,
    progress: Progress | None = None,
) -> DivergenceReport:
    """List every node whose numbers can differ between chips, by how much at most, and why. Nothing is run.

    ``target`` names two or more chips (m1 and m5 where it is left out); the others are compared with the first.
    What the inputs can be is said in one of three ways: ``max_abs`` bounds every magnitude; ``inputs`` (as for
    :func:`compare`) are run, and what is seen counts; ``ranges`` gives by input a bound, a pair of ends or data, and
    by node what was measured of it (:func:`aneforge.study.calibrate`). Without any of them inputs are what they
    promise, or any finite fp16 number, and nearly every sum can be lost. A node that is neither listed nor named in
    ``unproven`` has the same bits on both chips, for every input in its range. ``progress`` hears how many chips are
    done, of how many, and which one is compared now.
    """
    study = Study(model, target, dims=dims, function=function)
    graph, chips = study.graph, study.chips
    if len(chips) < 2:
        raise ArgumentError(
            "target", f"{', '.join(chips)} is one chip; this needs two chips or more. Write for instance m1,m5."
        )
    (reference, first), *others = chips.items()
    by_chip: dict[str, Divergences] = {}
    comparisons = Comparisons(study)
    for number, (name, chip) in enumerate(others):
        if progress is not None:
            progress(number, len(others), f"comparing {name} with {reference}")
        known = ranges_of(graph, [first, chip], max_abs, inputs, ranges)
        by_chip[name] = comparisons.between(first, chip, known)
    return DivergenceReport(by_chip, reference, ranges_note(max_abs, inputs, ranges))


def divergences_between(
    out: Tensor | Sequence[Tensor] | Graph, a: str | int | Target, b: str | int | Target, ranges: Ranges = None
) -> Divergences:
    """Those of two chips, ``a`` and ``b``, in the order of the first one's program. What one of them does not run is
    on the host for both, and the regions of the engine are compared one by one. ``ranges`` are as for ``diverges``."""
    one, other = resolve_target(a), resolve_target(b)
    return Comparisons(Study(out, [one, other])).between(one, other, ranges)


class Comparisons:
    """Comparisons of chips on one graph. A chip of several pairs is walked once."""

    def __init__(self, study: Study) -> None:
        self._study = study
        self._walks: dict[tuple[object, ...], tuple[Walk, Digests]] = {}

    def between(self, a: Target, b: Target, ranges: Ranges = None) -> Divergences:
        """Those of two chips, as :func:`divergences_between` gives them."""
        splits = self._cut_alike((a, b))
        first, second = splits[a.name], splits[b.name]
        first.require_engine()
        if first.cut.untouched:
            return self._between_programs(self._study.graph, (first.programs[0], second.programs[0]), ranges)
        divergences = Divergences([], (a, b), 0)
        differing: list[int] = []
        for region, part, known in region_graphs(first, ranges):
            programs = first.programs[region.number], second.programs[region.number]
            here = self._between_programs(part, programs, known)
            if behind(first, region.number, differing):
                divergences.unbounded += tuple(first.names[node.uid] for node in region.nodes)
            else:
                divergences.extend(here)
                divergences.unproven += here.unproven
            if here.real or here.unproven or behind(first, region.number, differing):
                differing.append(region.number)
            divergences.compared += here.compared
        divergences.in_part = first.verdict
        return divergences

    def _cut_alike(self, chips: Sequence[Target]) -> dict[str, Partition]:
        """The partitions of chips by target name, with one cut."""
        return self._study.with_chips({chip.name: chip for chip in chips}).cut_alike()

    def _walked(self, program: Program, known: Mapping[str, Value], vague: frozenset[str]) -> tuple[Walk, Digests]:
        """The values of a program and their digests."""
        key = (program.module, program.target, frozenset(known.items()), vague)
        if key not in self._walks:
            values = walk(Engine.of(program.target), program.module, known, vague)
            self._walks[key] = values, digests(values)
        return self._walks[key]

    def _between_programs(self, graph: Graph, programs: tuple[Program, Program], ranges: Ranges) -> Divergences:
        """Those of a graph that both chips take whole, in the order of the first one's program."""
        chips = programs[0].target, programs[1].target
        vague = _rewritten(graph, programs)
        known = known_values(graph, ranges)
        walked = [self._walked(program, known, vague) for program in programs]
        alike = [digested for _, digested in walked]
        equal = set(alike[0].values()) & set(alike[1].values())
        walks = []
        for one, digested in walked:
            common = frozenset(op for op, digest in digested.items() if digest in equal)
            walks.append(walk(one.engine, one.module, known, vague, common))
        names = graph.names()
        operations = {names[operation.uid] for operation in graph.operations}
        order = (name for name in node_order(programs[0]) if name in operations)
        compared = [name for name in order if _is_there(programs[1], name)]
        results = [_divergence(name, programs, walks, alike) for name in compared]
        listed = {result.node for result in results if result is not None and not result.excluded}
        modelled = [] if chips[0].td_generation == chips[1].td_generation else _modelled(programs)
        unproven = [
            name
            for name in compared
            if name not in listed and any(_rests_on(program, name, modelled) for program in programs)
        ]
        return Divergences(
            [result for result in results if result is not None], (chips[0], chips[1]), len(compared), unproven
        )


def _modelled(programs: Sequence[Program]) -> set[Op]:
    """Ops whose numbers rest on a rule that is not exact: their own, or that of an op they read."""
    modelled: set[Op] = set()
    for program in programs:
        for op in program.module.ops:
            own = op.layer is not None and basis(op.kind, program.target) != "exact"
            if own or any(operand in modelled for operand in op.operands):
                modelled.add(op)
    return modelled


def _rests_on(program: Program, node: str, modelled: Collection[Op]) -> bool:
    return any(op in modelled for op in program.lineage[node].ops())


def _is_there(program: Program, name: str) -> bool:
    standing = program.lineage.get(name)
    return standing is not None and standing.reason is None


def _rewritten(graph: Graph, programs: Sequence[Program]) -> frozenset[str]:
    """Nodes that a chip computes by other ops, which need not give their exact meaning; resampling among them, whose
    weights may be rounded."""
    names = graph.names()
    nodes = {names[node.uid] for node in graph.nodes if node.is_a(GraphTrait.RESIZE) or node.is_a(GraphTrait.SAMPLING)}
    return frozenset(nodes.union(*((record.node for record in program.rewrites) for program in programs)))


def _divergence(
    node: str, programs: Sequence[Program], walks: Sequence[Walk], alike: Sequence[Digests]
) -> Divergence | None:
    """None where the node has the same bits and no way of the chips differs in it."""
    standings = [program.lineage[node] for program in programs]
    same = _digest(standings[0], alike[0]) == _digest(standings[1], alike[1])
    causes = causes_of(node, walks, reached=not same)
    if same and not causes:
        return None
    first, second = (_value(standing, walked) for standing, walked in zip(standings, walks, strict=True))
    bound = 0.0 if same else _apart(first, second)
    ops = [list(standing.ops()) for standing in standings]
    inherits = not same and _reads_others((ops[0][-1], ops[1][-1]), alike)
    return Divergence(node, ops[0][-1].kind, bound, causes, inherits, same, (first, second))


def _digest(standing: Standing, alike: Digests) -> tuple[bytes, ...]:
    """Of a value that may have been moved: parts beside each other along the channels are the whole."""

    def moved(move: Op, parts: list[tuple[bytes, ...]]) -> tuple[bytes, ...]:
        if move.kind == "concat" and move.attrs["axis"] == _CHANNELS and not move.attrs.get("interleave"):
            return tuple(digest for part in parts for digest in part)
        steps = repr((move.kind, sorted(move.attrs.items()), move.type)).encode()
        return (steps, *(digest for part in parts for digest in part))

    return standing.value(lambda op: alike[op], moved)


def _value(standing: Standing, walked: Walk) -> Value:
    """Of a value that may have been moved: moves change no number, and a pad adds its own."""

    def moved(move: Op, parts: list[Value]) -> Value:
        fill = [Value(0.0, 0.0)] if move.kind == "padding" else []
        return hull([*parts, *fill])

    return standing.value(lambda op: walked.values[op], moved)


def _reads_others(ops: tuple[Op, Op], alike: Sequence[Digests]) -> bool:
    """Whether what two ops read differs: inputs of the node as a whole, through the ops of its own."""
    known = set().union(*(alike[1][op] for op in _entering(ops[1])))
    return any(digest not in known for op in _entering(ops[0]) for digest in alike[0][op])


def _entering(op: Op) -> list[Op]:
    """What a node's ops read from other nodes."""
    own, stack, entering = {op}, [op], []
    while stack:
        for operand in stack.pop().operands:
            if operand.kind == "const_in" or operand in own:
                continue
            if operand.sources[-1:] == op.sources[-1:] and operand.layer is not None:
                own.add(operand)
                stack.append(operand)
            else:
                entering.append(operand)
    return entering


def _apart(one: Value, two: Value) -> float:
    if one.special or two.special:
        return math.inf
    return min(one.error + two.error, max(one.high, two.high) - min(one.low, two.low))
