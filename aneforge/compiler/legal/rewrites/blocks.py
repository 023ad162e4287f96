"""Pixels as channels: the moves and the kernels of convolutions that read a map in blocks.

A convolution that takes ``f`` pixels a step is a convolution over blocks of ``f`` pixels whose channels are the pixels
of a block. Its kernel goes through the same move as the map. Phase 0 uses this for kernels that are too wide for a
chip, phase 2 for strides that the engine does not have.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aneforge.graph.ops.spatial import pixel_shuffle, pixel_unshuffle
from aneforge.graph.tensor import Tensor


def factors(stride: int, native: Sequence[int]) -> tuple[int, int] | None:
    """A stride as at most two factors of the chip's list, the larger first; None where there is no such pair."""
    if stride == 1 or stride in native:
        return 1, stride
    pairs = ((first, stride // first) for first in sorted(native, reverse=True) if stride % first == 0)
    return next((pair for pair in pairs if pair[1] in native), None)


def kernel_in_blocks(
    kernel: np.ndarray, blocks: tuple[int, int], sizes: tuple[int, int], holes: tuple[int, int] = (1, 1)
) -> np.ndarray:
    """A kernel [O, I, H, W] over ``sizes`` blocks of pixels, each block's pixels on the channels, channel-major.

    ``holes`` are the dilation rates; the holes and the rest of the last block are zeros.
    """
    outputs, inputs, height, width = kernel.shape
    (y, u), (rows, columns) = blocks, sizes
    wide = np.zeros((outputs, inputs, rows * y, columns * u), kernel.dtype)
    wide[:, :, : holes[0] * (height - 1) + 1 : holes[0], : holes[1] * (width - 1) + 1 : holes[1]] = kernel
    split = wide.reshape(outputs, inputs, rows, y, columns, u).transpose(0, 1, 3, 5, 2, 4)
    return split.reshape(outputs, inputs * y * u, rows, columns)


def to_channels(x: Tensor, rows: int, columns: int) -> Tensor:
    """The pixels of each block of ``rows`` x ``columns`` as channels, channel-major."""
    if rows == columns:
        return x if rows == 1 else pixel_unshuffle(x, rows)
    if rows > 1:
        x = _height_to_channels(x, rows)
    return _width_to_channels(x, columns) if columns > 1 else x


def _height_to_channels(x: Tensor, factor: int) -> Tensor:
    n, c, h, w = x.shape
    if w == 1:  # four axes are enough, and a line of pixels is common
        moved = x.reshape(n, c, h // factor, factor).transpose([0, 1, 3, 2])
    else:
        moved = x.reshape(n, c, h // factor, factor, w).transpose([0, 1, 3, 2, 4])
    return moved.reshape(n, c * factor, h // factor, w)


def _width_to_channels(x: Tensor, factor: int) -> Tensor:
    n, c, h, w = x.shape
    if h == 1:
        moved = x.reshape(n, c, w // factor, factor).transpose([0, 1, 3, 2])
    else:
        moved = x.reshape(n, c, h, w // factor, factor).transpose([0, 1, 4, 2, 3])
    return moved.reshape(n, c * factor, h, w // factor)


def to_pixels(x: Tensor, rows: int, columns: int) -> Tensor:
    """The inverse of :func:`to_channels`."""
    if rows == columns:
        return x if rows == 1 else pixel_shuffle(x, rows)
    if columns > 1:
        x = _channels_to_width(x, columns)
    return _channels_to_height(x, rows) if rows > 1 else x


def _channels_to_width(x: Tensor, factor: int) -> Tensor:
    n, c, h, w = x.shape
    channels = c // factor
    if h == 1:
        moved = x.reshape(n, channels, factor, w).transpose([0, 1, 3, 2])
    else:
        moved = x.reshape(n, channels, factor, h, w).transpose([0, 1, 3, 4, 2])
    return moved.reshape(n, channels, h, w * factor)


def _channels_to_height(x: Tensor, factor: int) -> Tensor:
    n, c, h, w = x.shape
    channels = c // factor
    if w == 1:
        moved = x.reshape(n, channels, factor, h).transpose([0, 1, 3, 2])
    else:
        moved = x.reshape(n, channels, factor, h, w).transpose([0, 1, 3, 2, 4])
    return moved.reshape(n, channels, h * factor, w)
