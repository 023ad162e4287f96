"""Gathers, scatters and one-hot ops that ONNX defines in its own way. The engine needs fixed indices."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from aneforge.frontends import forms
from aneforge.frontends.forms.sorting import hard_maximum
from aneforge.frontends.importer.op import Op
from aneforge.frontends.ops import OPS
from aneforge.frontends.values import Array, NoForm, Numeric, axis_of, shaped
from aneforge.graph.tensor import Tensor


def _tensor_scatter(
    cache: Tensor, update: Tensor, write_indices: list[int] | None = None, axis: int = -2, mode: str = "linear"
) -> Tensor:
    """Write an update into a cache, for each sample from its own start."""
    along = axis_of(axis, cache.ndim)
    size, length = cache.shape[along], update.shape[along]
    positions = np.array(write_indices or [0] * cache.shape[0])[:, None] + np.arange(length)
    positions = positions % size if mode == "circular" else positions
    shape = [cache.shape[0] if i == 0 else length if i == along else 1 for i in range(cache.ndim)]
    indices = np.broadcast_to(positions.reshape(shape), update.shape)
    return forms.scattered_elements(cache, along, indices, update)


def _compress(x: Tensor, condition: Array, axis: int | None = None) -> Tensor:
    places = np.flatnonzero(condition.reshape(-1))
    if not len(places):
        raise NoForm("condition keeps no element; empty tensors are not supported. Keep at least one")
    if axis is None:
        return forms.gathered(x.reshape(x.size), 0, places)
    return forms.gathered(x, axis_of(axis, x.ndim), places)


def _hardmax(x: Numeric, axis: int = -1) -> Tensor:
    """1 at the first maximum along the axis, 0 elsewhere."""
    return hard_maximum(x, axis_of(axis, x.ndim))


def _hardmax_of_rows(x: Numeric, axis: int = 1) -> Tensor:
    """The axis and all after it are one row."""
    rows = x.reshape(math.prod(x.shape[: axis_of(axis, x.ndim)]), -1)
    return shaped(hard_maximum(rows, 1), x.shape)


def _one_hot(op: Op, indices: Tensor, depth: int, values: list[float], axis: int = -1) -> Tensor:
    """Computed indices as one-hot vectors on a new axis; a negative index counts from the end."""
    off, on = values
    return OPS["one_hot"](op, indices, depth, axis, on, off, from_end=True)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "compress": _compress,
    "hardmax": _hardmax,
    "hardmax_of_rows": _hardmax_of_rows,
    "one_hot_of": _one_hot,
    "tensor_scatter": _tensor_scatter,
}
