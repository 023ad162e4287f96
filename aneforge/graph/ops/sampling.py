"""Maps read at places that are computed while a program runs: the samplers of the texture engine (floor F3, A14).

``resample`` and ``crop_resize`` are ops of the model language; their ``native_`` forms are layers as a netplist has
them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from aneforge.errors import GraphError
from aneforge.graph.node import Shape, entry, make, op
from aneforge.graph.ops.leaf import as_tensor
from aneforge.graph.ops.spatial import bilinear, read_at
from aneforge.graph.shapes import number, pair, positive, rank_is
from aneforge.graph.traits import SAMPLED
from aneforge.graph.traits import GraphTrait as T

if TYPE_CHECKING:
    from aneforge.graph.tensor import Tensor

Array = np.ndarray

METHODS = ("Linear", "NearestNeighbor")
COORDINATES = ("NonNormalized", "NormalizedSymmetric")
READS = ("bilinear", "nearest")
PLACES = ("normalized_minus_one_to_one", "unnormalized")
BOXES = ("CORNERS_HEIGHT_FIRST", "CORNERS_WIDTH_FIRST", "CENTER_SIZE_HEIGHT_FIRST", "CENTER_SIZE_WIDTH_FIRST")
GRIDS = ("STRICT_ALIGN_CORNERS", "ALIGN_CORNERS", "DEFAULT", "OFFSET_CORNERS", "UNALIGN_CORNERS")


def pixels(values: Array, size: int, coordinates_mode: str, align_corners: bool) -> Array:
    """Coordinates as positions along an axis; the centre of the first pixel is 0."""
    if coordinates_mode == "unnormalized":
        return values
    return (values + 1) * (size - 1) / 2 if align_corners else ((values + 1) * size - 1) / 2


def grid_positions(size: Any, out: int, mode: str) -> Array:
    """The ``out`` places along lines of ``size`` pixels, one line or several, at which a resize reads."""
    size = np.asarray(size, np.float64)[..., None]
    steps = np.arange(out)
    if mode in ("STRICT_ALIGN_CORNERS", "ALIGN_CORNERS"):
        middle = (size - 1) / 2 if mode == "ALIGN_CORNERS" else size * 0
        return middle if out == 1 else steps * ((size - 1) / (out - 1))
    if mode == "DEFAULT":
        return steps * (size / out)
    if mode == "OFFSET_CORNERS":
        return (steps + 0.5) * (np.maximum(1.0, size - 1) / out)
    return (steps + 0.5) * (size / out) - 0.5


def mixing_weights(positions: Array, size: int) -> Array:
    """Weights [..., out, in]: the share of each pixel of a line in what is read at each position, by linear
    interpolation. Positions beyond an end read the pixel there."""
    distance = np.abs(np.clip(positions, 0, size - 1)[..., None] - np.arange(size))
    return np.clip(1 - distance, 0, None)


def corners(boxes: Array, mode: str) -> Array:
    """Boxes as top, left, bottom, right."""
    if mode.endswith("WIDTH_FIRST"):
        boxes = boxes[:, [1, 0, 3, 2]]
    if mode.startswith("CENTER_SIZE"):
        return np.concatenate([boxes[:, :2] - boxes[:, 2:] / 2, boxes[:, :2] + boxes[:, 2:] / 2], axis=1)
    return boxes


def box_weights(boxes: Array, space: Shape, attrs: dict[str, Any]) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """For rows and for columns of each box: the weights [boxes, out, in], and which places lie outside the image."""
    ends = corners(np.asarray(boxes, np.float64), attrs["box_coordinate_mode"])
    if attrs["normalized_coordinates"]:
        ends = ends * (np.array([*space, *space]) - 1)
    lines = []
    for axis, out in enumerate((attrs["target_height"], attrs["target_width"])):
        first, last = ends[:, axis, None], ends[:, axis + 2, None]
        places = first + grid_positions(last[:, 0] - first[:, 0] + 1, out, attrs["sampling_mode"])
        inside_box = np.clip(places, first, np.maximum(first, last))
        outside = (inside_box < 0) | (inside_box > space[axis] - 1)
        lines.append((mixing_weights(inside_box, space[axis]), outside))
    return lines[0], lines[1]


@op(
    "resample",
    "x coordinates",
    "sampling_mode padding_value coordinates_mode align_corners",
    T.SAMPLING,
    no_derivative=SAMPLED,
    mil="resample x coordinates | sampling_mode padding_mode=constant padding_value coordinates_mode align_corners",
)
class RESAMPLE:
    """A map read at the columns and rows of a grid that may be computed; one value outside."""

    @staticmethod
    def shape(x, coordinates, sampling_mode, padding_value, coordinates_mode, align_corners):
        rank_is(x, 4, "input")
        if len(coordinates) != 4 or coordinates[0] != x[0] or coordinates[3] != 2:
            raise GraphError(
                f"the grid is {list(coordinates)}; expected [{x[0]}, H, W, 2]: column and row of each place"
            )
        return *x[:2], *coordinates[1:3]

    @staticmethod
    def reference(x, coordinates, sampling_mode, padding_value, coordinates_mode, align_corners):
        columns, rows = (
            pixels(coordinates[..., i], x.shape[3 - i], coordinates_mode, align_corners) for i in range(2)
        )
        return read_at(x, columns, rows, padding_value, sampling_mode == "nearest")


@op(
    "crop_resize",
    "x boxes",
    "target_height target_width normalized_coordinates box_coordinate_mode sampling_mode pad_value",
    T.SAMPLING,
    no_derivative=SAMPLED,
)
class CROP_RESIZE:
    """Regions of one image, which may be computed, each enlarged or reduced to one size; one value outside."""

    @staticmethod
    def shape(x, boxes, target_height, target_width, **settings):
        rank_is(x, 4, "input")
        if x[0] != 1:
            raise GraphError(f"the input is {list(x)}; boxes are cut from one image, so take one of the batch first")
        if len(boxes) != 2 or boxes[1] != 4:
            raise GraphError(f"boxes are {list(boxes)}; expected [count, 4]: two numbers for each of two corners")
        return boxes[0], x[1], target_height, target_width

    @staticmethod
    def reference(x, boxes, **settings):
        (rows, above), (columns, beside) = box_weights(boxes, x.shape[2:], settings)
        cut = np.einsum("kyh,chw,kxw->kcyx", rows, x[0], columns)
        outside = above[:, None, :, None] | beside[:, None, None, :]
        return np.where(outside, settings["pad_value"], cut)


@op(
    "native_resample",
    "x grid",
    "method coordinates",
    T.SAMPLING,
    native_layer=True,
    gate="Resample",
    no_derivative=SAMPLED,
    backend="resample x grid | coordinates>coordinate_mode method>sampling_method sampling_mode=Default "
    "background_value=0.0",
)
class NATIVE_RESAMPLE:
    """A map read at the columns and rows that the channels of a grid hold; zero outside."""

    @staticmethod
    def shape(x, grid, method, coordinates):
        rank_is(x, 4, "input")
        rank_is(grid, 4, "grid")
        if grid[0] != x[0] or grid[1] not in (1, 2):
            raise GraphError(f"the grid is {list(grid)}; expected [{x[0]}, 1 or 2, H, W]: columns, then rows")
        return *x[:2], *grid[2:]

    @staticmethod
    def reference(x, grid, method, coordinates):
        mode = "unnormalized" if coordinates == "NonNormalized" else "normalized"
        columns = pixels(grid[:, 0], x.shape[3], mode, True)
        if grid.shape[1] == 2:
            rows = pixels(grid[:, 1], x.shape[2], mode, True)
        else:
            rows = np.broadcast_to(np.arange(columns.shape[1])[:, None], columns.shape)
        return read_at(x, columns, rows, 0.0, method == "NearestNeighbor")


@op(
    "native_crop_resize",
    "x boxes",
    "crop output",
    T.SAMPLING,
    native_layer=True,
    gate="CropResize",
    no_derivative=SAMPLED,
    backend="crop_resize x boxes | output>output_dims crop>crop_dims sampling_method=Linear "
    "sampling_mode=UnalignedCorners",
)
class NATIVE_CROP_RESIZE:
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


def _one_of(what: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise GraphError(f"{what} is {value!r}; choose one: {', '.join(choices)}")


@entry
def resample(
    x: Tensor,
    coordinates: Any,
    sampling_mode: str = "bilinear",
    padding_value: float = 0.0,
    coordinates_mode: str = "normalized_minus_one_to_one",
    align_corners: bool = False,
) -> Tensor:
    """[N, C, H, W] read at a grid of places [N, H', W', 2], each a column and a row, which may be computed; chips have
    it from A14 on.

    ``coordinates`` run from -1 to 1, or are pixels where ``coordinates_mode`` is ``unnormalized``; ``align_corners``
    puts the ends at the centres of the outer pixels. ``sampling_mode`` is ``bilinear`` or ``nearest``. Places outside
    read ``padding_value``.
    """
    _one_of("resample: sampling_mode", sampling_mode, READS)
    _one_of("resample: coordinates_mode", coordinates_mode, PLACES)
    attrs = {
        "sampling_mode": sampling_mode,
        "padding_value": number(padding_value, "padding_value"),
        "coordinates_mode": coordinates_mode,
        "align_corners": bool(align_corners),
    }
    return make(RESAMPLE, (x, as_tensor(coordinates, "grid")), attrs)


@entry
def crop_resize(
    x: Tensor,
    boxes: Any,
    target_height: int,
    target_width: int,
    normalized_coordinates: bool = False,
    box_coordinate_mode: str = "CORNERS_HEIGHT_FIRST",
    sampling_mode: str = "DEFAULT",
    pad_value: float = 0.0,
) -> Tensor:
    """The regions of [1, C, H, W] in ``boxes`` [count, 4], which may be computed, each resized to ``target_height``
    and ``target_width``: [count, C, height, width]; chips have it from A14 on.

    ``box_coordinate_mode`` says what the four numbers are, in pixels or, with ``normalized_coordinates``, from 0 to 1;
    ``sampling_mode`` says where samples lie in a box. Places outside the image read ``pad_value``.
    """
    _one_of("crop_resize: box_coordinate_mode", box_coordinate_mode, BOXES)
    _one_of("crop_resize: sampling_mode", sampling_mode, GRIDS)
    attrs = {
        "target_height": positive(target_height, "target_height"),
        "target_width": positive(target_width, "target_width"),
        "normalized_coordinates": bool(normalized_coordinates),
        "box_coordinate_mode": box_coordinate_mode,
        "sampling_mode": sampling_mode,
        "pad_value": number(pad_value, "pad_value"),
    }
    return make(CROP_RESIZE, (x, as_tensor(boxes, "boxes")), attrs)


@entry
def native_resample(x: Tensor, grid: Any, method: str = "Linear", coordinates: str = "NonNormalized") -> Tensor:
    """[N, C, H, W] read at the places of a grid [N, 2, H', W'], whose channels are the column and the row."""
    _one_of("resample: method", method, METHODS)
    _one_of("resample: coordinates", coordinates, COORDINATES)
    return make(NATIVE_RESAMPLE, (x, as_tensor(grid, "grid")), {"method": method, "coordinates": coordinates})


@entry
def native_crop_resize(x: Tensor, boxes: Any, crop: Any, output: Any) -> Tensor:
    """Crops of [N, C, H, W] with their top-left corners in boxes [count, 2], each resized to ``output``, stacked along
    the batch."""
    attrs = {"crop": pair(crop, "crop"), "output": pair(output, "output")}
    return make(NATIVE_CROP_RESIZE, (x, as_tensor(boxes, "boxes")), attrs)
