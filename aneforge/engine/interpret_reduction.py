"""Reductions and normalisations; axes are positions in NDCHW and every reduced axis is kept as one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from aneforge.engine.ir import AnecError, Op

Array = np.ndarray


def _reduce(function: Callable[..., Array]) -> Callable[..., Array]:
    def rule(op: Op, x: Array) -> Array:
        return function(np.square(x) if op.attrs.get("square_input") else x, axis=op.attrs["axes"], keepdims=True)

    return rule


def _softmax(op: Op, x: Array) -> Array:
    axes = op.attrs["axes"]
    powers = np.exp(x - x.max(axis=axes, keepdims=True))
    return powers / powers.sum(axis=axes, keepdims=True)


def _white(x: Array, axes: tuple[int, ...], epsilon: float) -> Array:
    centred = x - x.mean(axis=axes, keepdims=True)
    return centred / np.sqrt(np.square(centred).mean(axis=axes, keepdims=True) + epsilon)


def _gained(x: Array, gamma: Array | None, beta: Array | None) -> Array:
    x = x if gamma is None else x * gamma
    return x if beta is None else x + beta


def _layer_norm(op: Op, x: Array, gamma: Array | None = None, beta: Array | None = None) -> Array:
    """``groups`` splits the channels: each group is normalised on its own. That form needs depth one."""
    axes, groups = op["axes"], op["groups"]
    if groups == 1:
        return _gained(_white(x, axes, op.attrs["epsilon"]), gamma, beta)
    n, d, c, h, w = x.shape
    if d != 1:
        raise AnecError('layer_norm: groups need depth 1; the compiler says "... does not yet support depth > 1"')
    split = x.reshape(n, d, groups, c // groups, h, w)
    moved = tuple(axis + (axis >= 2) for axis in axes)
    return _gained(_white(split, moved, op.attrs["epsilon"]).reshape(x.shape), gamma, beta)


def _instance_norm(op: Op, x: Array, gamma: Array | None = None, beta: Array | None = None) -> Array:
    return _gained(_white(x, op.attrs["axes"], op.attrs["epsilon"]), gamma, beta)


def _batch_norm(op: Op, x: Array, gamma: Array, beta: Array, mean: Array, variance: Array) -> Array:
    return (x - mean) * (gamma / np.sqrt(variance + op.attrs["epsilon"])) + beta


def _global_arg(op: Op, x: Array) -> Array:
    """The position of the extreme along one axis, as a number; the first of equals."""
    find = {"Max": np.argmax, "Min": np.argmin}[op.attrs["mode"]]
    return np.expand_dims(find(x, axis=op.attrs["axis"]), op.attrs["axis"]).astype(np.float64)


def _arg(op: Op, x: Array) -> Array:
    """``ChannelArg*`` looks along the channels; ``SpatialArg*`` in each window of (H, W), row by row."""
    mode, find = op.attrs["mode"], np.argmax if op.attrs["mode"].endswith("Max") else np.argmin
    if mode.startswith("Channel"):
        return np.expand_dims(find(x, axis=2), 2).astype(np.float64)
    top, bottom, left, right = op.attrs["pad_values"]
    fill = -np.inf if mode.endswith("Max") else np.inf
    wide = np.pad(x, ((0, 0), (0, 0), (0, 0), (top, bottom), (left, right)), constant_values=fill)
    view = np.lib.stride_tricks.sliding_window_view(wide, op.attrs["kernel_size"], axis=(3, 4))
    rows, columns = op.attrs["stride_values"]
    view = view[:, :, :, ::rows, ::columns]
    return find(view.reshape(*view.shape[:5], -1), axis=5).astype(np.float64)


RULES: dict[str, Callable[..., Array]] = {
    "reduce_sum": _reduce(np.sum),
    "reduce_avg": _reduce(np.mean),
    "reduce_max": _reduce(np.max),
    "reduce_min": _reduce(np.min),
    "softmax": _softmax,
    "layer_norm": _layer_norm,
    "instance_norm": _instance_norm,
    "batch_norm": _batch_norm,
    "arg_min_max": _arg,
    "global_arg_min_max": _global_arg,
}
