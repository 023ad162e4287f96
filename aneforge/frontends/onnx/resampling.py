"""Resize, grid sample and region ops, at positions that are known when the file is read."""

from __future__ import annotations

import math

import numpy as np

from aneforge.errors import LoadError
from aneforge.frontends import forms
from aneforge.frontends.onnx.node import Node, Rule, Value
from aneforge.frontends.values import NoForm, as_tensor, axis_of, known, whole_numbers
from aneforge.graph import builders as af
from aneforge.graph.tensor import Tensor

__all__ = ["RULES"]

Array = np.ndarray


def _resize(
    node: Node, x: Value, roi: Value | None = None, scales: Value | None = None, sizes: Value | None = None
) -> Tensor:
    """Resize each axis separately, by an op of the engine or by a product with known weights."""
    image = as_tensor(x)
    if node.opset < 11:
        roi, scales, sizes = None, roi if node.attr("scales") is None else np.array(node.attr("scales")), None
    axes = [axis_of(int(axis), image.ndim) for axis in node.attr("axes", range(image.ndim))]
    extents = [image.shape[axis] for axis in axes]
    factors, out_extents = _extents(node, extents, scales, sizes)
    how = _sampling(node)
    regions = _regions(node, roi, len(axes))
    weights: dict[int, Array] = {}
    inside = np.ones((1,) * image.ndim)
    for place, axis in enumerate(axes):
        if out_extents[place] == extents[place] and factors[place] == 1.0 and regions[place] in (None, (0.0, 1.0)):
            continue
        matrix, outside = forms.resize_weights(extents[place], out_extents[place], factors[place], how, regions[place])
        weights[axis] = matrix
        if outside.any():
            inside = inside * (~outside).reshape([-1 if i == axis else 1 for i in range(image.ndim)])
    result = forms.resampled(image, weights)
    fill = float(node.attr("extrapolation_value", 0.0))
    return result if fill == 0.0 or inside.all() else result + af.const((1 - inside) * fill)


def _extents(
    node: Node, extents: list[int], scales: Value | None, sizes: Value | None
) -> tuple[list[float], list[int]]:
    """Return the scale and the new length of each axis."""
    if sizes is not None and known(sizes, "input 'sizes'").size:
        out_extents = whole_numbers(sizes, "input 'sizes'")
        ratios = [size / extent for size, extent in zip(out_extents, extents, strict=True)]
        policy = node.attr("keep_aspect_ratio_policy", "stretch")
        if policy == "stretch":
            return ratios, out_extents
        factor = min(ratios) if policy == "not_larger" else max(ratios)
        return [factor] * len(ratios), [math.floor(factor * extent + 0.5) for extent in extents]
    stated = known(scales, "input 'scales'").reshape(-1)
    if stated.size != len(extents):
        raise LoadError(f"scales has {stated.size} values, expected {len(extents)}, one for each axis")
    factors = [float(scale) for scale in stated]
    if not all(0 < factor < 1e6 for factor in factors):
        raise LoadError(f"scales {factors} are out of range; each must be above 0 and below 1,000,000")
    return factors, [math.floor(factor * extent) for factor, extent in zip(factors, extents, strict=True)]


def _sampling(node: Node) -> forms.Sampling:
    before_opset_11 = node.opset < 11
    return forms.Sampling(
        node.attr("mode", "nearest"),
        node.attr("coordinate_transformation_mode", "asymmetric" if before_opset_11 else "half_pixel"),
        node.attr("nearest_mode", "floor" if before_opset_11 else "round_prefer_floor"),
        float(node.attr("cubic_coeff_a", -0.75)),
        bool(node.attr("exclude_outside", 0)),
        bool(node.attr("antialias", 0)),
    )


def _regions(node: Node, roi: Value | None, count: int) -> list[tuple[float, float] | None]:
    if node.attr("coordinate_transformation_mode") != "tf_crop_and_resize":
        return [None] * count
    ends = known(roi, "input 'roi'").reshape(-1)
    if ends.size != 2 * count:
        raise LoadError(f"roi has {ends.size} values, expected {2 * count}, two for each axis")
    return [(float(ends[i]), float(ends[i + count])) for i in range(count)]


def _grid_sample(node: Node, x: Value, grid: Value) -> Tensor:
    stated, padding = str(node.attr("mode", "linear")), node.attr("padding_mode", "zeros")
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(stated, stated)
    modes, paddings = ("nearest", "linear", "cubic"), ("zeros", "border", "reflection")
    if mode not in modes or padding not in paddings:
        raise NoForm(
            f"mode {stated!r} with padding {padding!r} is not supported; choose mode {', '.join(modes)}, padding "
            f"{', '.join(paddings)}"
        )
    places = known(grid, "input 'grid'")
    corners = bool(node.attr("align_corners", 0))
    return forms.grid_sample(as_tensor(x), places, mode, padding, corners)


def _affine_grid(node: Node, theta: Value, size: Value) -> Tensor:
    return forms.affine_grid(
        as_tensor(theta), whole_numbers(size, "input 'size'"), bool(node.attr("align_corners", 0))
    )


def _roi_align(node: Node, x: Value, regions: Value, samples: Value) -> Tensor:
    if node.attr("mode", "avg") != "avg":
        raise NoForm("mode 'max' is not supported; the engine takes the mean of the points in a cell. Use mode 'avg'")
    default = "half_pixel" if node.opset >= 16 else "output_half_pixel"
    out_size = int(node.attr("output_height", 1)), int(node.attr("output_width", 1))
    return forms.roi_align(
        as_tensor(x),
        known(regions, "input 'rois'"),
        known(samples, "input 'batch_indices'"),
        out_size,
        int(node.attr("sampling_ratio", 0)),
        float(node.attr("spatial_scale", 1.0)),
        node.attr("coordinate_transformation_mode", default) == "half_pixel",
    )


RULES: dict[str, Rule] = {
    "AffineGrid": _affine_grid,
    "GridSample": _grid_sample,
    "Resize": _resize,
    "RoiAlign": _roi_align,
    "Upsample": _resize,
}
