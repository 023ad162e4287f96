# pyright: reportMissingImports=false
"""ATen ops that are layers of networks: convolutions, pools, resampling, norms, attention, recurrent and quantised
layers, as far as PyTorch has rules of its own for them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from aneforge.errors import LoadError
from aneforge.formats import forms
from aneforge.formats.forms.pointwise import UNARY
from aneforge.formats.forms.recurrent import GATES, USUAL, Cell, by_gate, recurrence
from aneforge.formats.importer.op import FileOp
from aneforge.formats.ops import OPS
from aneforge.formats.pytorch.functions import refuse_training, stated_shape
from aneforge.formats.values import Array, NoForm, Numeric, Value
from aneforge.graph.encoding import Encoded
from aneforge.graph.tensor import Tensor

_LONGEST = 4096  # the longest axis that is resampled
_INDICES = "the indices of the largest elements are read; the engine's pool has no such output"


def _each(numbers: Sequence[int], rank: int) -> list[int]:
    """One number for each spatial axis; a single number counts for all."""
    return list(numbers) * rank if len(numbers) == 1 else list(numbers)


def _pads(padding: Sequence[int], rank: int) -> list[tuple[int, int]]:
    return [(width, width) for width in _each(padding, rank)]


def _with_batch(x: Tensor, rank: int) -> Tensor:
    """Add the batch axis that PyTorch allows to leave out."""
    return x.reshape(1, *x.shape) if x.ndim == rank + 1 else x


# Convolutions and windows.


def convolve(
    x: Numeric,
    weight: Value,
    bias: Value | None = None,
    strides: Sequence[int] = (1,),
    padding: str | Sequence[int] = (0,),
    dilations: Sequence[int] = (1,),
    transposed: bool = False,
    output_padding: Sequence[int] = (0,),
    groups: int = 1,
) -> Tensor:
    rank = weight.ndim - 2
    image, steps, gaps = _with_batch(x, rank), _each(strides, rank), _each(dilations, rank)
    if isinstance(padding, str):
        return OPS["conv"](image, weight, bias, steps, padding, None, gaps, groups)
    settings: dict[str, Any] = {"stride": steps, "pads": _pads(padding, rank), "dilation": gaps, "groups": groups}
    if transposed:
        return forms.transposed_convolution(
            image, weight, bias, **settings, output_padding=_each(output_padding, rank)
        )
    return forms.convolution(image, weight, bias, **settings)


def unfold(x: Numeric, sizes: list[int], dilations: list[int], padding: list[int], strides: list[int]) -> Tensor:
    window = {"stride": _each(strides, 2), "pads": _pads(padding, 2), "dilation": _each(dilations, 2)}
    return forms.unfold_columns(_with_batch(x, 2), _each(sizes, 2), **window)


def fold(
    x: Numeric, out: list[int], sizes: list[int], dilations: list[int], padding: list[int], strides: list[int]
) -> Tensor:
    window: dict[str, Any] = {"stride": _each(strides, 2), "pads": _pads(padding, 2), "dilation": _each(dilations, 2)}
    return forms.fold_columns(_with_batch(x, 1), _each(out, 2), _each(sizes, 2), **window)


def _in_planes(function: Callable[[Tensor, int], Tensor]) -> Callable[..., Tensor]:
    """Blocks of pixels, with any number of axes before the channels."""

    def blocks(x: Numeric, block: int) -> Tensor:
        return function(x if x.ndim == 4 else x.reshape(-1, *x.shape[-3:]), block)

    return blocks


# Pools.


def max_pool_of(
    op: FileOp,
    x: Numeric,
    sizes: list[int],
    rank: int,
    strides: list[int] | None = None,
    padding: list[int] | None = None,
    dilations: list[int] | None = None,
    ceil: bool = False,
) -> Tensor:
    if op.used(1):
        raise NoForm(_INDICES)
    gaps = _each(dilations or [1], rank)
    box = forms.PoolWindow(_each(sizes, rank), _each(strides or sizes, rank), _pads(padding or [0], rank), gaps, ceil)
    return forms.max_pool(_with_batch(x, rank), box)


def average_pool_of(
    x: Numeric,
    sizes: list[int],
    rank: int,
    strides: list[int] | None = None,
    padding: list[int] | None = None,
    ceil: bool = False,
    count_pad: bool = True,
    divisor: int | None = None,
) -> Tensor:
    if divisor is not None and ceil:
        raise LoadError("divisor_override with ceil_mode is not supported; use one of them")
    box = forms.PoolWindow(_each(sizes, rank), _each(strides or sizes, rank), _pads(padding or [0], rank), ceil=ceil)
    mean = forms.average_pool(_with_batch(x, rank), box, count_pad or divisor is not None)
    return mean if divisor is None else forms.scaled(mean, math.prod(box.size) / divisor)


def adaptive_mean(op: FileOp, x: Numeric, rank: int) -> Tensor:
    return forms.adaptive_average_pool(_with_batch(x, rank), stated_shape(op)[-rank:])


def adaptive_max(op: FileOp, x: Numeric, rank: int) -> Tensor:
    if op.used(1):
        raise NoForm(_INDICES)
    return forms.adaptive_max_pool(_with_batch(x, rank), stated_shape(op)[-rank:])


# Resampling. PyTorch resamples unit signals along an axis, which gives the weights of each position.


def resize(
    op: FileOp, x: Numeric, rank: int, scales: Sequence[Any] = (), kind: str = "linear", align_corners: bool = False
) -> Tensor:
    image = _with_batch(x, rank)
    factors = scales[0] if scales and isinstance(scales[0], (list, tuple)) else scales
    weights = {}
    for place, out in enumerate(stated_shape(op)[-rank:]):
        extent, scale = image.shape[2 + place], factors[place] if len(factors) == rank else None
        matrix = _resize_weights(kind, extent, out, align_corners, scale)
        if out != extent or not np.array_equal(matrix, np.eye(extent)):
            weights[2 + place] = matrix
    return forms.resampled(image, weights)


def _resize_weights(kind: str, extent: int, out: int, align: bool, scale: float | None) -> Array:
    """The weights [out, extent] of each output position along an axis."""
    import torch

    if extent > _LONGEST:
        raise NoForm(f"an axis of {extent:,} elements is too long to resample; the limit is {_LONGEST:,}")
    aten, signals = torch.ops.aten, torch.eye(extent, dtype=torch.float64)[None]
    if kind == "nearest":
        line = aten.upsample_nearest1d(signals, [out], scale)[0]
    elif kind == "nearest_exact":
        line = aten._upsample_nearest_exact1d(signals, [out], scale)[0]
    elif kind == "linear":
        line = aten.upsample_linear1d(signals, [out], align, scale)[0]
    else:  # cubic: the other axis has one position
        line = aten.upsample_bicubic2d(signals[:, :, None], [1, out], align, None, scale)[0, :, 0]
    return line.numpy().T


def sample_grid(x: Numeric, grid: Value, mode: int = 0, padding: int = 0, align_corners: bool = False) -> Tensor:
    """Samples at the places of a grid."""
    modes, pads = ("linear", "nearest", "cubic"), ("zeros", "border", "reflection")
    return forms.grid_sample(x, grid, modes[mode], pads[padding], align_corners)


# Norms and attention.


def layer_norm_of(
    op: FileOp,
    x: Numeric,
    shape: list[int],
    gamma: Value | None = None,
    beta: Value | None = None,
    epsilon: float = 1e-5,
) -> Any:
    return OPS["layer_norm_from"](op, x, gamma, beta, -len(shape), epsilon)


def rms_norm_of(
    x: Numeric, shape: list[int], gamma: Value | None = None, epsilon: float = float(np.finfo(np.float32).eps)
) -> Tensor:
    """Without an eps PyTorch uses the machine epsilon of float32."""
    return OPS["rms_norm"](x, gamma, -len(shape), epsilon)


def batch_norm_of(
    x: Numeric,
    gamma: Value | None = None,
    beta: Value | None = None,
    mean: Value | None = None,
    variance: Value | None = None,
    training: bool = False,
    epsilon: float = 1e-5,
) -> Tensor:
    refuse_training(training or mean is None or variance is None, "measures each batch")
    return OPS["batch_norm"](x, mean, variance, gamma, beta, epsilon)


def instance_norm_of(
    x: Numeric,
    gamma: Value | None = None,
    beta: Value | None = None,
    mean: Value | None = None,
    variance: Value | None = None,
    by_input: bool = True,
    epsilon: float = 1e-5,
) -> Tensor:
    if by_input:
        return forms.instance_norm(x, gamma, beta, epsilon)
    return OPS["batch_norm"](x, mean, variance, gamma, beta, epsilon)


def attention(
    q: Numeric,
    k: Numeric,
    v: Numeric,
    mask: Value | None = None,
    dropout: float = 0.0,
    causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    refuse_training(dropout > 0, "drops elements at random")
    queries, keys = q.shape[-2], k.shape[-2]
    if causal and queries != keys:  # PyTorch aligns the mask with the first query and the first key
        mask, causal = forms.causal_mask(queries, keys), False
    return forms.attention(q, k, v, scale=scale, mask=mask, causal=causal)


# Recurrent layers: all layers and directions, and their last states.


def _recurrent(kind: str, names: Sequence[str]) -> Callable[..., list[Tensor | None]]:
    functions, usual = [UNARY[name] for name in names], names == USUAL[kind]
    states = 2 if kind == "LSTM" else 1

    def cell(weights: Sequence[Any], start: Sequence[Tensor]) -> Cell:
        if any(isinstance(weight, Tensor) for weight in weights):
            raise NoForm("the weights of the recurrent layer are computed; the engine needs fixed weights")
        gates = [by_gate(weight, GATES[kind]) for weight in weights]
        b, c = gates[2:4] if len(gates) == 4 else ({}, {})
        return Cell(kind, gates[0], gates[1], start, functions, b, c, usual=usual, reset_after=True)

    def layers_of(
        op: FileOp,
        x: Numeric,
        start: Any,
        weights: Sequence[Value],
        biases: bool,
        layers: int,
        dropout: float,
        training: bool,
        bidirectional: bool,
        batch_first: bool = False,
    ) -> list[Tensor | None]:
        starts = [forms.as_number(state) for state in (start if isinstance(start, (list, tuple)) else [start])]
        directions, width = 2 if bidirectional else 1, 4 if biases else 2
        if len(starts) != states or len(weights) != layers * directions * width:
            raise NoForm(
                "packed sequences and projected states are not supported; export the layer with padded sequences and "
                "proj_size=0"
            )
        refuse_training(training and dropout > 0, "drops elements between layers")
        series = forms.transposed(x, [1, 0, 2]) if batch_first else x
        lasts: list[list[Tensor]] = [[] for _ in starts]
        for layer in range(layers):
            outputs = []
            for direction in range(directions):
                place = layer * directions + direction
                layer_cell = cell(weights[place * width : (place + 1) * width], [state[place] for state in starts])
                output, ends = recurrence(layer_cell, series, backwards=bool(direction))
                outputs.append(output)
                for last, end in zip(lasts, ends, strict=True):
                    last.append(end)
            series = forms.joined(outputs, 2)
        ends = [forms.stacked(last, 0) if op.used(k + 1) else None for k, last in enumerate(lasts)]
        return [forms.transposed(series, [1, 0, 2]) if batch_first else series, *ends]

    return layers_of


# Quantised layers: stored codes keep their encoding; activations use the graph's quantise ops.

_COMPUTED = "the scale or the zero point is computed; the engine needs fixed values"


def _known_number(value: Value | float, what: str) -> float:
    """The one scale or zero point of a tensor."""
    if isinstance(value, Tensor):
        raise LoadError(_COMPUTED)
    if np.size(value) != 1:
        raise LoadError(f"{np.size(value)} {what}s are given; quantisation per tensor needs one")
    return float(np.asarray(value).reshape(-1)[0])


def _kind(low: int) -> str:
    """The type of the codes, from their range."""
    return "int8" if low < 0 else "uint8"


def _bits(low: int, high: int) -> int:
    """The bits of a code; four-bit weights are bytes with a range of 16."""
    return 4 if high - low < 16 else 8


def dequantise(codes: Value, scale: Value | float, zero: Value | float, low: int, high: int) -> Value:
    """(code - zero point) * scale."""
    factor, offset = _known_number(scale, "scale"), int(_known_number(zero, "zero point"))
    if not isinstance(codes, Tensor):
        return Encoded.affine(codes, factor, offset, bits=_bits(low, high))
    if high - low > 255:
        raise LoadError(f"codes from {low} to {high} are not supported; the engine takes at most 8 bits")
    return forms.dequantised(forms.as_number(codes), factor, offset, _kind(low))


def _stored(what: str, *operands: Value | None) -> None:
    if any(isinstance(operand, Tensor) for operand in operands):
        raise LoadError(
            f"quantisation by {what} is not supported for a computed tensor; the codes and scales must be stored"
        )


def dequantise_channels(
    codes: Value, scale: Value, low: int, high: int, axis: int, zero: Value | None = None
) -> Encoded:
    _stored("channel", codes, scale, zero)
    points = None if zero is None or not np.any(zero) else np.asarray(zero)
    return Encoded.affine(codes, np.asarray(scale), points, axis=axis, bits=_bits(low, high))


def dequantise_groups(codes: Value, scale: Value, low: int, high: int, zero: Value | None = None) -> Encoded:
    """There is one scale for each group along the last axis."""
    _stored("group", codes, scale, zero)
    points = None if zero is None or not np.any(zero) else np.asarray(zero).reshape(np.shape(scale))
    return Encoded.blockwise(codes, np.asarray(scale), points, bits=_bits(low, high))


def quantise(x: Numeric, scale: Value | float, zero: Value | float, low: int, high: int) -> Tensor:
    numbers = _known_number(scale, "scale"), int(_known_number(zero, "zero point"))
    return forms.quantised(x, *numbers, _kind(low), ends=(low, high))


def fake_quantise(x: Numeric, scale: Value | float, zero: Value | float, low: int, high: int) -> Tensor:
    return forms.fake_quantised(x, _known_number(scale, "scale"), int(_known_number(zero, "zero point")), (low, high))


def fake_quantise_channels(x: Numeric, scale: Value, zero: Value, axis: int, low: int, high: int) -> Tensor:
    if isinstance(scale, Tensor) or isinstance(zero, Tensor):
        raise LoadError(_COMPUTED)
    return forms.fake_quantised(x, np.asarray(scale), np.asarray(zero), (low, high), axis)


gru, lstm, rnn = (_recurrent(kind, USUAL[kind]) for kind in ("GRU", "LSTM", "RNN"))
rnn_relu = _recurrent("RNN", ["relu"])
shuffle_pixels = _in_planes(OPS["pixel_shuffle"])
unshuffle_pixels = _in_planes(OPS["pixel_unshuffle"])
