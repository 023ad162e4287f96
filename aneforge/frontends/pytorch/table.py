"""ATen ops that are common ops: rows by the op's name, or by name and overload (``max.other``).

Operands are the arguments of ATen's signature in order; PyTorch gives their defaults. Ops of which more must be
decided have a rule (``rules``).
"""

from __future__ import annotations

from aneforge.frontends.ops import OPS
from aneforge.frontends.rows import Row, table

_UNARY = (
    "abs acos acosh asin asinh atan atanh ceil cos cosh deg2rad erf erfc exp exp2 expm1 floor frac hardsigmoid "
    "hardswish isfinite isnan log log10 log1p log2 log_sigmoid mish neg rad2deg reciprocal relu relu6 rsqrt sigmoid "
    "sign signbit silu sin sinc sinh softsign sqrt square tan tanh tanhshrink trunc"
)
_SAME_OF_TWO = "atan2 copysign fmod heaviside hypot ldexp logaddexp logaddexp2 logical_and logical_or logical_xor"
_SAME_OF_TWO += " maximum minimum pow xlogy"

ROWS: dict[str, Row] = table(
    {
        **{name: f"{name} x" for name in _UNARY.split()},
        **{name: f"{name} x y" for name in _SAME_OF_TWO.split()},
        "_softmax softmax _safe_softmax": "softmax x axis -",
        "_log_softmax log_softmax": "log_softmax x axis -",
        "absolute": "abs x",
        "amax": "reduce_max x axes keep_dims | no_axes_keep=0",
        "amin": "reduce_min x axes keep_dims | no_axes_keep=0",
        "bitwise_and": "logical_and x y",
        "bitwise_not logical_not": "logical_not x",
        "bitwise_or": "logical_or x y",
        "bitwise_xor": "logical_xor x y",
        "bmm dot linalg_matmul matmul mm mv vdot": "matmul x y",
        "cat concat": "concat values axis",
        "celu": "celu x alpha",
        "clamp hardtanh": "clip x low high",
        "clamp_max": "clip x high",
        "clamp_min": "clip x low",
        "cumsum": "cumsum x axis | -dtype",
        "div": "divided a b | rounding_mode>rounding",
        "einsum": "einsum equation values | -path",
        "eq": "equal x y",
        "fix": "trunc x",
        "floor_divide": "divided a b | rounding=floor",
        "fmax max.other": "maximum x y",
        "fmin min.other": "minimum x y",
        "ge": "greater_equal x y",
        "gelu": "gelu x | approximate>mode",
        "group_norm": "group_norm x groups gamma beta epsilon -",
        "gt": "greater x y",
        "hardshrink": "shrink x limit",
        "isinf": "isinf x",
        "isneginf": "isinf x | above=False",
        "isposinf": "isinf x | below=False",
        "le": "less_equal x y",
        "leaky_relu": "leaky_relu x alpha",
        "logsumexp": "reduce_log_sum_exp x axes keep_dims | no_axes_keep=0",
        "lt": "less x y",
        "max.default": "reduce_max x",
        "mean": "reduce_mean x axes keep_dims | no_axes_keep=0 -dtype",
        "min.default": "reduce_min x",
        "ne": "not_equal x y",
        "permute permute_copy": "transpose x perm",
        "positive": "identity x",
        "prod": "reduce_prod x axes keep_dims | no_axes_keep=0 -dtype",
        "remainder": "mod x y",
        "repeat tile": "tile x reps",
        "selu": "selu x",
        "sgn": "sign x",
        "slice slice_copy": "slice_axis x axis begin end step",
        "sum": "reduce_sum x axes keep_dims | no_axes_keep=0 -dtype",
        "threshold": "where_above x limit value",
        "tril": "triangle x diagonal | upper=False",
        "triu": "triangle x diagonal",
        "true_divide": "divided a b",
    },
    OPS,
)
