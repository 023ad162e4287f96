"""Layers that say the same as an op of MIL: their parameters as its arguments, and its rule does the rest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from aneforge.frontends import LoadError
from aneforge.frontends.coreml.network.blob import Blob, Layer
from aneforge.frontends.coreml.network.weights import numbers_of, weight_of
from aneforge.frontends.forms import broadcast_to, linear
from aneforge.frontends.importer.host import on_host
from aneforge.frontends.importer.op import Op
from aneforge.frontends.ops import RULES
from aneforge.frontends.ops.known import STATIC, folded
from aneforge.frontends.records import TensorType, Type
from aneforge.frontends.values import NoForm
from aneforge.graph.encoding import Encoded
from aneforge.graph.tensor import Tensor

__all__ = ["LAYERS"]

Rule = Callable[[Layer], Any]
_WHOLE = ("indices", "lengths")  # arguments that are whole numbers, whatever the network holds them as


def _called(layer: Layer, kind: str, given: dict[str, Any], outputs: int = 1) -> list[Blob]:
    """An op of MIL with these arguments."""
    held: dict[str, list[Any]] = {}
    types: dict[str, list[Type | None]] = {}
    for name, value in given.items():
        values = value if isinstance(value, list) and value and isinstance(value[0], Blob) else [value]
        held[name] = [each.held() if isinstance(each, Blob) else np.asarray(each) for each in values]
        dtype = "int32" if name in _WHOLE else "fp32"
        types[name] = [
            TensorType(dtype, tuple(each.shape)) if isinstance(each, Tensor) else None for each in held[name]
        ]
    op = Op(kind, layer.name, held, types, [(f"{layer.name}.{i}", None) for i in range(outputs)])
    values = [each for group in held.values() for each in group]
    if kind in STATIC and all(isinstance(each, (np.ndarray, Encoded)) for each in values):
        return [Blob.of(each) for each in folded(op)]
    try:
        found = RULES[kind](op)
    except NoForm as reason:
        found = on_host(op, str(reason))
    return [Blob.of(each) for each in (found if isinstance(found, (list, tuple)) else [found])]


def _as(kind: str, **arguments: Callable[[Layer], Any]) -> Rule:
    """The op of one input, its other arguments read off the layer."""
    return lambda layer: _called(layer, kind, {"x": layer.x, **{k: f(layer) for k, f in arguments.items()}})


def _of_two(kind: str, first: str = "x", second: str = "y") -> Rule:
    """The op of two inputs; a comparison with one compares with a number of the layer."""

    def rule(layer: Layer) -> list[Blob]:
        other: Any = layer.inputs[1] if len(layer.inputs) > 1 else np.float64(layer.alpha)
        return _called(layer, kind, {first: layer.x, second: other})

    return rule


def _reduced(kind: str) -> Rule:
    def rule(layer: Layer) -> list[Blob]:
        axes = {} if layer.reduceAll or not layer.axes else {"axes": list(layer.axes)}
        return _called(layer, kind, {"x": layer.x, "keep_dims": layer.keepDims, **axes})

    return rule


_MODES = ("update", "add", "sub", "mul", "div", "max", "min")


def _scattered(kind: str) -> Rule:
    def rule(layer: Layer) -> list[Blob]:
        data, indices, updates = layer.inputs
        axis = {} if kind == "scatter_nd" else {"axis": layer.axis}
        given = {"data": data, "indices": indices, "updates": updates, "mode": _MODES[layer.params.mode]}
        return _called(layer, kind, {**given, **axis})

    return rule


def _gathered(kind: str) -> Rule:
    def rule(layer: Layer) -> list[Blob]:
        axis = {} if kind == "gather_nd" else {"axis": layer.axis}
        return _called(layer, kind, {"x": layer.x, "indices": layer.inputs[1], **axis})

    return rule


def _known(layer: Layer, place: int, what: str) -> list[int]:
    found = layer.inputs[place].known if place < len(layer.inputs) else None
    if found is None:
        raise LoadError(f"{what} is only known while the network runs; the engine needs a fixed one")
    return [int(each) for each in found.reshape(-1)]


def _dynamic_slice(layer: Layer) -> list[Blob]:
    told = [
        list(layer.endIds),
        list(layer.strides),
        list(layer.beginMasks),
        list(layer.endMasks),
        list(layer.squeezeMasks),
    ]
    for place in range(2, len(layer.inputs)):
        told[place - 2] = _known(layer, place, "a slice")
    names = ("end", "stride", "begin_mask", "end_mask", "squeeze_mask")
    given = {name: np.asarray(value) for name, value in zip(names, told, strict=True) if value}
    return _called(layer, "slice_by_index", {"x": layer.x, "begin": _known(layer, 1, "where it begins"), **given})


def _static_slice(layer: Layer) -> list[Blob]:
    given = {
        "begin": list(layer.beginIds),
        "end": list(layer.endIds),
        "stride": list(layer.strides),
        "begin_mask": list(layer.beginMasks),
        "end_mask": list(layer.endMasks),
    }
    squeezed = {"squeeze_mask": list(layer.squeezeMasks)} if layer.squeezeMasks else {}
    return _called(layer, "slice_by_index", {"x": layer.x, **given, **squeezed})


def _slice_by_size(layer: Layer) -> list[Blob]:
    shape = layer.x.shape
    axis = layer.axis % len(shape)
    begin = [_known(layer, 1, "where it begins")[0] if i == axis else 0 for i in range(len(shape))]
    size = [int(layer.params.size) if i == axis else -1 for i in range(len(shape))]
    return _called(layer, "slice_by_size", {"x": layer.x, "begin": begin, "size": size})


def _split(layer: Layer) -> list[Blob]:
    sizes = [int(each) for each in layer.splitSizes]
    given = {"split_sizes": sizes} if sizes else {"num_splits": int(layer.numSplits)}
    return _called(layer, "split", {"x": layer.x, "axis": layer.axis, **given}, layer.outputs)


def _squeeze(layer: Layer) -> list[Blob]:
    return _called(layer, "squeeze", {"x": layer.x, **({} if layer.squeezeAll else {"axes": list(layer.axes)})})


def _reshape(layer: Layer, shape: list[int]) -> list[Blob]:
    return _called(layer, "reshape", {"x": layer.x, "shape": shape})


def _broadcast(layer: Layer, shape: list[int] | tuple[int, ...]) -> Blob:
    known = layer.x.known
    if known is not None:
        return Blob.of(np.broadcast_to(known, shape))
    return Blob.of(broadcast_to(layer.x.full(), shape))


def _constant_pad(layer: Layer) -> list[Blob]:
    rank = len(layer.x.shape)
    told = _known(layer, 1, "the padding") if len(layer.inputs) > 1 else [int(each) for each in layer.padAmounts]
    if len(told) != 2 * rank:
        raise LoadError(f"{len(told)} amounts for {rank} axes")
    if layer.padToGivenOutputSizeMode:  # a size in place of an amount, on the side where it is to grow
        for place in range(2 * rank):
            told[place] = max(0, told[place] - layer.x.shape[place // 2]) if told[place] else 0
    return _called(layer, "pad", {"x": layer.x, "pad": told, "mode": "constant", "constant_val": layer.value})


def _matmul(layer: Layer) -> Blob | list[Blob]:
    if len(layer.inputs) > 1:
        given = {"x": layer.x, "y": layer.inputs[1], "transpose_x": layer.transposeA, "transpose_y": layer.transposeB}
        return _called(layer, "matmul", given)
    rows, columns = int(layer.weightMatrixFirstDimension), int(layer.weightMatrixSecondDimension)
    # Stored column by column, so that it is the matrix [columns, rows] of a linear layer.
    weight = weight_of(layer.weights, (columns, rows), "the weight")
    bias = numbers_of(layer.bias, (columns,), "the bias") if layer.hasBias else None
    return Blob.of(linear(layer.x.full(), weight, bias))


def _topk(layer: Layer) -> list[Blob]:
    count = _known(layer, 1, "how many it gives")[0] if len(layer.inputs) > 1 else int(layer.K)
    given = {"x": layer.x, "k": count, "axis": layer.axis, "ascending": layer.useBottomK}
    return _called(layer, "topk", given, layer.outputs)


def _position(kind: str) -> Rule:
    def rule(layer: Layer) -> list[Blob]:
        removed = layer.removeDim and len(layer.x.shape) > 1
        return _called(layer, kind, {"x": layer.x, "axis": layer.axis, "keep_dims": not removed})

    return rule


def _triangle(lower: bool) -> Rule:
    """A product with a known mask."""

    def rule(layer: Layer) -> list[Blob]:
        ones = np.ones(layer.x.shape[-2:])
        mask = np.tril(ones, layer.k) if lower else np.triu(ones, layer.k)
        return _called(layer, "mul", {"x": layer.x, "y": mask})

    return rule


def _one_hot(layer: Layer) -> list[Blob]:
    count = _known(layer, 1, "how many there are")[0] if len(layer.inputs) > 1 else int(layer.oneHotVectorSize)
    given = {"indices": layer.x, "one_hot_vector_size": count, "axis": layer.axis}
    return _called(layer, "one_hot", {**given, "on_value": layer.onValue, "off_value": layer.offValue})


def _range(layer: Layer) -> Blob:
    told = [layer.params.endValue] if layer.kind == "rangeStatic" else []
    told += [layer.startValue, layer.stepSizeValue]
    if layer.kind == "rangeDynamic":
        found = [each.known for each in layer.inputs]
        if any(each is None for each in found):
            raise LoadError("a range that is only known while the network runs")
        values = [float(np.asarray(each).reshape(-1)[0]) for each in found]
        told = [*values, *[layer.startValue, layer.stepSizeValue][len(values) - 1 :]]
    end, start, step = told
    return _called(layer, "range_1d", {"end": end, "start": start, "step": step})[0]


def _random(kind: str, form: str) -> Rule:
    def rule(layer: Layer) -> list[Blob]:
        shape = {
            "Like": lambda: layer.x.shape,
            "Static": lambda: layer.outputShape,
            "Dynamic": lambda: _known(layer, 0, "its shape"),
        }
        names = {
            "random_normal": {"mean": "mean", "stddev": "stdDev"},
            "random_uniform": {"low": "minVal", "high": "maxVal"},
        }
        told = names.get(kind, {"prob": "prob"})
        given = {name: getattr(layer, own) for name, own in told.items()}
        return _called(layer, kind, {"shape": list(shape[form]()), "seed": layer.seed, **given})

    return rule


def _suppressed(layer: Layer) -> list[Blob]:
    told: list[Any] = [layer.iouThreshold, layer.scoreThreshold, int(layer.maxBoxes)]
    for place in range(2, len(layer.inputs)):
        known = layer.inputs[place].known
        if known is None:
            raise LoadError("a threshold that is only known while the network runs")
        told[place - 2] = known.reshape(-1)[0]
    names = ("iou_threshold", "score_threshold", "max_boxes")
    given = {"boxes": layer.x, "scores": layer.inputs[1], "per_class_suppression": layer.perClassSuppression}
    return _called(layer, "non_maximum_suppression", {**given, **dict(zip(names, told, strict=True))}, layer.outputs)


def _cumulative(layer: Layer) -> list[Blob]:
    axis = _known(layer, 1, "its axis")[0] if len(layer.inputs) > 1 else layer.axis
    given = {"x": layer.x, "axis": axis, "exclusive": layer.excludeFinalSum, "reverse": layer.reverse}
    return _called(layer, "cumsum", given)


def _tile(layer: Layer) -> list[Blob]:
    reps = _known(layer, 1, "how often it repeats") if len(layer.inputs) > 1 else [int(each) for each in layer.reps]
    return _called(layer, "tile", {"x": layer.x, "reps": [1] * (len(layer.x.shape) - len(reps)) + reps})


def _reversed(layer: Layer) -> list[Blob]:
    axes = [i for i, turned in enumerate(layer.reverseDim) if turned]
    return _called(layer, "reverse", {"x": layer.x, "axes": axes}) if axes else [layer.x]


def _reverse_sequence(layer: Layer) -> list[Blob]:
    given = {"lengths": _known(layer, 1, "a length"), "seq_axis": layer.sequenceAxis, "batch_axis": layer.batchAxis}
    return _called(layer, "reverse_sequence", {"x": layer.x, **given})


_GELU = ("EXACT", "TANH_APPROXIMATION", "SIGMOID_APPROXIMATION")
_PLAIN = "ceil floor sign round exp2 sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf".split()  # noqa: SIM905
_BINARY = {"mod": "mod", "min": "minimum", "max": "maximum", "add": "add", "pow": "pow", "divide": "real_div"}
_BINARY |= {"floorDiv": "floor_div", "multiply": "mul", "subtract": "sub"}
_COMPARED = {"equal": "equal", "notEqual": "not_equal", "lessThan": "less", "lessEqual": "less_equal"}
_COMPARED |= {"greaterThan": "greater", "greaterEqual": "greater_equal"}
_REDUCED = {"L1": "l1_norm", "L2": "l2_norm", "Max": "max", "Min": "min", "Sum": "sum", "Prod": "prod", "Mean": "mean"}
_REDUCED |= {"LogSum": "log_sum", "SumSquare": "sum_square", "LogSumExp": "log_sum_exp"}
_RANDOM = {"Normal": "random_normal", "Uniform": "random_uniform", "Bernoulli": "random_bernoulli"}

LAYERS: dict[str, Rule] = {
    **{name: _as(name) for name in _PLAIN},
    **{f"{name}Broadcastable": _of_two(kind) for name, kind in _BINARY.items()},
    **{name: _of_two(kind) for name, kind in _COMPARED.items()},
    **{f"logical{name}": _of_two(f"logical_{name.lower()}") for name in ("And", "Or", "Xor")},
    **{f"reduce{name}": _reduced(f"reduce_{kind}") for name, kind in _REDUCED.items()},
    **{
        f"random{name}{form}": _random(kind, form)
        for name, kind in _RANDOM.items()
        for form in ("Like", "Static", "Dynamic")
    },
    "NonMaximumSuppression": _suppressed,
    "argMax": _position("reduce_argmax"),
    "argMin": _position("reduce_argmin"),
    "argSort": _as("argsort", axis=lambda layer: layer.axis, ascending=lambda layer: not layer.descending),
    "batchedMatmul": _matmul,
    "broadcastToDynamic": lambda layer: _broadcast(layer, _known(layer, 1, "its shape")),
    "broadcastToLike": lambda layer: _broadcast(layer, layer.inputs[1].shape),
    "broadcastToStatic": lambda layer: _broadcast(layer, [int(each) for each in layer.targetShape]),
    "clampedReLU": _as("clamped_relu", alpha=lambda layer: layer.alpha, beta=lambda layer: layer.beta),
    "clip": _as("clip", alpha=lambda layer: layer.minVal, beta=lambda layer: layer.maxVal),
    "concatND": lambda layer: _called(
        layer, "concat", {"values": layer.inputs, "axis": layer.axis, "interleave": layer.interleave}
    ),
    "constantPad": _constant_pad,
    "cumSum": _cumulative,
    "expandDims": _as("expand_dims", axes=lambda layer: list(layer.axes)),
    "fillDynamic": lambda layer: _called(
        layer, "fill", {"shape": _known(layer, 0, "its shape"), "value": layer.value}
    ),
    "fillLike": lambda layer: _called(layer, "fill", {"shape": list(layer.x.shape), "value": layer.value}),
    "fillStatic": lambda layer: _called(layer, "fill", {"shape": list(layer.targetShape), "value": layer.value}),
    "flattenTo2D": _as("flatten2d", axis=lambda layer: layer.axis),
    "gather": _gathered("gather"),
    "gatherAlongAxis": _gathered("gather_along_axis"),
    "gatherND": _gathered("gather_nd"),
    "gelu": _as("gelu", mode=lambda layer: _GELU[layer.params.mode]),
    "getShape": lambda layer: Blob.of(np.array(layer.x.shape, np.int32)),
    "logicalNot": _as("logical_not"),
    "lowerTriangular": _triangle(True),
    "matrixBandPart": _as("band_part", lower=lambda layer: layer.numLower, upper=lambda layer: layer.numUpper),
    "oneHot": _one_hot,
    "rangeDynamic": _range,
    "rangeStatic": _range,
    "rankPreservingReshape": lambda layer: _reshape(layer, [int(each) for each in layer.targetShape]),
    "reshapeDynamic": lambda layer: _reshape(layer, _known(layer, 1, "its shape")),
    "reshapeLike": lambda layer: _reshape(layer, list(layer.inputs[1].shape)),
    "reshapeStatic": lambda layer: _reshape(layer, [int(each) for each in layer.targetShape]),
    "reverse": _reversed,
    "reverseSeq": _reverse_sequence,
    "scatter": _scattered("scatter"),
    "scatterAlongAxis": _scattered("scatter_along_axis"),
    "scatterND": _scattered("scatter_nd"),
    "sliceBySize": _slice_by_size,
    "sliceDynamic": _dynamic_slice,
    "sliceStatic": _static_slice,
    "slidingWindows": _as(
        "sliding_windows",
        axis=lambda layer: layer.axis,
        size=lambda layer: int(layer.windowSize),
        stride=lambda layer: int(layer.step),
    ),
    "softmaxND": _as("softmax", axis=lambda layer: layer.axis),
    "splitND": _split,
    "squeeze": _squeeze,
    "stack": lambda layer: _called(layer, "stack", {"values": layer.inputs, "axis": layer.axis}),
    "tile": _tile,
    "topK": _topk,
    "transpose": _as("transpose", perm=lambda layer: [int(each) for each in layer.axes]),
    "upperTriangular": _triangle(False),
    "whereBroadcastable": lambda layer: _called(
        layer, "select", dict(zip(("cond", "a", "b"), layer.inputs, strict=True))
    ),
    "whereNonZero": _as("non_zero"),
}
