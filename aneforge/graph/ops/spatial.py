"""Pooling, resampling and the rearrangements between channels and space, on NCHW."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from aneforge.errors import GraphError
from aneforge.graph.halves import FP16_MAX
from aneforge.graph.node import OpDef, Shape, composed, definition, entry, make, op
from aneforge.graph.ops.contraction import _patches, input_gradient, pads, taps
from aneforge.graph.ops.elementwise import times
from aneforge.graph.ops.leaf import as_tensor, const
from aneforge.graph.ops.shape import picked
from aneforge.graph.shapes import pair, positive, rank_is, window
from aneforge.graph.traits import SAMPLED
from aneforge.graph.traits import GraphTrait as T

if TYPE_CHECKING:
    from aneforge.graph.tensor import Tensor


_MIL = "x | kernel>kernel_sizes stride>strides pad_type=custom pad ceil_mode"


def _pool_shape(x, kernel, stride, pad, ceil_mode, **_):
    rank_is(x, 4, "input")
    for i, name in enumerate(("height", "width")):
        if pad[2 * i] >= kernel[i] or pad[2 * i + 1] >= kernel[i]:
            raise GraphError(f"padding {list(pad)} is not smaller than the window {list(kernel)} along the {name}")
    spatial = [window(x[2 + i], kernel[i], stride[i], pad[2 * i], pad[2 * i + 1], ceil=ceil_mode) for i in range(2)]
    return (x[0], x[1], *spatial)


def window_pads(shape, kernel, stride, pad, ceil_mode):
    """The padding; in ceil mode the map is extended so that the last window fits."""
    extra = []
    for i in range(2):
        outputs = window(shape[2 + i], kernel[i], stride[i], pad[2 * i], pad[2 * i + 1], ceil=ceil_mode)
        reach = (outputs - 1) * stride[i] + kernel[i]
        extra.append(max(0, reach - shape[2 + i] - pad[2 * i] - pad[2 * i + 1]))
    return pad[0], pad[1] + extra[0], pad[2], pad[3] + extra[1]


def _pool_windows(x, kernel, stride, pad, ceil_mode, fill):
    """Windows of the padded map."""
    return _patches(x, kernel, stride, window_pads(x.shape, kernel, stride, pad, ceil_mode), (1, 1), fill)


def _pool_counts(shape, kernel, stride, pad, ceil_mode, exclude_pad):
    """Elements that each window averages: padding counts unless excluded, what ceil mode adds never does."""
    wide = window_pads(shape, kernel, stride, pad, ceil_mode)
    added = [after - before for before, after in zip(pad, wide, strict=True)]
    ones = np.pad(np.ones((1, 1, *shape[2:])), ((0, 0), (0, 0), pad[:2], pad[2:]), constant_values=not exclude_pad)
    return _patches(ones, kernel, stride, tuple(added), (1, 1)).sum(axis=(4, 5))


@op("max_pool", "x", "kernel stride pad ceil_mode", T.POOL, mil=f"max_pool {_MIL}")
class MAX_POOL:
    """The largest element of each window."""

    shape = _pool_shape

    @staticmethod
    def reference(x, kernel, stride, pad, ceil_mode):
        return _pool_windows(x, kernel, stride, pad, ceil_mode, -np.inf).max(axis=(4, 5))

    @staticmethod
    def derivative(g, y, x, kernel, stride, pad, ceil_mode):
        if stride != kernel or any(pad) or any(s % k for s, k in zip(x.shape[2:], kernel, strict=True)):
            return [
                _overlapping_gradient(g, y, x, kernel, stride, window_pads(x.shape, kernel, stride, pad, ceil_mode))
            ]
        mask = x.equal(_repeated(y, kernel)).cast()
        ties = times(mask.avg_pool(kernel, kernel), kernel[0] * kernel[1])
        return [_repeated(g / ties, kernel) * mask]


def _repeated(x: Tensor, kernel: Shape) -> Tensor:
    """Each element repeated over a window, as ``upsample`` does, by copies only: where a chip has no resize, that one
    becomes a convolution, whose numbers need not be equal to those they are compared with."""
    n, channels, height, width = x.shape
    lines = x.reshape(n, channels * height, width, 1).tile([1, 1, 1, kernel[1]])
    rows = lines.reshape(n, channels * height, 1, width * kernel[1]).tile([1, 1, kernel[0], 1])
    return rows.reshape(n, channels, height * kernel[0], width * kernel[1])


def _overlapping_gradient(g, y, x, kernel, stride, pad):
    """The windows laid out as an axis, a share of the gradient for each largest element, and the way back."""
    n, channels, height, width = y.shape
    laid = (n, channels, kernel[0] * kernel[1], height, width)
    padded = x.pad(((0, 0), (0, 0), pad[:2], pad[2:]), value=-FP16_MAX)
    settings = {"stride": stride, "pad": (0, 0, 0, 0), "dilation": (1, 1), "groups": channels}
    places = taps(channels, kernel)
    windows = make(definition("conv"), (padded, places), settings).reshape(laid)
    mask = windows.equal(y.expand_dims(2)).cast()
    parts = (g.expand_dims(2) * mask / mask.sum(2)).reshape(n, channels * laid[2], height, width)
    back = input_gradient(parts, padded, places, **settings)
    return back.slice_by_size([0, 0, pad[0], pad[2]], x.shape)


@op(
    "avg_pool",
    "x",
    "kernel stride pad ceil_mode exclude_pad",
    T.POOL,
    mil=f"avg_pool {_MIL} exclude_pad>exclude_padding_from_average",
)
class AVG_POOL:
    """The mean of each window, padding counted unless excluded."""

    shape = _pool_shape

    @staticmethod
    def reference(x, kernel, stride, pad, ceil_mode, exclude_pad):
        total = _pool_windows(x, kernel, stride, pad, ceil_mode, 0.0).sum(axis=(4, 5))
        return total / _pool_counts(x.shape, kernel, stride, pad, ceil_mode, exclude_pad)

    @staticmethod
    def derivative(g, y, x, kernel, stride, pad, ceil_mode, exclude_pad):
        if stride != kernel or any(pad) or any(s % k for s, k in zip(x.shape[2:], kernel, strict=True)):
            counts = _pool_counts(x.shape, kernel, stride, pad, ceil_mode, exclude_pad)
            share = times(g, 1 / counts.flat[0]) if (counts == counts.flat[0]).all() else g / const(counts)
            ones = const(np.ones((x.shape[1], 1, *kernel)))
            return [input_gradient(share, x, ones, stride, pad, (1, 1), x.shape[1])]
        return [times(upsample(g, kernel), 1 / (kernel[0] * kernel[1]))]


def _scaled_shape(x, scale, **_):
    rank_is(x, 4, "input")
    return x[0], x[1], x[2] * scale[0], x[3] * scale[1]


def _resized_shape(x, height, width, **_):
    rank_is(x, 4, "input")
    return x[0], x[1], height, width


@op("upsample_nearest_neighbor", "x", "scale", T.RESIZE)
class UPSAMPLE:
    """Each element repeated along height and width."""

    shape = _scaled_shape

    @staticmethod
    def reference(x, scale):
        return x.repeat(scale[0], axis=2).repeat(scale[1], axis=3)

    @staticmethod
    def derivative(g, y, x, scale):
        return [g.avg_pool(scale, scale) * float(scale[0] * scale[1])]


def _source(size: int, out: int, align_corners: bool) -> np.ndarray:
    """Sampling positions of a resize along one axis (half-pixel unless corners align)."""
    if align_corners:
        return np.zeros(out) if out == 1 else np.arange(out) * ((size - 1) / (out - 1))
    return np.clip((np.arange(out) + 0.5) * (size / out) - 0.5, 0, size - 1)


def _linear(x: np.ndarray, axis: int, positions: np.ndarray) -> np.ndarray:
    low = np.floor(positions).astype(int)
    high = np.minimum(low + 1, x.shape[axis] - 1)
    shape = [1] * x.ndim
    shape[axis] = len(positions)
    part = (positions - low).reshape(shape)
    return np.take(x, low, axis) * (1 - part) + np.take(x, high, axis) * part


def bilinear(x, height, width, align_corners):
    rows = _linear(x, 2, _source(x.shape[2], height, align_corners))
    return _linear(rows, 3, _source(x.shape[3], width, align_corners))


def _bilinear_product(x: Tensor, height: int, width: int, align_corners: bool) -> Tensor:
    """The same as two products: each output is a fixed mixture of rows, then of columns."""
    rows = _linear(np.eye(x.shape[2]), 0, _source(x.shape[2], height, align_corners))
    columns = _linear(np.eye(x.shape[3]), 0, _source(x.shape[3], width, align_corners))
    return const(rows) @ x @ const(columns.T)


@op("upsample_bilinear", "x", "scale align_corners", T.RESIZE)
class UPSAMPLE_BILINEAR:
    """Bilinear enlargement by whole factors."""

    shape = _scaled_shape

    @staticmethod
    def reference(x, scale, align_corners):
        return bilinear(x, x.shape[2] * scale[0], x.shape[3] * scale[1], align_corners)

    @staticmethod
    @composed
    def derivative(x, scale, align_corners):
        return _bilinear_product(x, x.shape[2] * scale[0], x.shape[3] * scale[1], align_corners)


@op("resize_bilinear", "x", "height width align_corners", T.RESIZE)
class RESIZE_BILINEAR:
    """Bilinear resize to a given height and width."""

    shape = _resized_shape
    reference = bilinear
    derivative = composed(_bilinear_product)


@op(
    "resize_nearest_neighbor",
    "x",
    "height width",
    T.RESIZE,
    mil="resize_nearest_neighbor x | height>target_size_height width>target_size_width",
)
class RESIZE_NEAREST:
    """Nearest-neighbour resize to a given height and width."""

    shape = _resized_shape

    @staticmethod
    def reference(x, height, width):
        return x[:, :, _nearest(x.shape[2], height)][:, :, :, _nearest(x.shape[3], width)]

    @staticmethod
    @composed
    def derivative(x, height, width):
        n, channels, *space = x.shape
        sources = (_nearest(size, out) for size, out in zip(space, (height, width), strict=True))
        return picked(x, [range(n), range(channels), *sources])


def _nearest(size: int, out: int) -> list[int]:
    """The element that each output repeats."""
    return [i * size // out for i in range(out)]


@op(
    "affine",
    "x transform",
    "output_h output_w align_corners",
    T.SAMPLING,
    no_derivative=SAMPLED,
    mil="affine x transform_matrix | output_h>output_height output_w>output_width sampling_mode=bilinear "
    "padding_mode=constant padding_value=0.0 coordinates_mode=normalized_minus_one_to_one align_corners",
    backend="unit:AffineTransform x transform | output_h>Height output_w>Width align_corners>AlignCorners",
    diverges_as="move",
)
class AFFINE:
    """2-D affine warp; transform is [N, 6] in coordinates from -1 to 1, outside is zero."""

    @staticmethod
    def shape(x, transform, output_h, output_w, align_corners):
        rank_is(x, 4, "input")
        if transform != (x[0], 6):
            raise GraphError(f"transform of shape {list(transform)} must be [{x[0]}, 6]")
        return x[0], x[1], output_h, output_w

    @staticmethod
    def reference(x, transform, output_h, output_w, align_corners):
        h, w = x.shape[2:]

        def grid(size):
            if align_corners:
                return np.linspace(-1, 1, size) if size > 1 else np.zeros(1)
            return (2 * np.arange(size) + 1) / size - 1

        def pixel(value, size):
            return (value + 1) * (size - 1) / 2 if align_corners else ((value + 1) * size - 1) / 2

        xs, ys = np.meshgrid(grid(output_w), grid(output_h))
        a, b = (transform[:, i : i + 3, None, None] for i in (0, 3))
        columns = pixel(a[:, 0] * xs + a[:, 1] * ys + a[:, 2], w)
        rows = pixel(b[:, 0] * xs + b[:, 1] * ys + b[:, 2], h)
        return read_at(x, columns, rows)


def read_at(
    x: np.ndarray, columns: np.ndarray, rows: np.ndarray, background: float = 0.0, nearest: bool = False
) -> np.ndarray:
    """[N, C, H, W] read at real positions [N, H', W'] between pixels; what lies outside counts as the background."""
    h, w = x.shape[2:]
    if nearest:
        columns, rows = np.rint(columns), np.rint(rows)
    left, top = np.floor(columns).astype(int), np.floor(rows).astype(int)
    images = np.arange(x.shape[0])[:, None, None]
    total = np.zeros((*columns.shape, x.shape[1]))
    for row in (top, top + 1):
        for column in (left, left + 1):
            share = (1 - np.abs(columns - column)) * (1 - np.abs(rows - row))
            inside = (column >= 0) & (column < w) & (row >= 0) & (row < h)
            read = x[images, :, np.clip(row, 0, h - 1), np.clip(column, 0, w - 1)]
            total += np.where(inside[..., None], read, background) * share[..., None]
    return total.transpose(0, 3, 1, 2)


def to_space(x: np.ndarray, rows: int, columns: int, channel_first: bool) -> np.ndarray:
    """Blocks of channels to rows x columns pixels; ``channel_first`` is the PyTorch order, else TensorFlow's."""
    n, c, h, w = x.shape
    left = c // (rows * columns)
    if channel_first:
        blocks = x.reshape(n, left, rows, columns, h, w).transpose(0, 1, 4, 2, 5, 3)
    else:
        blocks = x.reshape(n, rows, columns, left, h, w).transpose(0, 3, 4, 1, 5, 2)
    return blocks.reshape(n, left, h * rows, w * columns)


def to_depth(x: np.ndarray, rows: int, columns: int, channel_first: bool) -> np.ndarray:
    """The inverse of :func:`to_space`."""
    n, c, h, w = x.shape
    blocks = x.reshape(n, c, h // rows, rows, w // columns, columns)
    order = (0, 1, 3, 5, 2, 4) if channel_first else (0, 3, 5, 1, 2, 4)
    return blocks.transpose(order).reshape(n, c * rows * columns, h // rows, w // columns)


def enlarged(x: Shape, rows: int, columns: int) -> Shape:
    rank_is(x, 4, "input")
    if x[1] % (rows * columns):
        raise GraphError(f"channels {x[1]} are not divisible by {rows} x {columns}")
    return x[0], x[1] // (rows * columns), x[2] * rows, x[3] * columns


def condensed(x: Shape, rows: int, columns: int) -> Shape:
    rank_is(x, 4, "input")
    if x[2] % rows or x[3] % columns:
        factors = str(rows) if rows == columns else f"{rows} and {columns}"
        raise GraphError(f"height {x[2]} and width {x[3]} are not both divisible by {factors}")
    return x[0], x[1] * rows * columns, x[2] // rows, x[3] // columns


def rearrange(
    name: str, inverse: str, doc: str, *, enlarges: bool, torch_order: bool, attributes: str = "r", **options: Any
) -> OpDef:
    """Declare a move between blocks of channels and pixels, with one factor or one for each axis; the derivative is
    its inverse. PixelShuffle keeps the pixels of a channel together, ChannelToSpace the channels of a pixel
    (layers.json), so TensorFlow's depth_to_space is the latter."""
    move, size = (to_space, enlarged) if enlarges else (to_depth, condensed)
    kinds = ("pixel_shuffle", "pixel_unshuffle") if torch_order else ("channel_to_space", "space_to_channel")

    def factors(attrs: dict[str, int]) -> tuple[int, int]:
        return (attrs["r"], attrs["r"]) if "r" in attrs else (attrs["rows"], attrs["columns"])

    body = {
        "__doc__": doc,
        "shape": lambda x, **attrs: size(x, *factors(attrs)),
        "reference": lambda x, **attrs: move(x, *factors(attrs), torch_order),
        "derivative": lambda g, y, x, **attrs: [make(definition(inverse), (g,), attrs)],
    }
    row = f"{kinds[0] if enlarges else kinds[1]} x | :blocks"
    return op(name, "x", attributes, backend=row, diverges_as="move", **options)(type(name, (), body))


def _model_rearrange(name: str, inverse: str, *, enlarges: bool, torch_order: bool, factor: str) -> OpDef:
    """One of the model language, which has one factor, under a name of its own."""
    moves = "Blocks of channels to pixels" if enlarges else "Pixels to blocks of channels"
    doc = f"{moves}, {'PyTorch' if torch_order else 'TensorFlow'} order."
    mil = f"{name} x | r>{factor}"
    return rearrange(name, inverse, doc, enlarges=enlarges, torch_order=torch_order, mil=mil)


PIXEL_SHUFFLE = _model_rearrange(
    "pixel_shuffle", "pixel_unshuffle", enlarges=True, torch_order=True, factor="upscale_factor"
)
PIXEL_UNSHUFFLE = _model_rearrange(
    "pixel_unshuffle", "pixel_shuffle", enlarges=False, torch_order=True, factor="downscale_factor"
)
DEPTH_TO_SPACE = _model_rearrange(
    "depth_to_space", "space_to_depth", enlarges=True, torch_order=False, factor="block_size"
)
SPACE_TO_DEPTH = _model_rearrange(
    "space_to_depth", "depth_to_space", enlarges=False, torch_order=False, factor="block_size"
)


def _pooling(k: Any, stride: Any, pad: Any, ceil_mode: bool) -> dict[str, Any]:
    kernel = pair(k, "window")
    return {
        "kernel": kernel,
        "stride": kernel if stride is None else pair(stride, "stride"),
        "pad": pads(pad),
        "ceil_mode": bool(ceil_mode),
    }


def max_pool(x: Tensor, k: Any, stride: Any = None, pad: Any = 0, ceil_mode: bool = False) -> Tensor:
    return make(MAX_POOL, (x,), _pooling(k, stride, pad, ceil_mode))


def avg_pool(
    x: Tensor, k: Any, stride: Any = None, pad: Any = 0, ceil_mode: bool = False, exclude_pad: bool = False
) -> Tensor:
    return make(AVG_POOL, (x,), {**_pooling(k, stride, pad, ceil_mode), "exclude_pad": bool(exclude_pad)})


def upsample(x: Tensor, scale: Any = 2) -> Tensor:
    """Nearest-neighbour enlargement by whole factors."""
    return make(UPSAMPLE, (x,), {"scale": pair(scale, "scale")})


@entry
def upsample_bilinear(x: Tensor, scale: Any = 2, align_corners: bool = False) -> Tensor:
    """Bilinear enlargement by whole factors; half-pixel sampling unless corners align."""
    return make(UPSAMPLE_BILINEAR, (x,), {"scale": pair(scale, "scale"), "align_corners": bool(align_corners)})


@entry
def resize_bilinear(x: Tensor, target_h: int, target_w: int, align_corners: bool = False) -> Tensor:
    """Bilinear resize; half-pixel sampling unless corners align."""
    attrs = {"height": positive(target_h, "target_h"), "width": positive(target_w, "target_w")}
    return make(RESIZE_BILINEAR, (x,), {**attrs, "align_corners": bool(align_corners)})


@entry
def resize_nearest_neighbor(x: Tensor, target_h: int, target_w: int) -> Tensor:
    """Nearest-neighbour resize."""
    attrs = {"height": positive(target_h, "target_h"), "width": positive(target_w, "target_w")}
    return make(RESIZE_NEAREST, (x,), attrs)


@entry
def affine(x: Tensor, transform: Any, output_h: int, output_w: int, align_corners: bool = False) -> Tensor:
    """2-D affine warp; ``transform`` is [N, 6], in coordinates from -1 to 1."""
    attrs = {"output_h": positive(output_h, "output_h"), "output_w": positive(output_w, "output_w")}
    return make(AFFINE, (x, as_tensor(transform, "transform")), {**attrs, "align_corners": bool(align_corners)})


@entry
def pixel_shuffle(x: Tensor, r: int) -> Tensor:
    """[N, C*r*r, H, W] to [N, C, H*r, W*r], PyTorch channel order."""
    return make(PIXEL_SHUFFLE, (x,), {"r": positive(r, "r")})


@entry
def pixel_unshuffle(x: Tensor, r: int) -> Tensor:
    """[N, C, H*r, W*r] to [N, C*r*r, H, W], PyTorch channel order."""
    return make(PIXEL_UNSHUFFLE, (x,), {"r": positive(r, "r")})


@entry
def depth_to_space(x: Tensor, block_size: int = 2) -> Tensor:
    """[N, C*b*b, H, W] to [N, C, H*b, W*b], TensorFlow channel order."""
    return make(DEPTH_TO_SPACE, (x,), {"r": positive(block_size, "block_size")})


@entry
def space_to_depth(x: Tensor, block_size: int = 2) -> Tensor:
    """[N, C, H*b, W*b] to [N, C*b*b, H, W], TensorFlow channel order."""
    return make(SPACE_TO_DEPTH, (x,), {"r": positive(block_size, "block_size")})
