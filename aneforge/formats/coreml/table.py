"""The ops of MIL as common ops, and how each is read: as an op of the graph, as several, on the host, or refused.

Most have the common name and arguments; the rows name what differs.
"""

from __future__ import annotations

from aneforge.chips import store
from aneforge.formats import ops
from aneforge.formats.ops.known import WITHOUT_FORM, KnownOps
from aneforge.formats.rows import Row, row, table

_SAME = (
    "abs acos acosh add affine argsort asin asinh atan atanh avg_pool band_part batch_norm batch_to_space cast ceil "
    "clamped_relu concat constexpr_affine_dequantize constexpr_blockwise_shift_scale constexpr_cast "
    "constexpr_lut_to_dense constexpr_lut_to_sparse constexpr_sparse_blockwise_shift_scale constexpr_sparse_to_dense "
    "conv conv_transpose cos cosh crop crop_resize cumsum depth_to_space dequantize einsum elu equal erf exp exp2 "
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

# How each op is read.

_INTERNAL = "this op belongs to the engine's compiler and is not documented; use the ops that it stands for"
_BUFFERS = "buffers of the caller are not supported; use tensors"

REFUSED: dict[str, str] = {
    "call": "calls of other functions are not supported; load that function, or inline it",
    "circular_buffer_to_tensor": _BUFFERS,
    "cost_volume": _INTERNAL,
    "cross_product": _INTERNAL,
    "degamma": _INTERNAL,
    "gamma": _INTERNAL,
    "matrix_decomposition": _INTERNAL,
    "ne_bypass": _INTERNAL,
    "ne_conv": _INTERNAL,
    "ne_matmul": _INTERNAL,
    "ne_pool": _INTERNAL,
    "non_zero": "the number of results depends on the data; the engine needs fixed shapes",
    "pe_elementwise": _INTERNAL,
    "pe_goc": _INTERNAL,
    "pe_pool": _INTERNAL,
    "pixel_buffer_to_tensor": _BUFFERS,
    "random_categorical": "drawing from a computed distribution is not supported; the engine has no random numbers",
    "tensor_buffer_to_tensor": _BUFFERS,
    "tensor_to_circular_buffer": _BUFFERS,
    "tensor_to_pixel_buffer": _BUFFERS,
    "tensor_to_tensor_buffer": _BUFFERS,
}
"""Ops that are refused when their arguments are computed while the program runs, and why."""

HOSTED: dict[str, str] = {
    "non_maximum_suppression": "the boxes that remain depend on the data; unused rows hold zeros",
}
"""Ops that always run on the host. Others run there where they compute with integers, or with indices that are
computed while the program runs."""

_FORMS = (
    "abs acos acosh add argsort asin asinh atan atanh avg_pool band_part batch_norm batch_to_space cast "
    "ceil clamped_relu clip concat const conv conv_transpose cos cosh crop crop_resize cumsum depth_to_space "
    "dequantize elu equal erf exp exp2 expand_dims flatten2d floor floor_div gather gelu greater greater_equal "
    "identity instance_norm inverse layer_norm leaky_relu less less_equal linear linear_activation "
    "local_response_norm log logical_and logical_not logical_or logical_xor lstm matmul max_pool maximum "
    "minimum mod mul not_equal one_hot pad pixel_shuffle pixel_unshuffle pow prelu quantize random_normal "
    "random_uniform read_state real_div reduce_argmax reduce_l1_norm reduce_log_sum reduce_log_sum_exp "
    "reduce_max reduce_mean reduce_min reduce_prod reduce_sum reduce_sum_square relu relu6 resample reshape "
    "resize_nearest_neighbor reverse reverse_sequence rnn round rsqrt scaled_dot_product_attention "
    "scaled_tanh scatter select sigmoid sigmoid_hard sign silu sin sinh slice_by_index slice_by_size "
    "softmax softplus softsign space_to_batch space_to_depth split sqrt square squeeze stack sub tan "
    "tanh threshold thresholded_relu tile topk transpose upsample_bilinear upsample_nearest_neighbor "
    "write_state affine constexpr_affine_dequantize constexpr_blockwise_shift_scale "
    "constexpr_lut_to_dense constexpr_sparse_to_dense"
)
"""Ops that the graph language has, or that leave a weight as it is stored."""

_NOTES = {
    "classify": "the probabilities are the result; the label is text and stays with the host",
    "cond": "a known condition picks its branch; otherwise both branches are computed and one result is selected",
    "gather": "on the host where the indices are computed while the program runs",
    "gather_along_axis": "on the host where the indices are computed while the program runs",
    "gather_nd": "on the host where the indices are computed while the program runs",
    "gru": "every step is written out; reset_after is not supported",
    "lstm": "an op of the graph with the usual activations; otherwise every step is written out",
    "rnn": "an op of the graph with tanh; otherwise every step is written out",
    "scatter": "update, add and sub at known indices; otherwise on the host",
    "scatter_along_axis": "update, add and sub at known indices; otherwise on the host",
    "scatter_nd": "update, add and sub at known indices; otherwise on the host",
    "slice_update": "at known indices; otherwise on the host",
    "while_loop": "a loop with a known number of rounds is written out; others are not supported",
    "crop_resize": "of several images, where the image of each box is known; otherwise on the host",
    "resample": "zeros, another value or the border outside; with mirrored padding on the host",
}


def coverage() -> list[tuple[str, str, str]]:
    """(op, "native form" | "equivalent" | "host" | "refused", reason) for each op of the 187-op matrix, and for the
    other ops that coremltools writes."""
    from aneforge.formats.coreml.mil import CONTROL

    rows = []
    supported, native = sorted({*ROWS, *CONTROL, *WITHOUT_FORM}), _FORMS.split()
    for name in dict.fromkeys([*(entry["mil"] for entry in store.load("ops")["mil_matrix"]), *supported]):
        if name in REFUSED:
            rows.append((name, "refused", REFUSED[name]))
        elif name in HOSTED:
            rows.append((name, "host", HOSTED[name]))
        elif name in supported:
            rows.append((name, "native form" if name in native else "equivalent", _NOTES.get(name, "")))
        else:
            rows.append((name, "refused", "this op of MIL is not supported"))
    return rows
