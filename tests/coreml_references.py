# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false, reportArgumentType=false
# pyright: reportCallIssue=false, reportOptionalMemberAccess=false, reportIndexIssue=false
"""Convolutions, pools, resizes and activations in plain NumPy, one element at a time."""

from __future__ import annotations

import numpy as np

# References in plain NumPy.


def conv_nd(x, w, b=None, stride=None, pads=None, dilation=None, groups=1):
    rank = x.ndim - 2
    stride, dilation, pads = stride or [1] * rank, dilation or [1] * rank, pads or [(0, 0)] * rank
    x = np.pad(x, [(0, 0), (0, 0), *pads])
    outs = [(x.shape[2 + i] - dilation[i] * (w.shape[2 + i] - 1) - 1) // stride[i] + 1 for i in range(rank)]
    result = np.zeros((x.shape[0], w.shape[0], *outs))
    each_in, each_out = x.shape[1] // groups, w.shape[0] // groups
    for place in np.ndindex(*outs):
        for out in range(w.shape[0]):
            group = out // each_out
            window = x[:, group * each_in : (group + 1) * each_in]
            for i in range(rank):
                begin = place[i] * stride[i]
                taken = np.arange(w.shape[2 + i]) * dilation[i] + begin
                window = np.take(window, taken, axis=2 + i)
            result[(slice(None), out, *place)] = (window * w[out]).reshape(len(x), -1).sum(axis=1)
    return result if b is None else result + b.reshape(1, -1, *(1,) * rank)


def deconv_nd(x, w, b=None, stride=None, cut=None, groups=1, size=None):
    rank = x.ndim - 2
    stride = stride or [1] * rank
    full = [(x.shape[2 + i] - 1) * stride[i] + w.shape[2 + i] for i in range(rank)]
    each_in, each_out = x.shape[1] // groups, w.shape[1]
    result = np.zeros((x.shape[0], each_out * groups, *full))
    for place in np.ndindex(*x.shape[2:]):
        for channel in range(x.shape[1]):
            group = channel // each_in
            block = tuple(slice(p * s, p * s + k) for p, s, k in zip(place, stride, w.shape[2:], strict=True))
            part = x[(slice(None), channel, *place)].reshape(-1, 1, *(1,) * rank) * w[channel]
            result[(slice(None), slice(group * each_out, (group + 1) * each_out), *block)] += part
    cut = cut or [(0, 0)] * rank
    size = size or [n - a - b_ for n, (a, b_) in zip(full, cut, strict=True)]
    grown = np.pad(
        result, [(0, 0), (0, 0), *((0, max(0, a + n - f)) for f, n, (a, _) in zip(full, size, cut, strict=True))]
    )
    picked = grown[(slice(None), slice(None), *(slice(a, a + n) for n, (a, _) in zip(size, cut, strict=True)))]
    return picked if b is None else picked + b.reshape(1, -1, *(1,) * rank)


def pooled(x, size, stride, pads, function, fill):
    rank = len(size)
    wide = np.pad(x, [(0, 0), (0, 0), *pads], constant_values=fill)
    outs = [(wide.shape[2 + i] - size[i]) // stride[i] + 1 for i in range(rank)]
    result = np.zeros((*x.shape[:2], *outs))
    for place in np.ndindex(*outs):
        block = tuple(slice(p * s, p * s + k) for p, s, k in zip(place, stride, size, strict=True))
        result[(slice(None), slice(None), *place)] = function(
            wide[(slice(None), slice(None), *block)].reshape(*x.shape[:2], -1)
        )
    return result


def sampled(x, grids):
    """Linear interpolation of the last two axes at given positions."""
    for axis, points in zip((-2, -1), grids, strict=True):
        moved = np.moveaxis(x, axis, -1)
        held = np.clip(points, 0, moved.shape[-1] - 1)
        flat = moved.reshape(-1, moved.shape[-1])
        x = np.stack([np.interp(held, np.arange(flat.shape[1]), line) for line in flat])
        x = np.moveaxis(x.reshape(*moved.shape[:-1], len(held)), -1, axis)
    return x


def softmax(x, axis=-1):
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def channels(v, rank=4):
    return v.reshape(1, -1, *(1,) * (rank - 2))
