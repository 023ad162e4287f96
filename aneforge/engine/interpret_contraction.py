"""Convolutions, products and attention."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from aneforge.engine.ir import AnecError, Op

Array = np.ndarray


def windows(x: Array, kernel: tuple[int, ...], stride: tuple[int, ...], dilation: tuple[int, ...]) -> Array:
    """Windows of a padded NDCHW array over (D, H, W): [N, C, D, H, W, kD, kH, kW], a view."""
    moved = x.transpose(0, 2, 1, 3, 4)
    reach = [d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True)]
    view = np.lib.stride_tricks.sliding_window_view(moved, reach, axis=(2, 3, 4))
    starts = tuple(slice(None, None, s) for s in stride)
    steps = tuple(slice(None, None, d) for d in dilation)
    return view[(slice(None), slice(None), *starts, *steps)]


def unpacked(
    op: Op,
    weight: Array,
    outputs: int,
    kernel_scale: Array | None = None,
    kernel_zero_point: Array | None = None,
    kernel_palettized_LUT: Array | None = None,  # noqa: N803 - the compiler's own name
    kernel_lut: Array | None = None,
) -> Array:
    """The numbers of a stored kernel: look up each in the table, subtract the zero point, multiply by the scale.

    Both may be one number, a vector over the output channels (axis ``outputs`` of the weight), or of rank 4 as the
    kernel is (layers.json ``anec_attribute_schema``).
    """
    table = kernel_lut if kernel_palettized_LUT is None else kernel_palettized_LUT
    if table is not None:
        if table.ndim != 1:
            raise AnecError(f"{op.name}: a table of rank {table.ndim} is not supported; expected rank 1")
        weight = np.take(table, weight.astype(int))
    if kernel_zero_point is not None:
        weight = weight - _spread(op, kernel_zero_point, outputs)
    return weight if kernel_scale is None else weight * _spread(op, kernel_scale, outputs)


def _spread(op: Op, constant: Array, outputs: int) -> Array:
    """A kernel's scale or zero point along the axes of the weight."""
    if constant.size == 1:
        return constant.reshape(())
    if constant.ndim == 4 and op.kind != "linear":
        return constant[:, None]
    if constant.ndim != 1 or op.kind == "deconvolution":
        raise AnecError(
            f"{op.name}: a kernel scale of shape {list(constant.shape)} is not supported; "
            "expected one number, one for each output, or the kernel's rank"
        )
    return constant.reshape(*(-1 if axis == outputs else 1 for axis in range(5)))


def _convolution(op: Op, x: Array, weight: Array, bias: Array | None = None, **stored: Array) -> Array:
    """Cross-correlation. The weight is [O, kD, I/groups, kH, kW] in NDCHW positions ("OIHW"), bias per channel."""
    weight = unpacked(op, weight, 0, **stored)
    attrs = op.attrs
    pads = attrs["explicit_padding"]
    fill = _fill(op["padding_mode"])
    wide = ((0, 0), pads[0:2], (0, 0), pads[2:4], pads[4:6])
    padded = np.pad(x, wide, constant_values=fill) if fill is not None else np.pad(x, wide, mode="edge")
    view = windows(padded, attrs["kernel_sizes"], attrs["strides"], attrs["dilation_rates"])
    n, c, d, h, w = view.shape[:5]
    groups, out = attrs["groups"], weight.shape[0]
    grouped = view.reshape(n, groups, c // groups, d, h, w, *view.shape[5:])
    kernels = weight.reshape(groups, out // groups, *weight.shape[1:])
    result = np.einsum("ngcdhwzij,gozcij->ndgohw", grouped, kernels, optimize=True).reshape(n, d, out, h, w)
    return result if bias is None else result + bias


def _fill(mode: str) -> float | None:
    if mode == "Replication":
        return None
    if mode != "Zero":
        raise AnecError(f"convolution: padding mode {mode!r} is not supported; choose one: Zero, Replication")
    return 0.0


def _deconvolution(op: Op, x: Array, weight: Array, bias: Array | None = None, **stored: Array) -> Array:
    """The gradient of a convolution: the weight is that convolution's "OIHW", so [C, kD, O/groups, kH, kW] here,
    and the padding is what is cut from the full result."""
    weight = unpacked(op, weight, 2, **stored)
    attrs = op.attrs
    kernel, stride, dilation = attrs["kernel_sizes"], attrs["strides"], attrs["dilation_rates"]
    n, d, c, h, w = x.shape
    groups, per = attrs["groups"], weight.shape[2]
    full = [(s - 1) * stride[i] + dilation[i] * (kernel[i] - 1) + 1 for i, s in enumerate((d, h, w))]
    result = np.zeros((n, full[0], groups, per, *full[1:]))
    grouped = x.reshape(n, d, groups, c // groups, h, w)
    kernels = weight.reshape(groups, c // groups, *weight.shape[1:])
    for at in np.ndindex(*kernel):
        part = np.einsum("ndgchw,gco->ndgohw", grouped, kernels[:, :, at[0], :, at[1], at[2]], optimize=True)
        z, y, u = (
            slice(i * step, i * step + (size - 1) * hop + 1, hop)
            for i, step, size, hop in zip(at, dilation, (d, h, w), stride, strict=True)
        )
        result[:, z, :, :, y, u] += part
    result = result.reshape(n, full[0], groups * per, *full[1:])
    pads = attrs["explicit_padding"]
    z, y, u = (slice(pads[2 * i], full[i] - pads[2 * i + 1]) for i in range(3))
    result = result[:, z, :, y, u]
    return result if bias is None else result + bias


def _matrix(x: Array, turned: bool) -> Array:
    """N and H as batch, C as rows, W as columns (listing 22.1); the flag exchanges C and W."""
    if x.shape[1] != 1:
        raise AnecError("the depth of a product must be 1; the compiler says: depth > 1 is not supported for MatMult")
    rows = x[:, 0].transpose(0, 2, 1, 3)
    return rows.swapaxes(2, 3) if turned else rows


def _matmul(op: Op, a: Array, b: Array, bias: Array | None = None) -> Array:
    left, right = _matrix(a, "transpose_lhs" in op.attrs), _matrix(b, "transpose_rhs" in op.attrs)
    result = np.matmul(left, right).transpose(0, 2, 1, 3)[:, None]
    return result if bias is None else result + bias


def _linear(op: Op, x: Array, weight: Array, bias: Array | None = None, **stored: Array) -> Array:
    """The width contracted with a stored weight of C = out, W = in."""
    weight = unpacked(op, weight, 2, **stored)
    result = x @ weight[0, 0, :, 0, :].T
    return result if bias is None else result + bias


def _sdpa(op: Op, q: Array, k: Array, v: Array, scale: Array, mask: Array | None = None) -> Array:
    """Channels hold the sequence, height the heads, width the features (layers.json SDPA)."""
    scores = np.matmul(_matrix(q, False), _matrix(k, True)) * scale.reshape(())
    if mask is not None:
        scores = scores + _matrix(mask, False)
    if op.attrs.get("subtract_max"):
        scores = scores - scores.max(axis=-1, keepdims=True)
    powers = np.exp(scores)
    mixed = np.matmul(powers / powers.sum(axis=-1, keepdims=True), _matrix(v, False))
    return mixed.transpose(0, 2, 1, 3)[:, None]


RULES: dict[str, Callable[..., Array]] = {
    "convolution": _convolution,
    "deconvolution": _deconvolution,
    "matmul": _matmul,
    "linear": _linear,
    "sdpa": _sdpa,
}
