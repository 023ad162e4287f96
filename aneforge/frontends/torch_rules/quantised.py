"""Quantised models: stored codes stay stored codes, and a quantised activation is its own rounding."""

from __future__ import annotations

from typing import Any

import numpy as np

from aneforge.frontends import LoadError
from aneforge.frontends.torch_rules.node import Node, Rule
from aneforge.frontends.torch_rules.values import numeric, scalar, scaled, shifted
from aneforge.graph.encoding import Encoded
from aneforge.graph.tensor import Tensor

__all__ = ["RULES"]


def _dequantise(node: Node, codes: Any, scale: Any, zero: Any, low: Any, high: Any, *_: Any) -> Any:
    """(code - zero point) * scale."""
    factor, offset = scalar(scale), scalar(zero)
    if factor is None or offset is None:
        if isinstance(codes, Tensor) or isinstance(scale, Tensor) or isinstance(zero, Tensor):
            raise LoadError("a scale or a zero point that the graph computes")
        factor, offset = float(np.asarray(scale).reshape(-1)[0]), float(np.asarray(zero).reshape(-1)[0])
    if not isinstance(codes, Tensor):
        return Encoded.affine(codes, factor, int(offset), bits=_bits(low, high))
    return scaled(shifted(numeric(codes), -offset), factor)


def _bits(low: Any, high: Any) -> int:
    """Four-bit weights come as bytes within a range of sixteen."""
    return 4 if int(high) - int(low) < 16 else 8


def _dequantise_channels(
    node: Node, codes: Any, scale: Any, zero: Any, axis: int, low: Any, high: Any, *_: Any
) -> Any:
    if any(isinstance(each, Tensor) for each in (codes, scale, zero)):
        raise LoadError("quantised by channel, but not a stored weight")
    points = None if zero is None or not np.any(zero) else np.asarray(zero)
    return Encoded.affine(codes, np.asarray(scale), points, axis=int(axis), bits=_bits(low, high))


def _dequantise_groups(node: Node, codes: Any, scale: Any, zero: Any, low: Any, high: Any, *_: Any) -> Any:
    """One scale for each group of neighbours along the last axis."""
    if any(isinstance(each, Tensor) for each in (codes, scale, zero)):
        raise LoadError("quantised by group, but not a stored weight")
    points = None if zero is None or not np.any(zero) else np.asarray(zero).reshape(np.shape(scale))
    return Encoded.blockwise(codes, np.asarray(scale), points, bits=_bits(low, high))


def _quantise(node: Node, x: Any, scale: Any, zero: Any, low: Any, high: Any, *_: Any) -> Tensor:
    """Codes as numbers: fp16 holds every whole number up to 2048."""
    factor, offset = scalar(scale), scalar(zero)
    if factor is None or offset is None:
        raise LoadError("a scale or a zero point that the graph computes")
    return shifted(scaled(numeric(x), 1 / factor).round(), offset).clip(float(low), float(high))


def _fake_quantise(node: Node, x: Any, scale: Any, zero: Any, low: Any, high: Any) -> Tensor:
    factor, offset = scalar(scale), scalar(zero)
    if factor is None or offset is None:
        raise LoadError("a scale or a zero point that the graph computes")
    return scaled(shifted(_quantise(node, x, factor, offset, low, high), -offset), factor)


RULES: dict[str, Rule] = {
    "quantized_decomposed.dequantize_per_channel": _dequantise_channels,
    "quantized_decomposed.dequantize_per_channel_group": _dequantise_groups,
    "quantized_decomposed.dequantize_per_tensor": _dequantise,
    "quantized_decomposed.quantize_per_tensor": _quantise,
    "fake_quantize_per_tensor_affine": _fake_quantise,
}
ENCODES = frozenset(name for name in RULES if "dequantize" in name)
"""Rules that see their node even when everything is known, so that the weight keeps its codes."""
