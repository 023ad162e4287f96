"""Ops that move elements and compute nothing."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from aneforge.compiler.lower.builder import (
    DTYPES,
    MOST_CHANNELS,
    SMALLEST_CAP,
    Builder,
    D,
    has_room,
    laid_at,
    layout,
    places_of,
    rule,
)
from aneforge.engine.ir import Op
from aneforge.graph.node import Shape
from aneforge.graph.tensor import Tensor

_CHANNELS, _SPACE = 2, (3, 4)


@rule("reshape", "expand_dims", "squeeze", "flatten2d")
def _reshape(b: Builder, node: Tensor) -> Op:
    return b.laid(node.inputs[0], node.shape)


@rule("flatten")
def _flatten(b: Builder, node: Tensor) -> Op:
    """The native layer gives one line of channels for each image; the user's line lies along the width."""
    x = node.inputs[0]
    shape = x.shape if len(x.shape) < 5 else (x.shape[0], math.prod(x.shape[1:3]), *x.shape[3:])
    value = b.laid(x, shape)
    n, d, c, h, w = value.shape
    dtype = DTYPES[node.dtype]
    flattened = b.emit("flatten", (value,), (n, d, c * h * w, 1, 1), {"flatten_mode": "NCHW"}, dtype)
    return b.stored_reshape(flattened, layout(node.shape))


@rule("transpose")
def _transpose(b: Builder, node: Tensor) -> Op:
    before, after = places_of(node.inputs[0].shape), places_of(node.shape)
    sources = {after[result]: before[source] for result, source in enumerate(node.signature.attrs[0][1])}
    unused = iter([place for place in range(5) if place not in before])
    return b.transposed(b.value(node.inputs[0]), [sources[i] if i in sources else next(unused) for i in range(5)])


def _joined(b: Builder, values: list[Op], axis: int, shape: Shape, dtype: str) -> Op:
    """Joined along one NDCHW axis. Concat takes no batch axis, so the batch is laid on the channels there."""
    if len(values) == 1:
        return values[0]
    if axis:
        return b.emit("concat", values, shape, {"axis": axis}, dtype)
    values = [b.off_batch(value)[0] for value in values]
    plane = values[0].shape[3:]
    joined = b.emit("concat", values, (1, 1, shape[0], *plane), {"axis": _CHANNELS}, dtype)
    return b.stored_reshape(joined, shape)


@rule("concat")
def _concat(b: Builder, node: Tensor) -> Op:
    places = places_of(node.shape)
    values = [b.placed(operand, places) for operand in node.inputs]
    return _joined(b, values, places[node.signature.attrs[0][1]], layout(node.shape), DTYPES[node.dtype])


@rule("stack")
def _stack(b: Builder, node: Tensor) -> Op:
    position = node.signature.attrs[0][1]
    item_shape = (*node.shape[:position], 1, *node.shape[position + 1 :])
    places = places_of(node.shape)
    item = laid_at(item_shape, places)
    values = [b.stored_reshape(b.laid(operand, item_shape), item) for operand in node.inputs]
    return _joined(b, values, places[position], layout(node.shape), DTYPES[node.dtype])


@rule("tile")
def _tile(b: Builder, node: Tensor) -> Op:
    multiples = [1] * 5
    places = places_of(node.shape)
    for place, times in zip(places, node.signature.attrs[0][1], strict=True):
        multiples[place] = times
    x = b.placed(node.inputs[0], places)
    if multiples == [1] * 5:
        return x
    shape, dtype = layout(node.shape), DTYPES[node.dtype]
    stretches = all(times == 1 or extent == 1 for times, extent in zip(multiples, x.shape, strict=True))
    if stretches and multiples[D] == 1:  # a broadcast has a slot behind another layer; along the depth it needs 0x812
        return b.emit("broadcast", (x,), shape, {"shape": shape}, dtype)
    return b.emit("tile", (x,), shape, {"multiples": tuple(multiples)}, dtype)


def view(b: Builder, x: Op, axis: int, offset: int, size: int, step: int = 1) -> Op:
    """One input view; a view takes no batch axis, so the batch is laid on the channels there."""
    if step == 1 and size == x.shape[axis]:
        return x
    assert x.type is not None
    if axis == 0:
        flat, shape = b.off_batch(x)
        return b.stored_reshape(view(b, flat, _CHANNELS, offset, size, step), (size, *shape[1:]))
    shape = tuple(size if i == axis else extent for i, extent in enumerate(x.shape))
    attrs = {"dimension": axis, "offset": offset, "size": size, "step": step}
    return b.emit("input_view", (x,), shape, attrs, x.type.dtype)


@rule("slice_by_size")
def _slice(b: Builder, node: Tensor) -> Op:
    (_, begin), (_, size) = node.signature.attrs
    x = b.value(node.inputs[0])
    for place, start, length in zip(places_of(node.inputs[0].shape), begin, size, strict=True):
        x = view(b, x, place, start, length)
    return x


@rule("slice_by_index")
def _strided(b: Builder, node: Tensor) -> Op:
    (_, begin), _, (_, stride) = node.signature.attrs
    x = b.value(node.inputs[0])
    places = places_of(node.inputs[0].shape)
    for place, start, length, step in zip(places, begin, node.shape, stride, strict=True):
        x = view(b, x, place, start, length, step if length > 1 else 1)
    return x


@rule("reverse")
def _reverse(b: Builder, node: Tensor) -> Op:
    x = b.value(node.inputs[0])
    for axis in node.signature.attrs[0][1]:
        extent = node.shape[axis]
        if extent > 1:
            x = view(b, x, places_of(node.shape)[axis], extent - 1, extent, -1)
    return x


@rule("crop")
def _crop(b: Builder, node: Tensor) -> Op:
    attrs = dict(node.signature.attrs)
    rows = view(b, b.value(node.inputs[0]), 3, attrs["top"], node.shape[2])
    return view(b, rows, 4, attrs["left"], node.shape[3])


@rule("input_view")
def _input_view(b: Builder, node: Tensor) -> Op:
    """Along an axis, or a run of the elements as one line, which is laid out so that every chip has room for it."""
    attrs = dict(node.signature.attrs)
    start, size, step = attrs["offset"], attrs["size"], attrs["step"]
    x = node.inputs[0]
    if attrs["along"] is not None:
        return view(b, b.value(x), places_of(x.shape)[attrs["along"]], start, size, step)
    last = start + step * (size - 1)
    first, end = min(start, last), max(start, last) + 1
    length = math.prod(x.shape)
    columns = _columns(length, first, end)
    row = first // columns
    rows = view(b, b.laid(x, (length // columns, columns)), 2, row, -(-end // columns) - row)
    line = b.stored_reshape(rows, (1, 1, 1, 1, math.prod(rows.shape)))
    return view(b, line, 4, start - row * columns, size, step)


def _columns(length: int, start: int, end: int) -> int:
    """How long to cut the rows of a line, so that the rows around a run make a line that every chip has room for."""
    lengths = [length, *(size for size in range(min(length, SMALLEST_CAP), 0, -1) if length % size == 0)]
    fits = (size for size in lengths if (-(-end // size) - start // size) * size <= SMALLEST_CAP)
    return next((size for size in fits if length // size <= MOST_CHANNELS), length)


@rule("gather")
def _gather(b: Builder, node: Tensor) -> Op:
    (_, indices), (_, axis) = node.signature.attrs
    places = places_of(node.inputs[0].shape, node.shape)
    place = places[axis]
    x, shape = b.placed(node.inputs[0], places), laid_at(node.shape, places)
    dtype = DTYPES[node.dtype]
    if place:
        return b.emit("gather_nd", (x,), shape, {"axes": (place,), "indices": indices}, dtype)
    flat, _ = b.off_batch(x)
    attrs = {"axes": (_CHANNELS,), "indices": indices}
    gathered = b.emit("gather_nd", (flat,), (1, 1, len(indices), *flat.shape[3:]), attrs, dtype)
    return b.stored_reshape(gathered, shape)


_MODES = {"constant": "Background", "replicate": "Replication", "symmetric": "Symmetric", "reflect": "Reflective"}
_NUMPY_MODES: dict[str, Literal["edge", "symmetric", "reflect"]] = {
    "replicate": "edge",
    "symmetric": "symmetric",
    "reflect": "reflect",
}


@rule("pad")
def _pad(b: Builder, node: Tensor) -> Op:
    """The layer pads H and W only ("Channel padding is not supported on ANE"): an axis that lies elsewhere is laid
    on H, with what is before it on C and what is after it on W. Where that makes an axis too long, the edges are
    joined to the tensor as it lies."""
    attrs = dict(node.signature.attrs)
    widths, value = attrs["widths"], attrs["value"]
    mode = "Zero" if attrs["mode"] == "constant" and value == 0 else _MODES[attrs["mode"]]
    result, shape = b.placed(node.inputs[0], places_of(node.shape)), node.inputs[0].shape
    places = places_of(node.shape)
    for axis, (before, after) in enumerate(widths):
        if places[axis] in _SPACE or not (before or after):
            continue
        folded = (math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :]))
        tall = (folded[0], before + shape[axis] + after, folded[2])
        grown = (*shape[:axis], tall[1], *shape[axis + 1 :])
        if has_room((1, 1, *tall)):
            on_rows = b.stored_reshape(b.reshaped(result, shape, folded), (1, 1, *folded))
            grown_value = padded(b, on_rows, (before, after), (0, 0), mode, value)
            result = b.reshaped(grown_value, tall, grown)
        else:
            result = _edged(b, result, places[axis], (before, after), attrs["mode"], value)
        shape = grown
    sides = dict(zip(places, widths, strict=True))
    return padded(b, result, sides.get(3, (0, 0)), sides.get(4, (0, 0)), mode, value)


def _edged(b: Builder, x: Op, place: int, sides: tuple[int, int], mode: str, value: float) -> Op:
    """Add elements along any axis: a number beside the tensor, or elements of its own picked again."""
    if place == 0:
        flat, shape = b.off_batch(x)
        grown = _edged(b, flat, _CHANNELS, sides, mode, value)
        return b.stored_reshape(grown, (grown.shape[_CHANNELS], *shape[1:]))
    before, after = sides
    extent = x.shape[place]

    def sized(size: int) -> Shape:
        return tuple(size if axis == place else own for axis, own in enumerate(x.shape))

    if mode == "constant":
        number = b.constant(value, (1, 1, 1, 1, 1))
        edges = [
            b.emit("broadcast", (number,), sized(size), {"shape": sized(size)}) if size else None for size in sides
        ]
        parts = [part for part in (edges[0], x, edges[1]) if part is not None]
        return b.emit("concat", parts, sized(before + extent + after), {"axis": place})
    line = np.pad(np.arange(extent), sides, mode=_NUMPY_MODES[mode])
    attrs = {"axes": (place,), "indices": tuple(line.tolist())}
    return b.emit("gather_nd", (x,), sized(before + extent + after), attrs)


def padded(
    b: Builder, x: Op, rows: tuple[int, int], columns: tuple[int, int], mode: str = "Zero", value: float = 0.0
) -> Op:
    """Rows and columns added around each plane."""
    if not any((*rows, *columns)):
        return x
    n, d, c, h, w = x.shape
    sizes = ((0, 0), (0, 0), (0, 0), rows, columns)
    attrs = {"padding_modes": mode, "padding_sizes": sizes, "background_value": float(value)}
    return b.emit("padding", (x,), (n, d, c, h + sum(rows), w + sum(columns)), attrs)
