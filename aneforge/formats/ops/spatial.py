"""Pools, and blocks of pixels moved to channels or to the batch."""

from __future__ import annotations

from collections.abc import Callable

from aneforge.formats.forms import (
    PoolWindow,
    average_pool,
    channel_shuffle,
    depth_to_space,
    global_norm_pool,
    max_pool,
    norm_pool,
    padded,
    space_to_depth,
)
from aneforge.formats.importer.op import FileOp
from aneforge.formats.ops.products import pads_by_type
from aneforge.formats.values import NoForm, Numeric
from aneforge.graph import builders as af
from aneforge.graph.tensor import Tensor


def _window(
    x: Tensor,
    kernel_sizes: list[int],
    strides: list[int] | None,
    pad_type: str,
    pad: list[int] | None,
    ceil_mode: bool,
    dilations: list[int] | None = None,
) -> PoolWindow:
    stride = strides or [1] * len(kernel_sizes)
    pads = pads_by_type(pad_type, pad, x.shape[2:], kernel_sizes, stride, dilations)
    return PoolWindow(kernel_sizes, stride, pads, dilations or (), ceil_mode)


def _max_pool(
    op: FileOp,
    x: Numeric,
    kernel_sizes: list[int],
    strides: list[int] | None = None,
    pad_type: str = "valid",
    pad: list[int] | None = None,
    ceil_mode: bool = False,
    dilations: list[int] | None = None,
) -> Tensor:
    if op is not None and op.used(1):
        raise NoForm("the output Indices is not supported; the engine's pool gives the values only. Remove the output")
    return max_pool(x, _window(x, kernel_sizes, strides, pad_type, pad, ceil_mode, dilations))


def _avg_pool(
    x: Numeric,
    kernel_sizes: list[int],
    strides: list[int] | None = None,
    pad_type: str = "valid",
    pad: list[int] | None = None,
    ceil_mode: bool = False,
    dilations: list[int] | None = None,
    exclude_padding_from_average: bool = False,
    count_include_pad: bool | None = None,
) -> Tensor:
    """Whether zeros of the padding count as elements; formats state either way."""
    window = _window(x, kernel_sizes, strides, pad_type, pad, ceil_mode, dilations)
    counted = not exclude_padding_from_average if count_include_pad is None else count_include_pad
    return average_pool(x, window, counted)


def _norm_pool(
    x: Numeric,
    kernel_sizes: list[int],
    strides: list[int] | None = None,
    pad_type: str = "valid",
    pad: list[int] | None = None,
    ceil_mode: bool = False,
    dilations: list[int] | None = None,
    p: int = 2,
) -> Tensor:
    return norm_pool(x, p, _window(x, kernel_sizes, strides, pad_type, pad, ceil_mode, dilations))


def _over_space(function: Callable[[Tensor, tuple[int, ...]], Tensor]) -> Callable[..., Tensor]:
    def global_pool(x: Numeric) -> Tensor:
        return function(x, tuple(range(2, x.ndim)))

    return global_pool


def _space_to_batch(x: Tensor, block_shape: list[int], paddings: list[int]) -> Tensor:
    top, bottom, left, right = paddings
    return padded(x, [(0, 0), (0, 0), (top, bottom), (left, right)]).space_to_batch(*block_shape)


def _batch_to_space(x: Tensor, block_shape: list[int], crops: list[int]) -> Tensor:
    top, bottom, left, right = crops
    return padded(x.batch_to_space(*block_shape), [(0, 0), (0, 0), (-top, -bottom), (-left, -right)])


def _of_blocks(function: Callable[[Tensor, int], Tensor]) -> Callable[..., Tensor]:
    def blocks(x: Numeric, block_size: int) -> Tensor:
        return function(x, block_size)

    return blocks


OPS: dict[str, Callable[..., object]] = {
    "avg_pool": _avg_pool,
    "batch_to_space": _batch_to_space,
    "blocks_to_space": depth_to_space,
    "channel_shuffle": channel_shuffle,
    "depth_to_space": _of_blocks(af.depth_to_space),
    "global_avg_pool": _over_space(Tensor.mean),
    "global_max_pool": _over_space(Tensor.amax),
    "global_norm_pool": global_norm_pool,
    "l2_pool": _norm_pool,
    "max_pool": _max_pool,
    "pixel_shuffle": _of_blocks(af.pixel_shuffle),
    "pixel_unshuffle": _of_blocks(af.pixel_unshuffle),
    "space_to_blocks": space_to_depth,
    "space_to_batch": _space_to_batch,
    "space_to_depth": _of_blocks(af.space_to_depth),
}
