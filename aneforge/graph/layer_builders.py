"""Functions for native layers that users reach by their type and parameters only (``af.bridge``, a netplist)."""

from __future__ import annotations

from aneforge.graph.ops.layers import (
    attention,
    kernel_rasterizer,
    native_pixel_shuffle,
    native_pixel_unshuffle,
    native_unflatten,
)
from aneforge.graph.ops.ranking import arg_min_max, global_arg, sort_vectors, topk_vectors
from aneforge.graph.ops.sampling import crop_resize, resample
from aneforge.graph.ops.slices import gather_places, slice_from

__all__ = [
    "arg_min_max",
    "attention",
    "crop_resize",
    "gather_places",
    "global_arg",
    "kernel_rasterizer",
    "native_pixel_shuffle",
    "native_pixel_unshuffle",
    "native_unflatten",
    "resample",
    "slice_from",
    "sort_vectors",
    "topk_vectors",
]
