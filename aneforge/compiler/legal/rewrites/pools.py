"""Pooling windows beyond a chip's caps."""

from __future__ import annotations

from aneforge.compiler.legal.rewrites.context import Context
from aneforge.graph.ops.spatial import max_pool, window_pads
from aneforge.graph.tensor import Tensor


def pool_in_steps(context: Context) -> Tensor:
    """Narrower pools one after the other, whose widths add up; the last has the stride."""
    attrs = context.node.attrs
    (rows, columns), (down, across) = attrs["kernel"], attrs["stride"]
    x, most = context.inputs[0], context.limit("max-pool-width")
    top, bottom, left, right = window_pads(x.shape, attrs["kernel"], attrs["stride"], attrs["pad"], attrs["ceil_mode"])
    left_over = columns - 1
    while left_over:
        step = min(left_over, most - 1)
        left_over -= step
        # Padding as far as a window reaches: what lies further out would be smaller than everything anyway.
        sides = min(left, step), min(right, step)
        left, right = left - sides[0], right - sides[1]
        stride = (down, 1 if left_over else across)
        x = max_pool(x, (rows, step + 1), stride, (top, bottom, *sides))
        rows, down, top, bottom = 1, 1, 0, 0
    return x
