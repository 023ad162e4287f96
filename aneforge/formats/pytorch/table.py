"""ATen ops as rows over the common ops, by the op's name, or by name and overload (``max.other``).

Operands are the arguments of ATen's signature in order; PyTorch gives their defaults. Every result takes the shape
and the kind (numbers or truth values) that PyTorch states, so rows need not say whether reduced axes are kept.
"""

from __future__ import annotations

from aneforge.formats.ops import OPS
from aneforge.formats.pytorch import functions, layers
from aneforge.formats.rows import Row, functions_of, table

_UNARY = (
    "abs acos acosh asin asinh atan atanh ceil cos cosh deg2rad erf erfc exp exp2 expm1 floor frac hardsigmoid "
    "hardswish isfinite isnan log log10 log1p log2 log_sigmoid mish neg rad2deg reciprocal relu relu6 round rsqrt "
    "selu sigmoid sign signbit silu sin sinc sinh softsign sqrt square tan tanh tanhshrink trunc"
)
_SAME_OF_TWO = "atan2 copysign fmod heaviside hypot ldexp logaddexp logaddexp2 logical_and logical_or logical_xor"
_SAME_OF_TWO += " maximum minimum pow xlogy"

_ELEMENTWISE = {
    **{name: f"{name} x" for name in _UNARY.split()},
    **{name: f"{name} x y" for name in _SAME_OF_TWO.split()},
    "absolute": "abs x",
    "add": "plus a b alpha",
    "addcdiv": "add_quotient x a b | value>factor",
    "addcmul": "add_product x a b | value>factor",
    "alpha_dropout dropout feature_dropout native_dropout": "dropout x ratio training",
    "bitwise_and": "logical_and x y",
    "bitwise_not logical_not": "logical_not x",
    "bitwise_or": "logical_or x y",
    "bitwise_xor": "logical_xor x y",
    "celu": "celu x alpha",
    "clamp hardtanh": "clip x low high",
    "clamp_max": "clip x high",
    "clamp_min": "clip x low",
    "div true_divide": "divided a b | rounding_mode>rounding",
    "elu": "elu x alpha scale input_scale",
    "eq": "equal x y",
    "fix": "trunc x",
    "floor_divide": "divided a b | rounding=floor",
    "fmax max.other": "maximum x y",
    "fmin min.other": "minimum x y",
    "ge": "greater_equal x y",
    "gelu": "gelu x | approximate>mode",
    "glu": "glu x axis",
    "gt": "greater x y",
    "hardshrink": "shrink x limit",
    "isinf": "isinf x",
    "isneginf": "isinf x | above=False",
    "isposinf": "isinf x | below=False",
    "le": "less_equal x y",
    "leaky_relu": "leaky_relu x alpha",
    "lerp": "lerp a b weight",
    "logit": "logit x eps",
    "lt": "less x y",
    "masked_fill": "choose no mask yes",
    "mul": "times a b",
    "nan_to_num": "nan_to_num x nan high low",
    "ne": "not_equal x y",
    "prelu": "prelu x alpha",
    "remainder": "mod x y",
    "rrelu": "rrelu x lower upper training -",
    "rsub": "minus b a alpha",
    "sgn": "sign x",
    "softplus": "softplus_above x beta threshold",
    "softshrink": "soft_shrink x limit",
    "sub": "minus a b alpha",
    "threshold": "where_above x limit value",
    "where": "choose mask yes no",
}

_NEW = "| -dtype"
_MOVEMENT = {
    "_conj alias alias_copy clone conj contiguous detach detach_copy lift lift_fresh_copy positive real resolve_conj "
    "resolve_neg": "identity x",
    "_pad_circular": "pad_last x pad | mode=circular",
    "_reshape_alias _unsafe_view atleast_1d atleast_2d atleast_3d flatten ravel reshape reshape_as squeeze "
    "squeeze_copy unflatten unsqueeze unsqueeze_copy view view_as view_copy": "view x - - -",
    "_to_copy to type_as": "convert x - - - - - | -dtype -copy",
    "adjoint mT matrix_H": "swap_axes x",
    "broadcast_to expand expand_as expand_copy": "expand x - | -implicit",
    "cat concat": "concat values axis",
    "chunk split split_copy split_with_sizes split_with_sizes_copy tensor_split unsafe_chunk unsafe_split "
    "unsafe_split_with_sizes": "split_as_stated x - axis",
    "constant_pad_nd": "pad_last x pad value",
    "copy": "expand - x -",
    "empty_like new_empty new_empty_strided new_zeros zero zeros_like": f"filled - - - {_NEW}",
    "fill full_like": f"filled - value {_NEW}",
    "flip": "reverse x axes",
    "moveaxis movedim": "move_axes x source destination",
    "narrow": "narrow x axis start length",
    "new_full": f"filled - - value {_NEW}",
    "new_ones ones_like": f"filled - - {_NEW} value=1.0",
    "numpy_T t t_copy": "transpose x",
    "pad": "pad_last x pad mode value",
    "permute permute_copy": "transpose x perm",
    "reflection_pad1d reflection_pad2d reflection_pad3d": "pad_last x pad | mode=reflect",
    "repeat tile": "tile x reps",
    "repeat_interleave.self_Tensor repeat_interleave.self_int": "repeat x repeats axis | -output_size",
    "replication_pad1d replication_pad2d replication_pad3d": "pad_last x pad | mode=replicate",
    "roll": "roll x shifts axes",
    "select select_copy": "select_place x axis index",
    "slice slice_copy": "slice_axis x axis begin end step",
    "stack": "stack values axis",
    "swapaxes swapdims transpose transpose_copy": "swap_axes x first second",
    "tril": "triangle x diagonal | upper=False",
    "triu": "triangle x diagonal",
    "unbind unbind_copy": "unbind x axis",
    "unfold unfold_copy": "windows_last x axis size step",
}

_PICKING = {
    "_unsafe_index index": "pick x indices",
    "as_strided as_strided_copy": "pick_by_strides x size stride offset",
    "diagonal diagonal_copy": "pick_diagonal x offset first second",
    "embedding": "look_up x indices - - -",
    "gather": "pick_elements x axis indices | -sparse_grad",
    "index_select": "pick_rows x axis indices",
    "take": "pick_flat x indices",
}
_WRITING = {
    "_index_put_impl _unsafe_index_put index_put": "write x indices values accumulate -",
    "index_add": "add_rows x axis indices values | alpha",
    "index_copy": "write_rows x axis indices values",
    "index_fill": "fill_rows x axis indices value",
    "scatter": "write_elements x axis indices values | reduce",
    "scatter_add": "write_elements x axis indices values | reduce=add",
    "scatter_reduce": "reduce_elements x axis indices values reduce include_self",
    "select_scatter": "write_place x values axis index",
    "slice_scatter": "write_slice x values axis start end step",
}

_OTHERS = {
    **{f"_upsample_nearest_exact{n}d": f"resize x - *scales | rank={n} kind=nearest_exact" for n in (1, 2, 3)},
    **{
        f"avg_pool{n}d": f"average_pool_of x sizes strides padding ceil count_pad divisor | rank={n}"
        for n in (1, 2, 3)
    },
    **{f"max_pool{n}d": f"max_pool_of x sizes strides padding dilations ceil | rank={n}" for n in (1, 2, 3)},
    **{f"max_pool{n}d_with_indices": f"max_pool_of x sizes strides padding dilations ceil | rank={n}" for n in (2, 3)},
    **{f"adaptive_max_pool{n}d": f"adaptive_max x - | rank={n}" for n in (1, 2, 3)},
    **{f"upsample_nearest{n}d": f"resize x - *scales | rank={n} kind=nearest" for n in (1, 2, 3)},
    "_adaptive_avg_pool2d adaptive_avg_pool2d": "adaptive_mean x - | rank=2",
    "_adaptive_avg_pool3d adaptive_avg_pool3d": "adaptive_mean x - | rank=3",
    "_cdist_forward cdist": "distances x y p -",
    "_fused_rms_norm rms_norm": "rms_norm_of x shape gamma epsilon",
    "_log_softmax log_softmax": "log_softmax x axis -",
    "_native_batch_norm_legit.no_stats": "channel_norm x gamma beta - - epsilon",
    "_native_batch_norm_legit_no_training": "batch_norm x gamma beta mean variance - epsilon",
    "_safe_softmax _softmax softmax": "softmax x axis -",
    "_scaled_dot_product_flash_attention_for_cpu": "attention q k v dropout causal | attn_mask>mask scale",
    "adaptive_avg_pool1d": "adaptive_mean x - | rank=1",
    "addmm addmv baddbmm": "add_matmul c a b | beta alpha",
    "all": "reduce_all x axes - | keep_dims=1",
    "amax max.default": "reduce_max x axes keep_dims | no_axes_keep=0",
    "amin min.default": "reduce_min x axes keep_dims | no_axes_keep=0",
    "aminmax": "reduce_ends x | dim>axes -keepdim keep_dims=1",
    "any": "reduce_any x axes - | keep_dims=1",
    "argmax": "extreme_place x axis -",
    "argmin": "extreme_place x axis - | largest=False",
    "argsort": "argsort x axis descending | dim>axis -stable",
    "batch_norm": "batch_norm_of x gamma beta mean variance training - epsilon -",
    "bilinear": "bilinear x y weight bias",
    "bmm dot linalg_matmul matmul mm mv vdot": "matmul x y",
    "channel_shuffle native_channel_shuffle": "channel_shuffle x groups",
    "col2im": "fold x out sizes dilations padding strides",
    "conv1d conv2d conv3d": "convolve x weight bias strides padding dilations groups",
    "conv_transpose1d conv_transpose2d conv_transpose3d": "convolve x weight bias strides padding output_padding "
    "groups dilations | transposed=True",
    "convolution": "convolve x weight bias strides padding dilations transposed output_padding groups",
    "cosine_similarity": "cosine_similarity a b axis epsilon",
    "count_nonzero": "count_nonzero x axes",
    "cumsum": "cumsum x axis | -dtype",
    "einsum": "einsum equation values | -path",
    "fake_quantize_per_channel_affine": "fake_quantise_channels x scale zero axis low high",
    "fake_quantize_per_tensor_affine": "fake_quantise x scale zero low high",
    "ger outer": "outer x y",
    "grid_sampler_2d grid_sampler_3d": "sample_grid x grid mode padding align_corners",
    "group_norm": "group_norm x groups gamma beta epsilon -",
    "gru.input": "gru x start weights biases layers dropout training bidirectional batch_first",
    "im2col": "unfold x sizes dilations padding strides",
    "instance_norm": "instance_norm_of x gamma beta mean variance by_input - epsilon -",
    "layer_norm native_layer_norm": "layer_norm_of x shape gamma beta epsilon -",
    "linalg_vector_norm norm": "vector_norm x order axes keep_dims | -dtype",
    "linear": "linear x weight bias",
    "logsumexp": "reduce_log_sum_exp x axes keep_dims | no_axes_keep=0",
    "lstm.input": "lstm x start weights biases layers dropout training bidirectional batch_first",
    "max.dim": "extreme x axis -",
    "mean": "reduce_mean x axes keep_dims | no_axes_keep=0 -dtype",
    "min.dim": "extreme x axis - | largest=False",
    "nansum": "nan_sum x axes keep_dims | -dtype",
    "native_group_norm": "group_norm x gamma beta - - - groups epsilon",
    "pixel_shuffle": "shuffle_pixels x block",
    "pixel_unshuffle": "unshuffle_pixels x block",
    "prod": "reduce_prod x axes keep_dims | no_axes_keep=0 -dtype",
    "quantized_decomposed.dequantize_per_channel": "dequantise_channels codes scale zero axis low high - | -out_dtype",
    "quantized_decomposed.dequantize_per_channel_group": "dequantise_groups codes scale zero low high - - -",
    "quantized_decomposed.dequantize_per_tensor": "dequantise codes scale zero low high - | -out_dtype",
    "quantized_decomposed.quantize_per_tensor": "quantise x scale zero low high -",
    "rnn_relu.input": "rnn_relu x start weights biases layers dropout training bidirectional batch_first",
    "rnn_tanh.input": "rnn x start weights biases layers dropout training bidirectional batch_first",
    "scaled_dot_product_attention": "attention q k v mask dropout causal | scale -enable_gqa",
    "sort": "sort_with_positions x axis descending | dim>axis -stable",
    "std.correction std_mean.correction": "variance x axes | correction -keepdim root=True keep_dims=1",
    "std.default std_mean.default": "variance x correction | root=True keep_dims=1",
    "std.dim std_mean.dim": "variance x axes correction - | root=True keep_dims=1",
    "sum": "reduce_sum x axes keep_dims | no_axes_keep=0 -dtype",
    "topk": "topk x k axis largest -",
    "trace": "trace x",
    "upsample_bicubic2d": "resize x - align_corners *scales | rank=2 kind=cubic",
    "upsample_bilinear2d": "resize x - align_corners *scales | rank=2",
    "upsample_linear1d": "resize x - align_corners *scales | rank=1",
    "upsample_trilinear3d": "resize x - align_corners *scales | rank=3",
    "var.correction var_mean.correction": "variance x axes | correction -keepdim keep_dims=1",
    "var.default var_mean.default": "variance x correction | keep_dims=1",
    "var.dim var_mean.dim": "variance x axes correction - | keep_dims=1",
}

ROWS: dict[str, Row] = table(
    {**_ELEMENTWISE, **_MOVEMENT, **_PICKING, **_WRITING, **_OTHERS}, OPS, functions_of(functions, layers)
)


def _names(rows: dict[str, str]) -> frozenset[str]:
    return frozenset(name for names in rows for name in names.split())


INDEXING = _names(_PICKING) | _names(_WRITING)
"""Ops whose further operands are indices."""
MOVES = _names(_MOVEMENT) | _names(_PICKING)
"""Ops that only move elements: integers that fp16 represents exactly may pass through them on the engine."""
ENCODES = frozenset(name for name in ROWS if "dequantize" in name)
"""Ops that are read even if all operands are known, so that the weight stays encoded."""


def plain_name(kind: str) -> tuple[str, str]:
    """(``max``, ``max.dim``) for ``aten.max.dim``; another namespace is kept as a prefix."""
    space, _, rest = kind.partition(".")
    base = rest.rpartition(".")[0] or rest
    lead = "" if space == "aten" else f"{space}."
    return f"{lead}{base}", f"{lead}{rest}"


def row_for(kind: str) -> Row | None:
    base, full = plain_name(kind)
    return ROWS.get(full) or ROWS.get(base)
