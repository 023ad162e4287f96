"""Pools and the texture engine's resampling."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from aneforge.engine.interpret_contraction import windows
from aneforge.engine.ir import AnecError, Op

Array = np.ndarray


def _pool_windows(op: Op, x: Array, fill: float) -> Array:
    pads = op.attrs["padding"]
    padded = np.pad(x, ((0, 0), pads[0:2], (0, 0), pads[2:4], pads[4:6]), constant_values=fill)
    return windows(padded, op.attrs["ksize"], op.attrs["stride"], (1, 1, 1))


def _laid(result: Array) -> Array:
    return result.transpose(0, 2, 1, 3, 4)  # windows() gives NCDHW


def _max_pool(op: Op, x: Array) -> Array:
    return _laid(_pool_windows(op, x, -np.inf).max(axis=(5, 6, 7)))


def _average_pool(op: Op, x: Array) -> Array:
    """Padding counts as zeros with ``inc_pad``, else only real elements are counted."""
    total = _pool_windows(op, x, 0.0).sum(axis=(5, 6, 7))
    if op.attrs.get("inc_pad"):
        return _laid(total / np.prod(op.attrs["ksize"]))
    return _laid(total / _pool_windows(op, np.ones((1, x.shape[1], 1, *x.shape[3:])), 0.0).sum(axis=(5, 6, 7)))


def _l2norm_pool(op: Op, x: Array) -> Array:
    return _laid(np.sqrt(_pool_windows(op, np.square(x), 0.0).sum(axis=(5, 6, 7))))


def sample_positions(size: int, out: int, mode: str) -> Array:
    """Where each output samples (enums.json SamplingGridMode). The modes are those of the model language's resize:
    strict corners put a single output at the first element, plain aligned corners in the middle."""
    return np.clip(_places(size, out, mode), 0, size - 1)


def _places(size: float, out: int, mode: str) -> Array:
    steps = np.arange(out, dtype=np.float64)
    if mode in ("StrictAlignedCorners", "AlignedCorners"):
        if out == 1:
            return np.array([0.0 if mode == "StrictAlignedCorners" else (size - 1) / 2])
        return steps * ((size - 1) / (out - 1))
    if mode == "UnalignedCorners":
        return (steps + 0.5) * (size / out) - 0.5
    if mode == "OffsetCorners":
        return (steps + 0.5) * (max(1, size - 1) / out)
    if mode == "Default":
        return steps * size / out
    raise AnecError(f"sampling mode {mode!r} is not supported, since its meaning is not published; use another mode")


def _line(x: Array, axis: int, positions: Array, method: str, mode: str) -> Array:
    if method == "NearestNeighbor":
        offset = 0.0 if mode == "Default" else 0.5  # the default grid rounds down, the others to the nearest
        return np.take(x, np.minimum(np.floor(positions + offset).astype(int), x.shape[axis] - 1), axis)
    if method != "Linear":
        raise AnecError(f"sampling method {method!r} is unknown; choose one: NearestNeighbor, Linear")
    low = np.floor(positions).astype(int)
    high = np.minimum(low + 1, x.shape[axis] - 1)
    shape = [1] * 5
    shape[axis] = len(positions)
    part = (positions - low).reshape(shape)
    return np.take(x, low, axis) * (1 - part) + np.take(x, high, axis) * part


def _resized(x: Array, height: int, width: int, method: str, mode: str) -> Array:
    rows = _line(x, 3, sample_positions(x.shape[3], height, mode), method, mode)
    return _line(rows, 4, sample_positions(x.shape[4], width, mode), method, mode)


def _resize(op: Op, x: Array) -> Array:
    """Height and width decide the result; the scale factors only repeat what the user wrote."""
    attrs = op.attrs
    return _resized(x, attrs["height"], attrs["width"], attrs["sampling_methods"], attrs["sampling_modes"])


def _crop_resize(op: Op, x: Array, boxes: Array) -> Array:
    """One crop of ``crop_dims`` per box, resized to ``output_dims`` and stacked along the batch. A box is a row
    (channel) whose first two columns are its top and left pixel; one that leaves the map is moved back inside. The
    data name the layer only, so this is assumed."""
    if "crop_dims" not in op.attrs:
        return _boxes(op, x, boxes)
    rows, columns = op.attrs["crop_dims"]
    height, width = op.attrs["output_dims"]
    parts = []
    for top, left in np.clip(boxes[0, 0, :, 0, :2], 0, (x.shape[3] - rows, x.shape[4] - columns)).astype(int):
        crop = x[:, :, :, top : top + rows, left : left + columns]
        method, mode = op.attrs["sampling_method"], op.attrs["sampling_mode"]
        parts.append(_resized(crop, height, width, method, mode))
    return np.concatenate(parts, axis=0)


def _boxes(op: Op, x: Array, boxes: Array) -> Array:
    """Boxes of two corners, whose size is known when the program runs: each is read at the places of a resize, and
    places outside the image are the background (U160)."""
    mode, extents = op.attrs["box_coordinate_mode"], x.shape[3:]
    scale = (1, 1) if op.attrs["coordinate_mode"] == "NonNormalized" else [extent - 1 for extent in extents]
    parts = []
    for box in boxes[0, 0, :, 0, :4]:
        one, two = (box[:2], box[2:]) if mode.endswith("HeightFirst") else (box[1::-1], box[:1:-1])
        starts, ends = (one - two / 2, one + two / 2) if mode.startswith("CenterSize") else (one, two)
        lines = []
        for i, out in enumerate(op.attrs["output_dims"]):
            first, last = starts[i] * scale[i], ends[i] * scale[i]
            lines.append(np.clip(first + _places(last - first + 1, out, op.attrs["sampling_mode"]), first, last))
        inside = [(line >= 0) & (line <= extent - 1) for line, extent in zip(lines, extents, strict=True)]
        rows, columns = np.meshgrid(*lines, indexing="ij")
        read = np.where(np.logical_and.outer(*inside), sampled(x[0, 0], columns, rows), op.attrs["background_value"])
        parts.append(read[None])
    return np.stack(parts)


def sampled(x: Array, px: Array, py: Array, background: float = 0.0, nearest: bool = False) -> Array:
    """[C, H, W] read at real positions (columns, rows); outside is the background."""
    _, h, w = x.shape
    if nearest:
        px, py = np.rint(px), np.rint(py)
    left, top = np.floor(px).astype(int), np.floor(py).astype(int)
    result = np.zeros((x.shape[0], *px.shape))
    for dy in (0, 1):
        for dx in (0, 1):
            cx, cy = left + dx, top + dy
            weight = (1 - np.abs(px - cx)) * (1 - np.abs(py - cy))
            inside = (cx >= 0) & (cx < w) & (cy >= 0) & (cy < h)
            read = x[:, np.clip(cy, 0, h - 1), np.clip(cx, 0, w - 1)]
            result += np.where(inside, read, background) * weight
    return result


def _resample(op: Op, x: Array, grid: Array) -> Array:
    """The grid's first channel is the column, its second the row (one channel: rows stay); pixels, or -1 to 1."""
    n, _, _, h, w = x.shape
    parts = []
    for i in range(n):
        px = grid[i, 0, 0]
        py = grid[i, 0, 1] if grid.shape[2] == 2 else np.indices(px.shape)[0].astype(np.float64)
        if op.attrs["coordinate_mode"] == "NormalizedSymmetric":
            edge = (
                0 if op.attrs["sampling_mode"] == "UnalignedCorners" else 1
            )  # the ends are edges or centres of pixels
            px = (px + 1) * (w - edge) / 2 - (1 - edge) / 2
            py = (py + 1) * (h - edge) / 2 - (1 - edge) / 2 if grid.shape[2] == 2 else py
        elif op.attrs["coordinate_mode"] != "NonNormalized":
            raise AnecError(
                f"coordinate mode {op.attrs['coordinate_mode']!r} is unknown; "
                "choose one: NormalizedSymmetric, NonNormalized"
            )
        nearest = op.attrs["sampling_method"] == "NearestNeighbor"
        parts.append(sampled(x[i, 0], px, py, op.attrs["background_value"], nearest))
    return np.stack(parts)[:, None]


RULES: dict[str, Callable[..., Array]] = {
    "max_pool": _max_pool,
    "average_pool": _average_pool,
    "l2norm_pool": _l2norm_pool,
    "resize": _resize,
    "crop_resize": _crop_resize,
    "resample": _resample,
}
