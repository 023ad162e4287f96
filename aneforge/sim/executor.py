"""Run a program: layer by layer, with its fused slots, on one engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from aneforge.anec.interpret import laid_out, named_constants
from aneforge.anec.ir import Module, Op
from aneforge.compiler.program import Program
from aneforge.errors import AneforgeError
from aneforge.sim.engine import Engine
from aneforge.sim.fidelity import basis
from aneforge.sim.rules import computed

__all__ = ["Run", "TraceEntry", "execute"]

Array = np.ndarray


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
        return bool(np.isfinite(self.value).all())


@dataclass
class Run:
    """The results of one run by name, and the trace if it was asked for."""

    outputs: dict[str, Array]
    trace: list[TraceEntry] = field(default_factory=list)
    first_non_finite: TraceEntry | None = None
    fidelity: dict[str, int] = field(default_factory=dict)
    """How many ops were exact, modelled or assumed."""


def execute(program: Program, feeds: Mapping[str, Array], trace: bool = False) -> Run:
    """Run on NDCHW arrays by port name. Values are dropped after their last reader, so memory follows what is live."""
    engine = Engine.of(program.target)
    places = {op.layer: program.place_of(op.layer) for op in program.module.ops if op.layer is not None}
    return _Execution(program.module, engine, places).run(feeds, trace)


class _Execution:
    def __init__(self, module: Module, engine: Engine, places: dict[int, int]) -> None:
        self.module, self.engine, self.places = module, engine, places
        self.values: dict[Op, Array] = {}
        self.left = {op: sum(op.users.values()) for op in module.ops}

    def run(self, feeds: Mapping[str, Array], trace: bool) -> Run:
        result = Run({})
        for op in self.module.ops:
            if op.name == "anec.live_out":
                given = [self.values[operand] for operand in op.operands]
                result.outputs = dict(zip(op.attrs["names"], given, strict=True))
                continue
            value = self._value(op, feeds)
            if op.layer is not None:
                self._note(result, op, value, trace)
            self._keep(op, value)
        return result

    def _value(self, op: Op, feeds: Mapping[str, Array]) -> Array:
        if op.kind == "const_in":
            return laid_out(self.module.weights[op.attrs["weight"]].array, op.shape)
        if op.kind in ("live_in", "state"):
            fed = feeds.get(op.attrs["name"])
            return np.zeros(op.shape, np.float16) if fed is None else _port(op, fed)
        operands = [self.values[operand] for operand in op.operands]
        value = computed(self.engine, op, operands, named_constants(self.module, op))
        if value.shape != op.shape:
            raise AneforgeError(f"{op.name} gave {list(value.shape)}, its type says {list(op.shape)}")
        return value

    def _keep(self, op: Op, value: Array) -> None:
        if self.left[op]:
            self.values[op] = value
        for operand in op.operands:
            self.left[operand] -= 1
            if not self.left[operand]:
                self.values.pop(operand, None)

    def _note(self, result: Run, op: Op, value: Array, trace: bool) -> None:
        known = basis(op.kind, self.engine.target)
        result.fidelity[known] = result.fidelity.get(known, 0) + 1
        lost = result.first_non_finite is None and value.dtype != bool and not np.isfinite(value).all()
        if not trace and not lost:
            return
        assert op.layer is not None
        entry = TraceEntry(self.places[op.layer], op.kind, op.slot or "primary", op.sources, known, value)
        if lost:
            result.first_non_finite = entry
        if trace:
            result.trace.append(entry)


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
