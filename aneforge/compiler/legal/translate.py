"""Translate a node of the user's graph, or an op of the engine's language, into the query that the rules understand.

The rules speak the model language (``conv`` with ``strides`` and ``pad``) or, for native layers, the netplist
(``TopK`` with ``K``). How a layer is spelled is known to :func:`aneforge.engine.layers.layer_of` alone: a native node
is asked about as the layer that it is lowered to.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from aneforge.compiler.legal.query import Query
from aneforge.engine.ir import Op
from aneforge.engine.layers import layer_of
from aneforge.engine.native import NativeLayer
from aneforge.graph.graph import Graph
from aneforge.graph.node import Signature, definition, make
from aneforge.graph.ops.leaf import const
from aneforge.graph.tensor import Tensor

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
    in_mil = signature.op.in_mil
    names = operands if in_mil is None or signature.op.variadic else in_mil.operands
    computed = [shape for shape, _, stored in signature.inputs if not stored]
    const = {name: shape for name, (shape, _, stored) in zip(names, signature.inputs, strict=False) if stored}
    return Query(
        op=_op_name(signature),
        shapes=tuple(computed),
        const=const,
        attrs={**_spelled(signature), "interior": True},
        dtype=_dtype(signature),
        weights=_weight_properties(operands, signature),
        runtime=runtime,
    )


def query_of_layer(layer: NativeLayer, dtypes: tuple[str, ...] = (), weights: Attributes | None = None) -> Query:
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


def _spelled(signature: Signature) -> dict[str, Any]:
    """The attributes in the model language, by the row of the op's declaration where it has one."""
    attrs, in_mil = dict(signature.attrs), signature.op.in_mil
    spelled = attrs if in_mil is None else {key: _listed(value) for key, value in in_mil.stated(attrs).items()}
    more = _ADDED.get(signature.op.name)
    return {**spelled, **more(attrs, signature)} if more else spelled


def _listed(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _norm_axes(attrs: Attributes, signature: Signature) -> dict[str, Any]:
    assert signature.op.vector_axis is not None
    return {"axes": [signature.op.vector_axis % len(signature.shape)]}


_ADDED: dict[str, Callable[[Attributes, Signature], dict[str, Any]]] = {
    "dynamic_conv": lambda attrs, _: {"weight": "runtime"},
    **dict.fromkeys(("layer_norm", "rms_norm", "channel_layer_norm"), _norm_axes),
    "pad": lambda attrs, _: {"pad": [side for pair in attrs["widths"] for side in pair]},
    "resize_bilinear": lambda attrs, _: {"size": [attrs["height"], attrs["width"]]},
}
"""What the rules read beside the row of an op, or in place of it."""
