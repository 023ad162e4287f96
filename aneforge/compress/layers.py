"""The layers of a graph whose weights can be stored in another form, and what their inputs look like."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from aneforge.codecs.calibrated import Moments
from aneforge.graph.graph import Graph
from aneforge.graph.reference import value_of
from aneforge.graph.tensor import Tensor
from aneforge.rewrites.stored import Dense, Kernel, stored_layers
from aneforge.sim.window import Window, patches_plain

__all__ = ["Layer", "layers_of", "moments_of", "visit_values"]

Array = np.ndarray

_MOST_MATRIX = 2048 * 2048  # numbers of second moments that a layer has; above it the diagonal has to do
_MOST_ROWS = 4096  # inputs of one sample that a layer's moments are taken from, evenly over the sample


@dataclass(frozen=True, eq=False)
class Layer:
    """One layer with a stored weight of fp16."""

    name: str
    node: Tensor
    form: Dense | Kernel

    @property
    def weight(self) -> Array:
        return self.form.weight

    @property
    def groups(self) -> int:
        return self.form.groups if isinstance(self.form, Kernel) else 1

    def inputs(self, values: Array) -> Array:
        """What the layer multiplies its weight by: [groups, rows, depth], at most some thousand rows."""
        form = self.form
        if isinstance(form, Dense):
            rows = values.reshape(-1, values.shape[-1])
            return _some(rows)[None]
        top, bottom, left, right = form.pad
        window = Window(
            (form.weight.shape[2], form.weight.shape[3]), form.stride, form.dilation, (top, left), (bottom, right)
        )
        height, width = window.outputs(values.shape[2:])
        several = max(1, -(-height * width * len(values) // _MOST_ROWS))
        parts = []
        for image in values:
            for row in range(0, height, several):
                parts.append(patches_plain(image, window, row, 1))
        columns = np.concatenate(parts, axis=1)  # [channels x places of the kernel, outputs]
        return columns.reshape(self.groups, -1, columns.shape[1]).transpose(0, 2, 1)


def _some(rows: Array) -> Array:
    return rows[:: max(1, -(-len(rows) // _MOST_ROWS))]


def layers_of(graph: Graph, is_worth: Callable[[Array], bool]) -> list[Layer]:
    """In the order of the graph."""
    names = graph.names()
    return [Layer(names[node.uid], node, form) for node, form in stored_layers(graph) if is_worth(form.weight)]


def visit_values(
    graph: Graph,
    samples: Iterable[Mapping[str, Array]],
    wanted: set[int],
    visit: Callable[[int, Array], None],
) -> None:
    """Evaluate the graph in float64 on each sample and hand over the values of the nodes that are wanted."""
    names = graph.names()
    readers: dict[int, int] = {output.uid: 1 for output in graph.outputs}
    for node in graph.nodes:
        for operand in node.inputs:
            readers[operand.uid] = readers.get(operand.uid, 0) + 1
    for sample in samples:
        left = dict(readers)
        values: dict[int, Array] = {}
        for node in graph.nodes:
            fed = sample.get(names[node.uid]) if node.definition.leaf else None
            if fed is not None:
                values[node.uid] = np.asarray(fed, np.float64).reshape(node.shape)
            else:
                values[node.uid] = value_of(node, [values[operand.uid] for operand in node.inputs])
            if node.uid in wanted:
                visit(node.uid, values[node.uid])
            for operand in node.inputs:
                left[operand.uid] -= 1
                if not left[operand.uid]:
                    del values[operand.uid]


def moments_of(
    graph: Graph, layers: Sequence[Layer], samples: Iterable[Mapping[str, Array]], matrices: bool = True
) -> dict[int, Moments]:
    """The second moments of each layer's inputs over the samples, by node."""
    readers: dict[int, list[Layer]] = {}
    for layer in layers:
        readers.setdefault(layer.form.x.uid, []).append(layer)
    totals: dict[int, list[Array]] = {}
    counts: dict[int, int] = {}

    def visit(uid: int, values: Array) -> None:
        for layer in readers[uid]:
            inputs = layer.inputs(values)
            groups, rows, depth = inputs.shape
            sums = [np.einsum("grd,grd->gd", inputs, inputs)]
            if matrices and groups * depth * depth <= _MOST_MATRIX:
                sums.append(inputs.transpose(0, 2, 1) @ inputs)
            known = totals.get(layer.node.uid)
            totals[layer.node.uid] = sums if known is None else [a + b for a, b in zip(known, sums, strict=True)]
            counts[layer.node.uid] = counts.get(layer.node.uid, 0) + rows

    visit_values(graph, samples, set(readers), visit)
    found: dict[int, Moments] = {}
    for uid, (diagonal, *matrix) in totals.items():
        rows = counts[uid]
        found[uid] = Moments(diagonal / rows, matrix[0] / rows if matrix else None, rows)
    return found
