"""Elementwise ops of ONNX that the common ones do not cover: many operands, types, and old forms."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np

from aneforge.frontends import forms
from aneforge.frontends.forms.pointwise import BINARY
from aneforge.frontends.values import NoForm, Numeric, Value, as_tensor
from aneforge.graph.tensor import Tensor

_FLOATS = (1, 10, 11, 16)
_WHOLE = (2, 3, 4, 5, 6, 7, 12, 13)
_BOOL = 9


def _chain(function: Callable[[Any, Any], Tensor]) -> Callable[..., Tensor]:
    def chain(values: list[Value]) -> Tensor:
        return as_tensor(reduce(function, values[1:], values[0]))

    return chain


def _mean(values: list[Value]) -> Tensor:
    return forms.scaled(as_tensor(reduce(forms.added, values)), 1.0 / len(values))


def _divide(x: Value, y: Value) -> Tensor:
    """Integers are divided towards zero. One known integer operand is enough, since all operands have one type."""
    whole = any(isinstance(value, np.ndarray) and value.dtype.kind in "iu" for value in (x, y))
    return forms.divided(x, y, "trunc" if whole else "")


def _prelu(x: Numeric, slope: Value) -> Tensor:
    by_channel = slope.ndim == 1 and x.ndim > 2 and slope.shape[0] == x.shape[1] != x.shape[-1]
    if by_channel and isinstance(slope, np.ndarray):  # the form of files before opset 7
        slope = slope.reshape(-1, *(1,) * (x.ndim - 2))
    return forms.prelu(x, slope)


def _where(condition: Value, a: Value, b: Value) -> Tensor:
    return forms.chosen(condition, a, b, forms.are_truths(a, b))


def _cast(x: Value, to: int = 1) -> Tensor:
    """All numbers are fp16 in the graph; a cast to integers drops the fraction."""
    if to == _BOOL:
        return forms.truth(x)
    numbers = forms.as_number(x)
    if to in _FLOATS:
        return numbers
    if to not in _WHOLE:
        raise NoForm("a cast to a type of fewer bits is not supported; the engine has fp16 rounding only")
    from_bool = isinstance(x, Tensor) and x.dtype == "bool"
    return numbers if from_bool else forms.truncated(numbers)


def _cast_like(x: Value, like: Value) -> Value:
    """Cast to the type of another value."""
    if isinstance(like, Tensor):
        to = _BOOL if like.dtype == "bool" else 1
        return x.astype(bool if to == _BOOL else np.float32) if isinstance(x, np.ndarray) else _cast(x, to)
    kind = np.asarray(like).dtype
    if kind.kind == "b":
        return _cast(x, _BOOL)
    if kind.name in ("float16", "float32", "float64", "bfloat16"):
        return _cast(x, 1)
    if kind.name.removeprefix("u") in ("int8", "int16", "int32", "int64"):
        return _cast(x, 7)
    raise NoForm(f"a cast to {kind.name} is not supported; the engine has fp16 rounding only")


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "cast_like": _cast_like,
    "cast_to": _cast,
    "choose": _where,
    "divide": _divide,
    "largest_of": _chain(BINARY["maximum"]),
    "mean_of": _mean,
    "prelu_of": _prelu,
    "smallest_of": _chain(BINARY["minimum"]),
    "sum_of": _chain(forms.added),
}
