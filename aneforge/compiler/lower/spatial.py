"""Pools, resampling and the rearrangements between channels, space and batch."""

from __future__ import annotations

from typing import Any

from aneforge.compiler.lower.builder import Builder, layout, rule
from aneforge.compiler.lower.movement import padded
from aneforge.engine.ir import Op
from aneforge.graph.node import definitions, ops_with
from aneforge.graph.ops.spatial import window_pads
from aneforge.graph.tensor import Tensor
from aneforge.graph.traits import GraphTrait


@rule(*ops_with(GraphTrait.POOL))
def _pool(b: Builder, node: Tensor) -> Op:
    """What ceil mode reads beyond the padding is more padding, which never counts in a mean. Where the user's own
    padding does count, it becomes part of the map first."""
    attrs = dict(node.signature.attrs)
    top, bottom, left, right = attrs["pad"]
    window = node.inputs[0].shape, attrs["kernel"], attrs["stride"], attrs["pad"], attrs["ceil_mode"]
    _, lowest, _, rightmost = window_pads(*window)
    down, across = lowest - bottom, rightmost - right
    x = b.value(node.inputs[0])
    counted = node.op == "avg_pool" and not attrs["exclude_pad"]
    if counted and (down or across):
        x = padded(b, x, (top, bottom), (left, right))
        top = bottom = left = right = 0
        counted = False
    settings: dict[str, Any] = {
        "ksize": (1, *attrs["kernel"]),
        "padding": (0, 0, top, bottom + down, left, right + across),
        "stride": (1, *attrs["stride"]),
    }
    if counted:
        settings["inc_pad"] = True
    kind = "max_pool" if node.op == "max_pool" else "average_pool"
    return b.emit(kind, (x,), layout(node.shape), settings)


@rule(*ops_with(GraphTrait.RESIZE))
def _resize(b: Builder, node: Tensor) -> Op:
    """Half-pixel sampling is the grid with unaligned corners; the nearest neighbour is the default grid, rounded
    down. Whole factors are kept as the user gave them."""
    attrs = dict(node.signature.attrs)
    linear = "bilinear" in node.op
    mode = "Default" if not linear else "StrictAlignedCorners" if attrs["align_corners"] else "UnalignedCorners"
    settings: dict[str, Any] = {
        "height": node.shape[2],
        "width": node.shape[3],
        "sampling_methods": "Linear" if linear else "NearestNeighbor",
        "sampling_modes": mode,
    }
    if "scale" in attrs:
        settings["scale_factor_y"], settings["scale_factor_x"] = (float(factor) for factor in attrs["scale"])
    return b.emit("resize", (b.value(node.inputs[0]),), layout(node.shape), settings)


@rule("resample")
def _resample(b: Builder, node: Tensor) -> Op:
    """The layer has columns and rows of the grid on two channels (layers.json Resample)."""
    attrs = dict(node.signature.attrs)
    x, grid = b.value(node.inputs[0]), b.transposed(b.value(node.inputs[1]), (0, 1, 4, 2, 3))
    normalized = attrs["coordinates_mode"] != "unnormalized"
    settings = {
        "coordinate_mode": "NormalizedSymmetric" if normalized else "NonNormalized",
        "sampling_method": "NearestNeighbor" if attrs["sampling_mode"] == "nearest" else "Linear",
        "sampling_mode": "AlignedCorners" if attrs["align_corners"] else "UnalignedCorners",
        "background_value": attrs["padding_value"],
    }
    return b.emit("resample", (x, grid), layout(node.shape), settings)


@rule("crop_resize")
def _crop_resize(b: Builder, node: Tensor) -> Op:
    """The words of the model language in the backend's capitals: ``UNALIGN_CORNERS`` is ``UnalignedCorners``."""
    attrs = dict(node.signature.attrs)
    settings = {
        "output_dims": node.shape[2:],
        "box_coordinate_mode": _capitals(attrs["box_coordinate_mode"]),
        "coordinate_mode": "NormalizedSymmetric" if attrs["normalized_coordinates"] else "NonNormalized",
        "sampling_method": "Linear",
        "sampling_mode": _capitals(attrs["sampling_mode"]).replace("Align", "Aligned").replace("Unalign", "Unaligned"),
        "background_value": attrs["pad_value"],
    }
    return b.emit("crop_resize", [b.value(operand) for operand in node.inputs], layout(node.shape), settings)


def _capitals(words: str) -> str:
    return words.title().replace("_", "")


@rule(*(name for name, declared in definitions().items() if declared.backend.endswith(":blocks")))
def _rearrange(b: Builder, node: Tensor) -> Op:
    attrs, row = dict(node.signature.attrs), node.definition.in_backend
    assert row is not None
    rows, columns = (attrs["r"],) * 2 if "r" in attrs else (attrs["rows"], attrs["columns"])
    x = b.value(node.inputs[0])
    return b.emit(row.name, (x,), layout(node.shape), {"factors": (1, rows, columns)})


@rule("space_to_batch", "batch_to_space")
def _batches(b: Builder, node: Tensor) -> Op:
    (_, rows), (_, columns) = node.signature.attrs
    x = b.value(node.inputs[0])
    return b.emit(node.op, (x,), layout(node.shape), {"factors": (1, rows, columns)})
