"""Estimate what a constant costs before it is computed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from aneforge.budgets import spend

Array = np.ndarray
_MATRICES = ("MatMul", "MatMulInteger", "QLinearMatMul")
_CONVOLUTIONS = ("Conv", "ConvInteger", "ConvTranspose", "DeformConv", "QLinearConv")
_QUANTISERS = ("DequantizeLinear", "QuantizeLinear")
_SLOW = ("CumSum", "Det", "GridSample", "LRN", "NonMaxSuppression", "Resize", "RoiAlign", "Upsample")
_IN_PYTHON = 16  # how much slower ops are that the reference evaluator runs in Python


class Folding:
    """The cost of the constants of one model so far."""

    def __init__(self, file_bytes: int) -> None:
        self.free = 8 * file_bytes  # a large model may compute with each of its weights
        self.bytes = self.work = 0

    def charge(self, size: int, work: int, where: str) -> None:
        """Add a cost; raise before the work is done if it is over a budget."""
        self.bytes += 8 * size
        self.work += work
        spend("folded_bytes", self.bytes, f"{where}: computing constants", self.free)
        spend("folded_work", self.work, f"{where}: computing constants", self.free)


def onnx_cost(kind: str, inputs: Sequence[Any], attrs: Mapping[str, Any]) -> tuple[int, int]:
    """Return upper limits for the elements that an ONNX op creates from known inputs, and for its work."""
    arrays = [None if operand is None else _array(operand) for operand in inputs]
    read = sum(array.size for array in arrays if array is not None)
    if not arrays or arrays[0] is None:
        return read, read
    count, inner = _result_cost(kind, arrays[0], arrays, attrs)
    return count, read + count * inner * (_IN_PYTHON if kind in _SLOW or kind in _CONVOLUTIONS else 1)


def _array(value: Any) -> Array:
    """Return an array of the same shape; an encoded weight is not decoded."""
    return value if isinstance(value, np.ndarray) else np.broadcast_to(np.float32(0), value.shape)


def _numbers(array: Array | None) -> list[float]:
    """Return the first numbers of a tensor, with 0 for those that are not finite; the op itself refuses them."""
    if array is None or array.dtype.kind not in "iufb":
        return []
    return [float(number) if math.isfinite(number) else 0.0 for number in array.reshape(-1)[:64]]


def _sizes(array: Array | None) -> list[int]:
    return [max(0, int(number)) for number in _numbers(array)]


def _result_cost(kind: str, x: Array, arrays: Sequence[Array | None], attrs: Mapping[str, Any]) -> tuple[int, int]:
    """Return the elements that an op creates, and the multiplications for each."""
    operands = [*arrays, None, None, None, None]
    if kind == "ConstantOfShape":
        return math.prod(_sizes(x)), 1
    if kind == "Range":
        start, stop, step = ((_numbers(array) or [0.0])[0] for array in operands[:3])
        return max(0, math.ceil((stop - start) / step)) if step else 0, 1
    if kind == "Tile":
        return x.size * math.prod(_sizes(operands[1])), 1
    if kind == "Expand":
        return _broadcast_size([x.shape, tuple(_sizes(operands[1]))]), 1
    if kind == "OneHot":
        return x.size * max([1, *_sizes(operands[1])]), 1
    if kind in ("Resize", "Upsample"):
        return _resized_size(x, operands, attrs), 1
    if kind == "Pad":
        return _padded_size(x, operands, attrs), 1
    if kind in ("Gather", "GatherND") and operands[1] is not None:
        return _gathered_size(kind, x, operands[1], attrs), 1
    if kind in (*_MATRICES, "Gemm", *_CONVOLUTIONS):
        other = operands[3 if kind in ("QLinearMatMul", "QLinearConv") else 1]
        return (x.size, 1) if other is None else _product_cost(kind, x, other, attrs)
    if kind in _QUANTISERS:
        return x.size, 1  # a line of scales lies along an axis of its own choice, not along the last one
    if kind == "Einsum":
        total = math.prod(array.size for array in arrays if array is not None)
        return min(total, 1 << 62), 1
    return _broadcast_size([array.shape for array in arrays if array is not None]), 1


def _broadcast_size(shapes: Sequence[tuple[int, ...]]) -> int:
    """Return the size of the broadcast shape. If the shapes do not broadcast, the op creates at most what it reads."""
    try:
        return math.prod(np.broadcast_shapes(*shapes))
    except ValueError:
        return sum(math.prod(shape) for shape in shapes)


def _resized_size(x: Array, operands: Sequence[Array | None], attrs: Mapping[str, Any]) -> int:
    sizes = _sizes(operands[3])
    if sizes:
        return x.size * math.prod(sizes) if len(sizes) < x.ndim else math.prod(sizes)
    scales = _numbers(operands[2]) or _numbers(operands[1]) or [float(scale) for scale in attrs.get("scales", ())]
    return math.ceil(x.size * min(math.prod(scales), 2.0**60)) if scales else x.size


def _padded_size(x: Array, operands: Sequence[Array | None], attrs: Mapping[str, Any]) -> int:
    widths = _sizes(operands[1]) or [max(0, int(width)) for width in attrs.get("pads", ())]
    axes = [int(axis) for axis in _numbers(operands[3])] or list(range(x.ndim))
    if len(widths) != 2 * len(axes) or any(not -x.ndim <= axis < x.ndim for axis in axes):
        return x.size
    shape = list(x.shape)
    for place, axis in enumerate(axes):
        shape[axis] += widths[place] + widths[place + len(axes)]
    return math.prod(shape)


def _gathered_size(kind: str, x: Array, places: Array, attrs: Mapping[str, Any]) -> int:
    if kind == "Gather":
        axis = int(attrs.get("axis", 0))
        return x.size // max(1, x.shape[axis] if -x.ndim <= axis < x.ndim else 1) * places.size
    count = places.shape[-1] if places.ndim else 1
    batch = int(attrs.get("batch_dims", 0))
    return places.size // max(1, count) * math.prod(x.shape[batch + count :])


def _product_cost(kind: str, a: Array, b: Array, attrs: Mapping[str, Any]) -> tuple[int, int]:
    if kind == "Gemm":
        if a.ndim != 2 or b.ndim != 2:
            return 0, 1
        rows, inner = a.shape[::-1] if attrs.get("transA") else a.shape
        return rows * b.shape[0 if attrs.get("transB") else 1], max(1, inner)
    if kind in _MATRICES:
        if not a.ndim or not b.ndim:
            return 0, 1
        rows = a.shape[-2] if a.ndim > 1 else 1
        columns = b.shape[-1] if b.ndim > 1 else 1
        return _broadcast_size([a.shape[:-2], b.shape[:-2]]) * rows * columns, max(1, a.shape[-1])
    if a.ndim < 3 or b.ndim != a.ndim:
        return 0, 1
    grown = 2 * max([0, *(int(width) for width in (*attrs.get("pads", ()), *attrs.get("output_padding", ())))])
    step = max([1, *(int(stride) for stride in attrs.get("strides", ()))]) if kind == "ConvTranspose" else 1
    reach = max([1, *(int(dilation) for dilation in attrs.get("dilations", ()))])
    if kind == "ConvTranspose":
        channels = b.shape[1] * int(attrs.get("group", 1))
        extents = [n * step + k * reach + grown for n, k in zip(a.shape[2:], b.shape[2:], strict=True)]
    else:
        channels, extents = b.shape[0], [n + grown for n in a.shape[2:]]
    count = a.shape[0] * channels * math.prod(max([extent, *_output_shape(attrs)]) for extent in extents)
    return count, max(1, b.size // max(1, b.shape[0]))


def _output_shape(attrs: Mapping[str, Any]) -> list[int]:
    return [int(extent) for extent in attrs.get("output_shape", ())]
