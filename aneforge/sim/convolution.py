"""Convolutions on the multiply-accumulate path: direct, and the width Winograd form of the newer chips.

Maps are [channels, rows, columns] of one image, kernels [outputs, inputs per group, rows, columns]; all fp16. Maps are
computed in bands of rows, because what the outputs read is several times the map and need not exist all at once.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from aneforge.chips.assumed import constant
from aneforge.sim.half import Window, decoded, narrowed, patches
from aneforge.sim.mac import Sums, accumulate

Array = np.ndarray
Products = Callable[[Array, Array, "Array | None"], Array]
_TILE = 4  # inputs of one Winograd tile; it gives two outputs
_BAND = 1 << 21  # elements that the outputs of a band read


def direct(x: Array, kernels: list[Array], bias: Array | None, window: Window, products: Products) -> Array:
    """Every output is one sum over channels, rows and columns of the kernel, in that order.

    ``kernels`` are the matrices [outputs, inputs x rows x columns] of the groups, as ``products`` takes them.
    """
    inputs = x.shape[0] // len(kernels)
    outputs = kernels[0].shape[0]
    parts = []
    for group, kernel in enumerate(kernels):
        own = slice(group * outputs, (group + 1) * outputs)
        start = None if bias is None else bias[own, None]
        parts.append(_group(x[group * inputs : (group + 1) * inputs], kernel, start, window, products))
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _group(image: Array, kernel: Array, bias: Array | None, window: Window, products: Products) -> Array:
    outputs, plane = kernel.shape[0], window.outputs(image.shape[1:])
    if window.reads_points:
        return products(kernel, image.reshape(image.shape[0], -1), bias).reshape(outputs, *plane)
    parts = []
    for first, rows in _bands(plane[0], kernel.shape[1] * plane[1]):
        read = patches(image, window, first, rows, kernel.dtype == np.float32)
        parts.append(products(kernel, read, bias).reshape(outputs, rows, plane[1]))
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)


def _bands(rows: int, width: int) -> list[tuple[int, int]]:
    """First row and count of each band, of which a row reads ``width`` elements."""
    count = max(1, _BAND // max(1, width))
    return [(first, min(count, rows - first)) for first in range(0, rows, count)]


def winograd_fits(window: Window) -> bool:
    """Which convolutions take the form: three columns, unit stride, no dilation (N56, C76)."""
    return (window.size[1], window.stride, window.dilation) == (3, (1, 1), (1, 1))


def winograd_is_open(window: Window) -> bool:
    """Whether the vendor's validator allows the form for a window whose digits are not measured: any but 3 x 3 (C76).
    Strides of two are summed directly here (U38)."""
    width_and_stride = [window.size[1], window.stride[1]]
    return window.dilation == (1, 1) and width_and_stride in constant("winograd_shapes") and window.size != (3, 3)


def winograd_kernels(kernel: Array, groups: int = 1) -> list[list[Array]]:
    """The four transformed kernels of each group, rounded half away to fp16, for ``winograd``."""
    outputs = kernel.shape[0] // groups
    return [_kernel_transform(kernel[group * outputs : (group + 1) * outputs]) for group in range(groups)]


def winograd(x: Array, kernels: list[list[Array]], bias: Array | None = None) -> Array:
    """F(2, 3) along the width of a padded map: both transforms rounded half away to fp16, sums in the accumulators
    (N56).

    An odd last column is computed in a tile with one column of zeros, whose second output is dropped.
    """
    outputs, inputs, taps = kernels[0][0].shape
    rows, columns = x.shape[1] - taps + 1, x.shape[2] - 2
    result = np.empty((len(kernels) * outputs, rows, columns), np.float16)
    for group, weights in enumerate(kernels):
        own = slice(group * outputs, (group + 1) * outputs)
        start = None if bias is None else bias[own, None]
        image = x[group * inputs : (group + 1) * inputs]
        for first, count in _bands(
            rows, (6 * inputs + 8 * outputs) * columns
        ):  # four sums of 16 bytes for two outputs
            result[own, first : first + count] = _winograd(image[:, first : first + count + taps - 1], weights, start)
    return result


def _winograd(x: Array, weights: list[Array], bias: Array | None) -> Array:
    columns = x.shape[2] - 2
    tiles = -(-columns // 2)
    rows = x.shape[1] - weights[0].shape[2] + 1
    data = decoded(np.pad(x, ((0, 0), (0, 0), (0, 2 * tiles - columns))))
    turned = _data_transform(data, tiles)
    sums = [_position(turned[place], weights[place], bias if place == 1 else None, rows) for place in range(_TILE)]
    # The bias is the start value of a sum; it enters both outputs of a tile through the second product with sign +.
    even, odd = sums[0] + sums[1] + sums[2], sums[1] - sums[2] - sums[3]
    pairs = np.stack([total.settled().reshape(-1, rows, tiles) for total in (even, odd)], axis=-1)
    return pairs.reshape(-1, rows, 2 * tiles)[:, :, :columns]


def _data_transform(data: Array, tiles: int) -> list[Array]:
    d = [data[:, :, offset : offset + 2 * tiles - 1 : 2] for offset in range(_TILE)]
    transformed = (d[0] - d[2], d[1] + d[2], d[2] - d[1], d[1] - d[3])
    return [narrowed(part) for part in transformed]


def _kernel_transform(kernel: Array) -> list[Array]:
    """The four forms of a kernel, computed for some outputs at a time: the intermediate arrays are four times its
    size."""
    forms = [np.empty(kernel.shape[:-1], np.float16) for _ in range(_TILE)]
    count = max(1, _BAND // (8 * max(1, kernel[0].size)))
    for first in range(0, len(kernel), count):
        some = slice(first, first + count)
        for form, part in zip(forms, _transformed(kernel[some]), strict=True):
            form[some] = part
    return forms


def _transformed(kernel: Array) -> list[Array]:
    g = decoded(kernel)
    first, middle, last = g[..., 0], g[..., 1], g[..., 2]
    transformed = (first, (first + middle + last) / 2, (first - middle + last) / 2, last)
    return [narrowed(part) for part in transformed]


def _position(data: Array, weights: Array, bias: Array | None, rows: int) -> Sums:
    """One of the four products of every tile, summed over channels and kernel rows."""
    tiles = data.shape[2]
    stacked = np.stack([data[:, row : row + rows] for row in range(weights.shape[2])], axis=1)
    return accumulate(weights.reshape(weights.shape[0], -1), stacked.reshape(-1, rows * tiles), bias)
