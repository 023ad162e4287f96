"""Which layers go into which program: as few programs as the ceilings allow, with nearly equal weights in each."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from aneforge.advice.split.limits import Amounts, Breach, Ceilings
from aneforge.advice.split.resize import TokenSizes, sizes_of
from aneforge.advice.split.structure import LayerBlock, ModelStructure
from aneforge.compiler.legal.programs import stored_bytes
from aneforge.compiler.storage import LEAST_ENCODED, Storage
from aneforge.graph.node import DTYPES
from aneforge.graph.tensor import Tensor
from aneforge.graph.traits import GraphTrait
from aneforge.study.caches import CacheWrite


@dataclass(frozen=True)
class Holdings:
    """What one block brings into a program."""

    weights: dict[str, int]
    """The bytes of each constant, by its content: programs hold equal ones once."""
    cache_bytes: int = 0
    states: tuple[tuple[int, ...], ...] = ()
    """The shapes of its states."""
    decode_layers: int = 0
    attends: bool = False
    history: int = 0

    @property
    def weight_bytes(self) -> int:
        return sum(self.weights.values())


def holdings_of(
    structure: ModelStructure, block: LayerBlock, storage: Storage | None, to: TokenSizes | None = None
) -> Holdings:
    """What a block holds with its weights in a form, or as they are stored; for other numbers of tokens where they are
    given."""
    now = sizes_of(structure)
    sizes = to or now
    read = {operand.uid for node in block.nodes for operand in node.inputs}
    caches = [write for write in structure.writes if write.port.uid in read]
    shapes = [_shape_for(write, sizes) for write in caches]
    states = tuple(shape for write, shape in zip(caches, shapes, strict=True) if write.as_state)
    one_row = sizes.rows == 1
    several = max((keys for _, keys in block.attention), default=0)
    return Holdings(
        bytes_in_form(block, storage),
        sum(math.prod(shape) * DTYPES[write.port.dtype] for write, shape in zip(caches, shapes, strict=True)),
        states,
        sum(queries == now.rows for queries, _ in block.attention) if one_row else 0,
        bool(block.attention),
        0 if one_row else max(several, sizes.cache),
    )


def _shape_for(write: CacheWrite, sizes: TokenSizes) -> tuple[int, ...]:
    """The shape of a cache for another number of places."""
    if write.rows is None:
        return write.port.shape
    return tuple(sizes.cache if axis == write.axis else size for axis, size in enumerate(write.port.shape))


def bytes_in_form(block: LayerBlock, storage: Storage | None) -> dict[str, int]:
    """The bytes of each constant of a block by content, its layers' weights in a form."""
    kernels = {
        node.inputs[1].uid: node
        for node in block.nodes
        if node.is_a(GraphTrait.STORED_KERNEL) and len(node.inputs) > 1 and node.op != "conv_transpose"
    }
    sizes: dict[str, int] = {}
    for constant in block.weights:
        key = constant.weight.key if constant.weight is not None else str(constant.uid)
        encoded = _encoded_bytes(constant, kernels.get(constant.uid), storage)
        sizes[key] = stored_bytes(constant) if encoded is None else encoded
    return sizes


def _encoded_bytes(constant: Tensor, reader: Tensor | None, storage: Storage | None) -> int | None:
    weight = constant.weight
    if storage is None or reader is None or weight is None or weight.encoded is not None:
        return None
    axis = reader.definition.kernel_axis
    if axis is None or constant.size < LEAST_ENCODED:
        return None
    outputs = constant.shape[axis]
    return storage.bytes_of((outputs, constant.size // outputs))


@dataclass(frozen=True)
class LayerRun:
    """Blocks that follow one another in one program, from one number up to another."""

    first: int
    last: int

    @property
    def count(self) -> int:
        return self.last - self.first + 1

    def __str__(self) -> str:
        return f"layer {self.first}" if self.count == 1 else f"layers {self.first} to {self.last}"


def amounts_of(holdings: Sequence[Holdings], head_rows: int = 0) -> Amounts:
    """What one program of some blocks holds."""
    weights: dict[str, int] = {}
    for one in holdings:
        weights |= one.weights
    states = {shape for one in holdings for shape in one.states}  # those of one shape are one state of the program
    attends = any(one.attends for one in holdings)
    return Amounts(
        weight_bytes=float(sum(weights.values())),
        kind="decoder" if attends and head_rows else "layers" if attends else "convolutions",
        cache_bytes=float(sum(one.cache_bytes for one in holdings)),
        decode_layers=sum(one.decode_layers for one in holdings),
        states=len(states),
        unlike_states=len(states) > 1,
        state_axis=max((shape[-1] for shape in states), key=lambda size: size % 32, default=0),
        head_rows=head_rows,
        history=max((one.history for one in holdings), default=0),
    )


@dataclass(frozen=True)
class LayerCut:
    """Runs of layers for one chip, and why none of them is longer."""

    runs: tuple[LayerRun, ...]
    breach: Breach | None
    """What one more layer in the first program would break; None where all layers fit in one."""
    longest: int
    """Layers that the first program could hold at most."""
    alone: Breach | None = None
    """What a single layer breaks: then no cut between layers helps."""


_OF_ONE_LAYER = ("state_axis", "history", "head_rows")
"""Amounts that fewer layers do not make smaller."""
Allowed = Callable[[Amounts], list[Breach]]


def cut_layers(holdings: Sequence[Holdings], ceilings: Ceilings) -> LayerCut:
    """As few runs of layers as the ceilings allow, and of those the one with the smallest largest run."""
    if not holdings:
        return LayerCut((), None, 0)

    def breaches(amounts: Amounts) -> list[Breach]:
        return [found for found in ceilings.breaches(amounts) if found.ceiling.quantity not in _OF_ONE_LAYER]

    ends, breach, alone = _greedy(holdings, breaches)
    longest = ends[0] + 1
    if alone is None and len(ends) > 1:
        ends = _balanced(holdings, breaches, len(ends)) or ends
    firsts = [0, *(end + 1 for end in ends[:-1])]
    return LayerCut(tuple(map(LayerRun, firsts, ends)), breach, longest, alone)


def _greedy(
    holdings: Sequence[Holdings], breaches: Allowed, most: float | None = None
) -> tuple[list[int], Breach | None, Breach | None]:
    """The last layer of each run when each takes all that it may; what the first run's next layer would break; and
    what a layer by itself breaks. ``most`` bounds the bytes of a run."""
    ends: list[int] = []
    first_breach = alone = None
    start = 0
    while start < len(holdings):
        end, broken = _reach(holdings, breaches, start, most)
        if end < start:
            alone = alone or broken
            end = start
        if not ends:
            first_breach = broken if end + 1 < len(holdings) else None
        ends.append(end)
        start = end + 1
    return ends, first_breach, alone


def _reach(
    holdings: Sequence[Holdings], breaches: Allowed, start: int, most: float | None
) -> tuple[int, Breach | None]:
    """The last layer that a run from ``start`` on may have, and what the next one breaks. More layers never break
    less, so the place is found by halving."""
    low, high = start - 1, len(holdings) - 1
    broken: Breach | None = None
    while low < high:
        middle = (low + high + 1) // 2
        amounts = amounts_of(holdings[start : middle + 1])
        found = breaches(amounts)
        if found or (most is not None and amounts.weight_bytes > most and middle > start):
            high, broken = middle - 1, found[0] if found else broken
        else:
            low = middle
    return low, broken


def _balanced(holdings: Sequence[Holdings], breaches: Allowed, count: int) -> list[int] | None:
    """The same number of runs with the smallest largest weight."""
    sizes = [one.weight_bytes for one in holdings]
    low, high, best = max(sizes), sum(sizes), None
    while low <= high:
        middle = (low + high) // 2
        ends, _, alone = _greedy(holdings, breaches, float(middle))
        if len(ends) <= count and alone is None:
            best, high = ends, middle - 1
        else:
            low = middle + 1
    return best
