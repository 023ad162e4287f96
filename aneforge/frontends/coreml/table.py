"""The ops of MIL as common ops. Most have the common name and arguments; the rows below name what differs."""

from __future__ import annotations

from aneforge.frontends import ops
from aneforge.frontends.ops.known import KnownOps
from aneforge.frontends.rows import Row, row, table

_SAME = (
    "abs acos acosh add affine argsort asin asinh atan atanh avg_pool band_part batch_norm batch_to_space cast ceil "
    "clamped_relu concat constexpr_affine_dequantize constexpr_blockwise_shift_scale constexpr_cast "
    "constexpr_lut_to_dense constexpr_lut_to_sparse constexpr_sparse_blockwise_shift_scale constexpr_sparse_to_dense "
    "conv conv_transpose cos cosh crop cumsum depth_to_space dequantize einsum elu equal erf exp exp2 "
    "expand_dims fill_like flatten2d floor floor_div gelu greater greater_equal gru identity instance_norm "
    "l2_norm l2_pool layer_norm leaky_relu less less_equal linear linear_activation local_response_norm logical_and "
    "logical_not logical_or logical_xor lstm matmul max_pool maximum minimum mod mul non_maximum_suppression non_zero "
    "not_equal one_hot pad pow prelu quantize random_bernoulli random_normal random_uniform real_div "
    "reduce_l1_norm reduce_l2_norm reduce_log_sum reduce_log_sum_exp reduce_max reduce_mean reduce_min "
    "reduce_prod reduce_sum reduce_sum_square relu relu6 resample reshape reshape_like resize resize_bilinear "
    "resize_nearest_neighbor reverse reverse_sequence rnn round scaled_dot_product_attention scaled_tanh select shape "
    "sigmoid sign silu sin sinh sliding_windows slice_by_index slice_by_size slice_update softmax softplus "
    "softplus_parametric softsign space_to_batch space_to_depth split sqrt square squeeze stack sub tan tanh "
    "threshold thresholded_relu tile transpose upsample_bilinear upsample_nearest_neighbor"
)

ROWS: dict[str, Row] = {
    **{name: row(name, ops.OPS) for name in _SAME.split()},
    **table(
        {
            "clip": "clip | alpha>low beta>high",
            "crop_resize": "crop_resize | -pad_value",
            "gather": "gather | -validate_indices",
            "gather_along_axis": "gather_along_axis | -validate_indices",
            "gather_nd": "gather_nd | -validate_indices",
            "inverse": "inverse | epsilon>eps=1e-4",
            "log": "log | epsilon>eps=1e-45",
            "pixel_shuffle": "pixel_shuffle | upscale_factor>block_size",
            "pixel_unshuffle": "pixel_unshuffle | downscale_factor>block_size",
            "reduce_argmax": "reduce_argmax | -output_dtype",
            "reduce_argmin": "reduce_argmin | -output_dtype",
            "rsqrt": "rsqrt | epsilon>eps=1e-12",
            "scatter": "scatter | -validate_indices",
            "scatter_along_axis": "scatter_along_axis | -validate_indices",
            "scatter_nd": "scatter_nd | -validate_indices",
            "sigmoid_hard": "hard_sigmoid",
            "topk": "topk | -sort -return_indices -output_indices_dtype",
        },
        ops.OPS,
    ),
}
"""By op."""

KNOWN = KnownOps("mil", ROWS)
