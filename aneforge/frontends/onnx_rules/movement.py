"""Shapes, slices and what else moves numbers."""

from __future__ import annotations

import numpy as np

import aneforge as af
from aneforge.frontends import LoadError, forms
from aneforge.frontends.onnx_node import Node, Rule, Value
from aneforge.frontends.values import as_tensor, axis_of, known, number, whole_numbers, without_axes
from aneforge.graph.tensor import Tensor

__all__ = ["RULES"]

Array = np.ndarray


def _reshape(node: Node, x: Value, shape: Value) -> Tensor:
    given = as_tensor(x)
    wanted = whole_numbers(shape, "the shape")
    if not node.attr("allowzero", 0):
        wanted = [given.shape[i] if extent == 0 else extent for i, extent in enumerate(wanted)]
    return given.reshape(*wanted)


def _flatten(node: Node, x: Value) -> Tensor:
    given = as_tensor(x)
    axis = int(node.attr("axis", 1))
    axis = axis + given.ndim if axis < 0 else axis
    return given.reshape(int(np.prod(given.shape[:axis], dtype=int)), -1)


def _transpose(node: Node, x: Value) -> Tensor:
    given = as_tensor(x)
    return given.transpose(list(node.attr("perm", list(range(given.ndim))[::-1])))


def _squeeze(node: Node, x: Value, axes: Value | None = None) -> Tensor:
    given = as_tensor(x)
    told = node.attr("axes") if axes is None else whole_numbers(axes, "the axes")
    along = [i for i, extent in enumerate(given.shape) if extent == 1] if told is None else told
    return given.reshape(*without_axes(given.shape, [axis_of(int(each), given.ndim) for each in along]))


def _unsqueeze(node: Node, x: Value, axes: Value | None = None) -> Tensor:
    given = as_tensor(x)
    told = node.attr("axes") if axes is None else whole_numbers(axes, "the axes")
    rank = given.ndim + len(told)
    places = {axis_of(int(each), rank) for each in told}
    left = iter(given.shape)
    return given.reshape(*(1 if place in places else next(left) for place in range(rank)))


def _concat(node: Node, *given: Value) -> Tensor:
    parts = [as_tensor(each) for each in given]
    return af.concat(parts, axis=axis_of(int(node.attr("axis", 1)), parts[0].ndim))


def _split(node: Node, x: Value, sizes: Value | None = None) -> list[Tensor]:
    given = as_tensor(x)
    axis = axis_of(int(node.attr("axis", 0)), given.ndim)
    told = node.attr("split") if sizes is None else whole_numbers(sizes, "the sizes")
    if told is None:
        whole = -(-given.shape[axis] // node.outputs)
        told = [min(whole, given.shape[axis] - i * whole) for i in range(node.outputs)]
    return forms.parts(given, axis, told)


def _slice(
    node: Node,
    x: Value,
    starts: Value | None = None,
    ends: Value | None = None,
    axes: Value | None = None,
    steps: Value | None = None,
) -> Tensor:
    given = as_tensor(x)
    first = node.attr("starts") if starts is None else whole_numbers(starts, "the starts")
    last = node.attr("ends") if ends is None else whole_numbers(ends, "the ends")
    along = node.attr("axes", range(len(first))) if axes is None else whole_numbers(axes, "the axes")
    stride = [1] * len(first) if steps is None else whole_numbers(steps, "the steps")
    found = given
    for begin, end, axis, step in zip(first, last, along, stride, strict=True):
        found = forms.sliced(found, axis_of(int(axis), given.ndim), int(begin), int(end), int(step))
    return found


def _gather(node: Node, x: Value, indices: Value) -> Tensor:
    given = as_tensor(x)
    axis = axis_of(int(node.attr("axis", 0)), given.ndim)
    return forms.gathered(given, axis, known(indices, "what is gathered"))


def _expand(node: Node, x: Value, shape: Value) -> Tensor:
    return forms.broadcast_to(as_tensor(x), whole_numbers(shape, "the shape"))


def _tile(node: Node, x: Value, repeats: Value) -> Tensor:
    return as_tensor(x).tile(whole_numbers(repeats, "the repeats"))


def _pad(
    node: Node, x: Value, pads: Value | None = None, value: Value | None = None, axes: Value | None = None
) -> Tensor:
    given = as_tensor(x)
    told = list(node.attr("pads")) if pads is None else whole_numbers(pads, "the widths")
    along = (
        list(range(given.ndim))
        if axes is None
        else [axis_of(each, given.ndim) for each in whole_numbers(axes, "the axes")]
    )
    widths = [(0, 0)] * given.ndim
    for place, axis in enumerate(along):
        widths[axis] = (told[place], told[place + len(along)])
    fill = float(node.attr("value", 0.0)) if value is None else number(value, "the fill")
    mode = {"constant": "constant", "edge": "replicate", "reflect": "reflect"}.get(node.attr("mode", "constant"))
    if mode is None:
        raise LoadError(f"padding by {node.attr('mode')!r}")
    return forms.padded(given, widths, mode, fill)


def _same(node: Node, x: Value, *_: Value) -> Value:
    return x


def _shape(node: Node, x: Value) -> Array:
    shape = np.array(as_tensor(x).shape, np.int64)
    return shape[slice(node.attr("start", 0), node.attr("end"))]


def _size(node: Node, x: Value) -> Array:
    return np.array(as_tensor(x).size, np.int64)


RULES: dict[str, Rule] = {
    "CastLike": _same,
    "Concat": _concat,
    "Dropout": _same,
    "Expand": _expand,
    "Flatten": _flatten,
    "Gather": _gather,
    "Identity": _same,
    "Pad": _pad,
    "Reshape": _reshape,
    "Shape": _shape,
    "Size": _size,
    "Slice": _slice,
    "Split": _split,
    "Squeeze": _squeeze,
    "Tile": _tile,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
}
