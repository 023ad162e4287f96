"""Native layers of geometry: products of vectors, correlation with a template, point clouds and stereo.

Each takes what the public functions take, and [N, C, H, W] as a netplist has it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from aneforge.errors import GraphError
from aneforge.graph.node import Shape, composed, entry, make, op
from aneforge.graph.ops.contraction import conv, pads
from aneforge.graph.ops.leaf import as_tensor
from aneforge.graph.ops.shape import concat, gather
from aneforge.graph.shapes import count, extent, number, positive, window
from aneforge.graph.traits import PLACES

if TYPE_CHECKING:
    from aneforge.graph.tensor import Tensor

_IMAGE = 4


@op("cross_product", "a b", native_layer=True, diverges_as="elementwise")
class CROSS_PRODUCT:
    """The cross product of two vectors of three."""

    @staticmethod
    def shape(a, b):
        if count(a) != 3 or count(b) != 3:
            raise GraphError("both operands must hold exactly three elements")
        return (1, 3, 1, 1) if len(a) == len(b) == _IMAGE else (3,)

    @staticmethod
    def reference(a, b):
        product = np.cross(a.reshape(3), b.reshape(3))
        return product.reshape(CROSS_PRODUCT.shape(a.shape, b.shape))

    @staticmethod
    @composed
    def derivative(a, b):
        shape = CROSS_PRODUCT.shape(a.shape, b.shape)
        a, b, after, before = a.reshape(3), b.reshape(3), [1, 2, 0], [2, 0, 1]
        return (gather(a, after) * gather(b, before) - gather(a, before) * gather(b, after)).reshape(shape)


@op("cross_correlation", "x template", "pad groups", native_layer=True, diverges_as="matmul")
class CROSS_CORRELATION:
    """A map correlated with a template: one result for each group of channels, the sum of its maps (U91)."""

    @staticmethod
    def shape(x, template, pad, groups):
        if len(x) == len(template) == 2:
            height, width = CROSS_CORRELATION.shape((1, 1, *x), (1, 1, *template), pad, groups)[2:]
            return height, width
        for name, shape in (("map", x), ("template", template)):
            if len(shape) != _IMAGE:
                raise GraphError(f"the {name} must be [H, W] or [1, C, H, W], not {list(shape)}")
        if x[0] != 1 or template[0] != 1:
            raise GraphError("the batch of the map and of the template must be 1")
        if x[1] != template[1]:
            raise GraphError(f"the map has {x[1]} channels and the template {template[1]}; they must agree")
        if x[1] % groups:
            raise GraphError(f"{x[1]} channels cannot be split into {groups} groups")
        reach = [x[2 + i] + pad[2 * i] + pad[2 * i + 1] for i in range(2)]
        if template[2] > reach[0] or template[3] > reach[1]:
            raise GraphError(f"template {list(template[2:])} is larger than the map {reach}")
        extents = (window(x[2 + i], template[2 + i], 1, pad[2 * i], pad[2 * i + 1]) for i in range(2))
        return (1, groups, *extents)

    @staticmethod
    def reference(x, template, pad, groups):
        planes, stamps = (array.reshape(-1, *array.shape[-2:]) for array in (x, template))
        padded = np.pad(planes, ((0, 0), pad[:2], pad[2:]))
        windows = np.lib.stride_tricks.sliding_window_view(padded, stamps.shape[1:], axis=(1, 2))
        maps = np.einsum("cijuv,cuv->cij", windows, stamps)
        summed = maps.reshape(groups, -1, *maps.shape[1:]).sum(axis=1)
        return summed.reshape(CROSS_CORRELATION.shape(x.shape, template.shape, pad, groups))

    @staticmethod
    @composed
    def derivative(x, template, pad, groups):
        result = CROSS_CORRELATION.shape(x.shape, template.shape, pad, groups)
        planes, stamps = (t.reshape(1, t.size // (t.shape[-2] * t.shape[-1]), *t.shape[-2:]) for t in (x, template))
        kernel = stamps.reshape(groups, stamps.shape[1] // groups, *stamps.shape[2:])
        return conv(planes, kernel, pad=pad, groups=groups).reshape(result)


def _stereo(aux: Shape, ref: Shape) -> tuple[Shape, Shape]:
    """Rows of both pictures; a list of numbers is one row."""
    if len(aux) != _IMAGE or len(ref) != _IMAGE:
        return (1, count(aux)), (1, count(ref))
    if aux[:2] != (1, 1) or ref[:2] != (1, 1) or aux[2] != ref[2]:
        raise GraphError(f"pictures are [1, 1, H, W] with one height, not {list(aux)} and {list(ref)}")
    return aux[2:], ref[2:]


@op("cost_volume", "aux ref", "disparity_range", native_layer=True, diverges_as="elementwise")
class COST_VOLUME:
    """Matching cost |aux[x] - ref[x + d]| for each disparity d from 0 to the range."""

    @staticmethod
    def shape(aux, ref, disparity_range):
        (rows, width), (_, reach) = _stereo(aux, ref)
        if reach < width + disparity_range:
            raise GraphError(f"ref of {reach} must hold aux of {width} plus the range {disparity_range}")
        planes = disparity_range + 1
        return (1, planes, rows, width) if len(aux) == len(ref) == _IMAGE else (planes, width)

    @staticmethod
    def reference(aux, ref, disparity_range):
        (rows, width), right = _stereo(aux.shape, ref.shape)
        a, r = aux.reshape(rows, width), ref.reshape(right)
        planes = np.stack([np.abs(a - r[:, d : d + width]) for d in range(disparity_range + 1)])
        return planes.reshape(COST_VOLUME.shape(aux.shape, ref.shape, disparity_range))

    @staticmethod
    @composed
    def derivative(aux, ref, disparity_range):
        shape = COST_VOLUME.shape(aux.shape, ref.shape, disparity_range)
        (rows, width), right = _stereo(aux.shape, ref.shape)
        a, r = aux.reshape(rows, width), ref.reshape(*right)
        planes = [(a - r[:, d : d + width]).abs() for d in range(disparity_range + 1)]
        return concat([plane.expand_dims(0) for plane in planes], axis=0).reshape(shape)


def _cloud(x: Shape, what: str) -> int:
    """How many points there are: rows of three, or columns of three channels."""
    if len(x) == _IMAGE and x[:3] == (1, 3, 1):
        return x[3]
    if len(x) != 2 or x[1] != 3:
        raise GraphError(f"{what} are [N, 3], not {list(x)}")
    return x[0]


def _rows(points: np.ndarray) -> np.ndarray:
    return points[0, :, 0].T if points.ndim == _IMAGE else points


@op(
    "fps",
    "points",
    "k",
    native_layer=True,
    gate="FurthestPointSampling",
    no_derivative=PLACES,
    diverges_as="elementwise",
)
class FPS:
    """k points far apart, picked greedily from the first one (Euclidean)."""

    @staticmethod
    def shape(points, k):
        size = _cloud(points, "points")
        if k > size:
            raise GraphError(f"k is {k}, but there are only {size} points; k must be that many at most")
        return (1, 3, 1, k) if len(points) == _IMAGE else (k, 3)

    @staticmethod
    def reference(points, k):
        rows = _rows(points)
        chosen, distance = [0], np.full(len(rows), np.inf)
        while len(chosen) < k:
            distance = np.minimum(distance, np.square(rows - rows[chosen[-1]]).sum(axis=1))
            chosen.append(int(np.argmax(distance)))
        return points[..., chosen] if points.ndim == _IMAGE else points[chosen]


@op(
    "radius_search",
    "points centroids",
    "radius",
    native_layer=True,
    gate="RadiusSearch",
    no_derivative=PLACES,
    diverges_as="elementwise",
)
class RADIUS_SEARCH:
    """1 where a point lies within a radius of a centroid, else 0."""

    @staticmethod
    def shape(points, centroids, radius):
        rows, columns = _cloud(points, "points"), _cloud(centroids, "centroids")
        if len(points) != len(centroids):
            raise GraphError("points and centroids must have one layout")
        return (1, rows, 1, columns) if len(points) == _IMAGE else (rows, columns)

    @staticmethod
    def reference(points, centroids, radius):
        a, b = _rows(points), _rows(centroids)
        distance = np.square(a[:, None] - b[None]).sum(axis=2)
        members = (distance <= radius * radius).astype(np.float64)
        return members.reshape(RADIUS_SEARCH.shape(points.shape, centroids.shape, radius))


@entry
def cross_product(a: Tensor, b: Any) -> Tensor:
    """The cross product of two vectors of three."""
    return make(CROSS_PRODUCT, (as_tensor(a), as_tensor(b)))


@entry
def cross_correlation(x: Tensor, template: Any, pad: Any = 0, groups: int = 1) -> Tensor:
    """Correlate a map [H, W] with a template, valid positions only; or [1, C, H, W] with as many templates, padded and
    in groups."""
    attrs = {"pad": pads(pad), "groups": positive(groups, "groups")}
    return make(CROSS_CORRELATION, (x, as_tensor(template, "template")), attrs)


@entry
def cost_volume(aux: Tensor, ref: Any, disparity_range: int = 1) -> Tensor:
    """Stereo matching cost for disparities 0 .. range."""
    return make(COST_VOLUME, (aux, as_tensor(ref, "ref")), {"disparity_range": extent(disparity_range, "range")})


@entry
def fps(points: Tensor, k: int) -> Tensor:
    """Furthest-point sampling of [N, 3] to [k, 3]."""
    return make(FPS, (points,), {"k": positive(k, "k")})


@entry
def radius_search(points: Tensor, centroids: Any, radius: float) -> Tensor:
    """Membership of points in balls around centroids, [N, Nc] of 0 and 1."""
    reach = number(radius, "radius")
    if reach < 0:
        raise GraphError(f"radius_search: radius must be zero or more, not {reach:g}")
    return make(RADIUS_SEARCH, (points, as_tensor(centroids, "centroids")), {"radius": reach})
