"""Codes of quantised models: the one place where readers build the graph's two quantisers.

The engine quantises values of 8 bits with one scale. An activation with one scale for each channel, and codes of fewer
bits, use elementwise ops.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from aneforge.frontends import LoadError
from aneforge.frontends.values import NoForm, axis_of
from aneforge.graph import builders as af
from aneforge.graph.ops.leaf import const
from aneforge.graph.ops.quantised import CODE_RANGES
from aneforge.graph.tensor import Tensor

__all__ = ["dequantised", "fake_quantised", "quantised", "range_of"]

_SMALL = {"int4": (-8, 7), "uint4": (0, 15), "int2": (-2, 1), "uint2": (0, 3)}


def range_of(kind: str) -> tuple[int, int]:
    """The least and the largest code of a type."""
    code_range = {**CODE_RANGES, **_SMALL}.get(kind)
    if code_range is None:
        raise NoForm(f"activations of type {kind} are not supported; the engine has codes of up to 8 bits")
    return code_range


def quantised(
    x: Tensor, scale: Any, zero_point: Any, kind: str, axis: int = 1, ends: tuple[float, float] | None = None
) -> Tensor:
    """round(x / scale) + zero point, clipped to the range of the type or to narrower ``ends`` that a model may set."""
    low, high = range_of(kind) if ends is None else ends
    step, zero = _numbers(scale), _numbers(zero_point)
    if step.size == zero.size == 1:
        stored = _code_type(low, high)
        codes = af.quantize(x, _positive_scale(step), _integer(zero), stored)
        return codes if CODE_RANGES[stored] == (low, high) else codes.clip(low, high)
    codes = (x / _along_axis(step, x, axis)).round()
    return (codes + _along_axis(zero, x, axis) if zero.any() else codes).clip(low, high)


def dequantised(codes: Tensor, scale: Any, zero_point: Any, kind: str, axis: int = 1) -> Tensor:
    """(code - zero point) * scale. The codes come from :func:`quantised`, from a port of bytes, or from ops that moved
    codes; ``kind`` is their type, empty where it is not stated."""
    step, zero = _numbers(scale), _numbers(zero_point)
    if step.size != 1 or zero.size != 1:
        return (codes - _along_axis(zero, codes, axis) if zero.any() else codes) * _along_axis(step, codes, axis)
    if codes.op == "cast" and codes.inputs[0].dtype == "uint8" and kind in ("", "uint8"):
        stored = codes.inputs[0]
    elif codes.op == "quantize":
        stored = codes
    elif not kind:
        stored = codes  # the file does not state the type
    else:
        # An integer within the range is its own code at scale 1: this keeps it in 8 bits until it is read.
        stored = af.quantize(codes, 1.0, 0, _code_type(*range_of(kind)))
    return af.dequantize(stored, _positive_scale(step), _integer(zero))


def fake_quantised(x: Tensor, scale: Any, zero_point: Any, ends: tuple[float, float], axis: int = 1) -> Tensor:
    """Quantise and dequantise at once."""
    kind = _code_type(*ends)
    return dequantised(quantised(x, scale, zero_point, kind, axis, ends), scale, zero_point, kind, axis)


def _code_type(low: float, high: float) -> str:
    """The 8-bit type that holds codes of a range; the signed one if both do."""
    for kind, (least, most) in CODE_RANGES.items():
        if least <= low and high <= most:
            return kind
    raise NoForm(f"codes from {low:g} to {high:g} are not supported; the engine has int8 and uint8")


def _numbers(value: Any) -> np.ndarray:
    return np.zeros(1) if value is None else np.asarray(value, np.float64)


def _positive_scale(scale: np.ndarray) -> float:
    step = float(scale.reshape(-1)[0])
    if not 0 < step < np.inf:
        raise LoadError(f"the scale is {step:g}; it must be above 0")
    return step


def _integer(zero: np.ndarray) -> int:
    return int(zero.reshape(-1)[0])


def _along_axis(values: np.ndarray, x: Tensor, axis: int) -> Tensor | float:
    """A scale or zero point as a number, or as a constant along an axis."""
    if values.size == 1:
        return float(values.reshape(-1)[0])
    if values.ndim != 1:
        raise NoForm("an activation has a scale for each block; the engine takes one scale, or one for each channel")
    channel_axis = axis_of(axis, x.ndim)
    return const(values.reshape([-1 if i == channel_axis else 1 for i in range(x.ndim)]))
