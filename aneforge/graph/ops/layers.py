"""Native layers reached by direct authoring. Each one cuts the program into segments."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from aneforge.errors import GraphError
from aneforge.graph.node import Shape, composed, entry, make, op
from aneforge.graph.ops.contraction import conv
from aneforge.graph.ops.elementwise import maximum, minimum, times
from aneforge.graph.ops.leaf import as_tensor
from aneforge.graph.ops.norm import epsilon, response_norm
from aneforge.graph.ops.shape import gather, stack
from aneforge.graph.ops.spatial import _condensed, _enlarged, rearrange, to_depth, to_space
from aneforge.graph.shapes import axis_of, count, extent, number, positive, rank_is

if TYPE_CHECKING:
    from aneforge.graph.tensor import Tensor


@op("sdpa", "q k v mask?", "scale is_causal", gate="scaled_dot_product_attention", native_layer=True)
class SDPA:
    """Fused attention: softmax(q k' * scale + mask) v, the maximum subtracted."""

    @staticmethod
    def shape(q, k, v, mask=None, *, scale, is_causal):
        for name, operand in (("q", q), ("k", k), ("v", v)):
            rank_is(operand, 4, name)
        if k != v:
            raise GraphError(f"K and V must share a shape, not {list(k)} and {list(v)}")
        if q[0] != 1:
            raise GraphError(f"batch is {q[0]}; the layer takes [1, heads, sequence, features]")
        if q[:2] != k[:2] or q[3] != k[3]:
            raise GraphError(f"Q {list(q)} does not contract with K {list(k)}: heads and features must agree")
        if mask is not None and mask != (1, 1, q[2], k[2]):
            raise GraphError(f"mask of shape {list(mask)} must be one plane [1, 1, {q[2]}, {k[2]}]")
        return (*q[:3], v[3])

    @staticmethod
    def reference(q, k, v, mask=None, *, scale, is_causal):
        scores = np.matmul(q, k.swapaxes(-1, -2)) * scale
        if is_causal:
            rows, columns = scores.shape[-2:]
            scores = np.where(np.tril(np.ones((rows, columns), bool)), scores, -np.inf)
        if mask is not None:
            scores = scores + mask
        shifted = np.exp(scores - scores.max(axis=-1, keepdims=True))
        return np.matmul(shifted / shifted.sum(axis=-1, keepdims=True), v)

    @staticmethod
    @composed
    def derivative(q, k, v, mask=None, *, scale, is_causal):
        scores = times(q @ k.mT, scale)
        if is_causal:
            scores = scores + np.triu(np.full(scores.shape[2:], -np.inf), 1)
        return (scores if mask is None else scores + mask).softmax(-1) @ v


def _rows(x: Shape) -> None:
    if len(x) != 2:
        raise GraphError(f"takes rows [C, W], not {list(x)}")


@op("topk", "x", "k largest", native_layer=True)
class TOPK:
    """The k largest (or smallest) elements of each row, in order."""

    @staticmethod
    def shape(x, k, largest):
        _rows(x)
        if k > x[1]:
            raise GraphError(f"k is {k}, but a row has only {x[1]} elements")
        return x[0], k

    @staticmethod
    def reference(x, k, largest):
        ordered = np.sort(x, axis=1)
        return ordered[:, ::-1][:, :k] if largest else ordered[:, :k]


@op("sort", "x", "descending return_indices", native_layer=True)
class SORT:
    """Each row sorted, or the positions that sort it (as fp16 numbers)."""

    @staticmethod
    def shape(x, descending, return_indices):
        _rows(x)
        return x

    @staticmethod
    def reference(x, descending, return_indices):
        order = np.argsort(-x if descending else x, axis=1, kind="stable")
        return order.astype(np.float64) if return_indices else np.take_along_axis(x, order, axis=1)


@op("argmax", "x", "axis", gate="reduce_argmax", native_layer=True)
class ARGMAX:
    """The position of the largest element along one axis of a rank-2 tensor (as an fp16 number)."""

    @staticmethod
    def shape(x, axis):
        _rows(x)
        return tuple(1 if i == axis else size for i, size in enumerate(x))

    @staticmethod
    def reference(x, axis):
        return np.expand_dims(np.argmax(x, axis=axis), axis).astype(np.float64)


@op("cross_product", "a b", native_layer=True)
class CROSS_PRODUCT:
    """The cross product of two vectors of three."""

    @staticmethod
    def shape(a, b):
        if count(a) != 3 or count(b) != 3:
            raise GraphError("both operands must hold exactly three elements")
        return (3,)

    @staticmethod
    def reference(a, b):
        return np.cross(a.reshape(3), b.reshape(3))

    @staticmethod
    @composed
    def derivative(a, b):
        a, b, after, before = a.reshape(3), b.reshape(3), [1, 2, 0], [2, 0, 1]
        return gather(a, after) * gather(b, before) - gather(a, before) * gather(b, after)


@op("cross_correlation", "x template", native_layer=True)
class CROSS_CORRELATION:
    """A map [H, W] correlated with a template, valid positions only."""

    @staticmethod
    def shape(x, template):
        rank_is(x, 2, "map")
        rank_is(template, 2, "template")
        if template[0] > x[0] or template[1] > x[1]:
            raise GraphError(f"template {list(template)} is larger than the map {list(x)}")
        return x[0] - template[0] + 1, x[1] - template[1] + 1

    @staticmethod
    def reference(x, template):
        windows = np.lib.stride_tricks.sliding_window_view(x, template.shape)
        return np.einsum("ijuv,uv->ij", windows, template)

    @staticmethod
    @composed
    def derivative(x, template):
        return conv(x.expand_dims([0, 1]), template.expand_dims([0, 1])).squeeze([0, 1])


@op("cost_volume", "aux ref", "disparity_range", native_layer=True)
class COST_VOLUME:
    """Matching cost |aux[x] - ref[x + d]| for each disparity d from 0 to the range."""

    @staticmethod
    def shape(aux, ref, disparity_range):
        if count(ref) < count(aux) + disparity_range:
            raise GraphError(f"ref of {count(ref)} must hold aux of {count(aux)} plus the range {disparity_range}")
        return disparity_range + 1, count(aux)

    @staticmethod
    def reference(aux, ref, disparity_range):
        a, r = aux.reshape(-1), ref.reshape(-1)
        return np.stack([np.abs(a - r[d : d + len(a)]) for d in range(disparity_range + 1)])

    @staticmethod
    @composed
    def derivative(aux, ref, disparity_range):
        a, r = aux.reshape(aux.size), ref.reshape(ref.size)
        return stack([(a - r[d : d + a.size]).abs() for d in range(disparity_range + 1)])


def _points(x: Shape, what: str) -> None:
    if len(x) != 2 or x[1] != 3:
        raise GraphError(f"{what} are [N, 3], not {list(x)}")


@op("fps", "points", "k", native_layer=True, gate="FurthestPointSampling")
class FPS:
    """k points far apart, picked greedily from the first one (Euclidean)."""

    @staticmethod
    def shape(points, k):
        _points(points, "points")
        if k > points[0]:
            raise GraphError(f"k is {k}, but there are only {points[0]} points; k must be that many at most")
        return k, 3

    @staticmethod
    def reference(points, k):
        chosen, distance = [0], np.full(len(points), np.inf)
        while len(chosen) < k:
            distance = np.minimum(distance, np.square(points - points[chosen[-1]]).sum(axis=1))
            chosen.append(int(np.argmax(distance)))
        return points[chosen]


@op("radius_search", "points centroids", "radius", native_layer=True, gate="RadiusSearch")
class RADIUS_SEARCH:
    """1 where a point lies within a radius of a centroid, else 0."""

    @staticmethod
    def shape(points, centroids, radius):
        _points(points, "points")
        _points(centroids, "centroids")
        return points[0], centroids[0]

    @staticmethod
    def reference(points, centroids, radius):
        distance = np.square(points[:, None] - centroids[None]).sum(axis=2)
        return (distance <= radius * radius).astype(np.float64)


DIMENSIONS = {"Width": 3, "Height": 2, "Channel": 1}


@op("minmax_norm", "x", "dimension eps", native_layer=True)
class MINMAX_NORM:
    """Each line mapped from its own range to 0 .. 1."""

    @staticmethod
    def shape(x, dimension, eps):
        rank_is(x, 4, "input")
        return x

    @staticmethod
    def reference(x, dimension, eps):
        axis = DIMENSIONS[dimension]
        low, high = x.min(axis=axis, keepdims=True), x.max(axis=axis, keepdims=True)
        return (x - low) / (high - low + eps)

    @staticmethod
    @composed
    def derivative(x, dimension, eps):
        axis = DIMENSIONS[dimension]
        return (x - x.amin(axis)) * (x.amax(axis) - x.amin(axis)).inverse(eps)


@op("lrn", "x", "alpha beta k", native_layer=True, gate="LRN")
class LRN:
    """Response normalisation over a window of as many channels as there are."""

    @staticmethod
    def shape(x, alpha, beta, k):
        rank_is(x, 4, "input")
        return x

    @staticmethod
    def reference(x, alpha, beta, k):
        channels = x.shape[1]
        before = (channels - 1) // 2
        squares = np.pad(np.square(x), ((0, 0), (before, channels - 1 - before), (0, 0), (0, 0)))
        total = sum(squares[:, i : i + channels] for i in range(channels))
        return x / np.power(k + alpha * total, beta)

    @staticmethod
    @composed
    def derivative(x, alpha, beta, k):
        return response_norm(x, x.shape[1], alpha * x.shape[1], beta, k)


SPACE_TO_CHANNEL = rearrange(
    "space_to_channel",
    "Pixels to blocks of channels, as a native layer.",
    _condensed,
    to_depth,
    False,
    "channel_to_space",
    native_layer=True,
)
CHANNEL_TO_SPACE = rearrange(
    "channel_to_space",
    "Blocks of channels to pixels, as a native layer.",
    _enlarged,
    to_space,
    False,
    "space_to_channel",
    native_layer=True,
)


@op("space_to_batch", "x", "bh bw", native_layer=True)
class SPACE_TO_BATCH:
    """Blocks of pixels moved to the batch."""

    @staticmethod
    def shape(x, bh, bw):
        rank_is(x, 4, "input")
        if x[2] % bh or x[3] % bw:
            raise GraphError(f"height {x[2]} and width {x[3]} are not divisible by {bh} and {bw}")
        return x[0] * bh * bw, x[1], x[2] // bh, x[3] // bw

    @staticmethod
    def reference(x, bh, bw):
        n, c, h, w = x.shape
        blocks = x.reshape(n, c, h // bh, bh, w // bw, bw)
        return blocks.transpose(3, 5, 0, 1, 2, 4).reshape(-1, c, h // bh, w // bw)

    @staticmethod
    def derivative(g, y, x, bh, bw):
        return [g.batch_to_space(bh, bw)]


@op("batch_to_space", "x", "bh bw", native_layer=True)
class BATCH_TO_SPACE:
    """The batch moved back to blocks of pixels."""

    @staticmethod
    def shape(x, bh, bw):
        rank_is(x, 4, "input")
        if x[0] % (bh * bw):
            raise GraphError(f"batch {x[0]} is not divisible by {bh} x {bw}")
        return x[0] // (bh * bw), x[1], x[2] * bh, x[3] * bw

    @staticmethod
    def reference(x, bh, bw):
        n, c, h, w = x.shape
        blocks = x.reshape(bh, bw, n // (bh * bw), c, h, w)
        return blocks.transpose(2, 3, 4, 0, 5, 1).reshape(n // (bh * bw), c, h * bh, w * bw)

    @staticmethod
    def derivative(g, y, x, bh, bw):
        return [g.space_to_batch(bh, bw)]


@op("flatten", "x", native_layer=True)
class FLATTEN:
    """All elements as one line."""

    @staticmethod
    def shape(x):
        return (count(x),)

    @staticmethod
    def reference(x):
        return x.reshape(-1)

    @staticmethod
    def derivative(g, y, x):
        return [g.reshape(x.shape)]


@op("input_view", "x", "offset size", native_layer=True)
class INPUT_VIEW:
    """A run of the flattened elements."""

    @staticmethod
    def shape(x, offset, size):
        if offset + size > count(x):
            raise GraphError(f"{size} elements from {offset} do not fit {count(x)}")
        return (size,)

    @staticmethod
    def reference(x, offset, size):
        return x.reshape(-1)[offset : offset + size]

    @staticmethod
    def derivative(g, y, x, offset, size):
        return [g.pad([(offset, x.size - offset - size)]).reshape(x.shape)]


@op("dynamic_slice", "x", "start size", native_layer=True)
class DYNAMIC_SLICE:
    """A run of the flattened elements, its start a run-time setting."""

    @staticmethod
    def shape(x, start, size):
        if start + size > count(x):
            raise GraphError(f"{size} elements from {start} do not fit {count(x)}")
        return (size,)

    @staticmethod
    def reference(x, start, size):
        return x.reshape(-1)[start : start + size]

    @staticmethod
    def derivative(g, y, x, start, size):
        return [g.pad([(start, x.size - start - size)]).reshape(x.shape)]


SCALED_OPS = {"Add": np.add, "Mult": np.multiply, "Min": np.minimum, "Max": np.maximum}


@op("scaled_elementwise", "x z", "kind scale", native_layer=True)
class SCALED_ELEMENTWISE:
    """scale * (x op z); a product ignores the scale, as the layer does."""

    @staticmethod
    def shape(x, z, kind, scale):
        if x != z:
            raise GraphError(f"both operands must have one shape, not {list(x)} and {list(z)}")
        return x

    @staticmethod
    def reference(x, z, kind, scale):
        result = SCALED_OPS[kind](x, z)
        return result if kind == "Mult" else result * scale

    @staticmethod
    @composed
    def derivative(x, z, kind, scale):
        if kind == "Mult":
            return x * z
        return times({"Add": x + z, "Min": minimum(x, z), "Max": maximum(x, z)}[kind], scale)


@entry
def sdpa(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float | None = None,
    is_causal: bool = False,
    attn_mask: Any = None,
) -> Tensor:
    """Scaled dot-product attention as the fused native layer; operands are [1, heads, sequence, features]."""
    operands = [as_tensor(q, "q"), as_tensor(k, "k"), as_tensor(v, "v")]
    if attn_mask is not None:
        operands.append(as_tensor(attn_mask, "attn_mask"))
    chosen = 1 / math.sqrt(operands[0].shape[-1]) if scale is None else number(scale, "scale")
    return make(SDPA, operands, {"scale": chosen, "is_causal": bool(is_causal)})


@entry
def topk(x: Tensor, k: int, largest: bool = True) -> Tensor:
    """The k largest elements of each row of [C, W]."""
    return make(TOPK, (x,), {"k": positive(k, "k"), "largest": bool(largest)})


@entry
def sort(x: Tensor, descending: bool = False, return_indices: bool = False) -> Tensor:
    """Rows of [C, W] sorted, or the positions that sort them."""
    return make(SORT, (x,), {"descending": bool(descending), "return_indices": bool(return_indices)})


def argmax(x: Tensor, axis: int = -1) -> Tensor:
    return make(ARGMAX, (x,), {"axis": axis_of(axis, len(x.shape))})


@entry
def cross_product(a: Tensor, b: Any) -> Tensor:
    """The cross product of two vectors of three."""
    return make(CROSS_PRODUCT, (as_tensor(a), as_tensor(b)))


@entry
def cross_correlation(x: Tensor, template: Any) -> Tensor:
    """Correlate a map [H, W] with a template, valid positions only."""
    return make(CROSS_CORRELATION, (x, as_tensor(template, "template")))


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


@entry
def minmax_norm(x: Tensor, dimension: str = "Width", eps: float = 1e-4) -> Tensor:
    """Range normalisation along Width, Height or Channel of [N, C, H, W]."""
    if dimension not in DIMENSIONS:
        raise GraphError(f"minmax_norm: dimension {dimension!r} is unknown; choose one: {', '.join(DIMENSIONS)}")
    return make(MINMAX_NORM, (x,), {"dimension": dimension, "eps": epsilon(eps)})


@entry
def lrn(x: Tensor, alpha: float = 1.0, beta: float = 0.75, k: float = 1.0) -> Tensor:
    """Response normalisation across channels on the native layer."""
    return make(LRN, (x,), {"alpha": number(alpha, "alpha"), "beta": number(beta, "beta"), "k": number(k, "k")})


@entry
def space_to_channel(x: Tensor, r: int) -> Tensor:
    """Pixels to channels on the native layer, TensorFlow order."""
    return make(SPACE_TO_CHANNEL, (x,), {"r": positive(r, "r")})


@entry
def channel_to_space(x: Tensor, r: int) -> Tensor:
    """Channels to pixels on the native layer, TensorFlow order."""
    return make(CHANNEL_TO_SPACE, (x,), {"r": positive(r, "r")})


@entry
def space_to_batch(x: Tensor, bh: int, bw: int) -> Tensor:
    """Blocks of pixels to the batch."""
    return make(SPACE_TO_BATCH, (x,), {"bh": positive(bh, "bh"), "bw": positive(bw, "bw")})


@entry
def batch_to_space(x: Tensor, bh: int, bw: int) -> Tensor:
    """The batch back to blocks of pixels."""
    return make(BATCH_TO_SPACE, (x,), {"bh": positive(bh, "bh"), "bw": positive(bw, "bw")})


@entry
def flatten(x: Tensor) -> Tensor:
    """All elements as one line, on the native layer."""
    return make(FLATTEN, (x,))


@entry
def input_view(x: Tensor, offset: int, size: int) -> Tensor:
    """``size`` of the flattened elements from ``offset``."""
    return make(INPUT_VIEW, (x,), {"offset": extent(offset, "offset"), "size": positive(size, "size")})


@entry
def dynamic_slice(x: Tensor, start: int, size: int = 2) -> Tensor:
    """``size`` of the flattened elements from ``start``, which may change between runs."""
    return make(DYNAMIC_SLICE, (x,), {"start": extent(start, "start"), "size": positive(size, "size")})


@entry
def scaled_elementwise(x: Tensor, z: Any, op: str = "Add", scale: float = 1.0) -> Tensor:
    """``scale * (x op z)`` with op Add, Mult, Min or Max."""
    if op not in SCALED_OPS:
        raise GraphError(f"scaled_elementwise: op {op!r} is unknown; choose one: {', '.join(SCALED_OPS)}")
    return make(SCALED_ELEMENTWISE, (x, as_tensor(z)), {"kind": op, "scale": number(scale, "scale")})
