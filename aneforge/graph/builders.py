"""Every function that makes a node, in one namespace: what readers of model files call, as users call ``af``."""

from __future__ import annotations

from aneforge.graph.ops.blocks import (
    cross_attention,
    einsum,
    geglu,
    mha,
    rope,
)
from aneforge.graph.ops.contraction import (
    bmm_weight,
    conv,
    conv_transpose,
    dynamic_conv,
    einsum_native,
    linear,
    matmul,
)
from aneforge.graph.ops.elementwise import (
    atan2,
    floor_div,
    logical_and,
    logical_or,
    logical_xor,
    maximum,
    minimum,
    mod,
    select,
    where,
)
from aneforge.graph.ops.extra import (
    band_part,
    dropout,
    gru,
    lstm,
    one_hot,
    random_normal,
    random_uniform,
    reverse_sequence,
    rnn,
    scatter,
)
from aneforge.graph.ops.geometry import cost_volume, cross_correlation, cross_product, fps, radius_search
from aneforge.graph.ops.layers import (
    batch_to_space,
    channel_to_space,
    flatten,
    lrn,
    minmax_norm,
    scaled_elementwise,
    sdpa,
    space_to_batch,
    space_to_channel,
)
from aneforge.graph.ops.leaf import cast, const, image_input, input, parameter  # noqa: A004 - the name users call
from aneforge.graph.ops.norm import batch_norm, instance_norm, local_response_norm
from aneforge.graph.ops.quantised import dequantize, quantize
from aneforge.graph.ops.ranking import sort, topk
from aneforge.graph.ops.sampling import crop_resize, resample
from aneforge.graph.ops.shape import concat, crop, gather, pad, split, stack
from aneforge.graph.ops.slices import dynamic_slice, input_view
from aneforge.graph.ops.spatial import (
    affine,
    depth_to_space,
    pixel_shuffle,
    pixel_unshuffle,
    resize_bilinear,
    resize_nearest_neighbor,
    space_to_depth,
    upsample_bilinear,
)
from aneforge.graph.ops.state import live_state, ring_read, ring_write
from aneforge.graph.ops.trainable import conv2d, conv_block, conv_param, group_norm_train
from aneforge.graph.ops.volume import conv3d
