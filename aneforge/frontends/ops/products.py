"""Convolutions, matrix products and attention."""

from __future__ import annotations

import numpy as np

from aneforge.frontends import LoadError
from aneforge.frontends.forms import (
    convolution,
    linear,
    matmul,
    padded,
    same_pads,
    transposed_convolution,
)
from aneforge.frontends.forms.attention import attention as of_heads
from aneforge.frontends.importer.op import Op, Rule
from aneforge.frontends.values import Value, as_tensor
from aneforge.graph import builders as af
from aneforge.graph.encoding import Encoded
from aneforge.graph.ops.leaf import const
from aneforge.graph.tensor import Tensor

__all__ = ["RULES", "attention", "deconvolved", "window_pads"]


def window_pads(
    op: Op, extents: tuple[int, ...], size: tuple[int, ...], stride: list[int], dilation: list[int]
) -> list[tuple[int, int]]:
    """Zeros before and after each spatial axis, by the four ways that MIL has to say it."""
    mode = op.text("pad_type", "valid")
    if mode == "valid":
        return [(0, 0)] * len(size)
    if mode == "custom":
        pad = op.numbers("pad", [0] * 2 * len(size))
        return list(zip(pad[::2], pad[1::2], strict=True))
    if mode in ("same", "same_lower"):
        return same_pads(extents, size, stride, dilation, lower=mode == "same_lower")
    raise LoadError(f"no padding of type {mode!r}")


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


def deconvolved(
    x: Tensor,
    weight: Value,
    bias: Value | None,
    stride: list[int],
    dilation: list[int],
    groups: int,
    cut: list[tuple[int, int]],
) -> Tensor:
    """A transposed convolution with rows cut off each end; a negative cut behind adds rows that only the bias has."""
    if all(after >= 0 for _, after in cut):
        return transposed_convolution(x, weight, bias, stride=stride, pads=cut, dilation=dilation, groups=groups)
    held = [(before, max(0, after)) for before, after in cut]
    bare = transposed_convolution(x, weight, None, stride=stride, pads=held, dilation=dilation, groups=groups)
    found = padded(bare, [(0, 0), (0, 0), *((0, max(0, -after)) for _, after in cut)])
    if bias is None:
        return found
    shape = (1, -1, *(1,) * (x.ndim - 2))
    return found + (bias.reshape(*shape) if isinstance(bias, Tensor) else const(np.asarray(bias).reshape(shape)))


def _conv_transpose(op: Op) -> Tensor:
    x, weight = op.tensor(), op.value("weight")
    rank = x.ndim - 2
    stride, dilation = op.numbers("strides", [1] * rank), op.numbers("dilations", [1] * rank)
    full = [(x.shape[2 + i] - 1) * stride[i] + dilation[i] * (weight.shape[2 + i] - 1) + 1 for i in range(rank)]
    mode = op.text("pad_type", "valid")
    wanted = op.numbers("output_shape")[-rank:] if op.has("output_shape") else None
    if mode == "custom":
        pad = op.numbers("pad", [0] * 2 * rank)
        cut = list(zip(pad[::2], pad[1::2], strict=True))
        if wanted is not None:
            cut = [(before, full[i] - wanted[i] - before) for i, (before, _) in enumerate(cut)]
    elif mode == "valid" and wanted is None:
        cut = [(0, 0)] * rank
    elif mode in ("same", "same_lower", "valid"):
        target = wanted or [x.shape[2 + i] * stride[i] for i in range(rank)]
        total = [full[i] - target[i] for i in range(rank)]
        if mode == "valid":
            cut = [(0, each) for each in total]
        else:
            before = [max(0, -(-each // 2) if mode == "same_lower" else each // 2) for each in total]
            cut = [(first, each - first) for first, each in zip(before, total, strict=True)]
    else:
        raise LoadError(f"no padding of type {mode!r}")
    return deconvolved(x, weight, op.optional("bias"), stride, dilation, op.whole("groups", 1), cut)


def _linear(op: Op) -> Tensor:
    return linear(op.tensor(), op.value("weight"), op.optional("bias"))


def _turned(value: Value) -> Value:
    """The last two axes exchanged; a known weight stays one."""
    if isinstance(value, Tensor):
        return value.mT
    if isinstance(value, Encoded):
        order = list(range(value.ndim))
        return value.transpose([*order[:-2], order[-1], order[-2]])
    return value.swapaxes(-1, -2)


def _matmul(op: Op) -> Tensor:
    x, y = op.value("x"), op.value("y")
    x = _turned(x) if op.truth("transpose_x") and x.ndim > 1 else x
    y = _turned(y) if op.truth("transpose_y") and y.ndim > 1 else y
    return matmul(x, y)


def _einsum(op: Op) -> Tensor:
    return af.einsum(op.text("equation").replace(" ", ""), *(as_tensor(each) for each in op.values("values")))


def attention(q: Tensor, k: Tensor, v: Tensor, mask: Value | None) -> Tensor:
    """The mask may be of whole numbers: what is not zero counts."""
    whole = isinstance(mask, np.ndarray) and mask.dtype.kind in "iu"
    return of_heads(q, k, v, mask=np.asarray(mask) != 0 if whole else mask)


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
