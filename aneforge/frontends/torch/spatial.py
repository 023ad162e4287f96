# pyright: reportMissingImports=false
"""Pools, resampling and other ops over the spatial axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from aneforge.frontends import LoadError
from aneforge.frontends.forms import average_pool, max_pool, scaled
from aneforge.frontends.torch.node import Node, Rule
from aneforge.frontends.torch.values import numeric, pair_of
from aneforge.frontends.values import NoForm, along_axis
from aneforge.graph import builders as af
from aneforge.graph.ops.leaf import const
from aneforge.graph.tensor import Tensor

__all__ = ["RULES"]


def _with_batch(x: Tensor, rank: int) -> Tensor:
    return x.reshape(1, *x.shape) if x.ndim == rank + 1 else x


def _like(found: Tensor, node: Node) -> Tensor:
    return found.reshape(*node.shape) if found.shape != node.shape else found


# Pools.


def _max_pool(rank: int) -> Rule:
    def rule(
        node: Node, x: Any, size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil: bool = False
    ) -> Tensor:
        given = _with_batch(numeric(x), rank)
        window = pair_of(size, rank)
        found = max_pool(
            given,
            window,
            stride=pair_of(stride, rank) if stride else window,
            pads=[(each, each) for each in pair_of(padding, rank)],
            dilation=pair_of(dilation, rank),
            ceil=bool(ceil),
        )
        return _like(found, node)

    return rule


def _max_pool_with_places(rank: int) -> Rule:
    def rule(node: Node, x: Any, *settings: Any) -> list[Any]:
        if 1 in node.wanted:
            raise NoForm("gives the places of the largest elements too, which the engine's pool does not")
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
        given = _with_batch(numeric(x), rank)
        window = pair_of(size, rank)
        found = average_pool(
            given,
            window,
            stride=pair_of(stride, rank) if stride else window,
            pads=[(each, each) for each in pair_of(padding, rank)],
            ceil=bool(ceil),
            count_pad=bool(count_pad) or divisor is not None,
        )
        if divisor is not None:
            if ceil:
                raise LoadError("an average pool with a divisor of its own in ceil mode")
            found = scaled(found, math.prod(window) / float(divisor))
        return _like(found, node)

    return rule


def _windows(extent: int, out: int) -> list[tuple[int, int]]:
    """What each place of an adaptive pool covers."""
    return [(i * extent // out, -(-(i + 1) * extent // out)) for i in range(out)]


def _adaptive_average(rank: int) -> Rule:
    """Equal windows make a pool, one window a mean; uneven ones are a product with their shares."""

    def rule(node: Node, x: Any, *_: Any) -> Tensor:
        given = _with_batch(numeric(x), rank)
        wanted = node.shape[-rank:]
        if all(out == 1 for out in wanted):
            return _like(given.mean(tuple(range(2, 2 + rank))), node)
        if rank < 3 and all(extent % out == 0 for extent, out in zip(given.shape[2:], wanted, strict=True)):
            window = [extent // out for extent, out in zip(given.shape[2:], wanted, strict=True)]
            return _like(average_pool(given, window, stride=window), node)
        for place, out in enumerate(wanted):
            extent = given.shape[2 + place]
            shares = np.zeros((out, extent))
            for row, (first, last) in enumerate(_windows(extent, out)):
                shares[row, first:last] = 1 / (last - first)
            given = along_axis(given, 2 + place, shares) if out != extent else given
        return _like(given, node)

    return rule


def _adaptive_max(rank: int) -> Rule:
    def rule(node: Node, x: Any, *_: Any) -> list[Any]:
        if 1 in node.wanted:
            raise NoForm("gives the places of the largest elements too, which the engine's pool does not")
        given = _with_batch(numeric(x), rank)
        for place, out in enumerate(node.shape[-rank:]):
            axis = 2 + place
            lines = [
                given.slice_by_size(
                    [first if i == axis else 0 for i in range(given.ndim)],
                    [last - first if i == axis else extent for i, extent in enumerate(given.shape)],
                ).amax((axis,))
                for first, last in _windows(given.shape[axis], out)
            ]
            given = lines[0] if len(lines) == 1 else af.concat(lines, axis=axis)
        return [_like(given, node), None]

    return rule


# Resampling.


def _nearest(rank: int, exact: bool = False) -> Rule:
    """Each element of the result repeats one of the input: PyTorch itself says which."""

    def rule(node: Node, x: Any, *told: Any) -> Tensor:
        given = _with_batch(numeric(x), rank)
        wanted = node.shape[-rank:]
        factors = [out // extent for extent, out in zip(given.shape[2:], wanted, strict=True)]
        whole = all(f * e == o for f, e, o in zip(factors, given.shape[2:], wanted, strict=True))
        if rank == 2 and whole and all(factors):
            return _like(given.upsample(tuple(factors)), node)
        for place, out in enumerate(wanted):
            extent = given.shape[2 + place]
            scale = _scale_of(told, place, rank)
            sources = _probe(np.arange(extent, dtype=np.float32)[None], out, scale, exact=exact)[0]
            if out != extent:
                given = af.gather(given, sources.astype(int), axis=2 + place)
        return _like(given, node)

    return rule


def _scale_of(told: Sequence[Any], place: int, rank: int) -> float | None:
    """The factor that the caller gave for an axis, if the call carries factors: the last list of floats."""
    for each in reversed(told):
        if isinstance(each, (list, tuple)) and len(each) == rank and all(isinstance(one, float) for one in each):
            return float(each[place])
    floats = [each for each in told if isinstance(each, float)]
    return float(floats[place]) if len(floats) == rank else None


def _probe(lines: np.ndarray, out: int, scale: float | None, exact: bool) -> np.ndarray:
    import torch

    op = torch.ops.aten._upsample_nearest_exact1d if exact else torch.ops.aten.upsample_nearest1d
    return op(torch.from_numpy(lines)[None], [out], scale)[0].numpy()


def _linear(rank: int) -> Rule:
    """Two axes with half-pixel or aligned corners are an op of the graph; the rest is a product for each axis."""

    def rule(node: Node, x: Any, size: Any, align: bool = False, *told: Any) -> Tensor:
        given = _with_batch(numeric(x), rank)
        wanted = node.shape[-rank:]
        scales = [_scale_of(told, place, rank) for place in range(rank)]
        even = all(s is None or s * e == o for s, e, o in zip(scales, given.shape[2:], wanted, strict=True))
        if rank == 2 and even:
            return _like(_bilinear(given, wanted, bool(align)), node)
        return _like(_each_axis(given, wanted, scales, bool(align), cubic=False), node)

    return rule


def _bilinear(x: Tensor, wanted: Sequence[int], align: bool) -> Tensor:
    factors = [out / extent for extent, out in zip(x.shape[2:], wanted, strict=True)]
    if all(factor == int(factor) for factor in factors):
        return af.upsample_bilinear(x, (int(factors[0]), int(factors[1])), align)
    return af.resize_bilinear(x, int(wanted[0]), int(wanted[1]), align)


def _cubic(node: Node, x: Any, size: Any, align: bool = False, *told: Any) -> Tensor:
    given = _with_batch(numeric(x), 2)
    scales = [_scale_of(told, place, 2) for place in range(2)]
    return _like(_each_axis(given, node.shape[-2:], scales, bool(align), cubic=True), node)


def _each_axis(x: Tensor, wanted: Sequence[int], scales: Sequence[Any], align: bool, cubic: bool) -> Tensor:
    """A product for each axis with what PyTorch makes of unit signals along it."""
    import torch

    aten = torch.ops.aten
    for place, out in enumerate(wanted):
        extent = x.shape[2 + place]
        if extent > 4096:
            raise LoadError(f"resampling an axis of {extent} elements by a product")
        eye = torch.eye(extent, dtype=torch.float64)[None]
        if cubic:  # the other axis keeps its only place
            line = aten.upsample_bicubic2d(eye[:, :, None], [1, out], align, None, scales[place])[0, :, 0]
        else:
            line = aten.upsample_linear1d(eye, [out], align, scales[place])[0]
        if out != extent or not np.array_equal(line.numpy(), np.eye(extent)):
            x = along_axis(x, 2 + place, line.numpy().T)
    return x


# Blocks and windows.


def _shuffle(function: Callable[[Tensor, int], Tensor]) -> Rule:
    def rule(node: Node, x: Any, factor: int) -> Tensor:
        given = numeric(x)
        lead = given.shape[:-3]
        four = given if given.ndim == 4 else given.reshape(math.prod(lead), *given.shape[-3:])
        return _like(function(four, int(factor)), node)

    return rule


def _channel_shuffle(node: Node, x: Any, groups: int) -> Tensor:
    given = numeric(x)
    n, channels, *space = given.shape
    area = math.prod(space)
    turned = given.reshape(n, int(groups), channels // int(groups), area).transpose([0, 2, 1, 3])
    return turned.reshape(*given.shape)


def _places(channels: int, size: Sequence[int]) -> np.ndarray:
    """A kernel for each channel and each place of a window."""
    area = size[0] * size[1]
    return np.tile(np.eye(area).reshape(area, 1, *size), (channels, 1, 1, 1))


def _unfold(node: Node, x: Any, size: Any, dilation: Any, padding: Any, stride: Any) -> Tensor:
    """Windows as columns: a convolution by channel whose kernels each hold a single one."""
    given = _with_batch(numeric(x), 2)
    window, pad = pair_of(size, 2), pair_of(padding, 2)
    found = af.conv(
        given,
        const(_places(given.shape[1], window)),
        stride=tuple(pair_of(stride, 2)),
        pad=(pad[0], pad[0], pad[1], pad[1]),
        dilation=tuple(pair_of(dilation, 2)),
        groups=given.shape[1],
    )
    return _like(found, node)


def _fold(node: Node, x: Any, out: Any, size: Any, dilation: Any, padding: Any, stride: Any) -> Tensor:
    """Columns back to windows, what overlaps summed: the transposed convolution of the same kernels."""
    given = numeric(x)
    given = given.reshape(1, *given.shape) if given.ndim == 2 else given
    window, pad, spread = pair_of(size, 2), pair_of(padding, 2), pair_of(dilation, 2)
    step, wanted = pair_of(stride, 2), pair_of(out, 2)
    counts = [(wanted[i] + 2 * pad[i] - spread[i] * (window[i] - 1) - 1) // step[i] + 1 for i in range(2)]
    channels = given.shape[1] // (window[0] * window[1])
    laid = given.reshape(given.shape[0], given.shape[1], *counts)
    whole = af.conv_transpose(
        laid, const(_places(channels, window)), stride=tuple(step), dilation=tuple(spread), groups=channels
    )
    short = [max(0, wanted[i] + 2 * pad[i] - whole.shape[2 + i]) for i in range(2)]
    if any(short):
        whole = whole.pad(((0, 0), (0, 0), (0, short[0]), (0, short[1])))
    cut = whole.slice_by_size([0, 0, *pad], [*whole.shape[:2], *wanted])
    return _like(cut, node)


RULES: dict[str, Rule] = {
    **dict.fromkeys(("adaptive_avg_pool1d",), _adaptive_average(1)),
    **dict.fromkeys(("_adaptive_avg_pool2d", "adaptive_avg_pool2d"), _adaptive_average(2)),
    **dict.fromkeys(("_adaptive_avg_pool3d", "adaptive_avg_pool3d"), _adaptive_average(3)),
    **dict.fromkeys(("_upsample_nearest_exact1d",), _nearest(1, exact=True)),
    **dict.fromkeys(("_upsample_nearest_exact2d",), _nearest(2, exact=True)),
    **dict.fromkeys(("_upsample_nearest_exact3d",), _nearest(3, exact=True)),
    "adaptive_max_pool1d": _adaptive_max(1),
    "adaptive_max_pool2d": _adaptive_max(2),
    "adaptive_max_pool3d": _adaptive_max(3),
    "avg_pool1d": _average_pool(1),
    "avg_pool2d": _average_pool(2),
    "avg_pool3d": _average_pool(3),
    "channel_shuffle": _channel_shuffle,
    "col2im": _fold,
    "im2col": _unfold,
    "max_pool1d": _max_pool(1),
    "max_pool2d": _max_pool(2),
    "max_pool2d_with_indices": _max_pool_with_places(2),
    "max_pool3d": _max_pool(3),
    "max_pool3d_with_indices": _max_pool_with_places(3),
    "native_channel_shuffle": _channel_shuffle,
    "pixel_shuffle": _shuffle(af.pixel_shuffle),
    "pixel_unshuffle": _shuffle(af.pixel_unshuffle),
    "upsample_bicubic2d": _cubic,
    "upsample_bilinear2d": _linear(2),
    "upsample_linear1d": _linear(1),
    "upsample_nearest1d": _nearest(1),
    "upsample_nearest2d": _nearest(2),
    "upsample_nearest3d": _nearest(3),
    "upsample_trilinear3d": _linear(3),
}
