"""Sliding windows of an image that an exporter picks row by row and column by column."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aneforge.graph import builders as af
from aneforge.graph.tensor import Tensor
from aneforge.recognise.rule import Rule, Scene


def _steps(indices: Sequence[int], size: int, count: int) -> int | None:
    """The stride of windows of ``size`` at ``count`` places, where the indices list them offset by offset."""
    if len(indices) != size * count or count < 2:
        return None
    stride = indices[1] - indices[0]
    wanted = [offset + stride * place for offset in range(size) for place in range(count)]
    return stride if stride > 0 and list(indices) == wanted else None


def _windows(node: Tensor, scene: Scene) -> Tensor | None:
    """Windows of an image, gathered along both axes and put before the places, are a convolution by channel whose
    kernels pick one pixel each: what the reader of PyTorch makes of ``unfold``."""
    lines = node.inputs[0]
    if node.attrs["perm"] != (0, 2, 1, 3) or lines.op != "reshape" or lines.inputs[0].op != "gather":
        return None
    columns = lines.inputs[0]
    rows = columns.inputs[0]
    if columns.attrs["axis"] != 4 or rows.op != "reshape" or rows.ndim != 5 or rows.inputs[0].op != "gather":
        return None
    picked = rows.inputs[0]
    image = picked.inputs[0]
    if picked.attrs["axis"] != 2 or image.ndim != 4 or image.shape[0] != 1:
        return None
    channels, size = image.shape[1], (rows.shape[2], lines.shape[2])
    places = (rows.shape[3], lines.shape[3])
    if rows.shape[:2] != (1, channels) or lines.shape[:2] != (channels * size[0], places[0]):
        return None
    stride = _steps(picked.attrs["indices"], size[0], places[0]), _steps(columns.attrs["indices"], size[1], places[1])
    if stride[0] is None or stride[1] is None:
        return None
    kernel = np.tile(np.eye(size[0] * size[1]).reshape(-1, 1, *size), (channels, 1, 1, 1))
    source, pad = _before_pad(image, size, (stride[0], stride[1]), places)
    return af.conv(source, kernel, stride=stride, pad=pad, groups=channels).reshape(*node.shape)


def _before_pad(
    image: Tensor, size: tuple[int, int], stride: tuple[int, int], places: tuple[int, int]
) -> tuple[Tensor, tuple[int, int, int, int]]:
    """What is padded with zeros, and how far the windows reach into the padding on each side."""
    ends = [extent + step * (count - 1) for extent, step, count in zip(size, stride, places, strict=True)]
    widths = image.attrs["widths"] if image.op == "pad" and image.attrs["mode"] == "constant" else ()
    if not widths or image.attrs["value"] != 0.0 or any(side for pair in widths[:2] for side in pair):
        trimmed = image.slice_by_size([0, 0, 0, 0], [*image.shape[:2], *ends])
        return (image if trimmed.shape == image.shape else trimmed), (0, 0, 0, 0)
    source = image.inputs[0]
    (top, _), (left, _) = widths[2:]
    below, right = ends[0] - top - source.shape[2], ends[1] - left - source.shape[3]
    if below < 0 or right < 0:
        source = source.slice_by_size(
            [0] * 4, [*source.shape[:2], min(source.shape[2], ends[0] - top), min(source.shape[3], ends[1] - left)]
        )
    return source, (top, max(0, below), left, max(0, right))


WINDOWS = (Rule("windows", ("transpose",), _windows),)
