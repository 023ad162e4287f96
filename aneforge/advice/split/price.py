"""What the programs of a plan take: each kind of block is compiled and estimated once, with weights that stand in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from aneforge.advice.proposals import Figure
from aneforge.advice.split.pieces import with_stand_ins
from aneforge.chips.chip import Target
from aneforge.compiler.storage import Storage
from aneforge.cost.calls import Ports, call_us
from aneforge.cost.constants import CallShares, basis_of
from aneforge.cost.estimate import Estimate, ports_of
from aneforge.cost.parts import host_band
from aneforge.errors import first_line
from aneforge.graph.graph import Graph
from aneforge.graph.tensor import Tensor
from aneforge.study.partition import Partition
from aneforge.study.study import Study

_NOTHING = Ports(0.0, 0.0)


def _ports(ports: Iterable[Ports]) -> Ports:
    return Ports(*(float(sum(parts)) for parts in zip(_NOTHING, *ports, strict=True)))


@dataclass(frozen=True)
class PartCost:
    """What one part of a program takes on one chip, beside the call around the program."""

    engine_us: float = 0.0
    attention_us: float = 0.0
    each: Ports = _NOTHING
    """What a call copies for each repetition of it: caches that go in and out."""
    once: Ports = _NOTHING
    """What it copies once for all repetitions: the value that is handed on, and what all of them read."""
    apart: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """Least, middle and most microseconds for what is not one program: further calls, crossings, the host."""
    programs: int = 1
    """Regions of the engine that it makes."""
    unknown: str = ""
    """Why nobody knows its time, where that is so."""
    off_engine: str = ""
    """Why not all of it is on the engine in one program, where that is so."""
    rewrite: str = ""
    """The form that it is built in, where that is not the model's own."""


def part_costs(
    study: Study, graph: Graph, once: frozenset[str], storage: Storage | None = None
) -> Mapping[str, PartCost]:
    """A part of a model on each chip of a study. ``once`` names the ports that do not repeat with it."""
    asked = study.with_graph(with_stand_ins(graph, storage))
    known, refused = asked.estimates()
    splits = asked.timed()
    costs: dict[str, PartCost] = {}
    for name, split in splits.items():
        if name in known:
            costs[name] = _cost(known[name], split, once)
        elif not split.runs:
            reason = first_line(split.nothing_runs()).removeprefix("model: ")
            costs[name] = replace(host_cost(asked.operations.placed), off_engine=reason)
        else:
            costs[name] = PartCost(unknown=first_line(refused[name]).removeprefix("model: "))
    return costs


def host_cost(nodes: Iterable[Tensor]) -> PartCost:
    """Operations that the host computes, at assumed rates (U75)."""
    band = host_band(nodes)
    return PartCost(apart=(band.low, band.middle, band.high), programs=0)


def _cost(estimate: Estimate, split: Partition, once: frozenset[str]) -> PartCost:
    engine_us = estimate.engine_us
    attention_us = sum(layer.us for layer in estimate.layers if layer.of_attention)
    if not estimate.parts and split.cut.untouched:
        program = split.programs[0]
        each, whole = ports_of(program, once), ports_of(program)
        rest = Ports(*(a - b for a, b in zip(whole, each, strict=True)))
        constants = estimate.basis.constants
        start = float(call_us(estimate.scope, 0.0, _NOTHING, constants))
        apart = float(call_us(estimate.scope, 0.0, _NOTHING, constants, estimate.calls)) - start
        return PartCost(engine_us, attention_us, each, rest, (apart, apart, apart), estimate.calls)
    low, high = estimate.interval
    around = estimate.us - engine_us
    scale = around / estimate.us if estimate.us else 0.0
    regions = len(split.cut.on_engine)
    why = f"each layer is in {regions} regions on the engine; {next(iter(split.reasons.values()), '')}"
    return PartCost(
        engine_us, attention_us, apart=(low * scale, around, high * scale), programs=regions, off_engine=why
    )


@dataclass(frozen=True)
class ProgramCost:
    """One call of a program on one chip."""

    us: float
    interval: tuple[float, float]
    engine_us: float
    unknown: str = ""

    @property
    def figure(self) -> Figure:
        return Figure(self.us, self.interval)


def program_cost(chip: Target, scope: str, parts: Sequence[tuple[PartCost, int]]) -> ProgramCost:
    """One call of a program of some parts, each so many times."""
    unknown = next((part.unknown for part, _ in parts if part.unknown), "")
    basis = basis_of(chip)
    engine_us = sum(part.engine_us * count for part, count in parts)
    attention_us = sum(part.attention_us * count for part, count in parts)
    apart = [sum(part.apart[end] * count for part, count in parts) for end in range(3)]
    if not any(part.programs for part, _ in parts):
        return ProgramCost(apart[1], (apart[0], apart[2]), 0.0, unknown)
    once = Ports(*(max(values) for values in zip(*(part.once for part, _ in parts), strict=True)))
    ports = _ports([once, *(Ports(*(count * value for value in part.each)) for part, count in parts)])
    us = float(call_us(scope, engine_us, ports, basis.constants))
    low, high = basis.interval(us, scope, CallShares.of(us, engine_us, attention_us))
    return ProgramCost(us + apart[1], (low + apart[0], high + apart[2]), engine_us, unknown)


def together(costs: Iterable[ProgramCost]) -> ProgramCost:
    """Programs that are called one after the other."""
    listed = list(costs)
    low, high = (sum(cost.interval[end] for cost in listed) for end in range(2))
    unknown = next((cost.unknown for cost in listed if cost.unknown), "")
    return ProgramCost(sum(cost.us for cost in listed), (low, high), sum(cost.engine_us for cost in listed), unknown)
