"""Layers whose weights can be trained: a convolution as windows and one product, group norm from primitives."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from aneforge.errors import GraphError
from aneforge.graph.node import Node, definition, entry, make
from aneforge.graph.ops.contraction import matmul, pads, taps
from aneforge.graph.ops.leaf import parameter
from aneforge.graph.ops.shape import concat
from aneforge.graph.ops.spatial import max_pool
from aneforge.graph.shapes import extent, positive

if TYPE_CHECKING:
    from aneforge.graph.tensor import Tensor


@entry
def conv_param(weight_init: Any, name: str | None = None) -> Tensor:
    """A trainable convolution weight, stored as the matrix [Cin*kH*kW, Cout]."""
    array = np.asarray(weight_init, dtype=np.float64)
    if array.ndim != 4:
        raise GraphError(f"conv_param: takes [Cout, Cin, kH, kW], not {list(array.shape)}")
    matrix = array.transpose(1, 2, 3, 0).reshape(-1, array.shape[0])
    return parameter(matrix, name=name, kernel=array.shape[1:])


@entry
def conv2d(x: Tensor, weight: Tensor, stride: int = 1, pad: Any = 0, windows: str = "slices") -> Tensor:
    """A trainable convolution: windows of the input and one product, so that the weight has a gradient.

    ``windows`` is how they are laid out (im2col). ``"slices"`` takes a slice for each place of the kernel, as existing
    training code does; slices that start inside the last axis clamp at 4094 on some chips (N18), forward and, behind
    padding, backward. ``"kernel"`` convolves with a stored kernel of ones, and has no such slice in either direction.
    Both give the same numbers where nothing clamps, but for the order in which gradients of the input are added.
    """
    kernel = weight.attrs.get("kernel") if isinstance(weight, Node) else None
    if kernel is None:
        raise GraphError("conv2d: the weight comes from conv_param(); for a stored kernel use conv()")
    if windows not in _WINDOWS:
        raise GraphError(f"conv2d: windows {windows!r} is unknown; choose one: {', '.join(_WINDOWS)}")
    channels, kh, kw = kernel
    if x.ndim != 4 or x.shape[1] != channels:
        raise GraphError(f"conv2d: takes [N, {channels}, H, W], not {list(x.shape)}")
    step = positive(stride, "stride")
    top, bottom, left, right = pads(pad)
    height, width = x.shape[2] + top + bottom, x.shape[3] + left + right
    if height < kh or width < kw:
        raise GraphError(f"conv2d: a window of {kh} x {kw} does not fit {height} x {width}")
    rows, columns = (height - kh) // step + 1, (width - kw) // step + 1
    laid = _WINDOWS[windows](x, (kh, kw), step, (top, bottom, left, right), (rows, columns))
    product = matmul(weight.mT, laid.reshape(x.shape[0], channels * kh * kw, rows * columns))
    return product.reshape(x.shape[0], weight.shape[1], rows, columns)


def _by_slices(x: Tensor, kernel: tuple[int, int], step: int, pad: tuple[int, ...], out: tuple[int, int]) -> Tensor:
    top, bottom, left, right = pad
    padded = x.pad(((0, 0), (0, 0), (top, bottom), (left, right))) if any(pad) else x
    n, channels = x.shape[:2]
    rows, columns = out

    def tap(i: int, j: int) -> Tensor:
        if step == 1:
            return padded.slice_by_size([0, 0, i, j], [n, channels, rows, columns])
        return padded[:, :, i : i + (rows - 1) * step + 1 : step, j : j + (columns - 1) * step + 1 : step]

    parts = [tap(i, j).reshape(n, channels, 1, rows * columns) for i in range(kernel[0]) for j in range(kernel[1])]
    return concat(parts, axis=2) if len(parts) > 1 else parts[0]


def _by_kernel(x: Tensor, kernel: tuple[int, int], step: int, pad: tuple[int, ...], out: tuple[int, int]) -> Tensor:
    channels = x.shape[1]
    settings = {"stride": (step, step), "pad": pad, "dilation": (1, 1), "groups": channels}
    return make(definition("conv"), (x, taps(channels, kernel)), settings)


_WINDOWS: dict[str, Callable[..., Any]] = {"slices": _by_slices, "kernel": _by_kernel}


@entry
def group_norm_train(x: Tensor, gamma: Tensor, beta: Tensor, groups: int, eps: float = 1e-5) -> Tensor:
    """Group norm from primitives, any batch; gamma and beta are [1, C, 1, 1] and trainable."""
    n, channels, height, width = x.shape
    if channels % positive(groups, "groups"):
        raise GraphError(
            f"group_norm_train: channels {channels} are not divisible by {groups} groups; groups must divide them"
        )
    folded = x.reshape(n, groups, (channels // groups) * height * width)
    centred = folded - folded.mean(2)
    normal = centred * centred.square().mean(2).rsqrt(eps)
    return normal.reshape(x.shape) * gamma + beta


@entry
def conv_block(
    x: Tensor, conv_w: Tensor, gamma: Tensor, beta: Tensor, groups: int, pool: int = 0, windows: str = "slices"
) -> Tensor:
    """Trainable convolution, group norm, relu, and max pooling when ``pool`` is not zero."""
    result = group_norm_train(conv2d(x, conv_w, pad=1, windows=windows), gamma, beta, groups).relu()
    return max_pool(result, pool) if extent(pool, "pool") else result
