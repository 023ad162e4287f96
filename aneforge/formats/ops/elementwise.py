"""Arithmetic, comparisons, logic and activations."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from aneforge.errors import LoadError
from aneforge.formats import forms
from aneforge.formats.forms import truth
from aneforge.formats.forms.pointwise import BINARY, UNARY, is_infinite, logit, nan_to_num, rounded, triangle
from aneforge.formats.importer.op import FileOp
from aneforge.formats.records import is_whole
from aneforge.formats.values import Array, NoForm, Numeric, Value
from aneforge.graph import builders as af
from aneforge.graph.tensor import Tensor


def _unary(function: Callable[[Tensor], Tensor]) -> Callable[..., Tensor]:
    def op_of_one(x: Numeric) -> Tensor:
        return function(x)

    return op_of_one


def _binary(function: Callable[[Value, Value], Tensor]) -> Callable[..., Tensor]:
    def op_of_two(x: Value, y: Value) -> Tensor:
        return function(x, y)

    return op_of_two


def _bitwise(function: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Tensor]:
    def bits(x: Value, y: Value, op: FileOp) -> Tensor:
        if op.dtype("x") != "bool":
            raise NoForm("bits of integers are not supported by the engine; use truth values")
        return function(truth(x), truth(y))

    return bits


def _activation(name: str) -> Callable[..., Tensor]:
    """An activation of the graph with two numbers."""

    def activation(x: Numeric, alpha: float, beta: float) -> Tensor:
        return getattr(x, name)(alpha, beta)

    return activation


def _threshold(x: Numeric, alpha: float) -> Tensor:
    return x.threshold(alpha)


def _thresholded_relu(x: Numeric, alpha: float = 1.0) -> Tensor:
    return x.thresholded_relu(alpha)


def _cast(x: Tensor, dtype: str, op: FileOp) -> Tensor:
    """The graph holds every number as fp16, also integers and truth values. A cast to an integer type removes the
    fraction. This is exact, because the integer part of an fp16 number is an fp16 number."""
    if dtype == "bool":
        return truth(x)
    if dtype == "string":
        raise LoadError("a cast to string is not supported; leave strings to the host")
    if x.dtype == "bool":
        return x.cast()
    if is_whole(dtype) and not is_whole(op.dtype("x")):
        return forms.truncated(x)
    return x


def _by_channel(values: Array, rank: int) -> Array:
    line = values.reshape(-1)
    return line.reshape(1, -1, *(1,) * (rank - 2)) if line.size > 1 < rank else line


def _prelu(x: Numeric, alpha: Value) -> Tensor:
    """One slope, or one for each channel."""
    if isinstance(alpha, Tensor) and x.ndim > 1:
        return forms.prelu(x, alpha.reshape(1, alpha.size, *(1,) * (x.ndim - 2)))
    return forms.prelu(x, alpha if isinstance(alpha, Tensor) else _by_channel(np.asarray(alpha), x.ndim))


def _soft_shrink(x: Numeric, limit: float = 0.5) -> Tensor:
    return forms.shrink(x, limit, limit)


def _parametric_softplus(x: Numeric, alpha: Array, beta: Array) -> Tensor:
    """alpha * log(1 + exp(beta * x)), with one alpha and one beta for each channel."""
    return forms.as_number(_by_channel(alpha, x.ndim)) * (
        x * forms.as_number(_by_channel(beta, x.ndim))
    ).softplus()  # fmt: skip


def _select(cond: Value, a: Value, b: Value, op: FileOp) -> Tensor:
    computed = [value for value in (a, b) if isinstance(value, Tensor)]
    truths = op.dtype("a") == "bool" or op.dtype("b") == "bool"
    return forms.chosen(cond, a, b, truths and all(value.dtype == "bool" for value in computed))


def _triangle(x: Tensor, diagonal: int = 0, upper: bool = True) -> Tensor:
    return triangle(x, not upper, diagonal)


def _logical_not(x: Value) -> Tensor:
    return truth(x).logical_not()


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": Tensor.relu,
    "sigmoid": Tensor.sigmoid,
    "tanh": Tensor.tanh,
    "linear": lambda x: x,
    "sigmoid_hard": lambda x: x.sigmoid_hard(0.2, 0.5),
    "scaled_tanh": lambda x: x.scaled_tanh(1.0, 1.0),
}
"""The activations that a recurrent op may name."""

OPS: dict[str, Callable[..., object]] = {
    **{name: _unary(function) for name, function in UNARY.items()},
    **{name: _binary(function) for name, function in BINARY.items()},
    "add_product": forms.add_product,
    "add_quotient": forms.add_quotient,
    "bitwise_and": _bitwise(af.logical_and),
    "bitwise_or": _bitwise(af.logical_or),
    "bitwise_xor": _bitwise(af.logical_xor),
    "cast": _cast,
    "celu": forms.celu,
    "clamped_relu": _activation("clamped_relu"),
    "clip": forms.clamped,
    "divided": forms.divided,
    "elu": forms.elu,
    "gelu": forms.gelu,
    "glu": forms.glu,
    "hard_sigmoid": forms.hard_sigmoid,
    "inverse": forms.inverse,
    "isinf": is_infinite,
    "leaky_relu": forms.leaky_relu,
    "lerp": forms.lerp,
    "linear_activation": _activation("linear_activation"),
    "log": forms.log,
    "logical_not": _logical_not,
    "logit": logit,
    "nan_to_num": nan_to_num,
    "prelu": _prelu,
    "remainder": forms.remainder,
    "round": rounded,
    "rsqrt": forms.rsqrt,
    "scaled_tanh": _activation("scaled_tanh"),
    "select": _select,
    "selu": forms.selu,
    "shrink": forms.shrink,
    "soft_shrink": _soft_shrink,
    "softplus_parametric": _parametric_softplus,
    "swish": forms.swish,
    "threshold": _threshold,
    "thresholded_relu": _thresholded_relu,
    "triangle": _triangle,
    "where_above": forms.threshold,
}
