"""Ops of images and boxes that the host computes: sampling an image at points, and choosing boxes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from aneforge.frontends import LoadError
from aneforge.frontends.importer.op import Op

_PADDING_MODES = ("constant", "border", "reflection", "symmetric")


def _reflected(places: np.ndarray, extent: int, border: bool) -> np.ndarray:
    """Mirror places beyond an end back into the line; ``border`` says that the end is repeated."""
    if extent == 1:
        return np.zeros_like(places)
    period = 2 * extent if border else 2 * (extent - 1)
    folded = np.mod(places, period)
    return np.where(folded >= extent, period - folded - (1 if border else 0), folded)


def _pixel(value: np.ndarray, extent: int, mode: str, align: bool) -> np.ndarray:
    """A coordinate as a position along an axis; the centre of the first pixel is 0."""
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
    return sum(_read_pixels(op, x, *corner) for corner in corners)  # type: ignore[return-value]


def _read_pixels(op: Op, x: np.ndarray, rows: np.ndarray, columns: np.ndarray, share: np.ndarray) -> np.ndarray:
    mode = op.text("padding_mode")
    if mode not in _PADDING_MODES:
        raise LoadError(f"padding_mode is {mode!r}; choose one: {', '.join(_PADDING_MODES)}")
    places, outside = [], np.zeros(rows.shape, bool)
    for line, extent in ((rows, x.shape[2]), (columns, x.shape[3])):
        outside |= (line < 0) | (line > extent - 1)
        folded = _reflected(line, extent, mode == "symmetric") if mode in ("reflection", "symmetric") else line
        places.append(np.clip(folded, 0, extent - 1).astype(int))
    batch = np.arange(x.shape[0])[:, None, None]
    pixels = np.moveaxis(x[batch, :, places[0], places[1]], -1, 1)
    if mode == "constant":
        pixels = np.where(outside[:, None], op.number("padding_value", 0.0), pixels)
    return pixels * share[:, None]


def _overlap(box: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Intersection over union of boxes (x, y, width, height) about their centres."""
    low = np.maximum(box[:2] - box[2:] / 2, others[:, :2] - others[:, 2:] / 2)
    high = np.minimum(box[:2] + box[2:] / 2, others[:, :2] + others[:, 2:] / 2)
    shared = np.clip(high - low, 0, None).prod(axis=1)
    union = box[2:].prod() + others[:, 2:].prod(axis=1) - shared
    return np.where(union > 0, shared / np.where(union > 0, union, 1), 0.0)


def _select_boxes(
    boxes: np.ndarray, scores: np.ndarray, limit: float, least: float, most: int, by_class: bool
) -> list[int]:
    best, kind = scores.max(axis=1), scores.argmax(axis=1)
    order = [int(i) for i in np.argsort(-best, kind="stable")]
    candidates = [i for i in order if best[i] >= least] or order[:1]  # at least the best box is selected
    selected: list[int] = []
    while candidates and len(selected) < most:
        best_box, *candidates = candidates
        selected.append(best_box)
        over = _overlap(boxes[best_box], boxes[candidates]) > limit
        candidates = [
            i
            for i, hit in zip(candidates, over, strict=True)
            if not (hit and (not by_class or kind[i] == kind[best_box]))
        ]
    return selected


def _suppress_boxes(op: Op) -> list[np.ndarray]:
    """Boxes by descending score, without those that overlap a selected box. Unused rows hold zeros and the index
    -1."""
    boxes, scores = op.known("boxes").astype(np.float64), op.known("scores").astype(np.float64)
    old = op.has("score_threshold")
    if not old:
        boxes, scores = boxes.swapaxes(1, 2), scores.swapaxes(1, 2)
    most, least = op.whole("max_boxes"), op.number("score_threshold", -math.inf)
    count = len(boxes)
    results = [np.zeros((count, most, 4)), np.zeros((count, most, scores.shape[2])), np.full((count, most), -1)]
    numbers = np.zeros(count, np.int32)
    for place in range(count):
        settings = op.number("iou_threshold"), least, most, op.truth("per_class_suppression")
        selected = _select_boxes(boxes[place], scores[place], *settings)
        numbers[place] = len(selected)
        for target, source in zip(results, (boxes[place], scores[place], np.arange(len(boxes[place]))), strict=True):
            target[place, : len(selected)] = source[selected]
    if old:
        return [*results, numbers]
    return [results[0].swapaxes(1, 2), results[1].swapaxes(1, 2), results[2]]


SAMPLING: dict[str, Callable[[Op], Any]] = {"non_maximum_suppression": _suppress_boxes, "resample": _resample}
