"""The time of a model in parts: programs of the engine, ops of the host, and what crosses between them.

A part of the engine is a program with its own call, timed as any other. The host's parts are bands. For what crosses,
the published constants of the placement model count (C30): they are those of an M4's planner, and a part's own call
already has a way into the engine and out of it, so the low end of the interval leaves them out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from aneforge.compiler.program import Program
from aneforge.cost.calls import check_scope
from aneforge.cost.constants import basis_of
from aneforge.cost.estimate import Estimate, LayerEstimate, PartEstimate, estimate_program
from aneforge.cost.host import host_band
from aneforge.graph.tensor import Tensor
from aneforge.targets.chip import Target
from aneforge.targets.evidence import Fact


@dataclass(frozen=True)
class EnginePart:
    """A region that runs on the engine: its number, how many ops of the model it holds, and its program."""

    number: int
    ops: int
    program: Program


@dataclass(frozen=True)
class HostPart:
    """A region that the host computes."""

    number: int
    nodes: Sequence[Tensor]


@dataclass(frozen=True)
class Crossings:
    """What crosses between parts, and what each crossing costs."""

    changes: int
    """How often the device changes."""
    handed_over: int
    """How many tensors the engine hands over."""
    switch_us: float
    output_us: float
    evidence: Fact[Any]

    @property
    def us(self) -> float:
        return self.changes * self.switch_us + self.handed_over * self.output_us


def estimate_parts(
    parts: Sequence[EnginePart | HostPart], crossings: Crossings, target: Target, scope: str
) -> Estimate:
    """One call of a model in parts: the sum of its parts and crossings, and of their ends."""
    check_scope(scope)
    timed: list[PartEstimate] = []
    layers: list[LayerEstimate] = []
    calls = 0
    for part in parts:
        if isinstance(part, HostPart):
            band = host_band(part.nodes)
            timed.append(PartEstimate(part.number, "host", len(part.nodes), band.middle, (band.low, band.high)))
            continue
        estimate = estimate_program(part.program, scope, target)
        timed.append(PartEstimate(part.number, "engine", part.ops, estimate.us, estimate.interval, estimate))
        layers += _numbered_from(len(layers), estimate.layers)
        calls += estimate.calls
    low = sum(part.interval[0] for part in timed)
    high = sum(part.interval[1] for part in timed) + crossings.us
    us = sum(part.us for part in timed) + crossings.us
    return Estimate(
        us,
        (low, high),
        scope,
        tuple(layers),
        calls,
        basis_of(target),
        tuple(timed),
        crossings.us,
        crossings.changes,
    )


def _numbered_from(start: int, layers: Sequence[LayerEstimate]) -> list[LayerEstimate]:
    """Layers of one part among those of all parts."""
    return [
        replace(layer, number=start + layer.number, beside=None if layer.beside is None else start + layer.beside)
        for layer in layers
    ]
