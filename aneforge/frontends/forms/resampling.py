"""Resampling at places that are known when a model is read: weights for each axis, and the engine's own resizes where
they mean the same."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from aneforge.frontends import LoadError
from aneforge.frontends.values import NoForm, along_axis
from aneforge.graph import builders as af
from aneforge.graph.tensor import Tensor

__all__ = ["Sampling", "affine_grid", "grid_sample", "resampled", "resize_weights", "roi_align"]

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
    """[out, extent]: what each result takes of the line, and which results lie outside the region."""
    if out < 1 or not 0 < scale < math.inf:
        raise LoadError(f"resizing {extent} places to {out} by a factor of {scale:g} leaves no places")
    if extent * out > _MOST_WEIGHTS:
        raise NoForm(f"resizing {extent} places to {out} needs {extent * out:,} weights; up to {_MOST_WEIGHTS:,} fit")
    source = _source(extent, out, scale, how.coordinates, region)
    outside = (source < 0) | (source > extent - 1) if region is not None else np.zeros(out, bool)
    if how.mode == "nearest" and not how.antialias:
        weights = np.eye(extent)[np.clip(_rounded(source, how.rounding), 0, extent - 1)]
    else:
        weights = _mixed(source, extent, scale, how)
    weights[outside] = 0.0
    return weights, outside


def _source(extent: int, out: int, scale: float, how: str, region: tuple[float, float] | None) -> Array:
    """Where along the line each result is taken."""
    at = np.arange(out, dtype=np.float64)
    length = scale * extent  # of the result, before it was cut to a whole number
    if how == "tf_crop_and_resize":
        first, last = region or (0.0, 1.0)
        step = (last - first) * (extent - 1)
        along = np.full(out, step / 2) if length == 1 else at * step / (length - 1)
        return first * (extent - 1) + along
    if how == "align_corners":
        return np.zeros(out) if length == 1 else at * (extent - 1) / (length - 1)
    if how == "asymmetric":
        return at / scale
    if how == "tf_half_pixel_for_nn":
        return (at + 0.5) / scale
    if how == "pytorch_half_pixel" and out == 1:
        return np.zeros(1)
    middle = (at + 0.5) / scale - 0.5
    if how == "half_pixel_symmetric":
        return middle + extent / 2 * (1 - out / length)
    if how not in ("half_pixel", "pytorch_half_pixel"):
        raise NoForm(f"coordinate mode {how!r} is not supported for a resize")
    return middle


def _rounded(source: Array, how: str) -> Array:
    ways = {
        "round_prefer_floor": lambda: np.ceil(source - 0.5),
        "round_prefer_ceil": lambda: np.floor(source + 0.5),
        "floor": lambda: np.floor(source),
        "ceil": lambda: np.ceil(source),
    }
    if how not in ways:
        raise NoForm(f"rounding mode {how!r} is not supported for a resize")
    return ways[how]().astype(int)


def _mixed(source: Array, extent: int, scale: float, how: Sampling) -> Array:
    """Weights of a kernel around each place; a line shrunk with ``antialias`` has a kernel as much wider."""
    if how.mode not in ("linear", "cubic"):
        raise NoForm(f"interpolation {how.mode!r}{' with antialias' if how.antialias else ''} is not supported")
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
    """The cubic convolution of Keys, by the distance in pixels."""
    near = ((a + 2) * distance - (a + 3)) * distance**2 + 1
    far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    return np.where(distance <= 1, near, np.where(distance < 2, far, 0.0))


# One resize of a tensor.


def resampled(x: Tensor, weights: Mapping[int, Array]) -> Tensor:
    """Each axis by its weights [out, in]. Along the last two axes the engine's own ops, where they mean the same."""
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
    whole = all(a % b == 0 for a, b in zip(out, size, strict=True))
    factors = [a // b for a, b in zip(out, size, strict=True)]
    taken = [_picks(each) for each in (rows, columns)]
    picks = [each for each in taken if each is not None]
    if len(picks) == 2:
        if whole and all(each == [i // f for i in range(len(each))] for each, f in zip(picks, factors, strict=True)):
            return x.upsample(tuple(factors))
        if all(each == [i * s // o for i in range(o)] for each, s, o in zip(picks, size, out, strict=True)):
            return af.resize_nearest_neighbor(x, *out)
        for axis, each in zip((2, 3), picks, strict=True):
            x = x if each == list(range(x.shape[axis])) else af.gather(x, each, axis=axis)
        return x
    for corners in (False, True):
        if all(_is_linear(each, corners) for each in (rows, columns)):
            if whole:
                return af.upsample_bilinear(x, tuple(factors), align_corners=corners)
            return af.resize_bilinear(x, *out, align_corners=corners)
    x = x if _is_eye(rows) else af.const(rows) @ x
    return x if _is_eye(columns) else x @ af.const(columns.T)


def _picks(matrix: Array) -> list[int] | None:
    """The one element that each row takes, if it takes one."""
    plain = ((matrix == 0) | (matrix == 1)).all() and (matrix.sum(axis=1) == 1).all()
    return [int(each) for each in matrix.argmax(axis=1)] if plain else None


def _is_eye(matrix: Array) -> bool:
    return matrix.shape[0] == matrix.shape[1] and bool((matrix == np.eye(len(matrix))).all())


def _is_linear(matrix: Array, corners: bool) -> bool:
    """Whether these are the weights of the engine's bilinear resize."""
    out, extent = matrix.shape
    how = Sampling("linear", "align_corners" if corners else "half_pixel")
    return bool(np.allclose(matrix, resize_weights(extent, out, out / extent, how)[0], rtol=0, atol=1e-6))


# Grids and regions.


def grid_sample(x: Tensor, grid: Array, mode: str, padding: str, align_corners: bool) -> Tensor:
    """``x`` [N, C, ...] at the places of ``grid`` [N, ..., axes], the last axis first, from -1 to 1."""
    extents = x.shape[2:]
    if grid.shape[0] != x.shape[0] or grid.shape[-1] != len(extents):
        raise LoadError(f"the grid {list(grid.shape)} does not fit the input {list(x.shape)}")
    points = np.asarray(grid, np.float64).reshape(grid.shape[0], -1, len(extents))[:, :, ::-1]
    if points.shape[1] * math.prod(extents) * len(points) > _MOST_WEIGHTS:
        raise NoForm(f"sampling {list(extents)} at {points.shape[1]:,} points needs too many weights")
    matrices = [_grid_weights(each, extents, mode, padding, align_corners) for each in points]
    same = all((each == matrices[0]).all() for each in matrices[1:])
    weights = np.stack([each.T for each in (matrices[:1] if same else matrices)])
    found = x.reshape(*x.shape[:2], math.prod(extents)) @ af.const(weights)
    return found.reshape(*x.shape[:2], *grid.shape[1:-1])


def _grid_weights(points: Array, extents: Sequence[int], mode: str, padding: str, corners: bool) -> Array:
    """[places, elements]: the product of what each axis gives."""
    total = np.ones((len(points), 1))
    for axis, extent in enumerate(extents):
        line = _axis_weights(points[:, axis], extent, mode, padding, corners)
        total = (total[:, :, None] * line[:, None, :]).reshape(len(points), -1)
    return total


def _axis_weights(points: Array, extent: int, mode: str, padding: str, corners: bool) -> Array:
    at = (points + 1) / 2 * (extent - 1) if corners else ((points + 1) * extent - 1) / 2
    low, high = (0.0, extent - 1.0) if corners else (-0.5, extent - 0.5)
    at = np.rint(at) if mode == "nearest" else at
    at = _held(at, extent, low, high, padding)
    weights = np.zeros((len(at), extent))
    rows = np.arange(len(at))
    first = np.floor(at).astype(int)
    for tap in {"nearest": [0], "linear": [0, 1], "cubic": [-1, 0, 1, 2]}[mode]:
        place = first + tap
        distance = np.abs(at - place)
        part = {"nearest": np.ones_like, "linear": lambda d: 1 - d, "cubic": lambda d: cubic_kernel(d, -0.75)}[mode]
        share = part(distance)
        if padding == "zeros":
            share = np.where((place < 0) | (place >= extent), 0.0, share)
        else:
            place = _held(place.astype(np.float64), extent, low, high, padding).astype(int)
        weights[rows, np.clip(place, 0, extent - 1)] += share
    return weights


def _held(at: Array, extent: int, low: float, high: float, padding: str) -> Array:
    """Places outside moved to the border pixel, or mirrored at the border."""
    if padding == "border":
        return np.where((at < low) | (at > high), np.clip(at, 0, extent - 1), at)
    if padding != "reflection":
        return at
    span = high - low
    if span == 0:
        return np.zeros_like(at)
    away = np.mod(at - low, 2 * span)
    mirrored = np.where(away > span, 2 * span - away, away) + low
    return np.where((at < low) | (at > high), mirrored, at)


def affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool) -> Tensor:
    """Places [N, ..., axes] of an image of ``size`` [N, C, ...] under the maps ``theta`` [N, axes, axes + 1]."""
    if len(size) not in (4, 5) or math.prod(size[2:]) > _MOST_PLACES or min(size) < 1:
        raise LoadError(f"a grid cannot be made for the size {list(size)}")
    lines = []
    for extent in size[2:]:
        steps = np.arange(extent, dtype=np.float64)
        even = np.linspace(-1, 1, extent) if extent > 1 else np.zeros(1)
        lines.append(even if align_corners else (2 * steps + 1) / extent - 1)
    grid = np.meshgrid(*lines, indexing="ij")
    points = np.stack([*(each.reshape(-1) for each in grid[::-1]), np.ones(grid[0].size)], axis=-1)
    found = af.const(points) @ theta.mT
    return found.reshape(theta.shape[0], *size[2:], len(lines))


def roi_align(
    x: Tensor, regions: Array, samples: Array, out: tuple[int, int], ratio: int, scale: float, half_pixel: bool
) -> Tensor:
    """The mean of points in each cell of each region [x1, y1, x2, y2] of a sample: weights for rows and columns."""
    if not 0 < len(regions) <= _MOST_REGIONS or min(out) < 1:
        raise NoForm(f"{len(regions)} regions of {out}; the limit is {_MOST_REGIONS}")
    found = []
    for region, sample in zip(np.asarray(regions, np.float64), samples.tolist(), strict=True):
        left, top, right, bottom = region * scale - (0.5 if half_pixel else 0.0)
        rows = _region_weights(top, bottom, x.shape[2], out[0], ratio, half_pixel)
        columns = _region_weights(left, right, x.shape[3], out[1], ratio, half_pixel)
        begin = [int(sample), 0, 0, 0]
        plane = x if x.shape[0] == 1 else x.slice_by_size(begin, [1, *x.shape[1:]])
        found.append(af.const(rows) @ plane @ af.const(columns.T))
    return found[0] if len(found) == 1 else af.concat(found, axis=0)


def _region_weights(first: float, last: float, extent: int, cells: int, ratio: int, half_pixel: bool) -> Array:
    length = last - first if half_pixel else max(last - first, 1.0)
    size = length / cells
    count = ratio if ratio > 0 else max(1, math.ceil(length / cells))
    if cells * max(count, extent) > _MOST_PLACES // 16:
        raise NoForm(f"a region of {cells} cells with {count} points each needs too many weights")
    at = first + np.arange(cells)[:, None] * size + (np.arange(count) + 0.5) * size / count
    inside = (at >= -1) & (at <= extent)
    held = np.clip(at, 0, extent - 1)
    low = np.floor(held).astype(int)
    weights = np.zeros((cells, extent))
    for row, sample in np.ndindex(at.shape):
        if inside[row, sample]:
            place, part = low[row, sample], held[row, sample] - low[row, sample]
            weights[row, place] += (1 - part) / count
            weights[row, min(place + 1, extent - 1)] += part / count
    return weights
