"""Run a program: layer by layer, with its fused slots, on one engine.

A ``Plan`` is made once: every op with its rule, its weights decoded and laid out, and what may be dropped after it.
Running it is one call per op. Values are dropped after their last reader, so memory follows what is live.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np

from aneforge.anec.interpret import laid_out, named_constants
from aneforge.anec.ir import Module, Op
from aneforge.compiler.program import Program
from aneforge.errors import AneforgeError
from aneforge.sim import native
from aneforge.sim.engine import Engine
from aneforge.sim.fidelity import basis
from aneforge.sim.half import has_special
from aneforge.sim.rules import prepared
from aneforge.sim.rules.moves import without_nan

__all__ = ["Plan", "Run", "TraceEntry", "execute"]

Array = np.ndarray
Feeds = Mapping[str, Array]


@dataclass(frozen=True)
class TraceEntry:
    """One op of one layer: what it gave, and how far that can be trusted."""

    layer: int
    op: str
    slot: str
    sources: tuple[str, ...]
    fidelity: str
    value: Array

    @property
    def finite(self) -> bool:
        return self.value.dtype == bool or not has_special(self.value)


@dataclass
class Run:
    """The results of one run by name, and the trace if it was asked for."""

    outputs: dict[str, Array]
    trace: list[TraceEntry] = field(default_factory=list)
    first_non_finite: TraceEntry | None = None
    fidelity: dict[str, int] = field(default_factory=dict)
    """How many ops were exact, modelled or assumed."""


@dataclass(frozen=True)
class _Step:
    """One op: the places of the values it reads, what it makes of them, and the places that are free after it."""

    op: Op
    place: int
    reads: tuple[int, ...]
    call: Callable[..., Array]
    done: tuple[int, ...]
    layer: int | None
    fidelity: str

    def entry(self, value: Array) -> TraceEntry:
        assert self.layer is not None
        return TraceEntry(self.layer, self.op.kind, self.op.slot or "primary", self.op.sources, self.fidelity, value)


class Plan:
    """A program made ready for one engine."""

    def __init__(self, module: Module, engine: Engine, places: Mapping[int, int]) -> None:
        self.engine = engine
        self._ports: list[tuple[int, Op]] = []
        self._held: list[tuple[int, Array]] = []
        self._outputs: list[tuple[str, int]] = []
        self._steps = self._made(module, places)
        self.fidelity = dict(Counter(step.fidelity for step in self._steps if step.layer is not None))

    @classmethod
    def of(cls, program: Program, fidelity: str = "exact") -> Plan:
        places = {op.layer: program.place_of(op.layer) for op in program.module.ops if op.layer is not None}
        return cls(program.module, Engine.of(program.target, fidelity), places)

    def _made(self, module: Module, places: Mapping[int, int]) -> list[_Step]:
        place_of = {op: place for place, op in enumerate(module.ops)}
        stored: dict[Op, Array] = {}
        ready = []
        for op in module.ops:
            if op.kind == "const_in":
                stored[op] = laid_out(_weight(module, op), op.shape)
            elif op.kind in ("live_in", "state"):
                self._ports.append((place_of[op], op))
            elif op.kind == "live_out":
                names = op.attrs["names"]
                self._outputs = [(name, place_of[each]) for name, each in zip(names, op.operands, strict=True)]
            else:
                constants = [stored.get(operand) for operand in op.operands]
                rule = prepared(self.engine, op, constants, named_constants(module, op))
                ready.append((op, tuple(place_of[each] for each in rule.reads), rule.call))
        kept = {place for _, place in self._outputs} | {place_of[op] for op in stored}
        wanted = {place for _, reads, _ in ready for place in reads} | {place for _, place in self._outputs}
        self._held = [(place_of[op], array) for op, array in stored.items() if place_of[op] in wanted]
        last = {place: number for number, (_, reads, _) in enumerate(ready) for place in reads}
        done: dict[int, list[int]] = {}
        for number, (op, reads, _) in enumerate(ready):
            own = place_of[op]
            for place in {*reads, own} - kept:
                if last.get(place, number) == number:
                    done.setdefault(number, []).append(place)
        return [
            _Step(op, place_of[op], reads, call, tuple(done.get(number, ())), _layer(op, places), self._basis(op))
            for number, (op, reads, call) in enumerate(ready)
        ]

    def _basis(self, op: Op) -> str:
        return basis(op.kind, self.engine.target, self.engine.fast)

    def run(self, feeds: Feeds, trace: bool = False) -> Run:
        """Run on NDCHW arrays by port name."""
        values: dict[int, Array] = dict(self._held)
        for place, port in self._ports:
            fed = feeds.get(port.attrs["name"])
            values[place] = np.zeros(port.shape, np.float16) if fed is None else _port(port, fed)
        result = Run({}, fidelity=dict(self.fidelity))
        for step in self._steps:
            value = step.call(*[values[place] for place in step.reads])
            if value.shape != step.op.shape:
                raise AneforgeError(f"{step.op.name} gave {list(value.shape)}, its type says {list(step.op.shape)}")
            if step.layer is not None:
                if trace:
                    result.trace.append(step.entry(value))
                if result.first_non_finite is None and value.dtype != bool and has_special(value):
                    result.first_non_finite = step.entry(value)
            values[step.place] = value
            for place in step.done:
                del values[place]
        result.outputs = {name: without_nan(values[place]) for name, place in self._outputs}
        return result

    def run_each(self, batch: Iterable[Feeds], trace: bool = False) -> Iterable[Run]:
        """One run per input, in their order; several at a time where there are CPUs for them."""
        workers = native.threads()
        if workers == 1:
            yield from (self.run(feeds, trace) for feeds in batch)
            return
        with ThreadPoolExecutor(workers) as pool:
            yield from pool.map(lambda feeds: self.run(feeds, trace), batch)


def execute(program: Program, feeds: Feeds, trace: bool = False, fidelity: str = "exact") -> Run:
    """Run a program once on NDCHW arrays by port name; a ``Plan`` does it again without reading weights again."""
    return Plan.of(program, fidelity).run(feeds, trace)


def _layer(op: Op, places: Mapping[int, int]) -> int | None:
    return None if op.layer is None else places[op.layer]


def _weight(module: Module, op: Op) -> Array:
    weight = module.weights.get(op.attrs["weight"])
    if weight is None:
        raise AneforgeError(
            f"the program reads weight {op.attrs['weight']!r} for {', '.join(op.sources) or op.name} and does not "
            "hold it: compile the graph again, with its weights"
        )
    return weight.array


def _port(op: Op, fed: Array) -> Array:
    """A fed value as the engine stores it: uint8 ports hold whole numbers, all others fp16 (ties to even, on the
    host)."""
    array = np.asarray(fed)
    if array.shape != op.shape:
        raise AneforgeError(
            f"input {op.attrs['name']!r} is {list(op.shape)}, a value of {list(array.shape)} was given"
        )
    with np.errstate(over="ignore"):
        return array.astype(np.float16)
