"""What each op of the graph is called in MIL, and how its attributes are spelled there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from aneforge.errors import AneforgeError
from aneforge.exports.mil import Mil
from aneforge.graph.tensor import Tensor

Rule = Callable[..., Any]
"""Takes the builder, the name in the package, the node and its operands; gives the value."""


def _plain(kind: str, *operands: str) -> Rule:
    """An op with the same operands and nothing to spell."""

    def rule(mil: Mil, name: str, node: Tensor, *values: Any) -> Any:
        return mil.op(kind, name, **dict(zip(operands, values, strict=True)))

    return rule


def _with(kind: str, spelled: dict[str, str], operand: str = "x") -> Rule:
    """An op of one operand whose attributes are numbers under other names."""

    def rule(mil: Mil, name: str, node: Tensor, x: Any) -> Any:
        settings = {theirs: _number(node.attrs[ours]) for ours, theirs in spelled.items()}
        return mil.op(kind, name, **{operand: x}, **settings)

    return rule


def _number(value: Any) -> Any:
    return np.float16(value) if isinstance(value, float) else value


def _reduction(kind: str) -> Rule:
    return lambda mil, name, node, x: mil.op(kind, name, x=x, axes=list(node.attrs["axes"]), keep_dims=True)


def _conv(kind: str) -> Rule:
    def rule(mil: Mil, name: str, node: Tensor, x: Any, weight: Any, bias: Any = None) -> Any:
        attrs = node.attrs
        top, bottom, left, right = attrs["pad"]
        operands = {"x": x, "weight": weight, **({} if bias is None else {"bias": bias})}
        return mil.op(
            kind,
            name,
            **operands,
            strides=list(attrs["stride"]),
            pad_type="custom",
            pad=[top, bottom, left, right],
            dilations=list(attrs["dilation"]),
            groups=attrs["groups"],
        )

    return rule


def _pool(kind: str) -> Rule:
    def rule(mil: Mil, name: str, node: Tensor, x: Any) -> Any:
        attrs = node.attrs
        top, bottom, left, right = attrs["pad"]
        more = {"exclude_padding_from_average": attrs["exclude_pad"]} if kind == "avg_pool" else {}
        return mil.op(
            kind,
            name,
            x=x,
            kernel_sizes=list(attrs["kernel"]),
            strides=list(attrs["stride"]),
            pad_type="custom",
            pad=[top, bottom, left, right],
            ceil_mode=attrs["ceil_mode"],
            **more,
        )

    return rule


def _layer_norm(mil: Mil, name: str, node: Tensor, x: Any, gamma: Any, beta: Any) -> Any:
    axes = [1] if node.op == "channel_layer_norm" else [-1]
    eps = np.float16(node.attrs["eps"])
    return mil.op("layer_norm", name, x=x, axes=axes, gamma=gamma, beta=beta, epsilon=eps)


def _instance_norm(mil: Mil, name: str, node: Tensor, x: Any, gamma: Any, beta: Any) -> Any:
    return mil.op("instance_norm", name, x=x, gamma=gamma, beta=beta, epsilon=np.float16(node.attrs["eps"]))


def _batch_norm(mil: Mil, name: str, node: Tensor, x: Any, gamma: Any, beta: Any, mean: Any, var: Any) -> Any:
    eps = np.float16(node.attrs["eps"])
    return mil.op("batch_norm", name, x=x, mean=mean, variance=var, gamma=gamma, beta=beta, epsilon=eps)


def _rms_norm(mil: Mil, name: str, node: Tensor, x: Any, gamma: Any) -> Any:
    """x / sqrt(mean(x^2) + eps) * gamma, step by step: the language has no op for it."""
    square = mil.op("square", f"{name}_square", x=x)
    mean = mil.op("reduce_mean", f"{name}_mean", x=square, axes=[-1], keep_dims=True)
    scale = mil.op("rsqrt", f"{name}_rsqrt", x=mean, epsilon=np.float16(node.attrs["eps"]))
    white = mil.op("mul", f"{name}_white", x=x, y=scale)
    if node.inputs[1].shape != node.shape[-1:]:
        gamma = mil.op("reshape", f"{name}_gain", x=gamma, shape=[node.shape[-1]])
    return mil.op("mul", name, x=white, y=gamma)


def _l2_norm(mil: Mil, name: str, node: Tensor, x: Any) -> Any:
    """x / sqrt(sum(x^2) + eps) along one axis; the language's own runs over the last three."""
    total = mil.op("reduce_sum_square", f"{name}_sum", x=x, axes=[node.attrs["axis"]], keep_dims=True)
    scale = mil.op("rsqrt", f"{name}_rsqrt", x=total, epsilon=np.float16(node.attrs["eps"]))
    return mil.op("mul", name, x=x, y=scale)


def _group_norm(mil: Mil, name: str, node: Tensor, x: Any, gamma: Any, beta: Any) -> Any:
    """Groups as lines, each whitened by itself, then gain and offset: the language has no op for it."""
    shape, groups = node.shape, node.attrs["num_groups"]
    lines = mil.op("reshape", f"{name}_lines", x=x, shape=[shape[0], groups, node.size // (shape[0] * groups)])
    mean = mil.op("reduce_mean", f"{name}_mean", x=lines, axes=[2], keep_dims=True)
    centred = mil.op("sub", f"{name}_centred", x=lines, y=mean)
    square = mil.op("square", f"{name}_square", x=centred)
    spread = mil.op("reduce_mean", f"{name}_spread", x=square, axes=[2], keep_dims=True)
    scale = mil.op("rsqrt", f"{name}_rsqrt", x=spread, epsilon=np.float16(node.attrs["eps"]))
    white = mil.op("mul", f"{name}_white", x=centred, y=scale)
    back = mil.op("reshape", f"{name}_back", x=white, shape=list(shape))
    along = [1, shape[1], *(1,) * (len(shape) - 2)]
    gain, offset = (
        mil.op("reshape", f"{name}_{what}", x=parameter, shape=along)
        for what, parameter in (("gain", gamma), ("offset", beta))
    )
    return mil.op("add", name, x=mil.op("mul", f"{name}_scaled", x=back, y=gain), y=offset)


def _prelu(mil: Mil, name: str, node: Tensor, x: Any, alpha: Any) -> Any:
    """The language takes images; elsewhere it is written out."""
    if len(node.shape) == 4:
        return mil.op("prelu", name, x=x, alpha=alpha)
    above = mil.op("relu", f"{name}_above", x=x)
    negative = mil.op("mul", f"{name}_negative", x=x, y=np.float16(-1.0))
    below = mil.op("relu", f"{name}_below", x=negative)
    slopes = [1, node.shape[1], *(1,) * (len(node.shape) - 2)]
    slope = mil.op("reshape", f"{name}_slope", x=alpha, shape=slopes)
    return mil.op("sub", name, x=above, y=mil.op("mul", f"{name}_sloped", x=below, y=slope))


def _select(mil: Mil, name: str, node: Tensor, *operands: Any) -> Any:
    """All three of one shape: the language's checks know no other."""
    spread = []
    for place, (operand, of) in enumerate(zip(operands, node.inputs, strict=True)):
        if of.shape == node.shape:
            spread.append(operand)
            continue
        shape = (1,) * (len(node.shape) - len(of.shape)) + of.shape
        raised = operand
        if shape != of.shape:
            raised = mil.op("reshape", f"{name}_raised_{place}", x=operand, shape=list(shape))
        reps = [a // b for a, b in zip(node.shape, shape, strict=True)]
        spread.append(mil.op("tile", f"{name}_spread_{place}", x=raised, reps=reps))
    condition, a, b = spread
    return mil.op("select", name, cond=condition, a=a, b=b)


def _affine(mil: Mil, name: str, node: Tensor, x: Any, transform: Any) -> Any:
    attrs = node.attrs
    return mil.op(
        "affine",
        name,
        x=x,
        transform_matrix=transform,
        output_height=attrs["output_h"],
        output_width=attrs["output_w"],
        sampling_mode="bilinear",
        padding_mode="constant",
        padding_value=np.float16(0),
        coordinates_mode="normalized_minus_one_to_one",
        align_corners=attrs["align_corners"],
    )


def _linear(mil: Mil, name: str, node: Tensor, x: Any, weight: Any, bias: Any = None) -> Any:
    if node.inputs[1].weight is None:
        product = mil.op("matmul", name if bias is None else f"{name}_product", x=x, y=weight, transpose_y=True)
        return product if bias is None else mil.op("add", name, x=product, y=bias)
    return mil.op("linear", name, x=x, weight=weight, **({} if bias is None else {"bias": bias}))


def _attention(mil: Mil, name: str, node: Tensor, q: Any, k: Any, v: Any, mask: Any = None) -> Any:
    """The language's op divides by the root of the features; another scale goes into the query."""
    attrs, features = node.attrs, node.inputs[0].shape[-1]
    factor = attrs["scale"] * np.sqrt(features)
    if abs(factor - 1.0) > 1e-3:
        q = mil.op("mul", f"{name}_query", x=q, y=np.float16(factor))
    if attrs["is_causal"]:
        raise AneforgeError(f"{name} (sdpa): is_causal has no form in Core ML. Give the mask as attn_mask.")
    if not attrs["subtract_max"]:
        raise AneforgeError(f"{name} (sdpa): SubtractMax false has no form in Core ML. Set SubtractMax.")
    if not attrs["heads_first"]:
        raise AneforgeError(f"{name} (sdpa): a sequence before the heads has no form in Core ML. Transpose first.")
    settings = {} if mask is None else {"attn_mask": mask}
    return mil.op("scaled_dot_product_attention", name, query=q, key=k, value=v, **settings)


def _pad(mil: Mil, name: str, node: Tensor, x: Any) -> Any:
    attrs = node.attrs
    widths = [side for pair in attrs["widths"] for side in pair]
    first = next((i for i, pair in enumerate(attrs["widths"]) if any(pair)), 0)
    settings = {"constant_val": np.float16(attrs["value"])} if attrs["mode"] == "constant" else {}
    return mil.op("pad", name, x=x, pad=widths[2 * first :], mode=attrs["mode"], **settings)


def _slice_by_index(mil: Mil, name: str, node: Tensor, x: Any) -> Any:
    attrs = node.attrs
    return mil.op(
        "slice_by_index", name, x=x, begin=list(attrs["begin"]), end=list(attrs["end"]), stride=list(attrs["stride"])
    )


def _resize(kind: str) -> Rule:
    def rule(mil: Mil, name: str, node: Tensor, x: Any) -> Any:
        attrs = node.attrs
        sizes = {"target_size_height": attrs["height"], "target_size_width": attrs["width"]}
        if kind == "resize_bilinear":
            sizes["sampling_mode"] = "STRICT_ALIGN_CORNERS" if attrs["align_corners"] else "UNALIGN_CORNERS"
        return mil.op(kind, name, x=x, **sizes)

    return rule


def _upsample(kind: str) -> Rule:
    def rule(mil: Mil, name: str, node: Tensor, x: Any) -> Any:
        scale = node.attrs["scale"]
        rows, columns = scale if isinstance(scale, tuple) else (scale, scale)
        if kind == "upsample_bilinear":
            factors = {"scale_factor_height": np.float32(rows), "scale_factor_width": np.float32(columns)}
            return mil.op(kind, name, x=x, **factors, align_corners=node.attrs["align_corners"])
        return mil.op(kind, name, x=x, scale_factor_height=rows, scale_factor_width=columns)

    return rule


def _crop(mil: Mil, name: str, node: Tensor, x: Any) -> Any:
    attrs = node.attrs
    return mil.op(
        "crop", name, x=x, crop_height=[attrs["top"], attrs["bottom"]], crop_width=[attrs["left"], attrs["right"]]
    )


def _topk(mil: Mil, name: str, node: Tensor, x: Any) -> Any:
    attrs = node.attrs
    if attrs["lanes"] is not None:
        raise AneforgeError(f"{name} (topk): vectors have no top-k in Core ML. Use the host for it.")
    values, _ = mil.op("topk", name, x=x, k=attrs["k"], axis=-1, ascending=not attrs["largest"])
    return mil.op("identity", f"{name}_values", x=values)


def _gather(mil: Mil, name: str, node: Tensor, x: Any) -> Any:
    indices = np.asarray(node.attrs["indices"], np.int32)
    return mil.op("gather", name, x=x, indices=indices, axis=node.attrs["axis"], validate_indices=False)


def _einsum(mil: Mil, name: str, node: Tensor, a: Any, b: Any) -> Any:
    return mil.op("einsum", name, values=[a, b], equation=node.attrs["equation"].replace(" ", ""))


def _sum_square(mil: Mil, name: str, node: Tensor, x: Any) -> Any:
    return mil.op("reduce_sum_square", name, x=x, axes=list(node.attrs["axes"]), keep_dims=True)


def _flatten2d(mil: Mil, name: str, node: Tensor, x: Any) -> Any:
    return mil.op("flatten2d", name, x=x, axis=node.attrs["axis"])


_SAME = (
    "abs acos asin atan atanh ceil cos cosh erf exp exp2 floor relu relu6 round sigmoid sign silu sin sinh softplus "
    "softsign sqrt square tan tanh logical_not"
)
_PAIRS = (
    "add sub mul real_div floor_div mod pow maximum minimum equal not_equal less less_equal greater greater_equal "
    "logical_and logical_or logical_xor"
)


def codes(mil: Mil, name: str, node: Tensor, x: Any) -> Any:
    """A quantiser whose readers are all dequantisers: the language has a type for what is between them."""
    attrs = node.attrs
    step = {"scale": np.float16(attrs["scale"]), "zero_point": np.dtype(attrs["to"]).type(attrs["zero_point"])}
    return mil.op("quantize", name, input=x, output_dtype=attrs["to"], **step)


def _quantize(mil: Mil, name: str, node: Tensor, x: Any) -> Any:
    """Codes that other ops read are numbers to them."""
    return mil.op("cast", name, x=codes(mil, f"{name}_codes", node, x), dtype="fp16")


def _dequantize(mil: Mil, name: str, node: Tensor, x: Any) -> Any:
    """Of bytes by the language's own op; numbers of another origin are shifted and scaled."""
    before, scale, zero = node.inputs[0], np.float16(node.attrs["scale"]), node.attrs["zero_point"]
    if before.op == "quantize":
        kind = before.attrs["to"]
        stored = x if mil.is_bytes(x) else x.op.inputs["x"]  # behind it is the cast for others
        return mil.op("dequantize", name, input=stored, scale=scale, zero_point=np.dtype(kind).type(zero))
    shifted = mil.op("sub", f"{name}_shifted", x=x, y=np.float16(zero)) if zero else x
    return mil.op("mul", name, x=shifted, y=scale)


RULES: dict[str, Rule] = {
    **{name: _plain(name, "x") for name in _SAME.split()},
    **{name: _plain(name, "x", "y") for name in _PAIRS.split()},
    "affine": _affine,
    "amax": _reduction("reduce_max"),
    "amin": _reduction("reduce_min"),
    "avg_pool": _pool("avg_pool"),
    "batch_norm": _batch_norm,
    "cast": lambda mil, name, node, x: mil.op("cast", name, x=x, dtype="fp16"),
    "channel_layer_norm": _layer_norm,
    "clamped_relu": _with("clamped_relu", {"alpha": "alpha", "beta": "beta"}),
    "clip": _with("clip", {"lo": "alpha", "hi": "beta"}),
    "concat": lambda mil, name, node, *parts: mil.op("concat", name, values=list(parts), axis=node.attrs["axis"]),
    "conv": _conv("conv"),
    "conv_transpose": _conv("conv_transpose"),
    "crop": _crop,
    "cumsum": lambda mil, name, node, x: mil.op("cumsum", name, x=x, axis=node.attrs["axis"]),
    "depth_to_space": lambda mil, name, node, x: mil.op("depth_to_space", name, x=x, block_size=node.attrs["r"]),
    "dequantize": _dequantize,
    "dynamic_conv": _conv("conv"),
    "einsum": _einsum,
    "elu": _with("elu", {"alpha": "alpha"}),
    "expand_dims": lambda mil, name, node, x: mil.op("expand_dims", name, x=x, axes=list(node.attrs["axes"])),
    "flatten2d": _flatten2d,
    "gather": _gather,
    "gelu": lambda mil, name, node, x: mil.op("gelu", name, x=x, mode="EXACT"),
    "instance_norm": _instance_norm,
    "group_norm": _group_norm,
    "inverse": _with("inverse", {"eps": "epsilon"}),
    "l1_norm": _reduction("reduce_l1_norm"),
    "l2_norm": _l2_norm,
    "layer_norm": _layer_norm,
    "leaky_relu": _with("leaky_relu", {"alpha": "alpha"}),
    "linear": _linear,
    "linear_activation": _with("linear_activation", {"alpha": "alpha", "beta": "beta"}),
    "local_response_norm": _with("local_response_norm", {"size": "size", "alpha": "alpha", "beta": "beta", "k": "k"}),
    "log": _with("log", {"eps": "epsilon"}),
    "log_sum": _reduction("reduce_log_sum"),
    "matmul": _plain("matmul", "x", "y"),
    "max_pool": _pool("max_pool"),
    "mean": _reduction("reduce_mean"),
    "pad": _pad,
    "pixel_shuffle": lambda mil, name, node, x: mil.op("pixel_shuffle", name, x=x, upscale_factor=node.attrs["r"]),
    "pixel_unshuffle": lambda mil, name, node, x: mil.op(
        "pixel_unshuffle", name, x=x, downscale_factor=np.uint32(node.attrs["r"])
    ),
    "prelu": _prelu,
    "prod": _reduction("reduce_prod"),
    "quantize": _quantize,
    "reduce_log_sum_exp": _reduction("reduce_log_sum_exp"),
    "reshape": lambda mil, name, node, x: mil.op("reshape", name, x=x, shape=list(node.attrs["to"])),
    "resize_bilinear": _resize("resize_bilinear"),
    "resize_nearest_neighbor": _resize("resize_nearest_neighbor"),
    "reverse": lambda mil, name, node, x: mil.op("reverse", name, x=x, axes=list(node.attrs["axes"])),
    "rms_norm": _rms_norm,
    "rsqrt": _with("rsqrt", {"eps": "epsilon"}),
    "scaled_tanh": _with("scaled_tanh", {"alpha": "alpha", "beta": "beta"}),
    "sdpa": _attention,
    "select": _select,
    "sigmoid_hard": _with("sigmoid_hard", {"alpha": "alpha", "beta": "beta"}),
    "slice_by_index": _slice_by_index,
    "slice_by_size": lambda mil, name, node, x: mil.op(
        "slice_by_size", name, x=x, begin=list(node.attrs["begin"]), size=list(node.attrs["size"])
    ),
    "softmax": lambda mil, name, node, x: mil.op("softmax", name, x=x, axis=node.attrs["axis"]),
    "space_to_depth": lambda mil, name, node, x: mil.op("space_to_depth", name, x=x, block_size=node.attrs["r"]),
    "squeeze": lambda mil, name, node, x: mil.op("squeeze", name, x=x, axes=list(node.attrs["axes"])),
    "stack": lambda mil, name, node, *parts: mil.op("stack", name, values=list(parts), axis=node.attrs["axis"]),
    "sum": _reduction("reduce_sum"),
    "sum_square": _sum_square,
    "threshold": _with("threshold", {"alpha": "alpha"}),
    "thresholded_relu": _with("thresholded_relu", {"alpha": "alpha"}),
    "tile": lambda mil, name, node, x: mil.op("tile", name, x=x, reps=list(node.attrs["reps"])),
    "topk": _topk,
    "transpose": lambda mil, name, node, x: mil.op("transpose", name, x=x, perm=list(node.attrs["perm"])),
    "upsample_bilinear": _upsample("upsample_bilinear"),
    "upsample_nearest_neighbor": _upsample("upsample_nearest_neighbor"),
}

_AUTHORED = "a layer of the engine that only direct authoring reaches; Core ML has no op for it"
REFUSED: dict[str, str] = {
    **dict.fromkeys(
        (
            "arg_min_max",
            "batch_to_space",
            "channel_to_space",
            "cost_volume",
            "crop_resize",
            "cross_correlation",
            "cross_product",
            "dynamic_slice",
            "flatten",
            "fps",
            "gather_places",
            "global_arg",
            "input_view",
            "kernel_rasterizer",
            "lrn",
            "minmax_norm",
            "native_pixel_shuffle",
            "native_pixel_unshuffle",
            "native_unflatten",
            "radius_search",
            "resample",
            "scaled_elementwise",
            "space_to_batch",
            "space_to_channel",
        ),
        _AUTHORED,
    ),
    **dict.fromkeys(
        ("live_state", "ring_read", "ring_write"), "a buffer of the engine; make the state an input and an output"
    ),
    "argmax": "Core ML gives positions as integers, which leave the engine",
    "sort": "Core ML sorts by integer positions, which leave the engine",
    "dropout": "numbers drawn at run time; export the model for inference",
    "random_normal": "numbers drawn at run time: make them an input",
    "random_uniform": "numbers drawn at run time: make them an input",
}
"""Why some ops have no rule; those that a rewrite replaces never get here."""
