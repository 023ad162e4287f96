"""Resizes, crops and warps of images. An output between inputs is a product with known weights."""

from __future__ import annotations

import math

import numpy as np

from aneforge.frontends import LoadError
from aneforge.frontends.forms import resampled, sliced
from aneforge.frontends.importer.op import Op, Rule
from aneforge.frontends.values import NoForm, along_axis, as_tensor
from aneforge.graph import builders as af
from aneforge.graph.tensor import Tensor

__all__ = ["RULES", "boxed", "enlarged", "grid", "nearest", "resized"]

_SAMPLING_MODES = ("STRICT_ALIGN_CORNERS", "ALIGN_CORNERS", "DEFAULT", "OFFSET_CORNERS", "UNALIGN_CORNERS")
_MOST_POINTS = 1 << 16
_MOST_WEIGHTS = 1 << 24


def grid(extent: float, out: int, mode: str) -> np.ndarray:
    """The positions along a line of ``extent`` places at which outputs are read, not yet clipped to the line."""
    if not 1 <= out <= _MOST_POINTS:
        raise LoadError(f"the target size is {out:,}; it must be 1 to {_MOST_POINTS:,}")
    steps = np.arange(out)
    if mode in ("STRICT_ALIGN_CORNERS", "ALIGN_CORNERS"):
        if out == 1:
            return np.array([(extent - 1) / 2 if mode == "ALIGN_CORNERS" else 0.0])
        return steps * ((extent - 1) / (out - 1))
    if mode == "DEFAULT":
        return steps * (0.0 if out == 1 else (extent - extent / out) / (out - 1))
    if mode == "OFFSET_CORNERS":
        return (steps + 0.5) * (max(1.0, extent - 1) / out)
    if mode == "UNALIGN_CORNERS":
        return (steps + 0.5) * (extent / out) - 0.5
    raise LoadError(f"sampling mode {mode!r} is not supported; choose one: {', '.join(_SAMPLING_MODES)}")


def _mixing_weights(positions: np.ndarray, extent: int) -> np.ndarray:
    """Weights [out, in]: the share of each input place in each output."""
    count = len(positions) * extent
    if count > _MOST_WEIGHTS:
        raise LoadError(
            f"{len(positions):,} points of {extent:,} places need {count:,} weights; the limit is {_MOST_WEIGHTS:,}"
        )
    clipped = np.clip(positions, 0, extent - 1)
    low = np.minimum(np.floor(clipped).astype(int), extent - 1)
    high = np.minimum(low + 1, extent - 1)
    part = clipped - low
    weights = np.zeros((len(clipped), extent))
    rows = np.arange(len(clipped))
    np.add.at(weights, (rows, low), 1 - part)
    np.add.at(weights, (rows, high), part)
    return weights


def resized(x: Tensor, height: int, width: int, mode: str) -> Tensor:
    """Resize the last two axes."""
    return _resample_changed_axes(
        x, {axis: _mixing_weights(grid(have, want, mode), have) for axis, have, want in _last_two(x, height, width)}
    )


def nearest(x: Tensor, height: int, width: int) -> Tensor:
    places = {axis: np.arange(want) * have // want for axis, have, want in _last_two(x, height, width)}
    return _resample_changed_axes(x, {axis: np.eye(x.shape[axis])[positions] for axis, positions in places.items()})


def _last_two(x: Tensor, height: int, width: int) -> list[tuple[int, int, int]]:
    return [(x.ndim - 2, x.shape[-2], height), (x.ndim - 1, x.shape[-1], width)]


def _resample_changed_axes(x: Tensor, weights: dict[int, np.ndarray]) -> Tensor:
    changed = {axis: matrix for axis, matrix in weights.items() if not np.array_equal(matrix, np.eye(x.shape[axis]))}
    return resampled(x, changed) if changed else x


def _scaled_size(op: Op, x: Tensor) -> tuple[int, int]:
    factors = op.number("scale_factor_height", 1.0), op.number("scale_factor_width", 1.0)
    height, width = (math.floor(extent * factor + 1e-6) for extent, factor in zip(x.shape[-2:], factors, strict=True))
    if height < 1 or width < 1:
        raise LoadError(f"scale factors {factors[0]:g} and {factors[1]:g} make {list(x.shape)} empty")
    return height, width


def enlarged(x: Tensor, height: int, width: int, align_corners: bool, half_pixel: bool) -> Tensor:
    mode = "STRICT_ALIGN_CORNERS" if align_corners else "UNALIGN_CORNERS" if half_pixel else "DEFAULT"
    return resized(x, height, width, mode)


def _upsample_bilinear(op: Op) -> Tensor:
    x, align = op.tensor(), op.truth("align_corners", True)
    return enlarged(x, *_scaled_size(op, x), align, op.truth("half_pixel_centers", not align))


def _upsample_nearest(op: Op) -> Tensor:
    return nearest(op.tensor(), *_scaled_size(op, op.tensor()))


def _resize_bilinear(op: Op) -> Tensor:
    size = op.whole("target_size_height", 1), op.whole("target_size_width", 1)
    return resized(op.tensor(), *size, op.text("sampling_mode", "DEFAULT"))


def _resize_nearest(op: Op) -> Tensor:
    return nearest(op.tensor(), op.whole("target_size_height"), op.whole("target_size_width"))


def _resize(op: Op) -> Tensor:
    """The last axes take the sizes at the end of ``shape``; a size of 0 keeps the extent."""
    x, count = op.tensor(), op.whole("resized_dims")
    stated_sizes = op.numbers("shape")[-count:] if count else []
    sizes = [have if want == 0 else want for want, have in zip(stated_sizes, x.shape[x.ndim - count :], strict=True)]
    if count > 2:
        raise LoadError(f"resized_dims is {count}; the limit is 2")
    height, width = (*x.shape[-2 : x.ndim - count], *sizes)
    if op.text("interpolation_mode", "LINEAR") == "NEAREST_NEIGHBOR":
        return nearest(x, height, width)
    return resized(x, height, width, op.text("sampling_mode", "DEFAULT"))


def _crop(op: Op) -> Tensor:
    x = op.tensor()
    for axis, name in ((x.ndim - 2, "crop_height"), (x.ndim - 1, "crop_width")):
        before, after = op.numbers(name)
        x = sliced(x, axis, before, x.shape[axis] - after)
    return x


def boxed(x: Tensor, box: np.ndarray, height: int, width: int, mode: str) -> Tensor:
    """A region [top, left, bottom, right] of one image, in pixels, read at a grid of points."""
    for axis, (first, last), out in ((2, box[[0, 2]], height), (3, box[[1, 3]], width)):
        extent = x.shape[axis]
        if first < 0 or last > extent - 1 or last < first:
            raise LoadError(
                f"a box from {first:g} to {last:g} is not inside axis {axis} of {extent}; boxes must lie in the image"
            )
        points = first + grid(last - first + 1, out, mode)
        x = along_axis(x, axis, _mixing_weights(np.clip(points, first, last), extent))
    return x


def _crop_resize(op: Op) -> Tensor:
    x = op.tensor()
    height, width = op.whole("target_height", 1), op.whole("target_width", 1)
    mode = op.text("sampling_mode", "DEFAULT")
    old = op.has("roi")
    regions = op.value("roi" if old else "boxes")
    if isinstance(regions, Tensor):
        raise NoForm("the boxes are computed while the program runs; the engine needs fixed boxes")
    boxes = np.asarray(regions, np.float64).reshape(regions.shape[0], -1)
    images = [range(x.shape[0])] * len(boxes)
    if old and boxes.shape[1] == 5:
        images = [range(int(number), int(number) + 1) for number in boxes[:, 0]]
        boxes = boxes[:, 1:]
    elif not old:
        places = op.numbers("box_indices", list(range(len(boxes))))
        images = [range(number, number + 1) for number in places]
    corners = _corners(boxes, op.text("box_coordinate_mode", "CORNERS_HEIGHT_FIRST"))
    if op.truth("normalized_coordinates"):
        corners = corners * (np.array([x.shape[2], x.shape[3]] * 2) - 1)
    corners = corners * op.number("spatial_scale", 1.0)
    crops = [
        af.concat([boxed(sliced(x, 0, i, i + 1), box, height, width, mode) for i in chosen], axis=0)
        for box, chosen in zip(corners, images, strict=True)
    ]
    return af.stack(crops, axis=0) if old else af.concat(crops, axis=0)


def _corners(boxes: np.ndarray, mode: str) -> np.ndarray:
    if mode.endswith("WIDTH_FIRST"):
        boxes = boxes[:, [1, 0, 3, 2]]
    if mode.startswith("CENTER_SIZE"):
        return np.concatenate([boxes[:, :2] - boxes[:, 2:] / 2, boxes[:, :2] + boxes[:, 2:] / 2], axis=1)
    return boxes


def _affine(op: Op) -> Tensor:
    x, matrix = op.tensor(), as_tensor(op.value("transform_matrix"))
    settings = op.text("sampling_mode", "bilinear"), op.text("padding_mode", "constant"), op.text("coordinates_mode")
    if settings != ("bilinear", "constant", "normalized_minus_one_to_one") or op.number("padding_value", 0.0):
        raise LoadError(
            f"{', '.join(settings)} is not supported; use bilinear, zeros outside, and coordinates from -1 to 1"
        )
    if matrix.shape[0] == 1 and x.shape[0] > 1:
        matrix = matrix.tile([x.shape[0], 1])
    return af.affine(x, matrix, op.whole("output_height"), op.whole("output_width"), op.truth("align_corners"))


def _resample(op: Op) -> Tensor:
    raise NoForm("sampling an image at a table of points has no form on the engine")


RULES: dict[str, Rule] = {
    "affine": _affine,
    "crop": _crop,
    "crop_resize": _crop_resize,
    "resample": _resample,
    "resize": _resize,
    "resize_bilinear": _resize_bilinear,
    "resize_nearest_neighbor": _resize_nearest,
    "upsample_bilinear": _upsample_bilinear,
    "upsample_nearest_neighbor": _upsample_nearest,
}
