# pyright: reportMissingImports=false
"""Which ATen ops the reader supports and how, for the reference page."""

from __future__ import annotations

from aneforge.errors import install_hint
from aneforge.frontends import LoadError
from aneforge.frontends.pytorch.hosted import HOSTED, RANDOM, REFUSED
from aneforge.frontends.pytorch.rules import ROWS, RULES, is_read

CONSTANT = frozenset(
    (
        *("_local_scalar_dense", "arange", "empty", "empty_strided", "eye", "full", "linspace", "logspace"),
        *("ones", "scalar_tensor", "sym_numel", "sym_size", "sym_storage_offset", "sym_stride", "zeros"),
    )
)
"""Ops of known values only; the ATen op computes them."""

NATIVE = frozenset(
    (
        *("_native_batch_norm_legit_no_training", "_softmax", "abs", "absolute", "acos", "acosh", "add"),
        *("amax", "amin", "asin", "asinh", "atan", "atan2", "atanh", "avg_pool2d", "batch_norm"),
        *("bmm", "cat", "ceil", "clamp", "concat", "constant_pad_nd", "conv2d", "conv_transpose2d"),
        *("convolution", "cos", "cosh", "deg2rad", "div", "elu", "eq", "erf", "exp", "exp2"),
        *("expand", "flip", "floor", "floor_divide", "gather", "ge", "gelu", "gt", "hardsigmoid", "hardtanh"),
        *("index_select", "isnan", "layer_norm", "le", "leaky_relu", "linear", "log", "log1p", "logical_and"),
        *("logical_not", "logical_or", "logical_xor", "logsumexp", "lt", "matmul", "max_pool2d", "maximum"),
        *("mean", "minimum", "mm", "mul", "native_layer_norm", "ne", "neg", "permute", "pixel_shuffle"),
        *("pixel_unshuffle", "pow", "prelu", "prod", "rad2deg", "reciprocal", "reflection_pad1d"),
        *("reflection_pad2d", "relu", "relu6", "remainder", "repeat", "replication_pad1d", "replication_pad2d"),
        *("reshape", "rms_norm", "round", "rsqrt", "scaled_dot_product_attention", "select", "sgn", "sigmoid"),
        *("sign", "signbit", "silu", "sin", "sinh", "slice", "softmax", "softplus", "softsign"),
        *("sqrt", "square", "squeeze", "stack", "sub", "sum", "tan", "tanh"),
        *("tile", "transpose", "unsqueeze", "upsample_bilinear2d", "upsample_nearest2d", "view"),
        *("where", "quantized_decomposed.dequantize_per_tensor", "quantized_decomposed.quantize_per_tensor"),
    )
)
"""Ops that become one op of the graph language, with at most a view beside it; the others become several."""

HOST_WHEN: dict[str, str] = {
    **dict.fromkeys(
        ("embedding", "gather", "index", "index_select", "take"), "on the host when the index is computed"
    ),
    **dict.fromkeys(
        ("index_add", "index_fill", "scatter", "scatter_add", "scatter_reduce"),
        "on the host when the indices are computed",
    ),
    **dict.fromkeys(
        ("index_copy", "index_put"), "the host turns a computed index into a mask, and the engine selects by it"
    ),
    **dict.fromkeys(("max_pool2d_with_indices", "max_pool3d_with_indices"), "on the host when the indices are read"),
}

_KNOWN = "its value depends on constants only; it is computed while the model is read"


def coverage() -> list[tuple[str, str, str]]:
    """Return (op, form, why) for every core ATen op and every rule.

    The form is ``native form``, ``equivalent``, ``host`` or ``refused``.
    """
    names = {name.split(".")[0] if not name.startswith("quantized") else name for name in (*RULES, *ROWS)}
    names |= set(HOSTED) | set(REFUSED) | _core() | set(RANDOM)
    return [(name, *_form(name)) for name in sorted(names)]


def _core() -> set[str]:
    try:
        import torch
    except ImportError:
        raise LoadError(f"listing the core ATen ops needs the torch package: {install_hint('torch')}") from None
    aten = torch.ops.aten
    packets = (getattr(aten, name) for name in dir(aten))
    return {
        packet._qualified_op_name.split("::")[1]
        for packet in packets
        if hasattr(packet, "overloads")
        and any(torch.Tag.core in getattr(packet, overload).tags for overload in packet.overloads())
    }


def _form(name: str) -> tuple[str, str]:
    if name in REFUSED:
        return "refused", REFUSED[name]
    if RULES.get(name) is RULES["nonzero"]:
        return "refused", "the size of the result depends on the data, unless they are known"
    if name == "median":
        return "host", "it gives the median and its position; the engine has no op for it"
    if name in RANDOM:
        return "refused", "it draws new random numbers in every run; make them an input of the model"
    if name in HOSTED:
        return "host", HOSTED[name]
    if name in CONSTANT:
        return "equivalent", _KNOWN
    ruled = is_read(name) or any(rule.startswith(f"{name}.") for rule in (*RULES, *ROWS))
    if not ruled:
        return "refused", "this op is not supported"
    return "native form" if name in NATIVE else "equivalent", HOST_WHEN.get(name, "")
