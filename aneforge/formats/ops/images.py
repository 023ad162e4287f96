"""Resizes, crops and warps of images. An output between inputs is a product with known weights."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from aneforge.errors import LoadError
from aneforge.formats.forms import (
    affine_grid,
    cut_boxes,
    grid_sample,
    image_of,
    inside_image,
    resampled,
    sliced,
)
from aneforge.formats.values import NoForm, Numeric, Value
from aneforge.graph import builders as af
from aneforge.graph.encoding import Encoded
from aneforge.graph.ops.sampling import GRIDS, grid_positions
from aneforge.graph.ops.sampling import mixing_weights as interpolation_weights
from aneforge.graph.tensor import Tensor

_MOST_POINTS = 1 << 16
_MOST_WEIGHTS = 1 << 24


def _grid(extent: int, out: int, mode: str) -> np.ndarray:
    """The positions along a line of ``extent`` places at which outputs are read, not yet clipped to the line."""
    if not 1 <= out <= _MOST_POINTS:
        raise LoadError(f"the target size is {out:,}; it must be 1 to {_MOST_POINTS:,}")
    if mode not in GRIDS:
        raise LoadError(f"sampling mode {mode!r} is not supported; choose one: {', '.join(GRIDS)}")
    return grid_positions(extent, out, mode)


def mixing_weights(positions: np.ndarray, extent: int) -> np.ndarray:
    """Weights [out, in]: the share of each input place in each output."""
    count = len(positions) * extent
    if count > _MOST_WEIGHTS:
        raise LoadError(
            f"{len(positions):,} points of {extent:,} places need {count:,} weights; the limit is {_MOST_WEIGHTS:,}"
        )
    return interpolation_weights(positions, extent)


def _resized(x: Tensor, height: int, width: int, mode: str) -> Tensor:
    """Resize the last two axes."""
    return resample_changed_axes(
        x, {axis: mixing_weights(_grid(have, want, mode), have) for axis, have, want in _last_two(x, height, width)}
    )


def _nearest(x: Tensor, height: int, width: int) -> Tensor:
    places = {axis: np.arange(want) * have // want for axis, have, want in _last_two(x, height, width)}
    return resample_changed_axes(x, {axis: np.eye(x.shape[axis])[positions] for axis, positions in places.items()})


def _last_two(x: Tensor, height: int, width: int) -> list[tuple[int, int, int]]:
    return [(x.ndim - 2, x.shape[-2], height), (x.ndim - 1, x.shape[-1], width)]


def resample_changed_axes(x: Tensor, weights: dict[int, np.ndarray]) -> Tensor:
    changed = {axis: matrix for axis, matrix in weights.items() if not np.array_equal(matrix, np.eye(x.shape[axis]))}
    return resampled(x, changed) if changed else x


def _scaled_size(x: Tensor, height: float, width: float) -> tuple[int, int]:
    size = [math.floor(extent * factor + 1e-6) for extent, factor in zip(x.shape[-2:], (height, width), strict=True)]
    if min(size) < 1:
        raise LoadError(f"scale factors {height:g} and {width:g} make {list(x.shape)} empty")
    return size[0], size[1]


def _upsample_bilinear(
    x: Numeric,
    scale_factor_height: float = 1.0,
    scale_factor_width: float = 1.0,
    align_corners: bool = True,
    half_pixel_centers: bool | None = None,
) -> Tensor:
    half_pixel = not align_corners if half_pixel_centers is None else half_pixel_centers
    mode = "STRICT_ALIGN_CORNERS" if align_corners else "UNALIGN_CORNERS" if half_pixel else "DEFAULT"
    return _resized(x, *_scaled_size(x, scale_factor_height, scale_factor_width), mode)


def _upsample_nearest(x: Numeric, scale_factor_height: float = 1.0, scale_factor_width: float = 1.0) -> Tensor:
    return _nearest(x, *_scaled_size(x, scale_factor_height, scale_factor_width))


def _resize_bilinear(
    x: Numeric, target_size_height: int = 1, target_size_width: int = 1, sampling_mode: str = "DEFAULT"
) -> Tensor:
    return _resized(x, target_size_height, target_size_width, sampling_mode)


def _resize_nearest(x: Numeric, target_size_height: int, target_size_width: int) -> Tensor:
    return _nearest(x, target_size_height, target_size_width)


def _resize(
    x: Numeric,
    shape: list[int],
    resized_dims: int,
    interpolation_mode: str = "LINEAR",
    sampling_mode: str = "DEFAULT",
) -> Tensor:
    """The last axes take the sizes at the end of ``shape``; a size of 0 keeps the extent."""
    count = resized_dims
    stated_sizes = shape[-count:] if count else []
    sizes = [have if want == 0 else want for want, have in zip(stated_sizes, x.shape[x.ndim - count :], strict=True)]
    if count > 2:
        raise LoadError(f"resized_dims is {count}; the limit is 2")
    height, width = (*x.shape[-2 : x.ndim - count], *sizes)
    if interpolation_mode == "NEAREST_NEIGHBOR":
        return _nearest(x, height, width)
    return _resized(x, height, width, sampling_mode)


def _crop(x: Numeric, crop_height: list[int], crop_width: list[int]) -> Tensor:
    for axis, (before, after) in ((x.ndim - 2, crop_height), (x.ndim - 1, crop_width)):
        x = sliced(x, axis, before, x.shape[axis] - after)
    return x


def _crop_resize(
    x: Tensor,
    roi: Value | None = None,
    boxes: Value | None = None,
    box_indices: Value | None = None,
    target_height: int = 1,
    target_width: int = 1,
    normalized_coordinates: bool = False,
    spatial_scale: float = 1.0,
    box_coordinate_mode: str = "CORNERS_HEIGHT_FIRST",
    sampling_mode: str = "DEFAULT",
    pad_value: float = 0.0,
) -> Tensor:
    """``roi`` has the number of the image in front of each box, or the boxes are for all images; ``boxes`` names the
    images apart, and its crops are joined."""
    regions = boxes if roi is None else roi
    if regions is None or isinstance(regions, Encoded):
        raise LoadError("argument 'boxes' is missing; the op needs it")
    widths = (4,) if roi is None else (4, 5)
    if len(regions.shape) != (2 if roi is None else 5) or math.prod(regions.shape[1:]) not in widths:
        wanted = "[count, 4]" if roi is None else "[count, 1, 4 or 5, 1, 1]"
        raise LoadError(f"boxes are {list(regions.shape)}; expected {wanted}")
    lines = regions.reshape(regions.shape[0], -1)
    numbers: Value | None = None
    if lines.shape[1] == 5:
        numbers, lines = lines[:, :1], lines[:, 1:]
    elif roi is None:
        numbers = np.arange(lines.shape[0]) if box_indices is None else box_indices
    settings = (target_height, target_width, normalized_coordinates, box_coordinate_mode, sampling_mode, pad_value)
    lines = lines if spatial_scale == 1.0 else lines * spatial_scale
    if numbers is None:  # every image is cut at all boxes
        crops = [af.crop_resize(image_of(x, i), lines, *settings) for i in range(x.shape[0])]
        return af.stack(crops, axis=1)
    joined = cut_boxes(x, lines, numbers, *settings)
    return joined if roi is None else joined.reshape(joined.shape[0], 1, *joined.shape[1:])


def _affine(
    x: Tensor,
    transform_matrix: Tensor,
    output_height: int,
    output_width: int,
    align_corners: bool = False,
    sampling_mode: str = "bilinear",
    padding_mode: str = "constant",
    padding_value: float = 0.0,
    coordinates_mode: str = "normalized_minus_one_to_one",
) -> Tensor:
    settings = sampling_mode, padding_mode, coordinates_mode
    if settings != ("bilinear", "constant", "normalized_minus_one_to_one") or padding_value:
        raise LoadError(
            f"{', '.join(settings)} is not supported; use bilinear, zeros outside, and coordinates from -1 to 1"
        )
    if transform_matrix.shape[0] == 1 and x.shape[0] > 1:
        transform_matrix = transform_matrix.tile([x.shape[0], 1])
    return af.affine(x, transform_matrix, output_height, output_width, align_corners)


def _resample(
    x: Tensor,
    coordinates: Value,
    sampling_mode: str,
    padding_mode: str,
    coordinates_mode: str,
    align_corners: bool,
    padding_value: float = 0.0,
) -> Tensor:
    if coordinates_mode == "normalized_zero_to_one" and not isinstance(coordinates, Encoded):
        coordinates, coordinates_mode = coordinates * 2.0 - 1.0, "normalized_minus_one_to_one"
    if padding_mode not in ("constant", "border"):
        raise NoForm(f"padding {padding_mode!r} is not supported by the engine's sampler; use constant or border")
    if padding_mode == "border":
        coordinates = inside_image(coordinates, x.shape[2:], coordinates_mode, align_corners)
    return af.resample(x, coordinates, sampling_mode, padding_value, coordinates_mode, align_corners)


def _suppress_boxes(
    boxes: Value,
    scores: Value,
    iou_threshold: float,
    max_boxes: int,
    score_threshold: float | None = None,
    per_class_suppression: bool = False,
) -> list[Tensor]:
    raise NoForm("the boxes that remain depend on the data; the engine cannot choose them")


OPS: dict[str, Callable[..., object]] = {
    "affine": _affine,
    "affine_grid": affine_grid,
    "crop": _crop,
    "crop_resize": _crop_resize,
    "grid_sample": grid_sample,
    "non_maximum_suppression": _suppress_boxes,
    "resample": _resample,
    "resize": _resize,
    "resize_bilinear": _resize_bilinear,
    "resize_nearest_neighbor": _resize_nearest,
    "upsample_bilinear": _upsample_bilinear,
    "upsample_nearest_neighbor": _upsample_nearest,
}
