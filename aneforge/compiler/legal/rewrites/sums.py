"""Running sums as products with a triangle of ones, and product reductions by halving."""

from __future__ import annotations

import numpy as np

from aneforge.compiler.legal.rewrites.context import Context
from aneforge.compiler.legal.rewrites.pieces import Cut
from aneforge.graph.ops.contraction import matmul
from aneforge.graph.ops.leaf import const
from aneforge.graph.tensor import Tensor

_BLOCK = 512  # a triangle of this extent is half a megabyte; longer axes are summed in blocks of it


def _upper(extent: int) -> Tensor:
    return const(np.triu(np.ones((extent, extent), np.float16)))


def cumsum(context: Context) -> Tensor:
    """The axis last, times an upper triangle of ones; long axes in blocks, with the sums of earlier blocks added."""
    x, axis = context.inputs[0], context.node.attrs["axis"]
    order = [i for i in range(x.ndim) if i != axis] + [axis]
    moved = axis != x.ndim - 1
    lines = x.transpose(order) if moved else x
    result = _last_axis(lines)
    return result.transpose([order.index(i) for i in range(x.ndim)]) if moved else result


def _last_axis(x: Tensor) -> Tensor:
    extent = x.shape[-1]
    if extent <= _BLOCK:
        rows = x if x.ndim > 1 else x.reshape(1, extent)
        result = matmul(rows, _upper(extent))
        return result if x.ndim > 1 else result.reshape(extent)
    blocks = -(-extent // _BLOCK)
    rows = x.reshape(x.size // extent, extent)
    spare = blocks * _BLOCK - extent
    if spare:
        rows = rows.pad([(0, 0), (0, spare)])
    folded = rows.reshape(rows.shape[0], blocks, _BLOCK)
    totals = folded.sum(2).reshape(rows.shape[0], blocks)
    earlier = totals.pad([(0, 0), (1, 0)]).slice_by_size([0, 0], totals.shape)  # a zero first, the last one out
    sums = matmul(folded, _upper(_BLOCK)) + _last_axis(earlier).reshape(rows.shape[0], blocks, 1)
    flat = sums.reshape(rows.shape)
    if spare:
        flat = flat.slice_by_size([0, 0], [rows.shape[0], extent])
    return flat.reshape(x.shape)


def prod(context: Context) -> Tensor:
    """The first half times the second, again and again; an odd element waits until the end."""
    x = context.inputs[0]
    for axis in context.node.attrs["axes"]:
        x = _product(x, axis)
    return x


def _product(x: Tensor, axis: int) -> Tensor:
    spare: Tensor | None = None
    while x.shape[axis] > 1:
        cut = Cut(x, axis)
        half = x.shape[axis] // 2
        if x.shape[axis] % 2:
            last = cut.whole(cut.piece(2 * half, 1))
            spare = last if spare is None else spare * last
        x = cut.whole(cut.piece(0, half) * cut.piece(half, half))
    return x if spare is None else x * spare
