"""Matrix products, attention and convolutions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from aneforge.frontends import LoadError
from aneforge.frontends.forms import (
    convolution,
    linear,
    matmul,
    same_pads,
    scaled,
    transposed_convolution,
)
from aneforge.frontends.forms.attention import attention, causal_mask
from aneforge.frontends.pytorch.node import Node, Rule, graph_shape
from aneforge.frontends.pytorch.values import numeric, pair_of
from aneforge.graph.encoding import Encoded
from aneforge.graph.tensor import Tensor


def stored(value: Any) -> Any:
    """Return a weight; a known one stays an array, so that it is stored and not computed."""
    if value is None or isinstance(value, (Tensor, Encoded)):
        return value
    return np.asarray(value) if np.asarray(value).dtype.kind == "f" else np.asarray(value, np.float64)


def _product(a: Any, b: Any) -> Tensor:
    left, right = stored(a), stored(b)
    if (left.ndim if hasattr(left, "ndim") else 0) == 1 and right.ndim == 1:
        return (numeric(a) * numeric(b)).sum((0,))
    return matmul(numeric(a) if isinstance(a, Tensor) else left, numeric(b) if isinstance(b, Tensor) else right)


def _linear(node: Node, x: Any, weight: Any, bias: Any = None) -> Tensor:
    tensor = numeric(x)
    if tensor.ndim == 1:
        return linear(tensor.reshape(1, tensor.shape[0]), stored(weight), stored(bias)).reshape(
            *graph_shape(node.shape)
        )
    return linear(tensor, stored(weight), stored(bias))


def _add_product(node: Node, x: Any, a: Any, b: Any, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """Return beta * x + alpha * a @ b; with a known matrix and a known bias it is one linear op."""
    input_factor, product_factor = float(node.options.get("beta", beta)), float(node.options.get("alpha", alpha))
    weight, bias = stored(b), stored(x)
    if (
        input_factor == product_factor == 1.0
        and not isinstance(weight, Tensor)
        and isinstance(a, Tensor)
        and weight.ndim == 2
    ):
        line = isinstance(bias, np.ndarray) and bias.shape == (weight.shape[1],)
        if line:
            return linear(numeric(a), weight.T, bias)
    product = scaled(_product(a, b), product_factor)
    return product if input_factor == 0.0 else scaled(numeric(x), input_factor) + product


def _outer(node: Node, a: Any, b: Any) -> Tensor:
    left, right = numeric(a), numeric(b)
    return left.reshape(left.size, 1) * right.reshape(1, right.size)


def _bilinear(node: Node, a: Any, b: Any, weight: Any, bias: Any = None) -> Tensor:
    """Return out[k] = a' W[k] b."""
    left, right, cube = numeric(a), numeric(b), numeric(weight)
    rows = left.reshape(-1, left.shape[-1]), right.reshape(-1, right.shape[-1])
    mixed = rows[0] @ cube.transpose([1, 0, 2]).reshape(cube.shape[1], -1)
    lines = mixed.reshape(rows[0].shape[0], cube.shape[0], cube.shape[2])
    result = (
        (lines * rows[1].reshape(rows[1].shape[0], 1, rows[1].shape[1])).sum((2,)).reshape(*graph_shape(node.shape))
    )
    return result if bias is None else result + numeric(bias)


def _distance(node: Node, a: Any, b: Any, p: Any = 2.0, *_: Any) -> Tensor:
    """Return the distance between every row of a and every row of b."""
    left, right = numeric(a), numeric(b)
    gap = left.reshape(*left.shape[:-1], 1, left.shape[-1]) - right.reshape(*right.shape[:-2], 1, *right.shape[-2:])
    last, power = (gap.ndim - 1,), float(p)
    if power == 2.0:
        distance = gap.sum_square(last).sqrt()
    elif power == 1.0:
        distance = gap.l1_norm(last)
    elif power == math.inf:
        distance = gap.abs().amax(last)
    else:
        raise LoadError(f"p {power:g} is not supported; choose one: 1, 2, inf")
    return distance.reshape(*graph_shape(node.shape))


# Attention.


def _attention(
    node: Node,
    q: Any,
    k: Any,
    v: Any,
    mask: Any = None,
    dropout: Any = 0.0,
    causal: bool = False,
) -> Tensor:
    """The fused layer is used where it fits (one sample, one plane of mask); otherwise separate ops."""
    if float(dropout or 0.0) > 0:
        raise LoadError("training mode drops elements at random; use module.eval() before exporting")
    query, key, value = numeric(q), numeric(k), numeric(v)
    scale, queries, keys = node.options.get("scale"), query.shape[-2], key.shape[-2]
    if causal and queries != keys:  # PyTorch aligns the mask with the first query and the first key
        mask, causal = causal_mask(queries, keys), False
    return attention(query, key, value, scale=None if scale is None else float(scale), mask=mask, causal=causal)


def _fused_attention(node: Node, q: Any, k: Any, v: Any, dropout: Any = 0.0, causal: bool = False) -> list[Any]:
    """The op of the CPU decomposition; its second result is for training."""
    mask = node.options.get("attn_mask")
    return [_attention(node, q, k, v, mask, dropout, causal), None]


# Convolutions.


def _pads(padding: Any, x: Tensor, size: Sequence[int], stride: Any, dilation: Any) -> list[tuple[int, int]]:
    rank = len(size)
    if padding == "valid":
        return [(0, 0)] * rank
    if padding == "same":
        return same_pads(x.shape[2:], size, [1] * rank, pair_of(dilation, rank))
    return [(width, width) for width in pair_of(padding, rank)]


def _with_batch(x: Any, rank: int) -> tuple[Tensor, bool]:
    """Add the batch axis that PyTorch allows to leave out; also return whether it was missing."""
    image = numeric(x)
    return (image.reshape(1, *image.shape), True) if image.ndim == rank + 1 else (image, False)


def _convolve(
    node: Node, x: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, *rest: Any
) -> Tensor:
    kernel = stored(weight)
    rank = kernel.ndim - 2
    image, single = _with_batch(x, rank)
    result = convolution(
        image,
        kernel,
        stored(bias),
        stride=pair_of(stride, rank),
        pads=_pads(padding, image, kernel.shape[2:], stride, dilation),
        dilation=pair_of(dilation, rank),
        groups=int(rest[0]) if rest else 1,
    )
    return result.reshape(*result.shape[1:]) if single else result


def _convolve_transposed(
    node: Node,
    x: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Tensor:
    kernel = stored(weight)
    rank = kernel.ndim - 2
    image, single = _with_batch(x, rank)
    result = transposed_convolution(
        image,
        kernel,
        stored(bias),
        stride=pair_of(stride, rank),
        pads=[(width, width) for width in pair_of(padding, rank)],
        dilation=pair_of(dilation, rank),
        groups=int(groups),
        output_padding=pair_of(output_padding, rank),
    )
    return result.reshape(*result.shape[1:]) if single else result


def _convolution(
    node: Node,
    x: Any,
    weight: Any,
    bias: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
) -> Tensor:
    if transposed:
        return _convolve_transposed(node, x, weight, bias, stride, padding, output_padding, groups, dilation)
    return _convolve(node, x, weight, bias, stride, padding, dilation, groups)


RULES: dict[str, Rule] = {
    **dict.fromkeys(("addmm", "addmv", "baddbmm"), _add_product),
    **dict.fromkeys(("conv1d", "conv2d", "conv3d"), _convolve),
    **dict.fromkeys(("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), _convolve_transposed),
    **dict.fromkeys(("outer", "ger"), _outer),
    **dict.fromkeys(("_cdist_forward", "cdist"), _distance),
    "_scaled_dot_product_flash_attention_for_cpu": _fused_attention,
    "bilinear": _bilinear,
    "convolution": _convolution,
    "linear": _linear,
    "scaled_dot_product_attention": _attention,
}
