"""What each type of layer becomes in the graph."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from aneforge.authoring.build import AuthoringError, Rule, Unit
from aneforge.graph import builders as af
from aneforge.graph.tensor import Tensor

__all__ = ["RULES", "UNREAD"]

_AXES = {"Channel": 1, "Height": 2, "Width": 3}


def _axis(unit: Unit, key: str = "Dimension") -> int:
    return _AXES[unit.params[key]]


def _step(unit: Unit) -> int:
    """The step of a window, equal along both axes. The order of unequal steps is not published."""
    stated_step = unit.param("Step", (1,))
    steps = set(stated_step[:2])
    if len(steps) != 1:
        raise AuthoringError(f"Step {stated_step} has unequal values; their order is not published")
    return next(iter(steps))


def _pads(unit: Unit) -> tuple[int, int, int, int]:
    top, bottom, left, right = (unit.param(f"Pad{side}", 0) for side in ("Top", "Bot", "Left", "Right"))
    return top, bottom, left, right


def _flat_kernel(unit: Unit) -> tuple[int, int]:
    if unit.param("KernelDepth", 1) != 1 or unit.param("PadFront", 0) or unit.param("PadBack", 0):
        raise AuthoringError("KernelDepth must be 1; a kernel with a depth fails lowering on every chip (C08)")
    return unit.params["KernelHeight"], unit.params["KernelWidth"]


def _conv(unit: Unit) -> Tensor:
    x = unit.bottom
    if unit.params["Type"] != "Conv" or unit.param("KernelMode", "Dense") != "Dense":
        kind, mode = unit.params["Type"], unit.param("KernelMode", "Dense")
        raise AuthoringError(f"Type {kind!r} with KernelMode {mode!r} is not supported; use Conv with Dense")
    if unit.param("KernelType", "Float16") != "Float16":
        raise AuthoringError(f"KernelType {unit.params['KernelType']!r} is not supported; use Float16")
    groups, outputs = unit.extent("NumGroups", 1), unit.extent("OutputChannels")
    shape = (outputs, x.shape[1] // groups, *_flat_kernel(unit))
    kernel = unit.numbers(shape)
    return af.conv(x, kernel, stride=_step(unit), pad=_pads(unit), groups=groups)


def _pool(unit: Unit) -> Tensor:
    x, size = unit.bottom, _flat_kernel(unit)
    if {"Max": True, "Avg": False}[unit.params["Type"]]:
        return x.max_pool(size, stride=_step(unit), pad=_pads(unit))
    exclude = bool(unit.param("AverageCountExcludePadding", False))
    return x.avg_pool(size, stride=_step(unit), pad=_pads(unit), exclude_pad=exclude)


_NEURONS: dict[str, Callable[[Unit, Tensor], Tensor]] = {
    "ReLU": lambda u, x: x.relu(),
    "SigmoidHighPrecision": lambda u, x: x.sigmoid(),
    "GELU": lambda u, x: x.gelu(),
    "Tanh": lambda u, x: x.tanh(),
    "Sqrt": lambda u, x: x.sqrt(),
    "Rsqrt": lambda u, x: x.rsqrt(0.0),
    "Exp2": lambda u, x: x.exp2(),
    "Log2": lambda u, x: x.log(0.0) * (1 / np.log(2)),
    "Inv": lambda u, x: x.inverse(0.0),
    "Sin": lambda u, x: x.sin(),
    "Cos": lambda u, x: x.cos(),
    "Ceil": lambda u, x: x.ceil(),
    "Floor": lambda u, x: x.floor(),
    "RoundNearest": lambda u, x: x.round(),
    "ELU": lambda u, x: x.elu(u.param("EluAlpha", 1.0)),
    "LeakyReLU": lambda u, x: x.leaky_relu(u.params["ReluSlope"]),
    "ClampedReLU": lambda u, x: x.clip(u.param("ReluMin", 0.0), u.params["ReluMax"]),
}

_PAIRS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "Add": lambda a, b: a + b,
    "Mult": lambda a, b: a * b,
    "Sub": lambda a, b: a - b,
    "Min": af.minimum,
    "Max": af.maximum,
    "GreaterThan": lambda a, b: af.cast(a.greater(b)),
    "LessThan": lambda a, b: af.cast(a.less(b)),
    "Equal": lambda a, b: af.cast(a.equal(b)),
    "NotEqual": lambda a, b: af.cast(a.not_equal(b)),
}


def _neuron(unit: Unit) -> Tensor:
    return _NEURONS[unit.params["Type"]](unit, unit.bottom)


def _elementwise(unit: Unit) -> Tensor:
    """The engine's comparisons give 0 and 1."""
    if unit.params["Type"] == "Abs":
        return unit.bottom.abs()
    return _PAIRS[unit.params["Type"]](*unit.bottoms)


def _scaled(unit: Unit) -> Tensor:
    a, b = unit.bottoms
    kind = {name: name for name in ("Add", "Mult", "Min", "Max")}[unit.params["Type"]]
    return af.scaled_elementwise(a, b, kind, unit.params["Scale"])


def _reduction(unit: Unit) -> Tensor:
    dimensions = unit.params["Dimension"]
    axes = tuple(sorted(_AXES[name] for name in dimensions))
    forms = {"Sum": Tensor.sum, "Avg": Tensor.mean, "Max": Tensor.amax, "Min": Tensor.amin}
    return forms[unit.params["Type"]](unit.bottom, axes)


def _attention(unit: Unit) -> Tensor:
    """Channels hold the sequence and height the heads; the graph's op has heads first."""
    query, key, value, scale, *mask = unit.bottoms
    if not unit.param("SubtractMax", False):
        raise AuthoringError("SubtractMax is off, which overflows; set it to true")
    if scale.weight is None or scale.size != 1:
        raise AuthoringError("the scale must be a constant of one number")
    heads = [tensor.transpose([0, 2, 1, 3]) for tensor in (query, key, value)]
    factor = float(scale.weight.array.reshape(-1)[0])
    plane = mask[0].reshape(1, 1, heads[0].shape[2], heads[1].shape[2]) if mask else None
    return af.sdpa(*heads, scale=factor, attn_mask=plane).transpose([0, 2, 1, 3])


def _goc(unit: Unit) -> Tensor:
    x = unit.bottom
    return x * unit.param("ScaleScalar", 1.0) + unit.param("BiasScalar", 0.0)


def _dynamic_goc(unit: Unit) -> Tensor:
    x, *operands = unit.bottoms
    return x + operands[0] if len(operands) == 1 else x * operands[0] + operands[1]


def _transpose(unit: Unit) -> Tensor:
    x, order = unit.bottom, [0, 1, 2, 3]
    for move in unit.params["TransposeDimensions"]:
        order[_AXES[move["TransposeDestinationDimension"]]] = _AXES[move["TransposeSourceDimension"]]
    return x.transpose(order)


def _reshape(unit: Unit) -> Tensor:
    x = unit.bottom
    keys = ("ReshapedBatch", "ReshapedChannel", "ReshapedHeight", "ReshapedWidth")
    return x.reshape(*(unit.param(key, size) for key, size in zip(keys, x.shape, strict=True)))


def _tile(unit: Unit) -> Tensor:
    return unit.bottom.tile([1, *(unit.param(name, 1) for name in _AXES)])


def _broadcast(unit: Unit) -> Tensor:
    x, counts = unit.bottom, [1, 1, 1, 1]
    for spread in unit.params["BroadcastInfo"]:
        axis = _AXES[spread["Dimension"]]
        if x.shape[axis] != 1:
            raise AuthoringError(
                f"{spread['Dimension']} has {x.shape[axis]} elements; only an axis of 1 can be broadcast"
            )
        counts[axis] = spread["Size"]
    return x.tile(counts)


def _view(unit: Unit) -> Tensor:
    x, axis = unit.bottom, _axis(unit)
    begin, size, step = unit.params["Offset"], unit.params["Size"], unit.param("Step", 1)
    if step != 1:
        return af.gather(x, np.arange(begin, begin + size * step, step), axis=axis)
    sizes = [size if i == axis else extent for i, extent in enumerate(x.shape)]
    return x.slice_by_size([begin if i == axis else 0 for i in range(4)], sizes)


def _concat(unit: Unit) -> Tensor:
    return af.concat(unit.bottoms, axis=_axis(unit))


def _factors(unit: Unit) -> tuple[int, int]:
    if unit.param("FactorZ", 1) != 1:
        raise AuthoringError("FactorZ must be 1")
    return unit.param("FactorY", 1), unit.param("FactorX", 1)


def _square(form: Callable[[Tensor, int], Tensor]) -> Rule:
    def rule(unit: Unit) -> Tensor:
        rows, columns = _factors(unit)
        if rows != columns:
            raise AuthoringError(f"FactorX is {columns} and FactorY is {rows}; they must be equal")
        return form(unit.bottom, rows)

    return rule


def _as_rows(unit: Unit, x: Tensor) -> Tensor:
    """[1, C, 1, W] as rows, which the layer sorts."""
    if x.shape[0] != 1 or x.shape[2] != 1 or unit.params["SortDimension"] != "Width":
        raise AuthoringError(
            f"the input has shape {list(x.shape)}; only [1, C, 1, W] with SortDimension Width is supported"
        )
    if unit.params["VectorDimension"] != "Channel":
        raise AuthoringError("VectorDimension must be Channel")
    return x.reshape(x.shape[1], x.shape[3])


def _topk(unit: Unit) -> Tensor:
    if unit.param("Indices", False):
        raise AuthoringError("Indices of a top-k are not supported; set Indices to false")
    rows = _as_rows(unit, unit.bottom)
    result = af.topk(rows, unit.params["K"], largest={"Max": True, "Min": False}[unit.params["Type"]])
    return result.reshape(1, result.shape[0], 1, result.shape[1])


def _sort(unit: Unit) -> Tensor:
    rows = _as_rows(unit, unit.bottom)
    descending = {"Descending": True, "Ascending": False}[unit.params["Direction"]]
    result = af.sort(rows, descending, bool(unit.param("Indices", False)))
    return result.reshape(1, result.shape[0], 1, result.shape[1])


def _lrn(unit: Unit) -> Tensor:
    x = unit.bottom
    if unit.params["KernelChannel"] != x.shape[1]:
        raise AuthoringError(
            f"KernelChannel must be {x.shape[1]}, the number of channels; with fewer, only the first are normalised"
        )
    return af.lrn(x, unit.params["Alpha"], float(unit.param("Beta", 0.75)), float(unit.param("K", 1.0)))


def _batches(form: Callable[[Tensor, int, int], Tensor]) -> Rule:
    return lambda unit: form(unit.bottom, *_factors(unit))


def _minmax(unit: Unit) -> Tensor:
    return af.minmax_norm(unit.bottom, str(unit.params["Dimension"]), unit.params["Epsilon"])


def _product(unit: Unit) -> Tensor:
    """The product of [N, M, 1, K] and [N, K, 1, P]; the rows of the left operand are its channels (listing 22.1)."""
    left, right = unit.bottoms
    if left.shape[2] != 1 or right.shape[2] != 1:
        raise AuthoringError("the height of both operands must be 1")
    result = left.squeeze([2]) @ right.squeeze([2])
    return result.expand_dims([2])


def _identity(unit: Unit) -> Tensor:
    x = unit.bottom
    return x.reshape(x.shape[0], 1, 1, x.size // x.shape[0])


def _correlation(unit: Unit) -> Tensor:
    """One map with one template, valid positions only."""
    x, template = unit.bottoms
    if x.shape[:2] != (1, 1) or any(_pads(unit)) or unit.param("NumGroups", 1) != 1:
        raise AuthoringError("several maps, groups or padding are not supported; use one map")
    result = af.cross_correlation(x.reshape(*x.shape[2:]), template.reshape(*template.shape[2:]))
    return result.reshape(1, 1, *result.shape)


def _cross(unit: Unit) -> Tensor:
    a, b = unit.bottoms
    return af.cross_product(a.reshape(3), b.reshape(3)).reshape(1, 3, 1, 1)


RULES: dict[str, Rule] = {
    "BatchToSpace": _batches(af.batch_to_space),
    "Broadcast": _broadcast,
    "ChannelToSpace": _square(af.channel_to_space),
    "Concat": _concat,
    "Conv": _conv,
    "CrossCorrelation": _correlation,
    "CrossProduct": _cross,
    "DynamicGOC": _dynamic_goc,
    "ElementWise": _elementwise,
    "Flatten": _identity,
    "GOC": _goc,
    "InputView": _view,
    "LocalResponseNormalization": _lrn,
    "MatrixMultiplication": _product,
    "MinMaxNormalization": _minmax,
    "Neuron": _neuron,
    "PixelShuffle": _square(af.pixel_shuffle),
    "PixelUnshuffle": _square(af.pixel_unshuffle),
    "Pooling": _pool,
    "Reduction": _reduction,
    "Reshape": _reshape,
    "SDPA": _attention,
    "ScaledElementWise": _scaled,
    "Softmax": lambda unit: unit.bottom.softmax(_axis(unit)),
    "Sort": _sort,
    "SpaceToBatch": _batches(af.space_to_batch),
    "SpaceToChannel": _square(af.space_to_channel),
    "Tile": _tile,
    "TopK": _topk,
    "Transpose": _transpose,
}

UNREAD: dict[str, str] = {
    "ArgMinMax": "positions in a window have no op in the graph; use af.argmax for positions in a row",
    "DynamicSlice": "a start that is a tensor is not supported; af.dynamic_slice takes it as a setting of the run",
    "Gather": "the indices are UInt16 constants; their meaning along each axis is not published",
    "GlobalArgMinMax": "positions in a tensor have no op in the graph; use af.argmax for positions in a row",
    "RingBufferWriter": "a circular buffer is not supported; make the state an input and an output",
    "Shape": "the shape is known when the model is read; use a constant",
    "Unflatten": "every variant fails lowering (layers.json)",
    "NMS": "non-maximum suppression does not run on the engine; its backends are the CPU and the GPU",
    **dict.fromkeys(
        (
            "AffineTransform",
            "CropResize",
            "Padding",
            "Resample",
            "Resize",
            "ResizeAs",
            "InstanceNormalization",
            "L2Normalization",
            "LayerNormalization",
            "Linear",
            "Dropout",
            "RandomGenerator",
        ),
        "the names of its parameters in a netplist are not published",
    ),
}
