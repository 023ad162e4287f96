"""Resize, grid sample and region ops, at positions that are known when the file is read."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from aneforge.frontends import LoadError, forms
from aneforge.frontends.values import Array, NoForm, Numeric, axis_of
from aneforge.graph.tensor import Tensor


def _resize(
    x: Numeric,
    roi: Array | None = None,
    scales: Array | None = None,
    sizes: Array | None = None,
    axes: list[int] | None = None,
    mode: str = "nearest",
    coordinate_transformation_mode: str = "half_pixel",
    nearest_mode: str = "round_prefer_floor",
    cubic_coeff_a: float = -0.75,
    exclude_outside: bool = False,
    antialias: bool = False,
    keep_aspect_ratio_policy: str = "stretch",
    extrapolation_value: float = 0.0,
) -> Tensor:
    """Resize each axis separately, by an op of the engine or by a product with known weights."""
    places = [axis_of(axis, x.ndim) for axis in (range(x.ndim) if axes is None else axes)]
    extents = [x.shape[axis] for axis in places]
    factors, out_extents = _extents(extents, scales, sizes, keep_aspect_ratio_policy)
    how = forms.Sampling(mode, coordinate_transformation_mode, nearest_mode, cubic_coeff_a, exclude_outside, antialias)
    regions = _regions(coordinate_transformation_mode, roi, len(places))
    weights: dict[int, Array] = {}
    inside = np.ones((1,) * x.ndim)
    for place, axis in enumerate(places):
        if out_extents[place] == extents[place] and factors[place] == 1.0 and regions[place] in (None, (0.0, 1.0)):
            continue
        matrix, outside = forms.resize_weights(extents[place], out_extents[place], factors[place], how, regions[place])
        weights[axis] = matrix
        if outside.any():
            inside = inside * (~outside).reshape([-1 if i == axis else 1 for i in range(x.ndim)])
    result = forms.resampled(x, weights)
    if extrapolation_value == 0.0 or inside.all():
        return result
    return forms.added(result, (1 - inside) * extrapolation_value)


def _extents(
    extents: list[int], scales: Array | None, sizes: Array | None, policy: str
) -> tuple[list[float], list[int]]:
    """Return the scale and the new length of each axis."""
    if sizes is not None and sizes.size:
        out_extents = [int(size) for size in sizes.reshape(-1)]
        ratios = [size / extent for size, extent in zip(out_extents, extents, strict=True)]
        if policy == "stretch":
            return ratios, out_extents
        factor = min(ratios) if policy == "not_larger" else max(ratios)
        return [factor] * len(ratios), [math.floor(factor * extent + 0.5) for extent in extents]
    if scales is None:
        raise LoadError("input 'scales' is missing; the op needs it")
    if scales.size != len(extents):
        raise LoadError(f"scales has {scales.size} values, expected {len(extents)}, one for each axis")
    factors = [float(scale) for scale in scales.reshape(-1)]
    if not all(0 < factor < 1e6 for factor in factors):
        raise LoadError(f"scales {factors} are out of range; each must be above 0 and below 1,000,000")
    return factors, [math.floor(factor * extent) for factor, extent in zip(factors, extents, strict=True)]


def _regions(coordinates: str, roi: Array | None, count: int) -> list[tuple[float, float] | None]:
    if coordinates != "tf_crop_and_resize":
        return [None] * count
    if roi is None or roi.size != 2 * count:
        size = 0 if roi is None else roi.size
        raise LoadError(f"roi has {size} values, expected {2 * count}, two for each axis")
    ends = roi.reshape(-1)
    return [(float(ends[i]), float(ends[i + count])) for i in range(count)]


_GRID_MODES = {"nearest": "nearest", "linear": "linear", "cubic": "cubic", "bilinear": "linear", "bicubic": "cubic"}
_GRID_PADDINGS = ("zeros", "border", "reflection")


def _grid_sample(
    x: Numeric, grid: Array, mode: str = "linear", padding_mode: str = "zeros", align_corners: bool = False
) -> Tensor:
    if mode not in _GRID_MODES or padding_mode not in _GRID_PADDINGS:
        raise NoForm(
            f"mode {mode!r} with padding {padding_mode!r} is not supported; choose mode nearest, linear, cubic, "
            f"padding {', '.join(_GRID_PADDINGS)}"
        )
    return forms.grid_sample(x, grid, _GRID_MODES[mode], padding_mode, align_corners)


def _affine_grid(theta: Tensor, size: list[int], align_corners: bool = False) -> Tensor:
    return forms.affine_grid(theta, size, align_corners)


def _roi_align(
    x: Numeric,
    rois: Array,
    batch_indices: Array,
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
    coordinate_transformation_mode: str = "half_pixel",
) -> Tensor:
    if mode != "avg":
        raise NoForm("mode 'max' is not supported; the engine takes the mean of the points in a cell. Use mode 'avg'")
    half_pixel = coordinate_transformation_mode == "half_pixel"
    size = output_height, output_width
    return forms.roi_align(x, rois, batch_indices, size, sampling_ratio, spatial_scale, half_pixel)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "affine_grid": _affine_grid,
    "grid_sample": _grid_sample,
    "resize_axes": _resize,
    "roi_align": _roi_align,
}
