"""Pools and resampling. The language pads and divides by ops of their own; the engine's pools do both themselves."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from aneforge.frontends import LoadError
from aneforge.frontends.coreai_rules.op import Op, Rule
from aneforge.frontends.forms import LARGEST, as_number, average_pool, max_pool, resampled, window_sum
from aneforge.frontends.values import Value
from aneforge.graph.encoding import Encoded
from aneforge.graph.tensor import Tensor

__all__ = ["RULES", "averaged", "unpadded"]

Array = np.ndarray
Pads = list[tuple[int, int]]

_MOST_WEIGHTS = 1 << 24
_CLOSE = 2e-3  # a reciprocal in fp16 is off by less


def unpadded(op: Op, allowed: Callable[[float], bool]) -> tuple[Tensor, Pads]:
    """The first operand before a padding of its spatial axes that nothing else reads, and that padding."""
    x = op.tensor(0)
    none = [(0, 0)] * (x.ndim - 2)
    made = op.maker(0)
    if made is None or made.kind != "pad" or made.text("padding_mode", "constant") != "constant":
        return x, none
    if isinstance(made.value(2), Tensor) or not allowed(made.number(2, "the fill")):
        return x, none
    flat = made.numbers(1, "the padding")
    if any(flat[:4]):  # samples or channels
        return x, none
    return made.tensor(0), list(zip(flat[4::2], flat[5::2], strict=True))


def _max_pool(op: Op) -> Tensor:
    x, pads = unpadded(op, lambda fill: fill <= -LARGEST)
    size, stride, dilation = (op.numbers(place, "the window") for place in (1, 2, 3))
    ceil = bool(op.whole(4, "the rounding"))
    return max_pool(x, size, stride=stride, pads=pads, dilation=dilation, ceil=ceil)


def _window(op: Op) -> tuple[list[int], list[int], list[int]]:
    size, stride = op.numbers(1, "the window"), op.numbers(2, "the strides")
    return size, stride, op.numbers(3, "the dilation") if len(op.given) > 3 else [1] * len(size)


def _sum_pool(op: Op) -> Tensor:
    x, pads = unpadded(op, lambda fill: fill == 0)
    size, stride, dilation = _window(op)
    return window_sum(x, size, stride=stride, pads=pads, dilation=dilation)


def averaged(op: Op, pool: int, count: int, inverse: bool) -> Tensor | None:
    """The sum of windows over how many elements they have, with or without those of the padding: an average."""
    made = op.maker(pool)
    if made is None or made.kind not in ("sum_pool_2d", "sum_pool_3d") or made.results[0].static != op.shape:
        return None
    told = _positive(op.value(count))
    if told is None:
        return None
    counts = 1.0 / told if inverse else told
    x, pads = unpadded(made, lambda fill: fill == 0)
    size, stride, dilation = _window(made)
    inside = _inside(x.shape[2:], size, stride, dilation, pads, op.shape[2:])
    for wanted, count_pad in ((np.full(1, math.prod(size)), True), (inside, False)):
        if np.broadcast_shapes(counts.shape, wanted.shape, op.shape) != op.shape:
            continue
        if (np.abs(counts / wanted - 1) < _CLOSE).all():
            found = average_pool(x, size, stride=stride, pads=pads, dilation=dilation, count_pad=count_pad)
            return found.named(made.name)
    return None


def _positive(value: Value) -> Array | None:
    if isinstance(value, (Tensor, Encoded)):
        return None
    numbers = value.astype(np.float64)
    return numbers if numbers.size and (numbers > 0).all() else None


def _inside(
    extents: tuple[int, ...],
    size: list[int],
    stride: list[int],
    dilation: list[int],
    pads: Pads,
    out: tuple[int, ...],
) -> Array:
    """How many elements of each window are no padding."""
    total = np.ones(1)
    for axis, extent in enumerate(extents):
        first = np.arange(out[axis])[:, None] * stride[axis] - pads[axis][0]
        at = first + np.arange(size[axis]) * dilation[axis]
        counts = ((at >= 0) & (at < extent)).sum(axis=1)
        total = total[..., None] * counts if axis else counts.astype(np.float64)
    return total


# Resampling at places that are known.


def _weights(at: Array, extent: int, mode: str) -> Array:
    """[places, extent]: what each place takes of a line; places outside are moved to its ends."""
    if len(at) * extent > _MOST_WEIGHTS:
        raise LoadError(f"{extent} places resampled to {len(at)}: the weights would fill {len(at) * extent:,} numbers")
    held = np.clip(at, 0, extent - 1)
    if mode == "nearest_neighbor":
        return np.eye(extent)[np.clip(np.rint(at), 0, extent - 1).astype(int)]
    if mode != "linear":
        raise LoadError(f"an interpolation by {mode!r}")
    first = np.minimum(np.floor(held).astype(int), max(extent - 2, 0))
    part, rows = held - first, np.arange(len(at))
    weights = np.zeros((len(at), extent))
    weights[rows, first] += 1 - part
    weights[rows, np.minimum(first + 1, extent - 1)] += part
    return weights


def _interpolate(op: Op) -> Tensor:
    x, out = op.tensor(0), op.numbers(1, "the shape")
    scale, offset = (op.known(place, "the scale").astype(np.float32).reshape(-1) for place in (2, 3))
    if not len(out) == len(scale) == len(offset) == x.ndim or not (scale != 0).all():
        raise LoadError(f"an interpolation of {list(x.shape)} to {out}")
    weights: dict[int, Array] = {}
    for axis, extent in enumerate(x.shape):
        # In single precision, as it is computed there: which of two neighbours is nearest may hang on it.
        at = (np.arange(out[axis], dtype=np.float32) + np.float32(0.5) - offset[axis]) / scale[axis] - np.float32(0.5)
        matrix = _weights(at, extent, op.text("interpolation_mode", "linear"))
        if matrix.shape != (extent, extent) or not (matrix == np.eye(extent)).all():
            weights[axis] = matrix
    return resampled(x, weights)


def _interpolate_coordinates(op: Op) -> Tensor:
    x, coordinates = op.tensor(0), op.known(1, "the coordinates").astype(np.float64)
    if len(coordinates) * x.size > _MOST_WEIGHTS:
        raise LoadError(f"{len(coordinates)} places over {list(x.shape)}: their weights would be too many")
    total = np.ones((len(coordinates), 1))
    for axis, extent in enumerate(x.shape):
        line = _weights(coordinates[:, axis], extent, op.text("interpolation_mode", "linear"))
        total = (total[:, :, None] * line[:, None, :]).reshape(len(coordinates), -1)
    return as_number(x).reshape(1, x.size).linear(total).reshape(len(coordinates))


RULES: dict[str, Rule] = {
    "interpolate": _interpolate,
    "interpolate_coordinates": _interpolate_coordinates,
    "max_pool_2d": _max_pool,
    "max_pool_3d": _max_pool,
    "sum_pool_2d": _sum_pool,
    "sum_pool_3d": _sum_pool,
}
