"""Resampling at places that are known when a model is read.

Each axis is a product with known weights; where the engine has a resize with the same meaning, that is used.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from aneforge.errors import LoadError
from aneforge.formats.values import NoForm, Numeric, Value, along_axis, known
from aneforge.graph import builders as af
from aneforge.graph.encoding import Encoded
from aneforge.graph.ops.sampling import mixing_weights
from aneforge.graph.tensor import Tensor

Array = np.ndarray

_MOST_WEIGHTS = 1 << 24  # of one stored matrix
_MOST_REGIONS = 256
_MOST_PLACES = 1 << 22


@dataclass(frozen=True)
class Sampling:
    """How a resize counts pixels and mixes neighbours; the names are those of ONNX."""

    mode: str = "nearest"
    coordinates: str = "half_pixel"
    rounding: str = "round_prefer_floor"
    cubic: float = -0.75
    exclude_outside: bool = False
    antialias: bool = False


def resize_weights(
    extent: int, out: int, scale: float, how: Sampling, region: tuple[float, float] | None = None
) -> tuple[Array, Array]:
    """The weights [out, extent] of each result, and which results lie outside the region."""
    if out < 1 or not 0 < scale < math.inf:
        raise LoadError(f"resizing {extent} places to {out} by a factor of {scale:g} leaves no places")
    if extent * out > _MOST_WEIGHTS:
        raise NoForm(
            f"resizing {extent} places to {out} needs {extent * out:,} weights; the limit is {_MOST_WEIGHTS:,}"
        )
    source = _source_positions(extent, out, scale, how.coordinates, region)
    outside = (source < 0) | (source > extent - 1) if region is not None else np.zeros(out, bool)
    if how.mode == "nearest" and not how.antialias:
        weights = np.eye(extent)[np.clip(_round_positions(source, how.rounding), 0, extent - 1)]
    else:
        weights = _kernel_weights(source, extent, scale, how)
    weights[outside] = 0.0
    return weights, outside


def _source_positions(extent: int, out: int, scale: float, how: str, region: tuple[float, float] | None) -> Array:
    """The position along the line of each result."""
    indices = np.arange(out, dtype=np.float64)
    length = scale * extent  # of the result, before rounding down to an integer
    if how == "tf_crop_and_resize":
        first, last = region or (0.0, 1.0)
        step = (last - first) * (extent - 1)
        along = np.full(out, step / 2) if length == 1 else indices * step / (length - 1)
        return first * (extent - 1) + along
    if how == "align_corners":
        return np.zeros(out) if length == 1 else indices * (extent - 1) / (length - 1)
    if how == "asymmetric":
        return indices / scale
    if how == "tf_half_pixel_for_nn":
        return (indices + 0.5) / scale
    if how == "pytorch_half_pixel" and out == 1:
        return np.zeros(1)
    middle = (indices + 0.5) / scale - 0.5
    if how == "half_pixel_symmetric":
        return middle + extent / 2 * (1 - out / length)
    if how not in ("half_pixel", "pytorch_half_pixel"):
        raise NoForm(
            f"coordinate mode {how!r} is not supported for a resize; use half_pixel, asymmetric or align_corners"
        )
    return middle


def _round_positions(source: Array, how: str) -> Array:
    roundings = {
        "round_prefer_floor": lambda: np.ceil(source - 0.5),
        "round_prefer_ceil": lambda: np.floor(source + 0.5),
        "floor": lambda: np.floor(source),
        "ceil": lambda: np.ceil(source),
    }
    if how not in roundings:
        raise NoForm(f"rounding mode {how!r} is not supported for a resize; choose one: {', '.join(roundings)}")
    return roundings[how]().astype(int)


def _kernel_weights(source: Array, extent: int, scale: float, how: Sampling) -> Array:
    """The weights of an interpolation kernel around each place. With ``antialias`` a kernel that shrinks a line is
    wider by the same factor."""
    if how.mode not in ("linear", "cubic"):
        suffix = " with antialias" if how.antialias else ""
        raise NoForm(f"interpolation {how.mode!r}{suffix} is not supported; use linear or cubic")
    narrow = min(scale, 1.0) if how.antialias else 1.0
    reach = math.ceil((1 if how.mode == "linear" else 2) / narrow)
    first = np.floor(source).astype(int)
    weights = np.zeros((len(source), extent))
    rows = np.arange(len(source))
    for tap in range(1 - reach, reach + 1):
        place = first + tap
        distance = np.abs(source - place) * narrow
        part = np.clip(1 - distance, 0, 1) if how.mode == "linear" else cubic_kernel(distance, how.cubic)
        if how.exclude_outside:
            part = np.where((place < 0) | (place >= extent), 0.0, part)
        weights[rows, np.clip(place, 0, extent - 1)] += part
    return weights / weights.sum(axis=1, keepdims=True)


def cubic_kernel(distance: Array, a: float) -> Array:
    """Keys' cubic convolution kernel, as a function of the distance in pixels."""
    near = ((a + 2) * distance - (a + 3)) * distance**2 + 1
    far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    return np.where(distance <= 1, near, np.where(distance < 2, far, 0.0))


# One resize of a tensor.


def resampled(x: Tensor, weights: Mapping[int, Array]) -> Tensor:
    """Multiply each axis by its weights [out, in]. The last two axes use the engine's resizes where the result is the
    same."""
    inner = {axis: matrix for axis, matrix in weights.items() if axis >= x.ndim - 2}
    for axis, matrix in weights.items():
        if axis not in inner or x.ndim < 3:
            places = _picks(matrix)
            x = along_axis(x, axis, matrix) if places is None else af.gather(x, places, axis=axis)
    if not inner or x.ndim < 3:
        return x
    rows, columns = (inner.get(x.ndim - 2 + i, np.eye(x.shape[x.ndim - 2 + i])) for i in range(2))
    planes = x if x.ndim == 4 else x.reshape(1, math.prod(x.shape[:-2]), *x.shape[-2:])
    return _planar(planes, rows, columns).reshape(*x.shape[:-2], rows.shape[0], columns.shape[0])


def _planar(x: Tensor, rows: Array, columns: Array) -> Tensor:
    out, size = (rows.shape[0], columns.shape[0]), x.shape[2:]
    divides = all(a % b == 0 for a, b in zip(out, size, strict=True))
    factors = [a // b for a, b in zip(out, size, strict=True)]
    candidates = [_picks(matrix) for matrix in (rows, columns)]
    picks = [pick for pick in candidates if pick is not None]
    if len(picks) == 2:
        if divides and all(pick == [i // f for i in range(len(pick))] for pick, f in zip(picks, factors, strict=True)):
            return x.upsample(tuple(factors))
        if all(pick == [i * s // o for i in range(o)] for pick, s, o in zip(picks, size, out, strict=True)):
            return af.resize_nearest_neighbor(x, *out)
        for axis, pick in zip((2, 3), picks, strict=True):
            x = x if pick == list(range(x.shape[axis])) else af.gather(x, pick, axis=axis)
        return x
    for corners in (False, True):
        if all(_is_linear(matrix, corners) for matrix in (rows, columns)):
            if divides:
                return af.upsample_bilinear(x, tuple(factors), align_corners=corners)
            return af.resize_bilinear(x, *out, align_corners=corners)
    x = x if _is_eye(rows) else af.const(rows) @ x
    return x if _is_eye(columns) else x @ af.const(columns.T)


def _picks(matrix: Array) -> list[int] | None:
    """For each row the one element that it copies; None if a row mixes elements."""
    is_pick = ((matrix == 0) | (matrix == 1)).all() and (matrix.sum(axis=1) == 1).all()
    return [int(place) for place in matrix.argmax(axis=1)] if is_pick else None


def _is_eye(matrix: Array) -> bool:
    return matrix.shape[0] == matrix.shape[1] and bool((matrix == np.eye(len(matrix))).all())


def _is_linear(matrix: Array, corners: bool) -> bool:
    """Whether these are the weights of the engine's bilinear resize."""
    out, extent = matrix.shape
    how = Sampling("linear", "align_corners" if corners else "half_pixel")
    return bool(np.allclose(matrix, resize_weights(extent, out, out / extent, how)[0], rtol=0, atol=1e-6))


# Grids and regions.


_GRID_MODES = {"nearest": "nearest", "linear": "linear", "cubic": "cubic", "bilinear": "linear", "bicubic": "cubic"}
_GRID_PADDINGS = ("zeros", "border", "reflection")


def grid_sample(
    x: Numeric, grid: Value, mode: str = "linear", padding_mode: str = "zeros", align_corners: bool = False
) -> Tensor:
    """Sample ``x`` [N, C, ...] at the places of ``grid`` [N, ..., axes]. Coordinates are from -1 to 1, the last axis
    first. Pictures are read by the engine's sampler where it has the mode; the rest is a product, if the grid is
    known."""
    if mode not in _GRID_MODES or padding_mode not in _GRID_PADDINGS:
        raise NoForm(
            f"mode {mode!r} with padding {padding_mode!r} is not supported; choose mode nearest, linear, cubic, "
            f"padding {', '.join(_GRID_PADDINGS)}"
        )
    extents = x.shape[2:]
    if grid.shape[0] != x.shape[0] or grid.shape[-1] != len(extents):
        raise LoadError(f"the grid {list(grid.shape)} does not fit the input {list(x.shape)}")
    if len(extents) == 2 and _GRID_MODES[mode] != "cubic" and padding_mode != "reflection":
        inside = grid if padding_mode == "zeros" else inside_image(grid, extents, "normalized", align_corners)
        return af.resample(x, inside, "nearest" if mode == "nearest" else "bilinear", align_corners=align_corners)
    if isinstance(grid, Tensor):
        raise NoForm(
            f"mode {mode!r} with padding {padding_mode!r} at computed places of {len(extents)} axes is not supported; "
            "the engine samples pictures, nearest or linear, with zeros or the border outside"
        )
    points = np.asarray(grid, np.float64).reshape(grid.shape[0], -1, len(extents))[:, :, ::-1]
    count = points.shape[1] * math.prod(extents) * len(points)
    if count > _MOST_WEIGHTS:
        raise NoForm(
            f"{points.shape[1]:,} points of {list(extents)} need {count:,} weights; the limit is {_MOST_WEIGHTS:,}"
        )
    matrices = [_grid_weights(sample, extents, _GRID_MODES[mode], padding_mode, align_corners) for sample in points]
    shared = all((matrix == matrices[0]).all() for matrix in matrices[1:])
    weights = np.stack([matrix.T for matrix in (matrices[:1] if shared else matrices)])
    result = x.reshape(*x.shape[:2], math.prod(extents)) @ af.const(weights)
    return result.reshape(*x.shape[:2], *grid.shape[1:-1])


def sampled_numbers(x: Array, grid: Array, mode: str, padding: str, align_corners: bool) -> Array:
    """The same on numbers, for a grid that is computed: one product along each axis in turn."""
    samples, channels, *extents = x.shape
    points = np.asarray(grid, np.float64).reshape(samples, -1, len(extents))[:, :, ::-1]
    results = []
    for image, places in zip(np.asarray(x, np.float64), points, strict=True):
        value = np.broadcast_to(image, (1, *image.shape))  # [places or 1, channels, axes that are left]
        for axis, extent in enumerate(extents):
            weights = _axis_weights(places[:, axis], extent, mode, padding, align_corners)
            value = np.einsum("pe,qce...->pc..." if len(value) == 1 else "pe,pce...->pc...", weights, value)
        results.append(value.T)
    return np.stack(results).reshape(samples, channels, *grid.shape[1:-1])


def _grid_weights(points: Array, extents: Sequence[int], mode: str, padding: str, corners: bool) -> Array:
    """Weights [places, elements]: the product of the weights along each axis."""
    total = np.ones((len(points), 1))
    for axis, extent in enumerate(extents):
        line = _axis_weights(points[:, axis], extent, mode, padding, corners)
        total = (total[:, :, None] * line[:, None, :]).reshape(len(points), -1)
    return total


def _axis_weights(points: Array, extent: int, mode: str, padding: str, corners: bool) -> Array:
    positions = (points + 1) / 2 * (extent - 1) if corners else ((points + 1) * extent - 1) / 2
    low, high = (0.0, extent - 1.0) if corners else (-0.5, extent - 0.5)
    positions = np.rint(positions) if mode == "nearest" else positions
    if mode != "cubic":  # each of its four taps is brought inside by itself
        positions = _bring_inside(positions, extent, low, high, padding)
    weights = np.zeros((len(positions), extent))
    rows = np.arange(len(positions))
    first = np.floor(positions).astype(int)
    for tap in {"nearest": [0], "linear": [0, 1], "cubic": [-1, 0, 1, 2]}[mode]:
        place = first + tap
        distance = np.abs(positions - place)
        part = {"nearest": np.ones_like, "linear": lambda d: 1 - d, "cubic": lambda d: cubic_kernel(d, -0.75)}[mode]
        share = part(distance)
        if padding == "zeros":
            share = np.where((place < 0) | (place >= extent), 0.0, share)
        else:
            place = _bring_inside(place.astype(np.float64), extent, low, high, padding).astype(int)
        weights[rows, np.clip(place, 0, extent - 1)] += share
    return weights


def _bring_inside(positions: Array, extent: int, low: float, high: float, padding: str) -> Array:
    """Move positions outside the line to the border pixel, or mirror them at the border."""
    if padding == "border":
        return np.where((positions < low) | (positions > high), np.clip(positions, 0, extent - 1), positions)
    if padding != "reflection":
        return positions
    span = high - low
    if span == 0:
        return np.zeros_like(positions)
    away = np.mod(positions - low, 2 * span)
    mirrored = np.where(away > span, 2 * span - away, away) + low
    return np.where((positions < low) | (positions > high), mirrored, positions)


def inside_image(coordinates: Value, space: Sequence[int], mode: str, align_corners: bool) -> Value:
    """Coordinates [..., column and row] moved to the nearest place of an image."""
    if isinstance(coordinates, Encoded):
        raise NoForm("compressed coordinates are not supported; store them as fp16")
    size = np.array(space[::-1], np.float64)
    high = size - 1 if mode == "unnormalized" else np.ones(2) if align_corners else 1 - 1 / size
    low = size * 0 if mode == "unnormalized" else -high
    if not isinstance(coordinates, Tensor):
        return np.clip(coordinates, low, high)
    return af.minimum(af.maximum(coordinates, af.const(low)), af.const(high))


def image_of(x: Tensor, number: int) -> Tensor:
    """One image of a batch."""
    return x if x.shape[0] == 1 else x.slice_by_size([number, 0, 0, 0], [1, *x.shape[1:]])


def cut_boxes(x: Tensor, boxes: Any, numbers: Value, *settings: Any) -> Tensor:
    """The crop of each box from the image that ``numbers`` names; boxes in a row of one image are cut together."""
    count = boxes.shape[0]
    if x.shape[0] == 1:
        return af.crop_resize(x, boxes, *settings)
    images = known(numbers, "the image of each box").reshape(-1).astype(int).tolist()
    if len(images) != count or not all(0 <= image < x.shape[0] for image in images):
        raise LoadError(f"{count} boxes have images {images}; expected {count} numbers from 0 to {x.shape[0] - 1}")
    parts, first = [], 0
    for image, run in itertools.groupby(images):
        last = first + len(list(run))
        parts.append(af.crop_resize(image_of(x, image), boxes[first:last], *settings))
        first = last
    return parts[0] if len(parts) == 1 else af.concat(parts, axis=0)


def affine_grid(theta: Tensor, size: list[int], align_corners: bool = False) -> Tensor:
    """Places [N, ..., axes] of an image of ``size`` [N, C, ...] under the maps ``theta`` [N, axes, axes + 1]."""
    if len(size) not in (4, 5) or math.prod(size[2:]) > _MOST_PLACES or min(size) < 1:
        raise LoadError(
            f"size is {list(size)}; expected 4 or 5 extents of 1 or more, with up to {_MOST_PLACES:,} places"
        )
    lines = []
    for extent in size[2:]:
        steps = np.arange(extent, dtype=np.float64)
        even = np.linspace(-1, 1, extent) if extent > 1 else np.zeros(1)
        lines.append(even if align_corners else (2 * steps + 1) / extent - 1)
    grid = np.meshgrid(*lines, indexing="ij")
    points = np.stack([*(line.reshape(-1) for line in grid[::-1]), np.ones(grid[0].size)], axis=-1)
    places = af.const(points) @ theta.mT
    return places.reshape(theta.shape[0], *size[2:], len(lines))


def roi_align(
    x: Tensor, regions: Any, samples: Value, out: tuple[int, int], ratio: int, scale: float, half_pixel: bool
) -> Tensor:
    """The mean of sample points in each cell of each region [x1, y1, x2, y2].

    With a fixed number of points: crops that hold the points, and a pool over each cell. A point up to one pixel
    outside reads the border and one further out zero, so the image gets a border of one pixel. Otherwise products with
    weights for rows and columns, if the regions are known."""
    if not 0 < regions.shape[0] <= _MOST_REGIONS or min(out) < 1:
        raise NoForm(
            f"{regions.shape[0]} regions of {list(out)} cells are not supported; 1 to {_MOST_REGIONS} regions are"
        )
    if ratio > 0:
        shift = 1.0 - (0.5 if half_pixel else 0.0)
        wide = af.pad(x, [(0, 0), (0, 0), (1, 1), (1, 1)], mode="replicate")
        size = out[0] * ratio, out[1] * ratio
        settings = (*size, False, "CORNERS_WIDTH_FIRST", "OFFSET_CORNERS")
        points = cut_boxes(wide, regions * scale + shift, samples, *settings)
        return points if ratio == 1 else points.avg_pool(ratio, ratio)
    if isinstance(regions, Tensor):
        raise NoForm(
            "sampling_ratio 0 takes as many points as a region is large; with computed regions, state a ratio"
        )
    cells = []
    for region, sample in zip(np.asarray(regions, np.float64), known(samples, "batch_indices").tolist(), strict=True):
        left, top, right, bottom = region * scale - (0.5 if half_pixel else 0.0)
        rows = _region_weights(top, bottom, x.shape[2], out[0], half_pixel)
        columns = _region_weights(left, right, x.shape[3], out[1], half_pixel)
        cells.append(af.const(rows) @ image_of(x, int(sample)) @ af.const(columns.T))
    return cells[0] if len(cells) == 1 else af.concat(cells, axis=0)


def _region_weights(first: float, last: float, extent: int, cells: int, half_pixel: bool) -> Array:
    length = last - first if half_pixel else max(last - first, 1.0)
    size = length / cells
    count = max(1, math.ceil(length / cells))
    if cells * max(count, extent) > _MOST_PLACES // 16:
        raise NoForm(
            f"a region of {cells} cells with {count} points each is too large; the limit is {_MOST_PLACES // 16:,}"
        )
    points = first + np.arange(cells)[:, None] * size + (np.arange(count) + 0.5) * size / count
    inside = (points >= -1) & (points <= extent)
    return (mixing_weights(points, extent) * inside[..., None]).mean(axis=1)
