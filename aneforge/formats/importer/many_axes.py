"""Tensors with more axes than the engine has, folded away at the end of an import.

Models cut images into windows, or pair queries with keys by row and column, with tensors of six axes or more. The
rules of a format build them as any other tensor. Here they go: the elements of such a tensor are held in a tensor of
fewer axes and in the same order, every op is done on the axes that matter to it, and neighbours that do not are one
axis. No node of more axes than the engine has is left.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import groupby

from aneforge.errors import LoadError
from aneforge.graph import builders as af
from aneforge.graph.graph import Graph
from aneforge.graph.node import MAX_RANK, Shape, make, newest_node, ops_with
from aneforge.graph.origins import HANDS_ON, FileNodes, Origins, merged, nodes_since
from aneforge.graph.tensor import Tensor
from aneforge.graph.traits import GraphTrait

_LONGEST = 1 << 14  # an axis that every chip takes


def with_few_axes(graph: Graph, file: str, file_nodes: FileNodes | None = None) -> Graph:
    """The same function without tensors of more axes than the engine has."""
    if all(node.ndim <= MAX_RANK for node in graph.nodes):
        return graph
    fold = _Fold(graph, file)
    if file_nodes is not None:
        file_nodes.reasons |= dict.fromkeys(fold.handed_on, HANDS_ON)
    return Graph([fold.output(output) for output in graph.outputs], graph.states, graph.route)


class _Fold:
    def __init__(self, graph: Graph, file: str) -> None:
        self.file = file
        self.names = graph.names()
        self.held: dict[int, Tensor] = {}
        """What holds the elements of a node: of its shape if that has few axes, otherwise of any."""
        self.handed_on: set[int] = set()
        """The file's nodes that only view a tensor with other axes, and that no node here stands for."""
        waiting: dict[int, Origins] = {}  # origins of such views, by node, until something is built on them
        for node in graph.nodes:
            newest = newest_node()
            self.held[node.uid] = self._folded(node)
            origins = merged(node.origins, *(waiting.get(operand.uid, ()) for operand in node.inputs))
            built = nodes_since(newest, [self.held[node.uid]])
            for new in built:
                new.origins = origins
            if built or self.held[node.uid] is node:
                continue
            if node.ndim > MAX_RANK:
                waiting[node.uid] = origins
            else:
                self.handed_on |= {origin.number for origin in origins}

    def output(self, node: Tensor) -> Tensor:
        if node.ndim > MAX_RANK:
            raise LoadError(
                f"{self.file}: output {self.names[node.uid]!r} has {node.ndim} axes, and the engine has {MAX_RANK}. "
                "Reshape it to fewer axes in the model."
            )
        return self.held[node.uid]

    def _folded(self, node: Tensor) -> Tensor:
        if max((node.ndim, *(operand.ndim for operand in node.inputs))) <= MAX_RANK:
            operands = [self.held[operand.uid] for operand in node.inputs]
            if all(new is old for new, old in zip(operands, node.inputs, strict=True)):
                return node
            return self._signed(node, make(node.definition, operands, node.attrs, name=node.name, weight=node.weight))
        if node.op == "const":
            assert node.weight is not None
            return af.const(node.weight.array.reshape(-1))
        rule = _pointwise if node.is_a(GraphTrait.POINTWISE) else _RULES.get(node.op)
        result = None if rule is None else rule(node, [self.held[operand.uid] for operand in node.inputs])
        if result is None:
            raise LoadError(
                f"{self.file}: {self.names[node.uid]} ({node.op}) has a tensor of "
                f"{max((node.ndim, *(operand.ndim for operand in node.inputs)))} axes, and the engine has {MAX_RANK}. "
                "Write it with fewer axes in the model."
            )
        return self._signed(node, result if node.ndim > MAX_RANK else _viewed(result, node.shape))

    def _signed(self, node: Tensor, result: Tensor) -> Tensor:
        if result.name is None and not result.definition.leaf:
            result.name = node.name
        return result


def _viewed(x: Tensor, shape: Sequence[int]) -> Tensor:
    return x if x.shape == tuple(shape) else x.reshape(*shape)


def _runs(marks: Sequence[object], extents: Sequence[int]) -> list[list[int]]:
    """Neighbouring axes with equal marks, in lists; axes of one element belong to no list."""
    axes = [axis for axis, extent in enumerate(extents) if extent != 1]
    return [list(run) for _, run in groupby(axes, lambda axis: marks[axis])]


def _split_long(runs: list[list[int]], extents: Sequence[int]) -> list[list[int]]:
    """Runs cut in two where their extent would be longer than the engine's axes, as far as there are axes for it."""
    short: list[list[int]] = []
    for number, run in enumerate(runs):
        spare = MAX_RANK - len(short) - len(runs[number:])
        parts: list[list[int]] = [[]]
        for axis in run:
            whole = math.prod(extents[other] for other in [*parts[-1], axis])
            if parts[-1] and whole > _LONGEST and len(parts) <= spare:
                parts.append([])
            parts[-1].append(axis)
        short += parts
    return short


def _sizes(shape: Sequence[int], runs: Sequence[Sequence[int]]) -> list[int]:
    return [math.prod(shape[axis] for axis in run) for run in runs] or [1]


def _pointwise(node: Tensor, held: Sequence[Tensor]) -> Tensor | None:
    """Axes that every operand has, or that the same operands repeat, are one."""
    shapes = [(*(1,) * (node.ndim - operand.ndim), *operand.shape) for operand in node.inputs]
    marks = [tuple(shape[axis] != 1 for shape in shapes) for axis in range(node.ndim)]
    runs = _runs(marks, node.shape)
    if len(runs) > MAX_RANK:
        return None
    runs = _split_long(runs, node.shape)
    operands = [_viewed(operand, _sizes(shape, runs)) for operand, shape in zip(held, shapes, strict=True)]
    return make(node.definition, operands, node.attrs)


def _moved(node: Tensor, held: Sequence[Tensor]) -> Tensor:
    return rearranged(held[0], node.inputs[0].shape, node.attrs["perm"])


def _reduced(node: Tensor, held: Sequence[Tensor]) -> Tensor | None:
    """The reduced axes and the others, each run of neighbours as one."""
    x = node.inputs[0]
    axes = node.attrs["axes"]
    runs = _runs([axis in axes for axis in range(x.ndim)], x.shape)
    if len(runs) > MAX_RANK:
        return None
    if not any(run[0] in axes for run in runs):
        return held[0]
    places = [place for place, run in enumerate(runs) if run[0] in axes]
    return make(node.definition, [_viewed(held[0], _sizes(x.shape, runs))], {"axes": tuple(places)})


def _around(x: Tensor, shape: Shape, axis: int) -> Tensor:
    return _viewed(x, (math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])))


def _along_one_axis(node: Tensor, held: Sequence[Tensor]) -> Tensor:
    """All axes before, the axis, and all behind it."""
    x = _around(held[0], node.inputs[0].shape, node.attrs["axis"])
    return make(node.definition, [x], {**node.attrs, "axis": 1})


def _of_rows(node: Tensor, held: Sequence[Tensor]) -> Tensor:
    """Ops along the last axis, whose other operands are vectors or matrices."""
    shape = node.inputs[0].shape
    rows = _viewed(held[0], (math.prod(shape[:-1]), shape[-1]))
    return make(node.definition, [rows, *held[1:]], node.attrs)


def _by_channel(node: Tensor, held: Sequence[Tensor]) -> Tensor:
    samples, channels = node.shape[:2]
    return make(node.definition, [_viewed(held[0], (samples, channels, -1)), *held[1:]], node.attrs)


def _cut(node: Tensor, held: Sequence[Tensor]) -> Tensor:
    """One axis after the other."""
    shape, x = list(node.inputs[0].shape), held[0]
    for axis, extent in enumerate(node.shape):
        if extent != shape[axis]:
            lines = _around(x, tuple(shape), axis)
            if node.op == "slice_by_size":
                first, size = node.attrs["begin"][axis], extent
                x = lines.slice_by_size([0, first, 0], [lines.shape[0], size, lines.shape[2]])
            else:
                begin, end, step = (node.attrs[key][axis] for key in ("begin", "end", "stride"))
                attrs = {"begin": (0, begin, 0), "end": (lines.shape[0], end, lines.shape[2]), "stride": (1, step, 1)}
                x = make(node.definition, [lines], attrs)
            shape[axis] = extent
    return x


def _tiled(node: Tensor, held: Sequence[Tensor]) -> Tensor:
    shape, x = list(node.inputs[0].shape), held[0]
    for axis, times in enumerate(node.attrs["reps"]):
        if times != 1:
            x = _around(x, tuple(shape), axis).tile([1, times, 1])
            shape[axis] *= times
    return x


def _reversed(node: Tensor, held: Sequence[Tensor]) -> Tensor:
    x = held[0]
    for axis in node.attrs["axes"]:
        x = _around(x, node.shape, axis).reverse([1])
    return x


def _padded(node: Tensor, held: Sequence[Tensor]) -> Tensor:
    shape, x = list(node.inputs[0].shape), held[0]
    for axis, (before, behind) in enumerate(node.attrs["widths"]):
        if before or behind:
            widths = ((0, 0), (before, behind), (0, 0))
            x = make(node.definition, [_around(x, tuple(shape), axis)], {**node.attrs, "widths": widths})
            shape[axis] += before + behind
    return x


def _joined(node: Tensor, held: Sequence[Tensor]) -> Tensor:
    axis = node.attrs["axis"]
    parts = []
    for operand, holder in zip(node.inputs, held, strict=True):
        shape = operand.shape if node.op == "concat" else (*operand.shape[:axis], 1, *operand.shape[axis:])
        parts.append(_around(holder, shape, axis))
    return af.concat(parts, axis=1)


def _product(node: Tensor, held: Sequence[Tensor]) -> Tensor | None:
    """The axes of a batch, as far as both factors have or repeat them together, are one."""
    batch = node.shape[:-2]
    outer = [(*(1,) * (len(batch) + 2 - operand.ndim), *operand.shape[:-2]) for operand in node.inputs]
    marks = [tuple(shape[axis] != 1 for shape in outer) for axis in range(len(batch))]
    runs = _runs(marks, batch)
    if len(runs) > MAX_RANK - 2:
        return None
    left, right = (
        _viewed(holder, (*_sizes(shape, runs), *operand.shape[-2:]))
        for holder, shape, operand in zip(held, outer, node.inputs, strict=True)
    )
    return left @ right


_RULES: dict[str, Callable[[Tensor, Sequence[Tensor]], Tensor | None]] = {
    **dict.fromkeys(ops_with(GraphTrait.VIEW), lambda node, held: held[0]),
    **dict.fromkeys(ops_with(GraphTrait.REDUCTION), _reduced),
    **dict.fromkeys(("softmax", "cumsum", "l2_norm", "gather"), _along_one_axis),
    **dict.fromkeys(("linear", "layer_norm", "rms_norm"), _of_rows),
    **dict.fromkeys(("batch_norm", "instance_norm"), _by_channel),
    **dict.fromkeys(("slice_by_size", "slice_by_index"), _cut),
    **dict.fromkeys(("concat", "stack"), _joined),
    "transpose": _moved,
    "tile": _tiled,
    "reverse": _reversed,
    "pad": _padded,
    "matmul": _product,
}
"""How each op that is not pointwise is done with fewer axes: a node, and what holds its operands."""


def rearranged(x: Tensor, shape: Sequence[int], order: Sequence[int]) -> Tensor:
    """The elements of ``x`` reshaped to ``shape`` and transposed by ``order``; the result may have any shape of that
    size. Axes that stay side by side move as one. If there are still too many axes, they move block by block."""
    extents, moves = _merge_axes(shape, order)
    if moves == sorted(moves):  # no element moves, and in one line they could be too many for an axis
        return x
    if len(extents) <= MAX_RANK:
        return x.reshape(*extents).transpose(moves)
    current = list(range(len(extents)))
    for place in range(len(extents)):
        first = current.index(moves[place])
        if first == place:
            continue
        last = first + 1
        while (
            last < len(current) and place + last - first < len(moves) and current[last] == moves[place + last - first]
        ):
            last += 1
        sides = [current[:place], current[place:first], current[first:last], current[last:]]
        x = x.reshape(*(math.prod(extents[axis] for axis in side) for side in sides)).transpose([0, 2, 1, 3])
        current = [*sides[0], *sides[2], *sides[1], *sides[3]]
    return x


def _merge_axes(shape: Sequence[int], order: Sequence[int]) -> tuple[list[int], list[int]]:
    """The same move with as few axes as possible: axes of one element are dropped, and neighbours that stay neighbours
    become one axis."""
    wide_axes = [axis for axis in order if shape[axis] != 1]
    if not wide_axes:
        return [1], [0]
    runs: list[list[int]] = [[wide_axes[0]]]
    numbered = [axis for axis in range(len(shape)) if shape[axis] != 1]
    for axis in wide_axes[1:]:
        behind = numbered.index(runs[-1][-1]) + 1
        if behind < len(numbered) and numbered[behind] == axis:
            runs[-1].append(axis)
        else:
            runs.append([axis])
    run_order = sorted(range(len(runs)), key=lambda run: runs[run][0])
    extents = [math.prod(shape[axis] for axis in runs[run]) for run in run_order]
    return extents, [run_order.index(run) for run in range(len(runs))]
