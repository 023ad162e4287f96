"""What the host computes of images and boxes: reading an image at points, and choosing among boxes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from aneforge.frontends import LoadError
from aneforge.frontends.importer.op import Op

__all__ = ["SAMPLING"]


def _reflected(places: np.ndarray, extent: int, border: bool) -> np.ndarray:
    """Places beyond an end, folded back; ``border`` says that the end stands twice."""
    if extent == 1:
        return np.zeros_like(places)
    period = 2 * extent if border else 2 * (extent - 1)
    folded = np.mod(places, period)
    return np.where(folded >= extent, period - folded - (1 if border else 0), folded)


def _pixel(value: np.ndarray, extent: int, mode: str, align: bool) -> np.ndarray:
    """A coordinate as a place along an axis, the centre of the first pixel at zero."""
    if mode == "unnormalized":
        return value
    share = (value + 1) / 2 if mode == "normalized_minus_one_to_one" else value
    return share * (extent - 1) if align else share * extent - 0.5


def _resample(op: Op) -> np.ndarray:
    x, points = op.known("x").astype(np.float64), op.known("coordinates").astype(np.float64)
    mode, align = op.text("coordinates_mode"), op.truth("align_corners")
    height, width = x.shape[2:]
    columns = _pixel(points[..., 0], width, mode, align)
    rows = _pixel(points[..., 1], height, mode, align)
    if op.text("sampling_mode") == "nearest":
        corners = [(np.rint(rows), np.rint(columns), np.ones_like(rows))]
    else:
        top, left = np.floor(rows), np.floor(columns)
        down, right = rows - top, columns - left
        corners = [
            (top + i, left + j, (down if i else 1 - down) * (right if j else 1 - right))
            for i in (0, 1)
            for j in (0, 1)
        ]
    return sum(_read(op, x, *each) for each in corners)  # type: ignore[return-value]


def _read(op: Op, x: np.ndarray, rows: np.ndarray, columns: np.ndarray, share: np.ndarray) -> np.ndarray:
    mode = op.text("padding_mode")
    if mode not in ("constant", "border", "reflection", "symmetric"):
        raise LoadError(f"no padding by {mode!r}")
    places, outside = [], np.zeros(rows.shape, bool)
    for line, extent in ((rows, x.shape[2]), (columns, x.shape[3])):
        outside |= (line < 0) | (line > extent - 1)
        folded = _reflected(line, extent, mode == "symmetric") if mode in ("reflection", "symmetric") else line
        places.append(np.clip(folded, 0, extent - 1).astype(int))
    batch = np.arange(x.shape[0])[:, None, None]
    found = np.moveaxis(x[batch, :, places[0], places[1]], -1, 1)
    if mode == "constant":
        found = np.where(outside[:, None], op.number("padding_value", 0.0), found)
    return found * share[:, None]


def _overlap(box: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Intersection over union of boxes (x, y, width, height) about their centres."""
    low = np.maximum(box[:2] - box[2:] / 2, others[:, :2] - others[:, 2:] / 2)
    high = np.minimum(box[:2] + box[2:] / 2, others[:, :2] + others[:, 2:] / 2)
    shared = np.clip(high - low, 0, None).prod(axis=1)
    union = box[2:].prod() + others[:, 2:].prod(axis=1) - shared
    return np.where(union > 0, shared / np.where(union > 0, union, 1), 0.0)


def _chosen(boxes: np.ndarray, scores: np.ndarray, limit: float, least: float, most: int, by_class: bool) -> list[int]:
    best, kind = scores.max(axis=1), scores.argmax(axis=1)
    order = [int(i) for i in np.argsort(-best, kind="stable")]
    left = [i for i in order if best[i] >= least] or order[:1]  # never none: the best box stands in
    kept: list[int] = []
    while left and len(kept) < most:
        first, *left = left
        kept.append(first)
        over = _overlap(boxes[first], boxes[left]) > limit
        left = [i for i, hit in zip(left, over, strict=True) if not (hit and (not by_class or kind[i] == kind[first]))]
    return kept


def _suppressed(op: Op) -> list[np.ndarray]:
    """Boxes by falling score, without those that overlap one already taken; places left over hold zeros, index -1."""
    boxes, scores = op.known("boxes").astype(np.float64), op.known("scores").astype(np.float64)
    old = op.has("score_threshold")
    if not old:
        boxes, scores = boxes.swapaxes(1, 2), scores.swapaxes(1, 2)
    most, least = op.whole("max_boxes"), op.number("score_threshold", -math.inf)
    count = len(boxes)
    found = [np.zeros((count, most, 4)), np.zeros((count, most, scores.shape[2])), np.full((count, most), -1)]
    numbers = np.zeros(count, np.int32)
    for place in range(count):
        settings = op.number("iou_threshold"), least, most, op.truth("per_class_suppression")
        kept = _chosen(boxes[place], scores[place], *settings)
        numbers[place] = len(kept)
        for target, source in zip(found, (boxes[place], scores[place], np.arange(len(boxes[place]))), strict=True):
            target[place, : len(kept)] = source[kept]
    if old:
        return [*found, numbers]
    return [found[0].swapaxes(1, 2), found[1].swapaxes(1, 2), found[2]]


SAMPLING: dict[str, Callable[[Op], Any]] = {"non_maximum_suppression": _suppressed, "resample": _resample}
