"""Equivalences that every frontend needs: what models say and the graph language lacks, as graphs of what it has."""

from __future__ import annotations

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
from aneforge.frontends.forms.reductions import position, reduced
from aneforge.frontends.forms.spatial import (
    average_pool,
    convolution,
    max_pool,
    same_pads,
    transposed_convolution,
)

__all__ = [
    "average_pool",
    "batch_norm",
    "broadcast_to",
    "convolution",
    "cumulative_sum",
    "gathered",
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
    "reduced",
    "rms_norm",
    "same_pads",
    "sliced",
    "transposed_convolution",
]
