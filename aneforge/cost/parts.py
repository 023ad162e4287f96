"""The time of a model in parts: programs of the engine, ops of the host, and what crosses between them.

A part of the engine is a program with its own call, timed as any other. The host's parts are bands. For what crosses,
the published constants of the placement model count (C30): they are those of an M4's planner, and a part's own call
already has a way into the engine and out of it, so the low end of the interval leaves them out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from math import fsum, log2, prod, sqrt
from typing import Any, NamedTuple

from aneforge.chips.assumed import constant
from aneforge.chips.chip import Target
from aneforge.chips.evidence import Fact
from aneforge.compiler.program import Program
from aneforge.cost.calls import check_scope
from aneforge.cost.constants import basis_of
from aneforge.cost.estimate import Estimate, LayerEstimate, PartEstimate, estimate_program
from aneforge.cost.machines import with_copies
from aneforge.graph.node import DTYPES
from aneforge.graph.tensor import Tensor
from aneforge.graph.traits import GraphTrait
from aneforge.graph.views import does, plain_name

# The host's part of a split model as a band: what its ops take at least and at most on a CPU.


CHOICE = "U75"
"""The choice that explains the rates."""

_FLOAT = 4  # bytes: the host computes in float32


class Band(NamedTuple):
    """Microseconds, at least and at most."""

    low: float
    high: float

    @property
    def middle(self) -> float:
        """Where a single figure is wanted: as many times the low end as the high end is of it."""
        return sqrt(self.low * self.high)


def host_band(nodes: Iterable[Tensor], held: Collection[int] = ()) -> Band:
    """What the host takes for some ops, one after the other. The nodes in ``held``, by uid, lie in a state's buffer:
    a write changes its rows only."""
    bytes_per_us, flops_per_us, product_flops_per_us, start = (
        constant(name)
        for name in ("host_bytes_per_us", "host_flops_per_us", "host_product_flops_per_us", "host_op_us")
    )
    low = high = 0.0
    for node in nodes:
        written = node.uid in held
        moved, flops = (_rows_written(node), 0.0) if written else (_bytes(node), _flops(node))
        # A library for linear algebra computes products with the matrix units of the CPU.
        rates = product_flops_per_us if does(node, GraphTrait.PRODUCT) else flops_per_us
        low += start[0] + max(moved / bytes_per_us[1], flops / rates[1])
        high += start[1] + max(moved / bytes_per_us[0], flops / rates[0])
    return Band(low, high)


def _rows_written(node: Tensor) -> float:
    """What a write into a state reads and writes: all that it is given but the state."""
    return 2.0 * sum(_size(operand) for operand in node.inputs if operand.shape != node.shape)


def _bytes(node: Tensor) -> float:
    """Read and written. A look-up reads the rows that it gives, not the table."""
    written = _size(node)
    read = [_size(operand) for operand in node.inputs]
    if does(node, GraphTrait.PICK):
        read = [min(size, written) for size in read]
    return float(written + sum(read))


def _size(tensor: Tensor) -> int:
    return prod(tensor.shape) * (_FLOAT if tensor.dtype == "fp16" else DTYPES[tensor.dtype])


def _flops(node: Tensor) -> float:
    """Two for a multiply-add, one for each element of anything else; a sort compares each element log n times."""
    name, shapes = plain_name(node), [operand.shape for operand in node.inputs if operand.dtype != "int32"]
    elements = max(map(prod, [node.shape, *shapes]))
    if does(node, GraphTrait.PICK):
        return 0.0
    if does(node, GraphTrait.CONVOLUTION):
        return 2.0 * prod(node.shape) * prod(shapes[1][1:]) if len(shapes) > 1 else float(elements)
    if does(node, GraphTrait.PRODUCT) and shapes and shapes[0]:
        return 2.0 * prod(node.shape) * shapes[0][-1]
    if name == "sdpa" or "attention" in name:
        return 4.0 * prod(node.shape) * _keys(shapes)
    if does(node, GraphTrait.SORT):
        return elements * max(1.0, log2(max(2, elements)))
    return float(elements)


def _keys(shapes: Sequence[Sequence[int]]) -> int:
    return shapes[1][-2] if len(shapes) > 1 and len(shapes[1]) > 1 else 1


@dataclass(frozen=True)
class EnginePart:
    """A region that runs on the engine: its number, how many ops of the model it holds, and its program."""

    number: int
    ops: int
    program: Program
    stay: Collection[str] = ()
    """Ports that hold a state, which no call copies."""


@dataclass(frozen=True)
class HostPart:
    """A region that the host computes."""

    number: int
    nodes: Sequence[Tensor]
    held: Collection[int] = ()
    """Nodes that lie in a state's buffer."""


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
    parts: Sequence[EnginePart | HostPart],
    crossings: Crossings,
    target: Target,
    scope: str,
    copy_gbs: float | None = None,
) -> Estimate:
    """One call of a model in parts: the sum of its parts and crossings, and of their ends."""
    check_scope(scope)
    timed: list[PartEstimate] = []
    layers: list[LayerEstimate] = []
    calls = 0
    for part in parts:
        if isinstance(part, HostPart):
            band = host_band(part.nodes, part.held)
            timed.append(PartEstimate(part.number, "host", len(part.nodes), band.middle, (band.low, band.high)))
            continue
        estimate = estimate_program(part.program, scope, target, copy_gbs, part.stay)
        timed.append(PartEstimate(part.number, "engine", part.ops, estimate.us, estimate.interval, estimate))
        layers += _numbered_from(len(layers), estimate.layers)
        calls += estimate.calls
    low = fsum(part.interval[0] for part in timed)
    high = fsum(part.interval[1] for part in timed) + crossings.us
    us = fsum(part.us for part in timed) + crossings.us
    return Estimate(
        us,
        (low, high),
        scope,
        tuple(layers),
        calls,
        with_copies(basis_of(target), copy_gbs),
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
