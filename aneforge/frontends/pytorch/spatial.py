# pyright: reportMissingImports=false
"""Pools, resampling and other ops over the spatial axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from aneforge.frontends import LoadError, forms
from aneforge.frontends.forms import average_pool, max_pool, scaled
from aneforge.frontends.pytorch.node import Node, Rule
from aneforge.frontends.pytorch.values import numeric, pair_of
from aneforge.frontends.values import NoForm, along_axis, known
from aneforge.graph import builders as af
from aneforge.graph.ops.leaf import const
from aneforge.graph.tensor import Tensor

_LONGEST = 4096  # the longest axis that is resampled


def _with_batch(x: Tensor, rank: int) -> Tensor:
    return x.reshape(1, *x.shape) if x.ndim == rank + 1 else x


def _in_stated_shape(image: Tensor, node: Node) -> Tensor:
    return image.reshape(*node.shape) if image.shape != node.shape else image


# Pools.


def _max_pool(rank: int) -> Rule:
    def rule(
        node: Node, x: Any, size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil: bool = False
    ) -> Tensor:
        image = _with_batch(numeric(x), rank)
        window = pair_of(size, rank)
        result = max_pool(
            image,
            window,
            stride=pair_of(stride, rank) if stride else window,
            pads=[(width, width) for width in pair_of(padding, rank)],
            dilation=pair_of(dilation, rank),
            ceil=bool(ceil),
        )
        return _in_stated_shape(result, node)

    return rule


def _max_pool_with_places(rank: int) -> Rule:
    def rule(node: Node, x: Any, *settings: Any) -> list[Any]:
        if 1 in node.used_results:
            raise NoForm("the indices of the largest elements are read; the engine's pool has no such output")
        return [_max_pool(rank)(node, x, *settings), None]

    return rule


def _average_pool(rank: int) -> Rule:
    def rule(
        node: Node,
        x: Any,
        size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil: bool = False,
        count_pad: bool = True,
        divisor: Any = None,
    ) -> Tensor:
        image = _with_batch(numeric(x), rank)
        window = pair_of(size, rank)
        result = average_pool(
            image,
            window,
            stride=pair_of(stride, rank) if stride else window,
            pads=[(width, width) for width in pair_of(padding, rank)],
            ceil=bool(ceil),
            count_pad=bool(count_pad) or divisor is not None,
        )
        if divisor is not None:
            if ceil:
                raise LoadError("divisor_override with ceil_mode is not supported; use one of them")
            result = scaled(result, math.prod(window) / float(divisor))
        return _in_stated_shape(result, node)

    return rule


def _windows(extent: int, out: int) -> list[tuple[int, int]]:
    """Return the window of each position of an adaptive pool."""
    return [(i * extent // out, -(-(i + 1) * extent // out)) for i in range(out)]


def _adaptive_average(rank: int) -> Rule:
    """Equal windows are a pool, one window is a mean, and uneven windows are a product with their weights."""

    def rule(node: Node, x: Any, *_: Any) -> Tensor:
        image = _with_batch(numeric(x), rank)
        out_extents = node.shape[-rank:]
        if all(out == 1 for out in out_extents):
            return _in_stated_shape(image.mean(tuple(range(2, 2 + rank))), node)
        if rank < 3 and all(extent % out == 0 for extent, out in zip(image.shape[2:], out_extents, strict=True)):
            window = [extent // out for extent, out in zip(image.shape[2:], out_extents, strict=True)]
            return _in_stated_shape(average_pool(image, window, stride=window), node)
        for place, out in enumerate(out_extents):
            extent = image.shape[2 + place]
            shares = np.zeros((out, extent))
            for row, (first, last) in enumerate(_windows(extent, out)):
                shares[row, first:last] = 1 / (last - first)
            image = along_axis(image, 2 + place, shares) if out != extent else image
        return _in_stated_shape(image, node)

    return rule


def _adaptive_max(rank: int) -> Rule:
    def rule(node: Node, x: Any, *_: Any) -> list[Any]:
        if 1 in node.used_results:
            raise NoForm("the indices of the largest elements are read; the engine's pool has no such output")
        image = _with_batch(numeric(x), rank)
        for place, out in enumerate(node.shape[-rank:]):
            axis = 2 + place
            lines = [
                image.slice_by_size(
                    [first if i == axis else 0 for i in range(image.ndim)],
                    [last - first if i == axis else extent for i, extent in enumerate(image.shape)],
                ).amax((axis,))
                for first, last in _windows(image.shape[axis], out)
            ]
            image = lines[0] if len(lines) == 1 else af.concat(lines, axis=axis)
        return [_in_stated_shape(image, node), None]

    return rule


# Resampling. PyTorch resamples unit signals along an axis, which gives the weights of each position.


def _resize(kind: str, rank: int) -> Rule:
    def rule(node: Node, x: Any, *settings: Any) -> Tensor:
        image = _with_batch(numeric(x), rank)
        align = next((bool(setting) for setting in settings if isinstance(setting, bool)), False)
        weights = {}
        for place, out in enumerate(node.shape[-rank:]):
            extent, scale = image.shape[2 + place], _scale_of(settings, place, rank)
            matrix = _resize_weights(kind, extent, out, align, scale)
            if out != extent or not np.array_equal(matrix, np.eye(extent)):
                weights[2 + place] = matrix
        return _in_stated_shape(forms.resampled(image, weights), node)

    return rule


def _scale_of(settings: Sequence[Any], place: int, rank: int) -> float | None:
    """Return the scale that the caller gave for an axis, or None. Scales are the last list of floats."""
    for setting in reversed(settings):
        if isinstance(setting, (list, tuple)) and len(setting) == rank and all(isinstance(n, float) for n in setting):
            return float(setting[place])
    floats = [setting for setting in settings if isinstance(setting, float)]
    return float(floats[place]) if len(floats) == rank else None


def _resize_weights(kind: str, extent: int, out: int, align: bool, scale: float | None) -> np.ndarray:
    """Return the weights [out, extent] of each output position along an axis."""
    import torch

    if extent > _LONGEST:
        raise NoForm(f"an axis of {extent:,} elements is too long to resample; the limit is {_LONGEST:,}")
    aten, signals = torch.ops.aten, torch.eye(extent, dtype=torch.float64)[None]
    if kind == "nearest":
        line = aten.upsample_nearest1d(signals, [out], scale)[0]
    elif kind == "nearest_exact":
        line = aten._upsample_nearest_exact1d(signals, [out], scale)[0]
    elif kind == "linear":
        line = aten.upsample_linear1d(signals, [out], align, scale)[0]
    else:  # cubic: the other axis has one position
        line = aten.upsample_bicubic2d(signals[:, :, None], [1, out], align, None, scale)[0, :, 0]
    return line.numpy().T


# Blocks and windows.


def _shuffle(function: Callable[[Tensor, int], Tensor]) -> Rule:
    def rule(node: Node, x: Any, factor: int) -> Tensor:
        image = numeric(x)
        lead = image.shape[:-3]
        four = image if image.ndim == 4 else image.reshape(math.prod(lead), *image.shape[-3:])
        return _in_stated_shape(function(four, int(factor)), node)

    return rule


def _channel_shuffle(node: Node, x: Any, groups: int) -> Tensor:
    image = numeric(x)
    n, channels, *space = image.shape
    area = math.prod(space)
    turned = image.reshape(n, int(groups), channels // int(groups), area).transpose([0, 2, 1, 3])
    return turned.reshape(*image.shape)


def _window_kernels(channels: int, size: Sequence[int]) -> np.ndarray:
    """Return a kernel for each channel and each position of a window."""
    area = size[0] * size[1]
    return np.tile(np.eye(area).reshape(area, 1, *size), (channels, 1, 1, 1))


def _unfold(node: Node, x: Any, size: Any, dilation: Any, padding: Any, stride: Any) -> Tensor:
    """Turn windows into columns: a depthwise convolution whose kernels each have a single 1."""
    image = _with_batch(numeric(x), 2)
    window, pad = pair_of(size, 2), pair_of(padding, 2)
    columns = af.conv(
        image,
        const(_window_kernels(image.shape[1], window)),
        stride=tuple(pair_of(stride, 2)),
        pad=(pad[0], pad[0], pad[1], pad[1]),
        dilation=tuple(pair_of(dilation, 2)),
        groups=image.shape[1],
    )
    return _in_stated_shape(columns, node)


def _fold(node: Node, x: Any, out: Any, size: Any, dilation: Any, padding: Any, stride: Any) -> Tensor:
    """Turn columns into windows and sum overlaps: the transposed convolution of the same kernels."""
    columns = numeric(x)
    columns = columns.reshape(1, *columns.shape) if columns.ndim == 2 else columns
    window, pad, spread = pair_of(size, 2), pair_of(padding, 2), pair_of(dilation, 2)
    step, out_size = pair_of(stride, 2), pair_of(out, 2)
    counts = [(out_size[i] + 2 * pad[i] - spread[i] * (window[i] - 1) - 1) // step[i] + 1 for i in range(2)]
    channels = columns.shape[1] // (window[0] * window[1])
    windows = columns.reshape(columns.shape[0], columns.shape[1], *counts)
    summed = af.conv_transpose(
        windows, const(_window_kernels(channels, window)), stride=tuple(step), dilation=tuple(spread), groups=channels
    )
    missing = [max(0, out_size[i] + 2 * pad[i] - summed.shape[2 + i]) for i in range(2)]
    if any(missing):
        summed = summed.pad(((0, 0), (0, 0), (0, missing[0]), (0, missing[1])))
    cut = summed.slice_by_size([0, 0, *pad], [*summed.shape[:2], *out_size])
    return _in_stated_shape(cut, node)


_SAMPLING_MODES = ("linear", "nearest", "cubic")
_SAMPLING_PADS = ("zeros", "border", "reflection")


def _grid_sample(
    node: Node, x: Any, grid: Any, mode: int = 0, padding: int = 0, align_corners: bool = False
) -> Tensor:
    """Samples at places that the model fixes; the engine cannot read at computed ones (C42)."""
    image, places = numeric(x), known(grid, "the grid")
    return forms.grid_sample(
        image, places, _SAMPLING_MODES[int(mode)], _SAMPLING_PADS[int(padding)], bool(align_corners)
    )


RULES: dict[str, Rule] = {
    **dict.fromkeys(("adaptive_avg_pool1d",), _adaptive_average(1)),
    **dict.fromkeys(("_adaptive_avg_pool2d", "adaptive_avg_pool2d"), _adaptive_average(2)),
    **dict.fromkeys(("_adaptive_avg_pool3d", "adaptive_avg_pool3d"), _adaptive_average(3)),
    **{f"_upsample_nearest_exact{rank}d": _resize("nearest_exact", rank) for rank in (1, 2, 3)},
    **{f"upsample_nearest{rank}d": _resize("nearest", rank) for rank in (1, 2, 3)},
    "adaptive_max_pool1d": _adaptive_max(1),
    "adaptive_max_pool2d": _adaptive_max(2),
    "adaptive_max_pool3d": _adaptive_max(3),
    "avg_pool1d": _average_pool(1),
    "avg_pool2d": _average_pool(2),
    "avg_pool3d": _average_pool(3),
    "channel_shuffle": _channel_shuffle,
    "col2im": _fold,
    "grid_sampler_2d": _grid_sample,
    "grid_sampler_3d": _grid_sample,
    "im2col": _unfold,
    "max_pool1d": _max_pool(1),
    "max_pool2d": _max_pool(2),
    "max_pool2d_with_indices": _max_pool_with_places(2),
    "max_pool3d": _max_pool(3),
    "max_pool3d_with_indices": _max_pool_with_places(3),
    "native_channel_shuffle": _channel_shuffle,
    "pixel_shuffle": _shuffle(af.pixel_shuffle),
    "pixel_unshuffle": _shuffle(af.pixel_unshuffle),
    "upsample_bicubic2d": _resize("cubic", 2),
    "upsample_bilinear2d": _resize("linear", 2),
    "upsample_linear1d": _resize("linear", 1),
    "upsample_trilinear3d": _resize("linear", 3),
}
