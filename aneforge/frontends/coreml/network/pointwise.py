"""Layers of every element by itself, of several values together, and constants; and those that only move values."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np

from aneforge.frontends import LoadError, forms
from aneforge.frontends.coreml.network.blob import Blob, Layer, of_planes
from aneforge.frontends.coreml.network.weights import numbers_of, weight_of
from aneforge.frontends.importer.host import on_host
from aneforge.frontends.importer.op import Op
from aneforge.frontends.records import TensorType
from aneforge.frontends.values import as_tensor, shaped
from aneforge.graph import builders as af
from aneforge.graph.ops.leaf import const
from aneforge.graph.tensor import Tensor

__all__ = ["LAYERS", "activation", "embedded", "together"]


def activation(params: Any, channels: int = 0) -> Callable[[Tensor], Tensor]:
    """The function that an activation names; one with a number for each channel works on planes."""
    form = params.WhichOneof("NonlinearityType")
    if form is None:
        raise LoadError("an activation that names no function")
    told = getattr(params, form)
    plain: dict[str, Callable[[Tensor], Tensor]] = {
        "linear": lambda x: x.linear_activation(told.alpha, told.beta),
        "ReLU": Tensor.relu,
        "leakyReLU": lambda x: forms.leaky_relu(x, told.alpha),
        "thresholdedReLU": lambda x: x.thresholded_relu(told.alpha),
        "tanh": Tensor.tanh,
        "scaledTanh": lambda x: x.scaled_tanh(told.alpha, told.beta),
        "sigmoid": Tensor.sigmoid,
        "sigmoidHard": lambda x: forms.hard_sigmoid(x, told.alpha, told.beta),
        "ELU": lambda x: forms.elu(x, told.alpha),
        "softsign": Tensor.softsign,
        "softplus": Tensor.softplus,
    }
    if form in plain:
        return plain[form]
    alpha = _by_channel(told.alpha, channels)
    if form == "PReLU":
        return lambda x: forms.prelu(x, alpha)
    beta = _by_channel(told.beta, channels)
    return lambda x: const(alpha) * (x * const(beta)).softplus()


def _by_channel(params: Any, channels: int) -> np.ndarray:
    count = len(params.floatValue) or len(params.float16Value) // 2 or channels
    found = numbers_of(params, (1 if count == 1 else channels,), "a number for each channel")
    return found.reshape(1, -1, 1, 1)


def _activation(layer: Layer) -> Blob:
    form = layer.params.WhichOneof("NonlinearityType")
    if form in ("PReLU", "parametricSoftplus"):
        x = layer.x.planes()
        return of_planes(activation(layer.params, x.shape[1])(x), layer.x.shape)
    return layer.x.map(activation(layer.params))


def _unary(layer: Layer) -> Blob:
    scale, shift, eps = layer.scale, layer.shift, layer.epsilon
    functions: tuple[Callable[[Tensor], Tensor], ...] = (
        Tensor.sqrt,
        lambda x: forms.rsqrt(x, eps),
        lambda x: forms.inverse(x, eps),
        lambda x: forms.power(x, layer.alpha),
        Tensor.exp,
        forms.log,
        Tensor.abs,
        lambda x: x.threshold(layer.alpha),
    )
    function = functions[layer.type]
    moved = scale != 1.0 or shift != 0.0
    return layer.x.map(lambda x: function(x.linear_activation(scale, shift) if moved else x))


def together(blobs: list[Blob], function: Callable[[Tensor, Tensor], Tensor]) -> Blob:
    """Several values by a function of two, stretched to one shape; folded ones stay so where all of them are."""
    shapes = [each.shape for each in blobs]
    shape = tuple(int(each) for each in np.broadcast_shapes(*shapes))
    foldable = len(shape) > 4 and all(
        len(each) == len(shape) and (each[:-3] == shape[:-3] or math.prod(each[:-3]) == 1) for each in shapes
    )
    values = [each.planes() if foldable else each.full() for each in blobs]
    total = values[0]
    for each in values[1:]:
        total = function(total, each)
    return Blob(total, shape)


def _several(
    function: Callable[[Any, Any], Tensor], in_numpy: Callable[[Any, Any], Any], alone: str = ""
) -> Callable[[Layer], Blob]:
    """With one input, a number of the layer is the other. Known values, such as counters of loops, stay known."""

    def rule(layer: Layer) -> Blob:
        known = [each.known for each in layer.inputs]
        if known and all(each is not None for each in known):
            values = known if len(known) > 1 or not alone else [*known, np.float64(getattr(layer, alone))]
            return Blob.of(np.asarray(reduce(in_numpy, values)))
        if len(layer.inputs) == 1 and alone:
            return layer.x.map(lambda x: function(x, getattr(layer, alone)))
        return together(layer.inputs, function)

    return rule


def _average(layer: Layer) -> Blob:
    total = together(layer.inputs, lambda a, b: a + b)
    return total.map(lambda x: forms.scaled(x, 1 / len(layer.inputs)))


def _dot(layer: Layer) -> Blob:
    """Over the channels."""
    a, b = (each.planes() for each in layer.inputs)
    total = (a * b).sum((1,))
    if layer.cosineSimilarity:
        total = total / (a.sum_square((1,)) * b.sum_square((1,))).sqrt()
    return of_planes(total, layer.x.shape)


def _placed(params: Any, told: Any, what: str) -> Tensor:
    shape = tuple(int(each) for each in told) or (1,)
    lead = {1: (1, *shape, 1, 1), 3: (1, *shape)}.get(len(shape), shape)
    return const(numbers_of(params, shape, what).reshape(lead))


def _scale(layer: Layer) -> Blob:
    x = layer.x.planes() * _placed(layer.params.scale, layer.shapeScale, "the scale")
    if layer.hasBias:
        x = x + _placed(layer.params.bias, layer.shapeBias, "the bias")
    return of_planes(x, layer.x.shape)


def _bias(layer: Layer) -> Blob:
    x = layer.x.planes() + _placed(layer.params.bias, layer.params.shape, "the bias")
    return of_planes(x, layer.x.shape)


def _constant(layer: Layer) -> Blob:
    shape = tuple(int(each) for each in layer.params.shape)
    values = numbers_of(layer.data, shape, "the constant")
    if layer.kind == "loadConstantND":
        return Blob.of(values)
    return Blob.of(values.reshape(*(1,) * (5 - len(shape)), *shape))  # this one always has five axes


def embedded(name: str, indices: Blob, table: Any, bias: np.ndarray | None, shape: tuple[int, ...]) -> Blob:
    """Rows of a table [outputs, words]: an index that is only known while the network runs is the host's."""
    known = indices.known
    if known is not None:
        rows = np.asarray(table).T[known.reshape(-1).astype(int)]
        return Blob.of((rows if bias is None else rows + bias).reshape(shape))
    flat = shaped(as_tensor(indices.value), (math.prod(indices.shape),))
    op = Op("gather", name, {"x": [table.T], "indices": [flat], "axis": [np.array(0)]})
    op.types = {"x": [None], "indices": [TensorType("int32", flat.shape)], "axis": [TensorType("int32", ())]}
    op.outputs = [(name, TensorType("fp32", (*flat.shape, table.shape[0])))]
    (found,) = on_host(op, "its words are only known while the network runs, and the engine has no look-up")
    return Blob(found if bias is None else found + const(bias), shape)


def _embedding(layer: Layer) -> Blob:
    nd = layer.kind == "embeddingND"
    words, out = (
        (int(layer.vocabSize), int(layer.embeddingSize)) if nd else (int(layer.inputDim), int(layer.outputChannels))
    )
    table = weight_of(layer.weights, (out, words), "the table")
    bias = numbers_of(layer.bias, (out,), "the bias") if layer.hasBias else None
    shape = layer.x.shape
    wanted = (*shape[:-1], out) if nd else (*shape[:-3], out, 1, 1)
    return embedded(layer.name, layer.x, table, bias, wanted)


def _reshape(layer: Layer) -> Blob:
    """[channels, height, width], or the sequence before them; elements are counted with the channels first or last."""
    wanted = [int(each) for each in layer.targetShape]
    if len(wanted) not in (3, 4):
        raise LoadError(f"a target of {wanted}; it has three or four extents")
    sequence, *rest = wanted if len(wanted) == 4 else (math.prod(layer.x.shape[:-3]), *wanted)
    x = layer.x.planes()
    if layer.mode == 1:
        channels, height, width = rest
        x = shaped(x.transpose([0, 2, 3, 1]), (sequence, height, width, channels)).transpose([0, 3, 1, 2])
    else:
        x = shaped(x, (sequence, *rest))
    return Blob(x, (sequence, 1, *rest) if len(layer.x.shape) == 5 else (sequence, *rest))


def _permute(layer: Layer) -> Blob:
    """Of [sequence, channels, height, width], the batch being one."""
    shape = layer.x.shape
    if len(shape) == 5 and shape[1] != 1:
        raise LoadError(f"a permutation of {list(shape)}, whose batch is not one")
    order = [int(each) for each in layer.axis] or [0, 1, 2, 3]
    x = layer.x.planes().transpose(order)
    return Blob(x, (x.shape[0], 1, *x.shape[1:]) if len(shape) == 5 else x.shape)


def _concat(layer: Layer) -> Blob:
    if layer.sequenceConcat:
        return Blob.of(af.concat([each.full() for each in layer.inputs], axis=0))
    if len(layer.x.shape) < 3:
        return Blob.of(af.concat([each.full() for each in layer.inputs], axis=-1))
    return of_planes(af.concat([each.planes() for each in layer.inputs], axis=1), layer.x.shape)


def _split(layer: Layer) -> list[Blob]:
    return [of_planes(each, layer.x.shape) for each in af.split(layer.x.planes(), layer.outputs, axis=1)]


def _repeat(layer: Layer) -> Blob:
    x = layer.x.full()
    return Blob.of(x.tile([int(layer.nRepetitions), *(1,) * (x.ndim - 1)]))


_AXES = ((1, 2, 3), (2, 3), (1,), (2,), (3,))


def _unsettled() -> Tensor:
    raise LoadError("LOGSUM of this layer: sources disagree whether it is a sum of logarithms; use reduceLogSum")


def _reduce(layer: Layer) -> Blob:
    x, axes = layer.x.planes(), _AXES[layer.axis]
    if layer.params.mode == 9:
        if len(axes) != 1:
            raise LoadError("a position along several axes")
        return of_planes(forms.position(x, axes[0], True), layer.x.shape)
    functions: tuple[Callable[[], Tensor], ...] = (
        lambda: x.sum(axes),
        lambda: x.mean(axes),
        lambda: x.prod(axes),
        _unsettled,
        lambda: x.sum_square(axes),
        lambda: x.l1_norm(axes),
        lambda: x.sum_square(axes).sqrt(),
        lambda: x.amax(axes),
        lambda: x.amin(axes),
    )
    return of_planes(functions[layer.params.mode](), layer.x.shape)


LAYERS = {
    "activation": _activation,
    "add": _several(forms.added, np.add, "alpha"),
    "average": _average,
    "bias": _bias,
    "concat": _concat,
    "copy": lambda layer: layer.x,
    "dot": _dot,
    "embedding": _embedding,
    "embeddingND": _embedding,
    "loadConstant": _constant,
    "loadConstantND": _constant,
    "max": _several(af.maximum, np.maximum),
    "min": _several(af.minimum, np.minimum),
    "multiply": _several(forms.multiplied, np.multiply, "alpha"),
    "permute": _permute,
    "reduce": _reduce,
    "reshape": _reshape,
    "scale": _scale,
    "sequenceRepeat": _repeat,
    "split": _split,
    "unary": _unary,
}
