"""Types of arithmetic, comparisons, activations, number formats, pools, reductions and norms."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aneforge.engine.tensor_type import DTYPES, TensorType
from aneforge.engine.types.checks import (
    AXES,
    check_axes,
    check_dtype,
    check_fits,
    dims,
    replaced,
    require,
    stretched,
    window_extent,
)

if TYPE_CHECKING:
    from aneforge.engine.ir import Op


_BYTES = ("ui8", "si8")
_SCALED = ("Add", "Mult", "Min", "Max")


def arithmetic(op: Op, *operands: TensorType) -> TensorType:
    """Operands stretch to a common shape; the engine computes in fp16."""
    for number, operand in enumerate(operands):
        check_dtype(f"operand {number}", operand, "f16")
    return TensorType(stretched(operand.shape for operand in operands))


def pointwise(op: Op, x: TensorType, *vectors: TensorType) -> TensorType:
    """The shape of the first operand; the others stretch to it."""
    check_dtype("operand 0", x, "f16")
    for number, vector in enumerate(vectors, 1):
        check_dtype(f"operand {number}", vector, "f16")
        check_fits(f"operand {number}", vector, x.shape)
    return x


def scaled(op: Op, a: TensorType, b: TensorType) -> TensorType:
    require(op["mode"] in _SCALED, f"mode = {op['mode']!r}; expected {', '.join(_SCALED)}")
    return arithmetic(op, a, b)


def comparison(op: Op, *operands: TensorType) -> TensorType:
    """Truth values of numbers, or of truth values."""
    for number, operand in enumerate(operands):
        check_dtype(f"operand {number}", operand, "f16", "i1")
    return TensorType(stretched(operand.shape for operand in operands), "i1")


def select(op: Op, condition: TensorType, a: TensorType, b: TensorType) -> TensorType:
    check_dtype("the condition", condition, "i1")
    require(a.dtype == b.dtype, f"selects between {a.dtype} and {b.dtype}; expected one type")
    return TensorType(stretched((condition.shape, a.shape, b.shape)), a.dtype)


def cast(op: Op, x: TensorType) -> TensorType:
    require(op["to"] in DTYPES, f"to = {op['to']!r}; expected one of {', '.join(DTYPES)}")
    return TensorType(x.shape, op["to"])


def quant(op: Op, x: TensorType) -> TensorType:
    check_dtype("operand 0", x, "f16")
    require(op["to"] in _BYTES, f"to = {op['to']!r}; expected {' or '.join(_BYTES)}")
    return TensorType(x.shape, op["to"])


def dequant(op: Op, x: TensorType) -> TensorType:
    """Bytes, or the result of a layer in whose ``goc`` slot the op is (chapter 22)."""
    check_dtype("operand 0", x, *_BYTES, "f16")
    return TensorType(x.shape)


# Pools, reductions, normalisations, extremes and sampling.


_EXTREMES = ("Max", "Min")


def pool(op: Op, x: TensorType) -> TensorType:
    check_dtype("operand 0", x, "f16")
    size, stride, pads = op["ksize"], op["stride"], op["padding"]
    for name, values in (("ksize", size), ("stride", stride)):
        require(min(values) > 0, f"{name} = {list(values)}; expected 1 or more along each axis")
    require(min(pads) >= 0, f"padding = {list(pads)}; expected 0 or more on each side")
    extents = {
        axis: window_extent(axis, x.shape[axis], pads[2 * i], pads[2 * i + 1], size[i], stride[i])
        for i, axis in enumerate((1, 3, 4))
    }
    return TensorType(replaced(x.shape, extents))


def _axes(op: Op) -> tuple[int, ...]:
    axes = op["axes"]
    check_axes("axes", axes)
    require(bool(axes), "axes is empty; expected one axis or more")
    return axes


def reduction(op: Op, x: TensorType) -> TensorType:
    check_dtype("operand 0", x, "f16")
    return TensorType(replaced(x.shape, dict.fromkeys(_axes(op), 1)))


def normalisation(op: Op, x: TensorType, *vectors: TensorType) -> TensorType:
    _axes(op)
    return pointwise(op, x, *vectors)


def layer_norm(op: Op, x: TensorType, *vectors: TensorType) -> TensorType:
    """Groups split the channels, which needs depth one."""
    groups, channels, depth = op["groups"], x.shape[2], x.shape[1]
    require(groups > 0 and channels % groups == 0, f"groups = {groups} does not divide {channels} channels")
    require(groups == 1 or depth == 1, f"groups = {groups} on depth {depth}; groups take depth 1")
    return normalisation(op, x, *vectors)


def extreme_places(op: Op, x: TensorType) -> TensorType:
    """Along the channels, or in each window over H and W."""
    _axes(op)
    check_dtype("operand 0", x, "f16")
    mode = op["mode"]
    known = [f"{where}Arg{which}" for where in ("Channel", "Spatial") for which in _EXTREMES]
    require(mode in known, f"mode = {mode!r}; expected {', '.join(known)}")
    if mode.startswith("Channel"):
        return TensorType(replaced(x.shape, {2: 1}))
    size, stride, pads = op["kernel_size"], op["stride_values"], op["pad_values"]
    require(min(*size, *stride) > 0, "kernel_size or stride_values is below 1; expected 1 or more along each axis")
    require(min(pads) >= 0, f"pad_values = {list(pads)}; expected 0 or more on each side")
    extents = {
        axis: window_extent(axis, x.shape[axis], pads[2 * i], pads[2 * i + 1], size[i], stride[i])
        for i, axis in enumerate((3, 4))
    }
    return TensorType(replaced(x.shape, extents))


def global_extreme_places(op: Op, x: TensorType) -> TensorType:
    check_axes("axis", (op["axis"],))
    check_dtype("operand 0", x, "f16")
    require(op["mode"] in _EXTREMES, f"mode = {op['mode']!r}; expected {' or '.join(_EXTREMES)}")
    return TensorType(replaced(x.shape, {op["axis"]: 1}))


def resize(op: Op, x: TensorType) -> TensorType:
    check_dtype("operand 0", x, "f16")
    height, width = op["height"], op["width"]
    require(min(height, width) > 0, f"height {height}, width {width}; expected 1 or more")
    return TensorType((*x.shape[:3], height, width))


def crop_resize(op: Op, x: TensorType, boxes: TensorType) -> TensorType:
    """One crop of each image for each box, which is a row of the second operand: two corners, or the first corner of a
    crop of ``crop_dims``."""
    check_dtype("operand 0", x, "f16")
    crops, least = op.attrs.get("crop_dims"), 4
    for name, sizes in (("output_dims", op["output_dims"]), ("crop_dims", crops)):
        require(
            sizes is None or min(sizes) > 0, f"{name} = {sizes and list(sizes)}; expected 1 or more along each axis"
        )
    if crops is not None:
        least = 2
        for crop, axis in zip(crops, (3, 4), strict=True):
            extent = x.shape[axis]
            require(crop <= extent, f"crop_dims = {list(crops)}; the input has {extent} along {AXES[axis]}")
    require(boxes.shape[4] >= least, f"boxes are {boxes.shape[4]} wide; expected {least} or more: top and left first")
    n, d, c, _, _ = x.shape
    return TensorType((n * boxes.shape[2], d, c, *op["output_dims"]))


def resample(op: Op, x: TensorType, grid: TensorType) -> TensorType:
    """The grid holds a column, or a column and a row, for each place of the result."""
    check_dtype("operand 0", x, "f16")
    n, d, c, _, _ = x.shape
    gn, gd, coordinates, height, width = grid.shape
    plane = (gn, gd) == (n, 1) and d == 1 and coordinates in (1, 2)
    require(plane, f"the grid is {dims(grid.shape)}; expected batch {n}, depth 1 and one or two channels")
    return TensorType((n, 1, c, height, width))
