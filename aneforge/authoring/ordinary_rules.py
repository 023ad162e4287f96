"""Layers with the meaning of ordinary ops: what each becomes in the graph. None of them cuts the program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from aneforge.authoring.build import AuthoringError, Rule, Unit
from aneforge.graph import builders as af
from aneforge.graph import layer_builders as layers
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
_NEEDED = {"LeakyReLU": "ReluSlope", "ClampedReLU": "ReluMax"}

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
    kind = unit.params["Type"]
    if kind in _NEEDED and _NEEDED[kind] not in unit.params:
        raise AuthoringError(f"{kind} needs {_NEEDED[kind]}; add it")
    return _NEURONS[kind](unit, unit.bottom)


def _elementwise(unit: Unit) -> Tensor:
    """The engine's comparisons give 0 and 1."""
    kind, wanted = unit.params["Type"], 1 if unit.params["Type"] == "Abs" else 2
    if len(unit.bottoms) != wanted:
        raise AuthoringError(f"{kind} has {len(unit.bottoms)} bottoms; expected {wanted}")
    return unit.bottom.abs() if kind == "Abs" else _PAIRS[kind](*unit.bottoms)


def _reduction(unit: Unit) -> Tensor:
    axes = tuple(sorted(unit.axis(name) for name in unit.params["Dimension"]))
    forms = {"Sum": Tensor.sum, "Avg": Tensor.mean, "Max": Tensor.amax, "Min": Tensor.amin}
    return forms[unit.params["Type"]](unit.bottom, axes)


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
