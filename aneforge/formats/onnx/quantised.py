"""Quantised models: stored codes keep their encoding; activations use the graph's quantise ops.

An 8-bit code is exact in fp16, so a tensor of codes is a tensor of integers in the graph. Ops that move or select
elements read it directly; ops that compute dequantise it first (``forms.quantised``).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aneforge.errors import LoadError
from aneforge.formats import forms
from aneforge.formats.onnx.node import OnnxNode
from aneforge.formats.ops.compressed import along_axis
from aneforge.formats.values import Array, NoForm, Value, as_tensor, axis_of, known, number
from aneforge.graph.encoding import Encoded
from aneforge.graph.tensor import Tensor

_CODES = ("int8", "uint8", "int4", "uint4", "int2", "uint2")


def _bits(codes: Array) -> int:
    """Return the bits of a code, from its type in the file."""
    if codes.dtype.name not in _CODES:
        raise NoForm(f"codes of type {codes.dtype.name} are not supported; choose one: {', '.join(_CODES)}")
    return int("".join(letter for letter in codes.dtype.name if letter.isdigit()))


def _as_integers(codes: Array) -> Array:
    """Return codes in an integer type of NumPy; sub-byte types have their own type in the file."""
    low, _ = forms.range_of(codes.dtype.name) if codes.dtype.name in _CODES else (0, 0)
    return codes if codes.dtype.kind in "iu" else codes.astype(np.int8 if low < 0 else np.uint8)


# Known values.


def dequantize_stored(codes: Array, scale: Array, zero_point: Array | None = None, axis: int = 1) -> Encoded | Array:
    """Encode a stored weight. The scale is one number, one for each position along an axis, or one for each block.

    A vector of integers is a bias, stored as int32 with the scale of the sums it is added to. It is decoded, since the
    engine adds it as numbers.
    """
    if codes.dtype.name in _CODES and codes.ndim > 1:
        return encoded(codes, scale, zero_point, axis)
    if codes.dtype.kind not in "iu" and codes.dtype.name not in _CODES:
        raise NoForm(f"codes of type {codes.dtype.name} are not supported; they must be integers")
    numbers = _as_integers(codes).astype(np.float64)
    numbers = numbers if zero_point is None else numbers - _align(_as_integers(zero_point), codes, axis)
    return np.asarray(numbers * _align(scale, codes, axis), np.float32)  # of one number NumPy gives no array


def _align(values: Array, codes: Array, axis: int) -> Array:
    """Return a scale or zero point in a shape that broadcasts to the codes."""
    if values.size == 1 or values.ndim == 1:
        return along_axis(values, axis if codes.ndim > 1 else 0, codes.ndim)
    numbers = values.astype(np.float64)
    for place, (count, extent) in enumerate(zip(numbers.shape, codes.shape, strict=True)):
        numbers = np.repeat(numbers, extent // max(count, 1), place) if count != extent else numbers
    return numbers


def quantize_stored(
    x: Array, scale: Array, zero_point: Array | None = None, axis: int = 1, output_dtype: int = 0
) -> Array:
    """Quantise a known weight while the file is read. ONNX rounds ties to even."""
    weight, kind = x.astype(np.float64), _kind(output_dtype, zero_point)
    low, high = forms.range_of(kind)
    codes = np.rint(weight / _align(scale, weight, axis))
    codes = codes if zero_point is None else codes + _align(_as_integers(zero_point), weight, axis)
    return np.asarray(np.clip(codes, low, high), kind if zero_point is None else zero_point.dtype)


def encoded(codes: Array, scale: Array, zero: Array | None, axis: int) -> Encoded:
    bits, integers = _bits(codes), _as_integers(codes)
    shift = None if zero is None or not np.any(zero.astype(np.int64)) else _as_integers(zero)
    if scale.ndim == integers.ndim and scale.size > 1:
        return Encoded.blockwise(integers, scale, shift, bits)
    return Encoded.affine(integers, scale, shift, axis_of(axis, integers.ndim), bits)


# Activations.


def _kind(stated: int, zero: Value | None) -> str:
    """Return the type of the codes: that of the zero point, or output_dtype."""
    if zero is not None:
        return known(zero, "the zero point").dtype.name
    return {0: "uint8", 2: "uint8", 3: "int8", 21: "uint4", 22: "int4"}.get(stated, f"type {stated} of TensorProto")


def dequantised(x: Value | None, scale: Value | None, zero: Value | None, axis: int = 1) -> Tensor:
    factor = known(scale, "the scale")
    if zero is None:
        return forms.dequantised(as_tensor(x), factor, None, "", axis)
    offset = known(zero, "the zero point")
    return forms.dequantised(as_tensor(x), factor, _as_integers(offset), offset.dtype.name, axis)


def quantised(x: Tensor, scale: Value | None, zero: Value | None, kind: str, axis: int = 1) -> Tensor:
    offset = None if zero is None else _as_integers(known(zero, "the zero point"))
    return forms.quantised(x, known(scale, "the scale"), offset, kind, axis)


def _quantise_like(x: Tensor, scale: Value | None, zero: Value | None) -> Tensor:
    return quantised(x, scale, zero, "uint8" if zero is None else known(zero, "the zero point").dtype.name)


def quantize_linear(
    x: Tensor, scale: Value, zero_point: Value | None = None, axis: int = 1, output_dtype: int = 0
) -> Tensor:
    return quantised(x, scale, zero_point, _kind(output_dtype, zero_point), axis)


def dequantize_linear(x: Value, scale: Value, zero_point: Value | None = None, axis: int = 1) -> Tensor:
    if not isinstance(x, Tensor):
        raise NoForm("the scale of a stored weight is computed; the engine needs a fixed value")
    return dequantised(x, scale, zero_point, axis)


def _encode_kernel(weight: Value | None, scale: Value | None, zero: Value | None, axis: int) -> Encoded:
    codes = known(weight, "the kernel")
    return encoded(codes, known(scale, "the scale"), None if zero is None else known(zero, "the zero point"), axis)


def _decode_bias(bias: Value | None, *scales: Value | None) -> Array | None:
    """Decode an integer bias; its scale is the product of the scales."""
    if bias is None:
        return None
    factor = np.ones(1)
    for scale in scales:
        factor = factor * known(scale, "the scale").astype(np.float64).reshape(-1)
    return known(bias, "the bias").astype(np.float64).reshape(-1) * factor


def qlinear_conv(node: OnnxNode) -> Tensor:
    """Dequantise, convolve with the encoded kernel, quantise."""
    x, x_scale, x_zero, weight, w_scale, w_zero, y_scale, y_zero, *bias = node.inputs
    image, kernel = dequantised(x, x_scale, x_zero), _encode_kernel(weight, w_scale, w_zero, 0)
    shift = _decode_bias(bias[0] if bias else None, x_scale, w_scale)
    return _quantise_like(node.result_of("Conv", [image, kernel, shift], node.attrs), y_scale, y_zero)


def qlinear_matmul(
    a: Value,
    a_scale: Value,
    a_zero: Value,
    b: Value,
    b_scale: Value,
    b_zero: Value,
    y_scale: Value,
    y_zero: Value,
) -> Tensor:
    left = dequantised(a, a_scale, a_zero, -2)
    if isinstance(b, Tensor):
        right: Value = dequantised(b, b_scale, b_zero, -1)
    else:
        right = _encode_kernel(b, b_scale, b_zero, -1)
    return _quantise_like(forms.matmul(left, right), y_scale, y_zero)


# Ops of com.microsoft that ONNX Runtime's quantiser writes: dequantise, the float op, quantise.


def gemm_of_codes(node: OnnxNode) -> Tensor:
    a, a_scale, a_zero, b, b_scale, b_zero, c, y_scale, y_zero = (*node.inputs, *[None] * 9)[:9]
    right = dequantised(b, b_scale, b_zero) if isinstance(b, Tensor) else _encode_kernel(b, b_scale, b_zero, -1)
    if number(a_scale, "the scale") <= 0:
        raise LoadError("a_scale is not above 0; scales must be positive")
    bias = _decode_bias(c, a_scale, b_scale)
    alpha = float(node.attr("alpha", 1.0))
    inputs = [dequantised(a, a_scale, a_zero), right, bias if alpha == 1.0 else None]
    product = node.result_of("Gemm", inputs, node.attrs)
    if bias is not None and alpha != 1.0:
        product = forms.added(product, bias * alpha)  # alpha scales the product and its bias
    return product if y_scale is None else _quantise_like(product, y_scale, y_zero)


def on_codes(node: OnnxNode) -> Tensor:
    """An op on codes: each of its inputs comes with scale and zero point, and those of the result follow. The op
    itself has the same name without QLinear."""
    if node.attr("channels_last", 0):
        raise NoForm("channels_last is not supported; export the model with channels on axis 1")
    *parts, y_scale, y_zero = node.inputs if len(node.inputs) % 3 == 2 else (*node.inputs, None)
    attrs = {name: value for name, value in node.attrs.items() if name != "channels_last"}
    result = node.result_of(node.kind.removeprefix("QLinear"), _numbers(parts), attrs)
    return _quantise_like(result, y_scale, y_zero)


def concat_codes(node: OnnxNode) -> Tensor:
    """Scale and zero point of the result come first."""
    y_scale, y_zero, *parts = node.inputs
    return _quantise_like(node.result_of("Concat", _numbers(parts), node.attrs), y_scale, y_zero)


def _numbers(parts: Sequence[Value | None]) -> list[Tensor]:
    """Triples of codes, scale and zero point as numbers."""
    triples = list(zip(parts[0::3], parts[1::3], parts[2::3], strict=True))
    if any(codes is None or scale is None for codes, scale, _ in triples):
        raise LoadError("a required input is missing; each part needs codes and a scale")
    return [dequantised(codes, scale, zero) for codes, scale, zero in triples]


def matmul_n_bits(
    a: Tensor,
    packed: Array,
    scales: Array,
    zero_points: Array | None = None,
    g_idx: Value | None = None,
    bias: Array | None = None,
    bits: int = 4,
    block_size: int = 32,
    K: int = 0,  # noqa: N803 - ONNX Runtime's own names
    N: int = 0,  # noqa: N803
) -> Tensor:
    """MatMulNBits: a weight [N, K] of 2, 4 or 8 bits in blocks along K, packed into bytes, low bits first."""
    if g_idx is not None:
        raise NoForm("g_idx is not supported; the columns of a block must be neighbours")
    if bits not in (2, 4, 8):
        raise NoForm(f"codes of {bits} bits are not supported; choose one: 2, 4, 8")
    count = -(-K // block_size)
    codes = _unpack(packed, bits).reshape(N, -1)[:, : count * block_size]
    if zero_points is None:
        zero: Array = np.full((N, count), 1 << (bits - 1), np.uint8)
    elif zero_points.dtype == np.uint8:
        zero = _unpack(zero_points.reshape(N, -1), bits).reshape(N, -1)[:, :count]
    else:
        raise NoForm("zero points of a type other than uint8 are not supported; use integer zero points")
    if count * block_size != K:
        raise NoForm(f"{K} columns do not fill blocks of {block_size}; K must be a multiple of block_size")
    return forms.linear(a, Encoded.blockwise(codes, scales.reshape(N, count), zero, bits), bias)


def _unpack(packed: Array, bits: int) -> Array:
    """Unpack bytes into codes, low bits first."""
    if bits == 8:
        return packed
    mask = (1 << bits) - 1
    places = [(packed >> np.uint8(shift)) & np.uint8(mask) for shift in range(0, 8, bits)]
    return np.stack(places, -1).reshape(*packed.shape[:-1], -1)


def transpose_encoded(x: Value, perm: list[int] | None = None) -> Encoded:
    if not isinstance(x, Encoded):
        raise NoForm("the input is a plain array; only an encoded weight has this form")
    return x.transpose(list(range(x.ndim))[::-1] if perm is None else perm)
