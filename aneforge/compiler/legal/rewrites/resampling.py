"""Resizing without a texture engine: copies for nearest neighbour, two matrix products for bilinear."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from aneforge.compiler.legal.rewrites.bounds import Bound
from aneforge.compiler.legal.rewrites.movement import take
from aneforge.compiler.legal.rewrites.registry import Context, Result, rule
from aneforge.graph.ops.contraction import matmul
from aneforge.graph.ops.leaf import const
from aneforge.graph.tensor import Tensor

_WHOLE = 2048  # fp16 holds every whole number up to this
_ROUNDED = Bound("finite x", 2.0**-10, relative=False, note="weights rounded to fp16; relative to the largest |x|")


def _repeated(x: Tensor, rows: int, columns: int) -> Tensor:
    """Each element copied along the width, then along the height."""
    n, c, h, w = x.shape
    if columns > 1:
        x = x.reshape(n * c, h, w, 1).tile([1, 1, 1, columns]).reshape(n, c, h, w * columns)
    if rows > 1:
        x = x.reshape(n * c, h, 1, w * columns).tile([1, 1, rows, 1]).reshape(n, c, h * rows, w * columns)
    return x


@rule("upsample_nearest_neighbor", "upsample-tile")
def upsample_nearest(context: Context) -> Tensor:
    """Copies along an added axis of one, folded into the width and the height."""
    return _repeated(context.inputs[0], *context.node.attrs["scale"])


@rule("resize_nearest_neighbor", "resize-nearest-slices")
def resize_nearest(context: Context) -> Tensor:
    """Copies for whole factors; else the picked rows and columns as slices."""
    x, attrs = context.inputs[0], context.node.attrs
    height, width = attrs["height"], attrs["width"]
    if height % x.shape[2] == 0 and width % x.shape[3] == 0:
        return _repeated(x, height // x.shape[2], width // x.shape[3])
    for axis, out in ((2, height), (3, width)):
        size = x.shape[axis]
        picked = [int(i) for i in np.floor(np.arange(out) * (size / out))]  # as the op's own reference
        if picked != list(range(size)):
            x = take(x, picked, axis)
    return x


def _positions(size: int, out: int, align_corners: bool) -> list[Fraction]:
    """Where each output element samples, as an exact fraction (half-pixel centres unless corners align)."""
    if align_corners:
        return [Fraction(i * (size - 1), out - 1) if out > 1 else Fraction(0) for i in range(out)]
    centres = (Fraction((2 * i + 1) * size, 2 * out) - Fraction(1, 2) for i in range(out))
    return [min(max(centre, Fraction(0)), Fraction(size - 1)) for centre in centres]


def _interpolation(size: int, out: int, align_corners: bool) -> tuple[np.ndarray, float]:
    """A matrix [out, size] of weights and the number to divide by.

    The weights are fractions of one denominator d. Stored as whole numbers over the next power of two they are
    exact in fp16, and dividing by d over that power, which lies in (1/2, 1], makes them the true weights.
    """
    positions = _positions(size, out, align_corners)
    denominator = int(np.lcm.reduce([each.denominator for each in positions]))
    power = 1 << (denominator - 1).bit_length()
    exact = denominator <= _WHOLE
    matrix = np.zeros((out, size))
    for row, position in enumerate(positions):
        low = int(position)  # positions are not negative
        part = position - low
        unit = Fraction(denominator, power) if exact else Fraction(1)
        matrix[row, low] += float((1 - part) * unit)
        matrix[row, min(low + 1, size - 1)] += float(part * unit)
    return matrix, denominator / power if exact else 0.0


def _bilinear(x: Tensor, height: int, width: int, align_corners: bool) -> Tensor | Result:
    exact = True
    for axis, out in ((2, height), (3, width)):
        size = x.shape[axis]
        if size == out:
            continue
        matrix, divisor = _interpolation(size, out, align_corners)
        x = matmul(const(matrix), x) if axis == 2 else matmul(x, const(matrix.T))
        if divisor == 0.0:
            exact = False
        elif divisor != 1.0:
            x = x / divisor
    return x if exact else Result(x, _ROUNDED)


@rule("resize_bilinear", "resize-bilinear-matmul")
def resize_bilinear(context: Context) -> Tensor | Result:
    """A product with an interpolation matrix along the height and one along the width."""
    attrs = context.node.attrs
    return _bilinear(context.inputs[0], attrs["height"], attrs["width"], attrs["align_corners"])


@rule("upsample_bilinear", "upsample-bilinear-matmul")
def upsample_bilinear(context: Context) -> Tensor | Result:
    """A product with an interpolation matrix along the height and one along the width."""
    attrs = context.node.attrs
    *_, height, width = context.node.shape
    return _bilinear(context.inputs[0], height, width, attrs["align_corners"])
