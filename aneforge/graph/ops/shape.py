"""Ops that move or rename elements and compute nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from aneforge.errors import GraphError
from aneforge.graph.node import Node, OpDef, Shape, composed, entry, make, op
from aneforge.graph.ops.extra import scatter
from aneforge.graph.ops.leaf import as_tensor, const
from aneforge.graph.shapes import axes_of, axis_of, count, extent, number, positive, rank_is, same_shape, whole_number
from aneforge.graph.traits import GraphTrait as T

if TYPE_CHECKING:
    from aneforge.graph.tensor import Tensor


@op("transpose", "x", "perm", T.MOVEMENT, dtypes="same", mil="transpose x | perm")
class TRANSPOSE:
    """Reordered axes."""

    @staticmethod
    def shape(x, perm):
        if sorted(perm) != list(range(len(x))):
            raise GraphError(f"{list(perm)} does not name each of {len(x)} axes once")
        return tuple(x[axis] for axis in perm)

    @staticmethod
    def reference(x, perm):
        return x.transpose(perm)

    @staticmethod
    def derivative(g, y, x, perm):
        return [g.transpose([perm.index(axis) for axis in range(len(perm))])]


def reshaping(name: str, doc: str, attribute: str, shape: Any, *traits: T, **options: Any) -> OpDef:
    """Declare an op that is a reshape with a rule for the new shape."""
    body = {
        "__doc__": doc,
        "shape": lambda x, **attrs: shape(x, *attrs.values()),
        "reference": lambda x, **attrs: x.reshape(shape(x.shape, *attrs.values())),
        "derivative": lambda g, y, x, **attrs: [g.reshape(x.shape)],
    }
    return op(name, "x", attribute, *traits, **options)(type(name, (), body))


def _view(name: str, doc: str, attribute: str, shape: Any, spelled: str = "") -> OpDef:
    mil = f"{name} x | {spelled or attribute}"
    return reshaping(name, doc, attribute, shape, T.MOVEMENT, T.VIEW, dtypes="same", mil=mil)


def _reshaped(x: Shape, to: Shape) -> Shape:
    if count(x) != count(to):
        raise GraphError(
            f"{count(x)} elements cannot be reshaped to {list(to)}, which holds {count(to)}; both must hold as many"
        )
    return to


def _expanded(x: Shape, axes: tuple[int, ...]) -> Shape:
    kept = iter(x)
    return tuple(1 if axis in axes else next(kept) for axis in range(len(x) + len(axes)))


def _squeezed(x: Shape, axes: tuple[int, ...]) -> Shape:
    for axis in axes:
        if x[axis] != 1:
            raise GraphError(f"axis {axis} has {x[axis]} elements; only axes of one can be removed")
    result = tuple(size for axis, size in enumerate(x) if axis not in axes)
    return result or (1,)


RESHAPE = _view("reshape", "The same elements in the same order under another shape.", "to", _reshaped, "to>shape")
EXPAND_DIMS = _view("expand_dims", "New axes of one.", "axes", _expanded)
SQUEEZE = _view("squeeze", "Axes of one removed.", "axes", _squeezed)
FLATTEN2D = _view(
    "flatten2d",
    "Two axes: those before, and those from one axis on.",
    "axis",
    lambda x, a: (count(x[:a]), count(x[a:])),
)


def _joined(*shapes: Shape, axis: int) -> Shape:
    first = shapes[0]
    for shape in shapes[1:]:
        if len(shape) != len(first) or any(
            a != b for i, (a, b) in enumerate(zip(first, shape, strict=True)) if i != axis
        ):
            raise GraphError(f"{list(first)} and {list(shape)} differ outside axis {axis}")
    return tuple(sum(s[axis] for s in shapes) if i == axis else size for i, size in enumerate(first))


@op("concat", "*tensors", "axis", dtypes="same", mil="concat *values | axis")
class CONCAT:
    """Tensors joined along one axis."""

    shape = _joined

    @staticmethod
    def reference(*tensors, axis):
        return np.concatenate(tensors, axis=axis)

    @staticmethod
    def derivative(g, y, *tensors, axis):
        parts, start = [], 0
        for tensor in tensors:
            begin = [start if i == axis else 0 for i in range(g.ndim)]
            parts.append(g.slice_by_size(begin, tensor.shape))
            start += tensor.shape[axis]
        return parts


@op("stack", "*tensors", "axis", dtypes="same", mil="stack *values | axis", diverges_as="concat")
class STACK:
    """Tensors of one shape joined along a new axis."""

    @staticmethod
    def shape(*tensors, axis):
        if len(set(tensors)) > 1:
            raise GraphError(
                f"all shapes must be equal, not {' and '.join(str(list(s)) for s in dict.fromkeys(tensors))}"
            )
        return (*tensors[0][:axis], len(tensors), *tensors[0][axis:])

    @staticmethod
    def reference(*tensors, axis):
        return np.stack(tensors, axis=axis)

    @staticmethod
    def derivative(g, y, *tensors, axis):
        size = [1 if i == axis else extent for i, extent in enumerate(g.shape)]
        begins = [[n if i == axis else 0 for i in range(g.ndim)] for n in range(len(tensors))]
        return [g.slice_by_size(begin, size).reshape(t.shape) for begin, t in zip(begins, tensors, strict=True)]


@op("tile", "x", "reps", T.MOVEMENT, dtypes="same", mil="tile x | reps", diverges_as="move")
class TILE:
    """Whole copies along each axis."""

    @staticmethod
    def shape(x, reps):
        if len(reps) != len(x):
            raise GraphError(f"needs one repeat per axis ({len(x)}), not {len(reps)}")
        return tuple(size * times for size, times in zip(x, reps, strict=True))

    @staticmethod
    def reference(x, reps):
        return np.tile(x, reps)

    @staticmethod
    def derivative(g, y, x, reps):
        total = g
        for axis, times in enumerate(reps):
            if times > 1:
                size = [x.shape[axis] if i == axis else extent for i, extent in enumerate(total.shape)]
                steps = [[n * x.shape[axis] if i == axis else 0 for i in range(x.ndim)] for n in range(times)]
                parts = [total.slice_by_size(begin, size) for begin in steps]
                total = parts[0]
                for part in parts[1:]:
                    total = total + part
        return [total]


@op("reverse", "x", "axes", T.PICK, dtypes="same", mil="reverse x | axes", diverges_as="slice")
class REVERSE:
    """Elements in opposite order along some axes."""

    shape = same_shape

    @staticmethod
    def reference(x, axes):
        return np.flip(x, axes)

    @staticmethod
    def derivative(g, y, x, axes):
        return [g.reverse(axes)]


@op("slice_by_size", "x", "begin size", T.MOVEMENT, T.SLICE, dtypes="same", mil="slice_by_size x | begin size")
class SLICE:
    """A block: ``size[i]`` elements from ``begin[i]`` along each axis."""

    @staticmethod
    def shape(x, begin, size):
        if len(begin) != len(x) or len(size) != len(x):
            raise GraphError(f"needs one begin and one size per axis ({len(x)})")
        for axis, (start, length, total) in enumerate(zip(begin, size, x, strict=True)):
            if start + length > total:
                raise GraphError(f"axis {axis}: {length} elements from {start} do not fit an extent of {total}")
        return size

    @staticmethod
    def reference(x, begin, size):
        return x[tuple(slice(start, start + length) for start, length in zip(begin, size, strict=True))]

    @staticmethod
    def derivative(g, y, x, begin, size):
        widths = [(b, n - b - s) for b, s, n in zip(begin, size, x.shape, strict=True)]
        return [g.pad(widths)]


@op(
    "slice_by_index",
    "x",
    "begin end stride",
    T.MOVEMENT,
    T.SLICE,
    dtypes="same",
    mil="slice_by_index x | begin end stride",
)
class STRIDED_SLICE:
    """Every ``stride[i]``-th element of a block along each axis."""

    @staticmethod
    def shape(x, begin, end, stride):
        return tuple(-(-(e - b) // s) for b, e, s in zip(begin, end, stride, strict=True))

    @staticmethod
    def reference(x, begin, end, stride):
        return x[tuple(slice(b, e, s) for b, e, s in zip(begin, end, stride, strict=True))]

    @staticmethod
    @composed
    def derivative(x, begin, end, stride):
        return picked(x, [range(b, e, s) for b, e, s in zip(begin, end, stride, strict=True)])


@op("gather", "x", "indices axis", T.PICK, dtypes="same", mil="gather x | indices axis validate_indices=False")
class GATHER:
    """Elements picked along one axis by fixed indices."""

    @staticmethod
    def shape(x, indices, axis):
        for index in indices:
            if not 0 <= index < x[axis]:
                raise GraphError(f"index {index} is outside axis {axis} of extent {x[axis]}")
        return (*x[:axis], len(indices), *x[axis + 1 :])

    @staticmethod
    def reference(x, indices, axis):
        return np.take(x, indices, axis=axis)

    @staticmethod
    def derivative(g, y, x, indices, axis):
        return [scatter(const(np.zeros(x.shape)), indices, g, axis, mode="add")]


def picked(x: Tensor, positions: Sequence[Sequence[int]]) -> Tensor:
    """Elements picked along every axis that does not keep all of its own in order."""
    for axis, chosen in enumerate(positions):
        if list(chosen) != list(range(x.shape[axis])):
            x = gather(x, list(chosen), axis)
    return x


@op("pad", "x", "widths mode value", diverges_as="move")
class PAD:
    """Elements added before and after each axis."""

    @staticmethod
    def shape(x, widths, mode, value):
        if len(widths) != len(x):
            raise GraphError(f"needs (before, after) for each of {len(x)} axes, not {len(widths)}")
        for axis, (before, after) in enumerate(widths):
            if mode == "reflect" and max(before, after) >= x[axis]:
                raise GraphError(f"axis {axis} of {x[axis]} cannot be reflected by {max(before, after)}")
        return tuple(before + size + after for size, (before, after) in zip(x, widths, strict=True))

    @staticmethod
    def reference(x, widths, mode, value):
        return np.pad(x, widths, constant_values=value) if mode == "constant" else repeated(x, widths, mode)

    @staticmethod
    def derivative(g, y, x, widths, mode, value):
        if mode == "constant":
            return [g.slice_by_size([before for before, _ in widths], x.shape)]
        sources = [repeated(np.arange(n), [w], mode).tolist() for n, w in zip(x.shape, widths, strict=True)]
        return composed(lambda x: picked(x, sources))(g, y, x)


def repeated(x: np.ndarray, widths: Sequence[Sequence[int]], mode: str) -> np.ndarray:
    """An array between repetitions of its own elements: its edge, or a mirror of it."""
    numpys: Any = "edge" if mode == "replicate" else mode
    return np.pad(x, widths, mode=numpys)


@op("crop", "x", "top bottom left right", T.MOVEMENT, T.SLICE, dtypes="same")
class CROP:
    """Rows and columns dropped from the border of NCHW."""

    @staticmethod
    def shape(x, top, bottom, left, right):
        rank_is(x, 4, "input")
        if top + bottom >= x[2] or left + right >= x[3]:
            raise GraphError(f"cropping leaves nothing of {x[2]} x {x[3]}; leave at least one row and column")
        return x[0], x[1], x[2] - top - bottom, x[3] - left - right

    @staticmethod
    def reference(x, top, bottom, left, right):
        return x[:, :, top : x.shape[2] - bottom, left : x.shape[3] - right]

    @staticmethod
    def derivative(g, y, x, top, bottom, left, right):
        return [g.pad(((0, 0), (0, 0), (top, bottom), (left, right)))]


def target_shape(x: Tensor, shape: Sequence[Any]) -> Shape:
    """A reshape target with at most one -1, filled in."""
    extents = shape[0] if len(shape) == 1 and isinstance(shape[0], Sequence) else shape
    sizes = [whole_number(size, "every extent of a shape") for size in extents]
    if not sizes:
        raise GraphError("reshape: a shape needs at least one axis")
    if min(sizes) > 0:
        return tuple(sizes)
    if sizes.count(-1) > 1:
        raise GraphError(f"reshape: {sizes} leaves more than one axis open; use -1 once")
    if any(size < 1 and size != -1 for size in sizes):
        raise GraphError(f"reshape: {sizes} has an axis below one")
    rest = count(tuple(size for size in sizes if size != -1))
    if count(x.shape) % rest:
        raise GraphError(f"reshape: {count(x.shape)} elements do not divide into {sizes}")
    sizes[sizes.index(-1)] = count(x.shape) // rest
    return tuple(sizes)


def reshape(x: Tensor, *shape: Any) -> Tensor:
    return make(RESHAPE, (x,), {"to": target_shape(x, shape)})


def transpose(x: Tensor, perm: Any = None) -> Tensor:
    rank = len(x.shape)
    order = tuple(range(rank))[::-1] if perm is None else tuple([axis_of(axis, rank) for axis in perm])
    return make(TRANSPOSE, (x,), {"perm": order})


def expand_dims(x: Tensor, axes: Any) -> Tensor:
    listed = axes if isinstance(axes, Sequence) else [axes]
    return make(EXPAND_DIMS, (x,), {"axes": axes_of(listed, len(x.shape) + len(listed))})


def squeeze(x: Tensor, axes: Any) -> Tensor:
    removed = axes_of(axes, len(x.shape))
    if len(removed) == len(x.shape):  # a tensor has an axis, so the last one stays where all would go
        removed = removed[:-1]
    return make(SQUEEZE, (x,), {"axes": removed}) if removed else x


def flatten2d(x: Tensor, axis: int = 1) -> Tensor:
    index = whole_number(axis, "axis")
    rank = len(x.shape)
    if not -rank <= index <= rank:
        raise GraphError(f"flatten2d: axis {index} is out of range for rank {rank}")
    return make(FLATTEN2D, (x,), {"axis": index % rank if index < 0 else index})


def _tensors(tensors: Any, what: str) -> list[Tensor]:
    if isinstance(tensors, Node) or not isinstance(tensors, Sequence):
        raise GraphError(f"{what}: pass a list of tensors")
    listed = [as_tensor(item) for item in tensors]
    if not listed:
        raise GraphError(f"{what}: the list of tensors is empty; give at least one")
    return listed


@entry
def concat(tensors: Sequence[Tensor], axis: int = 1) -> Tensor:
    """Join tensors along an existing axis."""
    listed = _tensors(tensors, "concat")
    return make(CONCAT, listed, {"axis": axis_of(axis, len(listed[0].shape))})


@entry
def stack(tensors: Sequence[Tensor], axis: int = 0) -> Tensor:
    """Join tensors of one shape along a new axis."""
    listed = _tensors(tensors, "stack")
    return make(STACK, listed, {"axis": axis_of(axis, len(listed[0].shape) + 1)})


@entry
def split(x: Tensor, num_splits: int, axis: int = 0) -> list[Tensor]:
    """Equal parts along one axis. The engine has no split layer; each part is a view."""
    parts = positive(num_splits, "num_splits")
    index = axis_of(axis, len(x.shape))
    if x.shape[index] % parts:
        raise GraphError(f"split: axis {index} of {x.shape[index]} does not divide into {parts} parts")
    size = [n // parts if i == index else n for i, n in enumerate(x.shape)]
    begins = [[n * size[index] if i == index else 0 for i in range(len(x.shape))] for n in range(parts)]
    return [slice_by_size(x, begin, size) for begin in begins]


def tile(x: Tensor, reps: Any) -> Tensor:
    listed = reps if isinstance(reps, Sequence) else [reps]
    return make(TILE, (x,), {"reps": tuple(positive(times, "repeat") for times in listed)})


def reverse(x: Tensor, axes: Any) -> Tensor:
    return make(REVERSE, (x,), {"axes": axes_of(axes, len(x.shape))})


def slice_by_size(x: Tensor, begin: Sequence[int], size: Sequence[int]) -> Tensor:
    attrs = {"begin": tuple(extent(b, "begin") for b in begin), "size": tuple(positive(s, "size") for s in size)}
    return make(SLICE, (x,), attrs)


@entry
def gather(x: Tensor, indices: Any, axis: int = 0) -> Tensor:
    """Pick elements along ``axis`` by fixed indices (negative ones count from the end)."""
    if isinstance(indices, Node):
        raise GraphError("gather: indices are a tensor; the engine takes fixed indices only (C42)")
    index = axis_of(axis, len(x.shape))
    flat = np.asarray(indices)
    if flat.ndim != 1 or flat.size == 0 or flat.dtype.kind not in "iu":
        raise GraphError("gather: indices must be a non-empty list of whole numbers")
    size = x.shape[index]
    places = tuple(int(i) + size if i < 0 else int(i) for i in flat)
    return make(GATHER, (x,), {"indices": places, "axis": index})


PAD_MODES = ("constant", "reflect", "replicate", "symmetric")


@entry
def pad(x: Tensor, widths: Any, mode: str = "constant", value: float = 0.0) -> Tensor:
    """Add elements around a tensor; ``widths`` is (before, after) for each axis, ``mode`` is ``constant`` (of
    ``value``), ``reflect``, ``replicate`` or ``symmetric``."""
    if mode not in PAD_MODES:
        raise GraphError(f"pad: mode {mode!r} is unknown; choose one: {', '.join(PAD_MODES)}")
    try:
        pairs = tuple((extent(before, "pad"), extent(after, "pad")) for before, after in widths)
    except (TypeError, ValueError):
        raise GraphError(f"pad: widths are (before, after) for each axis, not {widths!r}") from None
    return make(PAD, (x,), {"widths": pairs, "mode": mode, "value": number(value, "value")})


@entry
def crop(x: Tensor, top: int, bottom: int, left: int, right: int) -> Tensor:
    """Drop rows and columns from the border of [N, C, H, W]."""
    sides = {"top": top, "bottom": bottom, "left": left, "right": right}
    return make(CROP, (x,), {name: extent(value, name) for name, value in sides.items()})


def index(x: Tensor, key: Any) -> Tensor:
    """Basic indexing as in NumPy: whole numbers, slices, ``...`` and ``None``."""
    begin, end, stride, drop, new, flips = [], [], [], [], [], []
    for item in _spelled_out(x, key):
        axis = len(begin)
        if item is None:
            new.append(axis - len(drop) + len(new))
            continue
        chosen = _chosen(item, axis, x.shape[axis])
        if not isinstance(item, slice):
            drop.append(axis)
        if chosen.step < 0:
            flips.append(axis)
        begin.append(min(chosen))
        end.append(max(chosen) + 1)
        stride.append(abs(chosen.step))
    result = x
    if any(step != 1 for step in stride):
        attrs = {"begin": tuple(begin), "end": tuple(end), "stride": tuple(stride)}
        result = make(STRIDED_SLICE, (x,), attrs)
    elif tuple(end) != x.shape or any(begin):
        result = slice_by_size(x, begin, [e - b for b, e in zip(begin, end, strict=True)])
    if flips:
        result = reverse(result, flips)
    if new and len(drop) == x.ndim:
        return reshape(result, (1,) * len(new))  # squeeze would keep one axis
    if drop:
        result = squeeze(result, drop)
    return expand_dims(result, new) if new else result


def _spelled_out(x: Tensor, key: Any) -> list[Any]:
    """One entry per axis, ``...`` replaced by whole slices."""
    items = list(key) if isinstance(key, tuple) else [key]
    rank = len(x.shape)
    named = sum(1 for item in items if item is not None and item is not Ellipsis)
    dots = [position for position, item in enumerate(items) if item is Ellipsis]
    if len(dots) > 1 or named > rank:
        raise GraphError(f"index {key!r} names more axes than {list(x.shape)} has")
    where = dots[0] if dots else len(items)
    items[where : where + len(dots)] = [slice(None)] * (rank - named)
    return items


def _chosen(item: Any, axis: int, size: int) -> range:
    """The positions that one index or slice selects."""
    if isinstance(item, slice):
        if item.step == 0:
            raise GraphError(f"index {item!r}: the step must not be zero")
        chosen = range(*item.indices(size))
        if not chosen:
            raise GraphError(f"index {item!r} of axis {axis} with {size} elements selects nothing")
        return chosen
    position = whole_number(item, "an index")
    if not -size <= position < size:
        raise GraphError(f"index {position} is out of range for axis {axis} of {size}")
    return range(position % size, position % size + 1)
