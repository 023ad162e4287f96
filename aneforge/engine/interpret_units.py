"""Native layers that have no backend op of their own: ``anec.unit`` with the layer's type and its parameters.

Types and parameter names are those of layers.json; the parameters of a unit are a dictionary.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from aneforge.engine.interpret_spatial import sampled
from aneforge.engine.ir import AnecError, Op
from aneforge.engine.native import AXIS_PLACES
from aneforge.engine.tensor_type import Params

Array = np.ndarray


def _ranked(p: Params, x: Array, descending: bool, count: int) -> Array:
    """Vectors along one axis in the order of their key lanes, or their places; equal ones keep their order. All lanes
    move together, and lines along the other axes are independent (U88)."""
    lanes, places = AXIS_PLACES[p["VectorDimension"]], AXIS_PLACES[p["SortDimension"]]
    vectors = np.moveaxis(x, (lanes, places), (-2, -1))
    signed = -vectors if descending else vectors
    keys = [signed[..., lane, :] for lane in reversed(p["SortIndices"])]  # the last key is the first to decide
    order = np.lexsort(np.stack(keys), axis=-1)[..., None, :count]
    picked = order.astype(np.float64) if p["Indices"] else np.take_along_axis(vectors, order, axis=-1)
    return np.moveaxis(picked, (-2, -1), (lanes, places))


def _top_k(p: Params, x: Array) -> Array:
    return _ranked(p, x, p["Type"] == "Max", p["K"])


def _sort(p: Params, x: Array) -> Array:
    return _ranked(p, x, p["Direction"] == "Descending", x.shape[AXIS_PLACES[p["SortDimension"]]])


def _cross_product(p: Params, a: Array, b: Array) -> Array:
    return np.cross(a.reshape(3), b.reshape(3)).reshape(1, 1, 3, 1, 1)


def _cross_correlation(p: Params, x: Array, template: Array) -> Array:
    """One result for each group: the sum of its maps, each correlated with its own template (U91)."""
    sides = ((0, 0), (p.get("PadTop", 0), p.get("PadBot", 0)), (p.get("PadLeft", 0), p.get("PadRight", 0)))
    view = np.lib.stride_tricks.sliding_window_view(np.pad(x[0, 0], sides), template.shape[3:], axis=(1, 2))
    maps = np.einsum("cijuv,cuv->cij", view, template[0, 0])
    return maps.reshape(p.get("NumGroups", 1), -1, *maps.shape[1:]).sum(axis=1)[None, None]


def _cost_volume(p: Params, aux: Array, ref: Array) -> Array:
    a, r = aux[0, 0, 0], ref[0, 0, 0]
    planes = [np.abs(a - r[:, d : d + a.shape[1]]) for d in range(p["DisparityRange"] + 1)]
    return np.stack(planes)[None, None]


def _furthest(p: Params, points: Array) -> Array:
    """Points are columns of three channels; sampling starts with the first one, and the metric is Euclidean."""
    places = points[0, 0, :, 0].T
    chosen, distance = [0], np.full(len(places), np.inf)
    while len(chosen) < p["CentroidCount"]:
        distance = np.minimum(distance, np.square(places - places[chosen[-1]]).sum(axis=1))
        chosen.append(int(np.argmax(distance)))
    return points[..., chosen]


def _radius(p: Params, centroids: Array, points: Array) -> Array:
    """A row per point, a column per centroid."""
    a, b = points[0, 0, :, 0].T, centroids[0, 0, :, 0].T
    distance = np.square(a[:, None] - b[None]).sum(axis=2)
    return (distance <= p["Radius"] * p["Radius"]).astype(np.float64)[None, None, :, None, :]


def _min_max(p: Params, x: Array) -> Array:
    axis = AXIS_PLACES[p["Dimension"]]
    low, high = x.min(axis=axis, keepdims=True), x.max(axis=axis, keepdims=True)
    return (x - low) / (high - low + p["Epsilon"])


def _response(p: Params, x: Array) -> Array:
    """A window of even size reaches further forward; alpha is not divided by the size, and channels behind the first
    KernelChannel stay as they are (U63)."""
    size = p["KernelChannel"]
    before = (size - 1) // 2
    squares = np.pad(np.square(x), ((0, 0), (0, 0), (before, size - 1 - before), (0, 0), (0, 0)))
    total = np.sum([squares[:, :, i : i + x.shape[2]] for i in range(size)], axis=0)
    normalised = x / np.power(p["K"] + p["Alpha"] * total, p["Beta"])
    return np.concatenate([normalised[:, :, :size], x[:, :, size:]], axis=2)


def _affine(p: Params, x: Array, transform: Array) -> Array:
    """Output pixel to input pixel in coordinates from -1 to 1; outside is zero."""
    n, _, _, h, w = x.shape
    corners = p["AlignCorners"]

    def grid(size: int) -> Array:
        if corners:
            return np.linspace(-1, 1, size) if size > 1 else np.zeros(1)
        return (2 * np.arange(size) + 1) / size - 1

    def pixel(value: Array, size: int) -> Array:
        return (value + 1) * (size - 1) / 2 if corners else ((value + 1) * size - 1) / 2

    xs, ys = np.meshgrid(grid(p["Width"]), grid(p["Height"]))
    parts = []
    for i in range(n):
        a, b = transform[0, 0, i, 0, :3], transform[0, 0, i, 0, 3:]
        px, py = pixel(a[0] * xs + a[1] * ys + a[2], w), pixel(b[0] * xs + b[1] * ys + b[2], h)
        parts.append(sampled(x[i, 0], px, py))
    return np.stack(parts)[:, None]


def _dynamic_slice(p: Params, x: Array, start: Array) -> Array:
    """A start for each axis, as a whole number that keeps the slice inside (U92)."""
    sizes = {entry["Coordinate"]: entry["SliceSize"] for entry in p["DynamicSliceInfo"]}
    for name, value in zip(p["DynamicSliceAxisOrder"], start.reshape(-1), strict=True):
        axis, size = AXIS_PLACES[name], sizes[name]
        begin = int(np.clip(np.trunc(value), 0, x.shape[axis] - size))
        x = np.take(x, range(begin, begin + size), axis=axis)
    return x


def _rasterised(p: Params, x: Array) -> Array:
    """The only configuration that compiles changes nothing."""
    return x


def _dropout(p: Params, x: Array) -> Array:
    """The graph's own choice of elements, drawn in the order of the user's shape."""
    keep = np.random.default_rng(p["Seed"]).random(tuple(p["Shape"])) >= p["Rate"]
    return x * _in_layout(keep, x.shape) / (1 - p["Rate"])


def _random(p: Params) -> Array:
    values = np.random.default_rng(p["Seed"]).uniform(p["Low"], p["High"], tuple(p["Shape"]))
    return _in_layout(values, tuple(p["Layout"]))


def _in_layout(values: Array, shape: tuple[int, ...]) -> Array:
    return values.transpose(0, 2, 1, 3, 4) if values.ndim == 5 else values.reshape(shape)


def _neuron(p: Params, x: Array) -> Array:
    if p["Type"] != "ATan":
        raise AnecError(f"Neuron: type {p['Type']!r} has a backend op of its own; use that op")
    return np.arctan(x)


UNITS: dict[str, Callable[..., Array]] = {
    "AffineTransform": _affine,
    "CostVolume": _cost_volume,
    "CrossCorrelation": _cross_correlation,
    "CrossProduct": _cross_product,
    "Dropout": _dropout,
    "DynamicSlice": _dynamic_slice,
    "FurthestPointSampling": _furthest,
    "KernelRasterizer": _rasterised,
    "LocalResponseNormalization": _response,
    "MinMaxNormalization": _min_max,
    "Neuron": _neuron,
    "RadiusSearch": _radius,
    "RandomGenerator": _random,
    "Sort": _sort,
    "TopK": _top_k,
}


def _unit(op: Op, *xs: Array) -> Array:
    rule = UNITS.get(op.attrs["type"])
    if rule is None:
        raise AnecError(f"unit: type {op.attrs['type']!r} is unknown; choose one: {', '.join(UNITS)}")
    return rule(op.attrs["params"], *xs)


RULES: dict[str, Callable[..., Array]] = {"unit": _unit}
