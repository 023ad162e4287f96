"""Convolutions and pools over the spatial axes, as far as ONNX has rules of its own for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from aneforge.frontends import forms
from aneforge.frontends.ops.products import pads_by_type
from aneforge.frontends.values import Numeric, Value
from aneforge.graph.tensor import Tensor


def _transposed_convolution(
    x: Numeric,
    weight: Value,
    bias: Value | None = None,
    strides: list[int] | None = None,
    pad_type: str = "custom",
    pad: list[int] | None = None,
    dilations: list[int] | None = None,
    groups: int = 1,
    output_padding: list[int] | None = None,
    output_shape: list[int] | None = None,
) -> Tensor:
    """What is cut off follows from output_shape if that is given."""
    size, rank = weight.shape[2:], weight.ndim - 2
    stride, dilation, more = strides or [1] * rank, dilations or [1] * rank, output_padding or [0] * rank
    if output_shape is None and pad_type in ("custom", "valid"):
        cuts = pads_by_type(pad_type, pad, x.shape[2:], size, stride)
    else:
        target = [x.shape[2 + i] * stride[i] for i in range(rank)] if output_shape is None else output_shape[-rank:]
        cuts = _cuts(x.shape[2:], size, stride, dilation, more, target, lower=pad_type != "same")
    return forms.transposed_convolution(
        x, weight, bias, stride=stride, pads=cuts, dilation=dilation, groups=groups, output_padding=more
    )


def _cuts(
    extent: Sequence[int],
    size: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    more: Sequence[int],
    target: Sequence[int],
    lower: bool,
) -> list[tuple[int, int]]:
    cuts = []
    for i, length in enumerate(extent):
        total = stride[i] * (length - 1) + more[i] + (size[i] - 1) * dilation[i] + 1 - target[i]
        half = total // 2
        cuts.append((total - half, half) if lower else (half, total - half))
    return cuts


def _col2im(
    x: Numeric,
    image_shape: list[int],
    block_shape: list[int],
    strides: list[int] | None = None,
    pad: list[int] | None = None,
    dilations: list[int] | None = None,
) -> Tensor:
    pads = pads_by_type("custom", pad, image_shape, block_shape, strides or [])
    return forms.fold_columns(x, image_shape, block_shape, stride=strides, pads=pads, dilation=dilations)


def _depth_to_space(x: Numeric, blocksize: int, mode: str = "DCR") -> Tensor:
    return forms.depth_to_space(x, blocksize, mode)


def _space_to_depth(x: Numeric, blocksize: int, mode: str = "DCR") -> Tensor:
    return forms.space_to_depth(x, blocksize, mode)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "blocks_to_space": _depth_to_space,
    "col2im": _col2im,
    "space_to_blocks": _space_to_depth,
    "transposed_convolution": _transposed_convolution,
}
