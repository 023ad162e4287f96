"""The operations of Core AI as rows over the common ops. This module does not need Apple's package."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from aneforge.formats.coreai.rules import ON_KNOWN, RULES
from aneforge.formats.ops import OPS
from aneforge.formats.ops.known import WITHOUT_FORM, KnownOps
from aneforge.formats.records import Binding, Type, ValueType
from aneforge.formats.rows import Row, table

_UNARY = "abs acos acosh asin asinh atan atanh cast cos cosh erf exp log relu round rsqrt sigmoid silu sin sinh sqrt"
_BINARY = "add bitwise_and bitwise_or bitwise_xor broadcast_shapes equal greater maximum minimum mul not_equal pow sub"
_RENAMED = {"and": "logical_and", "batch_matmul": "matmul", "divide": "real_div", "floor_divide": "floor_div"}
_RENAMED |= {"modulo": "fmod", "or": "logical_or", "xor": "logical_xor"}
_REDUCTIONS = {"all": "all", "any": "any", "reduce_max": "max", "reduce_mean": "mean", "reduce_min": "min"}
_REDUCTIONS |= {"reduce_product": "prod", "reduce_sum": "sum"}
_COPIES = "coreaix.copy_discarding_constraints coreaix.copy_with_constraints sparse_with_bitmask_to_dense"

_ROWS = {
    **{name: f"{name} x" for name in (*_UNARY.split(), "tan", "tanh")},
    **{name: f"{name} x y" for name in _BINARY.split()},
    **{name: f"{common} x y" for name, common in _RENAMED.items()},
    **{name: f"reduce_{common} x axes | keep_dims=True" for name, common in _REDUCTIONS.items()},
    **{f"sum_pool_{n}d": f"sum_pool_{n}d x kernel_sizes strides dilations" for n in (2, 3)},
    **{f"max_pool_{n}d": f"max_pool_{n}d x kernel_sizes strides dilations ceil_mode" for n in (2, 3)},
    **{f"conv{n}d": f"conv{n}d x weight strides dilations groups" for n in (2, 3)},
    **{
        f"conv_transpose{n}d": f"conv_transpose{n}d x weight strides pad dilations output_padding groups"
        for n in (2, 3)
    },
    _COPIES: "identity x",
    "argmax": "reduce_argmax x axis | keep_dims=True",
    "argsort": "argsort x axis descending",
    "blockwise_shift_scale": "blockwise_shift_scale data scale offset more",
    "broadcast_in_dims": "broadcast_in_dims x sizes axes",
    "broadcast_to": "broadcast_to x shape",
    "build_sparse_with_bitmask": "constexpr_sparse_to_dense nonzero_data mask",
    "concat": "concat axis *values",
    "dequantize": "dequantize input scale zero_point more axis",
    "expand_dims": "expand_dims x axes",
    "gather_along_axis": "gather_along_axis x indices axis",
    "gather_nd": "gather_nd x indices",
    "gelu": "gelu x | approximate>mode=none",
    "get_shape": "shape x",
    "interpolate": "interpolate x shape scale offset",
    "interpolate_coordinates": "interpolate_coordinates x coordinates",
    "lut_to_dense": "constexpr_lut_to_dense indices lut vector_axis",
    "lut_to_sparse_with_bitmask": "lut_to_sparse_with_bitmask indices lut vector_axis",
    "not": "logical_not x",
    "pad": "pad x pad constant_val | padding_mode>mode=constant",
    "quantize": "quantize input scale zero_point more axis",
    "range": "range_1d start end step",
    "reduce": "reduce x axes start",
    "reduce_index": "reduce_index x axis start first",
    "reshape": "reshape x shape",
    "reverse": "reverse x axes",
    "scan": "scan x axis reverse",
    "scatter_along_axis": "scatter_along_axis data indices updates axis | scatter_mode>mode=update",
    "scatter_nd": "scatter_nd data indices updates | mode=update",
    "shrink_dims": "squeeze x axes",
    "slice": "slice x begin end stride",
    "slice_update": "slice_update x begin end stride update",
    "softmax": "softmax x axis",
    "sort": "sort x axis descending",
    "split": "split x split_sizes axis",
    "tile": "tile x reps",
    "transpose": "transpose x perm",
    "where": "select cond a b",
}
ROWS = table(_ROWS, {**OPS, **{name: row.function for name, row in WITHOUT_FORM.items()}}, RULES)
"""By operation. Operands that a row does not name decide nothing here."""

KNOWN = KnownOps("coreai", {row.op: Row(row.op, row.function) for row in ROWS.values()}, ON_KNOWN)
"""By common op, whose arguments :func:`common_op` has named."""


def common_op(
    kind: str, operands: Sequence[Binding], attributes: Mapping[str, str], results: Sequence[Type]
) -> tuple[str, dict[str, list[Binding]], dict[str, Any]]:
    """An operation of Core AI as (common op, arguments by name, attributes)."""
    row, texts = ROWS.get(kind), dict(attributes)
    if row is None:
        return kind, {"operands": list(operands)} if operands else {}, texts
    arguments: dict[str, list[Binding]] = {}
    for place, name in enumerate(row.operands[: len(operands)]):
        arguments[name.lstrip("*")] = list(operands[place:] if name.startswith("*") else operands[place : place + 1])
    texts |= {common: attributes[name] for name, common in row.names.items() if name in attributes}
    for name, value in row.defaults.items():
        if isinstance(value, str):
            texts.setdefault(name, value)
        else:
            arguments[name] = [np.array(value)]
    if kind == "cast" and isinstance(results[0], ValueType):
        texts["dtype"] = results[0].dtype
    return row.op, arguments, texts


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
