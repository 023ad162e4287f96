"""Shape arithmetic shared by the op declarations. Every refusal is a GraphError without the op's name,
which :func:`aneforge.graph.node.make` adds together with the user's line and the operand shapes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from aneforge.errors import GraphError
from aneforge.graph.halves import FP16_MAX
from aneforge.graph.node import Shape


def same_shape(x: Shape, **_: Any) -> Shape:
    return x


def broadcast(*shapes: Shape, **_: Any) -> Shape:
    """NumPy's rule: align at the last axis, stretch axes of one."""
    rank = max(len(shape) for shape in shapes)
    result = []
    for position in range(-rank, 0):
        extents = {shape[position] for shape in shapes if len(shape) >= -position}
        wide = extents - {1}
        if len(wide) > 1:
            listed = " and ".join(str(list(shape)) for shape in shapes)
            raise GraphError(f"shapes {listed} do not broadcast: axis {position} has {sorted(wide)}")
        result.append(wide.pop() if wide else 1)
    return tuple(result)


def whole_number(value: Any, what: str) -> int:
    """A plain int; accepts NumPy integers, refuses floats and booleans."""
    if type(value) is int:
        return value
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise GraphError(f"{what} must be a whole number, not {value!r}")
    return value.__index__()


def positive(value: Any, what: str) -> int:
    result = whole_number(value, what)
    if result < 1:
        raise GraphError(f"{what} must be at least 1, not {result}")
    return result


def extent(value: Any, what: str) -> int:
    """A whole number of zero or more."""
    result = whole_number(value, what)
    if result < 0:
        raise GraphError(f"{what} must be zero or more, not {result}")
    return result


def number(value: Any, what: str) -> float:
    """A real scalar that fp16 can hold."""
    if isinstance(value, (str, bytes, bool)):
        raise GraphError(f"{what} must be a number, not {value!r}")
    try:
        result = float(value)
    except OverflowError:
        raise GraphError(f"{what} is beyond the fp16 limit of 65504") from None
    except (TypeError, ValueError):
        raise GraphError(f"{what} must be a number, not {value!r}") from None
    if math.isnan(result):
        raise GraphError(f"{what} is NaN; give a number")
    if math.isfinite(result) and abs(result) > FP16_MAX:
        raise GraphError(f"{what} is {result:g}, beyond the fp16 limit of 65504")
    return result


def pair(value: Any, what: str, check: Any = positive) -> tuple[int, int]:
    """``2`` or ``(2, 3)`` as two whole numbers."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        if len(value) != 2:
            raise GraphError(f"{what} takes one or two numbers, not {len(value)}")
        return check(value[0], what), check(value[1], what)
    single = check(value, what)
    return single, single


def axis_of(axis: Any, rank: int) -> int:
    """A non-negative axis; negative ones count from the end."""
    index = whole_number(axis, "axis")
    if not -rank <= index < rank:
        raise GraphError(f"axis {index} is out of range for rank {rank} ({-rank} to {rank - 1})")
    return index % rank


def axes_of(axes: Any, rank: int) -> tuple[int, ...]:
    """Sorted distinct axes from an int, a sequence, or None for all."""
    if axes is None:
        return tuple(range(rank))
    listed = axes if isinstance(axes, Sequence) and not isinstance(axes, str) else [axes]
    if not listed:
        raise GraphError("axes is empty; name at least one axis")
    result = [axis_of(axis, rank) for axis in listed]
    if len(set(result)) != len(result):
        raise GraphError(f"axes {list(listed)} name one axis twice")
    return tuple(sorted(result))


def rank_is(shape: Shape, rank: int, what: str) -> None:
    if len(shape) != rank:
        raise GraphError(f"{what} must have rank {rank}, not {len(shape)} ({list(shape)})")


def same_image(x: Shape, **_: Any) -> Shape:
    """The shape of an op that keeps that of its map [N, C, H, W]."""
    rank_is(x, 4, "input")
    return x


def count(shape: Shape) -> int:
    return math.prod(shape)


def window(size: int, kernel: int, stride: int, before: int, after: int, dilation: int = 1, ceil: bool = False) -> int:
    """Output extent of a sliding window along one axis."""
    if min(kernel, stride, dilation) < 1 or min(before, after) < 0:
        raise GraphError(
            f"window {kernel}, stride {stride}, dilation {dilation}, padding {before} and {after}: "
            "the first three must be at least 1, the padding at least 0"
        )
    reach = dilation * (kernel - 1) + 1
    padded = size + before + after
    if padded < reach:
        raise GraphError(f"a window of {reach} does not fit an axis of {size} padded to {padded}")
    steps = padded - reach
    result = (-(-steps // stride) if ceil else steps // stride) + 1
    if ceil and (result - 1) * stride >= size + before:
        result -= 1  # the last window must start inside the data or the leading padding
    return result
