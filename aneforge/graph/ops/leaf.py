"""Where values enter a graph: inputs, parameters and constants."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from aneforge.errors import GraphError, UnknownNameError
from aneforge.graph.node import Node, Shape, entry, make, op
from aneforge.graph.shapes import number, positive
from aneforge.graph.snapshots import stored_weight
from aneforge.graph.traits import GraphTrait as T

if TYPE_CHECKING:
    from aneforge.graph.tensor import Tensor


def _stated_shape(*, shape: Shape, **_: Any) -> Shape:
    return shape


@op("input", "", "shape dtype max_abs", T.LEAF, T.PORT, dtypes="attribute")
class INPUT:
    """A runtime input of the program."""

    shape = _stated_shape


@op("parameter", "", "shape dtype kernel", T.LEAF, T.PORT, T.STORED, dtypes="attribute")
class PARAMETER:
    """A trainable value, fed at run time."""

    shape = _stated_shape


@op("const", "", "", T.LEAF, T.STORED)
class CONST:
    """A constant, stored with the program."""

    @staticmethod
    def shape() -> Shape:
        return ()


@op("cast", "x", "dtype", dtypes="attribute", mil="cast x | dtype=fp16", diverges_as="move")
class CAST:
    """The same values as fp16 (true is 1)."""

    @staticmethod
    def shape(x: Shape, dtype: str) -> Shape:
        if dtype != "fp16":
            raise GraphError(f"a cast to {dtype!r} is not possible: the engine computes in fp16 only; use 'fp16'")
        return x

    @staticmethod
    def reference(x, dtype):
        return x.astype(np.float64)

    @staticmethod
    def derivative(g, y, x, dtype):
        return [g if x.dtype == "fp16" else None]


@op(
    "image_plane",
    "x",
    "dtype format plane",
    dtypes="attribute",
    gate="dequantize",
    no_mil="Core ML states the pixel format of a port in the model's description, not by a tag",
    diverges_as="move",
)
class IMAGE_PLANE:
    """The pixels of one plane of an image surface as fp16."""

    @staticmethod
    def shape(x: Shape, dtype: str, format: str, plane: int) -> Shape:  # noqa: A002
        return x

    @staticmethod
    def reference(x, dtype, format, plane):  # noqa: A002
        return x.astype(np.float64)

    @staticmethod
    def derivative(g, y, x, dtype, format, plane):  # noqa: A002
        return [g if x.dtype == "fp16" else None]


def shape_of(shape: Any) -> Shape:
    """A tuple of extents from what users pass as a shape."""
    listed = shape if isinstance(shape, Sequence) and not isinstance(shape, str) else [shape]
    if len(listed) == 0:
        raise GraphError("a shape needs at least one axis")
    return tuple(positive(extent, "every extent of a shape") for extent in listed)


@entry
def input(  # noqa: A001 - the name users call
    shape: Sequence[int], dtype: str = "fp16", max_abs: float | None = None, name: str | None = None
) -> Tensor:
    """A graph input. ``max_abs`` declares a bound on the data, which lets range rules exclude a hazard."""
    if dtype not in ("fp16", "uint8", "int32"):
        raise GraphError(f"dtype {dtype!r} is not supported; choose one: fp16, uint8 (image port), int32 (host ops)")
    if max_abs is not None:
        try:
            bound = math.nan if isinstance(max_abs, (str, bytes, bool)) else float(max_abs)
        except (TypeError, ValueError, OverflowError):
            bound = math.nan
        if not 0 <= bound < math.inf:
            raise GraphError(f"max_abs must be finite and zero or more, not {max_abs!r}")
        max_abs = bound
    return make(INPUT, (), {"shape": shape_of(shape), "dtype": dtype, "max_abs": max_abs}, name=name)


@entry
def parameter(init: Any, name: str | None = None, kernel: Shape | None = None) -> Tensor:
    """A trainable leaf that starts at ``init``. ``kernel`` is the shape a convolution weight was folded from."""
    weight = stored_weight(init, "parameter")
    attrs = {"shape": weight.shape, "dtype": "fp16", "kernel": kernel}
    return make(PARAMETER, (), attrs, name=name, weight=weight)


@entry
def const(values: Any, name: str | None = None, what: str = "constant") -> Tensor:
    """A constant tensor; equal contents are stored once."""
    return make(CONST, name=name, weight=stored_weight(values, what))


def _stored(values: Any, what: str) -> Tensor:
    """A constant that a call makes itself: its line is that of the node that uses it."""
    return make(CONST, weight=stored_weight(values, what), placed=False)


def as_tensor(value: Any, what: str = "operand") -> Tensor:
    """A tensor unchanged; a number or an array as a constant; anything else is refused."""
    if isinstance(value, Node):
        return value  # type: ignore[return-value]
    if isinstance(value, np.ndarray):
        return _stored(value, what)
    if isinstance(value, (bool, str, bytes)) or value is None:
        raise GraphError(f"{what} is {value!r}; pass a tensor, an array or a number")
    if isinstance(value, (int, float)):
        return _stored(np.float16(number(value, what)), what)
    if hasattr(value, "__array__") or isinstance(value, (list, tuple)):
        return _stored(value, what)
    raise GraphError(f"{what} is a {type(value).__name__}; pass a tensor, an array or a number")


@entry
def cast(x: Tensor, dtype: str = "fp16") -> Tensor:
    """Bool or uint8 values as fp16."""
    return make(CAST, (x,), {"dtype": dtype})


_BYTES = 1 / 255


@entry
def image_input(
    shape: Sequence[int],
    scale: Any = _BYTES,
    bias: Any = 0.0,
    name: str | None = None,
    format: str | None = None,  # noqa: A002 - the word of the format tables
) -> Any:
    """A uint8 image port, dequantised in the graph: ``scale * x + bias`` (scalars, or one per channel).

    With a ``format`` it is a surface of that tag (``&BGA``), which only some chips take: ``shape`` is that of its
    first plane, halves are not scaled by default, and a tag with two planes (YUV 4:2:0) gives two tensors.
    """
    if format is None:
        return _scaled(cast(input(shape, "uint8", name=name)), scale, bias)
    from aneforge.chips.formats import image_format

    try:
        surface = image_format(format)
    except UnknownNameError as error:
        raise GraphError(str(error.args[0])) from None
    extents, planes = shape_of(shape), surface.planes.value
    if len(extents) != 4 or extents[1] != planes[0].channels:
        wanted = f"[N, {planes[0].channels}, H, W]"
        raise GraphError(f"image_input: the first plane of {format} is {wanted}, not {list(extents)}")
    batch, _, height, width = extents
    results = []
    for place, plane in enumerate(planes):
        rows, columns = height // plane.height_divisor, width // plane.width_divisor
        if height % plane.height_divisor or width % plane.width_divisor:
            raise GraphError(f"image_input: {format} has planes of half the size; {height} x {width} must be even")
        dtype = {"uint8": "uint8", "float16": "fp16"}.get(plane.element)
        if dtype is None:
            raise GraphError(f"image_input: {format} holds {plane.element}; ports must be uint8 or fp16")
        own = name if name is None or len(planes) == 1 else f"{name}_{place}"
        port = input((batch, plane.channels, rows, columns), dtype, name=own)
        pixels = make(IMAGE_PLANE, (port,), {"dtype": "fp16", "format": format, "plane": place})
        results.append(pixels if dtype == "fp16" and scale == _BYTES else _scaled(pixels, scale, bias))
    return results[0] if len(results) == 1 else tuple(results)


def _scaled(pixels: Tensor, scale: Any, bias: Any) -> Tensor:
    return pixels * _per_channel(scale, pixels, "scale") + _per_channel(bias, pixels, "bias")


def _per_channel(value: Any, image: Tensor, what: str) -> Tensor:
    array = np.asarray(value, dtype=np.float64)
    if array.ndim == 0:
        return as_tensor(float(array), what)
    if image.ndim < 2 or array.shape != (image.shape[1],):
        raise GraphError(
            f"{what} of shape {list(array.shape)} does not fit {list(image.shape)}; "
            "pass one number, or one per channel"
        )
    return _stored(array.reshape((1, -1) + (1,) * (image.ndim - 2)), what)
