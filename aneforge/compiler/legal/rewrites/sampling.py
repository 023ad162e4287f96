"""Samplers of the texture engine whose places are stored with the program: products with known weights."""

from __future__ import annotations

import numpy as np

from aneforge.compiler.legal.rewrites.context import Context
from aneforge.compiler.legal.rewrites.movement import joined
from aneforge.graph.ops.leaf import const
from aneforge.graph.ops.sampling import RESAMPLE, box_weights
from aneforge.graph.tensor import Tensor

_MOST_WEIGHTS = 1 << 24


def has_stored_places(context: Context) -> bool:
    """Whether the grid or the boxes are known when the program is built, and need no more weights than a program
    holds."""
    x, places = context.inputs
    if places.weight is None or places.weight.encoded is not None:
        return False
    image = x.size // x.shape[1]
    count = places.size // 2 * image if context.node.op == "resample" else context.node.shape[0] * image
    return count <= _MOST_WEIGHTS


def _numbers(places: Tensor) -> np.ndarray:
    assert places.weight is not None
    return places.weight.array.astype(np.float64)


def stored_grid(context: Context) -> Tensor:
    """One product with the share of every pixel in every place."""
    x, grid = context.inputs
    attrs = context.node.attrs
    images, channels, *space = x.shape
    pixels = space[0] * space[1]
    units = np.broadcast_to(np.eye(pixels).reshape(1, pixels, *space), (images, pixels, *space))
    assert RESAMPLE.reference is not None
    shares = RESAMPLE.reference(units, _numbers(grid), **{**attrs, "padding_value": 0.0}).reshape(images, pixels, -1)
    total = x.reshape(images, channels, pixels) @ const(shares)
    outside = attrs["padding_value"] * (1 - shares.sum(axis=1, keepdims=True))
    total = total + const(outside) if outside.any() else total
    return total.reshape(*context.node.shape)


def stored_boxes(context: Context) -> Tensor:
    """For each box a product with weights for its rows and one for its columns, joined."""
    x, boxes = context.inputs
    attrs = context.node.attrs
    lines = box_weights(_numbers(boxes), x.shape[2:], attrs)
    rows, columns = (np.where(outside[..., None], 0.0, weights) for weights, outside in lines)
    cut = joined([const(row) @ x @ const(column.T) for row, column in zip(rows, columns, strict=True)], 0)
    (_, above), (_, beside) = lines
    outside = (above[:, None, :, None] | beside[:, None, None, :]) * attrs["pad_value"]
    return cut + const(outside) if outside.any() else cut
