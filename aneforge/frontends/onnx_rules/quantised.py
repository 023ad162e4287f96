"""Quantised models: stored codes keep their encoding, codes of activations are whole numbers that fp16 holds.

A code of 8 bits is exact in fp16, so a quantised activation is a tensor of whole numbers here, and the steps between
codes and numbers are ops of the graph like any other.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from aneforge.frontends import LoadError, forms
from aneforge.frontends.onnx_node import Node, Rule, Value
from aneforge.frontends.onnx_rules.spatial import _settings as window_settings
from aneforge.frontends.values import as_tensor, axis_of, known, number
from aneforge.graph.encoding import Encoded
from aneforge.graph.ops.leaf import const
from aneforge.graph.tensor import Tensor

__all__ = ["CONTRIB", "RULES", "STATIC_RULES"]

Array = np.ndarray
_RANGES = {"int8": (-128, 127), "uint8": (0, 255), "int4": (-8, 7), "uint4": (0, 15), "int2": (-2, 1), "uint2": (0, 3)}


def _bits(codes: Array) -> int:
    """Of a code, from the type that a file gives it."""
    if codes.dtype.name not in _RANGES:
        raise LoadError(f"codes of type {codes.dtype.name}")
    return int("".join(letter for letter in codes.dtype.name if letter.isdigit()))


def _whole(codes: Array) -> Array:
    """Codes in a type that NumPy computes with: sub-byte types come in one of their own."""
    low, _ = _RANGES.get(codes.dtype.name, (0, 0))
    return codes if codes.dtype.kind in "iu" else codes.astype(np.int8 if low < 0 else np.uint8)


def _stored(node: Node, codes: Value, scale: Value, zero: Value | None = None) -> Encoded:
    """A stored weight with its scale: one for all, one for each place along an axis, or one for each block."""
    held, factor = known(codes, "the codes"), known(scale, "the scale")
    if held.ndim < 2 or held.dtype.name not in _RANGES:
        raise LoadError("a number, not a weight")
    return encoded(held, factor, None if zero is None else known(zero, "the zero point"), int(node.attr("axis", 1)))


def encoded(codes: Array, scale: Array, zero: Array | None, axis: int) -> Encoded:
    bits, whole = _bits(codes), _whole(codes)
    shift = None if zero is None or not np.any(zero.astype(np.int64)) else _whole(zero)
    if scale.ndim == whole.ndim and scale.size > 1:
        return Encoded.blockwise(whole, scale, shift, bits)
    return Encoded.affine(whole, scale, shift, axis_of(axis, whole.ndim), bits)


def _along(value: Value | None, x: Tensor, axis: int, what: str) -> Any:
    """A scale or zero point as a number, or as a constant that lies along an axis."""
    if value is None:
        return 0.0
    numbers = known(value, what).astype(np.float64)
    if numbers.size == 1:
        return float(numbers.reshape(-1)[0])
    if numbers.ndim != 1:
        raise LoadError(f"{what} for each block of an activation")
    place = axis_of(axis, x.ndim)
    return const(numbers.reshape([-1 if i == place else 1 for i in range(x.ndim)]))


def dequantised(x: Tensor, scale: Value, zero: Value | None, axis: int = 1) -> Tensor:
    shift = _along(zero, x, axis, "the zero point")
    moved = x - shift if isinstance(shift, Tensor) or shift else x
    return moved * _along(scale, x, axis, "the scale")


def quantised(x: Tensor, scale: Value, zero: Value | None, kind: str, axis: int = 1) -> Tensor:
    """Whole numbers: round(x / scale) + zero point, kept within the type."""
    if kind not in _RANGES:
        raise LoadError(f"activations of type {kind}")
    low, high = _RANGES[kind]
    codes = (x / _along(scale, x, axis, "the scale")).round()
    shift = _along(zero, x, axis, "the zero point")
    return (codes + shift if isinstance(shift, Tensor) or shift else codes).clip(low, high)


def _quantize(node: Node, x: Value, scale: Value, zero: Value | None = None) -> Tensor:
    kind = "uint8" if zero is None else known(zero, "the zero point").dtype.name
    if zero is None and node.attr("output_dtype", 0) not in (0, 2):
        kind = {3: "int8", 21: "uint4", 22: "int4"}.get(int(node.attr("output_dtype")), "another type")
    return quantised(as_tensor(x), scale, zero, kind, int(node.attr("axis", 1)))


def _dequantize(node: Node, x: Value, scale: Value, zero: Value | None = None) -> Tensor:
    if not isinstance(x, Tensor):
        raise LoadError("a stored weight whose scale is computed")
    return dequantised(x, scale, zero, int(node.attr("axis", 1)))


def _kernel(weight: Value, scale: Value, zero: Value, axis: int) -> Encoded:
    held = known(weight, "the kernel")
    return encoded(held, known(scale, "the scale"), known(zero, "the zero point"), axis)


def _linear_conv(
    node: Node,
    x: Value,
    x_scale: Value,
    x_zero: Value,
    weight: Value,
    w_scale: Value,
    w_zero: Value,
    y_scale: Value,
    y_zero: Value,
    bias: Value | None = None,
) -> Tensor:
    """Codes to numbers, the convolution with the kernel as it is stored, numbers to codes."""
    given = dequantised(as_tensor(x), x_scale, x_zero)
    factor = number(x_scale, "the scale") * known(w_scale, "the scale").astype(np.float64).reshape(-1)
    offset = None if bias is None else known(bias, "the bias").astype(np.float64) * factor
    found = forms.convolution(
        given,
        _kernel(weight, w_scale, w_zero, 0),
        offset,
        groups=int(node.attr("group", 1)),
        dilation=node.attr("dilations"),
        **window_settings(node, given, weight.shape[2:]),
    )
    return quantised(found, y_scale, y_zero, known(y_zero, "the zero point").dtype.name)


def _linear_matmul(
    node: Node,
    a: Value,
    a_scale: Value,
    a_zero: Value,
    b: Value,
    b_scale: Value,
    b_zero: Value,
    y_scale: Value,
    y_zero: Value,
) -> Tensor:
    left = dequantised(as_tensor(a), a_scale, a_zero, -2)
    if isinstance(b, Tensor):
        right: Value = dequantised(b, b_scale, b_zero, -1)
    else:
        right = _kernel(b, b_scale, b_zero, -1)
    found = forms.matmul(left, right)
    return quantised(found, y_scale, y_zero, known(y_zero, "the zero point").dtype.name)


def _few_bits(node: Node, a: Value, packed: Value, scales: Value, *more: Value | None) -> Tensor:
    """MatMulNBits: a weight [N, K] of 2, 4 or 8 bits in blocks along K, packed into bytes, low bits first."""
    zeros, groups, bias = (*more, None, None, None)[:3]
    if groups is not None:
        raise LoadError("columns in an order of their own (g_idx)")
    bits, block = int(node.attr("bits", 4)), int(node.attr("block_size"))
    columns, rows = int(node.attr("K")), int(node.attr("N"))
    if bits not in (2, 4, 8):
        raise LoadError(f"codes of {bits} bits")
    count = -(-columns // block)
    codes = _unpacked(known(packed, "the codes"), bits).reshape(rows, -1)[:, : count * block]
    scale = known(scales, "the scales").reshape(rows, count)
    if zeros is None:
        zero: Array = np.full((rows, count), 1 << (bits - 1), np.uint8)
    elif known(zeros, "the zero points").dtype == np.uint8:
        zero = _unpacked(known(zeros, "the zero points").reshape(rows, -1), bits).reshape(rows, -1)[:, :count]
    else:
        raise LoadError("zero points that are not whole numbers")
    if columns != count * block:
        raise LoadError(f"{columns} columns in blocks of {block}, the last not full")
    weight = Encoded.blockwise(codes, scale, zero, bits)
    return forms.linear(as_tensor(a), weight, None if bias is None else known(bias, "the bias"))


def _unpacked(packed: Array, bits: int) -> Array:
    """Bytes as codes, the low bits first."""
    if bits == 8:
        return packed
    mask = (1 << bits) - 1
    places = [(packed >> np.uint8(shift)) & np.uint8(mask) for shift in range(0, 8, bits)]
    return np.stack(places, -1).reshape(*packed.shape[:-1], -1)


def _turned(node: Node, x: Value) -> Encoded:
    if not isinstance(x, Encoded):
        raise LoadError("a plain array")
    return x.transpose(list(node.attr("perm", range(x.ndim)[::-1])))


STATIC_RULES: dict[str, Rule] = {
    "DequantizeLinear": _stored,
    "Transpose": _turned,
}
"""For nodes whose inputs are all known: they keep the form in which a weight is stored."""


RULES: dict[str, Rule] = {
    "DequantizeLinear": _dequantize,
    "QLinearConv": _linear_conv,
    "QLinearMatMul": _linear_matmul,
    "QuantizeLinear": _quantize,
}

CONTRIB: dict[str, Rule] = {
    "DequantizeLinear": _dequantize,
    "MatMulNBits": _few_bits,
    "QuantizeLinear": _quantize,
}
