"""Convolutions, resampling and recurrent layers where ONNX has rules of its own."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from aneforge.errors import LoadError
from aneforge.formats import forms
from aneforge.formats.forms.recurrent import USUAL, Activation, Cell, by_gate, recurrence
from aneforge.formats.ops import OPS
from aneforge.formats.ops.products import pads_by_type
from aneforge.formats.values import Array, NoForm, Numeric, Value, as_tensor, axis_of
from aneforge.graph.tensor import Tensor

# Convolutions.


def transposed_convolution(
    x: Numeric,
    weight: Value,
    bias: Value | None = None,
    strides: list[int] | None = None,
    pad_type: str = "custom",
    pad: list[int] | None = None,
    dilations: list[int] | None = None,
    groups: int = 1,
    output_padding: list[int] | None = None,
    output_shape: list[int] | None = None,
) -> Tensor:
    """An output_shape counts more than pads; an odd element is cut off the start, unless auto_pad is SAME_UPPER."""
    if output_shape is not None and pad_type != "same":
        pad_type = "same_lower"
    window = strides, pad_type, pad, dilations, groups
    return OPS["conv_transpose"](x, weight, bias, *window, output_shape, output_padding)


def col2im(
    x: Numeric,
    image_shape: list[int],
    block_shape: list[int],
    strides: list[int] | None = None,
    pad: list[int] | None = None,
    dilations: list[int] | None = None,
) -> Tensor:
    pads = pads_by_type("custom", pad, image_shape, block_shape, strides or [])
    return forms.fold_columns(x, image_shape, block_shape, stride=strides, pads=pads, dilation=dilations)


# Resampling, at positions that are known when the file is read.


def resize_axes(
    x: Numeric,
    roi: Array | None = None,
    scales: Array | None = None,
    sizes: Array | None = None,
    axes: list[int] | None = None,
    mode: str = "nearest",
    coordinate_transformation_mode: str = "half_pixel",
    nearest_mode: str = "round_prefer_floor",
    cubic_coeff_a: float = -0.75,
    exclude_outside: bool = False,
    antialias: bool = False,
    keep_aspect_ratio_policy: str = "stretch",
    extrapolation_value: float = 0.0,
) -> Tensor:
    """Resize each axis separately, by an op of the engine or by a product with known weights."""
    places = [axis_of(axis, x.ndim) for axis in (range(x.ndim) if axes is None else axes)]
    extents = [x.shape[axis] for axis in places]
    factors, out_extents = _extents(extents, scales, sizes, keep_aspect_ratio_policy)
    how = forms.Sampling(mode, coordinate_transformation_mode, nearest_mode, cubic_coeff_a, exclude_outside, antialias)
    regions = _regions(coordinate_transformation_mode, roi, len(places))
    weights: dict[int, Array] = {}
    inside = np.ones((1,) * x.ndim)
    for place, axis in enumerate(places):
        if out_extents[place] == extents[place] and factors[place] == 1.0 and regions[place] in (None, (0.0, 1.0)):
            continue
        matrix, outside = forms.resize_weights(extents[place], out_extents[place], factors[place], how, regions[place])
        weights[axis] = matrix
        if outside.any():
            inside = inside * (~outside).reshape([-1 if i == axis else 1 for i in range(x.ndim)])
    result = forms.resampled(x, weights)
    if extrapolation_value == 0.0 or inside.all():
        return result
    return forms.added(result, (1 - inside) * extrapolation_value)


def _extents(
    extents: list[int], scales: Array | None, sizes: Array | None, policy: str
) -> tuple[list[float], list[int]]:
    """Return the scale and the new length of each axis."""
    if sizes is not None and sizes.size:
        out_extents = [int(size) for size in sizes.reshape(-1)]
        ratios = [size / extent for size, extent in zip(out_extents, extents, strict=True)]
        if policy == "stretch":
            return ratios, out_extents
        factor = min(ratios) if policy == "not_larger" else max(ratios)
        return [factor] * len(ratios), [math.floor(factor * extent + 0.5) for extent in extents]
    if scales is None:
        raise LoadError("input 'scales' is missing; the op needs it")
    if scales.size != len(extents):
        raise LoadError(f"scales has {scales.size} values, expected {len(extents)}, one for each axis")
    factors = [float(scale) for scale in scales.reshape(-1)]
    if not all(0 < factor < 1e6 for factor in factors):
        raise LoadError(f"scales {factors} are out of range; each must be above 0 and below 1,000,000")
    return factors, [math.floor(factor * extent) for factor, extent in zip(factors, extents, strict=True)]


def _regions(coordinates: str, roi: Array | None, count: int) -> list[tuple[float, float] | None]:
    if coordinates != "tf_crop_and_resize":
        return [None] * count
    if roi is None or roi.size != 2 * count:
        size = 0 if roi is None else roi.size
        raise LoadError(f"roi has {size} values, expected {2 * count}, two for each axis")
    ends = roi.reshape(-1)
    return [(float(ends[i]), float(ends[i + count])) for i in range(count)]


def roi_align(
    x: Numeric,
    rois: Value,
    batch_indices: Value,
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
    coordinate_transformation_mode: str = "half_pixel",
) -> Tensor:
    if mode != "avg":
        raise NoForm("mode 'max' is not supported; the engine takes the mean of the points in a cell. Use mode 'avg'")
    half_pixel = coordinate_transformation_mode == "half_pixel"
    size = output_height, output_width
    return forms.roi_align(x, rois, batch_indices, size, sampling_ratio, spatial_scale, half_pixel)


# LSTM, GRU and RNN: weights by direction and gate, and the activations of a node.


_ORDER = {"RNN": "n", "GRU": "zrn", "LSTM": "iofg"}
_PEEPHOLES = "iof"

_ACTIVATIONS: dict[str, Callable[..., Tensor]] = {
    "affine": lambda x, a=1.0, b=0.0: x.linear_activation(a, b),
    "elu": lambda x, a=1.0: x.elu(a),
    "hardsigmoid": lambda x, a=0.2, b=0.5: x.sigmoid_hard(a, b),
    "leakyrelu": lambda x, a=0.01: x.leaky_relu(a),
    "relu": Tensor.relu,
    "scaledtanh": lambda x, a=1.0, b=1.0: x.scaled_tanh(a, b),
    "sigmoid": Tensor.sigmoid,
    "softplus": Tensor.softplus,
    "softsign": Tensor.softsign,
    "tanh": Tensor.tanh,
}
_SETTINGS = {"affine": "ab", "elu": "a", "hardsigmoid": "ab", "leakyrelu": "a", "scaledtanh": "ab"}
"""Which settings an activation takes from the node's lists, in order."""


def _layer(kind: str) -> Callable[..., list[Tensor]]:
    order = _ORDER[kind]

    def layer(
        x: Tensor,
        w: Value,
        r: Value,
        b: Value | None = None,
        lengths: list[int] | None = None,
        initial_h: Value | None = None,
        initial_c: Value | None = None,
        peepholes: Value | None = None,
        direction: str = "forward",
        layout: bool = False,
        activations: list[str] | None = None,
        activation_alpha: list[float] | None = None,
        activation_beta: list[float] | None = None,
        clip: float | None = None,
        input_forget: bool = False,
        linear_before_reset: bool = False,
    ) -> list[Tensor]:
        """Return all states and the last ones. The input is [steps, samples, features], or samples first."""
        series = forms.transposed(x, [1, 0, 2]) if layout else x
        states = (initial_h, initial_c) if kind == "LSTM" else (initial_h,)
        starts = [_start(state, layout) for state in states]
        settings = activations or [], activation_alpha or [], activation_beta or []
        functions, count = _activations(kind, w.shape[0], *settings), len(USUAL[kind])
        runs = []
        for place in range(w.shape[0]):
            names, own = zip(*functions[count * place : count * (place + 1)], strict=True)
            inner, outer, biases, peeps = (_direction_part(value, place) for value in (w, r, b, peepholes))
            bias_by_gate = by_gate(biases, order + order.upper())
            zeros = as_tensor(np.zeros((series.shape[1], outer.shape[1])))
            cell = Cell(
                kind,
                by_gate(inner, order),
                by_gate(outer, order),
                [zeros if start is None else start[place] for start in starts],
                own,
                {gate: bias_by_gate[gate] for gate in order if bias_by_gate},
                {gate: bias_by_gate[gate.upper()] for gate in order if bias_by_gate},
                usual=list(names) == USUAL[kind],
                peepholes=by_gate(peeps, _PEEPHOLES),
                clip=clip,
                coupled=input_forget,
                reset_after=linear_before_reset,
            )
            runs.append(recurrence(cell, series, direction == "reverse" or place == 1, lengths))
        outputs = forms.stacked([outputs for outputs, _ in runs], 1)
        last_states = [forms.stacked([ends[i] for _, ends in runs], 0) for i in range(len(starts))]
        if layout:
            outputs = forms.transposed(outputs, [2, 0, 1, 3])
            last_states = [forms.transposed(state, [1, 0, 2]) for state in last_states]
        return [outputs, *last_states]

    return layer


def _start(value: Value | None, samples_first: bool) -> Tensor | None:
    if value is None:
        return None
    return forms.transposed(as_tensor(value), [1, 0, 2]) if samples_first else as_tensor(value)


def _direction_part(value: Value | None, place: int) -> Any:
    """Return the part of one direction."""
    if value is None:
        return None
    return value[place] if isinstance(value, Tensor) else np.asarray(value)[place]


def _activations(
    kind: str, directions: int, stated: list[str], alpha: list[float], beta: list[float]
) -> list[tuple[str, Activation]]:
    """The functions of all directions with their names; two lists have their settings in order."""
    names = [name.lower() for name in stated] or USUAL[kind]
    names = names if len(names) >= len(USUAL[kind]) * directions else names * directions
    numbers = {"a": list(alpha), "b": list(beta)}
    functions: list[tuple[str, Activation]] = []
    for name in names:
        if name not in _ACTIVATIONS:
            raise LoadError(f"activation {name!r} is not known; choose one: {', '.join(_ACTIVATIONS)}")
        settings = {key: float(numbers[key].pop(0)) for key in _SETTINGS.get(name, "") if numbers[key]}
        functions.append((name, partial(_ACTIVATIONS[name], **settings)))
    return functions


gru_layer, lstm_layer, rnn_layer = _layer("GRU"), _layer("LSTM"), _layer("RNN")
