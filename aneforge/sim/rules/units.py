"""Native layers that have no backend op of their own: their steps in fp16, one rounding each.

How these layers round is not published. The steps follow the layer's meaning, each rounded as on the planar path; sums
of products use the accumulators.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from aneforge.engine.interpret_units import AXIS_PLACES
from aneforge.engine.ir import Op
from aneforge.sim.engine import Engine
from aneforge.sim.half import Window, gained, narrowed, paired, patches, widened
from aneforge.sim.tables import activation, look_up

Array = np.ndarray
Params = dict[str, Any]


def _half(value: float) -> Array:
    return np.array([value]).astype(np.float16)


def _cross_product(engine: Engine, p: Params, a: Array, b: Array) -> Array:
    left, right = a.reshape(3), b.reshape(3)
    ahead, behind = [1, 2, 0], [2, 0, 1]
    product = paired("sub", paired("mult", left[ahead], right[behind]), paired("mult", left[behind], right[ahead]))
    return product.reshape(1, 1, 3, 1, 1)


def _cross_correlation(engine: Engine, p: Params, x: Array, template: Array) -> Array:
    """Sums of products in the accumulators, for each group of maps."""
    top, bottom, left, right = (p.get(f"Pad{side}", 0) for side in ("Top", "Bot", "Left", "Right"))
    window = Window(template.shape[3:], (1, 1), (1, 1), (top, left), (bottom, right))
    rows, columns = window.outputs(x.shape[3:])
    groups = p.get("NumGroups", 1)
    maps = np.ascontiguousarray(x[0, 0]).reshape(groups, -1, *x.shape[3:])
    templates = np.ascontiguousarray(template).reshape(groups, 1, -1)
    parts = [
        engine.products(stamp, patches(planes, window, 0, rows)) for planes, stamp in zip(maps, templates, strict=True)
    ]
    return np.stack(parts).reshape(1, 1, groups, rows, columns)


def _cost_volume(engine: Engine, p: Params, aux: Array, ref: Array) -> Array:
    a, r = aux[0, 0, 0], ref[0, 0, 0]
    planes = [paired("sub", a, r[:, shift : shift + a.shape[1]]) for shift in range(p["DisparityRange"] + 1)]
    return np.abs(np.stack(planes))[None, None]


def _min_max(engine: Engine, p: Params, x: Array) -> Array:
    axis = AXIS_PLACES[p["Dimension"]]
    wide = widened(x)
    low, high = (narrowed(find(wide, axis=axis, keepdims=True)) for find in (np.min, np.max))
    span = paired("add", paired("sub", high, low), _half(p["Epsilon"]))
    return paired("div", paired("sub", x, low), span)


def _response(engine: Engine, p: Params, x: Array) -> Array:
    """The power is that of the tables: exp2(-beta * log2(...)). Channels behind the first ones stay as they are."""
    size = p["KernelChannel"]
    before = (size - 1) // 2
    squares = widened(paired("mult", x, x))
    padded = np.pad(squares, ((0, 0), (0, 0), (before, size - 1 - before), (0, 0), (0, 0)))
    total = narrowed(np.sum([padded[:, :, i : i + x.shape[2]] for i in range(size)], axis=0))
    shifted = gained(total, None, None, p["Alpha"], p["K"])
    power = gained(look_up(activation("log2", (), engine.tables), shifted), None, None, -p["Beta"])
    normalised = paired("mult", x, look_up(activation("exp2", (), engine.tables), power))
    return np.concatenate([normalised[:, :, :size], x[:, :, size:]], axis=2)


def _distances(points: Array, others: Array) -> Array:
    """Squared distances of three-channel points [3, n] and [3, m], in fp16."""
    apart = paired("sub", np.ascontiguousarray(points[:, :, None]), np.ascontiguousarray(others[:, None, :]))
    return narrowed(widened(paired("mult", apart, apart)).sum(axis=0))


def _radius(engine: Engine, p: Params, centroids: Array, points: Array) -> Array:
    distances = _distances(points[0, 0, :, 0], centroids[0, 0, :, 0])
    reach = paired("mult", _half(p["Radius"]), _half(p["Radius"]))
    return (widened(distances) <= widened(reach)).astype(np.float16)[None, None, :, None, :]


def _furthest(engine: Engine, p: Params, points: Array) -> Array:
    """Start with the first point; then take the point furthest from all chosen ones, the first of equals."""
    places = points[0, 0, :, 0]
    chosen, distance = [0], np.full(places.shape[1], np.inf)
    while len(chosen) < p["CentroidCount"]:
        distance = np.minimum(distance, widened(_distances(places, places[:, chosen[-1:]]))[:, 0])
        chosen.append(int(np.argmax(distance)))
    return points[..., chosen]


UNIT_RULES: dict[str, Callable[..., Array]] = {
    "CostVolume": _cost_volume,
    "CrossCorrelation": _cross_correlation,
    "CrossProduct": _cross_product,
    "FurthestPointSampling": _furthest,
    "LocalResponseNormalization": _response,
    "MinMaxNormalization": _min_max,
    "RadiusSearch": _radius,
}


def unit(engine: Engine, op: Op, *operands: Array) -> Array:
    """A native layer by its type."""
    return UNIT_RULES[op.attrs["type"]](engine, op.attrs["params"], *operands)
