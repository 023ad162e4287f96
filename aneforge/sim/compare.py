"""Where two chips give other numbers: traces of the same graph, laid side by side by the user's nodes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from math import sqrt
from typing import Any

import numpy as np

from aneforge.anec.interpret import laid_out, named_constants, rule_of
from aneforge.anec.ir import Module, Op
from aneforge.compiler.lower import Port
from aneforge.compiler.lower.builder import layout
from aneforge.compiler.program import Program
from aneforge.graph.graph import Graph
from aneforge.graph.reference import value_of
from aneforge.sim.executor import TraceEntry
from aneforge.sim.half import has_special

__all__ = [
    "SEED",
    "Difference",
    "Lineup",
    "Shown",
    "Tally",
    "by_node",
    "differences",
    "drawn_inputs",
    "steps_apart",
    "traced_ops",
]

Array = np.ndarray

SEED = 0
"""Of the inputs that are drawn where none are given."""


def drawn_inputs(graph: Graph, samples: int = 1, seed: int = SEED) -> Iterator[dict[str, Array]]:
    """Normal numbers for every input by name, whole ones for bytes; the same ones every time."""
    rng = np.random.default_rng(seed)
    names = graph.names()
    for _ in range(samples):
        feeds: dict[str, Array] = {}
        for each in graph.inputs:
            whole = each.dtype == "uint8"
            feeds[names[each.uid]] = rng.integers(0, 256, each.shape) if whole else rng.standard_normal(each.shape)
        yield feeds


# Statistics.


class Tally:
    """How far two results are apart, over as many arrays as are added; nothing of them is kept.

    Steps of fp16 are counted where both numbers are finite, or neither is. A number that is finite on one side only is
    lost there, and counted apart: it is no number of steps away.
    """

    def __init__(self) -> None:
        self.elements = 0
        self.changed = 0  # other bits
        self.lost_first = 0  # finite in the second only
        self.lost_second = 0  # finite in the first only
        self.max_ulp = 0
        self.max_abs = 0.0  # as all that follows: of pairs that are both finite
        self.largest = 0.0  # the largest number of both
        self._steps = 0
        self._square_gap = 0.0
        self._square_first = 0.0
        self._square_second = 0.0
        self._product = 0.0

    def add(self, first: Array, second: Array) -> None:
        """Two fp16 arrays, or two of truth values, of one shape."""
        a, b = _halves(first), _halves(second)
        self.elements += a.size
        changed = 0 if first is second else int((a.view(np.uint16) != b.view(np.uint16)).sum())
        if has_special(a) or has_special(b):
            finite_a, finite_b = np.isfinite(a), np.isfinite(b)
            self.lost_first += int((finite_b & ~finite_a).sum())
            self.lost_second += int((finite_a & ~finite_b).sum())
            alike, both = finite_a == finite_b, finite_a & finite_b
            self._count(a[alike], b[alike], changed)
            self._measure(a[both], b[both], changed)
        else:
            self._count(a, b, changed)
            self._measure(a, b, changed)
        self.changed += changed

    def _count(self, a: Array, b: Array, changed: int) -> None:
        if changed:
            apart = steps_apart(a, b)
            self.max_ulp = max(self.max_ulp, int(apart.max(initial=0)))
            self._steps += int(apart.sum(dtype=np.int64))

    def _measure(self, a: Array, b: Array, changed: int) -> None:
        one = a.reshape(-1).astype(np.float64)
        self.largest = max(self.largest, float(np.abs(a).max(initial=0.0)))
        square = float(one @ one)
        self._square_first += square
        if not changed:
            self._square_second += square
            self._product += square
            return
        two = b.reshape(-1).astype(np.float64)
        self.largest = max(self.largest, float(np.abs(b).max(initial=0.0)))
        gap = one - two
        self.max_abs = max(self.max_abs, float(np.abs(gap).max(initial=0.0)))
        self._square_second += float(two @ two)
        self._product += float(one @ two)
        self._square_gap += float(gap @ gap)

    @property
    def lost(self) -> int:
        """Elements that are finite on one side only."""
        return self.lost_first + self.lost_second

    @property
    def mean_ulp(self) -> float:
        counted = self.elements - self.lost
        return self._steps / counted if counted else 0.0

    @property
    def scaled_ulp(self) -> float:
        """The largest difference in steps of the size that fp16 has at the largest number: near zero steps are tiny,
        and many of them may be nothing."""
        return self.max_abs / float(np.spacing(np.float16(self.largest))) if self.max_abs else 0.0

    @property
    def relative(self) -> float:
        """The norm of the difference over that of the first, of what is finite in both."""
        if not self._square_gap:
            return 0.0
        return sqrt(self._square_gap / self._square_first) if self._square_first else float("inf")

    @property
    def cosine(self) -> float:
        """Of the angle between both, of what is finite in both; 1 where nothing differs."""
        if not self._square_gap:
            return 1.0
        size = sqrt(self._square_first) * sqrt(self._square_second)
        return max(-1.0, min(1.0, self._product / size)) if size else 0.0


def _halves(values: Array) -> Array:
    """As fp16, contiguous; truth is one and falsehood zero, a NaN what the engine reads it as: infinity (N31)."""
    array = np.ascontiguousarray(values, np.float16)
    return np.where(np.isnan(array), np.float16(np.inf), array) if has_special(array) else array


def steps_apart(a: Array, b: Array) -> Array:
    """How many fp16 numbers lie between two arrays, element by element; both zeros are one."""
    return np.abs(_rank(a) - _rank(b))


def _rank(values: Array) -> Array:
    bits = values.view(np.uint16).astype(np.int32)
    return np.where(bits & 0x8000, -(bits & 0x7FFF), bits)


# Two traces, by the labels of their ops.


@dataclass(frozen=True)
class Difference:
    """One node on two chips."""

    node: str
    op: str
    elements: int
    changed: int
    """Elements with other bits."""
    most_steps: int
    """The largest distance, in steps of fp16."""
    largest: float
    """The largest difference between finite results."""
    relative: float
    """The norm of the difference over that of the first chip's result, where both are finite."""
    lost: int
    """Elements that are finite on the first chip only."""

    def to_json(self) -> dict[str, Any]:
        return dict(self.__dict__)


def by_node(trace: Sequence[TraceEntry]) -> dict[str, TraceEntry]:
    """What each of the user's nodes gave: the last op that ends in it, in the order of the program."""
    found: dict[str, TraceEntry] = {}
    for entry in trace:
        if entry.sources and entry.value.dtype != bool:
            found.pop(entry.sources[-1], None)
            found[entry.sources[-1]] = entry
    return found


def differences(first: Sequence[TraceEntry], second: Sequence[TraceEntry]) -> list[Difference]:
    """Every node that both programs show with one size, in the first one's order, and how far apart it is.

    Chips fuse and lay out differently: a node that is inside a fused step of either, or is held in another order of
    axes, has no values to compare. ``Lineup`` knows better which op shows a node, and needs the programs.
    """
    other = by_node(second)
    pairs = ((node, one, other[node]) for node, one in by_node(first).items() if node in other)
    return [_difference(node, one, two) for node, one, two in pairs if one.value.shape == two.value.shape]


def _difference(node: str, one: TraceEntry, two: TraceEntry) -> Difference:
    apart = Tally()
    apart.add(one.value, two.value)
    return Difference(
        node,
        one.op,
        elements=apart.elements,
        changed=apart.changed,
        most_steps=apart.max_ulp,
        largest=apart.max_abs,
        relative=apart.relative,
        lost=apart.lost_second,
    )


# Two programs, by what their ops mean.

_PLACES = 512  # numbers of a result that are looked at to tell what it is
_ALIKE = 0.02  # constants that a pass rounds anew change a meaning by less, a step more or less by far more


@dataclass(frozen=True)
class Shown:
    """Which op of a program shows which node; numbers are places in its trace."""

    nodes: dict[str, int]
    """Nodes whose result is there as the user wrote it, in the user's order of axes."""
    last: dict[str, int]
    """The last op that ends in a node and shows no other as the user wrote it."""
    shapes: tuple[tuple[int, ...], ...]
    numbers: tuple[Array, ...]
    """What every op of the trace means: some of its numbers in float64, on inputs that are the same for all."""


class Lineup:
    """The programs of one graph, side by side: which op of each holds the numbers of a user's node.

    The labels of ops do not say that alone. A pass may move an activation in front of a transpose, or cut a node into
    steps, and chips differ in which passes act. So every op is given a meaning, its numbers in float64 on seeded
    inputs, and an op shows a node if it means what the graph says there. Programs with the same ops are read once.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._names = graph.names()
        self._found: dict[str, Shown] = {}
        self._meant: dict[str, Array] = {}
        self._feeds = next(drawn_inputs(graph))

    def shown(self, program: Program) -> Shown:
        key = _recipe(program.module)
        if key not in self._found:
            if not self._meant:
                self._meant = self._meanings()
            self._found[key] = self._read(program)
        return self._found[key]

    def _meanings(self) -> dict[str, Array]:
        """Some numbers of every operation of the graph; values are dropped after their last reader."""
        values: dict[int, Array] = {}
        left = {each.uid: 0 for each in self._graph.nodes}
        for each in self._graph.nodes:
            for operand in each.inputs:
                left[operand.uid] += 1
        found = {}
        with np.errstate(all="ignore"):
            for each in self._graph.nodes:
                name = self._names[each.uid]
                operands = [values[operand.uid] for operand in each.inputs]
                fed = self._feeds.get(name) if each.op == "input" else None
                values[each.uid] = value_of(each, operands) if fed is None else np.asarray(fed, np.float64)
                if not each.definition.leaf:
                    port = Port(name, each.shape, layout(each.shape), each.dtype)
                    found[name] = _some(port.to_ndchw(values[each.uid]))
                for operand in each.inputs:
                    left[operand.uid] -= 1
                    if not left[operand.uid]:
                        values.pop(operand.uid, None)
        return found

    def _read(self, program: Program) -> Shown:
        feeds = {}
        for port in program.inputs:
            value = self._feeds[port.name] if port.initial is None else port.initial.array
            feeds[port.name] = port.to_ndchw(value)
        numbers = _interpreted(program.module, feeds)
        ops = traced_ops(program.module)
        ends: dict[str, list[int]] = {}
        for place, op in enumerate(ops):
            if op.sources:
                ends.setdefault(op.sources[-1], []).append(place)
        nodes = {}
        for each in self._graph.operations:
            name = self._names[each.uid]
            own = ends.get(name, [])
            # A transpose that was behind an operand may have moved behind the node.
            moved = [place for operand in each.inputs for place in ends.get(self._names[operand.uid], ())]
            places = own + [place for place in moved if own and place > own[0]]
            fitting = [place for place in places if ops[place].shape == layout(each.shape)]
            if not fitting:
                continue
            # Of several that are alike the last: what moves numbers may follow what makes them.
            far, back = min((_distance(self._meant[name], numbers[place]), -place) for place in fitting)
            if far <= _ALIKE:
                nodes[name] = -back
        taken = set(nodes.values())
        free = {name: [place for place in places if place not in taken] for name, places in ends.items()}
        last = {name: places[-1] for name, places in free.items() if places}
        return Shown(nodes, last, tuple(op.shape for op in ops), numbers)

    def between(self, one: Shown, two: Shown) -> tuple[dict[str, tuple[int, int]], dict[str, str]]:
        """Places of each node that both show, in the order of the first; and why each other node is not among them.

        The reason is one of three words: ``fused``, ``layout`` or ``step``.
        """
        pairs: dict[str, tuple[int, int]] = {}
        missing: dict[str, str] = {}
        for each in self._graph.operations:
            name = self._names[each.uid]
            if name in one.nodes and name in two.nodes:
                pairs[name] = (one.nodes[name], two.nodes[name])
                continue
            places = one.last.get(name), two.last.get(name)
            if places[0] is None or places[1] is None:
                missing[name] = "fused"
            elif one.shapes[places[0]] != two.shapes[places[1]]:
                missing[name] = "layout"
            elif _distance(one.numbers[places[0]], two.numbers[places[1]]) > _ALIKE:
                missing[name] = "step"
            else:  # in the same order of axes on both, if not in the user's
                pairs[name] = (places[0], places[1])
        order = sorted(pairs, key=lambda name: pairs[name])
        return {name: pairs[name] for name in order}, missing


def traced_ops(module: Module) -> list[Op]:
    """The ops that a trace has entries for, in its order."""
    ports = ("const_in", "live_in", "state", "live_out")
    return [op for op in module.ops if op.layer is not None and op.kind not in ports]


def _recipe(module: Module) -> str:
    """Equal for modules with the same ops, wherever they are placed."""
    place = {op: number for number, op in enumerate(module.ops)}
    told = []
    for op in module.ops:
        operands = [place[each] for each in op.operands]
        told.append((op.name, operands, op.type, op.sources, sorted(op.attrs.items()), op.layer is None))
    return repr(told)


def _interpreted(module: Module, feeds: dict[str, Array]) -> tuple[Array, ...]:
    """Some numbers in float64 of every op that a trace shows."""
    wanted = set(traced_ops(module))
    left = {op: sum(op.users.values()) for op in module.ops}
    values: dict[Op, Array] = {}
    found = []
    with np.errstate(all="ignore"):
        for op in module.ops:
            if op.kind == "live_out":
                continue
            if op.kind == "const_in":
                values[op] = laid_out(module.weights[op.attrs["weight"]].array, op.shape).astype(np.float64)
            elif op.kind in ("live_in", "state"):
                fed = feeds.get(op.attrs["name"])
                values[op] = np.zeros(op.shape) if fed is None else np.asarray(fed, np.float64)
            else:
                operands = [values[each] for each in op.operands]
                made = np.asarray(rule_of(op)(op, *operands, **named_constants(module, op)))
                values[op] = made.astype(bool if op.type and op.type.dtype == "i1" else np.float64, copy=False)
            if op in wanted:
                found.append(_some(values[op]))
            for each in op.operands:
                left[each] -= 1
                if not left[each]:
                    values.pop(each, None)
    return tuple(found)


@cache
def _places(size: int) -> Array:
    return np.arange(size) if size <= _PLACES else np.random.default_rng(size).integers(0, size, _PLACES)


def _some(values: Array) -> Array:
    """A fixed choice of an array's numbers, all of them where they are few; infinities become a large number."""
    picked = values.reshape(-1)[_places(values.size)].astype(np.float64)
    return np.nan_to_num(picked, nan=0.0, posinf=1e6, neginf=-1e6)


def _distance(one: Array, two: Array) -> float:
    size = max(float(np.linalg.norm(one)), float(np.linalg.norm(two)))
    return float(np.linalg.norm(one - two)) / size if size else 0.0
