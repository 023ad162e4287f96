"""What rules ask of an argument, on top of what every frontend asks."""

from __future__ import annotations

from typing import Any

import numpy as np

from aneforge.frontends import LoadError
from aneforge.frontends.torch_rules.deep import MOST_AXES, Deep
from aneforge.frontends.torch_rules.node import Shape, held
from aneforge.frontends.values import as_tensor
from aneforge.graph.encoding import Encoded
from aneforge.graph.tensor import Tensor

__all__ = ["LARGEST", "axes_of", "fp16_exact", "numeric", "pair_of", "plain", "scalar", "scaled", "shaped", "shifted"]

LARGEST = 65504.0
_AS_GOOD_AS_INFINITE = 1e8


def scalar(value: Any) -> float | None:
    """The number, when the argument is one: a Python number, or a known tensor of rank 0."""
    if isinstance(value, (bool, int, float)):
        return float(value)
    if isinstance(value, np.ndarray) and value.ndim == 0 and value.dtype.kind in "fiub":
        return float(value)
    return None


def plain(value: Any) -> Any:
    """A known array with what stands for minus infinity (the least float32, -1e9 of a mask) as fp16 can hold it.

    Only numbers far beyond the fp16 range are held; one that is merely too large for fp16 is refused later.
    """
    if isinstance(value, Encoded) or not isinstance(value, np.ndarray) or value.dtype.kind != "f" or not value.size:
        return value
    beyond = np.isfinite(value) & (np.abs(value) >= _AS_GOOD_AS_INFINITE)
    return np.where(beyond, np.sign(value) * LARGEST, value) if beyond.any() else value


def numeric(value: Any) -> Tensor:
    """An argument as an fp16 tensor: a bool is 0 or 1."""
    if isinstance(value, Tensor):
        return value.cast() if value.dtype in ("bool", "uint8") else value
    if isinstance(value, Deep):
        raise LoadError(f"a tensor of {len(value.shape)} axes; no engine takes more than {MOST_AXES}")
    known = np.asarray(value, np.float64) if isinstance(value, (bool, int, float)) else plain(value)
    return as_tensor(known)


def fp16_exact(number: float) -> bool:
    with np.errstate(over="ignore"):
        return float(np.float16(number)) == number


def _within(number: float) -> float:
    """A stand-in for infinity as fp16 holds it."""
    if np.isfinite(number) and abs(number) >= _AS_GOOD_AS_INFINITE:
        return float(np.sign(number)) * LARGEST
    return number


def scaled(x: Tensor, factor: float) -> Tensor:
    """``x`` by a number; one that fp16 does not hold exactly is kept as an attribute, unrounded."""
    if factor == 1.0:
        return x
    factor = _within(factor)
    return x * factor if fp16_exact(factor) else x.linear_activation(factor, 0.0)


def shifted(x: Tensor, offset: float) -> Tensor:
    """``x`` plus a number, kept as :func:`scaled` keeps it."""
    if offset == 0.0:
        return x
    offset = _within(offset)
    return x + offset if fp16_exact(offset) else x.linear_activation(1.0, offset)


def shaped(x: Tensor, shape: Shape) -> Tensor | Deep:
    """The same elements under another shape, whatever its rank."""
    wanted = held(shape)
    if len(wanted) > MOST_AXES:
        return Deep.of(x, wanted)
    return x if x.shape == wanted else x.reshape(*wanted)


def axes_of(dim: Any, rank: int) -> list[int]:
    """Axes as PyTorch gives them: a number, a list, or nothing for all of them."""
    if dim is None or (isinstance(dim, (list, tuple)) and not dim):
        return list(range(max(rank, 1)))
    given = dim if isinstance(dim, (list, tuple)) else [dim]
    size = max(rank, 1)
    for axis in given:
        if not -size <= int(axis) < size:
            raise LoadError(f"axis {axis} of a tensor of rank {rank}")
    return sorted({int(axis) % size for axis in given})


def pair_of(value: Any, rank: int) -> list[int]:
    """One number for all spatial axes, or one each."""
    given = [int(value)] if isinstance(value, int) else [int(each) for each in value]
    return given * rank if len(given) == 1 else given
