"""Indexing. Known indices become gathers, concatenations and scatters of the graph. Computed indices become a mask
that the engine selects by, or are left to the host."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from aneforge.frontends import LoadError
from aneforge.frontends.forms import broadcast_to, gathered, sliced, truth
from aneforge.frontends.pytorch.movement import typed_tensor
from aneforge.frontends.pytorch.node import Node, Rule, graph_shape
from aneforge.frontends.pytorch.values import axes_of, numeric, shaped
from aneforge.frontends.values import NoForm
from aneforge.graph import builders as af
from aneforge.graph.ops.host import host
from aneforge.graph.tensor import Tensor

_MOST_NUMBERED = 1 << 24
_MOST_WRITES = 4096
_MOST_PLACES = 1 << 18  # the indices are an attribute of the node and are printed with it
_BY_INDEX = "it picks elements by a computed index; the engine takes fixed indices only (C42)"
_WRITES = "it writes to computed indices; the engine takes fixed indices only (C42)"


def _known_places(value: Any) -> np.ndarray:
    """Return known indices or a known mask."""
    if isinstance(value, Tensor):
        raise NoForm(_BY_INDEX)
    return np.asarray(value)


def _pick(x: Tensor, places: np.ndarray, shape: tuple[int, ...]) -> Any:
    """Return elements of the flattened tensor, in the shape of the result."""
    if places.size > _MOST_PLACES:
        raise NoForm(f"it picks {places.size:,} elements one by one; the limit is {_MOST_PLACES:,}")
    return shaped(af.gather(x.reshape(x.size), places.reshape(-1), axis=0), shape)


# Reading.


def _index(node: Node, x: Any, indices: Sequence[Any]) -> Any:
    """Advanced indexing as in NumPy."""
    tensor = typed_tensor(x)
    if any(isinstance(index, Tensor) for index in indices):
        raise NoForm(_BY_INDEX)
    known = [None if index is None else _known_places(index) for index in indices]
    used = [axis for axis, index in enumerate(known) if index is not None]
    if len(used) == 1 and known[used[0]].dtype != bool:  # type: ignore[union-attr]
        return _pick_along(tensor, used[0], known[used[0]], node.shape)  # type: ignore[arg-type]
    key = tuple(slice(None) if index is None else index for index in known)
    return _pick(tensor, _element_numbers(tensor)[key], node.shape)


def _element_numbers(x: Tensor) -> np.ndarray:
    if x.size > _MOST_NUMBERED:
        raise NoForm(f"it picks single elements of a tensor of {x.size:,}; the limit is {_MOST_NUMBERED:,}")
    return np.arange(x.size).reshape(x.shape)


def _pick_along(x: Tensor, axis: int, places: np.ndarray, shape: tuple[int, ...]) -> Any:
    """Return the elements at known indices along one axis; consecutive indices are a slice."""
    size = x.shape[axis]
    flat = np.where(places < 0, places + size, places).reshape(-1).astype(int)
    outside = flat[(flat < 0) | (flat >= size)]
    if outside.size:
        raise LoadError(f"index {int(outside[0])} is out of range; the axis has {size} elements")
    if flat.size and (np.diff(flat) == 1).all():
        return shaped(sliced(x, axis, int(flat[0]), int(flat[-1]) + 1), shape)
    return shaped(af.gather(x, flat, axis=axis), shape)


def _index_select(node: Node, x: Any, dim: int, index: Any) -> Any:
    tensor = typed_tensor(x)
    return _pick_along(tensor, axes_of(dim, tensor.ndim)[0], _known_places(index), node.shape)


def _embedding(node: Node, table: Any, indices: Any, *_: Any) -> Any:
    if isinstance(indices, Tensor):
        raise NoForm("it looks up rows of a table by a computed index; the engine takes fixed indices only (C42)")
    return shaped(gathered(typed_tensor(table), 0, np.asarray(indices).reshape(-1)), node.shape)


def _gather(node: Node, x: Any, dim: int, index: Any, *_: Any) -> Any:
    """One index for each element of the result."""
    tensor, places = typed_tensor(x), _known_places(index)
    axis = axes_of(dim, tensor.ndim)[0]
    flat = _element_numbers(tensor)
    window = tuple(slice(0, extent) if i != axis else slice(None) for i, extent in enumerate(places.shape))
    return _pick(tensor, np.take_along_axis(flat[window], places, axis), node.shape)


def _take(node: Node, x: Any, index: Any) -> Any:
    tensor = typed_tensor(x)
    return _pick(tensor, _element_numbers(tensor).reshape(-1)[_known_places(index)], node.shape)


def _diagonal(node: Node, x: Any, offset: int = 0, first: int = 0, second: int = 1) -> Any:
    tensor = typed_tensor(x)
    return _pick(tensor, np.diagonal(_element_numbers(tensor), int(offset), int(first), int(second)), node.shape)


def _as_strided(node: Node, x: Any, size: Any, stride: Any, offset: Any = None) -> Any:
    """Offsets in memory, for a contiguous tensor."""
    tensor = typed_tensor(x)
    packed = tuple(math.prod(tensor.shape[i + 1 :]) for i in range(tensor.ndim))
    strides = node.operand_strides[0] if node.operand_strides else packed
    if graph_shape(tuple(strides)) != packed:
        raise LoadError(
            f"strides {list(strides)} of the input are not supported; a view by strides needs a contiguous input"
        )
    steps = [np.arange(int(n)) * int(s) for n, s in zip(size, stride, strict=True)]
    places = np.asarray(int(offset or 0))
    for axis, step in enumerate(steps):
        places = places + step.reshape((-1,) + (1,) * (len(steps) - 1 - axis))
    return _pick(tensor, np.broadcast_to(places, node.shape), node.shape)


# Writing.


def _select_scatter(node: Node, x: Any, source: Any, dim: int, index: int) -> Tensor:
    axis = axes_of(dim, len(node.shape))[0]
    place = int(index) % node.shape[axis]
    return _slice_scatter(node, x, source, dim, place, place + 1)


def _slice_scatter(
    node: Node, x: Any, source: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Tensor:
    """Join what is before the slice, the new part, and what is after it."""
    axis = axes_of(dim, len(node.shape))[0]
    extent = node.shape[axis]
    chosen = range(extent)[slice(0 if start is None else int(start), extent if end is None else int(end), int(step))]
    base, new = (truth(x), truth(source)) if node.gives_bool else (numeric(x), numeric(source))
    part_shape = tuple(len(chosen) if i == axis else length for i, length in enumerate(node.shape))
    new = _in_shape(new, *part_shape) if new.size == math.prod(part_shape) else broadcast_to(new, part_shape)
    if not len(chosen):
        return base
    if step != 1:
        return af.scatter(base, list(chosen), new, axis)
    before = [sliced(base, axis, 0, chosen[0])] if chosen[0] else []
    after = [sliced(base, axis, chosen[-1] + 1, extent)] if chosen[-1] + 1 < extent else []
    return af.concat([*before, new, *after], axis=axis) if before or after else new


def _write(node: Node, x: Any, places: np.ndarray, values: Tensor, add: bool) -> Tensor:
    """Write values at indices of the flattened tensor."""
    base = numeric(x)
    flat = places.reshape(-1)
    if flat.size > _MOST_WRITES:
        raise NoForm(f"it writes {flat.size:,} elements one by one; the limit is {_MOST_WRITES:,}")
    lines = values.reshape(values.size) if values.size == flat.size else broadcast_to(values, places.shape)
    lines = lines.reshape(lines.size)
    if not add and len(set(flat.tolist())) != flat.size:
        last = {place: at for at, place in enumerate(flat.tolist())}  # of equal indices the last write stays
        lines, flat = af.gather(lines, list(last.values())), np.array(list(last))
    result = af.scatter(base.reshape(base.size), flat.tolist(), lines, 0, mode="add" if add else "set")
    return result.reshape(*base.shape)


def _index_put(node: Node, x: Any, indices: Sequence[Any], values: Any, accumulate: bool = False) -> Tensor:
    used = [axis for axis, index in enumerate(indices) if index is not None]
    if len(used) == 1 and not accumulate and (choice := _masked_choice(node, x, indices[used[0]], values)) is not None:
        return choice
    if any(isinstance(index, Tensor) for index in indices):
        if len(used) == 1 and not accumulate and not node.gives_bool:
            return _marked_write(node, x, used[0], indices[used[0]], numeric(values))
        raise NoForm(_WRITES)
    known = [None if index is None else np.asarray(index) for index in indices]
    if len(used) == 1 and known[used[0]].ndim == 1 and known[used[0]].dtype != bool:  # type: ignore[union-attr]
        return _put_along(node, x, used[0], known[used[0]], numeric(values), accumulate)  # type: ignore[arg-type]
    base = numeric(x)
    key = tuple(slice(None) if index is None else index for index in known)
    return _write(node, x, _element_numbers(base)[key], numeric(values), accumulate)


def _masked_choice(node: Node, x: Any, index: Any, values: Any) -> Tensor | None:
    """Return a select for a mask over leading axes and one value; None for any other index."""
    is_mask = index.dtype == "bool" if isinstance(index, Tensor) else np.asarray(index).dtype == bool
    if not is_mask:
        return None
    if math.prod(getattr(values, "shape", ()) or (1,)) != 1:
        return None
    mask = truth(index)
    mask_shape = (*mask.shape, *(1,) * (len(node.shape) - mask.ndim))
    mask = mask.reshape(*mask_shape) if mask_shape != mask.shape else mask
    return af.where(mask, numeric(values).reshape(*(1,) * len(node.shape)), numeric(x))


def _put_along(node: Node, x: Any, axis: int, places: np.ndarray, values: Tensor, add: bool) -> Tensor:
    base = numeric(x)
    size = base.shape[axis]
    flat = [int(place) % size for place in places.reshape(-1)]
    part_shape = (*base.shape[:axis], len(flat), *base.shape[axis + 1 :])
    new = values if values.shape == part_shape else broadcast_to(values, part_shape)
    if not add and flat == list(range(flat[0], flat[0] + len(flat))):
        return _slice_scatter(node, x, new, axis, flat[0], flat[0] + len(flat))
    if not add and len(set(flat)) != len(flat):
        last = {place: at for at, place in enumerate(flat)}
        new, flat = af.gather(new, list(last.values()), axis=axis), list(last)
    return af.scatter(base, flat, new, axis, mode="add" if add else "set")


def _index_copy(node: Node, x: Any, dim: int, index: Any, source: Any) -> Tensor:
    axis = axes_of(dim, len(node.shape))[0]
    if isinstance(index, Tensor):
        return _marked_write(node, x, axis, index, numeric(source))
    return _put_along(node, x, axis, np.asarray(index), numeric(source), False)


def _index_add(node: Node, x: Any, dim: int, index: Any, source: Any) -> Tensor:
    axis = axes_of(dim, len(node.shape))[0]
    if isinstance(index, Tensor):
        raise NoForm(_WRITES)
    factor = float(node.options.get("alpha", 1))
    new = numeric(source) if factor == 1.0 else numeric(source) * factor
    return _put_along(node, x, axis, np.asarray(index), new, True)


def _index_fill(node: Node, x: Any, dim: int, index: Any, value: Any) -> Tensor:
    if isinstance(index, Tensor):
        raise NoForm(_WRITES)
    axis = axes_of(dim, len(node.shape))[0]
    return _put_along(node, x, axis, np.asarray(index), numeric(value).reshape(*(1,) * len(node.shape)), False)


def _marked_write(node: Node, x: Any, axis: int, index: Tensor, values: Tensor) -> Tensor:
    """Write at computed indices along one axis. The host turns them into a mask, and the engine selects by it. So a
    cache of keys and values stays on the engine; only the mask is transferred."""
    base = numeric(x)
    count, size = index.size, base.shape[axis]
    part_shape = (*base.shape[:axis], count, *base.shape[axis + 1 :])
    new = values if values.size == math.prod(part_shape) else broadcast_to(values, part_shape)
    is_written = _marks(node, index, size, (size,), 1)
    before, after = math.prod(base.shape[:axis]), math.prod(base.shape[axis + 1 :])
    lines = _in_shape(new, before, count, after)
    if count > 1:
        lines = _marks(node, index, size, (size, count), 0) @ lines
    result = af.where(is_written.reshape(1, size, 1), lines, _in_shape(base, before, size, after))
    return _in_shape(result, *base.shape)


def _marks(node: Node, index: Tensor, size: int, shape: tuple[int, ...], output: int) -> Tensor:
    """Return the mask, created once for all writes to the same indices, such as the caches of all layers."""
    key = ("marks", index.uid, size, output)
    if key not in node.shared:
        node.shared[key] = host(
            [index],
            language="torch",
            kind="aneforge.marks",
            body=json.dumps({"size": size}),
            shape=shape,
            dtype="bool" if output else "fp16",
            output=output,
            reason="it turns computed indices into a mask; the engine selects by it where to write",
        )
    return node.shared[key]


def _in_shape(x: Tensor, *shape: int) -> Tensor:
    return x if x.shape == shape else x.reshape(*shape)


def _scatter(node: Node, x: Any, dim: int, index: Any, source: Any, add: bool = False) -> Tensor:
    """One index for each element that is written."""
    if isinstance(index, Tensor):
        raise NoForm(_WRITES)
    if node.options.get("reduce") not in (None, "add"):
        raise NoForm(f"reduce {node.options['reduce']!r} is not supported; the engine has 'add' only")
    base, places = numeric(x), np.asarray(index)
    axis = axes_of(dim, base.ndim)[0]
    flat = _element_numbers(base)
    window = tuple(slice(0, extent) if i != axis else slice(None) for i, extent in enumerate(places.shape))
    where = np.take_along_axis(flat[window], places, axis)
    new = numeric(source)
    if new.ndim == places.ndim and new.shape != places.shape:
        new = new.slice_by_size([0] * new.ndim, places.shape)
    return _write(node, x, where, new, add or node.options.get("reduce") == "add")


def _scatter_reduce(
    node: Node, x: Any, dim: int, index: Any, source: Any, reduce: str, include_self: bool = True
) -> Tensor:
    if reduce == "sum" and node.options.get("include_self", include_self):
        return _scatter(node, x, dim, index, source, add=True)
    raise NoForm(f"reduce {reduce!r} is not supported; the engine has 'sum' with include_self=True only")


def _masked_select(node: Node, *_: Any) -> Tensor:
    raise LoadError("the size of the result depends on the data; the engine needs fixed sizes")


RULES: dict[str, Rule] = {
    **dict.fromkeys(("index", "_unsafe_index"), _index),
    **dict.fromkeys(("index_put", "_unsafe_index_put", "_index_put_impl"), _index_put),
    **dict.fromkeys(("as_strided", "as_strided_copy"), _as_strided),
    **dict.fromkeys(("diagonal", "diagonal_copy"), _diagonal),
    **dict.fromkeys(("masked_select", "nonzero", "unique_consecutive", "_unique2", "unique_dim"), _masked_select),
    "embedding": _embedding,
    "gather": _gather,
    "index_add": _index_add,
    "index_copy": _index_copy,
    "index_fill": _index_fill,
    "index_select": _index_select,
    "scatter": _scatter,
    "scatter_add": lambda node, x, dim, index, source: _scatter(node, x, dim, index, source, add=True),
    "scatter_reduce": _scatter_reduce,
    "select_scatter": _select_scatter,
    "slice_scatter": _slice_scatter,
    "take": _take,
}
