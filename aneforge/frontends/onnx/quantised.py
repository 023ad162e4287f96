"""Quantised models: stored codes keep their encoding; activations use the graph's quantise ops.

An 8-bit code is exact in fp16, so a tensor of codes is a tensor of integers in the graph. Ops that move or select
elements read it directly; ops that compute dequantise it first (``forms.quantised``).
"""

from __future__ import annotations

import numpy as np

from aneforge.errors import LoadError
from aneforge.frontends import forms
from aneforge.frontends.onnx import elementwise, movement, norms, products, spatial
from aneforge.frontends.onnx.node import Node, Rule, Value
from aneforge.frontends.onnx.spatial import _settings as window_settings
from aneforge.frontends.values import NoForm, as_tensor, axis_of, known, number
from aneforge.graph.encoding import Encoded
from aneforge.graph.tensor import Tensor

__all__ = ["CONTRIB", "ON_CODES", "RULES", "STATIC_RULES"]

Array = np.ndarray
_CODES = ("int8", "uint8", "int4", "uint4", "int2", "uint2")
ON_CODES = frozenset(("MaxPool",))
"""Ops that select codes: fp16 orders 8-bit codes as their own type does."""


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


def _dequantize_stored(node: Node, codes: Value, scale: Value, zero: Value | None = None) -> Encoded | Array:
    """Encode a stored weight. The scale is one number, one for each position along an axis, or one for each block.

    A vector of integers is a bias, stored as int32 with the scale of the sums it is added to. It is decoded, since the
    engine adds it as numbers.
    """
    array, factor = known(codes, "the tensor of codes"), known(scale, "the scale")
    axis, offset = int(node.attr("axis", 1)), None if zero is None else known(zero, "the zero point")
    if array.dtype.name in _CODES and array.ndim > 1:
        return encoded(array, factor, offset, axis)
    if array.dtype.kind not in "iu" and array.dtype.name not in _CODES:
        raise NoForm(f"codes of type {array.dtype.name} are not supported; they must be integers")
    numbers = _as_integers(array).astype(np.float64)
    numbers = numbers if offset is None else numbers - _align(_as_integers(offset), array, axis)
    return np.asarray(numbers * _align(factor, array, axis), np.float32)  # of one number NumPy gives no array


def _align(values: Array, codes: Array, axis: int) -> Array:
    """Return a scale or zero point in a shape that broadcasts to the codes."""
    numbers = values.astype(np.float64)
    if numbers.size == 1:
        return numbers.reshape(())
    if numbers.ndim == 1:
        place = axis_of(axis if codes.ndim > 1 else 0, codes.ndim)
        return numbers.reshape([-1 if i == place else 1 for i in range(codes.ndim)])
    for place, (count, extent) in enumerate(zip(numbers.shape, codes.shape, strict=True)):
        numbers = np.repeat(numbers, extent // max(count, 1), place) if count != extent else numbers
    return numbers


def _quantize_stored(node: Node, x: Value, scale: Value, zero: Value | None = None) -> Array:
    """Quantise a known weight while the file is read. ONNX rounds ties to even."""
    weight = known(x, "the weight").astype(np.float64)
    kind, offset = _kind(node, zero), None if zero is None else _as_integers(known(zero, "the zero point"))
    low, high = forms.range_of(kind)
    axis = int(node.attr("axis", 1))
    codes = np.rint(weight / _align(known(scale, "the scale"), weight, axis))
    codes = codes if offset is None else codes + _align(offset, weight, axis)
    return np.asarray(np.clip(codes, low, high), known(zero, "the zero point").dtype if zero is not None else kind)


def encoded(codes: Array, scale: Array, zero: Array | None, axis: int) -> Encoded:
    bits, integers = _bits(codes), _as_integers(codes)
    shift = None if zero is None or not np.any(zero.astype(np.int64)) else _as_integers(zero)
    if scale.ndim == integers.ndim and scale.size > 1:
        return Encoded.blockwise(integers, scale, shift, bits)
    return Encoded.affine(integers, scale, shift, axis_of(axis, integers.ndim), bits)


# Activations.


def _kind(node: Node, zero: Value | None) -> str:
    """Return the type of the codes: that of the zero point, or output_dtype."""
    if zero is not None:
        return known(zero, "the zero point").dtype.name
    stated = int(node.attr("output_dtype", 0))
    return {0: "uint8", 2: "uint8", 3: "int8", 21: "uint4", 22: "int4"}.get(stated, f"type {stated} of TensorProto")


def dequantised(x: Value, scale: Value, zero: Value | None, axis: int = 1) -> Tensor:
    factor = known(scale, "the scale")
    if zero is None:
        return forms.dequantised(as_tensor(x), factor, None, "", axis)
    offset = known(zero, "the zero point")
    return forms.dequantised(as_tensor(x), factor, _as_integers(offset), offset.dtype.name, axis)


def quantised(x: Tensor, scale: Value, zero: Value | None, kind: str, axis: int = 1) -> Tensor:
    offset = None if zero is None else _as_integers(known(zero, "the zero point"))
    return forms.quantised(x, known(scale, "the scale"), offset, kind, axis)


def _quantise_like(x: Tensor, scale: Value, zero: Value | None) -> Tensor:
    return quantised(x, scale, zero, "uint8" if zero is None else known(zero, "the zero point").dtype.name)


def _quantize(node: Node, x: Value, scale: Value, zero: Value | None = None) -> Tensor:
    return quantised(as_tensor(x), scale, zero, _kind(node, zero), int(node.attr("axis", 1)))


def _dequantize(node: Node, x: Value, scale: Value, zero: Value | None = None) -> Tensor:
    if not isinstance(x, Tensor):
        raise NoForm("the scale of a stored weight is computed; the engine needs a fixed value")
    return dequantised(x, scale, zero, int(node.attr("axis", 1)))


def _encode_kernel(weight: Value, scale: Value, zero: Value | None, axis: int) -> Encoded:
    codes = known(weight, "the kernel")
    return encoded(codes, known(scale, "the scale"), None if zero is None else known(zero, "the zero point"), axis)


def _decode_bias(bias: Value | None, *scales: Value) -> Array | None:
    """Decode an integer bias; its scale is the product of the scales."""
    if bias is None:
        return None
    factor = np.ones(1)
    for scale in scales:
        factor = factor * known(scale, "the scale").astype(np.float64).reshape(-1)
    return known(bias, "the bias").astype(np.float64).reshape(-1) * factor


def _qlinear_conv(
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
    """Dequantise, convolve with the encoded kernel, quantise."""
    image = dequantised(x, x_scale, x_zero)
    result = forms.convolution(
        image,
        _encode_kernel(weight, w_scale, w_zero, 0),
        _decode_bias(bias, x_scale, w_scale),
        groups=int(node.attr("group", 1)),
        dilation=node.attr("dilations"),
        **window_settings(node, image, weight.shape[2:]),
    )
    return _quantise_like(result, y_scale, y_zero)


def _qlinear_matmul(
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
    left = dequantised(a, a_scale, a_zero, -2)
    if isinstance(b, Tensor):
        right: Value = dequantised(b, b_scale, b_zero, -1)
    else:
        right = _encode_kernel(b, b_scale, b_zero, -1)
    return _quantise_like(forms.matmul(left, right), y_scale, y_zero)


# Ops of com.microsoft that ONNX Runtime's quantiser writes: dequantise, the float op, quantise.


def _qgemm(
    node: Node,
    a: Value,
    a_scale: Value,
    a_zero: Value | None,
    b: Value,
    b_scale: Value,
    b_zero: Value | None,
    c: Value | None = None,
    y_scale: Value | None = None,
    y_zero: Value | None = None,
) -> Tensor:
    right = dequantised(b, b_scale, b_zero) if isinstance(b, Tensor) else _encode_kernel(b, b_scale, b_zero, -1)
    if number(a_scale, "the scale") <= 0:
        raise LoadError("a_scale is not above 0; scales must be positive")
    bias = _decode_bias(c, a_scale, b_scale)
    alpha = float(node.attr("alpha", 1.0))
    product = products.RULES["Gemm"](node, dequantised(a, a_scale, a_zero), right, bias if alpha == 1.0 else None)
    assert isinstance(product, Tensor)
    if bias is not None and alpha != 1.0:
        product = product + as_tensor(bias * alpha)  # alpha scales the product and its bias
    return product if y_scale is None else _quantise_like(product, y_scale, y_zero)


def _binary(rule: Rule) -> Rule:
    def rule_on_codes(
        node: Node,
        a: Value,
        a_scale: Value,
        a_zero: Value | None,
        b: Value,
        b_scale: Value,
        b_zero: Value | None,
        y_scale: Value,
        y_zero: Value | None = None,
    ) -> Tensor:
        return _quantise_like(
            _as_one_tensor(rule(node, dequantised(a, a_scale, a_zero), dequantised(b, b_scale, b_zero))),
            y_scale,
            y_zero,
        )

    return rule_on_codes


def _unary(rule: Rule) -> Rule:
    def rule_on_codes(
        node: Node, x: Value, scale: Value, zero: Value | None, y_scale: Value, y_zero: Value | None = None
    ) -> Tensor:
        if node.attr("channels_last", 0):
            raise NoForm("channels_last is not supported; export the model with channels on axis 1")
        return _quantise_like(_as_one_tensor(rule(node, dequantised(x, scale, zero))), y_scale, y_zero)

    return rule_on_codes


def _concat(node: Node, y_scale: Value, y_zero: Value | None, *parts: Value | None) -> Tensor:
    """The parts are triples of codes, scale and zero point."""
    triples = zip(parts[0::3], parts[1::3], parts[2::3], strict=True)
    numbers = [dequantised(_required(x), _required(scale), zero) for x, scale, zero in triples]
    return _quantise_like(_as_one_tensor(movement.RULES["Concat"](node, *numbers)), y_scale, y_zero)


def _required(value: Value | None) -> Value:
    if value is None:
        raise LoadError("a required input is missing; each part needs codes and a scale")
    return value


def _as_one_tensor(result: object) -> Tensor:
    assert isinstance(result, Tensor)
    return result


def _matmul_nbits(node: Node, a: Value, packed: Value, scales: Value, *optional: Value | None) -> Tensor:
    """MatMulNBits: a weight [N, K] of 2, 4 or 8 bits in blocks along K, packed into bytes, low bits first."""
    zeros, groups, bias = (*optional, None, None, None)[:3]
    if groups is not None:
        raise NoForm("g_idx is not supported; the columns of a block must be neighbours")
    bits, block = int(node.attr("bits", 4)), int(node.attr("block_size"))
    columns, rows = int(node.attr("K")), int(node.attr("N"))
    if bits not in (2, 4, 8):
        raise NoForm(f"codes of {bits} bits are not supported; choose one: 2, 4, 8")
    count = -(-columns // block)
    codes = _unpack(known(packed, "input 'B'"), bits).reshape(rows, -1)[:, : count * block]
    scale = known(scales, "input 'scales'").reshape(rows, count)
    if zeros is None:
        zero: Array = np.full((rows, count), 1 << (bits - 1), np.uint8)
    elif known(zeros, "input 'zero_points'").dtype == np.uint8:
        zero = _unpack(known(zeros, "input 'zero_points'").reshape(rows, -1), bits).reshape(rows, -1)[:, :count]
    else:
        raise NoForm("zero points of a type other than uint8 are not supported; use integer zero points")
    if columns != count * block:
        raise NoForm(f"{columns} columns do not fill blocks of {block}; K must be a multiple of block_size")
    weight = Encoded.blockwise(codes, scale, zero, bits)
    return forms.linear(as_tensor(a), weight, None if bias is None else known(bias, "the bias"))


def _unpack(packed: Array, bits: int) -> Array:
    """Unpack bytes into codes, low bits first."""
    if bits == 8:
        return packed
    mask = (1 << bits) - 1
    places = [(packed >> np.uint8(shift)) & np.uint8(mask) for shift in range(0, 8, bits)]
    return np.stack(places, -1).reshape(*packed.shape[:-1], -1)


def _transpose_encoded(node: Node, x: Value) -> Encoded:
    if not isinstance(x, Encoded):
        raise NoForm("the input is a plain array; only an encoded weight has this form")
    return x.transpose(list(node.attr("perm", range(x.ndim)[::-1])))


STATIC_RULES: dict[str, Rule] = {
    "DequantizeLinear": _dequantize_stored,
    "QuantizeLinear": _quantize_stored,
    "Transpose": _transpose_encoded,
}
"""For nodes whose inputs are all known: they keep a weight encoded."""


RULES: dict[str, Rule] = {
    "DequantizeLinear": _dequantize,
    "QLinearConv": _qlinear_conv,
    "QLinearMatMul": _qlinear_matmul,
    "QuantizeLinear": _quantize,
}

CONTRIB: dict[str, Rule] = {
    "DequantizeLinear": _dequantize,
    "MatMulNBits": _matmul_nbits,
    "QGemm": _qgemm,
    "QLinearAdd": _binary(elementwise.RULES["Add"]),
    "QLinearAveragePool": _unary(spatial.RULES["AveragePool"]),
    "QLinearConcat": _concat,
    "QLinearGlobalAveragePool": _unary(spatial.RULES["GlobalAveragePool"]),
    "QLinearLeakyRelu": _unary(elementwise.RULES["LeakyRelu"]),
    "QLinearMul": _binary(elementwise.RULES["Mul"]),
    "QLinearSigmoid": _unary(elementwise.RULES["Sigmoid"]),
    "QLinearSoftmax": _unary(norms.RULES["Softmax"]),
    "QuantizeLinear": _quantize,
}
