"""Layers with the meaning of ordinary ops: what each becomes in the graph. None of them cuts the program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from aneforge.engine.authoring.build import AuthoringError, Rule, Unit
from aneforge.engine.spec import OPS
from aneforge.graph import builders as af
from aneforge.graph import layer_forms as layers
from aneforge.graph.node import OpDef, definitions, make
from aneforge.graph.ops.reduction import reduce
from aneforge.graph.shapes import number
from aneforge.graph.spelling import Spelling, spelling
from aneforge.graph.tensor import Tensor


def pads(unit: Unit) -> tuple[int, int, int, int]:
    top, bottom, left, right = (unit.param(f"Pad{side}", 0) for side in ("Top", "Bot", "Left", "Right"))
    return top, bottom, left, right


def factors(unit: Unit) -> tuple[int, int]:
    """Rows and columns of a block."""
    if unit.param("FactorZ", 1) != 1:
        raise AuthoringError(f"FactorZ is {unit.params['FactorZ']}; it must be 1")
    return unit.param("FactorY", 1), unit.param("FactorX", 1)


def sizes(unit: Unit, key: str, count: int) -> tuple[int, ...]:
    """A list of that many whole numbers."""
    values = unit.params[key]
    if len(values) != count or not all(isinstance(value, int) and not isinstance(value, bool) for value in values):
        raise AuthoringError(f"{key} is {list(values)}; it must be a list of {count} integers")
    return tuple(values)


def _step(unit: Unit) -> int:
    """The step of a window, equal along both axes. The order of unequal steps is not published."""
    stated_step = unit.param("Step", (1,))
    steps = set(stated_step[:2])
    if len(steps) != 1:
        raise AuthoringError(f"Step {stated_step} has unequal values; their order is not published")
    return next(iter(steps))


def _flat_kernel(unit: Unit) -> tuple[int, int]:
    if unit.param("KernelDepth", 1) != 1 or unit.param("PadFront", 0) or unit.param("PadBack", 0):
        raise AuthoringError("KernelDepth must be 1; a kernel with a depth fails lowering on every chip (C08)")
    return unit.params["KernelHeight"], unit.params["KernelWidth"]


def _conv(unit: Unit) -> Tensor:
    """A convolution, or a deconvolution with one kernel for each channel."""
    x = unit.image
    kind, mode = unit.params["Type"], unit.param("KernelMode", "Dense")
    if mode != "Dense":
        raise AuthoringError(f"KernelMode {mode!r} is not supported; use Dense")
    if unit.param("KernelType", "Float16") != "Float16":
        raise AuthoringError(f"KernelType {unit.params['KernelType']!r} is not supported; use Float16")
    size, settings = _flat_kernel(unit), {"stride": _step(unit), "pad": pads(unit)}
    channels = x.shape[1]
    if kind == "ChannelWiseDeConv":
        if unit.extent("OutputChannels", channels) != channels or unit.extent("NumGroups", channels) != channels:
            raise AuthoringError(f"OutputChannels and NumGroups must be {channels}, one kernel for each channel")
        return af.conv_transpose(x, unit.numbers((channels, 1, *size)), groups=channels, **settings)
    groups = unit.extent("NumGroups", 1)
    kernel = unit.numbers((unit.extent("OutputChannels"), channels // groups, *size))
    return af.conv(x, kernel, groups=groups, **settings)


def _linear(unit: Unit) -> Tensor:
    x = unit.image
    kernel = unit.numbers((unit.extent("OutputChannels"), x.shape[1]))
    return af.conv(x, kernel.reshape(*kernel.shape, 1, 1))


def _pool(unit: Unit) -> Tensor:
    x, size = unit.image, _flat_kernel(unit)
    if {"Max": True, "Avg": False}[unit.params["Type"]]:
        return x.max_pool(size, stride=_step(unit), pad=pads(unit))
    exclude = bool(unit.param("AverageCountExcludePadding", False))
    return x.avg_pool(size, stride=_step(unit), pad=pads(unit), exclude_pad=exclude)


@cache
def _typed_ops(tag: str) -> dict[str, tuple[OpDef, Spelling, Spelling]]:
    """The graph op behind each ``Type`` of a unit, by the rows of two declarations: graph op to backend op, backend op
    to unit. A graph op that is a special case of a backend op, such as relu6, has no type of its own."""
    units = {kind: spelling(declared.unit, kind) for kind, declared in OPS.items() if declared.unit.startswith(tag)}
    ops = {}
    for declared in definitions().values():
        row = declared.in_backend
        unit = None if row is None or row.constants else units.get(row.name)
        if row is not None and unit is not None and "Type" in unit.constants:
            stated = {setting.name for setting in unit.renamed}
            if all(setting.theirs in stated for setting in row.renamed):
                ops[unit.constants["Type"]] = declared, row, unit
    return ops


def _typed(unit: Unit, *operands: Tensor) -> Tensor:
    """The op that a unit of some ``Type`` is, with its parameters as attributes."""
    kind = unit.params["Type"]
    declared, row, stated = _typed_ops(unit.tag)[kind]
    missing = [key for key in stated.needed if key not in unit.params]
    if missing:
        raise AuthoringError(f"{kind} needs {missing[0]}; add it")
    values = row.read(stated.read(unit.params))
    return make(declared, operands, {key: number(value, key) for key, value in values.items()})


def _neuron(unit: Unit) -> Tensor:
    """Of the two sigmoids only the precise one was authored; powers and logarithms have two bases in one op."""
    x, kind = unit.bottom, unit.params["Type"]
    if kind == "SigmoidHighPrecision":
        return x.sigmoid()
    if kind == "Exp2":
        return x.exp2()
    return x.log(0.0) * (1 / np.log(2)) if kind == "Log2" else _typed(unit, x)


def _elementwise(unit: Unit) -> Tensor:
    """The engine's comparisons give 0 and 1."""
    kind, wanted = unit.params["Type"], 1 if unit.params["Type"] == "Abs" else 2
    if len(unit.bottoms) != wanted:
        raise AuthoringError(f"{kind} has {len(unit.bottoms)} bottoms; expected {wanted}")
    result = _typed(unit, *unit.bottoms)
    return af.cast(result) if result.dtype == "bool" else result


def _reduction(unit: Unit) -> Tensor:
    axes = tuple(sorted(unit.axis(name) for name in unit.params["Dimension"]))
    return reduce(_typed_ops(unit.tag)[unit.params["Type"]][0].name, unit.bottom, axes)


def _goc(unit: Unit) -> Tensor:
    """One gain and one offset for the whole tensor."""
    return unit.bottom * unit.param("ScaleScalar", 1.0) + unit.param("BiasScalar", 0.0)


def _dynamic_goc(unit: Unit) -> Tensor:
    """Gain and offset that are tensors: an offset alone, or both."""
    x, *operands = unit.bottoms
    alone = unit.param("BiasOnly", len(operands) == 1)
    if bool(alone) != (len(operands) == 1):
        raise AuthoringError(
            f"BiasOnly is {bool(alone)} with {len(unit.bottoms)} bottoms; it must be true for two and false for three"
        )
    return x + operands[0] if alone else x * operands[0] + operands[1]


def _transpose(unit: Unit) -> Tensor:
    order = list(range(len(unit.bottom.shape)))
    for move in unit.params["TransposeDimensions"]:
        source, target = move["TransposeSourceDimension"], move["TransposeDestinationDimension"]
        order[unit.axis(target)] = unit.axis(source)
    if sorted(order) != list(range(len(order))):
        raise AuthoringError("TransposeDimensions must be a permutation; an axis is filled twice or left empty")
    return unit.bottom.transpose(order)


def _reshape(unit: Unit) -> Tensor:
    x = unit.image
    keys = ("ReshapedBatch", "ReshapedChannel", "ReshapedHeight", "ReshapedWidth")
    return x.reshape(*(unit.param(key, size) for key, size in zip(keys, x.shape, strict=True)))


def _tile(unit: Unit) -> Tensor:
    counts = [1] * len(unit.bottom.shape)
    for name, count in unit.params.items():
        counts[unit.axis(name)] = count
    return unit.bottom.tile(counts)


def _broadcast(unit: Unit) -> Tensor:
    x, counts = unit.bottom, [1] * len(unit.bottom.shape)
    for spread in unit.params["BroadcastInfo"]:
        axis = unit.axis(spread["Dimension"])
        if x.shape[axis] != 1:
            raise AuthoringError(
                f"{spread['Dimension']} has {x.shape[axis]} elements; only an axis of 1 can be broadcast"
            )
        counts[axis] = spread["Size"]
    return x.tile(counts)


def _concat(unit: Unit) -> Tensor:
    return af.concat(unit.bottoms, axis=unit.axis(unit.params["Dimension"]))


def _product(unit: Unit) -> Tensor:
    """The product of [N, M, 1, K] and [N, K, 1, P]; the rows of the left operand are its channels (listing 22.1)."""
    left, right = unit.images
    if left.shape[2] != 1 or right.shape[2] != 1:
        raise AuthoringError("the height of both operands must be 1")
    result = left.squeeze([2]) @ right.squeeze([2])
    return result.expand_dims([2])


def _shuffled(ordinary: Callable[[Tensor, int], Tensor], native: Callable[[Tensor, Any], Tensor]) -> Rule:
    """The model language has one factor for both axes; two factors are a native layer."""

    def rule(unit: Unit) -> Tensor:
        rows, columns = factors(unit)
        return ordinary(unit.image, rows) if rows == columns else native(unit.image, (rows, columns))

    return rule


def _vector(unit: Unit, value: float, axis: int = 1) -> np.ndarray:
    return np.full(unit.image.shape[axis], value)


def _layer_norm(unit: Unit) -> Tensor:
    x, groups, epsilon = unit.image, unit.params["groups"], unit.params["epsilon"]
    axis = unit.axis(unit.params["axis"])
    gain, offset = _vector(unit, 1.0, axis), _vector(unit, 0.0, axis)
    if groups != 1:
        if axis != 1:
            raise AuthoringError("groups split the channels; set axis to Channel")
        return x.group_norm(gain, offset, groups, epsilon)
    if axis == 2:
        raise AuthoringError("axis must be Channel or Width")
    return x.channel_layer_norm(gain, offset, epsilon) if axis == 1 else x.layer_norm(gain, offset, epsilon)


def _resized(unit: Unit, height: int, width: int) -> Tensor:
    if unit.params["sampling_methods"] == "NearestNeighbor":
        return af.resize_nearest_neighbor(unit.image, height, width)
    corners = unit.params["sampling_modes"] == "StrictAlignedCorners"
    return af.resize_bilinear(unit.image, height, width, corners)


def _affine(unit: Unit) -> Tensor:
    x, matrix = unit.images
    if matrix.size != 6 * x.shape[0]:
        raise AuthoringError(f"the matrix has {matrix.size} numbers; expected 6 for each image")
    matrix = matrix.reshape(x.shape[0], 6)
    return af.affine(x, matrix, unit.params["height"], unit.params["width"], bool(unit.params["align_corners"]))


_PADDING = {"Zero": "constant", "Background": "constant", "Replication": "replicate", "Symmetric": "symmetric"}


def _padded(unit: Unit) -> Tensor:
    """Two pairs are for height and width; five are for N, D, C, H and W, of which only the last two may add."""
    pairs: Sequence[Any] = unit.params["padding_sizes"]
    if len(pairs) not in (2, 5) or any(len(pair) != 2 for pair in pairs):
        raise AuthoringError(f"padding_sizes is {list(pairs)}; it must be pairs (before, after) for height and width")
    if any(side for pair in pairs[:-2] for side in pair):
        raise AuthoringError("padding_sizes adds to the batch, depth or channels; these must be 0")
    mode = unit.params["padding_modes"]
    value = unit.params["background_value"] if mode == "Background" else 0.0
    widths = [(0, 0), (0, 0), *(tuple(pair) for pair in pairs[-2:])]
    return af.pad(unit.image, widths, _PADDING.get(mode, "reflect"), value)


ORDINARY_RULES: dict[str, Rule] = {
    "AffineTransform": _affine,
    "Broadcast": _broadcast,
    "Concat": _concat,
    "Conv": _conv,
    "Dropout": lambda unit: af.dropout(unit.bottom, unit.params["rate"], unit.params["seed"]),
    "DynamicGOC": _dynamic_goc,
    "ElementWise": _elementwise,
    "GOC": _goc,
    "InstanceNormalization": lambda unit: af.instance_norm(
        unit.image, _vector(unit, 1.0), _vector(unit, 0.0), unit.params["epsilon"]
    ),
    "L2Normalization": lambda unit: unit.bottom.l2_norm(unit.axis(unit.params["axis"]), unit.params["epsilon"]),
    "LayerNormalization": _layer_norm,
    "Linear": _linear,
    "MatrixMultiplication": _product,
    "Neuron": _neuron,
    "Padding": _padded,
    "PixelShuffle": _shuffled(af.pixel_shuffle, layers.native_pixel_shuffle),
    "PixelUnshuffle": _shuffled(af.pixel_unshuffle, layers.native_pixel_unshuffle),
    "Pooling": _pool,
    "RandomGenerator": lambda unit: af.random_uniform(
        sizes(unit, "shape", len(unit.params["shape"])), unit.params["low"], unit.params["high"], unit.params["seed"]
    ),
    "Reduction": _reduction,
    "Reshape": _reshape,
    "Resize": lambda unit: _resized(unit, unit.params["height"], unit.params["width"]),
    "ResizeAs": lambda unit: _resized(unit, *unit.images[1].shape[2:]),
    "RingBufferReader": lambda unit: af.ring_read(unit.bottom, unit.params["offset"], unit.params["size"]),
    "Softmax": lambda unit: unit.bottom.softmax(unit.axis(unit.params["Dimension"])),
    "Tile": _tile,
    "Transpose": _transpose,
}
