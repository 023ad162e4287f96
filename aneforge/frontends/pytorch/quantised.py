"""Quantised models: stored codes keep their encoding; activations use the graph's quantise ops."""

from __future__ import annotations

from typing import Any

import numpy as np

from aneforge.frontends import LoadError, forms
from aneforge.frontends.pytorch.node import Node, Rule
from aneforge.frontends.pytorch.values import numeric
from aneforge.graph.encoding import Encoded
from aneforge.graph.tensor import Tensor


def _scale_and_zero(scale: Any, zero: Any) -> tuple[float, int]:
    """Return the one scale and the one zero point of a tensor."""
    if isinstance(scale, Tensor) or isinstance(zero, Tensor):
        raise LoadError("the scale or the zero point is computed; the engine needs fixed values")
    numbers = np.asarray(scale, np.float64), np.asarray(zero, np.float64)
    if numbers[0].size != 1 or numbers[1].size != 1:
        raise LoadError(
            f"{numbers[0].size} scales and {numbers[1].size} zero points are given; quantisation per tensor needs one "
            "of each"
        )
    return float(numbers[0].reshape(-1)[0]), int(numbers[1].reshape(-1)[0])


def _kind(low: Any, high: Any) -> str:
    """Return the type of the codes, from their range."""
    return "int8" if int(low) < 0 else "uint8"


def _dequantise(node: Node, codes: Any, scale: Any, zero: Any, low: Any, high: Any, *_: Any) -> Any:
    """Return (code - zero point) * scale."""
    factor, offset = _scale_and_zero(scale, zero)
    if not isinstance(codes, Tensor):
        return Encoded.affine(codes, factor, offset, bits=_bits(low, high))
    if int(high) - int(low) > 255:
        raise LoadError(f"codes from {int(low)} to {int(high)} are not supported; the engine takes at most 8 bits")
    return forms.dequantised(numeric(codes), factor, offset, _kind(low, high))


def _bits(low: Any, high: Any) -> int:
    """Return the bits of a code; four-bit weights are bytes with a range of 16."""
    return 4 if int(high) - int(low) < 16 else 8


def _dequantise_channels(
    node: Node, codes: Any, scale: Any, zero: Any, axis: int, low: Any, high: Any, *_: Any
) -> Any:
    if any(isinstance(operand, Tensor) for operand in (codes, scale, zero)):
        raise LoadError(
            "quantisation by channel is not supported for a computed tensor; the codes and scales must be stored"
        )
    points = None if zero is None or not np.any(zero) else np.asarray(zero)
    return Encoded.affine(codes, np.asarray(scale), points, axis=int(axis), bits=_bits(low, high))


def _dequantise_groups(node: Node, codes: Any, scale: Any, zero: Any, low: Any, high: Any, *_: Any) -> Any:
    """There is one scale for each group along the last axis."""
    if any(isinstance(operand, Tensor) for operand in (codes, scale, zero)):
        raise LoadError(
            "quantisation by group is not supported for a computed tensor; the codes and scales must be stored"
        )
    points = None if zero is None or not np.any(zero) else np.asarray(zero).reshape(np.shape(scale))
    return Encoded.blockwise(codes, np.asarray(scale), points, bits=_bits(low, high))


def _quantise(node: Node, x: Any, scale: Any, zero: Any, low: Any, high: Any, *_: Any) -> Tensor:
    return forms.quantised(numeric(x), *_scale_and_zero(scale, zero), _kind(low, high), ends=(int(low), int(high)))


def _fake_quantise(node: Node, x: Any, scale: Any, zero: Any, low: Any, high: Any) -> Tensor:
    return forms.fake_quantised(numeric(x), *_scale_and_zero(scale, zero), (int(low), int(high)))


def _fake_quantise_channels(node: Node, x: Any, scale: Any, zero: Any, axis: int, low: Any, high: Any) -> Tensor:
    if isinstance(scale, Tensor) or isinstance(zero, Tensor):
        raise LoadError("the scale or the zero point is computed; the engine needs fixed values")
    ends = (int(low), int(high))
    return forms.fake_quantised(numeric(x), np.asarray(scale), np.asarray(zero), ends, int(axis))


RULES: dict[str, Rule] = {
    "quantized_decomposed.dequantize_per_channel": _dequantise_channels,
    "quantized_decomposed.dequantize_per_channel_group": _dequantise_groups,
    "quantized_decomposed.dequantize_per_tensor": _dequantise,
    "quantized_decomposed.quantize_per_tensor": _quantise,
    "fake_quantize_per_channel_affine": _fake_quantise_channels,
    "fake_quantize_per_tensor_affine": _fake_quantise,
}
ENCODES = frozenset(name for name in RULES if "dequantize" in name)
"""Rules that run even if all operands are known, so that the weight stays encoded."""
