"""Layers that compute element by element, combine several values, hold constants, or only move values."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np

from aneforge.errors import LoadError
from aneforge.formats import forms
from aneforge.formats.coreml.network.values import Blob, NetworkLayer, numbers_of, of_planes, weight_of
from aneforge.formats.coreml.table import KNOWN
from aneforge.formats.forms.pointwise import BINARY
from aneforge.formats.forms.reductions import REDUCTIONS
from aneforge.formats.importer.calls import called
from aneforge.formats.importer.host import on_host
from aneforge.formats.importer.op import FileOp
from aneforge.formats.ops import OPS
from aneforge.formats.records import ValueType
from aneforge.formats.rows import Row, row, table
from aneforge.formats.values import as_tensor, shaped
from aneforge.graph.tensor import Tensor

_FORM = "NonlinearityType"
_ACTIVATIONS = table(
    {
        "ELU": "elu x | alpha",
        "PReLU": "prelu x | alpha",
        "ReLU": "relu x",
        "leakyReLU": "leaky_relu x | alpha",
        "linear": "linear_activation x | alpha beta",
        "parametricSoftplus": "softplus_parametric x | alpha beta",
        "scaledTanh": "scaled_tanh x | alpha beta",
        "sigmoid": "sigmoid x",
        "sigmoidHard": "hard_sigmoid x | alpha beta",
        "softplus": "softplus x",
        "softsign": "softsign x",
        "tanh": "tanh x",
        "thresholdedReLU": "thresholded_relu x | alpha",
    },
    OPS,
)
_BY_CHANNEL = ("PReLU", "parametricSoftplus")
_UNARY = [row(text, OPS) for text in ("sqrt x", "rsqrt x | epsilon>eps", "inverse x | epsilon>eps", "pow x | alpha>y")]
_UNARY += [row(text, OPS) for text in ("exp x", "log x", "abs x", "threshold x | alpha")]
"""By the number of the type."""


def _function(entry: Row, params: Any, channels: int = 0) -> Callable[[Tensor], Tensor]:
    """The function of one tensor that a row names, with the numbers that the layer has for it."""
    settings = {common: getattr(params, name) for name, common in entry.names.items()}
    if channels:
        settings = {name: _by_channel(weights, channels) for name, weights in settings.items()}
    return lambda x: called(entry.function, {"x": x, **settings}, None)


def activation(params: Any, channels: int = 0) -> Callable[[Tensor], Tensor]:
    """The function that an activation names. A function with a number for each channel works on planes."""
    form = params.WhichOneof(_FORM)
    if form is None:
        raise LoadError("the activation must name a function")
    return _function(_ACTIVATIONS[form], getattr(params, form), channels if form in _BY_CHANNEL else 0)


def _by_channel(params: Any, channels: int) -> np.ndarray:
    count = len(params.floatValue) or len(params.float16Value) // 2 or channels
    return numbers_of(params, (1 if count == 1 else channels,), "a number for each channel")


def _activation(layer: NetworkLayer) -> Blob:
    if layer.params.WhichOneof(_FORM) in _BY_CHANNEL:
        x = layer.x.planes()
        return of_planes(activation(layer.params, x.shape[1])(x), layer.x.shape)
    return layer.x.map(activation(layer.params))


def _unary(layer: NetworkLayer) -> Blob:
    function = _function(_UNARY[layer.type], layer.params)
    scale, shift = layer.scale, layer.shift
    moved = scale != 1.0 or shift != 0.0
    return layer.x.map(lambda x: function(x.linear_activation(scale, shift) if moved else x))


def combine(blobs: list[Blob], function: Callable[[Tensor, Tensor], Tensor]) -> Blob:
    """Combine several values by a function of two, broadcast to one shape. Folded values stay folded where all can
    be."""
    shapes = [blob.shape for blob in blobs]
    shape = tuple(int(extent) for extent in np.broadcast_shapes(*shapes))
    foldable = len(shape) > 4 and all(
        len(blob_shape) == len(shape) and (blob_shape[:-3] == shape[:-3] or math.prod(blob_shape[:-3]) == 1)
        for blob_shape in shapes
    )
    values = [blob.planes() if foldable else blob.full() for blob in blobs]
    return Blob(reduce(function, values), shape)


def _combine_all(
    function: Callable[[Any, Any], Tensor], in_numpy: Callable[[Any, Any], Any], alone: str = ""
) -> Callable[[NetworkLayer], Blob]:
    """With one input, a number of the layer is the second operand. Known values, such as loop counters, stay known."""

    def rule(layer: NetworkLayer) -> Blob:
        arrays = [blob.known for blob in layer.inputs]
        if arrays and all(array is not None for array in arrays):
            values = arrays if len(arrays) > 1 or not alone else [*arrays, np.float64(getattr(layer, alone))]
            return Blob.of(np.asarray(reduce(in_numpy, values)))
        if len(layer.inputs) == 1 and alone:
            return layer.x.map(lambda x: function(x, getattr(layer, alone)))
        return combine(layer.inputs, function)

    return rule


def _average(layer: NetworkLayer) -> Blob:
    total = combine(layer.inputs, lambda a, b: a + b)
    return total.map(lambda x: forms.scaled(x, 1 / len(layer.inputs)))


def _dot(layer: NetworkLayer) -> Blob:
    """The dot product over the channels."""
    a, b = (blob.planes() for blob in layer.inputs)
    total = (a * b).sum((1,))
    if layer.cosineSimilarity:
        total = total / (a.sum_square((1,)) * b.sum_square((1,))).sqrt()
    return of_planes(total, layer.x.shape)


def _over_planes(params: Any, extents: Any, what: str) -> Tensor:
    shape = tuple(int(extent) for extent in extents) or (1,)
    lead = {1: (1, *shape, 1, 1), 3: (1, *shape)}.get(len(shape), shape)
    return as_tensor(numbers_of(params, shape, what).reshape(lead))


def _scale(layer: NetworkLayer) -> Blob:
    x = layer.x.planes() * _over_planes(layer.params.scale, layer.shapeScale, "the scale")
    if layer.hasBias:
        x = x + _over_planes(layer.params.bias, layer.shapeBias, "the bias")
    return of_planes(x, layer.x.shape)


def _constant(layer: NetworkLayer) -> Blob:
    shape = tuple(int(extent) for extent in layer.params.shape)
    values = numbers_of(layer.data, shape, "the constant")
    if layer.kind == "loadConstantND":
        return Blob.of(values)
    return Blob.of(values.reshape(*(1,) * (5 - len(shape)), *shape))  # loadConstant always has five axes


def embedded(name: str, indices: Blob, table: Any, bias: np.ndarray | None, shape: tuple[int, ...]) -> Blob:
    """Look up rows of a table [outputs, words]. If the indices are computed while the network runs, the host does
    it."""
    array = indices.known
    if array is not None:
        rows = np.asarray(table).T[array.reshape(-1).astype(int)]
        return Blob.of((rows if bias is None else rows + bias).reshape(shape))
    flat = shaped(as_tensor(indices.value), (math.prod(indices.shape),))
    op = FileOp("gather", name, {"x": [table.T], "indices": [flat], "axis": [np.array(0)]})
    op.types = {"x": [None], "indices": [ValueType("int32", flat.shape)], "axis": [ValueType("int32", ())]}
    op.outputs = [(name, ValueType("fp32", (*flat.shape, table.shape[0])))]
    reason = "the indices are computed while the network runs; the engine has no table look-up"
    (looked_up,) = on_host(op, reason, KNOWN)
    return Blob(looked_up if bias is None else looked_up + as_tensor(bias), shape)


def _embedding(layer: NetworkLayer) -> Blob:
    nd = layer.kind == "embeddingND"
    words, out = (
        (int(layer.vocabSize), int(layer.embeddingSize)) if nd else (int(layer.inputDim), int(layer.outputChannels))
    )
    table = weight_of(layer.weights, (out, words), "the table")
    bias = numbers_of(layer.bias, (out,), "the bias") if layer.hasBias else None
    shape = layer.x.shape
    result_shape = (*shape[:-1], out) if nd else (*shape[:-3], out, 1, 1)
    return embedded(layer.name, layer.x, table, bias, result_shape)


def _reshape(layer: NetworkLayer) -> Blob:
    """Reshape to [channels, height, width], or with the sequence in front. The mode says whether elements are counted
    with the channels first or last."""
    target = [int(extent) for extent in layer.targetShape]
    if len(target) not in (3, 4):
        raise LoadError(f"the target shape is {target}; it must have three or four extents")
    sequence, *plane = target if len(target) == 4 else (math.prod(layer.x.shape[:-3]), *target)
    x = layer.x.planes()
    if layer.mode == 1:
        channels, height, width = plane
        x = shaped(x.transpose([0, 2, 3, 1]), (sequence, height, width, channels)).transpose([0, 3, 1, 2])
    else:
        x = shaped(x, (sequence, *plane))
    return Blob(x, (sequence, 1, *plane) if len(layer.x.shape) == 5 else (sequence, *plane))


def _permute(layer: NetworkLayer) -> Blob:
    """Permute [sequence, channels, height, width]; the batch must be one."""
    shape = layer.x.shape
    if len(shape) == 5 and shape[1] != 1:
        raise LoadError(f"the input has shape {list(shape)}; a permutation needs a batch of 1")
    order = [int(axis) for axis in layer.axis] or [0, 1, 2, 3]
    x = layer.x.planes().transpose(order)
    return Blob(x, (x.shape[0], 1, *x.shape[1:]) if len(shape) == 5 else x.shape)


def _concat(layer: NetworkLayer) -> Blob:
    if layer.sequenceConcat:
        return Blob.of(forms.joined([blob.full() for blob in layer.inputs], 0))
    if len(layer.x.shape) < 3:
        return Blob.of(forms.joined([blob.full() for blob in layer.inputs], -1))
    return of_planes(forms.joined([blob.planes() for blob in layer.inputs], 1), layer.x.shape)


def _repeat(layer: NetworkLayer) -> Blob:
    x = layer.x.full()
    return Blob.of(x.tile([int(layer.nRepetitions), *(1,) * (x.ndim - 1)]))


_AXES = ((1, 2, 3), (2, 3), (1,), (2,), (3,))
_REDUCTIONS = ("sum", "mean", "prod", "log_sum", "sum_square", "l1_norm", "l2_norm", "max", "min", "argmax")


def _reduce(layer: NetworkLayer) -> Blob:
    x, axes, mode = layer.x.planes(), _AXES[layer.axis], _REDUCTIONS[layer.params.mode]
    if mode == "log_sum":
        raise LoadError("mode LOGSUM is not supported: sources disagree on what it computes; use reduceLogSum")
    if mode != "argmax":
        return of_planes(REDUCTIONS[mode](x, axes), layer.x.shape)
    if len(axes) != 1:
        raise LoadError("a position along several axes is not supported; use one axis")
    return of_planes(forms.position(x, axes[0], True), layer.x.shape)


LAYERS = {
    "activation": _activation,
    "add": _combine_all(forms.added, np.add, "alpha"),
    "average": _average,
    "bias": lambda layer: of_planes(
        layer.x.planes() + _over_planes(layer.params.bias, layer.params.shape, "the bias"), layer.x.shape
    ),
    "concat": _concat,
    "copy": lambda layer: layer.x,
    "dot": _dot,
    "embedding": _embedding,
    "embeddingND": _embedding,
    "loadConstant": _constant,
    "loadConstantND": _constant,
    "max": _combine_all(BINARY["maximum"], np.maximum),
    "min": _combine_all(BINARY["minimum"], np.minimum),
    "multiply": _combine_all(forms.multiplied, np.multiply, "alpha"),
    "permute": _permute,
    "reduce": _reduce,
    "reshape": _reshape,
    "scale": _scale,
    "sequenceRepeat": _repeat,
    "split": lambda layer: [
        of_planes(part, layer.x.shape) for part in OPS["split"](layer.x.planes(), 1, layer.outputs)
    ],
    "unary": _unary,
}
