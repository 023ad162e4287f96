"""``compress.quantise``: 8 bits on both sides of products, with ranges of activations from samples.

The input of each layer is quantised and dequantised right in front of it, and its weight is stored as int8 with one
scale for each output. Both are what chips from H16 on sum as integers (N16). Two published defects of converters
cannot occur: no pair stands around a multiplication of two activations, where one pair takes the other's scale (N78,
N79), and no weight has several scales for one output, which are read as one list (N80).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import islice
from typing import Any

import numpy as np

from aneforge.arguments import Source, graph_of
from aneforge.compress.layers import Layer, layers_of, moments_of, visit_values
from aneforge.compress.storage import is_worth_encoding, storage_of
from aneforge.errors import ArgumentError
from aneforge.graph.encoding import SMALLEST_NORMAL, Encoded
from aneforge.graph.graph import Graph
from aneforge.graph.ops.quantised import CODE_RANGES, dequantize, quantize
from aneforge.graph.tensor import Tensor
from aneforge.inputs import samples_of
from aneforge.rewrites.rewrite import Site, applied
from aneforge.tuning.stored_forms import stored_site

__all__ = ["RANGES", "Range", "quantise", "quantised_site", "ranges_of"]

Array = np.ndarray

_MOST_SAMPLES = 32
_KEPT = 1 << 16  # numbers of one activation and sample that are looked at, evenly over it
_SHARES = np.linspace(1.0, 0.3, 36)
_PERCENTILE = 99.99


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
    graph: Graph, layers: Sequence[Layer], samples: Iterable[Mapping[str, Array]], ranges: str = "mse"
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

    visit_values(graph, samples, {layer.form.x.uid for layer in layers}, visit)
    return {uid: _range(np.concatenate(parts), RANGES[ranges]) for uid, parts in kept.items()}


def _range(values: Array, way: Callable[[Array, int], float]) -> Range:
    dtype = "uint8" if values.min() >= 0 else "int8"
    levels = CODE_RANGES[dtype][1]
    scale = np.float16(max(way(values, levels) / levels, SMALLEST_NORMAL))
    return Range(float(scale), dtype)


def quantised_site(
    layer: Layer, stored: Callable[[], Encoded], found: Range, pairs: dict[int, Tensor], traits: object = None
) -> Site:
    """A layer with codes on both sides. Layers that read one tensor share its pair, which ``pairs`` remembers."""
    site = stored_site(layer.node, layer.form, stored, traits)

    def build(x: Tensor) -> Tensor:
        if x.uid not in pairs:
            pairs[x.uid] = found.pair(x)
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

    ``calibration`` are samples of the inputs as for :func:`advise`; without them ranges come from drawn numbers, which
    say little of real data. ``ranges`` is ``mse``, ``minmax`` or ``percentile``. ``method`` ``calibrated`` also fits
    the weights. ``skip`` are names of layers to leave in fp16, with ``*`` for any letters.
    """
    if method not in ("plain", "calibrated"):
        raise ArgumentError("method", f"{method!r} is not a method; choose one: plain, calibrated.")
    graph = graph_of(model, dims, function)
    layers = [layer for layer in layers_of(graph, is_worth_encoding) if _takes_codes(layer, skip)]
    listed = list(islice(samples_of(graph, calibration, seed, samples), _MOST_SAMPLES))
    found = ranges_of(graph, layers, listed, ranges)
    moments = moments_of(graph, layers, listed) if method == "calibrated" else {}
    pairs: dict[int, Tensor] = {}
    sites = []
    for layer in layers:
        encoded = storage_of("int8").write(layer.weight, moments.get(layer.node.uid))
        sites.append(quantised_site(layer, lambda encoded=encoded: encoded, found[layer.form.x.uid], pairs))
    return applied(graph, sites) if sites else graph


def _takes_codes(layer: Layer, skip: Sequence[str]) -> bool:
    if any(fnmatchcase(layer.name, pattern) for pattern in skip):
        return False
    return layer.form.x.dtype == "fp16" and layer.form.x.op != "dequantize"
