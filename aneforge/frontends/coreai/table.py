"""The operations of Core AI as common ops: the common name of each, and the names of its operands in order.

This module does not need Apple's package. Operations that differ from every common op have a rule in ``rules``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from aneforge.frontends.records import Binding, TensorType, Type

_COPIES = ("coreaix.copy_discarding_constraints", "coreaix.copy_with_constraints")

_SHARED_OPERANDS = {
    "x": (
        "abs acos acosh asin asinh atan atanh cast cos cosh erf exp gelu get_shape log not relu round rsqrt sigmoid "
        "silu sin sinh sparse_with_bitmask_to_dense sqrt tan tanh"
    ),
    "x y": (
        "add and batch_matmul bitwise_and bitwise_or bitwise_xor broadcast_shapes divide equal floor_divide greater "
        "maximum minimum modulo mul not_equal or pow sub xor"
    ),
    "x axes": "all any expand_dims reduce_max reduce_mean reduce_min reduce_product reduce_sum reverse shrink_dims",
    "x axis descending": "argsort sort",
    "x kernel_sizes strides dilations": "sum_pool_2d sum_pool_3d",
    "x kernel_sizes strides dilations ceil_mode": "max_pool_2d max_pool_3d",
    "x weight strides dilations groups": "conv2d conv3d",
    "x weight strides pad dilations output_padding groups": "conv_transpose2d conv_transpose3d",
    "input scale zero_point more axis": "dequantize quantize",
    "indices lut vector_axis": "lut_to_dense lut_to_sparse_with_bitmask",
}
_OPERANDS: dict[str, str] = {
    **{kind: names for names, kinds in _SHARED_OPERANDS.items() for kind in kinds.split()},
    **dict.fromkeys(_COPIES, "x"),
    "argmax": "x axis",
    "blockwise_shift_scale": "data scale offset more",
    "broadcast_in_dims": "x sizes axes",
    "broadcast_to": "x shape",
    "build_sparse_with_bitmask": "nonzero_data mask",
    "concat": "axis *values",
    "gather_along_axis": "x indices axis",
    "gather_nd": "x indices",
    "if": "pred",
    "interpolate": "x shape scale offset",
    "interpolate_coordinates": "x coordinates",
    "pad": "x pad constant_val",
    "range": "start end step",
    "read_handle": "handle token",
    "reduce": "x axes start",
    "reduce_index": "x axis start first",
    "reshape": "x shape",
    "scan": "x axis reverse",
    "scatter_along_axis": "data indices updates axis",
    "scatter_nd": "data indices updates",
    "slice": "x begin end stride",
    "slice_update": "x begin end stride update",
    "softmax": "x axis",
    "split": "x split_sizes axis",
    "tile": "x reps",
    "transpose": "x perm",
    "where": "cond a b",
    "write_handle": "handle value token",
}
"""A star takes all remaining operands."""

_NAMES = {
    "all": "reduce_all",
    "and": "logical_and",
    "any": "reduce_any",
    "argmax": "reduce_argmax",
    "batch_matmul": "matmul",
    "build_sparse_with_bitmask": "constexpr_sparse_to_dense",
    "divide": "real_div",
    "floor_divide": "floor_div",
    "get_shape": "shape",
    "lut_to_dense": "constexpr_lut_to_dense",
    "modulo": "fmod",
    "not": "logical_not",
    "or": "logical_or",
    "range": "range_1d",
    "reduce_product": "reduce_prod",
    "shrink_dims": "squeeze",
    "sparse_with_bitmask_to_dense": "identity",
    "where": "select",
    "xor": "logical_xor",
    **dict.fromkeys(_COPIES, "identity"),
}

_EXACT = ("log", "rsqrt")  # Core AI adds no epsilon to their argument
_KEPT_AXES = ("all", "any", "argmax", "reduce_max", "reduce_mean", "reduce_min", "reduce_product", "reduce_sum")
_TEXTS = {"gelu": ("mode", "approximate", "none"), "pad": ("mode", "padding_mode", "constant")}
_TEXTS |= {"scatter_along_axis": ("mode", "scatter_mode", "update")}


def common_op(
    kind: str, operands: Sequence[Binding], attributes: Mapping[str, str], results: Sequence[Type]
) -> tuple[str, dict[str, list[Binding]], dict[str, Any]]:
    """An operation of Core AI as (common op, arguments by name, attributes)."""
    names = _OPERANDS.get(kind, "*operands").split()
    arguments: dict[str, list[Binding]] = {}
    for place, name in enumerate(names):
        bound = list(operands[place:]) if name.startswith("*") else list(operands[place : place + 1])
        if bound:
            arguments[name.lstrip("*")] = bound
    texts: dict[str, Any] = dict(attributes)
    if kind in _TEXTS:
        common_name, core_ai_name, default = _TEXTS[kind]
        texts[common_name] = attributes.get(core_ai_name, default)
    if kind == "scatter_nd":
        texts["mode"] = "update"
    if kind == "cast" and isinstance(results[0], TensorType):
        texts["dtype"] = results[0].dtype
    if kind in _EXACT:
        arguments["epsilon"] = [np.array(0.0)]
    if kind in _KEPT_AXES:
        arguments["keep_dims"] = [np.array(True)]
    return _NAMES.get(kind, kind), arguments, texts


MOVED = frozenset(("argsort", "broadcast_in_dims", "broadcast_to", "equal", "greater", "maximum", "minimum"))
MOVED |= {"not_equal", "reduce_argmax", "select", "slice"}
"""Ops that are exact on integers held as fp16, in addition to the common ones that move numbers."""

COMPARED: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("equal", "not_equal", "greater", "maximum", "minimum"), ("x", "y")),
    "concat": ("values",),
    "select": ("a", "b"),
    "slice_update": ("update",),
}
"""Arguments that are combined with such integers; fp16 would round known integers beyond its exact range."""

REFUSED = {
    "asymmetric_quantization_statistics": "the scales depend on the data; the engine needs fixed scales",
    "create_complex": "the engine has no complex numbers",
    "delegate": "this part is already compiled for one processor; save the asset before that step",
    "image_to_tensor": "image inputs are not supported; use a tensor as input",
    "imaginary_part": "the engine has no complex numbers",
    "metal4_kernel": "kernels for the GPU are not supported; use Core AI's own operations",
    "non_zero": "the number of results depends on the data; the engine needs fixed shapes",
    "real_part": "the engine has no complex numbers",
    "symmetric_quantization_statistics": "the scales depend on the data; the engine needs fixed scales",
    "tensor_to_image": "image outputs are not supported; use a tensor as output",
}
"""Operations without a form on this engine, and why."""
