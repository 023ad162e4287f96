"""Reshapes, slices, pads and other ops that move elements, as far as ONNX has rules of its own for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from aneforge.frontends import LoadError, forms
from aneforge.frontends.importer.op import Op
from aneforge.frontends.values import Array, NoForm, Value, axis_of, number
from aneforge.graph.tensor import Tensor

_MOST_ELEMENTS = 1 << 24  # of a constant that is created while a file is read
_MODES = {"constant": "constant", "edge": "replicate", "reflect": "reflect", "wrap": "wrap"}


def _reshape(x: Tensor, shape: list[int], allowzero: bool = False) -> Tensor:
    """A zero keeps the extent at its place, unless ``allowzero``."""
    extents = shape if allowzero else [x.shape[i] if extent == 0 else extent for i, extent in enumerate(shape)]
    return forms.reshaped(x, extents)


def _split(op: Op, x: Tensor, split: list[int] | None = None, axis: int = 0, num_outputs: int = 0) -> list[Value]:
    """Without sizes all parts are equal, and the last may be shorter."""
    along, count = axis_of(axis, x.ndim), len(op.outputs)
    if split is None:
        longest = -(-x.shape[along] // count)
        split = [min(longest, x.shape[along] - i * longest) for i in range(count)]
    if sum(split) != x.shape[along]:
        raise LoadError(f"split {split} adds up to {sum(split)}; axis {along} has {x.shape[along]} elements")
    pieces = iter(forms.parts(x, along, [size for size in split if size]))
    return [next(pieces) if size else _empty_part(x, along) for size in split]


def _empty_part(x: Tensor, axis: int) -> Array:
    """Return an empty array with the shape of the part."""
    return np.zeros(tuple(0 if i == axis else extent for i, extent in enumerate(x.shape)), np.float32)


def _slice(
    x: Tensor, starts: list[int], ends: list[int], axes: list[int] | None = None, steps: list[int] | None = None
) -> Value:
    result = x
    places = axes or list(range(len(starts)))
    for begin, end, axis, step in zip(starts, ends, places, steps or [1] * len(starts), strict=True):
        along = axis_of(axis, x.ndim)
        if not len(range(x.shape[along])[slice(begin, end, step)]):
            return _empty_part(result, along)
        result = forms.sliced(result, along, begin, end, step)
    return result


def _pad(
    x: Tensor, pads: list[int], value: Value | None = None, axes: list[int] | None = None, mode: str = "constant"
) -> Tensor:
    """``pads`` has the places before all axes, then those behind them."""
    places = [axis_of(axis, x.ndim) for axis in axes] if axes is not None else list(range(x.ndim))
    widths = [(0, 0)] * x.ndim
    for place, axis in enumerate(places):
        widths[axis] = (pads[place], pads[place + len(places)])
    fill = 0.0 if value is None else value if isinstance(value, float) else number(value, "input 'constant_value'")
    if mode not in _MODES:
        raise NoForm(f"mode {mode!r} is not supported; choose one: {', '.join(_MODES)}")
    if x.dtype == "bool":
        return forms.truth(forms.padded(forms.as_number(x), widths, _MODES[mode], fill))
    return forms.padded(x, widths, _MODES[mode], fill)


def _eye_like(x: Tensor, k: int = 0) -> Array:
    if x.ndim != 2 or x.size > _MOST_ELEMENTS:
        raise NoForm(
            f"an input of shape {list(x.shape)} is not supported; expected rank 2 and at most {_MOST_ELEMENTS:,} "
            "elements"
        )
    return np.eye(x.shape[0], x.shape[1], k, np.float32)


def _center_crop_pad(x: Tensor, shape: list[int], axes: list[int] | None = None) -> Tensor:
    """Crop or zero-pad both sides of some axes; an odd element goes to the end."""
    widths = [(0, 0)] * x.ndim
    for axis, extent in zip(range(x.ndim) if axes is None else axes, shape, strict=True):
        growth = extent - x.shape[axis_of(axis, x.ndim)]
        before = growth // 2 if growth >= 0 else -(-growth // 2)
        widths[axis_of(axis, x.ndim)] = (before, growth - before)
    return forms.padded(x, widths)


def _shape(x: Tensor, start: int = 0, end: int | None = None) -> Array:
    return np.array(x.shape, np.int64)[slice(start, end)]


def _size(x: Tensor) -> Array:
    return np.array(x.size, np.int64)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "center_crop_pad": _center_crop_pad,
    "eye_like": _eye_like,
    "pad_axes": _pad,
    "reshape_to": _reshape,
    "shape_of": _shape,
    "size_of": _size,
    "slice_axes": _slice,
    "split_to": _split,
}
