"""Normalisations and softmax."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from aneforge.errors import LoadError
from aneforge.formats import forms
from aneforge.formats.importer.op import FileOp
from aneforge.formats.values import Numeric, Value, axis_of
from aneforge.graph import builders as af
from aneforge.graph.tensor import Tensor


def _layer_norm(
    x: Numeric,
    axes: list[int] | None = None,
    gamma: Value | None = None,
    beta: Value | None = None,
    epsilon: float = 1e-5,
) -> Tensor:
    normalised = sorted(axis_of(axis, x.ndim) for axis in (range(x.ndim) if axes is None else axes))
    scale, bias = (_broadcastable_gain(gain, x, normalised) for gain in (gamma, beta))
    return forms.layer_norm(x, normalised, scale, bias, epsilon)


def _broadcastable_gain(gain: Value | None, x: Tensor, axes: list[int]) -> Value | None:
    """A gain of the normalised axes, reshaped so that it broadcasts over the others. Along the last axis it already
    does."""
    if gain is None or axes == [x.ndim - 1]:
        return gain
    shape = [x.shape[i] if i in axes else 1 for i in range(x.ndim)]
    return gain.reshape(*shape) if isinstance(gain, Tensor) else np.asarray(gain).reshape(shape)


def _layer_norm_from(
    op: FileOp,
    x: Numeric,
    gamma: Value | None = None,
    beta: Value | None = None,
    axis: int = -1,
    epsilon: float = 1e-5,
) -> Tensor | list[Tensor]:
    """Over the axis and all behind it, with mean and reciprocal deviation where they are read."""
    axes = tuple(range(axis_of(axis, x.ndim), x.ndim))
    if op.used(1) or op.used(2):
        return forms.layer_norm_with_statistics(x, axes, gamma, beta, epsilon)
    return forms.layer_norm(x, axes, gamma, beta, epsilon)


def _rms_norm(x: Numeric, gamma: Value | None = None, axis: int = -1, epsilon: float = 1e-5) -> Tensor:
    """Over the axis and all behind it."""
    return forms.rms_norm(x, tuple(range(axis_of(axis, x.ndim), x.ndim)), gamma, epsilon)


def _l2_norm(x: Numeric, epsilon: float = 1e-6) -> Tensor:
    """Divide by the root of the sum of squares over the last three axes."""
    if x.ndim < 3:
        raise LoadError(f"the input has shape {list(x.shape)}; three axes or more are needed")
    axes = [i for i in range(x.ndim - 3, x.ndim) if x.shape[i] > 1]
    if len(axes) == 1:
        return x.l2_norm(axes[0], epsilon)
    return x * x.sum_square(tuple(range(x.ndim - 3, x.ndim))).rsqrt(epsilon)


def _response_norm(x: Numeric, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Tensor:
    return af.local_response_norm(x, size, alpha, beta, k)


def _centred(x: Numeric, axes: list[int], scale: bool = True, epsilon: float = 0.0) -> Tensor:
    """Subtract the mean over the axes, and divide by the standard deviation if ``scale``."""
    places = tuple(axis_of(axis, x.ndim) for axis in axes)
    centred = x - x.mean(places)
    return centred * centred.square().mean(places).rsqrt(epsilon) if scale else centred


def _softmax(x: Numeric, axis: int = -1) -> Tensor:
    return x.softmax(axis_of(axis, x.ndim))


OPS: dict[str, Callable[..., object]] = {
    "batch_norm": forms.batch_norm,
    "centred": _centred,
    "channel_norm": forms.channel_norm,
    "cosine_similarity": forms.cosine_similarity,
    "group_norm": forms.group_norm,
    "instance_norm": forms.instance_norm,
    "l2_norm": _l2_norm,
    "layer_norm": _layer_norm,
    "layer_norm_from": _layer_norm_from,
    "local_response_norm": _response_norm,
    "log_softmax": forms.log_softmax,
    "lp_norm": forms.lp_normalised,
    "mean_variance_norm": forms.mean_variance_normalised,
    "rms_norm": _rms_norm,
    "softmax": _softmax,
}
