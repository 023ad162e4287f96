"""Normalisations and softmax along any axes, with known or computed gains; quantisers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from aneforge.errors import LoadError
from aneforge.formats.forms.numbers import norm_epsilon
from aneforge.formats.values import NoForm, Numeric, Value, as_tensor, axis_of, known
from aneforge.graph import builders as af
from aneforge.graph.ops.leaf import const
from aneforge.graph.ops.quantised import CODE_RANGES
from aneforge.graph.tensor import Tensor

Array = np.ndarray


def whitened(x: Tensor, axes: Sequence[int], eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """``x`` scaled to mean 0 and variance 1 along the axes, its mean, and the reciprocal of its standard deviation."""
    mean = x.mean(tuple(axes))
    centred = x - mean
    reciprocal = centred.square().mean(tuple(axes)).rsqrt(eps)
    return centred * reciprocal, mean, reciprocal


def layer_norm(x: Tensor, axes: Sequence[int], scale: Value | None, bias: Value | None, eps: float) -> Tensor:
    """An op of the graph along the last axis with known gains; otherwise mean and variance are computed step by
    step."""
    eps = norm_epsilon(eps)
    width = x.shape[-1]
    if _is_line(x, axes, scale) and (bias is None or isinstance(bias, np.ndarray)):
        gamma = np.ones(width) if scale is None else scale
        beta = np.zeros(width) if bias is None else np.broadcast_to(known(bias, "the bias"), (width,))
        return x.layer_norm(gamma, beta, eps)
    return _with_gains(whitened(x, axes, eps)[0], scale, bias)


def rms_norm(x: Tensor, axes: Sequence[int], scale: Value | None, eps: float) -> Tensor:
    eps = norm_epsilon(eps)
    if _is_line(x, axes, scale):
        return x.rms_norm(np.ones(x.shape[-1]) if scale is None else scale, eps)
    return _with_gains(x * x.square().mean(tuple(axes)).rsqrt(eps), scale, None)


def _is_line(x: Tensor, axes: Sequence[int], scale: Value | None) -> bool:
    """Whether a norm runs along the last axis with a known scale for each element."""
    fits_line = scale is None or (isinstance(scale, np.ndarray) and scale.shape == x.shape[-1:])
    return fits_line and tuple(axes) == (x.ndim - 1,)


def _with_gains(x: Tensor, scale: Value | None, bias: Value | None) -> Tensor:
    scaled = x if scale is None else x * as_tensor(scale)
    return scaled if bias is None else scaled + as_tensor(bias)


def group_norm(
    x: Numeric, groups: int, gamma: Value | None = None, beta: Value | None = None, epsilon: float = 1e-5
) -> Tensor:
    """Gains are for each channel or for each group. With known gains it is an op of the graph."""
    eps = norm_epsilon(epsilon)
    if not isinstance(gamma, Tensor) and not isinstance(beta, Tensor):
        result = _planes(x).group_norm(_gains(gamma, x, groups, 1.0), _gains(beta, x, groups, 0.0), groups, eps)
        return result if x.ndim == 4 else result.reshape(*x.shape)
    lines = whitened(x.reshape(x.shape[0], groups, -1), (2,), eps)[0].reshape(*x.shape)
    return _with_gains(lines, *(_by_channel(gain, x, groups) for gain in (gamma, beta)))


def instance_norm(x: Numeric, gamma: Value | None = None, beta: Value | None = None, epsilon: float = 1e-5) -> Tensor:
    """Normalise each channel of each sample separately."""
    eps = norm_epsilon(epsilon)
    if not isinstance(gamma, Tensor) and not isinstance(beta, Tensor):
        result = af.instance_norm(_planes(x), _gains(gamma, x, 1, 1.0), _gains(beta, x, 1, 0.0), eps)
        return result if x.ndim == 4 else result.reshape(*x.shape)
    white = whitened(x, range(2, x.ndim), eps)[0]
    return _with_gains(white, _by_channel(gamma, x), _by_channel(beta, x))


def _planes(x: Tensor) -> Tensor:
    """All spatial axes as two. A norm over all of them gives the same result."""
    if x.ndim == 4:
        return x
    space = x.shape[2:] or (1,)
    return x.reshape(*x.shape[:2], math.prod(space[:-1]), space[-1])


def _gains(gain: Value | None, x: Tensor, groups: int, default: float) -> Array:
    """A number for each channel."""
    if gain is None:
        return np.full(x.shape[1], default)
    numbers = known(gain, "a gain").reshape(-1)
    return numbers if numbers.size == x.shape[1] else np.repeat(numbers, x.shape[1] // groups)


def _by_channel(gain: Value | None, x: Tensor, groups: int = 1) -> Tensor | None:
    if gain is None:
        return None
    shape = (1, -1, *(1,) * (x.ndim - 2))
    if not isinstance(gain, Tensor):
        return const(_gains(gain, x, groups, 0.0).reshape(shape))
    if gain.size == groups != x.shape[1]:
        gain = gain.reshape(groups, 1).tile([1, x.shape[1] // groups])
    return gain.reshape(*shape)


def batch_norm(
    x: Numeric,
    mean: Value,
    variance: Value,
    gamma: Value | None = None,
    beta: Value | None = None,
    epsilon: float = 1e-5,
) -> Tensor:
    """Normalise with the statistics of the training, which must be known."""
    centre, spread = (
        np.asarray(known(statistic, "a statistic"), np.float64).reshape(-1) for statistic in (mean, variance)
    )
    scale = np.ones_like(centre) if gamma is None else np.asarray(known(gamma, "a gain"), np.float64).reshape(-1)
    bias = np.zeros_like(centre) if beta is None else np.asarray(known(beta, "a gain"), np.float64).reshape(-1)
    return af.batch_norm(x, scale, bias, centre, spread, norm_epsilon(epsilon))


def channel_norm(x: Numeric, gamma: Value | None = None, beta: Value | None = None, epsilon: float = 1e-5) -> Tensor:
    """Normalise each channel over all samples, by its own mean and variance."""
    axes = [axis for axis in range(x.ndim) if axis != 1]
    return _with_gains(whitened(x, axes, norm_epsilon(epsilon))[0], _by_channel(gamma, x), _by_channel(beta, x))


def cosine_similarity(a: Numeric, b: Numeric, axis: int = 1, epsilon: float = 1e-8) -> Tensor:
    """The cosine of the angle between two vectors, keeping the axis. Both lengths count as at least ``epsilon``."""
    axes = (axis_of(axis, max(a.ndim, b.ndim)),)
    least = max(epsilon, 6e-8)  # the smallest step of fp16
    lengths = [af.maximum(side.sum_square(axes).sqrt(), least) for side in (a, b)]
    return (a * b).sum(axes) / lengths[0] / lengths[1]


def log_softmax(x: Numeric, axis: int = -1) -> Tensor:
    axes = (axis_of(axis, x.ndim),)
    shifted = x - x.amax(axes)
    return shifted - shifted.reduce_log_sum_exp(axes)


def layer_norm_with_statistics(
    x: Tensor, axes: Sequence[int], scale: Value | None, bias: Value | None, eps: float
) -> list[Tensor]:
    """The norm, its mean and the reciprocal of its standard deviation."""
    white, mean, reciprocal = whitened(x, axes, eps)
    return [_with_gains(white, scale, bias), mean, reciprocal]


def batch_norm_in_training(
    x: Tensor, scale: Value, bias: Value, mean: Value, variance: Value, eps: float, momentum: float
) -> list[Tensor]:
    """Normalise with the statistics of the batch; the running statistics move towards them."""
    axes, shape = tuple(i for i in range(x.ndim) if i != 1), (1, -1, *(1,) * (x.ndim - 2))
    centre = x.mean(axes)
    spread = (x - centre).square().mean(axes)
    gain, shift = (as_tensor(parameter).reshape(*shape) for parameter in (scale, bias))
    result = (x - centre) * spread.rsqrt(eps) * gain + shift
    moved = [
        as_tensor(running) * momentum + batch.reshape(x.shape[1]) * (1 - momentum)
        for running, batch in ((mean, centre), (variance, spread))
    ]
    return [result, *moved]


def root_mean_square(x: Tensor, axes: Sequence[int], eps: float) -> tuple[Tensor, Tensor]:
    """The root of the mean of squares, and its reciprocal."""
    spread = x.square().mean(tuple(axes))
    return spread.sqrt(), spread.rsqrt(eps)


def lp_normalised(x: Numeric, axis: int = -1, p: int = 2) -> Tensor:
    """Divide by the sum of magnitudes, or by the root of the sum of squares. A row of zeros stays zero."""
    axes = (axis_of(axis, x.ndim),)
    size = x.l1_norm(axes) if p == 1 else x.sum_square(axes).sqrt()
    return x / af.maximum(size, 2.0**-24)


def mean_variance_normalised(x: Numeric, axes: list[int]) -> Tensor:
    places = tuple(axis_of(axis, x.ndim) for axis in axes)
    centred = x - x.mean(places)
    return centred / (centred.square().mean(places).sqrt() + 1e-9)


# Codes of quantised models: the one place where readers build the graph's two quantisers.


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
