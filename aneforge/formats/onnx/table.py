"""The ops of ONNX as rows over the common ops: of the standard, and of ONNX Runtime (``com.microsoft``).

A key may name several ops that share a row. ``Softmax<13`` is the row of files before opset 13.
"""

from __future__ import annotations

from aneforge.formats.onnx import attention, functions, layers, quantised
from aneforge.formats.ops import OPS
from aneforge.formats.rows import Row, by_name, functions_of, table

_FUNCTIONS = functions_of(attention, functions, layers, quantised)

_UNARY = (
    "Abs Acos Acosh Asin Asinh Atan Atanh Ceil Cos Cosh Erf Exp Floor HardSwish IsNaN Log Mish Neg Reciprocal Relu "
    "Round Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Tan Tanh"
)
_BINARY = {"Add": "add", "And": "logical_and", "Equal": "equal", "Greater": "greater", "Less": "less", "Mul": "mul"}
_BINARY |= {"GreaterOrEqual": "greater_equal", "LessOrEqual": "less_equal", "Or": "logical_or", "Pow": "pow"}
_BINARY |= {"Sub": "sub", "Xor": "logical_xor"}

_ELEMENTWISE = {
    **{name: f"{name.lower()} x" for name in _UNARY.split()},
    **{name: f"{common} x y" for name, common in _BINARY.items()},
    "Cast": "cast_to x | -saturate -round_mode",
    "CastLike": "cast_like x like | -saturate -round_mode",
    "Celu": "celu x",
    "Clip": "clip x low high | min>low max>high",
    "Div": "divide x y",
    "Elu": "elu x",
    "Gelu": "gelu x | approximate>mode",
    "HardSigmoid": "hard_sigmoid x | alpha=0.2",
    "IsInf": "isinf x | detect_negative>below detect_positive>above",
    "LeakyRelu": "leaky_relu x",
    "Max": "largest_of *values",
    "Mean": "mean_of *values",
    "Min": "smallest_of *values",
    "Mod": "remainder a b | fmod>of_dividend",
    "Not": "logical_not x",
    "PRelu": "prelu_of x slope",
    "RandomNormalLike": "random_normal_like x | scale>stddev seed=0 -dtype",
    "RandomUniformLike": "random_uniform_like x | seed=0 -dtype",
    "Selu": "selu x",
    "Shrink": "shrink x | lambd>limit",
    "Sum": "sum_of *values",
    "Swish": "swish x | alpha>beta",
    "ThresholdedRelu": "where_above x | alpha>limit=1.0",
    "Trilu": "triangle x diagonal",
    "Where": "choose condition a b",
}

_MOVEMENT = {
    "CenterCropPad": "center_crop_pad x shape",
    "Concat": "concat *values | axis=1",
    "Dropout": "dropout x ratio training_mode | -seed",
    "Expand": "broadcast_to x shape",
    "EyeLike": "eye_like x | -dtype",
    "Flatten": "flatten2d x",
    "Identity": "identity x",
    "Pad": "pad_axes x pads value axes",
    "Reshape": "reshape_to x shape",
    "Shape": "shape_of x",
    "Size": "size_of x",
    "Slice": "slice_axes x starts ends axes steps",
    "Split": "split_to x split",
    "Squeeze": "squeeze x axes",
    "Tile": "tile x reps",
    "Transpose": "transpose x",
    "Unsqueeze": "expand_dims x axes",
}

_WINDOW = "strides dilations auto_pad>pad_type=NOTSET pads>pad"
_POOL = f"kernel_shape>kernel_sizes ceil_mode {_WINDOW}"
_REDUCED = "keepdims>keep_dims=1 noop_with_empty_axes>no_axes_keep=0"
_PLACE = "axis=0 keepdims>keep_dims=1 select_last_index>last"
_CELL = "x w r b lengths initial_h"
_RESIZED = "x roi scales sizes"

_REDUCTIONS = {"L1": "l1_norm", "L2": "l2_norm", "LogSum": "log_sum", "LogSumExp": "log_sum_exp", "Max": "max"}
_REDUCTIONS |= {"Mean": "mean", "Min": "min", "Prod": "prod", "Sum": "sum", "SumSquare": "sum_square"}

_OTHERS = {
    **{f"Reduce{name}": f"reduce_{common} x axes | {_REDUCED}" for name, common in _REDUCTIONS.items()},
    "AffineGrid": "affine_grid theta size",
    "ArgMax": f"reduce_argmax x | {_PLACE}",
    "ArgMin": f"reduce_argmin x | {_PLACE}",
    "AveragePool": f"avg_pool x | {_POOL} count_include_pad=0",
    "BatchNormalization": "batch_norm_of x gamma beta mean variance | -spatial",
    "Col2Im": "col2im x image_shape block_shape | pads>pad",
    "Compress": "compress x condition",
    "Conv": f"conv x weight bias | {_WINDOW} group>groups -kernel_shape",
    "ConvTranspose": f"transposed_convolution x weight bias | {_WINDOW} group>groups -kernel_shape",
    "CumProd": "cumprod x axis",
    "CumSum": "cumsum x axis",
    "DFT": "dft signal size axis",
    "DFT<20": "dft signal size | axis=1",
    "DepthToSpace": "blocks_to_space x | blocksize>block",
    "DequantizeLinear": "dequantize_linear x scale zero_point | -block_size -output_dtype",
    "Einsum": "einsum *values",
    "GRU": f"gru_layer {_CELL} | -hidden_size",
    "Gather": "gather x indices",
    "GatherElements": "gather_along_axis x indices",
    "GatherND": "gather_nd x indices",
    "Gemm": "gemm a b c | transA>transpose_a transB>transpose_b",
    "GlobalAveragePool": "global_avg_pool x",
    "GlobalLpPool": "global_norm_pool x",
    "GlobalMaxPool": "global_max_pool x",
    "GridSample": "grid_sample x grid",
    "GroupNormalization": "group_norm x gamma beta | num_groups>groups -stash_type",
    "Hardmax": "hardmax x",
    "Hardmax<13": "hardmax_of_rows x",
    "InstanceNormalization": "instance_norm x gamma beta",
    "LRN": "local_response_norm x | bias>k",
    "LSTM": f"lstm_layer {_CELL} initial_c peepholes | -hidden_size",
    "LayerNormalization": "layer_norm_from x gamma beta | -stash_type",
    "LogSoftmax": "log_softmax x",
    "LogSoftmax<13": "log_softmax_of_rows x",
    "LpNormalization": "lp_norm x",
    "LpPool": f"l2_pool x | {_POOL}",
    "MatMul": "matmul x y",
    "MaxPool": f"max_pool x | {_POOL} -storage_order",
    "MeanVarianceNormalization": "mean_variance_norm x | axes=[0,2,3]",
    "OneHot": "one_hot_of indices depth values",
    "QLinearConv": "qlinear_conv",
    "QLinearMatMul": "qlinear_matmul a a_scale a_zero b b_scale b_zero y_scale y_zero",
    "QuantizeLinear": "quantize_linear x scale zero_point | -saturate -block_size -precision",
    "RMSNormalization": "rms_norm x gamma | -stash_type",
    "RNN": f"rnn_layer {_CELL} | -hidden_size",
    "Resize Upsample": f"resize_axes {_RESIZED}",
    "Resize<11 Upsample<11": "resize_axes x scales | coordinate_transformation_mode=asymmetric nearest_mode=floor",
    "ReverseSequence": "reverse_sequence x lengths | time_axis>seq_axis batch_axis=1",
    "RoiAlign": "roi_align x rois batch_indices",
    "RoiAlign<16": "roi_align x rois batch_indices | coordinate_transformation_mode=output_half_pixel",
    "RotaryEmbedding": "rotary x cos_cache sin_cache position_ids",
    "STFT": "stft signal step window size",
    "Scatter ScatterElements": "scatter_along_axis data indices updates | reduction>mode=none",
    "ScatterND": "scatter_nd data indices updates | reduction>mode=none",
    "SimplifiedLayerNormalization": "rms_norm_of x gamma | -stash_type",
    "Softmax": "softmax x",
    "Softmax<13": "softmax_of_rows x",
    "SpaceToDepth": "space_to_blocks x | blocksize>block",
    "TensorScatter": "tensor_scatter cache update write_indices",
    "TopK": "topk x k | -sorted",
}

_MICROSOFT = {
    "Attention": "attention_of_one x weight bias mask past scores_bias | -rotary_embedding_dim",
    "BiasGelu Gelu": "bias_gelu x bias",
    "DequantizeLinear": "dequantize_linear x scale zero_point | -block_size",
    "FastGelu": "bias_gelu x bias | mode=tanh",
    "FusedConv": "fused_conv",
    "FusedGemm": "fused_gemm",
    "FusedMatMul": "fused_matmul x y | transA>transpose_x transB>transpose_y transBatchA>transpose_batch "
    "transBatchB>transpose_batch",
    "GroupNorm": "group_norm_of x gamma beta",
    "GroupQueryAttention": "group_query_attention q k v past_k past_v seqlens_k total_sequence_length cos_cache "
    "sin_cache | -k_quant_type -kv_cache_bit_width -qk_output -v_quant_type",
    "MatMulNBits": "matmul_n_bits a packed scales zero_points g_idx bias | -accuracy_level -weight_prepacked",
    "MultiHeadAttention": "multi_head_attention q k v bias padding scores_bias past_k past_v",
    "NhwcConv NhwcFusedConv": "nhwc_conv",
    "QGemm": "gemm_of_codes",
    "QLinearAdd QLinearAveragePool QLinearGlobalAveragePool QLinearLeakyRelu QLinearMul QLinearSigmoid "
    "QLinearSoftmax": "on_codes",
    "QLinearConcat": "concat_codes",
    "QuantizeLinear": "quantize_linear x scale zero_point | -saturate -block_size",
    "QuickGelu": "swish x | alpha>beta=1.702",
    "RotaryEmbedding": "rotary_by_places x position_ids cos_cache sin_cache | -is_packed_batching -scale",
    "SimplifiedLayerNormalization": "rms_norm_of x gamma | -stash_type",
    "SkipLayerNormalization": "skip_layer_norm x skip gamma beta bias",
    "SkipSimplifiedLayerNormalization": "skip_rms_norm x skip gamma bias",
    "Trilu": "triangle x diagonal",
}

ROWS: dict[str, Row] = table({**_ELEMENTWISE, **_MOVEMENT, **_OTHERS}, OPS, _FUNCTIONS)
"""Of the standard."""
CONTRIB: dict[str, Row] = table(_MICROSOFT, OPS, _FUNCTIONS)
"""Of the domain com.microsoft."""
PREFERRED: dict[str, Row] = table(
    {"Attention": "attention_of q k v attn_mask past_key past_value nonpad_kv_seqlen | -qk_matmul_output_mode "
    "-softmax_precision"},
    OPS, _FUNCTIONS,
)  # fmt: skip
"""Tried before the standard's own definition of an op, which is used where they have no form."""
STORED: dict[str, Row] = table(
    {
        "DequantizeLinear": "dequantize_stored codes scale zero_point | -block_size -output_dtype",
        "QuantizeLinear": "quantize_stored x scale zero_point | -saturate -block_size -precision",
        "Transpose": "transpose_encoded x",
    },
    OPS,
    _FUNCTIONS,
)
"""For nodes whose inputs are all known: they keep a weight encoded."""

_BEFORE: dict[str, tuple[int, Row]] = {
    key.partition("<")[0]: (int(key.partition("<")[2]), row) for key, row in ROWS.items() if "<" in key
}
SINGLE_NUMBERS = frozenset((*_ELEMENTWISE, "Dropout", "Expand", "Gemm", "Identity", "Pad", "Reshape"))
"""Ops that treat a single number like a tensor of shape (1,)."""
DRAWN = frozenset(("RandomNormal", "RandomUniform"))
"""Ops without inputs whose results are not constants."""
_CODES = ("DequantizeLinear", "MaxPool", "QLinearConv", "QLinearMatMul", "QuantizeLinear")
MOVES = frozenset((*_MOVEMENT, *_CODES, "Cast", "MatMulNBits", "QGemm", "TopK"))
MOVES |= {name for name in CONTRIB if name.startswith("QLinear")}
"""Ops that move integers or handle codes: integers that fp16 represents stay exact. fp16 orders 8-bit codes as their
own type does, so a maximum of codes is exact too."""

_BITS = "bits of integers are not supported; the engine computes in fp16"
_COUNT = "the size of the result depends on the data; the engine needs fixed sizes"
_OPTIONAL = "optional values are not supported; the engine takes and gives tensors only"
_SEQUENCE = "sequences of tensors are not supported; the engine takes and gives tensors only"
_TEXT = "text is not supported; the engine takes numbers only"
REASONS: dict[str, str] = by_name(
    {
        _BITS: "BitCast BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor",
        _COUNT: "NonMaxSuppression NonZero Unique",
        _OPTIONAL: "Optional OptionalGetElement OptionalHasElement",
        _SEQUENCE: "ConcatFromSequence SequenceAt SequenceConstruct SequenceEmpty SequenceErase SequenceInsert "
        "SequenceLength SplitToSequence",
        _TEXT: "RegexFullMatch StringConcat StringNormalizer StringSplit",
        "compressed images are not supported; decode the image before the model": "ImageDecoder",
        "it draws a random choice in every run; the engine has no op for it": "Multinomial",
        "the engine has no op for a determinant": "Det",
        "the positions that are written depend on the data; the engine writes to fixed positions": "MaxUnpool",
        "the positions that the kernel reads depend on the data; the engine reads at fixed positions": "DeformConv",
        "the regions depend on the data; the engine reads at fixed positions": "MaxRoiPool",
        "words are counted by looking up integers; the engine has no op for it": "TfIdfVectorizer",
    }
)
"""Why the engine cannot run an op of the standard. The host computes it if the result has a fixed shape."""


def row_for(kind: str, domain: str, opset: int) -> Row | None:
    """The row of an op in files of an opset; ``domain`` is empty for the standard."""
    if domain:
        return CONTRIB.get(kind) if domain == "com.microsoft" else None
    limit, older = _BEFORE.get(kind, (0, None))
    return older if opset < limit else ROWS.get(kind)
