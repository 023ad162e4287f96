"""Views, permutations, slices, concatenations and pads: ops that only move elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from aneforge.frontends import LoadError
from aneforge.frontends.forms import as_number, broadcast_to, gathered, padded, parts, sliced, truncated, truth
from aneforge.frontends.pytorch.node import Node, Rule, graph_shape
from aneforge.frontends.pytorch.values import axes_of, numeric, shaped
from aneforge.graph import builders as af
from aneforge.graph.tensor import Tensor


def typed_tensor(value: Any) -> Tensor:
    """Return an argument as a tensor of its own type; a known array becomes a constant."""
    if isinstance(value, Tensor):
        return value
    if isinstance(value, np.ndarray) and value.dtype == bool:
        return truth(value)
    return as_number(value) if isinstance(value, np.ndarray) else numeric(value)


# Views.


def _view(node: Node, x: Any, *_: Any) -> Any:
    """A view, a squeeze or a flatten: a reshape to the stated shape."""
    return shaped(typed_tensor(x), node.shape)


def _same(node: Node, x: Any, *_: Any) -> Any:
    return x


def _transpose(node: Node, x: Any, first: int, second: int) -> Tensor:
    tensor = typed_tensor(x)
    order = list(range(tensor.ndim))
    a, b = axes_of(first, tensor.ndim)[0], axes_of(second, tensor.ndim)[0]
    order[a], order[b] = order[b], order[a]
    return tensor.transpose(order) if a != b else tensor


def _reverse_axes(node: Node, x: Any) -> Tensor:
    tensor = typed_tensor(x)
    return tensor.transpose() if tensor.ndim > 1 else tensor


def _move_axes(node: Node, x: Any, source: Any, destination: Any) -> Tensor:
    tensor = typed_tensor(x)
    axis_lists = [[axes] if isinstance(axes, int) else list(axes) for axes in (source, destination)]
    order = np.moveaxis(np.empty((1,) * tensor.ndim), *axis_lists)  # raises for axes that are out of range or repeated
    assert order.ndim == tensor.ndim
    axis_order = [axis for axis in range(tensor.ndim) if axis not in [s % tensor.ndim for s in axis_lists[0]]]
    for position, source_axis in sorted(zip([d % tensor.ndim for d in axis_lists[1]], axis_lists[0], strict=True)):
        axis_order.insert(position, source_axis % tensor.ndim)
    return tensor.transpose(axis_order)


def _expand(node: Node, x: Any, *_: Any) -> Tensor:
    tensor, out_shape = typed_tensor(x), graph_shape(node.shape)
    return tensor if tensor.shape == out_shape else broadcast_to(tensor, out_shape)


def _to_copy(node: Node, x: Any, *_: Any) -> Any:
    """All numbers are fp16 in the graph; a cast to integers drops the fraction."""
    source, target = node.operand_dtypes[0], node.dtypes[0]
    if target == "bool":
        return truth(x)
    if "complex" in target:
        raise LoadError("a cast to complex numbers is not supported; the engine takes real numbers only")
    tensor = numeric(x)
    return truncated(tensor) if "int" in target and "float" in source else tensor


def _copy(node: Node, x: Any, source: Any, *_: Any) -> Any:
    tensor = truth(source) if node.gives_bool else numeric(source)
    return tensor if tensor.shape == graph_shape(node.shape) else broadcast_to(tensor, graph_shape(node.shape))


# Slices and joins.


def _slice(node: Node, x: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Tensor:
    tensor = typed_tensor(x)
    axis = axes_of(dim, tensor.ndim)[0]
    extent = tensor.shape[axis]
    return sliced(
        tensor, axis, 0 if start is None else int(start), extent if end is None else min(int(end), extent), step
    )


def _select(node: Node, x: Any, dim: int, index: int) -> Any:
    tensor = typed_tensor(x)
    axis = axes_of(dim, tensor.ndim)[0]
    place = int(index) % tensor.shape[axis]
    return shaped(sliced(tensor, axis, place, place + 1), node.shape)


def _narrow(node: Node, x: Any, dim: int, start: Any, length: int) -> Tensor:
    return _slice(node, x, dim, int(start), int(start) + int(length))


def _cut_parts(node: Node, x: Any, dim: int) -> list[Tensor]:
    tensor = typed_tensor(x)
    axis = axes_of(dim, tensor.ndim)[0]
    return parts(tensor, axis, [shape[axis] for shape in node.shapes])


def _split(node: Node, x: Any, sizes: Any, dim: int = 0) -> list[Tensor]:
    return _cut_parts(node, x, dim)


def _unbind(node: Node, x: Any, dim: int = 0) -> list[Any]:
    tensor = typed_tensor(x)
    axis = axes_of(dim, tensor.ndim)[0]
    return [shaped(piece, node.shape) for piece in parts(tensor, axis, [1] * tensor.shape[axis])]


def _as_operands(node: Node, tensors: Sequence[Any]) -> list[Tensor]:
    """Return the tensors of a list in one type, without empty ones."""
    full = [tensor for tensor in tensors if not (isinstance(tensor, np.ndarray) and tensor.size == 0)]
    return [truth(tensor) if node.gives_bool else numeric(tensor) for tensor in full]


def _stack(node: Node, tensors: Sequence[Any], dim: int = 0) -> Any:
    axis = axes_of(dim, len(node.shape))[0]
    part_shape = tuple(1 if i == axis else extent for i, extent in enumerate(node.shape))
    operands = [tensor.reshape(*part_shape) for tensor in _as_operands(node, tensors)]
    return operands[0] if len(operands) == 1 else af.concat(operands, axis=axis)


def _repeat_interleave(node: Node, x: Any, repeats: Any, dim: Any = None, *_: Any) -> Tensor:
    tensor = typed_tensor(x)
    if dim is None:
        tensor, dim = tensor.reshape(tensor.size), 0
    axis = axes_of(dim, tensor.ndim)[0]
    if isinstance(repeats, Tensor):
        raise LoadError(
            "repeats are computed; the engine needs fixed ones, because the size of the result depends on them"
        )
    times = np.asarray(repeats).reshape(-1)
    places = np.repeat(np.arange(tensor.shape[axis]), times if times.size > 1 else int(times[0]))
    return af.gather(tensor, places, axis=axis)


def _flip(node: Node, x: Any, dims: Sequence[int]) -> Tensor:
    tensor = typed_tensor(x)
    return tensor.reverse(axes_of(list(dims), tensor.ndim)) if dims else tensor


def _roll(node: Node, x: Any, shifts: Any, dims: Any = ()) -> Tensor:
    tensor = typed_tensor(x)
    steps = [shifts] if isinstance(shifts, int) else list(shifts)
    axes = [dims] if isinstance(dims, int) else list(dims)
    if not axes:
        return _roll_axis(tensor.reshape(tensor.size), 0, int(steps[0])).reshape(*tensor.shape)
    for step, dim in zip(steps, axes, strict=True):
        tensor = _roll_axis(tensor, axes_of(dim, tensor.ndim)[0], int(step))
    return tensor


def _roll_axis(x: Tensor, axis: int, step: int) -> Tensor:
    shift = step % x.shape[axis]
    if shift == 0:
        return x
    first, last = parts(x, axis, [x.shape[axis] - shift, shift])
    return af.concat([last, first], axis=axis)


# Pads.


def _widths(x: Tensor, pad: Sequence[int]) -> list[tuple[int, int]]:
    """Return the pads by axis. PyTorch lists them from the last axis: before, after, before, after."""
    pairs = [(int(pad[i]), int(pad[i + 1])) for i in range(0, len(pad), 2)]
    return [(0, 0)] * (x.ndim - len(pairs)) + pairs[::-1]


def _pad(node: Node, x: Any, pad: Sequence[int], mode: str = "constant", value: Any = None) -> Tensor:
    tensor = numeric(x)
    widths = _widths(tensor, pad)
    if mode == "circular":
        result = tensor
        for axis, (before, after) in enumerate(widths):
            result = _wrap_axis(result, axis, before, after)
        return result
    fill = float(value or 0.0)
    result = padded(tensor, widths, mode, float(fill))
    return truth(result) if node.gives_bool else result


def _wrap_axis(x: Tensor, axis: int, before: int, after: int) -> Tensor:
    extent = x.shape[axis]
    if max(before, after) > extent or min(before, after) < 0:
        raise LoadError(
            f"circular pads {before} and {after} are out of range for an axis of {extent} elements; each must be 0 to "
            f"{extent}"
        )
    ends = [sliced(x, axis, extent - before, extent)] if before else []
    begins = [sliced(x, axis, 0, after)] if after else []
    return af.concat([*ends, x, *begins], axis=axis) if ends or begins else x


def _pad_by(mode: str) -> Rule:
    return lambda node, x, pad, *rest: _pad(node, x, pad, mode, rest[0] if rest else None)


# Constants.


def _fill_shape(node: Node, value: float) -> np.ndarray:
    kinds = {"bool": np.dtype(bool)}
    kind = kinds.get(node.dtypes[0], np.dtype(np.int64 if "int" in node.dtypes[0] else np.float32))
    return np.full(node.shape, value, kind)


def _full(node: Node, x: Any, *rest: Any) -> Any:
    """``full_like(x, v)``, ``new_full(x, size, v)`` and ``fill(x, v)``: the last argument is the value."""
    value = node.options.get("fill_value", rest[-1])
    if isinstance(value, Tensor):
        return broadcast_to(numeric(value), graph_shape(node.shape))
    return _fill_shape(node, float(np.asarray(value)))


def _windows(node: Node, x: Any, dim: int, size: int, step: int) -> Any:
    """Return sliding windows along an axis, as a new last axis."""
    tensor = typed_tensor(x)
    axis = axes_of(dim, tensor.ndim)[0]
    starts = np.arange(0, tensor.shape[axis] - int(size) + 1, int(step))
    places = starts[:, None] + np.arange(int(size))
    windows = gathered(tensor, axis, places)
    order = [i for i in range(windows.ndim) if i != axis + 1] + [axis + 1]
    return windows.transpose(order)


RULES: dict[str, Rule] = {
    **dict.fromkeys(
        ("_reshape_alias", "_unsafe_view", "atleast_1d", "atleast_2d", "atleast_3d", "flatten", "ravel", "reshape"),
        _view,
    ),
    **dict.fromkeys(
        ("reshape_as", "squeeze", "squeeze_copy", "unflatten", "unsqueeze", "unsqueeze_copy", "view", "view_as"),
        _view,
    ),
    **dict.fromkeys(("view_copy",), _view),
    **dict.fromkeys(
        ("alias", "alias_copy", "clone", "contiguous", "detach", "detach_copy", "lift_fresh_copy", "lift"), _same
    ),
    **dict.fromkeys(("_conj", "conj", "resolve_conj", "resolve_neg", "real"), _same),
    **dict.fromkeys(("_to_copy", "to", "type_as"), _to_copy),
    **dict.fromkeys(("expand", "expand_as", "expand_copy", "broadcast_to"), _expand),
    **dict.fromkeys(("full_like", "new_full", "fill"), _full),
    **dict.fromkeys(
        ("zeros_like", "new_zeros", "empty_like", "new_empty", "new_empty_strided", "zero"),
        lambda node, x, *_: _fill_shape(node, 0.0),
    ),
    **dict.fromkeys(("ones_like", "new_ones"), lambda node, x, *_: _fill_shape(node, 1.0)),
    **dict.fromkeys(("split", "split_with_sizes", "unsafe_split", "unsafe_split_with_sizes", "chunk"), _split),
    **dict.fromkeys(("tensor_split", "unsafe_chunk", "split_copy", "split_with_sizes_copy"), _split),
    **dict.fromkeys(("transpose", "swapaxes", "swapdims", "transpose_copy"), _transpose),
    **dict.fromkeys(("t", "t_copy", "numpy_T"), _reverse_axes),
    **dict.fromkeys(("movedim", "moveaxis"), _move_axes),
    **dict.fromkeys(("mT", "adjoint", "matrix_H"), lambda node, x: _transpose(node, x, -2, -1)),
    **dict.fromkeys(("select", "select_copy"), _select),
    **dict.fromkeys(("unbind", "unbind_copy"), _unbind),
    **dict.fromkeys(("unfold", "unfold_copy"), _windows),
    **dict.fromkeys(("reflection_pad1d", "reflection_pad2d", "reflection_pad3d"), _pad_by("reflect")),
    **dict.fromkeys(("replication_pad1d", "replication_pad2d", "replication_pad3d"), _pad_by("replicate")),
    "_pad_circular": _pad_by("circular"),
    "constant_pad_nd": _pad_by("constant"),
    "copy": _copy,
    "flip": _flip,
    "narrow": _narrow,
    "pad": _pad,
    "repeat_interleave.self_int": _repeat_interleave,
    "repeat_interleave.self_Tensor": _repeat_interleave,
    "roll": _roll,
    "stack": _stack,
}
