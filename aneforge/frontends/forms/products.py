"""Matrix products by the ranks that NumPy and its followers allow."""

from __future__ import annotations

import numpy as np

from aneforge.frontends.values import NoForm, Value, along_axis, as_tensor
from aneforge.graph import builders as af
from aneforge.graph.encoding import Encoded
from aneforge.graph.tensor import Tensor

__all__ = ["cumulative_sum", "linear", "matmul"]

_LONGEST = 8192
_WIDEST_LINE = 16384  # what every chip takes along the width (limits.json spatial_extent)
_WIDEST_KERNEL = 13  # what every chip takes as a kernel (limits.json conv_kernel_w_fp16)


def matmul(a: Value, b: Value) -> Tensor:
    """A known matrix on the right is a stored weight, whatever the rank on the left."""
    left = as_tensor(a)
    if isinstance(b, (np.ndarray, Encoded)) and b.ndim == 2 and left.ndim > 1:
        return linear(left, b.T)
    right = as_tensor(b)
    if left.ndim == 1 and right.ndim == 1:
        return (left * right).sum((0,))
    if left.ndim == 1:
        found = left.reshape(1, left.shape[0]) @ right
        return found.squeeze([found.ndim - 2])
    if right.ndim == 1:
        found = left @ right.reshape(right.shape[0], 1)
        return found.squeeze([found.ndim - 1])
    return left @ right


def linear(x: Tensor, weight: Value, bias: Value | None = None) -> Tensor:
    """x @ weight.T + bias, with a weight [out, in]; a volume as rows, since products take at most rank 4."""
    if isinstance(bias, np.ndarray) and not bias.any():
        bias = None  # some formats always write one; the accumulators start at zero
    image = _flattened_image(x)
    if image is not None and isinstance(weight, np.ndarray) and (bias is None or isinstance(bias, np.ndarray)):
        kernel = weight.reshape(weight.shape[0], *image.shape[1:])
        return af.conv(image, kernel, bias=bias).reshape(x.shape[0], weight.shape[0])
    rows = x if x.ndim < 5 else x.reshape(-1, x.shape[-1])
    if isinstance(weight, Tensor):
        found = rows @ weight.transpose([1, 0])
        found = found if bias is None else found + as_tensor(bias)
    elif isinstance(bias, Tensor):
        found = rows.linear(weight) + bias
    else:
        found = rows.linear(weight, bias)
    return found if x.ndim < 5 else found.reshape(*x.shape[:-1], weight.shape[0])


def _flattened_image(x: Tensor) -> Tensor | None:
    """The image behind a line that is longer than some chips' widths: a product with it is a convolution of the whole
    image with a kernel as large, whose sums are the same."""
    if x.op != "reshape" or x.ndim != 2 or x.shape[1] <= _WIDEST_LINE:
        return None
    image = x.inputs[0]
    if image.ndim != 4 or image.shape[0] != x.shape[0] or max(image.shape[2:]) > _WIDEST_KERNEL:
        return None
    return image


def cumulative_sum(x: Tensor, axis: int, exclusive: bool = False, reverse: bool = False) -> Tensor:
    """A product with a triangle of ones, along the axis; the plain one is an op of the graph, which runs as that."""
    size = x.shape[axis]
    if size > _LONGEST:
        raise NoForm(f"a running sum of {size:,} elements; its triangle of ones is limited to {_LONGEST:,}")
    if not exclusive and not reverse:
        return x.cumsum(axis)
    triangle = np.tril(np.ones((size, size)), -1 if exclusive else 0)
    return along_axis(x, axis, triangle.T if reverse else triangle)
