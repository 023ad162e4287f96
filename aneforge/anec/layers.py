"""Ops of the engine's language as native layers: the type, parameters and bottoms that a netplist states for each.

The validators ask about these layers, and the netplist writer spells them. An op that no layer stands for (a port, a
constant) has none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aneforge.anec.ir import Op
from aneforge.native.layer import Layer

Params = dict[str, Any]
Shape = tuple[int, ...]

_AXES = {1: "Depth", 2: "Channel", 3: "Height", 4: "Width"}


def layer_of(op: Op) -> Layer | None:
    """The layer of an op, or None for an op that is none."""
    if op.kind == "unit":
        return Layer(op.attrs["type"], op.attrs["params"], _bottoms(op, len(op.operands)))
    spelled = _LAYERS.get("dynamic_gain_offset_control" if _is_dynamic_gain(op) else op.kind)
    if spelled is None:
        return None
    tag, bottoms, params, fields = spelled
    return Layer(tag, params(op), _bottoms(op, bottoms), fields(op))


def _is_dynamic_gain(op: Op) -> bool:
    """Whether gain or offset come at run time, which is a layer of its own. Stored ones are part of the static one."""
    return op.kind == "gain_offset_control" and any(operand.kind != "const_in" for operand in op.operands[1:])


def _bottoms(op: Op, count: int | None) -> tuple[Shape, ...]:
    return tuple(_port_shape(operand.shape) for operand in op.operands[:count])


def _port_shape(shape: Shape) -> Shape:
    """NDCHW as a user writes it: [N, C, H, W], or [N, C, D, H, W] where there is a depth."""
    n, d, c, h, w = shape
    return (n, c, h, w) if d == 1 else (n, c, d, h, w)


def _nothing(op: Op) -> Params:
    return {}


def _padding(op: Op, name: str) -> Params:
    front, back, top, bottom, left, right = op[name]
    sides = ("PadFront", "PadBack", "PadTop", "PadBot", "PadLeft", "PadRight")
    return dict(zip(sides, (front, back, top, bottom, left, right), strict=True))


def _kernel(op: Op, name: str) -> Params:
    return dict(zip(("KernelDepth", "KernelHeight", "KernelWidth"), op[name], strict=True))


def _conv(op: Op) -> Params:
    """A deconvolution is the layer's other type; only the channel-wise one, also of one channel, is published."""
    deconvolves = op.kind == "deconvolution"
    by_channel = op["channel_wise"] or op["groups"] == op.operands[0].shape[2] == op.shape[2]
    return {
        "Type": ("ChannelWiseDeConv" if by_channel else "DeConv") if deconvolves else "Conv",
        **_kernel(op, "kernel_sizes"),
        "Step": tuple(op["strides"]),
        "Dilation": tuple(op["dilation_rates"]),
        **_padding(op, "explicit_padding"),
        "PaddingMode": op["padding_mode"],
    }


def _conv_fields(op: Op) -> Params:
    return {"OutputChannels": op.shape[2], "NumGroups": op["groups"]}


def _pool(kind: str) -> Callable[[Op], Params]:
    def params(op: Op) -> Params:
        pool = {"Type": kind, **_kernel(op, "ksize"), "Step": tuple(op["stride"]), **_padding(op, "padding")}
        return {**pool, "AverageCountExcludePadding": not op["inc_pad"]} if kind == "Avg" else pool

    return params


def _neuron(kind: str, **keys: str) -> Callable[[Op], Params]:
    """An activation; ``keys`` gives the attribute behind each parameter."""
    return lambda op: {"Type": kind, **{key: op[name] for key, name in keys.items()}}


def _shifted(kind: str) -> Callable[[Op], Params]:
    """An activation of x + epsilon. The published layers have no key for one that is not zero."""
    return lambda op: {"Type": kind, **({"Epsilon": op["epsilon"]} if op["epsilon"] else {})}


def _typed(kind: str) -> Callable[[Op], Params]:
    return lambda op: {"Type": kind}


def _axes(op: Op, name: str = "axes") -> tuple[str, ...]:
    return tuple(_AXES.get(axis, "Batch") for axis in op[name])


def _reduction(kind: str) -> Callable[[Op], Params]:
    def params(op: Op) -> Params:
        square = {"SquareInput": True} if op["square_input"] else {}
        return {"Dimension": _axes(op), "Type": kind, **square}

    return params


def _softmax(op: Op) -> Params:
    axes = _axes(op)
    return {"Dimension": axes[0] if len(axes) == 1 else axes}


def _arg_min_max(op: Op) -> Params:
    height, width = op["kernel_size"]
    top, bottom, left, right = op["pad_values"]
    sides = {"PadTop": top, "PadBot": bottom, "PadLeft": left, "PadRight": right}
    return {
        "Mode": op["mode"],
        "KernelHeight": height,
        "KernelWidth": width,
        "Step": tuple(op["stride_values"]),
        **sides,
    }


def _global_arg(op: Op) -> Params:
    return {"Type": op["mode"], "Dimension": _AXES.get(op["axis"], "Batch")}


def _transpose(op: Op) -> Params:
    moves = [
        {
            "TransposeSourceDimension": _AXES.get(source, "Batch"),
            "TransposeDestinationDimension": _AXES.get(place, "Batch"),
        }
        for place, source in op["transpose_list"]
    ]
    return {"TransposeDimensions": tuple(moves)}


def _reshape(op: Op) -> Params:
    n, d, c, h, w = op["shape"]
    shape = {"ReshapedBatch": n, "ReshapedChannel": c, "ReshapedHeight": h, "ReshapedWidth": w}
    return {**shape, "ReshapedDepth": d} if d != 1 else shape


def _tile(op: Op) -> Params:
    return {_AXES.get(axis, "Batch"): count for axis, count in enumerate(op["multiples"]) if count != 1}


def _broadcast(op: Op) -> Params:
    before, after = op.operands[0].shape, op["shape"]
    grown = [axis for axis in range(5) if before[axis] != after[axis]]
    return {"BroadcastInfo": tuple({"Dimension": _AXES.get(axis, "Batch"), "Size": after[axis]} for axis in grown)}


def _view(op: Op) -> Params:
    return {
        "Dimension": _AXES.get(op["dimension"], "Batch"),
        "Offset": op["offset"],
        "Size": op["size"],
        "Step": op["step"],
    }


def _concat(op: Op) -> Params:
    return {"Dimension": _AXES.get(op["axis"], "Batch")}


def _factors(op: Op) -> Params:
    z, y, x = op["factors"]
    return {"FactorX": x, "FactorY": y, "FactorZ": z}


def _gain_offset(op: Op) -> Params:
    return {"ScaleScalar": op["gain"], "BiasScalar": op["bias"]}


def _dynamic_gain_offset(op: Op) -> Params:
    return {"BiasOnly": True} if len(op.operands) == 2 else {}


def _gather(op: Op) -> Params:
    return {"GatherNDAxes": _axes(op)}


def _attention(op: Op) -> Params:
    return {"SubtractMax": bool(op["subtract_max"])}


def _scaled(op: Op) -> Params:
    return {"Type": op["mode"], "Scale": op["scale"]}


Spelling = tuple[str, "int | None", Callable[[Op], Params], Callable[[Op], Params]]


def _spelling(
    tag: str,
    params: Callable[[Op], Params] = _nothing,
    bottoms: int | None = 1,
    fields: Callable[[Op], Params] = _nothing,
) -> Spelling:
    return tag, bottoms, params, fields


_PAIRS = {
    "add": "Add",
    "sub": "Sub",
    "mult": "Mult",
    "div": "Div",
    "power": "Power",
    "max": "Max",
    "min": "Min",
    "equal": "Equal",
    "not_equal": "NotEqual",
    "less_than": "LessThan",
    "less_than_equal": "LessThanEqual",
    "greater_than": "GreaterThan",
    "greater_than_equal": "GreaterThanEqual",
}
_SINGLE = {
    "abs": "Abs",
    "square": "Square",
    "equal_zero": "EqualZero",
    "not_equal_zero": "NotEqualZero",
    "less_than_zero": "LessThanZero",
    "less_than_equal_zero": "LessThanEqualZero",
    "greater_than_zero": "GreaterThanZero",
    "greater_than_equal_zero": "GreaterThanEqualZero",
}
_NEURONS = {
    "relu": _neuron("ReLU"),
    "clamped_relu": _neuron("ClampedReLU", ReluMin="min_val", ReluMax="max_val"),
    "n_relu": _neuron("ReLUN", ReluMax="max_val"),
    "leaky_relu": _neuron("LeakyReLU", ReluSlope="negative_slope"),
    "elu": _neuron("ELU", EluAlpha="alpha"),
    "sigmoid": _neuron("Sigmoid"),
    "high_precision_sigmoid": _neuron("SigmoidHighPrecision"),
    "tanh": _neuron("Tanh"),
    "gelu": _neuron("GELU"),
    "swish": lambda op: {"Type": "SwishHard" if op["hard"] else "Swish"},
    "sqrt": _neuron("Sqrt"),
    "r_sqrt": _shifted("Rsqrt"),
    "sqr": _neuron("Sqr"),
    "invert": _shifted("Inv"),
    "exp2": lambda op: {"Type": "Exp" if op["base_e"] else "Exp2"},
    "log2": lambda op: _shifted("Log" if op["base_e"] else "Log2")(op),
    "sin": _neuron("Sin"),
    "cos": _neuron("Cos"),
    "erf": _neuron("Erf"),
    "ceil": _neuron("Ceil"),
    "floor": _neuron("Floor"),
    "round_nearest": _neuron("RoundNearest"),
    "trunc": _neuron("Trunc"),
    "sign": _neuron("Sign"),
    "degamma": _neuron("Degamma"),
    "dirac": _neuron("Dirac"),
}

_LAYERS: dict[str, Spelling] = {
    **{kind: _spelling("ElementWise", _typed(name), 2) for kind, name in _PAIRS.items()},
    **{kind: _spelling("ElementWise", _typed(name)) for kind, name in _SINGLE.items()},
    **{kind: _spelling("Neuron", params) for kind, params in _NEURONS.items()},
    "scaled_elementwise": _spelling("ScaledElementWise", _scaled, 2),
    "gain_offset_control": _spelling("GOC", _gain_offset),
    "dynamic_gain_offset_control": _spelling("DynamicGOC", _dynamic_gain_offset, None),
    "convolution": _spelling("Conv", _conv, 1, _conv_fields),
    "deconvolution": _spelling("Conv", _conv, 1, _conv_fields),
    "linear": _spelling("Linear", _nothing, 1, lambda op: {"OutputChannels": op.shape[2]}),
    "matmul": _spelling("MatrixMultiplication", _nothing, 2),
    "sdpa": _spelling("SDPA", _attention, None),
    "average_pool": _spelling("Pooling", _pool("Avg")),
    "max_pool": _spelling("Pooling", _pool("Max")),
    "l2norm_pool": _spelling("Pooling", _pool("L2")),
    "reduce_avg": _spelling("Reduction", _reduction("Avg")),
    "reduce_sum": _spelling("Reduction", _reduction("Sum")),
    "reduce_max": _spelling("Reduction", _reduction("Max")),
    "reduce_min": _spelling("Reduction", _reduction("Min")),
    "arg_min_max": _spelling("ArgMinMax", _arg_min_max),
    "global_arg_min_max": _spelling("GlobalArgMinMax", _global_arg),
    "softmax": _spelling("Softmax", _softmax),
    "layer_norm": _spelling("LayerNormalization", lambda op: {"Dimension": _axes(op), "NumGroups": op["groups"]}),
    "instance_norm": _spelling("InstanceNormalization", lambda op: {"Dimension": _axes(op)}),
    "reshape": _spelling("Reshape", _reshape),
    "flatten": _spelling("Flatten"),
    "unflatten": _spelling("Unflatten"),
    "broadcast": _spelling("Broadcast", _broadcast),
    "transpose": _spelling("Transpose", _transpose),
    "concat": _spelling("Concat", _concat, None),
    "tile": _spelling("Tile", _tile),
    "padding": _spelling(
        "Padding", lambda op: {"PaddingMode": op["padding_modes"], "PaddingSizes": op["padding_sizes"]}
    ),
    "input_view": _spelling("InputView", _view),
    "gather_nd": _spelling("Gather", _gather, None),
    "pixel_shuffle": _spelling("PixelShuffle", _factors),
    "pixel_unshuffle": _spelling("PixelUnshuffle", _factors),
    "channel_to_space": _spelling("ChannelToSpace", _factors),
    "space_to_channel": _spelling("SpaceToChannel", _factors),
    "space_to_batch": _spelling("SpaceToBatch", _factors),
    "batch_to_space": _spelling("BatchToSpace", _factors),
    "resize": _spelling("Resize", lambda op: {"Height": op["height"], "Width": op["width"]}),
    "crop_resize": _spelling("CropResize", _nothing, 2),
    "resample": _spelling("Resample", lambda op: {"SamplingMethod": op["sampling_method"]}, 2),
    "ring_buffer_writer": _spelling("RingBufferWriter", _nothing, 2),
}
