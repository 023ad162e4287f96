"""Where a model can be cut, and which of its parts repeat: found in the graph, whatever its nodes are called.

A place between two operations is a waist where one value crosses it, not counting what many layers read (a mask, the
angles of a rotation). The operations between two waists are a unit. A block is a layer: a unit that attends with the
units up to the next one, or, without attention, a period of units that repeats. What is in front of the blocks and
behind them are the start and the end of the model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from aneforge.compiler.legal.patterns import attention_extents
from aneforge.compiler.legal.programs import stored_bytes
from aneforge.graph.graph import Graph
from aneforge.graph.ops.layers import attention_axes
from aneforge.graph.tensor import Tensor
from aneforge.graph.traits import GraphTrait
from aneforge.graph.views import does
from aneforge.study.caches import CacheWrite, cache_writes

_MOST_PERIOD = 64
"""Units of one block at most: layers of several kinds repeat every few layers."""


@dataclass(frozen=True, eq=False)
class LayerBlock:
    """Operations that follow one another, with one value handed on to what is behind them."""

    nodes: tuple[Tensor, ...]
    kind: int
    """Equal for blocks that look alike: the same operations on the same shapes."""

    @cached_property
    def weights(self) -> tuple[Tensor, ...]:
        """The constants that it reads, each once."""
        stored = {operand.uid: operand for node in self.nodes for operand in node.inputs if operand.is_a(_STORED)}
        return tuple(stored.values())

    @cached_property
    def weight_bytes(self) -> int:
        """As the model stores them."""
        return sum(map(stored_bytes, self.weights))

    @cached_property
    def attention(self) -> tuple[tuple[int, int], ...]:
        """The queries and keys of each attention in it."""
        extents = (attention_extents(node) for node in self.nodes)
        return tuple(found for found in extents if found is not None)


_STORED = GraphTrait.STORED


@dataclass(frozen=True, eq=False)
class ModelStructure:
    """A model as start, blocks and end."""

    graph: Graph
    names: Mapping[int, str]
    start: LayerBlock | None
    """What is in front of the blocks; None where there is nothing."""
    blocks: tuple[LayerBlock, ...]
    """In order; of a model that does not repeat, its units."""
    end: LayerBlock | None
    repeats: bool
    """Whether the blocks are repetitions of one another."""

    @cached_property
    def writes(self) -> tuple[CacheWrite, ...]:
        """The caches, and how each gets its new rows."""
        return tuple(cache_writes(self.graph))

    @cached_property
    def caches(self) -> frozenset[int]:
        """The inputs, by uid, that hold what earlier calls left."""
        return frozenset(write.port.uid for write in self.writes)

    @cached_property
    def shared(self) -> frozenset[int]:
        """The values, by uid, that several blocks read."""
        readers: dict[int, int] = {}
        for block in self.blocks:
            inside = {node.uid for node in block.nodes}
            read = {operand.uid for node in block.nodes for operand in node.inputs if operand.op != "const"}
            for uid in read - inside:
                readers[uid] = readers.get(uid, 0) + 1
        return frozenset(uid for uid, count in readers.items() if count > 1)

    @cached_property
    def head(self) -> Tensor | None:
        """The product with the vocabulary: the last stored product of the end that gives more than it reads."""
        for node in reversed(self.end.nodes if self.end else ()):
            axis = node.definition.kernel_axis
            if axis is not None and len(node.inputs) > 1 and node.inputs[1].is_a(_STORED):
                return node if node.inputs[1].shape[axis] > node.inputs[0].shape[-1] else None
        return None

    @property
    def vocabulary(self) -> int:
        """Outputs of the head; 0 where there is none."""
        if self.head is None:
            return 0
        axis = self.head.definition.kernel_axis
        assert axis is not None
        return self.head.inputs[1].shape[axis]

    @cached_property
    def attention(self) -> tuple[int, int] | None:
        """The most queries and keys of an attention of the blocks; None where they have none."""
        extents = [pair for block in self.blocks for pair in block.attention]
        return (max(q for q, _ in extents), max(k for _, k in extents)) if extents else None

    @property
    def rows(self) -> int:
        """New tokens in one call. One attention may have the queries of several heads as rows, so the smallest number
        counts."""
        pairs = [pair for block in self.blocks for pair in block.attention]
        return min((q for q, _ in pairs), default=1)


# An order in which what belongs together is together.


def in_order(graph: Graph) -> list[Tensor]:
    """The operations, each as late as what reads it allows: files may list the slices of all caches first. What only
    the caller reads stands behind what it is worked out from."""
    depth: dict[int, int] = {}
    for node in graph.nodes:
        depth[node.uid] = max((depth[operand.uid] for operand in node.inputs), default=0) + 1
    outputs = sorted(graph.outputs, key=lambda node: -depth[node.uid])
    order = _behind(outputs[0], set())
    seen = {node.uid for node in order}
    place = {node.uid: (number, 0) for number, node in enumerate(order)}
    for output in outputs[1:]:
        for node in _behind(output, seen):
            after = max((place.get(operand.uid, (-1, 0)) for operand in node.inputs), default=(-1, 0))
            place[node.uid] = (after[0], len(place))
            order.append(node)
            seen.add(node.uid)
    order.sort(key=lambda node: place[node.uid])
    return order


def _behind(output: Tensor, seen: set[int]) -> list[Tensor]:
    """The operations that lead to an output and were not seen yet, operands first."""
    order: list[Tensor] = []
    done = set(seen)
    stack = [(output, False)]
    while stack:
        node, is_ready = stack.pop()
        if is_ready:
            order.append(node)
        elif node.uid not in done and (not node.definition.leaf or node.is_a(GraphTrait.DRAWN)):
            done.add(node.uid)
            stack.append((node, True))
            stack += [(operand, False) for operand in reversed(node.inputs)]
    return order


# Waists.


def structure_of(graph: Graph) -> ModelStructure:
    """Start, blocks and end of a model."""
    names = graph.names()
    computed = in_order(graph)
    if not computed:
        return ModelStructure(graph, names, None, (), None, False)
    units = _units(computed, _waists(computed))
    kinds = [_kind(unit) for unit in units]
    numbers = {key: number for number, key in enumerate(dict.fromkeys(kinds))}
    numbered = [numbers[key] for key in kinds]
    edges = _layers(units, numbered) or _repetition(numbered, [_size(unit) for unit in units])
    if len(edges) < 2:
        return ModelStructure(graph, names, None, _apart(units, numbered), None, False)
    pieces = list(pairwise(edges))
    alike = {key: place for place, key in enumerate(dict.fromkeys(tuple(numbered[a:b]) for a, b in pieces))}
    blocks = tuple(LayerBlock(_joined(units[a:b]), alike[tuple(numbered[a:b])]) for a, b in pieces)
    start = LayerBlock(_joined(units[: edges[0]]), -1) if edges[0] else None
    end = LayerBlock(_joined(units[edges[-1] :]), -2) if edges[-1] < len(units) else None
    return ModelStructure(graph, names, start, blocks, end, len(alike) < len(blocks))


def _layers(units: Sequence[tuple[Tensor, ...]], kinds: Sequence[int]) -> list[int]:
    """Where the layers of a model with attention begin, and where the last one ends: each begins with a unit that
    attends. Behind the last one only units belong to it that are like those of other layers."""
    attends = [number for number, unit in enumerate(units) if any(queries_of(node) for node in unit)]
    if len(attends) < 2:
        return []
    others = {kind for a, b in pairwise(attends) for kind in kinds[a + 1 : b]}
    end = attends[-1] + 1
    while end < len(units) and kinds[end] in others:
        end += 1
    return [*attends, end]


def _joined(units: Sequence[tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
    return tuple(node for unit in units for node in unit)


def _apart(units: Sequence[tuple[Tensor, ...]], kinds: Sequence[int]) -> tuple[LayerBlock, ...]:
    """The units of a model that does not repeat; one without weights goes with the next."""
    blocks: list[LayerBlock] = []
    waiting: tuple[Tensor, ...] = ()
    for unit, kind in zip(units, kinds, strict=True):
        waiting = (*waiting, *unit)
        if _size(unit):
            blocks.append(LayerBlock(waiting, kind))
            waiting = ()
    if waiting:
        last = blocks.pop().nodes if blocks else ()
        blocks.append(LayerBlock((*last, *waiting), -1))
    return tuple(blocks)


def _size(unit: Sequence[Tensor]) -> int:
    return sum(operand.size for node in unit for operand in node.inputs if operand.is_a(_STORED))


def _multiplies(node: Tensor) -> bool:
    return does(node, GraphTrait.PRODUCT) or node.op == "sdpa"


def _waists(computed: Sequence[Tensor]) -> list[int]:
    """The places, each the number of the operation in front of it, that one value crosses at most."""
    place = {node.uid: number for number, node in enumerate(computed)}
    level: dict[int, int] = {}
    readers: dict[int, list[int]] = {}
    ways: dict[int, dict[tuple[int, int], set[int]]] = {}
    for number, node in enumerate(computed):
        level[node.uid] = max((level.get(operand.uid, 0) for operand in node.inputs), default=0) + _multiplies(node)
        for slot, operand in enumerate(node.inputs):
            if operand.is_a(_STORED) and operand.op == "const":
                continue
            readers.setdefault(operand.uid, []).append(number)
            ways.setdefault(operand.uid, {}).setdefault((id(node.signature), slot), set()).add(level[node.uid])
    crossing = np.zeros(len(computed) + 1, np.int64)
    for uid, places in readers.items():
        # What is read in the same way at several depths is handed to layer after layer: a mask, an encoder's result.
        if any(len(depths) > 1 for depths in ways[uid].values()):
            continue
        first = place.get(uid, places[0])
        crossing[first] += 1
        crossing[places[-1]] -= 1
    return np.flatnonzero(np.cumsum(crossing)[: len(computed) - 1] <= 1).tolist()


def _units(computed: Sequence[Tensor], waists: Sequence[int]) -> list[tuple[Tensor, ...]]:
    """The operations between waists."""
    cuts = [0, *(number + 1 for number in waists), len(computed)]
    return [tuple(computed[a:b]) for a, b in pairwise(cuts) if a < b]


def _kind(unit: Sequence[Tensor]) -> tuple[object, ...]:
    """What two units that look alike have in common: operations, shapes, and how they are connected inside."""
    inside = {node.uid: number for number, node in enumerate(unit)}
    return tuple(
        (id(node.signature), *(inside.get(operand.uid, -1) for operand in node.inputs)) for node in unit
    )  # signatures are interned and the graph keeps them alive


def _repetition(kinds: Sequence[int], sizes: Sequence[int]) -> list[int]:
    """Where units repeat: the edges of the blocks. The repetition with the most weights wins, the shortest block where
    two have nearly the same; weights tell layers from functions between them."""
    codes, weights = np.array(kinds), np.concatenate([[0], np.cumsum(np.array(sizes, np.float64) + 1e-3)])
    best: list[int] = []
    covered = 0.25 * float(weights[-1])
    for period in range(1, min(_MOST_PERIOD, len(codes) // 2) + 1):
        same = np.concatenate(([False], codes[period:] == codes[:-period], [False]))
        edges = np.flatnonzero(np.diff(same.astype(np.int8)))
        for begin, end in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
            count = (end - begin + period) // period
            weight = float(weights[begin + period * count] - weights[begin])
            if count > 1 and weight > 1.01 * covered:
                best, covered = [begin + period * number for number in range(count + 1)], weight
    return best


def queries_of(node: Tensor) -> int | None:
    """The queries of an attention's softmax or of the engine's own layer."""
    if node.op == "sdpa":
        return node.shape[attention_axes(node.attrs["heads_first"])[1]]
    found = attention_extents(node)
    return None if found is None else found[0]
