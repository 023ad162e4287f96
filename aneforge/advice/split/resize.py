"""The parts of a model for another number of new tokens, or caches of another length.

Which axes count tokens follows from the attention and the caches: axes that must be equal are joined, and those joined
with an axis of new rows, of keys or of a cache change with it. A part is then built again, node by node. Where a node
states sizes that nobody can tell apart, the part has no other size, and nothing is guessed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from aneforge.advice.split.structure import ModelStructure, queries_of
from aneforge.compiler.legal.patterns import attention_extents
from aneforge.errors import GraphError
from aneforge.graph.graph import Graph
from aneforge.graph.node import make
from aneforge.graph.ops.leaf import CONST
from aneforge.graph.ops.leaf import input as graph_input
from aneforge.graph.ops.shape import reshape, transpose
from aneforge.graph.tensor import Tensor
from aneforge.graph.traits import GraphTrait
from aneforge.graph.weights import known_weight
from aneforge.study.regions import ENGINE, region_of

Axis = tuple[int, int]
"""A node by uid, and one of its axes."""
Factor = tuple[int, int]
"""A size as it is, and as it becomes. An axis is a sequence of factors, the outer ones first."""
Factors = tuple[tuple[Factor, ...], ...]


@dataclass(frozen=True)
class TokenSizes:
    """How many tokens a call takes, and how many places a cache has."""

    rows: int
    cache: int


class Resizer:
    """A model whose parts can be built for other numbers of tokens."""

    def __init__(self, structure: ModelStructure, to: TokenSizes) -> None:
        self.structure, self.to = structure, to
        self.now = sizes_of(structure)
        self._parents: dict[Axis, Axis] = {}
        self.replaced: list[str] = []
        """Constants of other lengths, with other numbers."""

    @cached_property
    def new_size(self) -> dict[Axis, int]:
        """The new size of each class of axes that count tokens, by its first axis."""
        for node in self.structure.graph.nodes:
            self._join_axes(node)
        sizes: dict[Axis, int] = {}
        for axis, size in self._seeds():
            root = self._root(axis)
            if sizes.setdefault(root, size) != size:
                raise GraphError("one axis counts new tokens and keys alike. Use a model with the sizes you want.")
        return sizes

    def _seeds(self) -> list[tuple[Axis, int]]:
        """Axes that are known to count tokens: of caches, of their new rows, and of attention."""
        seeds: list[tuple[Axis, int]] = []
        appends = False
        for write in self.structure.writes:
            seeds.append(((write.port.uid, write.axis), self.to.cache))
            appends |= write.host == "append"
            if write.rows is not None:
                seeds.append(((write.rows.uid, write.axis), self.to.rows))
        keys = self.to.rows if not self.structure.writes else self.to.cache + (self.to.rows if appends else 0)
        now = self.now.rows if not self.structure.writes else self.now.cache + (self.now.rows if appends else 0)
        for node in self.structure.graph.nodes:
            extents = attention_extents(node) if queries_of(node) is not None else None
            if extents is None or node.op != "softmax":
                continue
            if extents[1] == now:
                seeds.append(((node.uid, node.ndim - 1), keys))
            if extents[0] == self.now.rows:
                seeds.append(((node.uid, node.ndim - 2), self.to.rows))
        return seeds

    # Axes that must be equal.

    def _root(self, axis: Axis) -> Axis:
        while (parent := self._parents.get(axis, axis)) != axis:
            axis = parent
        return axis

    def _join(self, one: Axis, other: Axis) -> None:
        first, second = self._root(one), self._root(other)
        if first != second:
            self._parents[second] = first

    def _join_axes(self, node: Tensor) -> None:
        for one, other in _equal_axes(node):
            self._join(one, other)

    # Building again.

    def piece(self, nodes: Sequence[Tensor]) -> Graph:
        """Some operations with the new sizes, under the names of the whole."""
        graph, names = self.structure.graph, self.structure.names
        region = region_of(graph, nodes, ENGINE)
        built: dict[int, Tensor] = {}
        factors: dict[int, Factors] = {}
        for port in region.inputs:
            factors[port.uid] = self._of_leaf(port)
            name = names[port.uid]
            dtype = "fp16" if port.dtype == "bool" else port.dtype
            built[port.uid] = graph_input(_new_shape(factors[port.uid]), dtype, name=name)
        for node in region.nodes:
            for operand in node.inputs:
                if operand.uid not in built:
                    factors[operand.uid] = self._of_leaf(operand)
                    built[operand.uid] = self._constant(operand, _new_shape(factors[operand.uid]))
            made = self._again(node, [built[operand.uid] for operand in node.inputs], factors)
            built[node.uid] = made.named(names[node.uid])
            factors[node.uid] = _factors_of(node, made, factors)
        outputs = [built[output.uid] for output in region.outputs]
        inside = {str(built[port.uid].name) for port in region.inputs}
        given = {str(output.name) for output in outputs}
        states = {old: new for old, new in graph.states.items() if old in inside and new in given}
        return Graph(outputs, states, graph.route)

    def _of_leaf(self, node: Tensor) -> Factors:
        sizes = (self.new_size.get(self._root((node.uid, place)), size) for place, size in enumerate(node.shape))
        # A constant or a mask with one number along an axis serves any number of tokens.
        is_one = node.op == "const"
        return tuple(
            ((size, size if is_one and size == 1 else new),) for size, new in zip(node.shape, sizes, strict=True)
        )

    def _constant(self, node: Tensor, shape: tuple[int, ...]) -> Tensor:
        """A constant as it is, or one of another shape that stands in for a table over tokens."""
        if shape == node.shape:
            return node
        self.replaced.append(self.structure.names[node.uid])
        repeated = np.broadcast_to(np.float16(0.01), shape)
        return make(CONST, weight=known_weight(f"stand-in {shape}", repeated))

    def _again(self, node: Tensor, operands: Sequence[Tensor], factors: dict[int, Factors]) -> Tensor:
        attrs = node.attrs
        if node.op == "reshape":
            return _Regrouping(factors[node.inputs[0].uid], node.shape, node).built(operands[0])
        if node.op == "host" and any(a.shape != b.shape for a, b in zip(operands, node.inputs, strict=True)):
            raise GraphError(f"{node.name or 'host'}: what the host computes has the sizes of the file")
        if node.op == "slice_by_size":
            begin, size = self._slice(node, factors[node.inputs[0].uid])
            attrs = {**attrs, "begin": begin, "size": size}
        return make(node.definition, list(operands), attrs, weight=node.weight)

    def _slice(self, node: Tensor, source: Factors) -> tuple[tuple[int, ...], tuple[int, ...]]:
        begins, sizes = [], []
        for place, axis in enumerate(source):
            old, new = _product(axis)
            begin, size = int(node.attrs["begin"][place]), int(node.attrs["size"][place])
            if old != new or place == self._axis_of_tokens(node.inputs[0]):
                begin, size = self._part(node, place, (old, new), (begin, size))
            begins.append(begin)
            sizes.append(size)
        return tuple(begins), tuple(sizes)

    def _axis_of_tokens(self, port: Tensor) -> int | None:
        """The axis of a cache along which tokens lie: its parts depend on how many rows are new."""
        return next(
            (write.axis for write in self.structure.writes if write.port is port and write.rows is not None), None
        )

    def _part(self, node: Tensor, place: int, axis: Factor, part: tuple[int, int]) -> tuple[int, int]:
        """A part of an axis that changes: all of it, a part of a cache beside its new rows, or the last places."""
        (old, new), (begin, size) = axis, part
        if begin == 0 and size == old:
            return 0, new
        write = next((write for write in self.structure.writes if write.port is node.inputs[0]), None)
        if write is not None and place == write.axis:
            rows, after, keep = self.now.rows, self.to.rows, new - self.to.rows
            if (write.host or write.form) == "shift" and size == old - rows:
                return (after, keep) if begin else (0, keep)
            at = max(1, min(write.begin, keep - 1))
            if begin == 0 and size == write.begin:
                return 0, at
            if begin == write.begin + rows and begin + size == old:
                return at + after, keep - at
        elif begin + size == old and size <= new:
            return new - size, size
        raise GraphError(f"{node.name or 'slice'}: which part of {new} places it takes is not known")


def _equal_axes(node: Tensor) -> Iterator[tuple[Axis, Axis]]:
    """Axes of a node and its operands that must be equal."""
    if node.definition.leaf:
        return
    uid, first = node.uid, node.inputs[0]
    if node.op == "transpose":
        yield from (((uid, place), (first.uid, source)) for place, source in enumerate(node.attrs["perm"]))
    elif node.op == "reshape":
        pairs = _kept_axes(first.shape, node.shape)
        yield from (((uid, place), (first.uid, old)) for place, old in (*pairs, *_moved_ones(node, pairs)))
    elif node.op == "matmul":
        yield from _of_product(node)
    elif node.op == "sdpa":
        k, v = node.inputs[1:3]
        yield from (((uid, place), (first.uid, place)) for place in range(node.ndim - 1))
        yield from (((k.uid, place), (v.uid, place)) for place in range(k.ndim - 1))
    elif node.is_a(GraphTrait.STORED_KERNEL):
        if node.op == "linear" and first.ndim == node.ndim:
            yield from (((uid, place), (first.uid, place)) for place in range(node.ndim - 1))
    elif node.op == "host":  # a look-up has the axes of its places in front
        places = (operand for operand in node.inputs if operand.dtype == "int32")
        for operand in (operand for operand in places if operand.shape == node.shape[: operand.ndim]):
            yield from (((uid, place), (operand.uid, place)) for place in range(operand.ndim))
    else:
        yield from _of_places(node)


def _of_places(node: Tensor) -> Iterator[tuple[Axis, Axis]]:
    """Of an op that goes place by place, or joins along one axis."""
    joined = node.attrs["axis"] % node.ndim if node.op == "concat" else None
    for operand in node.inputs:
        shift = node.ndim - operand.ndim
        for place in range(max(0, -shift), operand.ndim):
            at = place + shift
            if at != joined and operand.shape[place] == node.shape[at]:
                yield (node.uid, at), (operand.uid, place)


def _of_product(node: Tensor) -> Iterator[tuple[Axis, Axis]]:
    a, b = node.inputs
    if a.ndim > 1:
        yield (node.uid, node.ndim - 2), (a.uid, a.ndim - 2)
    if b.op != "const":
        yield (node.uid, node.ndim - 1), (b.uid, b.ndim - 1)
    if a.op != "const" and b.op != "const":
        yield (a.uid, a.ndim - 1), (b.uid, max(0, b.ndim - 2))


def sizes_of(structure: ModelStructure) -> TokenSizes:
    """The new tokens and the places of the caches as the model has them."""
    places = {write.port.shape[write.axis] for write in structure.writes if write.rows is not None or write.host}
    rows = {write.rows.shape[write.axis] for write in structure.writes if write.rows is not None}
    return TokenSizes(max(rows, default=structure.rows), max(places, default=0))


def _kept_axes(before: Sequence[int], after: Sequence[int]) -> list[tuple[int, int]]:
    """The axes that a reshape hands on as they are, as pairs of the new and the old place: of one size, with as many
    numbers behind them, from the front one by one."""
    pairs: list[tuple[int, int]] = []
    taken: set[int] = set()
    for place in range(len(before)):
        behind = math.prod(before[place + 1 :])
        for other in range(len(after)):
            if other not in taken and after[other] == before[place] and math.prod(after[other + 1 :]) == behind:
                pairs.append((other, place))
                taken.add(other)
                break
    return pairs


def _moved_ones(node: Tensor, pairs: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Axes of one that a reshape hands on in another place, as pairs of the new and the old place."""
    before, after = node.inputs[0].shape, node.shape
    new, old = {pair[0] for pair in pairs}, {pair[1] for pair in pairs}
    for place in (place for place, size in enumerate(before) if size == 1 and place not in old):
        source = tuple(((size, 2 if at == place else size),) for at, size in enumerate(before))
        with suppress(GraphError):
            factors = _Regrouping(source, after, node).factors
            yield from ((at, place) for at, axis in enumerate(factors) if axis == ((1, 2),) and at not in new)


def _product(axis: Sequence[Factor]) -> Factor:
    return math.prod(old for old, _ in axis), math.prod(new for _, new in axis)


def _new_shape(factors: Factors) -> tuple[int, ...]:
    return tuple(_product(axis)[1] for axis in factors)


class _Regrouping:
    """The factors of a value under another shape: those that stay are divided as the shape asks, those that change are
    handed on whole.

    A reader of files writes the move of an axis of one as a reshape. So where the only new token would end up inside
    another axis, and an axis of one is free, it goes there, and the values are moved with it.
    """

    def __init__(self, source: Factors, shape: Sequence[int], node: Tensor) -> None:
        self._queue: list[Factor] = [factor for axis in source for factor in axis]
        self._name, self._shape = node.name or "reshape", shape
        self._popped: list[Factor] = []
        """In the order of the operand."""
        self._waiting: list[tuple[int, int]] = []  # the number of a factor, and the axis that it would be inside
        self._axes: list[list[int]] = []
        free: list[int] = []
        for place, extent in enumerate(shape):
            self._axes.append([])
            if extent == 1 and not (self._queue and self._queue[0][0] == 1):
                free.append(place)
            elif extent == 1:
                self._take(place)
            else:
                self._fill(place, extent)
        for number, inside in self._waiting:
            near = min(free, key=lambda place: abs(place - inside), default=None)
            if near is None:
                self._axes[inside] = sorted([*self._axes[inside], number])
            else:
                free.remove(near)
                self._axes[near].append(number)

    def _take(self, place: int) -> None:
        self._popped.append(self._queue.pop(0))
        self._axes[place].append(len(self._popped) - 1)

    def _fill(self, place: int, extent: int) -> None:
        need = extent
        while need > 1:
            if not self._queue:
                raise GraphError(f"{self._name}: the numbers of its operand do not fill {list(self._shape)}")
            old, new = self._queue[0]
            if old == 1 and new != 1:
                self._popped.append(self._queue.pop(0))
                self._waiting.append((len(self._popped) - 1, place))
                continue
            if old > need or need % old:
                if old != new or old % need:
                    raise GraphError(f"{self._name}: it divides an axis of tokens ({old}) by {need}")
                self._queue[:1] = [(need, need), (old // need, old // need)]
                old = need
            self._take(place)
            need //= old
        following = self._shape[place + 1] if place + 1 < len(self._shape) else 0
        while self._queue and self._queue[0][0] == 1 and following != 1:
            self._take(place)  # tokens of which there is one now

    @property
    def factors(self) -> Factors:
        return tuple(tuple(self._popped[number] for number in axis) or ((1, 1),) for axis in self._axes)

    def built(self, x: Tensor) -> Tensor:
        """The value under the new shape."""
        shape = _new_shape(self.factors)
        order = [number for axis in self._axes for number in axis]
        kept = [number for number in sorted(order) if self._popped[number] != (1, 1)]
        moved = [number for number in order if number in kept]
        if moved == kept:
            return reshape(x, shape)
        apart = reshape(x, [self._popped[number][1] for number in kept])
        return reshape(transpose(apart, [kept.index(number) for number in moved]), shape)


def _factors_of(node: Tensor, made: Tensor, factors: dict[int, Factors]) -> Factors:
    """The factors of a result: those of an operand where its axes are handed on, else whole axes."""
    if node.op == "reshape":
        return _Regrouping(factors[node.inputs[0].uid], node.shape, node).factors
    if node.op == "transpose":
        return tuple(factors[node.inputs[0].uid][place] for place in node.attrs["perm"])
    whole: list[tuple[Factor, ...]] = [((old, new),) for old, new in zip(node.shape, made.shape, strict=True)]
    if node.op == "matmul":
        sources: list[tuple[Tensor, Callable[[int], bool]]] = [
            (node.inputs[0], lambda at: at < node.ndim - 1),
            (node.inputs[1], lambda at: at == node.ndim - 1),
        ]
    else:
        sources = [(operand, lambda at: True) for operand in node.inputs]
    for place in range(node.ndim):
        for operand, hands_on in sources:
            at = place - (node.ndim - operand.ndim)
            if at < 0 or not hands_on(place):
                continue
            handed = factors[operand.uid][at]
            if len(handed) > 1 and _product(handed) == (node.shape[place], made.shape[place]):
                whole[place] = handed
    return tuple(whole)
