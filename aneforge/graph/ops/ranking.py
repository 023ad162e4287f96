"""Native layers that rank: the largest elements, the order of elements, and where an extreme is.

Positions are numbers of fp16, exact below 2048 (N45).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from aneforge.errors import GraphError
from aneforge.graph.node import Shape, entry, make, op
from aneforge.graph.ops.contraction import pads
from aneforge.graph.shapes import axis_of, pair, positive, rank_is, whole_number, window
from aneforge.graph.traits import ORDER, PLACES
from aneforge.graph.traits import GraphTrait as T

if TYPE_CHECKING:
    from aneforge.graph.tensor import Tensor

EXTREME_MODES = ("SpatialArgMax", "SpatialArgMin", "ChannelArgMax", "ChannelArgMin")


def _order(x: np.ndarray, axis: int, lanes: int | None, keys: tuple[int, ...], descending: bool) -> np.ndarray:
    """The positions that sort each line of vectors, along the last of two new last axes: lanes (one) and places."""
    vectors = _as_vectors(x, axis, lanes)
    signed = -vectors if descending else vectors
    ranked = np.stack([signed[..., lane, :] for lane in reversed(keys)])  # the last key is the first to decide
    return np.lexsort(ranked, axis=-1)[..., None, :]


def _as_vectors(x: np.ndarray, axis: int, lanes: int | None) -> np.ndarray:
    """Lanes and places as the last two axes; without lanes every element is a vector of one."""
    return np.moveaxis(x, axis, -1)[..., None, :] if lanes is None else np.moveaxis(x, (lanes, axis), (-2, -1))


def _ranked(x, count, axis, lanes, keys, descending, indices):
    order = _order(x, axis, lanes, keys, descending)[..., :count]
    picked = order.astype(np.float64) if indices else np.take_along_axis(_as_vectors(x, axis, lanes), order, axis=-1)
    if lanes is None:
        return np.moveaxis(picked[..., 0, :], -1, axis)
    return np.moveaxis(picked, (-2, -1), (lanes, axis))


def _ranked_shape(x: Shape, count: int, axis: int, lanes: int | None, keys: tuple[int, ...], indices: bool) -> Shape:
    if lanes is not None and not 0 <= lanes < len(x):
        raise GraphError(f"axis {lanes} is out of range for rank {len(x)}")
    if lanes == axis:
        raise GraphError(f"the sorted axis and the axis of the vectors are both {axis}; they must differ")
    size = 1 if lanes is None else x[lanes]
    outside = [key for key in keys if not 0 <= key < size]
    if not keys or outside:
        raise GraphError(f"key lanes are {list(keys)}; name one or more of the {size} lanes, from 0")
    shape = list(x)
    shape[axis] = count
    if indices and lanes is not None:
        shape[lanes] = 1  # all lanes of a vector are at one place (U88)
    return tuple(shape)


@op("topk", "x", "k largest axis lanes keys indices", T.SORT, native_layer=True, no_derivative=ORDER)
class TOPK:
    """The k largest (or smallest) vectors of each line, in the order of their key lanes, or their positions."""

    @staticmethod
    def shape(x, k, largest, axis, lanes, keys, indices):
        if k > x[axis]:
            raise GraphError(f"k is {k}, but a row has only {x[axis]} elements")
        return _ranked_shape(x, k, axis, lanes, keys, indices)

    @staticmethod
    def reference(x, k, largest, axis, lanes, keys, indices):
        return _ranked(x, k, axis, lanes, keys, largest, indices)


@op(
    "sort",
    "x",
    "descending return_indices axis lanes keys",
    T.SORT,
    native_layer=True,
    no_derivative=ORDER,
    no_mil="Core ML sorts by integer positions, which leave the engine",
)
class SORT:
    """The vectors of each line sorted by their key lanes, or the positions that sort them (as fp16 numbers)."""

    @staticmethod
    def shape(x, descending, return_indices, axis, lanes, keys):
        return _ranked_shape(x, x[axis], axis, lanes, keys, return_indices)

    @staticmethod
    def reference(x, descending, return_indices, axis, lanes, keys):
        return _ranked(x, x.shape[axis], axis, lanes, keys, descending, return_indices)


@op(
    "argmax",
    "x",
    "axis",
    gate="reduce_argmax",
    native_layer=True,
    no_derivative=PLACES,
    no_mil="Core ML gives positions as integers, which leave the engine",
    diverges_as="compare",
)
class ARGMAX:
    """The position of the largest element along one axis of a rank-2 tensor (as an fp16 number)."""

    @staticmethod
    def shape(x, axis):
        _rows(x)
        return tuple(1 if i == axis else size for i, size in enumerate(x))

    @staticmethod
    def reference(x, axis):
        return np.expand_dims(np.argmax(x, axis=axis), axis).astype(np.float64)


@op("arg_min_max", "x", "mode kernel stride pad", native_layer=True, no_derivative=PLACES, diverges_as="compare")
class ARG_MIN_MAX:
    """Where the extreme is: the channel at each place, or the place in each window, counted row by row."""

    @staticmethod
    def shape(x, mode, kernel, stride, pad):
        rank_is(x, 4, "input")
        if mode.startswith("Channel"):
            return x[0], 1, *x[2:]
        for i, name in enumerate(("height", "width")):
            if max(pad[2 * i : 2 * i + 2]) >= kernel[i]:
                raise GraphError(f"padding {list(pad)} is not smaller than the window {list(kernel)} along the {name}")
        extents = (window(x[2 + i], kernel[i], stride[i], pad[2 * i], pad[2 * i + 1]) for i in range(2))
        return (*x[:2], *extents)

    @staticmethod
    def reference(x, mode, kernel, stride, pad):
        find = np.argmax if mode.endswith("Max") else np.argmin
        if mode.startswith("Channel"):
            return np.expand_dims(find(x, axis=1), 1).astype(np.float64)
        fill = -np.inf if mode.endswith("Max") else np.inf
        padded = np.pad(x, ((0, 0), (0, 0), pad[:2], pad[2:]), constant_values=fill)
        windows = np.lib.stride_tricks.sliding_window_view(padded, kernel, axis=(2, 3))
        windows = windows[:, :, :: stride[0], :: stride[1]]
        return find(windows.reshape(*windows.shape[:4], -1), axis=4).astype(np.float64)


@op(
    "global_arg",
    "x",
    "largest axis",
    gate="GlobalArgMinMax",
    native_layer=True,
    no_derivative=PLACES,
    diverges_as="compare",
)
class GLOBAL_ARG:
    """The position of the extreme along one axis, the first of equals."""

    @staticmethod
    def shape(x, largest, axis):
        return tuple(1 if i == axis else size for i, size in enumerate(x))

    @staticmethod
    def reference(x, largest, axis):
        find = np.argmax if largest else np.argmin
        return np.expand_dims(find(x, axis=axis), axis).astype(np.float64)


def _rows(x: Shape) -> None:
    if len(x) != 2:
        raise GraphError(f"takes rows [C, W], not {list(x)}")


_EACH_ROW = {"axis": 1, "lanes": None, "keys": (0,)}


@entry
def topk(x: Tensor, k: int, largest: bool = True) -> Tensor:
    """The k largest elements of each row of [C, W]."""
    _rows(getattr(x, "shape", (1, 1)))
    return make(TOPK, (x,), {"k": positive(k, "k"), "largest": bool(largest), **_EACH_ROW, "indices": False})


@entry
def sort(x: Tensor, descending: bool = False, return_indices: bool = False) -> Tensor:
    """Rows of [C, W] sorted, or the positions that sort them."""
    _rows(getattr(x, "shape", (1, 1)))
    return make(SORT, (x,), {"descending": bool(descending), "return_indices": bool(return_indices), **_EACH_ROW})


def _lanes(x: Tensor, axis: int, lanes: int, keys: Any) -> dict[str, Any]:
    rank = len(x.shape)
    listed = tuple(whole_number(key, "a key lane") for key in keys)
    return {"axis": axis_of(axis, rank), "lanes": axis_of(lanes, rank), "keys": listed}


@entry
def topk_vectors(
    x: Tensor, k: int, axis: int, lanes: int, keys: Any = (0,), largest: bool = True, indices: bool = False
) -> Tensor:
    """The k first vectors along an axis, ordered by some of their lanes; all lanes move together."""
    order = _lanes(x, axis, lanes, keys)
    return make(TOPK, (x,), {"k": positive(k, "k"), "largest": bool(largest), **order, "indices": bool(indices)})


@entry
def sort_vectors(
    x: Tensor, axis: int, lanes: int, keys: Any = (0,), descending: bool = False, indices: bool = False
) -> Tensor:
    """Vectors along an axis, sorted by some of their lanes; all lanes move together."""
    order = _lanes(x, axis, lanes, keys)
    return make(SORT, (x,), {"descending": bool(descending), "return_indices": bool(indices), **order})


def argmax(x: Tensor, axis: int | None = -1) -> Tensor:
    """The position of the largest element of each row of [C, W]; without an axis, in the whole tensor, as a layer that
    conversion has from A15 on and authoring from A13 (chapter 26)."""
    if axis is None:
        return global_arg(x.reshape(1, x.size), True, 1)
    return make(ARGMAX, (x,), {"axis": axis_of(axis, len(x.shape))})


@entry
def arg_min_max(x: Tensor, mode: str, kernel: Any = 1, stride: Any = 1, pad: Any = 0) -> Tensor:
    """Where the extreme of [N, C, H, W] is, among the channels or in each window."""
    if mode not in EXTREME_MODES:
        raise GraphError(f"arg_min_max: mode {mode!r} is unknown; choose one: {', '.join(EXTREME_MODES)}")
    attrs = {"mode": mode, "kernel": pair(kernel, "window"), "stride": pair(stride, "stride"), "pad": pads(pad)}
    return make(ARG_MIN_MAX, (x,), attrs)


@entry
def global_arg(x: Tensor, largest: bool = True, axis: int = -1) -> Tensor:
    """The position of the largest (or smallest) element along one axis."""
    return make(GLOBAL_ARG, (x,), {"largest": bool(largest), "axis": axis_of(axis, len(x.shape))})
