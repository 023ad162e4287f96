"""Convolutions on the multiply-accumulate path: direct, and the width Winograd form of the newer chips.

Maps are [channels, rows, columns] of one image, already padded; kernels are [outputs, inputs per group, rows,
columns]; all fp16.
"""

from __future__ import annotations

import numpy as np

from aneforge.sim import native
from aneforge.sim.half import round_half
from aneforge.sim.mac import Sums, accumulate

__all__ = ["direct", "winograd", "winograd_fits"]

Array = np.ndarray
_TILE = 4  # inputs of one Winograd tile; it gives two outputs


def direct(
    x: Array,
    kernel: Array,
    bias: Array | None = None,
    stride: tuple[int, int] = (1, 1),
    dilation: tuple[int, int] = (1, 1),
    groups: int = 1,
    flush_subnormals: bool = False,
) -> Array:
    """Every output is one sum over channels, rows and columns of the kernel, in that order."""
    outputs = kernel.shape[0] // groups
    inputs = kernel.shape[1]
    parts = []
    for group in range(groups):
        patches, plane = _patches(x[group * inputs : (group + 1) * inputs], kernel.shape[2:], stride, dilation)
        own = slice(group * outputs, (group + 1) * outputs)
        start = None if bias is None else bias[own, None]
        sums = accumulate(kernel[own].reshape(outputs, -1), patches, start, flush_subnormals)
        parts.append(sums.settled().reshape(outputs, *plane))
    return parts[0] if groups == 1 else np.concatenate(parts)


def _patches(
    x: Array, size: tuple[int, ...], stride: tuple[int, int], dilation: tuple[int, int]
) -> tuple[Array, tuple[int, int]]:
    """What each output reads, [channels x rows x columns, outputs of the plane], and the shape of that plane.

    This way round whole rows of the map are copied, and results come out in the order of the map.
    """
    reach = [step * (extent - 1) + 1 for step, extent in zip(dilation, size, strict=True)]
    view = np.lib.stride_tricks.sliding_window_view(x, reach, axis=(1, 2))
    view = view[:, :: stride[0], :: stride[1], :: dilation[0], :: dilation[1]]
    channels, height, width = view.shape[:3]
    flat = view.transpose(0, 3, 4, 1, 2).reshape(channels * size[0] * size[1], height * width)
    return np.ascontiguousarray(flat), (height, width)


def winograd_fits(size: tuple[int, int], stride: tuple[int, int], dilation: tuple[int, int]) -> bool:
    """Which convolutions take the form: three by three, unit stride, no dilation (N56)."""
    return size == (3, 3) and stride == (1, 1) and dilation == (1, 1)


def winograd(x: Array, kernel: Array, bias: Array | None = None, groups: int = 1) -> Array:
    """F(2, 3) along the width: both transforms rounded half away to fp16, sums in the accumulators (N56).

    An odd last column is computed in a tile with one column of zeros, whose second output is dropped.
    """
    outputs, inputs = kernel.shape[0] // groups, kernel.shape[1]
    parts = []
    for group in range(groups):
        own = slice(group * outputs, (group + 1) * outputs)
        start = None if bias is None else bias[own, None]
        parts.append(_winograd(x[group * inputs : (group + 1) * inputs], kernel[own], start))
    return parts[0] if groups == 1 else np.concatenate(parts)


def _winograd(x: Array, kernel: Array, bias: Array | None) -> Array:
    columns = x.shape[2] - 2
    tiles = -(-columns // 2)
    rows = x.shape[1] - 2
    data = np.pad(x, ((0, 0), (0, 0), (0, 2 * tiles - columns))).astype(np.float64)
    turned = _data_transform(data, tiles)
    weights = _kernel_transform(kernel.astype(np.float64))
    sums = [_position(turned[place], weights[place], bias if place == 1 else None, rows) for place in range(_TILE)]
    # The bias is the start value of a sum; it enters both outputs of a tile through the second product with sign +.
    even, odd = sums[0] + sums[1] + sums[2], sums[1] - sums[2] - sums[3]
    pairs = np.stack([each.settled().reshape(-1, rows, tiles) for each in (even, odd)], axis=-1)
    return pairs.reshape(-1, rows, 2 * tiles)[:, :, :columns]


def _data_transform(data: Array, tiles: int) -> list[Array]:
    d = [data[:, :, offset : offset + 2 * tiles - 1 : 2] for offset in range(_TILE)]
    made = (d[0] - d[2], d[1] + d[2], d[2] - d[1], d[1] - d[3])
    return [_stored(each) for each in made]


def _kernel_transform(g: Array) -> list[Array]:
    first, middle, last = g[..., 0], g[..., 1], g[..., 2]
    made = (first, (first + middle + last) / 2, (first - middle + last) / 2, last)
    return [_stored(each) for each in made]


def _stored(values: Array) -> Array:
    """One rounding to fp16, half away. What is not finite is left to NumPy, which keeps the bits of a NaN."""
    if native.available() and np.isfinite(values).all():
        return native.rounded(values)
    return round_half(values).astype(np.float16)


def _position(data: Array, weights: Array, bias: Array | None, rows: int) -> Sums:
    """One of the four products of every tile, summed over channels and kernel rows."""
    channels, _, tiles = data.shape
    stacked = np.stack([data[:, row : row + rows] for row in range(3)], axis=1)
    return accumulate(weights.reshape(weights.shape[0], -1), stacked.reshape(channels * 3, rows * tiles), bias)
