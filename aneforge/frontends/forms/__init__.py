"""Equivalences that every frontend needs: what models say and the graph language lacks, as graphs of what it has."""

from __future__ import annotations

from aneforge.frontends.forms.attention import attention, rotary
from aneforge.frontends.forms.indexing import gathered_elements, gathered_nd, scattered_elements, scattered_nd
from aneforge.frontends.forms.movement import broadcast_to, gathered, padded, parts, sliced
from aneforge.frontends.forms.norms import (
    batch_norm,
    group_norm,
    instance_norm,
    layer_norm,
    log_softmax,
    rms_norm,
)
from aneforge.frontends.forms.products import cumulative_sum, linear, matmul
from aneforge.frontends.forms.quantised import dequantised, fake_quantised, quantised, range_of
from aneforge.frontends.forms.reductions import position, reduced
from aneforge.frontends.forms.resampling import (
    Sampling,
    affine_grid,
    grid_sample,
    resampled,
    resize_weights,
    roi_align,
)
from aneforge.frontends.forms.spatial import (
    average_pool,
    convolution,
    max_pool,
    same_pads,
    transposed_convolution,
    window_sum,
)
from aneforge.frontends.forms.tall import rearranged, reshaped, transposed

__all__ = [
    "Sampling",
    "affine_grid",
    "attention",
    "average_pool",
    "batch_norm",
    "broadcast_to",
    "convolution",
    "cumulative_sum",
    "dequantised",
    "fake_quantised",
    "gathered",
    "gathered_elements",
    "gathered_nd",
    "grid_sample",
    "group_norm",
    "instance_norm",
    "layer_norm",
    "linear",
    "log_softmax",
    "matmul",
    "max_pool",
    "padded",
    "parts",
    "position",
    "quantised",
    "range_of",
    "rearranged",
    "reduced",
    "resampled",
    "reshaped",
    "resize_weights",
    "rms_norm",
    "roi_align",
    "rotary",
    "same_pads",
    "scattered_elements",
    "scattered_nd",
    "sliced",
    "transposed",
    "transposed_convolution",
    "window_sum",
]
