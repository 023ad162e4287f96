"""Convolutions, products and attention."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import TYPE_CHECKING

from aneforge.engine.tensor_type import DTYPES, TensorType
from aneforge.engine.types.checks import AXES, check_dtype, check_fits, dims, require, stretched, window_extent

if TYPE_CHECKING:
    from aneforge.engine.ir import Op
    from aneforge.graph.weights import Weight

_TABLES = ("kernel_palettized_LUT", "kernel_lut")
_SPACE = (1, 3, 4)
"""D, H and W: the axes that a window slides over."""


def convolution(op: Op, x: TensorType, weight: TensorType, bias: TensorType | None = None) -> TensorType:
    """The kernel is [O, kD, I / groups, kH, kW]."""
    kernel, strides, dilation, pads = _window(op, weight)
    outputs, groups = weight.shape[0], op["groups"]
    channels = weight.shape[2] * groups
    _check_groups(groups, x.shape[2], outputs)
    require(
        x.shape[2] == channels,
        f"input has {x.shape[2]} channels; the kernel takes {weight.shape[2]} in each of {groups} groups",
    )
    spans = [dilation[i] * (kernel[i] - 1) + 1 for i in range(3)]
    depth, height, width = (
        window_extent(axis, x.shape[axis], pads[2 * i], pads[2 * i + 1], spans[i], strides[i])
        for i, axis in enumerate(_SPACE)
    )
    return _result(op, x, weight, bias, (x.shape[0], depth, outputs, height, width))


def deconvolution(op: Op, x: TensorType, weight: TensorType, bias: TensorType | None = None) -> TensorType:
    """The kernel is that of the convolution it inverts: [C, kD, O / groups, kH, kW]."""
    kernel, strides, dilation, pads = _window(op, weight)
    groups = op["groups"]
    outputs = weight.shape[2] * groups
    _check_groups(groups, x.shape[2], outputs)
    require(
        weight.shape[0] == x.shape[2], f"input has {x.shape[2]} channels; the kernel is for {weight.shape[0]} of them"
    )
    extents = []
    for i, axis in enumerate(_SPACE):
        full = (x.shape[axis] - 1) * strides[i] + dilation[i] * (kernel[i] - 1) + 1
        extents.append(full - pads[2 * i] - pads[2 * i + 1])
        require(extents[-1] > 0, f"the padding cuts all {full} elements along {AXES[axis]}")
    depth, height, width = extents
    return _result(op, x, weight, bias, (x.shape[0], depth, outputs, height, width))


def _window(op: Op, weight: TensorType) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    _, d, _, h, w = weight.shape
    kernel = op["kernel_sizes"]
    require(kernel == (d, h, w), f"kernel_sizes = {list(kernel)}; the kernel is {[d, h, w]} along D, H and W")
    for name in ("strides", "dilation_rates"):
        require(min(op[name]) > 0, f"{name} = {list(op[name])}; expected 1 or more along each axis")
    pads = op["explicit_padding"]
    require(min(pads) >= 0, f"explicit_padding = {list(pads)}; expected 0 or more on each side")
    return kernel, op["strides"], op["dilation_rates"], pads


def _check_groups(groups: int, inputs: int, outputs: int) -> None:
    divides = groups > 0 and inputs % groups == 0 and outputs % groups == 0
    require(divides, f"groups = {groups} does not divide {inputs} input and {outputs} output channels")


def _result(op: Op, x: TensorType, weight: TensorType, bias: TensorType | None, shape: tuple[int, ...]) -> TensorType:
    check_dtype("the input", x, "f16", "ui8", "si8")
    # A kernel of table indices or of codes with a scale is stored as integers.
    if any(name in op.attrs for name in _TABLES):
        unsigned = weight.dtype.startswith("ui")
        require(unsigned, f"the kernel is {weight.dtype}; indices into a table are unsigned integers (ui1 to ui8)")
    elif "kernel_scale" in op.attrs or "kernel_zero_point" in op.attrs:
        are_codes = weight.dtype in ("ui8", "si8", "ui4", "si4")
        require(
            are_codes, f"the kernel is {weight.dtype}; a scale or zero point belongs to codes (ui8, si8, ui4 or si4)"
        )
    else:
        check_dtype("the kernel", weight, "f16", "ui8", "si8")
    if bias is not None:
        check_dtype("the bias", bias, "f16")
        check_fits("the bias", bias, shape)
    return TensorType(shape)


def linear(op: Op, x: TensorType, weight: TensorType, bias: TensorType | None = None) -> TensorType:
    """The width meets a kernel of C = outputs, W = inputs."""
    n, d, outputs, h, inputs = weight.shape
    require((n, d, h) == (1, 1, 1), f"the kernel is {dims(weight.shape)}; expected outputs on C and inputs on W")
    require(x.shape[4] == inputs, f"the input is {x.shape[4]} wide; the kernel takes {inputs}")
    return _result(op, x, weight, bias, (*x.shape[:4], outputs))


def matmul(op: Op, a: TensorType, b: TensorType, bias: TensorType | None = None) -> TensorType:
    """Rows on C, columns on W, batches on N and H (listing 22.1)."""
    left, right = _matrix("a", a, op["transpose_lhs"]), _matrix("b", b, op["transpose_rhs"])
    require(left[1] == right[0], f"a has {left[1]} columns, b has {right[0]} rows; expected the same number")
    shape = _product_shape(a, b, left[0], right[1])
    if bias is not None:
        check_dtype("the bias", bias, "f16")
        check_fits("the bias", bias, shape)
    return TensorType(shape)


def _matrix(name: str, operand: TensorType, turned: bool) -> tuple[int, int]:
    """Rows and columns."""
    check_dtype(name, operand, "f16")
    require(operand.shape[1] == 1, f"{name} has depth {operand.shape[1]}; a product takes depth 1")
    rows, columns = operand.shape[2], operand.shape[4]
    return (columns, rows) if turned else (rows, columns)


def _product_shape(a: TensorType, b: TensorType, rows: int, columns: int) -> tuple[int, ...]:
    n, _, _, h, _ = stretched((operand.shape[0], 1, 1, operand.shape[3], 1) for operand in (a, b))
    return n, 1, rows, h, columns


def attention(op: Op, *operands: TensorType) -> TensorType:
    """Places on C, heads on H, features on W (layers.json SDPA)."""
    q, k, v, scale, *mask = operands
    (places, features), (keys, same), (values, width) = (
        _matrix(name, operand, False) for name, operand in zip("qkv", (q, k, v), strict=True)
    )
    require(features == same, f"q has {features} features, k has {same}; expected the same number")
    require(keys == values, f"k has {keys} places, v has {values}; expected the same number")
    require(scale.elements == 1, f"the scale has {scale.elements} elements; expected 1")
    scores = _product_shape(q, k, places, keys)
    for plane in mask:
        check_fits("the mask", plane, scores)
    return TensorType(_product_shape(TensorType(scores), v, places, width))


def kernel_constants(op: Op, weights: Mapping[str, Weight]) -> None:
    """A scale or zero point is one number, one for each output, or lies along the kernel; a table has no more entries
    than its places can name."""
    kernel = op.operands[1].type
    if kernel is None:
        return
    outputs = _outputs(op, kernel.shape)
    for name in ("kernel_scale", "kernel_zero_point"):
        weight = weights.get(op.attrs.get(name, ""))
        if weight is None or _lies_along(weight.shape, op, kernel.shape):
            continue
        size = prod(weight.shape)
        require(size in (1, outputs), f"{name} has {size} numbers; expected 1 or one for each of {outputs} outputs")
    for name in _TABLES:
        weight = weights.get(op.attrs.get(name, ""))
        if weight is not None:
            size, most = prod(weight.shape), 1 << DTYPES[kernel.dtype]
            require(size <= most, f"{name} has {size} entries; {kernel.dtype} names {most} at most")


def _outputs(op: Op, kernel: tuple[int, ...]) -> int:
    if op.kind == "convolution":
        return kernel[0]
    return kernel[2] * (op["groups"] if op.kind == "deconvolution" else 1)


def _lies_along(shape: tuple[int, ...], op: Op, kernel: tuple[int, ...]) -> bool:
    """Whether a constant is of rank 4 as the kernel of a convolution is, with extents of one that stretch."""
    if len(shape) != 4 or op.kind == "linear":
        return False
    return all(extent in (1, target) for extent, target in zip(shape, (kernel[0], *kernel[2:]), strict=True))
