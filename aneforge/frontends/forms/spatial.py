"""Convolutions and pools over one to three spatial axes, padded on each side as it may be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import aneforge as af
from aneforge.frontends import LoadError
from aneforge.frontends.values import Value, known
from aneforge.graph.encoding import Encoded
from aneforge.graph.tensor import Tensor

__all__ = ["average_pool", "convolution", "max_pool", "same_pads", "transposed_convolution"]

Pads = Sequence[tuple[int, int]]


def same_pads(
    extents: Sequence[int],
    size: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int] | None = None,
    lower: bool = False,
) -> list[tuple[int, int]]:
    """Zeros before and after each axis, so that the result has as many places as strides fit; an odd one goes behind,
    or in front if ``lower``."""
    found = []
    for i, extent in enumerate(extents):
        reach = (1 if dilation is None else dilation[i]) * (size[i] - 1) + 1
        total = max(0, (-(-extent // stride[i]) - 1) * stride[i] + reach - extent)
        small = total // 2
        found.append((total - small, small) if lower else (small, total - small))
    return found


def convolution(
    x: Tensor,
    kernel: Value,
    bias: Value | None = None,
    *,
    stride: Sequence[int] | None = None,
    pads: Pads | None = None,
    dilation: Sequence[int] | None = None,
    groups: int = 1,
) -> Tensor:
    """The kernel is [out, in / groups, ...]; one that the graph computes works over two axes."""
    if isinstance(kernel, Tensor) and kernel.op != "const":
        found = _convolved(af.dynamic_conv, x, kernel, None, stride, pads, dilation, groups)
        return found if bias is None else found + _channels(bias, found.ndim)
    return _convolved(af.conv, x, kernel, bias, stride, pads, dilation, groups)


def transposed_convolution(
    x: Tensor,
    kernel: Value,
    bias: Value | None = None,
    *,
    stride: Sequence[int] | None = None,
    pads: Pads | None = None,
    dilation: Sequence[int] | None = None,
    groups: int = 1,
    output_padding: Sequence[int] | None = None,
) -> Tensor:
    """The kernel is [in, out / groups, ...]."""
    if output_padding is not None and any(output_padding):
        raise LoadError("a transposed convolution with rows added at its end")
    return _convolved(af.conv_transpose, x, kernel, bias, stride, pads, dilation, groups)


def _convolved(
    form: Callable[..., Tensor],
    x: Tensor,
    kernel: Value,
    bias: Value | None,
    stride: Sequence[int] | None,
    pads: Pads | None,
    dilation: Sequence[int] | None,
    groups: int,
) -> Tensor:
    rank = x.ndim - 2
    if rank not in (1, 2):
        raise LoadError(f"a kernel over {rank} spatial axes is not read yet")
    settings: dict[str, Any] = {} if bias is None else {"bias": np.asarray(known(bias, "the bias")).reshape(-1)}
    found = form(
        _planes(x, rank),
        _plane_kernel(kernel, rank),
        stride=_two(stride or [1] * rank),
        pad=_flat(pads or [(0, 0)] * rank),
        dilation=_two(dilation or [1] * rank),
        groups=groups,
        **settings,
    )
    return _back(found, rank)


def _plane_kernel(kernel: Value, rank: int) -> Any:
    if rank != 1:
        return kernel
    if isinstance(kernel, Tensor):
        return kernel.reshape(*kernel.shape[:2], 1, kernel.shape[2])
    return kernel.expand_dims(2) if isinstance(kernel, Encoded) else np.expand_dims(kernel, 2)


def _channels(bias: Value, rank: int) -> Tensor:
    shape = (1, -1, *(1,) * (rank - 2))
    return bias.reshape(*shape) if isinstance(bias, Tensor) else af.const(known(bias, "the bias").reshape(shape))


def max_pool(
    x: Tensor,
    size: Sequence[int],
    *,
    stride: Sequence[int] | None = None,
    pads: Pads | None = None,
    dilation: Sequence[int] | None = None,
    ceil: bool = False,
) -> Tensor:
    if any(each != 1 for each in dilation or ()):
        raise LoadError("dilations of a pool")
    return _pooled(Tensor.max_pool, x, size, stride, pads, ceil, {})


def average_pool(
    x: Tensor,
    size: Sequence[int],
    *,
    stride: Sequence[int] | None = None,
    pads: Pads | None = None,
    ceil: bool = False,
    count_pad: bool = False,
) -> Tensor:
    """``count_pad``: zeros of the padding count as elements."""
    return _pooled(Tensor.avg_pool, x, size, stride, pads, ceil, {"exclude_pad": not count_pad})


def _pooled(
    form: Callable[..., Tensor],
    x: Tensor,
    size: Sequence[int],
    stride: Sequence[int] | None,
    pads: Pads | None,
    ceil: bool,
    settings: dict[str, Any],
) -> Tensor:
    rank = x.ndim - 2
    if rank not in (1, 2):
        raise LoadError(f"a pool over {rank} spatial axes is not read yet")
    found = form(
        _planes(x, rank),
        _two(size),
        stride=_two(stride or [1] * rank),
        pad=_flat(pads or [(0, 0)] * rank),
        ceil_mode=ceil,
        **settings,
    )
    return _back(found, rank)


def _planes(x: Tensor, rank: int) -> Tensor:
    """One spatial axis becomes two, the first of one row."""
    return x.reshape(*x.shape[:2], 1, x.shape[2]) if rank == 1 else x


def _back(x: Tensor, rank: int) -> Tensor:
    return x.squeeze([2]) if rank == 1 else x


def _flat(pads: Pads) -> tuple[int, ...]:
    whole = pads if len(pads) == 2 else [(0, 0), *pads]
    return tuple(int(each) for pair in whole for each in pair)


def _two(values: Sequence[int]) -> tuple[int, int]:
    return (1, int(values[0])) if len(values) == 1 else (int(values[0]), int(values[1]))
