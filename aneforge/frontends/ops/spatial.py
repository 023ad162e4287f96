"""Pools, and blocks of pixels moved to channels or to the batch."""

from __future__ import annotations

import math

from aneforge.frontends.forms import average_pool, max_pool, padded
from aneforge.frontends.importer.op import Op, Rule
from aneforge.frontends.ops.products import window_pads
from aneforge.graph import builders as af
from aneforge.graph.tensor import Tensor

__all__ = ["RULES"]


def _window(op: Op, x: Tensor) -> tuple[list[int], list[int], list[tuple[int, int]], bool]:
    size = op.numbers("kernel_sizes")
    stride = op.numbers("strides", [1] * len(size))
    pads = window_pads(op, x.shape[2:], tuple(size), stride, [1] * len(size))
    return size, stride, pads, op.truth("ceil_mode")


def _max_pool(op: Op) -> Tensor:
    size, stride, pads, ceil = _window(op, op.tensor())
    return max_pool(op.tensor(), size, stride=stride, pads=pads, ceil=ceil)


def _avg_pool(op: Op) -> Tensor:
    size, stride, pads, ceil = _window(op, op.tensor())
    counted = not op.truth("exclude_padding_from_average")
    return average_pool(op.tensor(), size, stride=stride, pads=pads, ceil=ceil, count_pad=counted)


def _l2_pool(op: Op) -> Tensor:
    """The root of the sum of squares, as the mean of the squares times their number. The input is padded first,
    because elements that ceil mode adds do not count in a mean."""
    x = op.tensor()
    size, stride, pads, ceil = _window(op, x)
    if ceil:
        reach = [
            -(-(extent + sum(pad) - k) // s) * s + k
            for extent, pad, k, s in zip(x.shape[2:], pads, size, stride, strict=True)
        ]
        pads = [
            (before, max(after, want - extent - before))
            for extent, want, (before, after) in zip(x.shape[2:], reach, pads, strict=True)
        ]
    squares = padded(x.square(), [(0, 0), (0, 0), *pads])
    return (average_pool(squares, size, stride=stride) * float(math.prod(size))).sqrt()


def _space_to_batch(op: Op) -> Tensor:
    rows, columns = op.numbers("block_shape")
    top, bottom, left, right = op.numbers("paddings")
    return padded(op.tensor(), [(0, 0), (0, 0), (top, bottom), (left, right)]).space_to_batch(rows, columns)


def _batch_to_space(op: Op) -> Tensor:
    rows, columns = op.numbers("block_shape")
    top, bottom, left, right = op.numbers("crops")
    result = op.tensor().batch_to_space(rows, columns)
    return padded(result, [(0, 0), (0, 0), (-top, -bottom), (-left, -right)])


RULES: dict[str, Rule] = {
    "avg_pool": _avg_pool,
    "batch_to_space": _batch_to_space,
    "depth_to_space": lambda op: af.depth_to_space(op.tensor(), op.whole("block_size")),
    "l2_pool": _l2_pool,
    "max_pool": _max_pool,
    "pixel_shuffle": lambda op: af.pixel_shuffle(op.tensor(), op.whole("upscale_factor")),
    "pixel_unshuffle": lambda op: af.pixel_unshuffle(op.tensor(), op.whole("downscale_factor")),
    "space_to_batch": _space_to_batch,
    "space_to_depth": lambda op: af.space_to_depth(op.tensor(), op.whole("block_size")),
}
