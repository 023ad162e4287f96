"""Arithmetic, comparisons and pointwise functions."""

from __future__ import annotations

import math
from typing import Any

from aneforge.compiler.lower.builder import Builder, Rule, layout, places_of, rule
from aneforge.engine.ir import Op
from aneforge.graph.node import OpDef, definitions
from aneforge.graph.spelling import Spelling
from aneforge.graph.tensor import Tensor


def pointwise(b: Builder, kind: str, *xs: Op, **attrs: Any) -> Op:
    """One op of the shape of its first operand."""
    return b.emit(kind, xs, xs[0].shape, attrs)


def broadcast(b: Builder, kind: str, node: Tensor, dtype: str) -> Op:
    places = places_of(node.shape)
    return b.emit(kind, [b.placed(operand, places) for operand in node.inputs], layout(node.shape), None, dtype)


def _by_row(declared: OpDef, row: Spelling) -> Rule:
    """The rule of an op that its declaration spells as one backend op or unit; pairs stretch along axes of one."""
    kind, _, tag = row.name.partition(":")
    dtype = "i1" if declared.dtypes == "compare" else "f16"

    def one_op(b: Builder, node: Tensor) -> Op:
        operands = [b.value(operand) for operand in node.inputs]
        attrs = row.stated(dict(node.signature.attrs)) if row.settings else {}
        shape = layout(node.shape)
        return b.unit(tag, operands, shape, **attrs) if tag else b.emit(kind, operands, shape, attrs)

    return one_op if declared.operands != ("a", "b") else lambda b, node: broadcast(b, kind, node, dtype)


for _declared in definitions().values():
    if _declared.in_backend is not None and _declared.in_backend.is_plain:
        rule(_declared.name)(_by_row(_declared, _declared.in_backend))


@rule("floor_div")
def _floor_div(b: Builder, node: Tensor) -> Op:
    return pointwise(b, "floor", broadcast(b, "div", node, "f16"))


@rule("logical_not")
def _not(b: Builder, node: Tensor) -> Op:
    return b.emit("equal_zero", (b.value(node.inputs[0]),), layout(node.shape), None, "i1")


@rule("select")
def _select(b: Builder, node: Tensor) -> Op:
    return broadcast(b, "select", node, "f16")


@rule("cast", "image_plane")
def _cast(b: Builder, node: Tensor) -> Op:
    x = b.value(node.inputs[0])
    return x if node.inputs[0].dtype == "fp16" else pointwise(b, "cast", x, to="f16")


def _scalars(node: Tensor) -> list[float]:
    return [float(value) for _, value in node.signature.attrs]


def leaky(b: Builder, x: Op, alpha: float) -> Op:
    return pointwise(b, "leaky_relu", x, negative_slope=alpha)


def clamp(b: Builder, x: Op, low: float, high: float) -> Op:
    return pointwise(b, "clamped_relu", x, min_val=low, max_val=high)


def affine(b: Builder, x: Op, gain: float, bias: float) -> Op:
    """gain * x + bias; both stay attributes, so nothing is rounded before the engine does it."""
    return pointwise(b, "gain_offset_control", x, gain=gain, bias=bias)


@rule("threshold")
def _threshold(b: Builder, node: Tensor) -> Op:
    (low,) = _scalars(node)
    return clamp(b, b.value(node.inputs[0]), low, math.inf)


@rule("thresholded_relu")
def _thresholded(b: Builder, node: Tensor) -> Op:
    """x where x - alpha is not below zero. The difference has the right sign even after rounding."""
    (alpha,) = _scalars(node)
    x = b.value(node.inputs[0])
    cond = b.emit("greater_than_equal_zero", (affine(b, x, 1.0, -alpha),), x.shape, None, "i1")
    return b.emit("select", (cond, x, b.constant(0.0, (1, 1, 1, 1, 1))), x.shape)


@rule("clamped_relu")
def _clamped(b: Builder, node: Tensor) -> Op:
    alpha, beta = _scalars(node)
    return clamp(b, leaky(b, b.value(node.inputs[0]), alpha), -math.inf, beta)


@rule("sigmoid_hard")
def _hard_sigmoid(b: Builder, node: Tensor) -> Op:
    return clamp(b, affine(b, b.value(node.inputs[0]), *_scalars(node)), 0.0, 1.0)


@rule("softplus")
def _softplus(b: Builder, node: Tensor) -> Op:
    """log(1 + exp(x)) literally: chips were seen to give 0 where the power overflows (N43), which a form that shifts
    the argument first would not do."""
    powers = pointwise(b, "exp2", b.value(node.inputs[0]), base_e=True)
    return pointwise(b, "log2", affine(b, powers, 1.0, 1.0), base_e=True)


@rule("softsign")
def _softsign(b: Builder, node: Tensor) -> Op:
    x = b.value(node.inputs[0])
    return pointwise(b, "mult", x, pointwise(b, "invert", pointwise(b, "abs", x), epsilon=1.0))


@rule("atan")
def _atan(b: Builder, node: Tensor) -> Op:
    """An entry of the activation table (enums.json kATan); none of the 94 backend ops computes it."""
    x = b.value(node.inputs[0])
    return b.unit("Neuron", (x,), x.shape, Type="ATan")


_CODES = {"int8": "si8", "uint8": "ui8"}


@rule("quantize")
def _quantize(b: Builder, node: Tensor) -> Op:
    """Bytes for readers that take codes; for any other op the same whole numbers as fp16."""
    x, attrs = b.value(node.inputs[0]), node.attrs
    kind = _CODES[attrs["to"]]
    step = {"scale": float(attrs["scale"]), "zero_point": attrs["zero_point"], "to": kind}
    codes = b.emit("quant", (x,), x.shape, step, kind)
    return pointwise(b, "cast", codes, to="f16") if node.uid in b.read_as_numbers else codes


@rule("dequantize")
def _dequantize(b: Builder, node: Tensor) -> Op:
    x, attrs = b.value(node.inputs[0]), node.attrs
    stored = x
    if x.kind == "cast" and (read := x.operands[0].type) is not None and read.dtype in _CODES.values():
        stored = x.operands[0]  # codes that another op reads as numbers
    return pointwise(b, "dequant", stored, scale=float(attrs["scale"]), zero_point=attrs["zero_point"])


@rule("prelu")
def _prelu(b: Builder, node: Tensor) -> Op:
    x, shape = b.channels_first(node.inputs[0])
    activated = pointwise(b, "leaky_relu", x, b.vector(node.inputs[1]))
    return b.reshaped(activated, shape, node.shape)
