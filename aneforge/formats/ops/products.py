"""Convolutions, matrix products and attention."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from aneforge.errors import LoadError
from aneforge.formats.forms import (
    add_matmul,
    bilinear,
    convolution,
    cumulative_product,
    cumulative_sum,
    dft,
    distances,
    einsum,
    gemm,
    linear,
    matmul,
    outer,
    same_pads,
    stft,
    transposed_convolution,
)
from aneforge.formats.forms.attention import attention as of_heads
from aneforge.formats.values import Value
from aneforge.graph.tensor import Tensor

Pads = list[tuple[int, int]]
_PAD_TYPES = ("valid", "custom", "same", "same_lower")


def pads_by_type(
    pad_type: str,
    pad: Sequence[int] | None,
    extents: Sequence[int],
    size: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int] | None = None,
) -> Pads:
    """The zeros before and after each spatial axis, by the four padding types of MIL. ``pad`` has them in pairs."""
    if pad_type == "valid":
        return [(0, 0)] * len(size)
    if pad_type == "custom":
        flat = pad or [0] * 2 * len(size)
        return list(zip(flat[::2], flat[1::2], strict=True))
    if pad_type in ("same", "same_lower"):
        return same_pads(extents, size, strides, dilations, lower=pad_type == "same_lower")
    raise LoadError(f"pad_type is {pad_type!r}; choose one: {', '.join(_PAD_TYPES)}")


def _conv(
    x: Tensor,
    weight: Value,
    bias: Value | None = None,
    strides: list[int] | None = None,
    pad_type: str = "valid",
    pad: list[int] | None = None,
    dilations: list[int] | None = None,
    groups: int = 1,
) -> Tensor:
    rank = x.ndim - 2
    stride, dilation = strides or [1] * rank, dilations or [1] * rank
    pads = pads_by_type(pad_type, pad, x.shape[2:], weight.shape[2:], stride, dilation)
    return convolution(x, weight, bias, stride=stride, pads=pads, dilation=dilation, groups=groups)


def cut_to(uncut: Sequence[int], target: Sequence[int], lower: bool) -> Pads:
    """What is cut off both ends of a transposed convolution to give ``target``; the larger part at the end, or at the
    start if ``lower``. A result that is too short is made longer at its end."""
    total = [have - want for have, want in zip(uncut, target, strict=True)]
    before = [max(0, -(-excess // 2) if lower else excess // 2) for excess in total]
    return [(start, excess - start) for start, excess in zip(before, total, strict=True)]


def _conv_transpose(
    x: Tensor,
    weight: Value,
    bias: Value | None = None,
    strides: list[int] | None = None,
    pad_type: str = "valid",
    pad: list[int] | None = None,
    dilations: list[int] | None = None,
    groups: int = 1,
    output_shape: list[int] | None = None,
    output_padding: list[int] | None = None,
) -> Tensor:
    """What is cut off follows from ``output_shape`` if that is given."""
    size, rank = weight.shape[2:], weight.ndim - 2
    stride, dilation, more = strides or [1] * rank, dilations or [1] * rank, output_padding or [0] * rank
    wanted = output_shape[-rank:] if output_shape else None
    if pad_type in ("same", "same_lower"):
        wanted = wanted or [extent * step for extent, step in zip(x.shape[2:], stride, strict=True)]
        cut = cut_to(_uncut(x, size, stride, dilation, more), wanted, pad_type == "same_lower")
    else:
        cut = pads_by_type(pad_type, pad, x.shape[2:], size, stride)
        if wanted is not None:
            uncut = _uncut(x, size, stride, dilation, more)
            cut = [(before, uncut[i] - wanted[i] - before) for i, (before, _) in enumerate(cut)]
    return transposed_convolution(
        x, weight, bias, stride=stride, pads=cut, dilation=dilation, groups=groups, output_padding=more
    )


def _uncut(
    x: Tensor, size: Sequence[int], stride: Sequence[int], dilation: Sequence[int], more: Sequence[int]
) -> list[int]:
    """The extents of a transposed convolution of which nothing is cut off."""
    return [
        (extent - 1) * stride[i] + dilation[i] * (size[i] - 1) + 1 + more[i] for i, extent in enumerate(x.shape[2:])
    ]


def _attention(query: Tensor, key: Tensor, value: Tensor, attn_mask: Value | None = None) -> Tensor:
    """The mask may hold integers; numbers other than zero count."""
    is_integer = isinstance(attn_mask, np.ndarray) and attn_mask.dtype.kind in "iu"
    return of_heads(query, key, value, mask=np.asarray(attn_mask) != 0 if is_integer else attn_mask)


OPS: dict[str, Callable[..., object]] = {
    "add_matmul": add_matmul,
    "bilinear": bilinear,
    "conv": _conv,
    "conv_transpose": _conv_transpose,
    "cumprod": cumulative_product,
    "cumsum": cumulative_sum,
    "dft": dft,
    "distances": distances,
    "einsum": einsum,
    "gemm": gemm,
    "linear": linear,
    "matmul": matmul,
    "outer": outer,
    "scaled_dot_product_attention": _attention,
    "stft": stft,
}
