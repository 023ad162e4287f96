"""Convolutions and pools over one to three spatial axes, with any padding on each side."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from aneforge.errors import LoadError
from aneforge.formats.forms.movement import padded, sliced
from aneforge.formats.values import NoForm, Numeric, Value, along_axis, known
from aneforge.graph import builders as af
from aneforge.graph.encoding import Encoded
from aneforge.graph.halves import FP16_MAX
from aneforge.graph.ops.volume import over_planes, taps, with_depth
from aneforge.graph.shapes import window
from aneforge.graph.tensor import Tensor

Pads = Sequence[tuple[int, int]]

_MOST_PLANES = 1 << 16
_MOST_WEIGHTS = 1 << 24
_MOST_SAMPLES = 64  # of a batch with a computed kernel; each sample is one convolution


def same_pads(
    extents: Sequence[int],
    size: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int] | None = None,
    lower: bool = False,
) -> list[tuple[int, int]]:
    """The zeros before and after each axis that give one result for each stride. If their number is odd, the extra
    zero goes after the axis, or before it if ``lower``."""
    if min(stride, default=1) < 1:
        raise LoadError(f"strides {list(stride)} must be 1 or more")
    pads = []
    for i, extent in enumerate(extents):
        reach = (1 if dilation is None else dilation[i]) * (size[i] - 1) + 1
        total = max(0, (-(-extent // stride[i]) - 1) * stride[i] + reach - extent)
        small = total // 2
        pads.append((total - small, small) if lower else (small, total - small))
    return pads


# Convolutions.


def convolution(
    x: Tensor,
    kernel: Value,
    bias: Value | None = None,
    *,
    stride: Sequence[int] | None = None,
    pads: Pads | None = None,
    dilation: Sequence[int] | None = None,
    groups: int = 1,
) -> Tensor:
    """The kernel is [out, in / groups, ...], known or computed."""
    rank = _spatial_rank(x, kernel)
    steps, gaps = list(stride or [1] * rank), list(dilation or [1] * rank)
    borders = list(pads or [(0, 0)] * rank)
    if rank == 3:  # it keeps its rank: the gate answers for it (C08)
        sides = [side for border in borders for side in border]
        stored = None if isinstance(bias, Tensor) or bias is None else known(bias, "the bias").reshape(-1)
        result = af.conv3d(x, kernel, steps, sides, gaps, groups, stored)
        return result if bias is None or stored is not None else result + _along_channels(bias, 5)
    result = _planar(_planes(x, rank), _plane_kernel(kernel, rank), bias, steps, borders, gaps, groups)
    return _restore_rank(result, rank)


def _spatial_rank(x: Tensor, kernel: Value) -> int:
    rank = x.ndim - 2
    if rank not in (1, 2, 3) or kernel.ndim != x.ndim:
        raise NoForm(
            f"kernel {list(kernel.shape)} does not fit input {list(x.shape)}; both must have one to three spatial axes"
        )
    return rank


def _planar(
    x: Tensor,
    kernel: Value,
    bias: Value | None,
    stride: Sequence[int],
    pads: Pads,
    dilation: Sequence[int],
    groups: int,
) -> Tensor:
    """A convolution over two axes. A stored kernel is one op. A computed kernel takes a batch of one, so a larger
    batch is split."""
    settings: dict[str, Any] = {
        "stride": _as_pair(stride),
        "pad": _flat_pads(pads),
        "dilation": _as_pair(dilation),
        "groups": groups,
    }
    if not isinstance(kernel, Tensor) or kernel.op == "const":
        stored = None if bias is None or isinstance(bias, Tensor) else known(bias, "the bias").reshape(-1)
        result = af.conv(x, kernel, bias=stored, **settings)
        return result if bias is None or stored is not None else result + _along_channels(bias, 4)
    if x.shape[0] > _MOST_SAMPLES:
        raise NoForm(
            f"the kernel is computed and the batch is {x.shape[0]}; the limit of the batch is {_MOST_SAMPLES}"
        )
    samples = [x] if x.shape[0] == 1 else af.split(x, x.shape[0], 0)
    parts = [af.dynamic_conv(sample, kernel, **settings) for sample in samples]
    result = parts[0] if len(parts) == 1 else af.concat(parts, axis=0)
    return result if bias is None else result + _along_channels(bias, 4)


def _plane_kernel(kernel: Value, rank: int) -> Any:
    if rank != 1:
        return kernel
    if isinstance(kernel, Tensor):
        return kernel.reshape(*kernel.shape[:2], 1, kernel.shape[2])
    return kernel.expand_dims(2) if isinstance(kernel, Encoded) else np.expand_dims(kernel, 2)


def _along_channels(bias: Value, rank: int) -> Tensor:
    shape = (1, -1, *(1,) * (rank - 2))
    return bias.reshape(*shape) if isinstance(bias, Tensor) else af.const(known(bias, "the bias").reshape(shape))


def transposed_convolution(
    x: Tensor,
    kernel: Value,
    bias: Value | None = None,
    *,
    stride: Sequence[int] | None = None,
    pads: Pads | None = None,
    dilation: Sequence[int] | None = None,
    groups: int = 1,
    output_padding: Sequence[int] | None = None,
) -> Tensor:
    """The kernel is [in, out / groups, ...]. ``output_padding`` keeps that many more places at the end of each axis.
    Negative pads add zeros."""
    rank = _spatial_rank(x, kernel)
    steps, gaps = list(stride or [1] * rank), list(dilation or [1] * rank)
    extra_places = list(output_padding or [0] * rank)
    cuts = [(a, b - extra) for (a, b), extra in zip(pads or [(0, 0)] * rank, extra_places, strict=True)]
    if rank == 3:
        depth = kernel.shape[2]
        reach = gaps[0] * (depth - 1)
        spread = padded(_insert_zeros(x, steps[0]), _depth_only(reach - cuts[0][0], reach - cuts[0][1]))
        if spread.shape[2] * depth > _MOST_PLANES:
            raise NoForm(
                f"{spread.shape[2]} windows of {depth} planes are too many; the limit is {_MOST_PLANES:,} planes"
            )
        planes, places = taps(spread, depth, 1, gaps[0])
        result = _planar_transposed(planes, _reverse_depth(kernel), bias, steps[1:], cuts[1:], gaps[1:], groups)
        return with_depth(result, x.shape[0], places)
    wide, narrow = _planes(x, rank), _plane_kernel(kernel, rank)
    return _restore_rank(_planar_transposed(wide, narrow, bias, steps, cuts, gaps, groups), rank)


def _depth_only(before: int, after: int) -> list[tuple[int, int]]:
    return [(0, 0), (0, 0), (before, after), (0, 0), (0, 0)]


def _insert_zeros(x: Tensor, stride: int) -> Tensor:
    """Insert zeros between the planes along the depth."""
    if stride == 1:
        return x
    n, channels, depth, height, width = x.shape
    lines = af.pad(x.reshape(n * channels, depth, 1, height * width), [(0, 0), (0, 0), (0, stride - 1), (0, 0)])
    spaced = lines.reshape(n, channels, depth * stride, height, width)
    return padded(spaced, _depth_only(0, 1 - stride))


def _reverse_depth(kernel: Value) -> Any:
    """A kernel [in, out, depth, H, W] as [in * depth, out, H, W], with the depth in reverse order."""
    inner, out, depth, height, width = kernel.shape
    if isinstance(kernel, Tensor):
        return kernel.reverse([2]).transpose([0, 2, 1, 3, 4]).reshape(inner * depth, out, height, width)
    return np.asarray(kernel)[:, :, ::-1].transpose(0, 2, 1, 3, 4).reshape(inner * depth, out, height, width)


def _planar_transposed(
    x: Tensor,
    kernel: Value,
    bias: Value | None,
    stride: Sequence[int],
    cuts: Pads,
    dilation: Sequence[int],
    groups: int,
) -> Tensor:
    """Negative cuts add places, which hold zeros plus the bias."""
    borders = _flat_pads(cuts)
    settings: dict[str, Any] = {
        "stride": _as_pair(stride),
        "pad": tuple(max(0, width) for width in borders),
        "dilation": _as_pair(dilation),
        "groups": groups,
    }
    if all(width >= 0 for width in borders) and bias is not None and not isinstance(bias, Tensor):
        return af.conv_transpose(x, kernel, bias=known(bias, "the bias").reshape(-1), **settings)
    result = af.conv_transpose(x, kernel, **settings)
    more = [max(0, -width) for width in borders]
    if any(more):
        result = af.pad(result, [(0, 0), (0, 0), (more[0], more[1]), (more[2], more[3])])
    return result if bias is None else result + _along_channels(bias, 4)


# Pools. A window is a box, so a pool over three axes, or with gaps, runs along one axis after the other.


@dataclass
class PoolWindow:
    """What a pool reads at once, and how it moves: by one place, without padding and without gaps, if nothing is
    said."""

    size: Sequence[int]
    stride: Sequence[int] = ()
    pads: Pads = ()
    dilation: Sequence[int] = ()
    ceil: bool = False
    """Whether a last window that is not full counts."""

    def __post_init__(self) -> None:
        ones = [1] * len(self.size)
        self.stride, self.dilation = self.stride or ones, self.dilation or ones
        self.pads = self.pads or [(0, 0)] * len(self.size)


def max_pool(x: Tensor, box: PoolWindow) -> Tensor:
    return _pooled(Tensor.max_pool, _spaced_max, x, box)


def average_pool(x: Tensor, box: PoolWindow, count_pad: bool = False) -> Tensor:
    """``count_pad`` says that the zeros of the padding count as elements."""
    return _pooled(Tensor.avg_pool, partial(_spaced_mean, count_pad=count_pad), x, box, exclude_pad=not count_pad)


def window_sum(x: Tensor, box: PoolWindow) -> Tensor:
    """The sum of each window; the padding is zeros."""
    if not box.ceil and all(gap == 1 for gap in box.dilation):
        return average_pool(x, box, count_pad=True) * float(np.prod(box.size))
    wide = [
        _pads_for_windows(x.shape[2 + i], box.size[i], box.stride[i], box.pads[i], box.dilation[i], box.ceil)
        for i in range(x.ndim - 2)
    ]
    pads = [(before, max(0, after)) for before, after in wide]
    ones = np.ones((x.shape[1], 1, *box.size))
    return _over_windows(x, ones, box.stride, pads, box.dilation)


def _over_windows(
    x: Tensor, kernels: np.ndarray, stride: Sequence[int], pads: Pads, dilation: Sequence[int]
) -> Tensor:
    """A kernel of known numbers for each channel; volumes plane by plane, as what the user wrote is no convolution."""
    settings: dict[str, Any] = {"stride": stride, "dilation": dilation, "groups": x.shape[1]}
    if x.ndim == 5:
        return over_planes(x, af.const(kernels), pad=[side for pair in pads for side in pair], **settings)
    return convolution(x, kernels, pads=pads, **settings)


def norm_pool(x: Tensor, p: int, box: PoolWindow) -> Tensor:
    """The p-norm of each window: LpPool of ONNX, l2_pool of MIL. The padding is zeros."""
    if p < 1:
        raise LoadError(f"p is {p}; it must be 1 or more")
    powers = x.abs() if p == 1 else x.square() if p == 2 else x.abs().pow(float(p))
    return _root(window_sum(powers, box), p)


def global_norm_pool(x: Numeric, p: int = 2) -> Tensor:
    """The p-norm over all spatial axes."""
    if p < 1:
        raise LoadError(f"p is {p}; it must be 1 or more")
    axes = tuple(range(2, x.ndim))
    if p == 1:
        return x.l1_norm(axes)
    return _root(x.sum_square(axes) if p == 2 else x.abs().pow(float(p)).sum(axes), p)


def _adaptive_windows(extent: int, out: int) -> list[tuple[int, int]]:
    return [(i * extent // out, -(-(i + 1) * extent // out)) for i in range(out)]


def adaptive_average_pool(x: Tensor, sizes: Sequence[int]) -> Tensor:
    """Means over as many windows as ``sizes`` has along each of the last axes. Equal windows are a pool, one window
    is a mean, and uneven windows are a product with their weights."""
    rank = len(sizes)
    if all(out == 1 for out in sizes):
        return x.mean(tuple(range(2, 2 + rank)))
    if rank < 3 and all(extent % out == 0 for extent, out in zip(x.shape[2:], sizes, strict=True)):
        size = [extent // out for extent, out in zip(x.shape[2:], sizes, strict=True)]
        return average_pool(x, PoolWindow(size, size))
    for axis, out in enumerate(sizes, 2):
        shares = np.zeros((out, x.shape[axis]))
        for row, (first, last) in enumerate(_adaptive_windows(x.shape[axis], out)):
            shares[row, first:last] = 1 / (last - first)
        x = along_axis(x, axis, shares) if out != x.shape[axis] else x
    return x


def adaptive_max_pool(x: Tensor, sizes: Sequence[int]) -> Tensor:
    for axis, out in enumerate(sizes, 2):
        windows = _adaptive_windows(x.shape[axis], out)
        lines = [sliced(x, axis, first, last).amax((axis,)) for first, last in windows]
        x = lines[0] if len(lines) == 1 else af.concat(lines, axis=axis)
    return x


def _root(x: Tensor, p: int) -> Tensor:
    return x if p == 1 else x.sqrt() if p == 2 else x.pow(1.0 / p)


def _pooled(
    form: Callable[..., Tensor], spaced: Callable[..., Tensor], x: Tensor, box: PoolWindow, **more: Any
) -> Tensor:
    rank = x.ndim - 2
    size, steps, borders = box.size, box.stride, box.pads
    if rank not in (1, 2, 3) or len(size) != rank:
        raise NoForm(
            f"window {list(size)} does not fit input {list(x.shape)}; both must have one to three spatial axes"
        )
    if any(gap != 1 and extent > 1 for gap, extent in zip(box.dilation, size, strict=True)):
        for axis in range(rank):
            x = spaced(x, 2 + axis, size[axis], steps[axis], borders[axis], box.dilation[axis], box.ceil)
        return x

    def planar(part: Tensor, shape: Sequence[int], step: Sequence[int], pad: Pads) -> Tensor:
        return form(part, _as_pair(shape), stride=_as_pair(step), pad=_flat_pads(pad), ceil_mode=box.ceil, **more)

    if rank < 3:
        return _restore_rank(planar(_planes(x, rank), size, steps, borders), rank)
    n, channels, depth, height, width = x.shape
    pooled = planar(x.reshape(n, channels * depth, height, width), size[1:], steps[1:], borders[1:])
    places = pooled.shape[2:]
    lines = pooled.reshape(n, channels, depth, places[0] * places[1])
    deep = planar(lines, [size[0], 1], [steps[0], 1], [borders[0], (0, 0)])
    return deep.reshape(n, channels, deep.shape[2], *places)


def _pads_for_windows(
    extent: int, size: int, stride: int, pad: tuple[int, int], gap: int, ceil: bool
) -> tuple[int, int]:
    """The padding that the windows use: more at the end if the number of windows is rounded up, less if the last
    elements are in no window."""
    outputs = window(extent, size, stride, *pad, gap, ceil)
    span = (outputs - 1) * stride + gap * (size - 1) + 1
    return pad[0], span - extent - pad[0]


def _window_elements(
    x: Tensor, axis: int, size: int, stride: int, pad: tuple[int, int], gap: int, ceil: bool, fill: float
) -> list[Tensor]:
    """One tensor for each element of a window along one axis: that element of every window."""
    outputs = window(x.shape[axis], size, stride, *pad, gap, ceil)
    around = _pads_for_windows(x.shape[axis], size, stride, pad, gap, ceil)
    wide = padded(x, [around if i == axis else (0, 0) for i in range(x.ndim)], "constant", fill)
    reach = (outputs - 1) * stride + 1
    before = (slice(None),) * axis
    return [wide[(*before, slice(tap * gap, tap * gap + reach, stride))] for tap in range(size)]


def _spaced_max(x: Tensor, axis: int, size: int, stride: int, pad: tuple[int, int], gap: int, ceil: bool) -> Tensor:
    largest, *others = _window_elements(x, axis, size, stride, pad, gap, ceil, -FP16_MAX)
    for element in others:
        largest = af.maximum(largest, element)
    return largest


def _spaced_mean(
    x: Tensor,
    axis: int,
    size: int,
    stride: int,
    pad: tuple[int, int],
    gap: int,
    ceil: bool,
    count_pad: bool = False,
) -> Tensor:
    """The sum of the elements of each window, divided by the number of elements inside the input."""
    total, *others = _window_elements(x, axis, size, stride, pad, gap, ceil, 0.0)
    for element in others:
        total = total + element
    inside = np.arange(total.shape[axis])[:, None] * stride + np.arange(size) * gap - pad[0]
    first, last = (-pad[0], x.shape[axis] + pad[1]) if count_pad else (0, x.shape[axis])
    counts = ((inside >= first) & (inside < last)).sum(axis=1)
    if (counts == counts[0]).all():
        return total.linear_activation(1.0 / float(counts[0]))
    shape = [len(counts) if i == axis else 1 for i in range(x.ndim)]
    return total * af.const((1.0 / counts).reshape(shape))


# Blocks of pixels and channels.


def depth_to_space(x: Numeric, block: int, mode: str = "DCR") -> Tensor:
    """The block is the outer part of the channels (DCR) or the inner part (CRD). CRD is a pixel shuffle."""
    if block < 1 or x.ndim != 4 or x.shape[1] % (block * block):
        raise LoadError(
            f"blocksize {block} does not fit an input of shape {list(x.shape)}; the input must have rank 4, and "
            "blocksize squared must divide its channels"
        )
    return af.pixel_shuffle(x if mode == "CRD" else _swap_channel_factors(x, block * block), block)


def space_to_depth(x: Numeric, block: int, mode: str = "DCR") -> Tensor:
    blocks = af.pixel_unshuffle(x, block)
    return blocks if mode == "CRD" else _swap_channel_factors(blocks, x.shape[1])


def _swap_channel_factors(x: Tensor, outer: int) -> Tensor:
    """Reorder channels from outer x inner to inner x outer."""
    n, c, h, w = x.shape
    return x.reshape(n, outer, c // outer, h, w).transpose([0, 2, 1, 3, 4]).reshape(n, c, h, w)


def channel_shuffle(x: Numeric, groups: int) -> Tensor:
    """Interleave the channels of all groups."""
    samples, channels, *space = x.shape
    grouped = x.reshape(samples, groups, channels // groups, math.prod(space))
    return grouped.transpose([0, 2, 1, 3]).reshape(*x.shape)


def _window_kernels(channels: int, size: Sequence[int]) -> np.ndarray:
    """A kernel for each channel and each place of a window: a single 1."""
    area = int(np.prod(size))
    return np.tile(np.eye(area).reshape(area, 1, *size), (channels, 1, *(1,) * len(size)))


def unfold_columns(
    x: Tensor, size: Sequence[int], *, stride: Sequence[int], pads: Pads, dilation: Sequence[int]
) -> Tensor:
    """Every window as a column [n, channels * area, windows]: a depthwise convolution that copies single elements."""
    kernels = _window_kernels(x.shape[1], size)
    columns = _over_windows(x, kernels, stride, pads, dilation)
    return columns.reshape(*columns.shape[:2], -1)


def fold_columns(
    x: Tensor,
    extent: Sequence[int],
    size: Sequence[int],
    *,
    stride: Sequence[int] | None = None,
    pads: Pads | None = None,
    dilation: Sequence[int] | None = None,
) -> Tensor:
    """Sum overlapping blocks [n, channels * area, blocks] in an image: a transposed convolution whose kernels each
    place one element."""
    rank, area = len(size), int(np.prod(size))
    steps, gaps = list(stride or [1] * rank), list(dilation or [1] * rank)
    borders = list(pads or [(0, 0)] * rank)
    if min(*size, *extent, *steps) < 1 or len(extent) != rank:
        raise LoadError(
            f"block_shape {list(size)} does not fit image_shape {list(extent)}; both need the same rank, and sizes "
            "and strides of 1 or more"
        )
    reach = [gaps[i] * (size[i] - 1) + 1 for i in range(rank)]
    room = [extent[i] + sum(borders[i]) - reach[i] for i in range(rank)]
    blocks = [room[i] // steps[i] + 1 for i in range(rank)]
    channels = x.shape[1] // area
    if area * x.shape[1] > _MOST_WEIGHTS or min(blocks) < 1 or x.shape[1] % area:
        raise LoadError(
            f"block_shape {list(size)} does not fit {x.shape[1]} channels and image_shape {list(extent)}; a block "
            "must fit in the image, and its size must divide the channels"
        )
    kernel = _window_kernels(channels, size)
    places = x.reshape(x.shape[0], x.shape[1], *blocks)
    more = [room[i] % steps[i] for i in range(rank)]
    return transposed_convolution(
        places, kernel, stride=steps, pads=borders, dilation=gaps, groups=channels, output_padding=more
    )


# An input with one spatial axis gets a second one, a height of 1.


def _planes(x: Tensor, rank: int) -> Tensor:
    return x.reshape(*x.shape[:2], 1, x.shape[2]) if rank == 1 else x


def _restore_rank(x: Tensor, rank: int) -> Tensor:
    return x.squeeze([2]) if rank == 1 else x


def _flat_pads(pads: Pads) -> tuple[int, ...]:
    pairs = pads if len(pads) == 2 else [(0, 0), *pads]
    return tuple(int(width) for pair in pairs for width in pair)


def _as_pair(values: Sequence[int]) -> tuple[int, int]:
    return (1, int(values[0])) if len(values) == 1 else (int(values[0]), int(values[1]))
