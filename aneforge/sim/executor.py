"""Run a program: layer by layer, with its fused slots, on one engine.

A ``Plan`` is made once: every op with its rule, its weights decoded and laid out, and what may be dropped after it.
Running it is one call per op. Values are dropped after their last reader, so memory follows what is live.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from aneforge.compiler.program import Program
from aneforge.engine.interpret import laid_out, named_constants
from aneforge.engine.ir import Module, Op
from aneforge.engine.traits import Trait
from aneforge.errors import AneforgeError
from aneforge.sim import native
from aneforge.sim.engine import Engine
from aneforge.sim.fidelity import FIDELITIES, basis, basis_of_form
from aneforge.sim.half import has_special
from aneforge.sim.rules import prepared
from aneforge.sim.rules.contraction import has_stored_kernel, joined, joins, reads_stored_matrix
from aneforge.sim.rules.moves import PICKS, without_nan

Array = np.ndarray
Feeds = Mapping[str, Array]
Watch = Callable[[Op, Array, Sequence[Array]], None]
"""Hears of every op of a run: its result and what it read."""

_watch: ContextVar[Watch | None] = ContextVar("watch of simulations", default=None)


@contextmanager
def watching(watch: Watch) -> Iterator[None]:
    """Every run of this thread inside is heard of."""
    token = _watch.set(watch)
    try:
        yield
    finally:
        _watch.reset(token)


@dataclass(frozen=True)
class TraceEntry:
    """One op of one layer: what it gave, and how far that can be trusted."""

    layer: int
    op: str
    slot: str
    sources: tuple[str, ...]
    fidelity: str
    value: Array
    nodes: tuple[str, ...] = ()
    """The user's nodes whose value it is."""

    @property
    def finite(self) -> bool:
        return self.value.dtype == bool or not has_special(self.value)


@dataclass
class Run:
    """The results of one run by name, and the trace if it was asked for."""

    outputs: dict[str, Array]
    trace: list[TraceEntry] = field(default_factory=list)
    values: dict[int, Array] = field(default_factory=dict)
    """With a trace, what every op and port gave, by the uid of the op."""
    first_non_finite: TraceEntry | None = None
    fidelity: dict[str, int] = field(default_factory=dict)
    """How many ops were exact, modelled or assumed."""
    states: dict[str, Array] = field(default_factory=dict)
    """What each state holds afterwards (NDCHW), by name: what the next run starts with."""


@dataclass(frozen=True)
class _Step:
    """One op: the places of the values it reads, the function it calls, and the places that are free after it.

    A step without an op computes a value that several ops take their parts from.
    """

    op: Op | None
    place: int
    reads: tuple[int, ...]
    call: Callable[..., Array]
    done: tuple[int, ...] = ()
    layer: int | None = None
    fidelity: str = ""
    watched: bool = False
    """Whether its numbers can be the first that are not finite. A move or pick only passes on numbers of other ops."""
    nodes: tuple[str, ...] = ()
    """The user's nodes whose value it gives."""

    def entry(self, value: Array) -> TraceEntry:
        assert self.op is not None
        assert self.layer is not None
        slot = self.op.slot or "primary"
        return TraceEntry(self.layer, self.op.kind, slot, self.op.sources, self.fidelity, value, self.nodes)


class ExecutionPlan:
    """A program prepared for one engine."""

    def __init__(self, module: Module, engine: Engine, places: Mapping[int, int]) -> None:
        self.engine = engine
        self._places = places
        self._place_of = {op: place for place, op in enumerate(module.ops)}
        self.module = module
        self._nodes: dict[Op, tuple[str, ...]] = {}
        for name, standing in module.lineage.items():
            if standing.op is not None:
                self._nodes[standing.op] = (*self._nodes.get(standing.op, ()), name)
        self.ports = [(self._place_of[op], op) for op in module.ops if op.is_a(Trait.INPUT)]
        self.outputs = [
            (name, self._place_of[operand])
            for op in module.ops
            if op.kind == "live_out"
            for name, operand in zip(op.attrs["names"], op.operands, strict=True)
        ]
        self._states = [(name, self._place_of[op]) for name, op in _written_states(module).items()]
        steps = self._build_steps()
        wanted = {place for step in steps for place in step.reads} | {place for _, place in self.outputs}
        constants = [op for op in module.ops if op.kind == "const_in" and self._place_of[op] in wanted]
        self._constants = [(self._place_of[op], stored_constant(module, op)) for op in constants]
        kept = {place for _, place in (*self.outputs, *self._states)} | {place for place, _ in self._constants}
        self._steps = _with_drops(steps, kept)
        self.fidelity = dict(Counter(step.fidelity for step in steps if step.layer is not None))

    @classmethod
    def of(cls, program: Program, mode: str = "exact") -> ExecutionPlan:
        """A plan for a program in one of the modes of the simulator: ``exact`` or ``fast``."""
        places = {op.layer: program.place_of(op.layer) for op in program.module.ops if op.layer is not None}
        return cls(program.module, Engine.of(program.target, mode), places)

    def _build_steps(self) -> list[_Step]:
        """All steps in order. Weights are read one op at a time; those that a rule lays out itself are not kept
        twice."""
        steps: list[_Step] = []
        pieces: dict[Op, tuple[int, slice]] = {}
        module, groups = self.module, _groups(self.module)
        for op in module.ops:
            if op.is_a(Trait.PORT) or op.is_a(Trait.INPUT):
                continue
            if op in groups and op not in pieces:
                place = len(module.ops) + len(steps)
                kernels = [stored_constant(module, member.operands[1]) for member in groups[op]]
                reads, call = joined(self.engine, groups[op], kernels)
                steps.append(_Step(None, place, self._at(reads), call))
                first = 0
                for member in groups[op]:
                    pieces[member] = (place, slice(first, first + member.shape[2]))
                    first += member.shape[2]
            if op in pieces:
                place, channels = pieces[op]
                steps.append(self._step(op, (place,), partial(_channels, channels)))
            else:
                stored = has_stored_kernel(op) or reads_stored_matrix(op)
                kernel = stored_constant(module, op.operands[1]) if stored else None
                rule = prepared(self.engine, op, kernel, named_constants(module, op))
                steps.append(self._step(op, self._at(rule.reads), rule.call))
        return steps

    def _at(self, ops: Sequence[Op]) -> tuple[int, ...]:
        return tuple(self._place_of[op] for op in ops)

    def _step(self, op: Op, reads: tuple[int, ...], call: Callable[..., Array]) -> _Step:
        layer = None if op.layer is None else self._places[op.layer]
        basis = self._basis(op)
        keeps = (op.is_a(Trait.MOVEMENT) or op.kind in PICKS) and op.labels.get("storage") != "q4"
        watched, nodes = layer is not None and not keeps, self._nodes.get(op, ())
        return _Step(op, self._place_of[op], reads, call, (), layer, basis, watched, nodes)

    def _basis(self, op: Op) -> str:
        label = basis(op.full_kind, self.engine.target, self.engine.fast)
        return max(label, basis_of_form(self.engine, op), key=FIDELITIES.index)

    def run(self, feeds: Feeds, trace: bool = False) -> Run:
        """Run on NDCHW arrays by port name."""
        values: dict[int, Array] = dict(self._constants)
        for place, port in self.ports:
            array = feeds.get(port.attrs["name"])
            values[place] = np.zeros(port.shape, np.float16) if array is None else port_value(port, array)
        result = Run({}, fidelity=dict(self.fidelity))
        if trace:
            result.values = {port.uid: values[place] for place, port in self.ports}
        watch = _watch.get()
        for step in self._steps:
            read = [values[place] for place in step.reads]
            value = step.call(*read)
            if watch is not None and step.op is not None:
                watch(step.op, value, read)
            if step.op is not None and value.shape != step.op.shape:
                raise AneforgeError(
                    f"{step.op.name}: gave shape {list(value.shape)}, its type says {list(step.op.shape)}"
                )
            if trace and step.op is not None:
                result.values[step.op.uid] = value
                if step.layer is not None:
                    result.trace.append(step.entry(value))
            if step.watched and result.first_non_finite is None and value.dtype != bool and has_special(value):
                result.first_non_finite = step.entry(value)
            values[step.place] = value
            for place in step.done:
                del values[place]
        result.outputs = {name: without_nan(values[place]) for name, place in self.outputs}
        result.states = {name: values[place] for name, place in self._states}
        return result

    def run_each(self, batch: Iterable[Feeds], trace: bool = False) -> Iterable[Run]:
        """One run per input, in their order; several run at a time where there are CPUs for them."""
        workers = native.threads()
        if workers == 1:
            yield from (self.run(feeds, trace) for feeds in batch)
            return
        under_way: deque[Future[Run]] = deque()  # few at a time, so that a long batch is never in memory as a whole
        with ThreadPoolExecutor(workers) as pool:
            for feeds in batch:
                under_way.append(pool.submit(self.run, feeds, trace))
                if len(under_way) > 2 * workers:
                    yield under_way.popleft().result()
            while under_way:
                yield under_way.popleft().result()


def execute(program: Program, feeds: Feeds, trace: bool = False, mode: str = "exact") -> Run:
    """Run a program once on NDCHW arrays by port name. To run it again without reading weights again, keep a
    ``Plan``."""
    return ExecutionPlan.of(program, mode).run(feeds, trace)


def _written_states(module: Module) -> dict[str, Op]:
    """The op whose result each state holds after a run: its last writer, or itself where nothing writes it."""
    latest: dict[str, Op] = {}
    name_of: dict[Op, str] = {}
    for op in module.ops:
        if op.kind == "state":
            name_of[op] = op.attrs["name"]
        elif op.kind == "ring_buffer_writer" and op.operands[1] in name_of:
            name_of[op] = name_of[op.operands[1]]
        if op in name_of:
            latest[name_of[op]] = op
    return latest


def _groups(module: Module) -> dict[Op, list[Op]]:
    """Convolutions that are computed as one, each with all members of its group."""
    alike: dict[Any, list[Op]] = {}
    for op in module.ops:
        key = joins(op)
        if key is not None:
            alike.setdefault(key, []).append(op)
    return {op: group for group in alike.values() if len(group) > 1 for op in group}


def _channels(channels: slice, joined_result: Array) -> Array:
    return joined_result[:, :, channels]


def _with_drops(steps: Sequence[_Step], kept: set[int]) -> list[_Step]:
    """The steps with the values that each may drop, because no later step reads them."""
    last = {place: number for number, step in enumerate(steps) for place in (step.place, *step.reads)}
    done: dict[int, list[int]] = {}
    for place, number in last.items():
        if place not in kept:
            done.setdefault(number, []).append(place)
    return [replace(step, done=tuple(done.get(number, ()))) for number, step in enumerate(steps)]


def stored_constant(module: Module, op: Op) -> Array:
    """A constant in the layout that its op declares."""
    weight = module.weights.get(op.attrs["weight"])
    if weight is None:
        raise AneforgeError(
            f"{', '.join(op.sources) or op.name}: weight {op.attrs['weight']!r} is missing from the program. "
            "Compile the graph again, with its weights."
        )
    return laid_out(weight.array, op.shape)


def port_value(op: Op, value: Array) -> Array:
    """An input value as the engine stores it: uint8 ports hold integers, all others fp16 (ties to even, as the host
    rounds)."""
    array = np.asarray(value)
    if array.shape != op.shape:
        raise AneforgeError(f"{op.attrs['name']}: input has shape {list(array.shape)}; expected {list(op.shape)}")
    if array.dtype == np.float32 and native.available():
        return native.stored(array)
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(array.astype(np.float16, copy=False))
