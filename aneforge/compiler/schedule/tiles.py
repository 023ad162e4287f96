"""In how many tiles a layer runs, and which rows a tile needs (U24)."""

from __future__ import annotations

from aneforge.anec.ir import Op
from aneforge.anec.traits import Trait
from aneforge.compiler.schedule.layers import Layer


def tile_count(layer: Layer, working_set: int) -> int:
    """Tiles along the height: one, and one more for every working set that the larger side fills."""
    largest = max([op.type.bytes for op in (*layer.inputs, layer.result) if op.type is not None])
    return largest // working_set + 1


def tile_rows(layer: Layer, working_set: int) -> int:
    """Rows of the result that one tile gives."""
    height = layer.result.shape[3]
    return -(-height // min(height, tile_count(layer, working_set)))


def first_tile_rows(layer: Layer, value: Op, working_set: int) -> int:
    """Rows of a value it reads that the first tile needs, the overlap with the second included."""
    rows = tile_rows(layer, working_set)
    window = _window(layer.primary)
    available = value.shape[3]
    if window is None:
        return min(rows, available)
    kernel, stride, dilation, pad = window
    if layer.primary.kind == "deconvolution":
        return min((rows - 1 + pad) // stride + 1, available)
    return min((rows - 1) * stride + (kernel - 1) * dilation + 1 - pad, available)


def _window(op: Op) -> tuple[int, int, int, int] | None:
    """Kernel, stride, dilation and top padding along the height."""
    attrs = op.attrs
    if op.is_a(Trait.CONVOLUTION):
        return attrs["kernel_sizes"][1], attrs["strides"][1], attrs["dilation_rates"][1], attrs["explicit_padding"][2]
    if op.is_a(Trait.POOL):
        return attrs["ksize"][1], attrs["stride"][1], 1, attrs["padding"][2]
    return None
