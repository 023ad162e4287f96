"""Helpers that the type rules share: conditions with a message, axes, and operands that stretch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from aneforge.engine.tensor_type import AnecError, TensorType

if TYPE_CHECKING:
    from aneforge.engine.ir import Op
    from aneforge.graph.weights import Weight

AXES = "NDCHW"
TypeRule = Callable[..., TensorType | None]
"""Takes the op and the type of each operand; None where the op has no result."""
Invariant = Callable[["Op", Mapping[str, "Weight"]], None]
"""A condition that also reads the module's stored constants; raises AnecError."""


def require(condition: bool, message: str) -> None:
    """Refuse the op unless the condition holds."""
    if not condition:
        raise AnecError(message)


def dims(shape: Sequence[int]) -> str:
    """A shape for a message: ``1x1x8x4x4``."""
    return "x".join(map(str, shape))


def check_dtype(name: str, operand: TensorType, *allowed: str) -> None:
    require(operand.dtype in allowed, f"{name} is {operand.dtype}; expected {' or '.join(allowed)}")


def check_axes(name: str, axes: Sequence[int]) -> None:
    """Axes are distinct positions in NDCHW."""
    inside = all(0 <= axis < len(AXES) for axis in axes)
    require(inside, f"{name} = {list(axes)}: an axis lies outside NDCHW; expected positions 0 to 4")
    require(len(set(axes)) == len(axes), f"{name} = {list(axes)} names an axis twice")


def stretched(shapes: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
    """The common shape of operands: along each axis they are equal, or one, which stretches."""
    result: list[int] = [1] * len(AXES)
    for shape in shapes:
        for axis, extent in enumerate(shape):
            if extent == 1 or extent == result[axis]:
                continue
            require(
                result[axis] == 1, f"operands are {result[axis]} and {extent} along {AXES[axis]}; expected equal or 1"
            )
            result[axis] = extent
    return tuple(result)


def check_fits(name: str, operand: TensorType, shape: tuple[int, ...]) -> None:
    """An operand stretches to a shape and does not enlarge it."""
    fits = all(extent in (1, target) for extent, target in zip(operand.shape, shape, strict=True))
    require(fits, f"{name} is {dims(operand.shape)}; expected a shape that stretches to {dims(shape)}")


def replaced(shape: tuple[int, ...], extents: Mapping[int, int]) -> tuple[int, ...]:
    """A shape with other extents along some axes."""
    return tuple(extents.get(axis, extent) for axis, extent in enumerate(shape))


def window_extent(axis: int, extent: int, before: int, after: int, reach: int, stride: int) -> int:
    """How many windows of ``reach`` elements fit a padded line, ``stride`` apart."""
    padded = extent + before + after
    require(
        padded >= reach,
        f"the window spans {reach} elements along {AXES[axis]}; the padded input has {padded}",
    )
    return (padded - reach) // stride + 1
