"""Convolutions, matrix products and attention."""

from __future__ import annotations

import numpy as np

from aneforge.frontends import LoadError
from aneforge.frontends.forms import (
    convolution,
    einsum,
    linear,
    matmul,
    same_pads,
    transposed_convolution,
)
from aneforge.frontends.forms.attention import attention as of_heads
from aneforge.frontends.importer.op import Op, Rule
from aneforge.frontends.values import Value, as_tensor
from aneforge.graph.encoding import Encoded
from aneforge.graph.tensor import Tensor

__all__ = ["RULES", "attention", "window_pads"]

_PAD_TYPES = ("valid", "custom", "same", "same_lower")


def window_pads(
    op: Op, extents: tuple[int, ...], size: tuple[int, ...], stride: list[int], dilation: list[int]
) -> list[tuple[int, int]]:
    """The zeros before and after each spatial axis, by the four padding types of MIL."""
    mode = op.text("pad_type", "valid")
    if mode == "valid":
        return [(0, 0)] * len(size)
    if mode == "custom":
        pad = op.numbers("pad", [0] * 2 * len(size))
        return list(zip(pad[::2], pad[1::2], strict=True))
    if mode in ("same", "same_lower"):
        return same_pads(extents, size, stride, dilation, lower=mode == "same_lower")
    raise LoadError(f"pad_type is {mode!r}; choose one: {', '.join(_PAD_TYPES)}")


def _conv(op: Op) -> Tensor:
    x, weight = op.tensor(), op.value("weight")
    rank = x.ndim - 2
    stride, dilation = op.numbers("strides", [1] * rank), op.numbers("dilations", [1] * rank)
    pads = window_pads(op, x.shape[2:], tuple(weight.shape[2:]), stride, dilation)
    return convolution(
        x,
        weight,
        op.optional("bias"),
        stride=stride,
        pads=pads,
        dilation=dilation,
        groups=op.whole("groups", 1),
    )


def _conv_transpose(op: Op) -> Tensor:
    x, weight = op.tensor(), op.value("weight")
    rank = x.ndim - 2
    stride, dilation = op.numbers("strides", [1] * rank), op.numbers("dilations", [1] * rank)
    uncut = [(x.shape[2 + i] - 1) * stride[i] + dilation[i] * (weight.shape[2 + i] - 1) + 1 for i in range(rank)]
    mode = op.text("pad_type", "valid")
    stated_shape = op.numbers("output_shape")[-rank:] if op.has("output_shape") else None
    if mode == "custom":
        pad = op.numbers("pad", [0] * 2 * rank)
        cut = list(zip(pad[::2], pad[1::2], strict=True))
        if stated_shape is not None:
            cut = [(before, uncut[i] - stated_shape[i] - before) for i, (before, _) in enumerate(cut)]
    elif mode == "valid" and stated_shape is None:
        cut = [(0, 0)] * rank
    elif mode in ("same", "same_lower", "valid"):
        target = stated_shape or [x.shape[2 + i] * stride[i] for i in range(rank)]
        total = [uncut[i] - target[i] for i in range(rank)]
        if mode == "valid":
            cut = [(0, excess) for excess in total]
        else:
            before = [max(0, -(-excess // 2) if mode == "same_lower" else excess // 2) for excess in total]
            cut = [(start, excess - start) for start, excess in zip(before, total, strict=True)]
    else:
        raise LoadError(f"pad_type is {mode!r}; choose one: {', '.join(_PAD_TYPES)}")
    return transposed_convolution(
        x, weight, op.optional("bias"), stride=stride, pads=cut, dilation=dilation, groups=op.whole("groups", 1)
    )


def _linear(op: Op) -> Tensor:
    return linear(op.tensor(), op.value("weight"), op.optional("bias"))


def _swap_last_axes(value: Value) -> Value:
    """Swap the last two axes; a known weight stays known."""
    if isinstance(value, Tensor):
        return value.mT
    if isinstance(value, Encoded):
        order = list(range(value.ndim))
        return value.transpose([*order[:-2], order[-1], order[-2]])
    return value.swapaxes(-1, -2)


def _matmul(op: Op) -> Tensor:
    x, y = op.value("x"), op.value("y")
    x = _swap_last_axes(x) if op.truth("transpose_x") and x.ndim > 1 else x
    y = _swap_last_axes(y) if op.truth("transpose_y") and y.ndim > 1 else y
    return matmul(x, y)


def _einsum(op: Op) -> Tensor:
    return einsum(op.text("equation"), [as_tensor(value) for value in op.values("values")])


def attention(q: Tensor, k: Tensor, v: Tensor, mask: Value | None) -> Tensor:
    """The mask may hold integers; numbers other than zero count."""
    is_integer = isinstance(mask, np.ndarray) and mask.dtype.kind in "iu"
    return of_heads(q, k, v, mask=np.asarray(mask) != 0 if is_integer else mask)


def _attention(op: Op) -> Tensor:
    return attention(op.tensor("query"), op.tensor("key"), op.tensor("value"), op.optional("attn_mask"))


RULES: dict[str, Rule] = {
    "conv": _conv,
    "conv_transpose": _conv_transpose,
    "einsum": _einsum,
    "linear": _linear,
    "matmul": _matmul,
    "scaled_dot_product_attention": _attention,
}
