"""What samples say of a model's layers, and ``quantise``: 8 bits on both sides of products.

The second moments of a layer's inputs say which errors of its weight matter. The range of its input gives the codes of
8 bits: the input of each layer is quantised and dequantised right in front of it, and its weight is stored as int8
with one scale for each output. Both are what chips from H16 on sum as integers (N16). Two published defects of
converters cannot occur: no pair stands around a multiplication of two activations, where one pair takes the other's
scale (N78, N79), and no weight has several scales for one output, which are read as one list (N80).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import islice
from typing import Any

import numpy as np

from aneforge.compiler.storage import encodable_layers, storage_of
from aneforge.errors import ArgumentError
from aneforge.formats.arguments import Source, graph_of
from aneforge.graph.codecs.calibrated import Moments
from aneforge.graph.encoding import SMALLEST_NORMAL, Encoded
from aneforge.graph.forms import Site, applied, context_of
from aneforge.graph.graph import Graph
from aneforge.graph.layer_forms import StoredLayer
from aneforge.graph.ops.quantised import CODE_RANGES, dequantize, quantize
from aneforge.graph.reference import value_of
from aneforge.graph.tensor import Tensor
from aneforge.sim.half import Window, patches_plain
from aneforge.sim.inputs import samples_of

Array = np.ndarray
METHODS = ("plain", "calibrated")

_MOST_MATRIX = 2048 * 2048  # numbers of second moments that a layer has; above it the diagonal has to do
_MOST_ROWS = 4096  # inputs of one sample that a layer's moments are taken from, evenly over the sample
_MOST_SAMPLES = 32  # of a calibration that are used
_KEPT = 1 << 16  # numbers of one activation and sample that are looked at, evenly over it
_SHARES = np.linspace(1.0, 0.3, 36)
_PERCENTILE = 99.99


def some_samples(graph: Graph, calibration: Any, seed: int | None, samples: int | None) -> list[dict[str, Array]]:
    """The samples of a calibration that are used: the first ones."""
    return list(islice(samples_of(graph, calibration, seed, samples), _MOST_SAMPLES))


def check_method(method: str) -> None:
    """Refuse a way of encoding weights that there is none of."""
    if method not in METHODS:
        raise ArgumentError("method", f"{method!r} is not a method; choose one: {', '.join(METHODS)}.")


def _inputs(layer: StoredLayer, values: Array) -> Array:
    """What a layer multiplies its weight by: [groups, rows, depth], at most some thousand rows."""
    if layer.steps is None:
        rows = values.reshape(-1, values.shape[-1])
        return rows[:: max(1, -(-len(rows) // _MOST_ROWS))][None]
    (top, bottom, left, right), kernel = layer.steps.pad, layer.weight.shape[2:]
    window = Window(kernel, layer.steps.stride, layer.steps.dilation, (top, left), (bottom, right))
    height, width = window.outputs(values.shape[2:])
    several = max(1, -(-height * width * len(values) // _MOST_ROWS))
    parts = [patches_plain(image, window, row, 1) for image in values for row in range(0, height, several)]
    columns = np.concatenate(parts, axis=1)  # [channels x places of the kernel, outputs]
    return columns.reshape(layer.groups, -1, columns.shape[1]).transpose(0, 2, 1)


def _visit_values(
    graph: Graph,
    samples: Iterable[Mapping[str, Array]],
    wanted: set[int],
    visit: Callable[[int, Array], None],
) -> None:
    """Evaluate the graph in float64 on each sample and hand over the values of the nodes that are wanted."""
    names = graph.names()
    users = context_of(graph).users
    for sample in samples:
        left = dict(users)
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
    graph: Graph, layers: Iterable[StoredLayer], samples: Iterable[Mapping[str, Array]]
) -> dict[int, Moments]:
    """The second moments of each layer's inputs over the samples, by node."""
    readers: dict[int, list[StoredLayer]] = {}
    for layer in layers:
        readers.setdefault(layer.x.uid, []).append(layer)
    totals: dict[int, list[Array]] = {}
    counts: dict[int, int] = {}

    def visit(uid: int, values: Array) -> None:
        for layer in readers[uid]:
            inputs = _inputs(layer, values)
            groups, rows, depth = inputs.shape
            sums = [np.einsum("grd,grd->gd", inputs, inputs)]
            if groups * depth * depth <= _MOST_MATRIX:
                sums.append(inputs.transpose(0, 2, 1) @ inputs)
            known = totals.get(layer.node.uid)
            totals[layer.node.uid] = sums if known is None else [a + b for a, b in zip(known, sums, strict=True)]
            counts[layer.node.uid] = counts.get(layer.node.uid, 0) + rows

    _visit_values(graph, samples, set(readers), visit)
    moments: dict[int, Moments] = {}
    for uid, (diagonal, *matrix) in totals.items():
        rows = counts[uid]
        moments[uid] = Moments(diagonal / rows, matrix[0] / rows if matrix else None, rows)
    return moments


@dataclass(frozen=True)
class Range:
    """The codes of one activation: int8 around zero, or uint8 from zero where nothing is negative (U120)."""

    scale: float
    dtype: str

    def pair(self, x: Tensor) -> Tensor:
        return dequantize(quantize(x, self.scale, 0, self.dtype), self.scale, 0)


def _largest(values: Array, levels: int) -> float:
    return float(np.abs(values).max(initial=0.0))


def _percentile(values: Array, levels: int) -> float:
    return float(np.percentile(np.abs(values), _PERCENTILE))


def _least_error(values: Array, levels: int) -> float:
    """The largest number to keep: what is beyond is clipped, so that the steps of all others are finer."""
    peak = _largest(values, levels)
    steps = [max(peak * share / levels, SMALLEST_NORMAL) for share in _SHARES]
    errors = [np.mean((np.clip(np.rint(values / step), -levels, levels) * step - values) ** 2) for step in steps]
    return steps[int(np.argmin(errors))] * levels


RANGES: dict[str, Callable[[Array, int], float]] = {
    "mse": _least_error,
    "minmax": _largest,
    "percentile": _percentile,
}
"""Ways from samples of an activation to the largest number that its codes reach."""


def ranges_of(
    graph: Graph, layers: Iterable[StoredLayer], samples: Iterable[Mapping[str, Array]], ranges: str = "mse"
) -> dict[int, Range]:
    """The range of each layer's input over the samples, by the node that is read."""
    if ranges not in RANGES:
        raise ArgumentError("ranges", f"{ranges!r} is not a way to a range; choose one: {', '.join(RANGES)}.")
    kept: dict[int, list[Array]] = {}

    def visit(uid: int, values: Array) -> None:
        flat = values.reshape(-1)
        step = max(1, -(-flat.size // _KEPT))
        ends = [flat.min(), flat.max()] if step > 1 else []
        kept.setdefault(uid, []).extend((flat[::step], np.array(ends)))

    _visit_values(graph, samples, {layer.x.uid for layer in layers}, visit)
    return {uid: _range(np.concatenate(parts), RANGES[ranges]) for uid, parts in kept.items()}


def _range(values: Array, way: Callable[[Array, int], float]) -> Range:
    dtype = "uint8" if values.min() >= 0 else "int8"
    levels = CODE_RANGES[dtype][1]
    scale = np.float16(max(way(values, levels) / levels, SMALLEST_NORMAL))
    return Range(float(scale), dtype)


def quantised_site(
    layer: StoredLayer, stored: Callable[[], Encoded], codes: Range, pairs: dict[int, Tensor], traits: object = None
) -> Site:
    """A layer with codes on both sides. Layers that read one tensor share its pair, which ``pairs`` remembers."""
    site = layer.stored_as(stored, traits)

    def build(x: Tensor) -> Tensor:
        if x.uid not in pairs:
            pairs[x.uid] = codes.pair(x)
        return site.build(pairs[x.uid])

    return Site(site.node, site.operands, build, traits=site.traits)


def quantise(
    model: Source,
    calibration: Any = None,
    *,
    ranges: str = "mse",
    method: str = "plain",
    skip: Sequence[str] = (),
    samples: int | None = None,
    seed: int | None = None,
    dims: Mapping[str, int] | None = None,
    function: str | None = None,
) -> Graph:
    """A graph whose layers have 8-bit codes on both sides: pairs of quantise and dequantise, and int8 weights.

    ``calibration`` are samples of the inputs as for :func:`advise_weights`; without them ranges come from drawn
    numbers, which say little of real data. ``ranges`` is ``mse``, ``minmax`` or ``percentile``. ``method``
    ``calibrated`` also fits the weights. ``skip`` are names of layers to leave in fp16, with ``*`` for any letters.
    """
    check_method(method)
    graph = graph_of(model, dims, function)
    layers = [layer for name, layer in encodable_layers(graph).items() if _takes_codes(name, layer, skip)]
    listed = some_samples(graph, calibration, seed, samples)
    reaches = ranges_of(graph, layers, listed, ranges)
    moments = moments_of(graph, layers, listed) if method == "calibrated" else {}
    pairs: dict[int, Tensor] = {}
    sites = []
    for layer in layers:
        encoded = storage_of("int8").write(layer.weight, moments.get(layer.node.uid))
        sites.append(quantised_site(layer, lambda encoded=encoded: encoded, reaches[layer.x.uid], pairs))
    return applied(graph, sites) if sites else graph


def _takes_codes(name: str, layer: StoredLayer, skip: Sequence[str]) -> bool:
    if any(fnmatchcase(name, pattern) for pattern in skip):
        return False
    return layer.x.dtype == "fp16" and layer.x.op != "dequantize"
