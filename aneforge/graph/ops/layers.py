"""Native layers reached by direct authoring. Each one cuts the program into segments."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from aneforge.errors import GraphError
from aneforge.graph.node import OpDef, Shape, composed, entry, make, op
from aneforge.graph.ops.elementwise import maximum, minimum, times
from aneforge.graph.ops.leaf import as_tensor
from aneforge.graph.ops.norm import epsilon, response_norm
from aneforge.graph.ops.shape import concat, reshaping
from aneforge.graph.ops.spatial import rearrange
from aneforge.graph.shapes import count, number, pair, positive, rank_is, same_image
from aneforge.graph.traits import GraphTrait as T

if TYPE_CHECKING:
    from aneforge.graph.tensor import Tensor


def attention_axes(heads_first: bool) -> tuple[int, int]:
    """Which axes of an attention hold the heads and the sequence: a netplist has the sequence on its channels."""
    return (1, 2) if heads_first else (2, 1)


@op(
    "sdpa",
    "q k v mask?",
    "scale is_causal subtract_max heads_first",
    gate="scaled_dot_product_attention",
    native_layer=True,
    diverges_as="attention",
)
class SDPA:
    """Fused attention: softmax(q k' * scale + mask) v."""

    @staticmethod
    def shape(q, k, v, mask=None, *, scale, is_causal, subtract_max, heads_first):
        for name, operand in (("q", q), ("k", k), ("v", v)):
            rank_is(operand, 4, name)
        if k != v:
            raise GraphError(f"K and V must share a shape, not {list(k)} and {list(v)}")
        heads, rows = attention_axes(heads_first)
        if q[0] != 1:
            order = "heads, sequence" if heads_first else "sequence, heads"
            raise GraphError(f"batch is {q[0]}; the layer takes [1, {order}, features]")
        if q[0] != k[0] or q[heads] != k[heads] or q[3] != k[3]:
            raise GraphError(f"Q {list(q)} does not contract with K {list(k)}: heads and features must agree")
        if mask is not None and mask != (1, 1, q[rows], k[rows]):
            raise GraphError(f"mask of shape {list(mask)} must be one plane [1, 1, {q[rows]}, {k[rows]}]")
        return q

    @staticmethod
    def reference(q, k, v, mask=None, *, scale, is_causal, subtract_max, heads_first):
        if not heads_first:
            q, k, v = (operand.swapaxes(1, 2) for operand in (q, k, v))
        scores = np.matmul(q, k.swapaxes(-1, -2)) * scale
        if is_causal:
            rows, columns = scores.shape[-2:]
            scores = np.where(np.tril(np.ones((rows, columns), bool)), scores, -np.inf)
        if mask is not None:
            scores = scores + mask
        powers = np.exp(scores - scores.max(axis=-1, keepdims=True) if subtract_max else scores)
        attended = np.matmul(powers / powers.sum(axis=-1, keepdims=True), v)
        return attended if heads_first else attended.swapaxes(1, 2)

    @staticmethod
    @composed
    def derivative(q, k, v, mask=None, *, scale, is_causal, subtract_max, heads_first):
        order = [0, 1, 2, 3] if heads_first else [0, 2, 1, 3]
        q, k, v = (operand.transpose(order) for operand in (q, k, v))
        scores = times(q @ k.mT, scale)
        if is_causal:
            scores = scores + np.triu(np.full(scores.shape[2:], -np.inf), 1)
        return ((scores if mask is None else scores + mask).softmax(-1) @ v).transpose(order)


DIMENSIONS = {"Width": 3, "Height": 2, "Channel": 1}


@op(
    "minmax_norm",
    "x",
    "dimension eps",
    native_layer=True,
    backend="unit:MinMaxNormalization x | dimension>Dimension eps>Epsilon",
    diverges_as="reduce_max",
)
class MINMAX_NORM:
    """Each line mapped from its own range to 0 .. 1."""

    shape = same_image

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


@op("lrn", "x", "alpha beta k channels", native_layer=True, gate="LRN", diverges_as="elementwise")
class LRN:
    """Response normalisation of the first channels over a window of as many; the others stay as they are (U63)."""

    @staticmethod
    def shape(x, alpha, beta, k, channels):
        rank_is(x, 4, "input")
        if channels > x[1]:
            raise GraphError(
                f"a window of {channels} channels is larger than the input, which has {x[1]}; use {x[1]} at most"
            )
        return x

    @staticmethod
    def reference(x, alpha, beta, k, channels):
        before = (channels - 1) // 2
        squares = np.pad(np.square(x), ((0, 0), (before, channels - 1 - before), (0, 0), (0, 0)))
        total = sum(squares[:, i : i + x.shape[1]] for i in range(channels))
        normalised = x / np.power(k + alpha * total, beta)
        return np.concatenate([normalised[:, :channels], x[:, channels:]], axis=1)

    @staticmethod
    @composed
    def derivative(x, alpha, beta, k, channels):
        normalised = response_norm(x, channels, alpha * channels, beta, k)
        if channels == x.shape[1]:
            return normalised
        return concat([normalised[:, :channels], x[:, channels:]], axis=1)


def _rearranged(name: str, inverse: str, moves: str, *, enlarges: bool, torch_order: bool, gate: str = "") -> OpDef:
    """One of the layers that move pixels to channels or back, with a factor for each axis."""
    options: dict[str, Any] = {"attributes": "rows columns", "gate": gate or name, "native_layer": True}
    doc = f"{moves}, as a native layer."
    return rearrange(name, inverse, doc, enlarges=enlarges, torch_order=torch_order, **options)


SPACE_TO_CHANNEL = _rearranged(
    "space_to_channel", "channel_to_space", "Pixels to blocks of channels", enlarges=False, torch_order=False
)
CHANNEL_TO_SPACE = _rearranged(
    "channel_to_space", "space_to_channel", "Blocks of channels to pixels", enlarges=True, torch_order=False
)
NATIVE_PIXEL_SHUFFLE = _rearranged(
    "native_pixel_shuffle",
    "native_pixel_unshuffle",
    "Channels of a block to pixels with a factor for each axis",
    enlarges=True,
    torch_order=True,
    gate="PixelShuffle",
)
NATIVE_PIXEL_UNSHUFFLE = _rearranged(
    "native_pixel_unshuffle",
    "native_pixel_shuffle",
    "Pixels to channels of a block with a factor for each axis",
    enlarges=False,
    torch_order=True,
    gate="PixelUnshuffle",
)


@op("space_to_batch", "x", "bh bw", native_layer=True, diverges_as="move")
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


@op("batch_to_space", "x", "bh bw", native_layer=True, diverges_as="move")
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


FLATTEN = reshaping(
    "flatten",
    "All elements as one line.",
    "",
    lambda x: (count(x),),
    T.MOVEMENT,
    native_layer=True,
    diverges_as="reshape",
)


def _unflattened(x: Shape, size: Shape) -> Shape:
    rank_is(x, 4, "input")
    if count(x[1:]) != count(size):
        raise GraphError(f"an image of {list(size)} has {count(size)} elements; the input has {count(x[1:])}")
    return x[0], *size


NATIVE_UNFLATTEN = reshaping(
    "native_unflatten",
    "A line of channels as an image; every variant fails lowering (layers.json).",
    "size",
    _unflattened,
    gate="Unflatten",
    native_layer=True,
    backend="unflatten x | size>destination_size",
    diverges_as="reshape",
)


@op(
    "kernel_rasterizer",
    "x",
    gate="KernelRasterizer",
    native_layer=True,
    backend="unit:KernelRasterizer x | KernelWidth=1 KernelHeight=1 NumGroups=1 RasterizerMode=UnfoldedChannels",
    diverges_as="move",
)
class KERNEL_RASTERIZER:
    """A map unfolded into channels; only the form that changes nothing compiles."""

    shape = same_image

    @staticmethod
    def reference(x):
        return x

    @staticmethod
    def derivative(g, y, x):
        return [g]


SCALED_OPS = {"Add": np.add, "Mult": np.multiply, "Min": np.minimum, "Max": np.maximum}


@op(
    "scaled_elementwise",
    "x z",
    "kind scale",
    native_layer=True,
    backend="scaled_elementwise a b | kind>mode scale",
    diverges_as="elementwise",
)
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
    q = as_tensor(q, "q")
    chosen = 1 / math.sqrt(q.shape[-1]) if scale is None else number(scale, "scale")
    return attention(q, k, v, chosen, attn_mask, is_causal)


@entry
def attention(
    q: Any,
    k: Any,
    v: Any,
    scale: float,
    mask: Any = None,
    is_causal: bool = False,
    subtract_max: bool = True,
    heads_first: bool = True,
) -> Tensor:
    """The same with every setting of the layer; ``heads_first=False`` takes [1, sequence, heads, features]."""
    operands = [as_tensor(q, "q"), as_tensor(k, "k"), as_tensor(v, "v")]
    if mask is not None:
        operands.append(as_tensor(mask, "attn_mask"))
    settings = {"is_causal": bool(is_causal), "subtract_max": bool(subtract_max), "heads_first": bool(heads_first)}
    return make(SDPA, operands, {"scale": scale, **settings})


@entry
def minmax_norm(x: Tensor, dimension: str = "Width", eps: float = 1e-4) -> Tensor:
    """Range normalisation along Width, Height or Channel of [N, C, H, W]."""
    if dimension not in DIMENSIONS:
        raise GraphError(f"minmax_norm: dimension {dimension!r} is unknown; choose one: {', '.join(DIMENSIONS)}")
    return make(MINMAX_NORM, (x,), {"dimension": dimension, "eps": epsilon(eps)})


@entry
def lrn(x: Tensor, alpha: float = 1.0, beta: float = 0.75, k: float = 1.0, channels: int | None = None) -> Tensor:
    """Response normalisation across channels on the native layer; ``channels`` is the window, all channels if None."""
    attrs = {"alpha": number(alpha, "alpha"), "beta": number(beta, "beta"), "k": number(k, "k")}
    window = positive(channels, "channels") if channels is not None else (*x.shape, 1, 1)[1]
    return make(LRN, (x,), {**attrs, "channels": window})


def _factors(r: Any) -> dict[str, int]:
    rows, columns = pair(r, "r")
    return {"rows": rows, "columns": columns}


@entry
def space_to_channel(x: Tensor, r: int | tuple[int, int]) -> Tensor:
    """Pixels to channels on the native layer, TensorFlow order; a pair of factors is for rows and columns."""
    return make(SPACE_TO_CHANNEL, (x,), _factors(r))


@entry
def channel_to_space(x: Tensor, r: int | tuple[int, int]) -> Tensor:
    """Channels to pixels on the native layer, TensorFlow order; a pair of factors is for rows and columns."""
    return make(CHANNEL_TO_SPACE, (x,), _factors(r))


@entry
def native_pixel_shuffle(x: Tensor, r: int | tuple[int, int]) -> Tensor:
    """Channels to pixels on the native layer, PyTorch order."""
    return make(NATIVE_PIXEL_SHUFFLE, (x,), _factors(r))


@entry
def native_pixel_unshuffle(x: Tensor, r: int | tuple[int, int]) -> Tensor:
    """Pixels to channels on the native layer, PyTorch order."""
    return make(NATIVE_PIXEL_UNSHUFFLE, (x,), _factors(r))


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
def native_unflatten(x: Tensor, channels: int, height: int, width: int) -> Tensor:
    """A line of channels as an image."""
    size = tuple(positive(extent, "an extent") for extent in (channels, height, width))
    return make(NATIVE_UNFLATTEN, (x,), {"size": size})


@entry
def kernel_rasterizer(x: Tensor) -> Tensor:
    """The rasteriser in the only configuration that compiles: it changes nothing."""
    return make(KERNEL_RASTERIZER, (x,))


@entry
def scaled_elementwise(x: Tensor, z: Any, op: str = "Add", scale: float = 1.0) -> Tensor:
    """``scale * (x op z)`` with op Add, Mult, Min or Max."""
    if op not in SCALED_OPS:
        raise GraphError(f"scaled_elementwise: op {op!r} is unknown; choose one: {', '.join(SCALED_OPS)}")
    return make(SCALED_ELEMENTWISE, (x, as_tensor(z)), {"kind": op, "scale": number(scale, "scale")})
