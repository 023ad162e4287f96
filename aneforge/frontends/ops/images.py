"""Resizes, crops and warps of images: where an output lies between inputs, it is a product with known weights."""

from __future__ import annotations

import math

import numpy as np

from aneforge.frontends import LoadError
from aneforge.frontends.forms import sliced
from aneforge.frontends.importer.op import Op, Rule
from aneforge.frontends.values import NoForm, along_axis, as_tensor, shaped
from aneforge.graph import builders as af
from aneforge.graph.tensor import Tensor

__all__ = ["RULES", "boxed", "enlarged", "grid", "resized"]

_MOST_POINTS = 1 << 16
_MOST_WEIGHTS = 1 << 24


def grid(extent: float, out: int, mode: str) -> np.ndarray:
    """Where along a line of ``extent`` places the outputs are read, before the ends cut them off."""
    if not 1 <= out <= _MOST_POINTS:
        raise LoadError(f"a resize to {out:,} places")
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
    raise LoadError(f"no sampling by {mode!r}")


def _mixture(positions: np.ndarray, extent: int) -> np.ndarray:
    """[out, in]: how much of each place an output is."""
    if len(positions) * extent > _MOST_WEIGHTS:
        raise LoadError(f"{len(positions):,} points along {extent:,} places need a table that is too large")
    held = np.clip(positions, 0, extent - 1)
    low = np.minimum(np.floor(held).astype(int), extent - 1)
    high = np.minimum(low + 1, extent - 1)
    part = held - low
    weights = np.zeros((len(held), extent))
    rows = np.arange(len(held))
    np.add.at(weights, (rows, low), 1 - part)
    np.add.at(weights, (rows, high), part)
    return weights


def resized(x: Tensor, height: int, width: int, mode: str) -> Tensor:
    """The last two axes; two ways of counting pixels are ops of the graph."""
    rows, columns = x.shape[-2:]
    native = {"STRICT_ALIGN_CORNERS": True, "UNALIGN_CORNERS": False}
    if mode in native and (mode != "STRICT_ALIGN_CORNERS" or (height > 1 and width > 1)):
        planes = shaped(x, (1, math.prod(x.shape[:-2]), rows, columns)) if x.ndim != 4 else x
        return shaped(af.resize_bilinear(planes, height, width, native[mode]), (*x.shape[:-2], height, width))
    for axis, (have, want) in ((x.ndim - 2, (rows, height)), (x.ndim - 1, (columns, width))):
        weights = _mixture(grid(have, want, mode), have)
        if have != want or not np.array_equal(weights, np.eye(have)):
            x = along_axis(x, axis, weights)
    return x


def _nearest(x: Tensor, height: int, width: int) -> Tensor:
    rows, columns = x.shape[-2:]
    planes = x if x.ndim == 4 else shaped(x, (1, math.prod(x.shape[:-2]), rows, columns))
    if height % rows == 0 and width % columns == 0:
        found = planes.upsample((height // rows, width // columns))
    else:
        found = af.resize_nearest_neighbor(planes, height, width)
    return shaped(found, (*x.shape[:-2], height, width))


def _scaled_size(op: Op, x: Tensor) -> tuple[int, int]:
    factors = op.number("scale_factor_height", 1.0), op.number("scale_factor_width", 1.0)
    height, width = (math.floor(extent * factor + 1e-6) for extent, factor in zip(x.shape[-2:], factors, strict=True))
    if height < 1 or width < 1:
        raise LoadError(f"factors {factors[0]:g} and {factors[1]:g} leave nothing of {list(x.shape)}")
    return height, width


def enlarged(x: Tensor, height: int, width: int, align_corners: bool, half_pixel: bool) -> Tensor:
    rows, columns = x.shape[-2:]
    whole = height % rows == 0 and width % columns == 0 and x.ndim == 4
    if whole and align_corners != half_pixel:
        return af.upsample_bilinear(x, (height // rows, width // columns), align_corners)
    if align_corners:
        return resized(x, height, width, "STRICT_ALIGN_CORNERS")
    return resized(x, height, width, "UNALIGN_CORNERS" if half_pixel else "DEFAULT")


def _upsample_bilinear(op: Op) -> Tensor:
    x, align = op.tensor(), op.truth("align_corners", True)
    return enlarged(x, *_scaled_size(op, x), align, op.truth("half_pixel_centers", not align))


def _upsample_nearest(op: Op) -> Tensor:
    return _nearest(op.tensor(), *_scaled_size(op, op.tensor()))


def _resize_bilinear(op: Op) -> Tensor:
    size = op.whole("target_size_height", 1), op.whole("target_size_width", 1)
    return resized(op.tensor(), *size, op.text("sampling_mode", "DEFAULT"))


def _resize_nearest(op: Op) -> Tensor:
    return _nearest(op.tensor(), op.whole("target_size_height"), op.whole("target_size_width"))


def _resize(op: Op) -> Tensor:
    """The last axes take the sizes at the end of ``shape``; a size of zero keeps what there is."""
    x, count = op.tensor(), op.whole("resized_dims")
    wanted = op.numbers("shape")[-count:] if count else []
    sizes = [have if want == 0 else want for want, have in zip(wanted, x.shape[x.ndim - count :], strict=True)]
    if count > 2:
        raise LoadError(f"a resize of {count} axes; two are read")
    height, width = (*x.shape[-2 : x.ndim - count], *sizes)
    if op.text("interpolation_mode", "LINEAR") == "NEAREST_NEIGHBOR":
        return _nearest(x, height, width)
    return resized(x, height, width, op.text("sampling_mode", "DEFAULT"))


def _crop(op: Op) -> Tensor:
    x = op.tensor()
    for axis, name in ((x.ndim - 2, "crop_height"), (x.ndim - 1, "crop_width")):
        before, after = op.numbers(name)
        x = sliced(x, axis, before, x.shape[axis] - after)
    return x


def boxed(x: Tensor, box: np.ndarray, height: int, width: int, mode: str) -> Tensor:
    """A region [top, left, bottom, right] of one image, in places, read at a grid of points."""
    for axis, (first, last), out in ((2, box[[0, 2]], height), (3, box[[1, 3]], width)):
        extent = x.shape[axis]
        if first < 0 or last > extent - 1 or last < first:
            raise LoadError(
                f"a box from {first:g} to {last:g} of {extent} places: only boxes inside the image are read"
            )
        points = first + grid(last - first + 1, out, mode)
        x = along_axis(x, axis, _mixture(np.clip(points, first, last), extent))
    return x


def _crop_resize(op: Op) -> Tensor:
    x = op.tensor()
    height, width = op.whole("target_height", 1), op.whole("target_width", 1)
    mode = op.text("sampling_mode", "DEFAULT")
    old = op.has("roi")
    given = op.value("roi" if old else "boxes")
    if isinstance(given, Tensor):
        raise NoForm("its boxes are computed while the program runs")
    boxes = np.asarray(given, np.float64).reshape(given.shape[0], -1)
    images = [range(x.shape[0])] * len(boxes)
    if old and boxes.shape[1] == 5:
        images = [range(int(each), int(each) + 1) for each in boxes[:, 0]]
        boxes = boxes[:, 1:]
    elif not old:
        places = op.numbers("box_indices", list(range(len(boxes))))
        images = [range(each, each + 1) for each in places]
    corners = _corners(boxes, op.text("box_coordinate_mode", "CORNERS_HEIGHT_FIRST"))
    if op.truth("normalized_coordinates"):
        corners = corners * (np.array([x.shape[2], x.shape[3]] * 2) - 1)
    corners = corners * op.number("spatial_scale", 1.0)
    found = [
        af.concat([boxed(sliced(x, 0, i, i + 1), box, height, width, mode) for i in chosen], axis=0)
        for box, chosen in zip(corners, images, strict=True)
    ]
    return af.stack(found, axis=0) if old else af.concat(found, axis=0)


def _corners(boxes: np.ndarray, mode: str) -> np.ndarray:
    if mode.endswith("WIDTH_FIRST"):
        boxes = boxes[:, [1, 0, 3, 2]]
    if mode.startswith("CENTER_SIZE"):
        return np.concatenate([boxes[:, :2] - boxes[:, 2:] / 2, boxes[:, :2] + boxes[:, 2:] / 2], axis=1)
    return boxes


def _affine(op: Op) -> Tensor:
    x, matrix = op.tensor(), as_tensor(op.value("transform_matrix"))
    told = op.text("sampling_mode", "bilinear"), op.text("padding_mode", "constant"), op.text("coordinates_mode")
    if told != ("bilinear", "constant", "normalized_minus_one_to_one") or op.number("padding_value", 0.0):
        raise LoadError(f"a warp by {', '.join(told)}; read is bilinear, zeros outside, coordinates from -1 to 1")
    if matrix.shape[0] == 1 and x.shape[0] > 1:
        matrix = matrix.tile([x.shape[0], 1])
    return af.affine(x, matrix, op.whole("output_height"), op.whole("output_width"), op.truth("align_corners"))


def _resample(op: Op) -> Tensor:
    raise NoForm("it reads an image at points of a table, which the graph language has no form for")


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
