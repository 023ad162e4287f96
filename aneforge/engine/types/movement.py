"""Ops that move elements: the element type of what they read stays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING

from aneforge.engine.tensor_type import AnecError, TensorType
from aneforge.engine.types.checks import AXES, check_axes, check_dtype, check_fits, dims, replaced, require

if TYPE_CHECKING:
    from aneforge.engine.ir import Op
    from aneforge.graph.weights import Weight


_ORDERS = ("NCHW", "NHWC")


def same_type(op: Op, x: TensorType) -> TensorType:
    return x


def reshape(op: Op, x: TensorType) -> TensorType:
    shape = op["shape"]
    require(min(shape) > 0, f"shape = {list(shape)}; expected 1 or more along each axis")
    require(prod(shape) == x.elements, f"shape {dims(shape)} has {prod(shape)} elements; the input has {x.elements}")
    return TensorType(shape, x.dtype)


def broadcast(op: Op, x: TensorType) -> TensorType:
    check_fits("the input", x, op["shape"])
    return TensorType(op["shape"], x.dtype)


def transpose(op: Op, x: TensorType) -> TensorType:
    """Pairs (result axis, source axis) for every axis that moves; together they are a permutation."""
    pairs = op["transpose_list"]
    results, sources = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    check_axes("result axes of transpose_list", results)
    check_axes("source axes of transpose_list", sources)
    moved = f"it fills axes {sorted(results)} from axes {sorted(sources)}"
    require(set(results) == set(sources), f"transpose_list is not a permutation: {moved}")
    return TensorType(replaced(x.shape, {result: x.shape[source] for result, source in pairs}), x.dtype)


def concat(op: Op, *operands: TensorType) -> TensorType:
    axis = op["axis"]
    check_axes("axis", (axis,))
    require(bool(operands), "has no operands; expected one or more")
    first, total = operands[0], 0
    around = first.shape[:axis] + first.shape[axis + 1 :]
    for number, (shape, dtype) in enumerate(operands):
        if dtype != first.dtype:
            raise AnecError(f"operand {number} is {dtype}; operand 0 is {first.dtype}")
        if shape[:axis] + shape[axis + 1 :] != around or (op["interleave"] and shape != first.shape):
            free = "" if op["interleave"] else f" up to {AXES[axis]}"
            raise AnecError(f"operand {number} is {dims(shape)}; expected {dims(first.shape)}{free}")
        total += shape[axis]
    return TensorType(replaced(first.shape, {axis: total}), first.dtype)


def tile(op: Op, x: TensorType) -> TensorType:
    times = op["multiples"]
    require(min(times) > 0, f"multiples = {list(times)}; expected 1 or more along each axis")
    return TensorType(tuple(extent * count for extent, count in zip(x.shape, times, strict=True)), x.dtype)


def padding(op: Op, x: TensorType) -> TensorType:
    sizes = op["padding_sizes"]
    require(len(sizes) == 5, f"padding_sizes has {len(sizes)} pairs; expected 5, one for each axis")
    require(min(map(min, sizes)) >= 0, "padding_sizes has a negative size; expected 0 or more on each side")
    return TensorType(tuple(extent + sum(pair) for extent, pair in zip(x.shape, sizes, strict=True)), x.dtype)


def input_view(op: Op, x: TensorType) -> TensorType:
    axis, offset, size, step = (op[name] for name in ("dimension", "offset", "size", "step"))
    check_axes("dimension", (axis,))
    require(size > 0, f"size = {size}; expected 1 or more")
    require(step != 0 or size == 1, "step = 0; expected another step")
    last, extent = offset + step * (size - 1), x.shape[axis]
    inside = 0 <= offset < extent and 0 <= last < extent
    require(inside, f"reads elements {offset} to {last} along {AXES[axis]}; the input has {extent}")
    return TensorType(replaced(x.shape, {axis: size}), x.dtype)


def gather(op: Op, x: TensorType, indices: TensorType | None = None) -> TensorType:
    """By fixed indices, where those below 0 count from the end, or by an operand; several axes take one index each."""
    axes = op["axes"]
    check_axes("axes", axes)
    require(bool(axes), "axes is empty; expected one axis or more")
    if indices is None:
        fixed = op["indices"]
        require(bool(fixed), "indices is empty; expected one index or more")
        for place, axis in enumerate(axes):
            _check_indices(fixed[place :: len(axes)], axis, x.shape[axis])
        if len(axes) == 1:
            return TensorType(replaced(x.shape, {axes[0]: len(fixed)}), x.dtype)
        count = len(fixed)
    else:
        require("indices" not in op.attrs, "has indices both as an attribute and as an operand; expected one of them")
        check_dtype("the index operand", indices, "f16", "ui8", "si8")
        count = indices.elements
    places, left = divmod(count, len(axes))
    require(left == 0, f"has {count} indices; expected {len(axes)} for each place")
    picked = places * (x.elements // prod(x.shape[axis] for axis in axes))
    assert op.type is not None
    stated = op.type.elements
    require(stated == picked, f"result has {stated} elements; {places} places of this input are {picked}")
    return TensorType(op.type.shape, x.dtype)  # the op chooses the shape; only the order of elements is fixed


def _check_indices(indices: Sequence[int], axis: int, extent: int) -> None:
    inside = all(-extent <= index < extent for index in indices)
    require(
        inside, f"indices = {list(indices)}: one is out of range; the input has {extent} elements along {AXES[axis]}"
    )


def flatten(op: Op, x: TensorType) -> TensorType:
    _check_order(op)
    n, d, c, h, w = x.shape
    return TensorType((n, d, c * h * w, 1, 1), x.dtype)


def unflatten(op: Op, x: TensorType) -> TensorType:
    _check_order(op)
    size = op["destination_size"]
    n, d, *image = x.shape
    message = f"destination_size {dims(size)} has {prod(size)} elements; an image of the input has {prod(image)}"
    require(min(size) > 0 and prod(size) == prod(image), message)
    return TensorType((n, d, *size), x.dtype)


def _check_order(op: Op) -> None:
    mode = op["flatten_mode"]
    require(mode in _ORDERS, f"flatten_mode = {mode!r}; expected {' or '.join(_ORDERS)}")


def _factors(op: Op) -> tuple[int, int, int]:
    factors = op["factors"]
    require(min(factors) > 0, f"factors = {list(factors)}; expected 1 or more along each axis")
    return factors


def _divided(extent: int, factor: int, name: str) -> int:
    require(extent % factor == 0, f"{name} is {extent}; expected a multiple of {factor}")
    return extent // factor


def from_space(op: Op, x: TensorType) -> TensorType:
    """Blocks of (D, H, W) to channels."""
    n, d, c, h, w = x.shape
    z, y, u = _factors(op)
    shape = n, _divided(d, z, "the depth"), c * z * y * u, _divided(h, y, "the height"), _divided(w, u, "the width")
    return TensorType(shape, x.dtype)


def to_space(op: Op, x: TensorType) -> TensorType:
    """Channels to blocks of (D, H, W)."""
    n, d, c, h, w = x.shape
    z, y, u = _factors(op)
    return TensorType((n, d * z, _divided(c, z * y * u, "the number of channels"), h * y, w * u), x.dtype)


def space_to_batch(op: Op, x: TensorType) -> TensorType:
    n, d, c, h, w = x.shape
    z, y, u = _factors(op)
    shape = n * z * y * u, _divided(d, z, "the depth"), c, _divided(h, y, "the height"), _divided(w, u, "the width")
    return TensorType(shape, x.dtype)


def batch_to_space(op: Op, x: TensorType) -> TensorType:
    n, d, c, h, w = x.shape
    z, y, u = _factors(op)
    return TensorType((_divided(n, z * y * u, "the batch"), d * z, c, h * y, w * u), x.dtype)


def ring_read(op: Op, buffer: TensorType) -> TensorType:
    """Columns of a ring along the width."""
    size, width = op["size"], buffer.shape[4]
    require(0 < size <= width, f"size = {size}; the ring has {width} columns")
    return TensorType(replaced(buffer.shape, {4: size}), buffer.dtype)


def ring_write(op: Op, x: TensorType, buffer: TensorType) -> TensorType:
    fits = x.shape[:4] == buffer.shape[:4] and x.shape[4] <= buffer.shape[4] and x.dtype == buffer.dtype
    require(fits, f"writes {x}; the ring is {buffer}, whose shape differs or has too few columns")
    return buffer


# Ports, stored constants, state and native layers.


def free(op: Op) -> TensorType | None:
    """A value from outside has the type that its op declares."""
    return op.type


def output(op: Op, *operands: TensorType) -> None:
    names = op["names"]
    require(
        len(names) == len(operands), f"has {len(names)} names for {len(operands)} operands; expected the same number"
    )
    require(len(set(names)) == len(names), f"names = {list(names)} has a name twice")


def unit(op: Op, *operands: TensorType) -> TensorType | None:
    """A native layer has a shape of its own."""
    for number, operand in enumerate(operands):
        check_dtype(f"operand {number}", operand, "f16")
    return None if op.type is None else TensorType(op.type.shape)


def stored_size(op: Op, weights: Mapping[str, Weight]) -> None:
    """A constant has as many elements as its type says."""
    weight = weights.get(op["weight"])
    if weight is not None and op.type is not None:
        size = prod(weight.shape)
        require(
            size == op.type.elements, f"weight {op['weight']!r} has {size} elements; its type has {op.type.elements}"
        )
