"""Gather, scatter, sort and one-hot ops. The engine needs fixed indices."""

from __future__ import annotations

import numpy as np

from aneforge.errors import LoadError
from aneforge.frontends import forms
from aneforge.frontends.forms.sorting import argsort, in_rows, topk
from aneforge.frontends.onnx.node import Node, Rule, Value
from aneforge.frontends.values import NoForm, as_tensor, axis_of, known, number, whole_numbers
from aneforge.graph import builders as af
from aneforge.graph.tensor import Tensor

__all__ = ["RULES"]


def _gather(node: Node, x: Value, indices: Value) -> Tensor:
    tensor = as_tensor(x)
    axis = axis_of(int(node.attr("axis", 0)), tensor.ndim)
    places = known(indices, "input 'indices'")
    if places.size and (places.min() < -tensor.shape[axis] or places.max() >= tensor.shape[axis]):
        extent = tensor.shape[axis]
        outside = places.max() if places.max() >= extent else places.min()
        raise LoadError(
            f"index {outside} is out of range for axis {axis} of {extent} elements; expected {-extent} to {extent - 1}"
        )
    return forms.gathered(tensor, axis, places)


def _gather_elements(node: Node, x: Value, indices: Value) -> Tensor:
    tensor = as_tensor(x)
    axis = axis_of(int(node.attr("axis", 0)), tensor.ndim)
    return forms.gathered_elements(tensor, axis, known(indices, "input 'indices'"))


def _gather_nd(node: Node, x: Value, indices: Value) -> Tensor:
    return forms.gathered_nd(as_tensor(x), known(indices, "input 'indices'"), int(node.attr("batch_dims", 0)))


def _scatter_elements(node: Node, x: Value, indices: Value, updates: Value) -> Tensor:
    tensor = as_tensor(x)
    axis = axis_of(int(node.attr("axis", 0)), tensor.ndim)
    places = known(indices, "input 'indices'")
    return forms.scattered_elements(tensor, axis, places, updates, node.attr("reduction", "none"))


def _scatter_nd(node: Node, x: Value, indices: Value, updates: Value) -> Tensor:
    places = known(indices, "input 'indices'")
    return forms.scattered_nd(as_tensor(x), places, updates, node.attr("reduction", "none"))


def _tensor_scatter(node: Node, cache: Value, update: Value, places: Value | None = None) -> Tensor:
    """Write an update into a cache, for each sample from its own start."""
    cached, new = as_tensor(cache), as_tensor(update)
    axis = axis_of(int(node.attr("axis", -2)), cached.ndim)
    begins = [0] * cached.shape[0] if places is None else whole_numbers(places, "input 'write_indices'")
    size, length = cached.shape[axis], new.shape[axis]
    positions = np.array(begins)[:, None] + np.arange(length)
    positions = positions % size if node.attr("mode", "linear") == "circular" else positions
    shape = [cached.shape[0] if i == 0 else length if i == axis else 1 for i in range(cached.ndim)]
    indices = np.broadcast_to(positions.reshape(shape), new.shape)
    return forms.scattered_elements(cached, axis, indices, new)


def _compress(node: Node, x: Value, condition: Value) -> Tensor:
    tensor = as_tensor(x)
    places = np.flatnonzero(known(condition, "input 'condition'").reshape(-1))
    if not len(places):
        raise NoForm("condition keeps no element; empty tensors are not supported. Keep at least one")
    if node.attr("axis") is None:
        return af.gather(tensor.reshape(tensor.size), places, axis=0)
    return af.gather(tensor, places, axis=axis_of(int(node.attr("axis")), tensor.ndim))


def _reverse_sequence(node: Node, x: Value, lengths: Value) -> Tensor:
    axes = {"seq_axis": int(node.attr("time_axis", 0)), "batch_axis": int(node.attr("batch_axis", 1))}
    return af.reverse_sequence(as_tensor(x), whole_numbers(lengths, "input 'sequence_lens'"), **axes)


def _topk(node: Node, x: Value, count: Value | None = None) -> list[Tensor]:
    """The values are one layer of the engine; the indices come from a sort."""
    tensor = as_tensor(x)
    axis = axis_of(int(node.attr("axis", -1)), tensor.ndim)
    k = int(node.attr("k", 0)) if count is None else int(number(count, "input 'K'"))
    largest = bool(node.attr("largest", 1))
    values = topk(tensor, axis, k, largest)
    return [values, argsort(tensor, axis, largest, k)] if node.outputs > 1 else [values]


def _hardmax(node: Node, x: Value) -> Tensor:
    """1 at the first maximum along the axis, 0 elsewhere."""
    tensor = as_tensor(x)
    axis = axis_of(int(node.attr("axis", -1 if node.opset >= 13 else 1)), tensor.ndim)
    if node.opset < 13:  # the axis and all after it are one row
        flat = tensor.reshape(int(np.prod(tensor.shape[:axis], dtype=int)), -1)
        return af.one_hot(flat.argmax(-1).reshape(flat.shape[0]), flat.shape[1]).reshape(*tensor.shape)
    return in_rows(tensor, axis, lambda rows: af.one_hot(rows.argmax(-1).reshape(rows.shape[0]), rows.shape[1]))


def _one_hot(node: Node, indices: Value, depth: Value, values: Value) -> Tensor:
    """Computed indices as one-hot vectors on a new axis; a negative index counts from the end."""
    places, size = as_tensor(indices), int(number(depth, "input 'depth'"))
    off, on = (float(mark) for mark in known(values, "input 'values'").reshape(-1))
    counted = af.where(places.less(0.0), places + float(size), places)
    marks = af.one_hot(counted, size, on, off)
    axis = axis_of(int(node.attr("axis", -1)), marks.ndim)
    order = list(range(marks.ndim - 1))
    order.insert(axis, marks.ndim - 1)
    return marks if axis == marks.ndim - 1 else marks.transpose(order)


RULES: dict[str, Rule] = {
    "Compress": _compress,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "Hardmax": _hardmax,
    "OneHot": _one_hot,
    "ReverseSequence": _reverse_sequence,
    "Scatter": _scatter_elements,
    "ScatterElements": _scatter_elements,
    "ScatterND": _scatter_nd,
    "TensorScatter": _tensor_scatter,
    "TopK": _topk,
}
