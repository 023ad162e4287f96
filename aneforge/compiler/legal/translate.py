"""Translate a node of the user's graph, or an op of the engine's language, into the query that the rules understand.

The rules speak the model language (``conv`` with ``strides`` and ``pad``) or, for native layers, the netplist
(``TopK`` with ``K``). How a layer is spelled is known to :func:`aneforge.anec.layers.layer_of` alone: a native node is
asked about as the layer that it is lowered to.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from aneforge.anec.ir import Op
from aneforge.anec.layers import layer_of
from aneforge.compiler.legal.query import Query
from aneforge.graph.graph import Graph
from aneforge.graph.node import Signature, definition, make, ops_with
from aneforge.graph.ops.leaf import const
from aneforge.graph.tensor import Tensor
from aneforge.graph.traits import GraphTrait
from aneforge.native.layer import Layer

Attributes = Mapping[str, Any]


def route_of(signature: Signature) -> str:
    """Native layers are authored directly; everything else is converted."""
    return "direct" if signature.op.native_layer else "conversion"


def query_of(signature: Signature, runtime: str = "direct") -> Query:
    """The query for one node. What depends on its data is for the range analysis of a program."""
    native = _native_query(signature) if signature.op.native_layer else None
    if native is not None:
        return replace(native, runtime=runtime)
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
        runtime=runtime,
    )


def query_of_layer(layer: Layer, dtypes: tuple[str, ...] = (), weights: Attributes | None = None) -> Query:
    """The question about a native layer as a unit states it: its parameters and fields are the attributes."""
    attrs = {**layer.params, **layer.fields, "interior": True}
    same = len(set(dtypes)) <= 1
    dtype = (dtypes[0] if dtypes else "fp16") if same else dtypes
    return Query(layer.type, layer.bottoms, attrs=attrs, dtype=dtype, weights=weights or {})


def query_of_op(op: Op) -> Query | None:
    """The question about the layer that an op of the engine's language is, or None for an op that is none."""
    layer = layer_of(op)
    if layer is None:
        return None
    if layer.type == "SDPA":  # a netplist has the sequence on its channels; questions have the heads first
        layer = replace(layer, bottoms=tuple((n, heads, rows, w) for n, rows, heads, w in layer.bottoms))
    dtypes = tuple(_dtype_of(operand) for operand in op.operands[: len(layer.bottoms)])
    query = query_of_layer(layer, dtypes)
    if layer.type in _INDEXED and len(layer.bottoms) == 1:
        query = replace(query, shapes=(*layer.bottoms, None))  # stored positions are a bottom of the layer, too
    turned = {name: True for name in ("transpose_lhs", "transpose_rhs") if op.attrs.get(name)}
    return replace(query, attrs={**query.attrs, **turned}) if turned else query


_INDEXED = ("Gather", "DynamicSlice")


def _dtype_of(op: Op) -> str:
    assert op.type is not None
    return _DTYPES.get(op.type.dtype, op.type.dtype)


_DTYPES = {"f16": "fp16", "ui8": "uint8", "i1": "bool", "f32": "fp32", "ui16": "uint16"}


@lru_cache(maxsize=4096)
def lowered_layers(signature: Signature) -> tuple[Op, ...]:
    """The ops that a node with this signature is lowered to, in a graph of its own. The last that is no change of
    layout is the layer of a native node."""
    from aneforge.compiler.lower.walk import lower  # lowering asks for words of this package

    uniform = signature.uniform or (None,) * len(signature.inputs)
    operands = [_stand_in(form, alike) for form, alike in zip(signature.inputs, uniform, strict=True)]
    node = make(signature.op, operands, dict(signature.attrs))
    return tuple(op for op in lower(Graph([node])).module.ops if op.kind not in ("live_in", "live_out", "const_in"))


def _stand_in(form: tuple[Any, str, str], uniform: bool | None) -> Tensor:
    shape, dtype, _ = form
    if uniform is not None:
        numbers = np.ones(shape, np.float16) if uniform else np.arange(math.prod(shape)).reshape(shape) % 2.0
        return const(numbers)
    return make(definition("input"), (), {"shape": shape, "dtype": dtype, "max_abs": None})


@lru_cache(maxsize=4096)
def _native_query(signature: Signature) -> Query | None:
    bridge = next((op for op in lowered_layers(signature) if op.labels.get("bridge")), None)
    return None if bridge is None else query_of_op(bridge)


def _op_name(signature: Signature) -> str:
    if signature.op.name == "cast":
        # A uint8 port is dequantised on the way in (limits.json program_input_dtypes); a bool becomes 0 or 1.
        return "dequantize" if signature.inputs[0][1] == "uint8" else "select"
    return signature.op.gate_name


def _dtype(signature: Signature) -> str | tuple[str, ...]:
    if signature.op.name == "cast":
        return "fp16"
    dtypes = tuple(dtype for _, dtype, stored in signature.inputs if not stored) or (signature.dtype,)
    return dtypes[0] if len(set(dtypes)) == 1 else dtypes


def _weight_properties(operands: list[str], signature: Signature) -> dict[str, Any]:
    """The properties of constants that rules read: whether gain and offset are uniform, and how a kernel is stored."""
    uniform: dict[str, Any] = {
        f"{name}_uniform": alike for name, alike in zip(operands, signature.uniform, strict=False) if alike is not None
    }
    stored = [storage for _, _, storage in signature.inputs if storage not in ("", "fp16")]
    return {**uniform, "encoding": stored[0]} if stored else uniform


_CONST_NAMES = {("matmul", "b"): "y", ("add", "b"): "y", ("mul", "b"): "y", ("batch_norm", "var"): "variance"}


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
    **dict.fromkeys(ops_with(GraphTrait.REDUCTION), _reduction),
}
