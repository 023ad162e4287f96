"""Native layers of the texture engine that read a map at computed places."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from aneforge.errors import GraphError
from aneforge.graph.node import entry, make, op
from aneforge.graph.ops.leaf import as_tensor
from aneforge.graph.ops.spatial import bilinear
from aneforge.graph.shapes import pair, rank_is
from aneforge.graph.traits import SAMPLED
from aneforge.graph.traits import GraphTrait as T

if TYPE_CHECKING:
    from aneforge.graph.tensor import Tensor

METHODS = ("Linear", "NearestNeighbor")
COORDINATES = ("NonNormalized", "NormalizedSymmetric")


@op(
    "resample",
    "x grid",
    "method coordinates",
    T.SAMPLING,
    native_layer=True,
    no_derivative=SAMPLED,
    backend="resample x grid | coordinates>coordinate_mode method>sampling_method sampling_mode=Default "
    "background_value=0.0",
    diverges_as="resize",
)
class RESAMPLE:
    """A map read at the columns and rows that a grid holds; zero outside."""

    @staticmethod
    def shape(x, grid, method, coordinates):
        rank_is(x, 4, "input")
        rank_is(grid, 4, "grid")
        if grid[0] != x[0] or grid[1] not in (1, 2):
            raise GraphError(f"the grid is {list(grid)}; expected [{x[0]}, 1 or 2, H, W]: columns, then rows")
        return *x[:2], *grid[2:]

    @staticmethod
    def reference(x, grid, method, coordinates):
        h, w = x.shape[2:]
        columns = grid[:, 0]
        rows = (
            grid[:, 1] if grid.shape[1] == 2 else np.broadcast_to(np.arange(columns.shape[1])[:, None], columns.shape)
        )
        if coordinates == "NormalizedSymmetric":
            columns = (columns + 1) * (w - 1) / 2
            rows = (rows + 1) * (h - 1) / 2 if grid.shape[1] == 2 else rows
        if method == "NearestNeighbor":
            columns, rows = np.floor(columns + 0.5), np.floor(rows + 0.5)
        left, top = np.floor(columns).astype(int), np.floor(rows).astype(int)
        images = np.arange(x.shape[0])[:, None, None]
        total = np.zeros((x.shape[0], *columns.shape[1:], x.shape[1]))
        for row in (top, top + 1):
            for column in (left, left + 1):
                share = (1 - np.abs(columns - column)) * (1 - np.abs(rows - row))
                inside = (column >= 0) & (column < w) & (row >= 0) & (row < h)
                read = x[images, :, np.clip(row, 0, h - 1), np.clip(column, 0, w - 1)]
                total += read * (share * inside)[..., None]
        return total.transpose(0, 3, 1, 2)


@op(
    "crop_resize",
    "x boxes",
    "crop output",
    T.SAMPLING,
    native_layer=True,
    no_derivative=SAMPLED,
    backend="crop_resize x boxes | output>output_dims crop>crop_dims sampling_method=Linear "
    "sampling_mode=UnalignedCorners",
    diverges_as="resize",
)
class CROP_RESIZE:
    """Crops of one size at the top-left corners that boxes hold, each enlarged or reduced."""

    @staticmethod
    def shape(x, boxes, crop, output):
        rank_is(x, 4, "input")
        rank_is(boxes, 2, "boxes")
        if boxes[1] != 2:
            raise GraphError(f"boxes are {list(boxes)}; expected [count, 2]: top and left")
        if crop[0] > x[2] or crop[1] > x[3]:
            raise GraphError(f"crop {list(crop)} is larger than the map {list(x[2:])}")
        return x[0] * boxes[0], x[1], *output

    @staticmethod
    def reference(x, boxes, crop, output):
        # A box that leaves the map is moved back inside.
        inside = np.clip(boxes, 0, (x.shape[2] - crop[0], x.shape[3] - crop[1])).astype(int)
        crops = [x[:, :, top : top + crop[0], left : left + crop[1]] for top, left in inside]
        return np.concatenate([bilinear(part, output[0], output[1], False) for part in crops])


@entry
def resample(x: Tensor, grid: Any, method: str = "Linear", coordinates: str = "NonNormalized") -> Tensor:
    """[N, C, H, W] read at the places of a grid [N, 2, H', W'], whose channels are the column and the row."""
    for value, choices in ((method, METHODS), (coordinates, COORDINATES)):
        if value not in choices:
            raise GraphError(f"resample: {value!r} is unknown; choose one: {', '.join(choices)}")
    return make(RESAMPLE, (x, as_tensor(grid, "grid")), {"method": method, "coordinates": coordinates})


@entry
def crop_resize(x: Tensor, boxes: Any, crop: Any, output: Any) -> Tensor:
    """Crops of [N, C, H, W] with their top-left corners in boxes [count, 2], each resized to ``output``, stacked along
    the batch."""
    attrs = {"crop": pair(crop, "crop"), "output": pair(output, "output")}
    return make(CROP_RESIZE, (x, as_tensor(boxes, "boxes")), attrs)
