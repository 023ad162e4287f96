"""Ops that move elements and compute nothing, and the buffers of programs that keep state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np

from aneforge.engine.ir import AnecError, Op

Array = np.ndarray


def _transpose(op: Op, x: Array) -> Array:
    """Pairs (result axis, source axis) for every axis that moves."""
    order = list(range(5))
    for result, source in op.attrs["transpose_list"]:
        order[result] = source
    return x.transpose(order)


def _concat(op: Op, *xs: Array) -> Array:
    """``interleave`` takes one slice of each operand in turn."""
    axis = op.attrs["axis"]
    if not op.attrs.get("interleave"):
        return np.concatenate(xs, axis=axis)
    stacked = np.stack(xs, axis=axis + 1)
    return stacked.reshape(op.shape)


def _input_view(op: Op, x: Array) -> Array:
    """``size`` elements from ``offset`` on, ``step`` apart; a negative step walks back."""
    attrs = op.attrs
    places = attrs["offset"] + attrs["step"] * np.arange(attrs["size"])
    if places.min() < 0 or places.max() >= x.shape[attrs["dimension"]]:
        raise AnecError(f"InvalidInputViewSize: {attrs['size']} from {attrs['offset']} by {attrs['step']}")
    return np.take(x, places, axis=attrs["dimension"])


def _gather(op: Op, x: Array, indices: Array | None = None) -> Array:
    """Along one axis by ``indices``; along several by an operand whose channels hold one index for each axis (U89)."""
    axes = op.attrs["axes"]
    if len(axes) == 1:
        places = op.attrs["indices"] if indices is None else indices.astype(int).reshape(-1)
        return np.take(x, places, axis=axes[0]).reshape(op.shape)
    if indices is None:
        raise AnecError("gather_nd: fixed indices take one axis")
    rest = [axis for axis in range(5) if axis not in axes]
    lines = x.transpose(*axes, *rest)
    return lines[tuple(indices.astype(int).reshape(len(axes), -1))].reshape(op.shape)


_PADDING: dict[str, Literal["edge", "symmetric", "reflect"]] = {
    "Replication": "edge",
    "Symmetric": "symmetric",
    "Reflective": "reflect",
}


def _padding(op: Op, x: Array) -> Array:
    """The modes of enums.json ZinIrPaddingMode; ``Background`` adds the background value."""
    mode, sizes = op.attrs["padding_modes"], op.attrs["padding_sizes"]
    if mode in ("Zero", "Background"):
        return np.pad(x, sizes, constant_values=op.attrs["background_value"] if mode == "Background" else 0.0)
    if mode not in _PADDING:
        raise AnecError(
            f"padding: mode {mode!r} is not supported; choose one: Zero, Background, {', '.join(_PADDING)}"
        )
    return np.pad(x, sizes, mode=_PADDING[mode])


def _flatten(op: Op, x: Array) -> Array:
    """One image as a line of channels, in the order that the mode names."""
    order = {"NCHW": (0, 1, 2, 3, 4), "NHWC": (0, 1, 3, 4, 2)}[op["flatten_mode"]]
    return x.transpose(order).reshape(x.shape[0], x.shape[1], -1, 1, 1)


def _unflatten(op: Op, x: Array) -> Array:
    """The inverse of flatten: channels to ``destination_size`` (C, H, W)."""
    c, h, w = op.attrs["destination_size"]
    if op["flatten_mode"] == "NHWC":
        return x.reshape(*x.shape[:2], h, w, c).transpose(0, 1, 4, 2, 3)
    return x.reshape(*x.shape[:2], c, h, w)


def to_channels(x: Array, factors: tuple[int, ...], channel_major: bool) -> Array:
    """Blocks of (D, H, W) pixels to channels. Channel-major keeps the pixels of a channel together (channel
    c * block + place, PyTorch's order); block-major keeps the channels of a place together (place * C + c,
    TensorFlow's)."""
    n, d, c, h, w = x.shape
    z, y, u = factors
    split = x.reshape(n, d // z, z, c, h // y, y, w // u, u)
    order = (0, 1, 3, 2, 5, 7, 4, 6) if channel_major else (0, 1, 2, 5, 7, 3, 4, 6)
    return split.transpose(order).reshape(n, d // z, c * z * y * u, h // y, w // u)


def to_space(x: Array, factors: tuple[int, ...], channel_major: bool) -> Array:
    """The inverse of :func:`to_channels`."""
    n, d, c, h, w = x.shape
    z, y, u = factors
    left = c // (z * y * u)
    if channel_major:
        split = x.reshape(n, d, left, z, y, u, h, w).transpose(0, 1, 3, 2, 6, 4, 7, 5)
    else:
        split = x.reshape(n, d, z, y, u, left, h, w).transpose(0, 1, 2, 5, 6, 3, 7, 4)
    return split.reshape(n, d * z, left, h * y, w * u)


def _rearrange(move: Callable[..., Array], channel_major: bool) -> Callable[..., Array]:
    return lambda op, x: move(x, op.attrs["factors"], channel_major)


def _space_to_batch(op: Op, x: Array) -> Array:
    """The place inside a block varies slowest in the new batch, the old batch fastest."""
    n, d, c, h, w = x.shape
    z, y, u = op.attrs["factors"]
    split = x.reshape(n, d // z, z, c, h // y, y, w // u, u)
    return split.transpose(2, 5, 7, 0, 1, 3, 4, 6).reshape(n * z * y * u, d // z, c, h // y, w // u)


def _batch_to_space(op: Op, x: Array) -> Array:
    n, d, c, h, w = x.shape
    z, y, u = op.attrs["factors"]
    left = n // (z * y * u)
    split = x.reshape(z, y, u, left, d, c, h, w).transpose(3, 4, 0, 5, 6, 1, 7, 2)
    return split.reshape(left, d * z, c, h * y, w * u)


def _ring_read(op: Op, buffer: Array) -> Array:
    """``size`` columns from ``offset`` on, around the end: the ring is along the width (an assumption)."""
    places = (op.attrs["offset"] + np.arange(op.attrs["size"])) % buffer.shape[4]
    return buffer[..., places]


def _ring_write(op: Op, x: Array, buffer: Array) -> Array:
    """The buffer with the columns of ``x`` put from ``offset`` on, around the end."""
    result = buffer.copy()
    result[..., (op.attrs["offset"] + np.arange(x.shape[4])) % buffer.shape[4]] = x
    return result


RULES: dict[str, Callable[..., Array]] = {
    "reshape": lambda op, x: x.reshape(op.attrs["shape"]),
    "broadcast": lambda op, x: np.broadcast_to(x, op.attrs["shape"]),
    "transpose": _transpose,
    "concat": _concat,
    "tile": lambda op, x: np.tile(x, op.attrs["multiples"]),
    "input_view": _input_view,
    "gather_nd": _gather,
    "padding": _padding,
    "flatten": _flatten,
    "unflatten": _unflatten,
    "pixel_shuffle": _rearrange(to_space, True),
    "pixel_unshuffle": _rearrange(to_channels, True),
    "channel_to_space": _rearrange(to_space, False),
    "space_to_channel": _rearrange(to_channels, False),
    "space_to_batch": _space_to_batch,
    "batch_to_space": _batch_to_space,
    "ring_buffer_reader": _ring_read,
    "ring_buffer_writer": _ring_write,
    "tensor_buffer_to_tensor": lambda op, buffer: buffer,
    "tensor_to_tensor_buffer": lambda op, x: x,
}
