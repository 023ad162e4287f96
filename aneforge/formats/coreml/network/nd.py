"""Layers with the same meaning as an op of MIL: rows from the layer's inputs and fields to its arguments.

A row is written as those of other formats (``frontends.rows``): the op, the inputs in order, and behind the bar the
fields of the layer. An input stands before a field of the same argument, as a layer that takes a size as input keeps
the field for where it does not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from aneforge.errors import LoadError
from aneforge.formats.coreml.network.values import Blob, NetworkLayer, numbers_of, weight_of
from aneforge.formats.coreml.table import KNOWN
from aneforge.formats.forms import broadcast_to, linear
from aneforge.formats.importer.calls import parameters
from aneforge.formats.importer.host import on_host
from aneforge.formats.importer.op import FileOp
from aneforge.formats.ops import OPS
from aneforge.formats.ops.known import WITHOUT_FORM
from aneforge.formats.records import Type, ValueType
from aneforge.formats.rows import Row, apply, row
from aneforge.formats.values import NoForm
from aneforge.graph.tensor import Tensor

Rule = Callable[[NetworkLayer], Any]
_OPS = {**OPS, **{name: entry.function for name, entry in WITHOUT_FORM.items()}}
_INTEGER_ARGUMENTS = ("indices", "lengths")  # arguments that are integers in any network
_UPDATES = ("update", "add", "sub", "mul", "div", "max", "min")
_MODES: dict[str, Any] = {
    **dict.fromkeys(("scatter", "scatter_along_axis", "scatter_nd"), _UPDATES),
    "gelu": ("EXACT", "TANH_APPROXIMATION", "SIGMOID_APPROXIMATION"),
}
"""What the numbers of the field ``mode`` stand for, by op."""
_FIXED = ("int", "float", "bool", "list[int]", "list[bool]")  # parameters that must be known


def _apply_op(layer: NetworkLayer, kind: str, arguments: dict[str, Any], outputs: int = 1) -> list[Blob]:
    """The results of a common op with these arguments."""
    operands: dict[str, list[Any]] = {}
    types: dict[str, list[Type | None]] = {}
    for name, value in arguments.items():
        values = value if isinstance(value, list) and value and isinstance(value[0], Blob) else [value]
        operands[name] = [entry.operand() if isinstance(entry, Blob) else np.asarray(entry) for entry in values]
        dtype = "int32" if name in _INTEGER_ARGUMENTS else "fp32"
        types[name] = [
            ValueType(dtype, tuple(operand.shape)) if isinstance(operand, Tensor) else None
            for operand in operands[name]
        ]
    op = FileOp(kind, layer.name, operands, types, [(f"{layer.name}.{i}", None) for i in range(outputs)])
    if kind in KNOWN and not op.computed:
        return [Blob.of(value) for value in KNOWN.results(op)]
    try:
        results = apply(Row(kind, _OPS[kind]), op)
    except NoForm as reason:
        results = on_host(op, str(reason), KNOWN)
    return [Blob.of(result) for result in (results if isinstance(results, (list, tuple)) else [results])]


def _layer(text: str) -> Rule:
    """The rule that a row stands for."""
    entry = row(text, _OPS)
    fixed = {parameter.name for parameter in parameters(entry.function) if parameter.kind in _FIXED}

    def rule(layer: NetworkLayer) -> list[Blob]:
        arguments: dict[str, Any] = {}
        for name, common in entry.names.items():
            value = getattr(layer.params, name)
            if hasattr(value, "__len__") and not isinstance(value, str):
                value = list(value) or None
            if value is not None:
                arguments[common] = _MODES[entry.op][value] if common == "mode" else value
        for name, place in zip(entry.operands, range(len(layer.inputs)), strict=False):
            if name.startswith("*"):
                arguments[name[1:]] = layer.inputs[place:]
            elif name in fixed and layer.inputs[place].known is None:
                raise LoadError(f"{name!r} is computed while the network runs; the engine needs a fixed value")
            else:
                arguments[name] = layer.inputs[place]
        return _apply_op(layer, entry.op, arguments, layer.outputs)

    return rule


def _known_integers(layer: NetworkLayer, place: int, what: str) -> list[int]:
    values = layer.inputs[place].known if place < len(layer.inputs) else None
    if values is None:
        raise LoadError(f"{what} is computed while the network runs; the engine needs a fixed value")
    return [int(value) for value in values.reshape(-1)]


# Layers of which more must be decided than a row says.


def _reduced(kind: str) -> Rule:
    def rule(layer: NetworkLayer) -> list[Blob]:
        axes = {} if layer.reduceAll or not layer.axes else {"axes": list(layer.axes)}
        return _apply_op(layer, kind, {"x": layer.x, "keep_dims": layer.keepDims, **axes})

    return rule


def _slice_by_size(layer: NetworkLayer) -> list[Blob]:
    shape = layer.x.shape
    axis = layer.axis % len(shape)
    begin = [_known_integers(layer, 1, "the start of the slice")[0] if i == axis else 0 for i in range(len(shape))]
    size = [int(layer.params.size) if i == axis else -1 for i in range(len(shape))]
    return _apply_op(layer, "slice_by_size", {"x": layer.x, "begin": begin, "size": size})


def _broadcast(layer: NetworkLayer, shape: list[int] | tuple[int, ...]) -> Blob:
    array = layer.x.known
    if array is not None:
        return Blob.of(np.broadcast_to(array, shape))
    return Blob.of(broadcast_to(layer.x.full(), shape))


def _constant_pad(layer: NetworkLayer) -> list[Blob]:
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


def _matmul(layer: NetworkLayer) -> Blob | list[Blob]:
    if len(layer.inputs) > 1:
        return _layer("matmul x y | transposeA>transpose_x transposeB>transpose_y")(layer)
    rows, columns = int(layer.weightMatrixFirstDimension), int(layer.weightMatrixSecondDimension)
    # Stored column by column, so that it is the matrix [columns, rows] of a linear layer.
    weight = weight_of(layer.weights, (columns, rows), "the weight")
    bias = numbers_of(layer.bias, (columns,), "the bias") if layer.hasBias else None
    return Blob.of(linear(layer.x.full(), weight, bias))


def _position(kind: str) -> Rule:
    def rule(layer: NetworkLayer) -> list[Blob]:
        removed = layer.removeDim and len(layer.x.shape) > 1
        return _apply_op(layer, kind, {"x": layer.x, "axis": layer.axis, "keep_dims": not removed})

    return rule


def _triangle(lower: bool) -> Rule:
    """A product with a known mask."""

    def rule(layer: NetworkLayer) -> list[Blob]:
        ones = np.ones(layer.x.shape[-2:])
        mask = np.tril(ones, layer.k) if lower else np.triu(ones, layer.k)
        return _apply_op(layer, "mul", {"x": layer.x, "y": mask})

    return rule


def _range(layer: NetworkLayer) -> list[Blob]:
    """Inputs are the end, the start and the step, as far as there are any."""
    values = [layer.params.endValue] if layer.kind == "rangeStatic" else []
    values += [layer.startValue, layer.stepSizeValue]
    if layer.kind == "rangeDynamic":
        bounds = [blob.known for blob in layer.inputs]
        if any(bound is None for bound in bounds):
            raise LoadError("the range is computed while the network runs; the engine needs a fixed range")
        numbers = [float(np.asarray(bound).reshape(-1)[0]) for bound in bounds]
        values = [*numbers, *[layer.startValue, layer.stepSizeValue][len(numbers) - 1 :]]
    end, start, step = values
    return _apply_op(layer, "range_1d", {"end": end, "start": start, "step": step})


_RANDOM = {
    "Normal": ("random_normal", {"mean": "mean", "stddev": "stdDev"}),
    "Uniform": ("random_uniform", {"low": "minVal", "high": "maxVal"}),
    "Bernoulli": ("random_bernoulli", {"prob": "prob"}),
}


def _random(name: str, form: str) -> Rule:
    kind, fields = _RANDOM[name]

    def rule(layer: NetworkLayer) -> list[Blob]:
        shapes: dict[str, Callable[[], Any]] = {
            "Like": lambda: layer.x.shape,
            "Static": lambda: layer.outputShape,
            "Dynamic": lambda: _known_integers(layer, 0, "the shape"),
        }
        settings = {argument: getattr(layer, field) for argument, field in fields.items()}
        return _apply_op(layer, kind, {"shape": list(shapes[form]()), "seed": layer.seed, **settings})

    return rule


def _reversed(layer: NetworkLayer) -> list[Blob]:
    axes = [i for i, turned in enumerate(layer.reverseDim) if turned]
    return _apply_op(layer, "reverse", {"x": layer.x, "axes": axes}) if axes else [layer.x]


_SAME_NAMES = "ceil floor sign round exp2 sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf"
_BINARY = {"mod": "mod", "min": "minimum", "max": "maximum", "add": "add", "pow": "pow", "divide": "real_div"}
_BINARY |= {"floorDiv": "floor_div", "multiply": "mul", "subtract": "sub"}
_COMPARED = {"equal": "equal", "notEqual": "not_equal", "lessThan": "less", "lessEqual": "less_equal"}
_COMPARED |= {"greaterThan": "greater", "greaterEqual": "greater_equal"}
_REDUCED = {"L1": "l1_norm", "L2": "l2_norm", "Max": "max", "Min": "min", "Sum": "sum", "Prod": "prod", "Mean": "mean"}
_REDUCED |= {"LogSum": "log_sum", "SumSquare": "sum_square", "LogSumExp": "log_sum_exp"}
_MASKS = "beginMasks>begin_mask endMasks>end_mask squeezeMasks>squeeze_mask"

_ROWS = {
    **{name: f"{name} x" for name in _SAME_NAMES.split()},
    **{f"{name}Broadcastable": f"{kind} x y" for name, kind in _BINARY.items()},
    **{name: f"{kind} x y | alpha>y" for name, kind in _COMPARED.items()},
    **{f"logical{name}": f"logical_{name.lower()} x y" for name in ("And", "Or", "Xor")},
    "NonMaximumSuppression": "non_maximum_suppression boxes scores iou_threshold score_threshold max_boxes | "
    "iouThreshold>iou_threshold scoreThreshold>score_threshold maxBoxes>max_boxes "
    "perClassSuppression>per_class_suppression",
    "argSort": "argsort x | axis descending",
    "clampedReLU": "clamped_relu x | alpha beta",
    "clip": "clip x | minVal>low maxVal>high",
    "concatND": "concat *values | axis interleave",
    "cumSum": "cumsum x axis | axis excludeFinalSum>exclusive reverse",
    "expandDims": "expand_dims x | axes",
    "fillDynamic": "fill shape | value",
    "fillStatic": "fill | targetShape>shape value",
    "flattenTo2D": "flatten2d x | axis",
    "gather": "gather x indices | axis",
    "gatherAlongAxis": "gather_along_axis x indices | axis",
    "gatherND": "gather_nd x indices",
    "gelu": "gelu x | mode",
    "logicalNot": "logical_not x",
    "matrixBandPart": "band_part x | numLower>lower numUpper>upper",
    "oneHot": "one_hot indices one_hot_vector_size | oneHotVectorSize>one_hot_vector_size axis onValue>on_value "
    "offValue>off_value",
    "rankPreservingReshape": "reshape x | targetShape>shape",
    "reshapeDynamic": "reshape x shape",
    "reshapeStatic": "reshape x | targetShape>shape",
    "reverseSeq": "reverse_sequence x lengths | sequenceAxis>seq_axis batchAxis>batch_axis",
    "scatter": "scatter data indices updates | axis mode",
    "scatterAlongAxis": "scatter_along_axis data indices updates | axis mode",
    "scatterND": "scatter_nd data indices updates | mode",
    "sliceDynamic": "slice_by_index x begin end stride begin_mask end_mask squeeze_mask | "
    f"endIds>end strides>stride {_MASKS}",
    "sliceStatic": f"slice_by_index x | beginIds>begin endIds>end strides>stride {_MASKS}",
    "slidingWindows": "sliding_windows x | axis windowSize>size step>stride",
    "softmaxND": "softmax x | axis",
    "splitND": "split x | axis numSplits>num_splits splitSizes>split_sizes",
    "stack": "stack *values | axis",
    "tile": "tile x reps | reps",
    "topK": "topk x k | K>k axis useBottomK>ascending",
    "transpose": "transpose x | axes>perm",
    "whereBroadcastable": "select cond a b",
    "whereNonZero": "non_zero x",
}

LAYERS: dict[str, Rule] = {
    **{name: _layer(text) for name, text in _ROWS.items()},
    **{f"reduce{name}": _reduced(f"reduce_{kind}") for name, kind in _REDUCED.items()},
    **{f"random{name}{form}": _random(name, form) for name in _RANDOM for form in ("Like", "Static", "Dynamic")},
    "argMax": _position("reduce_argmax"),
    "argMin": _position("reduce_argmin"),
    "batchedMatmul": _matmul,
    "broadcastToDynamic": lambda layer: _broadcast(layer, _known_integers(layer, 1, "the shape")),
    "broadcastToLike": lambda layer: _broadcast(layer, layer.inputs[1].shape),
    "broadcastToStatic": lambda layer: _broadcast(layer, [int(extent) for extent in layer.targetShape]),
    "constantPad": _constant_pad,
    "fillLike": lambda layer: _apply_op(layer, "fill", {"shape": list(layer.x.shape), "value": layer.value}),
    "getShape": lambda layer: Blob.of(np.array(layer.x.shape, np.int32)),
    "lowerTriangular": _triangle(True),
    "rangeDynamic": _range,
    "rangeStatic": _range,
    "reshapeLike": lambda layer: _apply_op(layer, "reshape", {"x": layer.x, "shape": list(layer.inputs[1].shape)}),
    "reverse": _reversed,
    "sliceBySize": _slice_by_size,
    "squeeze": lambda layer: _apply_op(
        layer, "squeeze", {"x": layer.x, **({} if layer.squeezeAll else {"axes": list(layer.axes)})}
    ),
    "upperTriangular": _triangle(False),
}
