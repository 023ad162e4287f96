"""Conversions of arguments for rules, in addition to those of all frontends."""

from __future__ import annotations

from typing import Any

import numpy as np

from aneforge.frontends import LoadError
from aneforge.frontends.forms import as_number
from aneforge.frontends.pytorch.node import Shape, graph_shape
from aneforge.graph.tensor import Tensor


def scalar(value: Any) -> float | None:
    """Return the number if the argument is a Python number or a known tensor of rank 0; otherwise None."""
    if isinstance(value, (bool, int, float)):
        return float(value)
    if isinstance(value, np.ndarray) and value.ndim == 0 and value.dtype.kind in "fiub":
        return float(value)
    return None


def numeric(value: Any) -> Tensor:
    """Return an argument as an fp16 tensor; a boolean becomes 0 or 1."""
    return as_number(value)


def shaped(x: Tensor, shape: Shape) -> Tensor:
    """Return the same elements in another shape."""
    out_shape = graph_shape(shape)
    return x if x.shape == out_shape else x.reshape(*out_shape)


def axes_of(dim: Any, rank: int) -> list[int]:
    """Return axes from PyTorch's argument: a number, a list, or None for all axes."""
    if dim is None or (isinstance(dim, (list, tuple)) and not dim):
        return list(range(max(rank, 1)))
    axes = dim if isinstance(dim, (list, tuple)) else [dim]
    size = max(rank, 1)
    for axis in axes:
        if not -size <= int(axis) < size:
            raise LoadError(f"axis {axis} is out of range for a tensor of rank {rank}")
    return sorted({int(axis) % size for axis in axes})


def pair_of(value: Any, rank: int) -> list[int]:
    """Return one number for each spatial axis; a single number counts for all."""
    numbers = [int(value)] if isinstance(value, int) else [int(number) for number in value]
    return numbers * rank if len(numbers) == 1 else numbers
