"""Reshapes, slices, pads and other ops that move elements."""

from __future__ import annotations

import numpy as np

from aneforge.errors import LoadError
from aneforge.frontends import forms
from aneforge.frontends.onnx.node import Node, Rule, Value
from aneforge.frontends.values import NoForm, as_tensor, axis_of, number, whole_numbers, without_axes
from aneforge.graph import builders as af
from aneforge.graph.tensor import Tensor

__all__ = ["RULES"]

Array = np.ndarray

_MOST_ELEMENTS = 1 << 24  # of a constant that is created while a file is read


def _reshape(node: Node, x: Value, shape: Value) -> Tensor:
    tensor = as_tensor(x)
    extents = whole_numbers(shape, "input 'shape'")
    if not node.attr("allowzero", 0):
        extents = [tensor.shape[i] if extent == 0 else extent for i, extent in enumerate(extents)]
    return forms.reshaped(tensor, extents)


def _flatten(node: Node, x: Value) -> Tensor:
    tensor = as_tensor(x)
    axis = int(node.attr("axis", 1))
    axis = axis + tensor.ndim if axis < 0 else axis
    return forms.reshaped(tensor, [int(np.prod(tensor.shape[:axis], dtype=int)), -1])


def _transpose(node: Node, x: Value) -> Tensor:
    tensor = as_tensor(x)
    return forms.transposed(tensor, node.attr("perm", list(range(tensor.ndim))[::-1]))


def _squeeze(node: Node, x: Value, axes: Value | None = None) -> Tensor:
    tensor = as_tensor(x)
    stated = node.attr("axes") if axes is None else whole_numbers(axes, "input 'axes'")
    squeezed = [i for i, extent in enumerate(tensor.shape) if extent == 1] if stated is None else stated
    return forms.reshaped(tensor, without_axes(tensor.shape, [axis_of(int(axis), tensor.ndim) for axis in squeezed]))


def _unsqueeze(node: Node, x: Value, axes: Value | None = None) -> Tensor:
    tensor = as_tensor(x)
    stated = node.attr("axes") if axes is None else whole_numbers(axes, "input 'axes'")
    rank = tensor.ndim + len(stated)
    places = {axis_of(int(axis), rank) for axis in stated}
    if len(places) != len(stated):
        raise LoadError(f"axes {list(stated)} name an axis twice; axes must be unique")
    left = iter(tensor.shape)
    return forms.reshaped(tensor, [1 if place in places else next(left) for place in range(rank)])


def _concat(node: Node, *operands: Value) -> Tensor:
    """Empty known operands are left out; if an operand is boolean, all are joined as booleans."""
    full = [operand for operand in operands if isinstance(operand, Tensor) or operand.size]
    truths = any(isinstance(operand, Tensor) and operand.dtype == "bool" for operand in full)
    parts = [forms.truth(operand) if truths else as_tensor(operand) for operand in full]
    axis = axis_of(int(node.attr("axis", 1)), parts[0].ndim)
    return parts[0] if len(parts) == 1 else af.concat(parts, axis=axis)


def _split(node: Node, x: Value, sizes: Value | None = None) -> list[Value]:
    tensor = as_tensor(x)
    axis = axis_of(int(node.attr("axis", 0)), tensor.ndim)
    lengths = node.attr("split") if sizes is None else whole_numbers(sizes, "input 'split'")
    if lengths is None:
        longest = -(-tensor.shape[axis] // node.outputs)
        lengths = [min(longest, tensor.shape[axis] - i * longest) for i in range(node.outputs)]
    if sum(lengths) != tensor.shape[axis]:
        raise LoadError(
            f"split {list(lengths)} adds up to {sum(lengths)}; axis {axis} has {tensor.shape[axis]} elements"
        )
    pieces = iter(forms.parts(tensor, axis, [size for size in lengths if size]))
    return [next(pieces) if size else _empty_part(tensor, axis) for size in lengths]


def _empty_part(x: Tensor, axis: int) -> Array:
    """Return an empty array with the shape of the part."""
    return np.zeros(tuple(0 if i == axis else extent for i, extent in enumerate(x.shape)), np.float32)


def _slice(
    node: Node,
    x: Value,
    starts: Value | None = None,
    ends: Value | None = None,
    axes: Value | None = None,
    steps: Value | None = None,
) -> Value:
    tensor = as_tensor(x)
    begins = node.attr("starts") if starts is None else whole_numbers(starts, "input 'starts'")
    stops = node.attr("ends") if ends is None else whole_numbers(ends, "input 'ends'")
    sliced_axes = node.attr("axes", range(len(begins))) if axes is None else whole_numbers(axes, "input 'axes'")
    strides = [1] * len(begins) if steps is None else whole_numbers(steps, "input 'steps'")
    result = tensor
    for begin, end, axis, step in zip(begins, stops, sliced_axes, strides, strict=True):
        place = axis_of(int(axis), tensor.ndim)
        if not len(range(tensor.shape[place])[slice(int(begin), int(end), int(step))]):
            return _empty_part(result, place)
        result = forms.sliced(result, place, int(begin), int(end), int(step))
    return result


def _expand(node: Node, x: Value, shape: Value) -> Tensor:
    return forms.broadcast_to(as_tensor(x), whole_numbers(shape, "input 'shape'"))


def _tile(node: Node, x: Value, repeats: Value) -> Tensor:
    tensor, times = as_tensor(x), whole_numbers(repeats, "input 'repeats'")
    if node.opset < 6 or any(count < 1 for count in times):
        raise NoForm(
            f"repeats {times} are not supported; each must be 1 or more, and the model needs opset 6 or later"
        )
    return tensor.tile(times)


def _pad(
    node: Node, x: Value, pads: Value | None = None, value: Value | None = None, axes: Value | None = None
) -> Tensor:
    tensor = as_tensor(x)
    stated = list(node.attr("pads")) if pads is None else whole_numbers(pads, "input 'pads'")
    padded_axes = (
        list(range(tensor.ndim))
        if axes is None
        else [axis_of(axis, tensor.ndim) for axis in whole_numbers(axes, "input 'axes'")]
    )
    widths = [(0, 0)] * tensor.ndim
    for place, axis in enumerate(padded_axes):
        widths[axis] = (stated[place], stated[place + len(padded_axes)])
    fill = float(node.attr("value", 0.0)) if value is None else number(value, "input 'constant_value'")
    modes = {"constant": "constant", "edge": "replicate", "reflect": "reflect", "wrap": "wrap"}
    mode = modes.get(node.attr("mode", "constant"))
    if mode is None:
        raise NoForm(f"mode {node.attr('mode')!r} is not supported; choose one: {', '.join(modes)}")
    if tensor.dtype == "bool":
        return forms.truth(forms.padded(tensor.cast(), widths, mode, fill))
    return forms.padded(tensor, widths, mode, fill)


def _identity(node: Node, x: Value, *_: Value) -> Value:
    return x


def _dropout(node: Node, x: Value, ratio: Value | None = None, training: Value | None = None) -> list[Value]:
    """In inference nothing is dropped, and the mask is all True."""
    share = float(node.attr("ratio", 0.5)) if ratio is None else number(ratio, "input 'ratio'")
    if training is not None and number(training, "input 'training_mode'") and share > 0:
        raise NoForm("training_mode drops elements at random; export the model for inference")
    return [x, np.broadcast_to(np.True_, x.shape)][: node.outputs]


def _eye_like(node: Node, x: Value) -> Array:
    shape = as_tensor(x).shape
    if len(shape) != 2 or shape[0] * shape[1] > _MOST_ELEMENTS:
        raise NoForm(
            f"an input of shape {list(shape)} is not supported; expected rank 2 and at most {_MOST_ELEMENTS:,} "
            "elements"
        )
    return np.eye(shape[0], shape[1], int(node.attr("k", 0)), np.float32)


def _center_crop_pad(node: Node, x: Value, shape: Value) -> Tensor:
    """Crop or zero-pad both sides of some axes; an odd element goes to the end."""
    tensor, extents = as_tensor(x), whole_numbers(shape, "input 'shape'")
    axes = [axis_of(int(axis), tensor.ndim) for axis in node.attr("axes", range(tensor.ndim))]
    widths = [(0, 0)] * tensor.ndim
    for axis, extent in zip(axes, extents, strict=True):
        growth = extent - tensor.shape[axis]
        before = growth // 2 if growth >= 0 else -(-growth // 2)
        widths[axis] = (before, growth - before)
    return forms.padded(tensor, widths)


def _shape(node: Node, x: Value) -> Array:
    shape = np.array(as_tensor(x).shape, np.int64)
    return shape[slice(node.attr("start", 0), node.attr("end"))]


def _size(node: Node, x: Value) -> Array:
    return np.array(as_tensor(x).size, np.int64)


RULES: dict[str, Rule] = {
    "CenterCropPad": _center_crop_pad,
    "Concat": _concat,
    "Dropout": _dropout,
    "Expand": _expand,
    "EyeLike": _eye_like,
    "Flatten": _flatten,
    "Identity": _identity,
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
