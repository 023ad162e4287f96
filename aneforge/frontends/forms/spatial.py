"""Convolutions and pools over one to three spatial axes, padded on each side as it may be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from aneforge.frontends import LoadError
from aneforge.frontends.forms.movement import padded
from aneforge.frontends.forms.numbers import LARGEST
from aneforge.frontends.values import NoForm, Value, known
from aneforge.graph import builders as af
from aneforge.graph.encoding import Encoded
from aneforge.graph.shapes import window
from aneforge.graph.tensor import Tensor

__all__ = ["average_pool", "convolution", "max_pool", "same_pads", "transposed_convolution", "window_sum"]

Pads = Sequence[tuple[int, int]]

_MOST_PLANES = 1 << 16
_MOST_SAMPLES = 64  # of a batch whose kernel is computed: one convolution each


def same_pads(
    extents: Sequence[int],
    size: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int] | None = None,
    lower: bool = False,
) -> list[tuple[int, int]]:
    """Zeros before and after each axis, so that the result has as many places as strides fit; an odd one goes behind,
    or in front if ``lower``."""
    if min(stride, default=1) < 1:
        raise LoadError(f"strides {list(stride)} must be 1 or more")
    found = []
    for i, extent in enumerate(extents):
        reach = (1 if dilation is None else dilation[i]) * (size[i] - 1) + 1
        total = max(0, (-(-extent // stride[i]) - 1) * stride[i] + reach - extent)
        small = total // 2
        found.append((total - small, small) if lower else (small, total - small))
    return found


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
    if rank == 3:
        planes, depth = _taps(padded(x, [(0, 0), (0, 0), borders[0], (0, 0), (0, 0)]), kernel.shape[2], steps, gaps)
        found = _planar(planes, _folded(kernel), bias, steps[1:], borders[1:], gaps[1:], groups)
        return _with_depth(found, x.shape[0], depth)
    found = _planar(_planes(x, rank), _plane_kernel(kernel, rank), bias, steps, borders, gaps, groups)
    return _back(found, rank)


def _spatial_rank(x: Tensor, kernel: Value) -> int:
    rank = x.ndim - 2
    if rank not in (1, 2, 3) or kernel.ndim != x.ndim:
        raise NoForm(f"a kernel {list(kernel.shape)} over {list(x.shape)}; one to three spatial axes are supported")
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
    """Over two axes: a stored kernel is one op; a computed one takes a batch of one, so a larger batch is parted."""
    settings: dict[str, Any] = {
        "stride": _two(stride),
        "pad": _flat(pads),
        "dilation": _two(dilation),
        "groups": groups,
    }
    if not isinstance(kernel, Tensor) or kernel.op == "const":
        stored = None if bias is None or isinstance(bias, Tensor) else known(bias, "the bias").reshape(-1)
        found = af.conv(x, kernel, bias=stored, **settings)
        return found if bias is None or stored is not None else found + _channels(bias, 4)
    if x.shape[0] > _MOST_SAMPLES:
        raise NoForm(f"a computed kernel over a batch of {x.shape[0]}; the limit is {_MOST_SAMPLES}")
    samples = [x] if x.shape[0] == 1 else af.split(x, x.shape[0], 0)
    parts = [af.dynamic_conv(each, kernel, **settings) for each in samples]
    found = parts[0] if len(parts) == 1 else af.concat(parts, axis=0)
    return found if bias is None else found + _channels(bias, 4)


def _taps(x: Tensor, size: int, stride: Sequence[int], dilation: Sequence[int]) -> tuple[Tensor, int]:
    """Planes of every window along the depth, as channels: [N * depth, C * size, H, W], and the windows' number.

    So the depth of a kernel is summed where channels are, in the multiplier's own wide sums."""
    n, channels, extent, height, width = x.shape
    depth = window(extent, size, stride[0], 0, 0, dilation[0])
    if depth * size > _MOST_PLANES:
        raise NoForm(f"{depth} windows of {size} planes; the limit is {_MOST_PLANES:,} planes")
    places = [at * stride[0] + tap * dilation[0] for at in range(depth) for tap in range(size)]
    lines = x.reshape(n, channels, extent, height * width)
    lines = lines if places == list(range(extent)) else af.gather(lines, places, axis=2)
    windows = lines.reshape(n, channels, depth, size, height * width).transpose([0, 2, 1, 3, 4])
    return windows.reshape(n * depth, channels * size, height, width), depth


def _with_depth(x: Tensor, samples: int, depth: int) -> Tensor:
    """Planes [N * depth, C, H, W] as [N, C, depth, H, W]."""
    _, channels, height, width = x.shape
    turned = x.reshape(samples, depth, channels, height * width).transpose([0, 2, 1, 3])
    return turned.reshape(samples, channels, depth, height, width)


def _folded(kernel: Value) -> Any:
    """[out, in, depth, H, W] with the depth among the channels."""
    out, inner, depth, height, width = kernel.shape
    plain = kernel if isinstance(kernel, Tensor) else np.asarray(kernel)
    return plain.reshape(out, inner * depth, height, width)


def _plane_kernel(kernel: Value, rank: int) -> Any:
    if rank != 1:
        return kernel
    if isinstance(kernel, Tensor):
        return kernel.reshape(*kernel.shape[:2], 1, kernel.shape[2])
    return kernel.expand_dims(2) if isinstance(kernel, Encoded) else np.expand_dims(kernel, 2)


def _channels(bias: Value, rank: int) -> Tensor:
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
    """The kernel is [in, out / groups, ...]. ``output_padding`` keeps that many more places at the end of each axis;
    pads below zero add places of zeros."""
    rank = _spatial_rank(x, kernel)
    steps, gaps = list(stride or [1] * rank), list(dilation or [1] * rank)
    more = list(output_padding or [0] * rank)
    cuts = [(a, b - extra) for (a, b), extra in zip(pads or [(0, 0)] * rank, more, strict=True)]
    if rank == 3:
        depth = kernel.shape[2]
        reach = gaps[0] * (depth - 1)
        spread = padded(_spread(x, steps[0]), _depth_only(reach - cuts[0][0], reach - cuts[0][1]))
        planes, places = _taps(spread, depth, [1], gaps)
        found = _planar_transposed(planes, _turned(kernel), bias, steps[1:], cuts[1:], gaps[1:], groups)
        return _with_depth(found, x.shape[0], places)
    wide, narrow = _planes(x, rank), _plane_kernel(kernel, rank)
    return _back(_planar_transposed(wide, narrow, bias, steps, cuts, gaps, groups), rank)


def _depth_only(before: int, after: int) -> list[tuple[int, int]]:
    return [(0, 0), (0, 0), (before, after), (0, 0), (0, 0)]


def _spread(x: Tensor, stride: int) -> Tensor:
    """Zeros between the planes along the depth."""
    if stride == 1:
        return x
    n, channels, depth, height, width = x.shape
    lines = af.pad(x.reshape(n * channels, depth, 1, height * width), [(0, 0), (0, 0), (0, stride - 1), (0, 0)])
    whole = lines.reshape(n, channels, depth * stride, height, width)
    return padded(whole, _depth_only(0, 1 - stride))


def _turned(kernel: Value) -> Any:
    """[in, out, depth, H, W] with the depth, from its end, among the inputs."""
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
    """Places added beyond the end of what is cut off hold zeros, and the bias."""
    both = _flat(cuts)
    settings: dict[str, Any] = {
        "stride": _two(stride),
        "pad": tuple(max(0, each) for each in both),
        "dilation": _two(dilation),
        "groups": groups,
    }
    if all(each >= 0 for each in both) and bias is not None and not isinstance(bias, Tensor):
        return af.conv_transpose(x, kernel, bias=known(bias, "the bias").reshape(-1), **settings)
    found = af.conv_transpose(x, kernel, **settings)
    more = [max(0, -each) for each in both]
    if any(more):
        found = af.pad(found, [(0, 0), (0, 0), (more[0], more[1]), (more[2], more[3])])
    return found if bias is None else found + _channels(bias, 4)


# Pools. A window is a box, so one over three axes, or with gaps, is a pool along one axis after the other.


def max_pool(
    x: Tensor,
    size: Sequence[int],
    *,
    stride: Sequence[int] | None = None,
    pads: Pads | None = None,
    dilation: Sequence[int] | None = None,
    ceil: bool = False,
) -> Tensor:
    return _pooled(Tensor.max_pool, _largest, x, size, stride, pads, dilation, ceil, {})


def average_pool(
    x: Tensor,
    size: Sequence[int],
    *,
    stride: Sequence[int] | None = None,
    pads: Pads | None = None,
    dilation: Sequence[int] | None = None,
    ceil: bool = False,
    count_pad: bool = False,
) -> Tensor:
    """``count_pad``: zeros of the padding count as elements."""
    spaced = _mean_with_pads if count_pad else _mean
    settings = {"exclude_pad": not count_pad}
    return _pooled(Tensor.avg_pool, spaced, x, size, stride, pads, dilation, ceil, settings)


def window_sum(
    x: Tensor,
    size: Sequence[int],
    *,
    stride: Sequence[int] | None = None,
    pads: Pads | None = None,
    dilation: Sequence[int] | None = None,
    ceil: bool = False,
) -> Tensor:
    """The sum of each window, zeros around."""
    rank = x.ndim - 2
    steps, gaps = list(stride or [1] * rank), list(dilation or [1] * rank)
    borders = list(pads or [(0, 0)] * rank)
    if not ceil and all(gap == 1 for gap in gaps):
        mean = average_pool(x, size, stride=steps, pads=borders, count_pad=True)
        return mean * float(np.prod(size))
    wide = [_reaching(x.shape[2 + i], size[i], steps[i], borders[i], gaps[i], ceil) for i in range(rank)]
    wide = [(before, max(0, after)) for before, after in wide]
    ones = np.ones((x.shape[1], 1, *size))
    return convolution(x, ones, stride=steps, pads=wide, dilation=gaps, groups=x.shape[1])


def _pooled(
    form: Callable[..., Tensor],
    spaced: Callable[..., Tensor],
    x: Tensor,
    size: Sequence[int],
    stride: Sequence[int] | None,
    pads: Pads | None,
    dilation: Sequence[int] | None,
    ceil: bool,
    settings: dict[str, Any],
) -> Tensor:
    rank = x.ndim - 2
    if rank not in (1, 2, 3) or len(size) != rank:
        raise NoForm(f"a pool of {list(size)} over {list(x.shape)}; one to three spatial axes are supported")
    steps, gaps = list(stride or [1] * rank), list(dilation or [1] * rank)
    borders = list(pads or [(0, 0)] * rank)
    if any(gap != 1 and extent > 1 for gap, extent in zip(gaps, size, strict=True)):
        for axis in range(rank):
            x = spaced(x, 2 + axis, size[axis], steps[axis], borders[axis], gaps[axis], ceil)
        return x

    def planar(part: Tensor, shape: Sequence[int], step: Sequence[int], pad: Pads) -> Tensor:
        return form(part, _two(shape), stride=_two(step), pad=_flat(pad), ceil_mode=ceil, **settings)

    if rank < 3:
        return _back(planar(_planes(x, rank), size, steps, borders), rank)
    n, channels, depth, height, width = x.shape
    found = planar(x.reshape(n, channels * depth, height, width), size[1:], steps[1:], borders[1:])
    places = found.shape[2:]
    lines = found.reshape(n, channels, depth, places[0] * places[1])
    deep = planar(lines, [size[0], 1], [steps[0], 1], [borders[0], (0, 0)])
    return deep.reshape(n, channels, deep.shape[2], *places)


def _reaching(extent: int, size: int, stride: int, pad: tuple[int, int], gap: int, ceil: bool) -> tuple[int, int]:
    """The padding, with what the last window of a rounded-up number needs, or less what none needs."""
    outputs = window(extent, size, stride, *pad, gap, ceil)
    needed = (outputs - 1) * stride + gap * (size - 1) + 1
    return pad[0], needed - extent - pad[0]


def _shifted(
    x: Tensor, axis: int, size: int, stride: int, pad: tuple[int, int], gap: int, ceil: bool, fill: float
) -> list[Tensor]:
    """For each element of a window along one axis, that element of every window."""
    outputs = window(x.shape[axis], size, stride, *pad, gap, ceil)
    around = _reaching(x.shape[axis], size, stride, pad, gap, ceil)
    wide = padded(x, [around if i == axis else (0, 0) for i in range(x.ndim)], "constant", fill)
    reach = (outputs - 1) * stride + 1
    before = (slice(None),) * axis
    return [wide[(*before, slice(tap * gap, tap * gap + reach, stride))] for tap in range(size)]


def _largest(x: Tensor, axis: int, size: int, stride: int, pad: tuple[int, int], gap: int, ceil: bool) -> Tensor:
    found, *others = _shifted(x, axis, size, stride, pad, gap, ceil, -LARGEST)
    for each in others:
        found = af.maximum(found, each)
    return found


def _mean(
    x: Tensor,
    axis: int,
    size: int,
    stride: int,
    pad: tuple[int, int],
    gap: int,
    ceil: bool,
    count_pad: bool = False,
) -> Tensor:
    """The sum of the shifted elements over how many of them are inside."""
    found, *others = _shifted(x, axis, size, stride, pad, gap, ceil, 0.0)
    for each in others:
        found = found + each
    inside = np.arange(found.shape[axis])[:, None] * stride + np.arange(size) * gap - pad[0]
    first, last = (-pad[0], x.shape[axis] + pad[1]) if count_pad else (0, x.shape[axis])
    counts = ((inside >= first) & (inside < last)).sum(axis=1)
    if (counts == counts[0]).all():
        return found.linear_activation(1.0 / float(counts[0]))
    shape = [len(counts) if i == axis else 1 for i in range(x.ndim)]
    return found * af.const((1.0 / counts).reshape(shape))


def _mean_with_pads(*settings: Any) -> Tensor:
    return _mean(*settings, count_pad=True)


# One spatial axis becomes two, the first of one row.


def _planes(x: Tensor, rank: int) -> Tensor:
    return x.reshape(*x.shape[:2], 1, x.shape[2]) if rank == 1 else x


def _back(x: Tensor, rank: int) -> Tensor:
    return x.squeeze([2]) if rank == 1 else x


def _flat(pads: Pads) -> tuple[int, ...]:
    whole = pads if len(pads) == 2 else [(0, 0), *pads]
    return tuple(int(each) for pair in whole for each in pair)


def _two(values: Sequence[int]) -> tuple[int, int]:
    return (1, int(values[0])) if len(values) == 1 else (int(values[0]), int(values[1]))
