"""Translate a node of the user's graph into the query that the gate's rules understand.

The rules speak the model language (``conv`` with ``strides`` and ``pad``) or, for native layers, the
netplist (``TopK`` with ``K``); this module is the one place that knows both spellings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from aneforge.compiler.legal.query import Query
from aneforge.graph.node import Signature

__all__ = ["query_of", "route_of"]

Attributes = Mapping[str, Any]


def route_of(signature: Signature) -> str:
    """Native layers are authored directly; everything else is converted."""
    return "direct" if signature.op.native_layer else "conversion"


def query_of(signature: Signature, max_abs: float | None = None, runtime: str = "direct") -> Query:
    """The query for one node; ``max_abs`` is a bound on its first operand, where one is known."""
    operands = [name.strip("?*") for name in signature.op.operands]
    if signature.op.variadic:
        operands = [operands[-1]] * len(signature.inputs)
    computed = [shape for shape, _, stored in signature.inputs if not stored]
    const = {
        _CONST_NAMES.get((signature.op.gate_name, name), name): shape
        for name, (shape, _, stored) in zip(operands, signature.inputs, strict=False)
        if stored
    }
    attrs = dict(signature.attrs)
    spell = _SPELLINGS.get(signature.op.name)
    return Query(
        op=_op_name(signature),
        shapes=tuple(computed),
        const=const,
        attrs={**(spell(attrs, signature) if spell else attrs), "interior": True},
        dtype=_dtype(signature),
        weights=_weight_properties(operands, signature),
        values={} if max_abs is None else {"max_abs": max_abs},
        runtime=runtime,
    )


def _op_name(signature: Signature) -> str:
    if signature.op.name == "cast":
        # A uint8 port is dequantised on the way in (limits.json program_input_dtypes); a bool becomes 0 or 1.
        return "dequantize" if signature.inputs[0][1] == "uint8" else "select"
    return _LAYERS.get(signature.op.name, signature.op.gate_name)


def _dtype(signature: Signature) -> str | tuple[str, ...]:
    if signature.op.name == "cast":
        return "fp16"
    dtypes = tuple(dtype for _, dtype, stored in signature.inputs if not stored) or (signature.dtype,)
    return dtypes[0] if len(set(dtypes)) == 1 else dtypes


def _weight_properties(operands: list[str], signature: Signature) -> dict[str, Any]:
    """The properties of constants that rules read: whether gain and offset are uniform, and how a kernel is stored."""
    uniform: dict[str, Any] = {
        f"{name}_uniform": weight.uniform
        for name, weight in zip(operands, signature.weights, strict=False)
        if weight is not None
    }
    stored = [storage for _, _, storage in signature.inputs if storage not in ("", "fp16")]
    return {**uniform, "encoding": stored[0]} if stored else uniform


_CONST_NAMES = {("matmul", "b"): "y", ("add", "b"): "y", ("mul", "b"): "y", ("batch_norm", "var"): "variance"}

# Graph op to netplist layer, for ops that are authored directly.
_LAYERS = {
    "sdpa": "SDPA",
    "topk": "TopK",
    "sort": "Sort",
    "argmax": "ArgMinMax",
    "arg_min_max": "ArgMinMax",
    "resample": "Resample",
    "cross_product": "CrossProduct",
    "cross_correlation": "CrossCorrelation",
    "cost_volume": "CostVolume",
    "fps": "FurthestPointSampling",
    "radius_search": "RadiusSearch",
    "minmax_norm": "MinMaxNormalization",
    "lrn": "LocalResponseNormalization",
    "space_to_channel": "SpaceToChannel",
    "channel_to_space": "ChannelToSpace",
    "space_to_batch": "SpaceToBatch",
    "batch_to_space": "BatchToSpace",
    "flatten": "Flatten",
    "input_view": "InputView",
    "dynamic_slice": "DynamicSlice",
    "scaled_elementwise": "ScaledElementWise",
}


# What the axes of a user's shape are called in a netplist, by rank.
_AXES_OF_RANK: tuple[tuple[str, ...], ...] = (
    (),
    ("Width",),
    ("Channel", "Width"),
    ("Channel", "Height", "Width"),
    ("Batch", "Channel", "Height", "Width"),
    ("Batch", "Channel", "Depth", "Height", "Width"),
)


def _padding(pad: tuple[int, int, int, int]) -> list[int]:
    top, bottom, left, right = pad
    return [top, left] if top == bottom and left == right else [top, bottom, left, right]


def _conv(attrs: Attributes, signature: Signature) -> dict[str, Any]:
    spelled = {
        "strides": list(attrs["stride"]),
        "pad": _padding(attrs["pad"]),
        "dilations": list(attrs["dilation"]),
        "groups": attrs["groups"],
    }
    return {**spelled, "weight": "runtime"} if signature.op.name == "dynamic_conv" else spelled


def _pool(attrs: Attributes, _: Signature) -> dict[str, Any]:
    padded = any(attrs["pad"])
    spelled = {"kernel_sizes": list(attrs["kernel"]), "strides": list(attrs["stride"])}
    return {**spelled, "pad_type": "custom" if padded else "valid", "pad": _padding(attrs["pad"])}


def _reduction(attrs: Attributes, _: Signature) -> dict[str, Any]:
    return {"axes": list(attrs["axes"]), "keep_dims": True}


def _last_axis(attrs: Attributes, signature: Signature) -> dict[str, Any]:
    return {**attrs, "axes": [len(signature.shape) - 1]}


def _channel_axis(attrs: Attributes, _: Signature) -> dict[str, Any]:
    return {**attrs, "axes": [1]}


def _factors(attrs: Attributes, _: Signature) -> dict[str, Any]:
    return {"FactorX": attrs["columns"], "FactorY": attrs["rows"], "FactorZ": 1}


def _batch_factors(attrs: Attributes, _: Signature) -> dict[str, Any]:
    return {"FactorX": attrs["bw"], "FactorY": attrs["bh"], "FactorZ": 1}


_SPELLINGS: dict[str, Callable[[Attributes, Signature], dict[str, Any]]] = {
    "conv": _conv,
    "conv_transpose": _conv,
    "dynamic_conv": _conv,
    "max_pool": _pool,
    "avg_pool": _pool,
    "layer_norm": _last_axis,
    "rms_norm": _last_axis,
    "channel_layer_norm": _channel_axis,
    "reshape": lambda attrs, _: {"shape": list(attrs["to"])},
    "transpose": lambda attrs, _: {"perm": list(attrs["perm"])},
    "pad": lambda attrs, _: {
        "pad": [side for pair in attrs["widths"] for side in pair],
        "mode": attrs["mode"],
        "value": attrs["value"],
    },
    "clip": lambda attrs, _: {"alpha": attrs["lo"], "beta": attrs["hi"]},
    "resize_bilinear": lambda attrs, _: {"size": [attrs["height"], attrs["width"]]},
    "resize_nearest_neighbor": lambda attrs, _: {"size": [attrs["height"], attrs["width"]]},
    "pixel_unshuffle": lambda attrs, _: {"factor": attrs["r"]},
    "pixel_shuffle": lambda attrs, _: {"factor": attrs["r"]},
    "space_to_depth": lambda attrs, _: {"block_size": attrs["r"]},
    "depth_to_space": lambda attrs, _: {"block_size": attrs["r"]},
    "sdpa": lambda attrs, signature: {
        "SubtractMax": attrs["subtract_max"],
        "mask": len(signature.inputs) > 3 or attrs["is_causal"],
    },
    "topk": lambda attrs, _: {"K": attrs["k"], "k": attrs["k"]},
    "argmax": lambda attrs, _: {"Mode": "SpatialArgMax" if attrs["axis"] else "ChannelArgMax"},
    "minmax_norm": lambda attrs, _: {"Dimension": attrs["dimension"]},
    "lrn": lambda attrs, _: {"KernelChannel": attrs["channels"]},
    "fps": lambda attrs, _: {"CentroidCount": attrs["k"]},
    "dynamic_slice": lambda attrs, _: {"SliceSize": attrs["sizes"][0]},
    "scaled_elementwise": lambda attrs, _: {"Type": attrs["kind"], "Scale": attrs["scale"]},
    "cost_volume": lambda attrs, _: {"DisparityRange": attrs["disparity_range"]},
    "space_to_channel": _factors,
    "channel_to_space": _factors,
    "native_pixel_shuffle": _factors,
    "native_pixel_unshuffle": _factors,
    "gather_places": lambda attrs, signature: {
        "axes": len(attrs["axes"]),
        "index_channels": len(attrs["axes"]),
        "batch": signature.shape[0],
    },
    "arg_min_max": lambda attrs, _: {"Mode": attrs["mode"]},
    "resample": lambda attrs, _: {"SamplingMethod": attrs["method"]},
    "global_arg": lambda attrs, signature: {
        "Type": "Max" if attrs["largest"] else "Min",
        "Dimension": _AXES_OF_RANK[len(signature.shape)][attrs["axis"]],
    },
    "space_to_batch": _batch_factors,
    "batch_to_space": _batch_factors,
    **dict.fromkeys(
        ("sum", "mean", "amax", "amin", "sum_square", "l1_norm", "log_sum", "reduce_log_sum_exp", "prod"), _reduction
    ),
}
