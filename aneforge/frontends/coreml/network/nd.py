"""Layers with the same meaning as an op of MIL. Their parameters become its arguments, and its rule does the rest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from aneforge.frontends import LoadError
from aneforge.frontends.coreml.network.blob import Blob, Layer
from aneforge.frontends.coreml.network.weights import numbers_of, weight_of
from aneforge.frontends.coreml.table import ROWS
from aneforge.frontends.forms import broadcast_to, linear
from aneforge.frontends.importer.host import on_host
from aneforge.frontends.importer.op import Op
from aneforge.frontends.ops.known import STATIC, folded
from aneforge.frontends.records import TensorType, Type
from aneforge.frontends.rows import apply
from aneforge.frontends.values import NoForm
from aneforge.graph.encoding import Encoded
from aneforge.graph.tensor import Tensor

__all__ = ["LAYERS"]

Rule = Callable[[Layer], Any]
_INTEGER_ARGUMENTS = ("indices", "lengths")  # arguments that are integers in any network


def _apply_op(layer: Layer, kind: str, arguments: dict[str, Any], outputs: int = 1) -> list[Blob]:
    """The results of an op of MIL with these arguments."""
    operands: dict[str, list[Any]] = {}
    types: dict[str, list[Type | None]] = {}
    for name, value in arguments.items():
        values = value if isinstance(value, list) and value and isinstance(value[0], Blob) else [value]
        operands[name] = [
            element.operand() if isinstance(element, Blob) else np.asarray(element) for element in values
        ]
        dtype = "int32" if name in _INTEGER_ARGUMENTS else "fp32"
        types[name] = [
            TensorType(dtype, tuple(operand.shape)) if isinstance(operand, Tensor) else None
            for operand in operands[name]
        ]
    op = Op(kind, layer.name, operands, types, [(f"{layer.name}.{i}", None) for i in range(outputs)])
    values = [operand for group in operands.values() for operand in group]
    if kind in STATIC and all(isinstance(operand, (np.ndarray, Encoded)) for operand in values):
        return [Blob.of(value) for value in folded(op)]
    try:
        results = apply(ROWS[kind], op)
    except NoForm as reason:
        results = on_host(op, str(reason))
    return [Blob.of(result) for result in (results if isinstance(results, (list, tuple)) else [results])]


def _op_of_one(kind: str, **arguments: Callable[[Layer], Any]) -> Rule:
    """A rule for an op of one input; its other arguments are read from the layer."""
    return lambda layer: _apply_op(layer, kind, {"x": layer.x, **{k: f(layer) for k, f in arguments.items()}})


def _op_of_two(kind: str, first: str = "x", second: str = "y") -> Rule:
    """A rule for an op of two inputs. If the layer has one input, the second operand is its number ``alpha``."""

    def rule(layer: Layer) -> list[Blob]:
        second_operand: Any = layer.inputs[1] if len(layer.inputs) > 1 else np.float64(layer.alpha)
        return _apply_op(layer, kind, {first: layer.x, second: second_operand})

    return rule


def _reduced(kind: str) -> Rule:
    def rule(layer: Layer) -> list[Blob]:
        axes = {} if layer.reduceAll or not layer.axes else {"axes": list(layer.axes)}
        return _apply_op(layer, kind, {"x": layer.x, "keep_dims": layer.keepDims, **axes})

    return rule


_MODES = ("update", "add", "sub", "mul", "div", "max", "min")


def _scattered(kind: str) -> Rule:
    def rule(layer: Layer) -> list[Blob]:
        data, indices, updates = layer.inputs
        axis = {} if kind == "scatter_nd" else {"axis": layer.axis}
        arguments = {"data": data, "indices": indices, "updates": updates, "mode": _MODES[layer.params.mode]}
        return _apply_op(layer, kind, {**arguments, **axis})

    return rule


def _gathered(kind: str) -> Rule:
    def rule(layer: Layer) -> list[Blob]:
        axis = {} if kind == "gather_nd" else {"axis": layer.axis}
        return _apply_op(layer, kind, {"x": layer.x, "indices": layer.inputs[1], **axis})

    return rule


def _known_integers(layer: Layer, place: int, what: str) -> list[int]:
    values = layer.inputs[place].known if place < len(layer.inputs) else None
    if values is None:
        raise LoadError(f"{what} is computed while the network runs; the engine needs a fixed value")
    return [int(value) for value in values.reshape(-1)]


def _dynamic_slice(layer: Layer) -> list[Blob]:
    settings = [
        list(layer.endIds),
        list(layer.strides),
        list(layer.beginMasks),
        list(layer.endMasks),
        list(layer.squeezeMasks),
    ]
    for place in range(2, len(layer.inputs)):
        settings[place - 2] = _known_integers(layer, place, "the slice")
    names = ("end", "stride", "begin_mask", "end_mask", "squeeze_mask")
    arguments = {name: np.asarray(value) for name, value in zip(names, settings, strict=True) if value}
    return _apply_op(
        layer,
        "slice_by_index",
        {"x": layer.x, "begin": _known_integers(layer, 1, "the start of the slice"), **arguments},
    )


def _static_slice(layer: Layer) -> list[Blob]:
    arguments = {
        "begin": list(layer.beginIds),
        "end": list(layer.endIds),
        "stride": list(layer.strides),
        "begin_mask": list(layer.beginMasks),
        "end_mask": list(layer.endMasks),
    }
    squeezed = {"squeeze_mask": list(layer.squeezeMasks)} if layer.squeezeMasks else {}
    return _apply_op(layer, "slice_by_index", {"x": layer.x, **arguments, **squeezed})


def _slice_by_size(layer: Layer) -> list[Blob]:
    shape = layer.x.shape
    axis = layer.axis % len(shape)
    begin = [_known_integers(layer, 1, "the start of the slice")[0] if i == axis else 0 for i in range(len(shape))]
    size = [int(layer.params.size) if i == axis else -1 for i in range(len(shape))]
    return _apply_op(layer, "slice_by_size", {"x": layer.x, "begin": begin, "size": size})


def _split(layer: Layer) -> list[Blob]:
    sizes = [int(size) for size in layer.splitSizes]
    parts = {"split_sizes": sizes} if sizes else {"num_splits": int(layer.numSplits)}
    return _apply_op(layer, "split", {"x": layer.x, "axis": layer.axis, **parts}, layer.outputs)


def _squeeze(layer: Layer) -> list[Blob]:
    return _apply_op(layer, "squeeze", {"x": layer.x, **({} if layer.squeezeAll else {"axes": list(layer.axes)})})


def _reshape(layer: Layer, shape: list[int]) -> list[Blob]:
    return _apply_op(layer, "reshape", {"x": layer.x, "shape": shape})


def _broadcast(layer: Layer, shape: list[int] | tuple[int, ...]) -> Blob:
    array = layer.x.known
    if array is not None:
        return Blob.of(np.broadcast_to(array, shape))
    return Blob.of(broadcast_to(layer.x.full(), shape))


def _constant_pad(layer: Layer) -> list[Blob]:
    rank = len(layer.x.shape)
    amounts = (
        _known_integers(layer, 1, "the padding")
        if len(layer.inputs) > 1
        else [int(amount) for amount in layer.padAmounts]
    )
    if len(amounts) != 2 * rank:
        raise LoadError(f"the padding has {len(amounts)} amounts; expected {2 * rank}, two for each axis")
    if layer.padToGivenOutputSizeMode:  # the file gives a size instead of an amount, on the side to pad
        for place in range(2 * rank):
            amounts[place] = max(0, amounts[place] - layer.x.shape[place // 2]) if amounts[place] else 0
    return _apply_op(layer, "pad", {"x": layer.x, "pad": amounts, "mode": "constant", "constant_val": layer.value})


def _matmul(layer: Layer) -> Blob | list[Blob]:
    if len(layer.inputs) > 1:
        arguments = {
            "x": layer.x,
            "y": layer.inputs[1],
            "transpose_x": layer.transposeA,
            "transpose_y": layer.transposeB,
        }
        return _apply_op(layer, "matmul", arguments)
    rows, columns = int(layer.weightMatrixFirstDimension), int(layer.weightMatrixSecondDimension)
    # Stored column by column, so that it is the matrix [columns, rows] of a linear layer.
    weight = weight_of(layer.weights, (columns, rows), "the weight")
    bias = numbers_of(layer.bias, (columns,), "the bias") if layer.hasBias else None
    return Blob.of(linear(layer.x.full(), weight, bias))


def _topk(layer: Layer) -> list[Blob]:
    count = _known_integers(layer, 1, "the number of results")[0] if len(layer.inputs) > 1 else int(layer.K)
    arguments = {"x": layer.x, "k": count, "axis": layer.axis, "ascending": layer.useBottomK}
    return _apply_op(layer, "topk", arguments, layer.outputs)


def _position(kind: str) -> Rule:
    def rule(layer: Layer) -> list[Blob]:
        removed = layer.removeDim and len(layer.x.shape) > 1
        return _apply_op(layer, kind, {"x": layer.x, "axis": layer.axis, "keep_dims": not removed})

    return rule


def _triangle(lower: bool) -> Rule:
    """A product with a known mask."""

    def rule(layer: Layer) -> list[Blob]:
        ones = np.ones(layer.x.shape[-2:])
        mask = np.tril(ones, layer.k) if lower else np.triu(ones, layer.k)
        return _apply_op(layer, "mul", {"x": layer.x, "y": mask})

    return rule


def _one_hot(layer: Layer) -> list[Blob]:
    count = (
        _known_integers(layer, 1, "the length of a vector")[0]
        if len(layer.inputs) > 1
        else int(layer.oneHotVectorSize)
    )
    arguments = {"indices": layer.x, "one_hot_vector_size": count, "axis": layer.axis}
    return _apply_op(layer, "one_hot", {**arguments, "on_value": layer.onValue, "off_value": layer.offValue})


def _range(layer: Layer) -> Blob:
    values = [layer.params.endValue] if layer.kind == "rangeStatic" else []
    values += [layer.startValue, layer.stepSizeValue]
    if layer.kind == "rangeDynamic":
        bounds = [blob.known for blob in layer.inputs]
        if any(bound is None for bound in bounds):
            raise LoadError("the range is computed while the network runs; the engine needs a fixed range")
        numbers = [float(np.asarray(bound).reshape(-1)[0]) for bound in bounds]
        values = [*numbers, *[layer.startValue, layer.stepSizeValue][len(numbers) - 1 :]]
    end, start, step = values
    return _apply_op(layer, "range_1d", {"end": end, "start": start, "step": step})[0]


def _random(kind: str, form: str) -> Rule:
    def rule(layer: Layer) -> list[Blob]:
        shape = {
            "Like": lambda: layer.x.shape,
            "Static": lambda: layer.outputShape,
            "Dynamic": lambda: _known_integers(layer, 0, "the shape"),
        }
        names = {
            "random_normal": {"mean": "mean", "stddev": "stdDev"},
            "random_uniform": {"low": "minVal", "high": "maxVal"},
        }
        fields = names.get(kind, {"prob": "prob"})
        settings = {name: getattr(layer, field) for name, field in fields.items()}
        return _apply_op(layer, kind, {"shape": list(shape[form]()), "seed": layer.seed, **settings})

    return rule


def _suppress_boxes(layer: Layer) -> list[Blob]:
    limits: list[Any] = [layer.iouThreshold, layer.scoreThreshold, int(layer.maxBoxes)]
    for place in range(2, len(layer.inputs)):
        limit = layer.inputs[place].known
        if limit is None:
            raise LoadError("a threshold is computed while the network runs; the engine needs a fixed value")
        limits[place - 2] = limit.reshape(-1)[0]
    names = ("iou_threshold", "score_threshold", "max_boxes")
    arguments = {"boxes": layer.x, "scores": layer.inputs[1], "per_class_suppression": layer.perClassSuppression}
    return _apply_op(
        layer, "non_maximum_suppression", {**arguments, **dict(zip(names, limits, strict=True))}, layer.outputs
    )


def _cumulative(layer: Layer) -> list[Blob]:
    axis = _known_integers(layer, 1, "the axis")[0] if len(layer.inputs) > 1 else layer.axis
    arguments = {"x": layer.x, "axis": axis, "exclusive": layer.excludeFinalSum, "reverse": layer.reverse}
    return _apply_op(layer, "cumsum", arguments)


def _tile(layer: Layer) -> list[Blob]:
    reps = (
        _known_integers(layer, 1, "the number of repeats")
        if len(layer.inputs) > 1
        else [int(count) for count in layer.reps]
    )
    return _apply_op(layer, "tile", {"x": layer.x, "reps": [1] * (len(layer.x.shape) - len(reps)) + reps})


def _reversed(layer: Layer) -> list[Blob]:
    axes = [i for i, turned in enumerate(layer.reverseDim) if turned]
    return _apply_op(layer, "reverse", {"x": layer.x, "axes": axes}) if axes else [layer.x]


def _reverse_sequence(layer: Layer) -> list[Blob]:
    arguments = {
        "lengths": _known_integers(layer, 1, "the length of a sequence"),
        "seq_axis": layer.sequenceAxis,
        "batch_axis": layer.batchAxis,
    }
    return _apply_op(layer, "reverse_sequence", {"x": layer.x, **arguments})


_GELU = ("EXACT", "TANH_APPROXIMATION", "SIGMOID_APPROXIMATION")
_SAME_NAMES = "ceil floor sign round exp2 sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf".split()  # noqa: SIM905
_BINARY = {"mod": "mod", "min": "minimum", "max": "maximum", "add": "add", "pow": "pow", "divide": "real_div"}
_BINARY |= {"floorDiv": "floor_div", "multiply": "mul", "subtract": "sub"}
_COMPARED = {"equal": "equal", "notEqual": "not_equal", "lessThan": "less", "lessEqual": "less_equal"}
_COMPARED |= {"greaterThan": "greater", "greaterEqual": "greater_equal"}
_REDUCED = {"L1": "l1_norm", "L2": "l2_norm", "Max": "max", "Min": "min", "Sum": "sum", "Prod": "prod", "Mean": "mean"}
_REDUCED |= {"LogSum": "log_sum", "SumSquare": "sum_square", "LogSumExp": "log_sum_exp"}
_RANDOM = {"Normal": "random_normal", "Uniform": "random_uniform", "Bernoulli": "random_bernoulli"}

LAYERS: dict[str, Rule] = {
    **{name: _op_of_one(name) for name in _SAME_NAMES},
    **{f"{name}Broadcastable": _op_of_two(kind) for name, kind in _BINARY.items()},
    **{name: _op_of_two(kind) for name, kind in _COMPARED.items()},
    **{f"logical{name}": _op_of_two(f"logical_{name.lower()}") for name in ("And", "Or", "Xor")},
    **{f"reduce{name}": _reduced(f"reduce_{kind}") for name, kind in _REDUCED.items()},
    **{
        f"random{name}{form}": _random(kind, form)
        for name, kind in _RANDOM.items()
        for form in ("Like", "Static", "Dynamic")
    },
    "NonMaximumSuppression": _suppress_boxes,
    "argMax": _position("reduce_argmax"),
    "argMin": _position("reduce_argmin"),
    "argSort": _op_of_one("argsort", axis=lambda layer: layer.axis, ascending=lambda layer: not layer.descending),
    "batchedMatmul": _matmul,
    "broadcastToDynamic": lambda layer: _broadcast(layer, _known_integers(layer, 1, "the shape")),
    "broadcastToLike": lambda layer: _broadcast(layer, layer.inputs[1].shape),
    "broadcastToStatic": lambda layer: _broadcast(layer, [int(extent) for extent in layer.targetShape]),
    "clampedReLU": _op_of_one("clamped_relu", alpha=lambda layer: layer.alpha, beta=lambda layer: layer.beta),
    "clip": _op_of_one("clip", alpha=lambda layer: layer.minVal, beta=lambda layer: layer.maxVal),
    "concatND": lambda layer: _apply_op(
        layer, "concat", {"values": layer.inputs, "axis": layer.axis, "interleave": layer.interleave}
    ),
    "constantPad": _constant_pad,
    "cumSum": _cumulative,
    "expandDims": _op_of_one("expand_dims", axes=lambda layer: list(layer.axes)),
    "fillDynamic": lambda layer: _apply_op(
        layer, "fill", {"shape": _known_integers(layer, 0, "the shape"), "value": layer.value}
    ),
    "fillLike": lambda layer: _apply_op(layer, "fill", {"shape": list(layer.x.shape), "value": layer.value}),
    "fillStatic": lambda layer: _apply_op(layer, "fill", {"shape": list(layer.targetShape), "value": layer.value}),
    "flattenTo2D": _op_of_one("flatten2d", axis=lambda layer: layer.axis),
    "gather": _gathered("gather"),
    "gatherAlongAxis": _gathered("gather_along_axis"),
    "gatherND": _gathered("gather_nd"),
    "gelu": _op_of_one("gelu", mode=lambda layer: _GELU[layer.params.mode]),
    "getShape": lambda layer: Blob.of(np.array(layer.x.shape, np.int32)),
    "logicalNot": _op_of_one("logical_not"),
    "lowerTriangular": _triangle(True),
    "matrixBandPart": _op_of_one("band_part", lower=lambda layer: layer.numLower, upper=lambda layer: layer.numUpper),
    "oneHot": _one_hot,
    "rangeDynamic": _range,
    "rangeStatic": _range,
    "rankPreservingReshape": lambda layer: _reshape(layer, [int(extent) for extent in layer.targetShape]),
    "reshapeDynamic": lambda layer: _reshape(layer, _known_integers(layer, 1, "the shape")),
    "reshapeLike": lambda layer: _reshape(layer, list(layer.inputs[1].shape)),
    "reshapeStatic": lambda layer: _reshape(layer, [int(extent) for extent in layer.targetShape]),
    "reverse": _reversed,
    "reverseSeq": _reverse_sequence,
    "scatter": _scattered("scatter"),
    "scatterAlongAxis": _scattered("scatter_along_axis"),
    "scatterND": _scattered("scatter_nd"),
    "sliceBySize": _slice_by_size,
    "sliceDynamic": _dynamic_slice,
    "sliceStatic": _static_slice,
    "slidingWindows": _op_of_one(
        "sliding_windows",
        axis=lambda layer: layer.axis,
        size=lambda layer: int(layer.windowSize),
        stride=lambda layer: int(layer.step),
    ),
    "softmaxND": _op_of_one("softmax", axis=lambda layer: layer.axis),
    "splitND": _split,
    "squeeze": _squeeze,
    "stack": lambda layer: _apply_op(layer, "stack", {"values": layer.inputs, "axis": layer.axis}),
    "tile": _tile,
    "topK": _topk,
    "transpose": _op_of_one("transpose", perm=lambda layer: [int(axis) for axis in layer.axes]),
    "upperTriangular": _triangle(False),
    "whereBroadcastable": lambda layer: _apply_op(
        layer, "select", dict(zip(("cond", "a", "b"), layer.inputs, strict=True))
    ),
    "whereNonZero": _op_of_one("non_zero"),
}
