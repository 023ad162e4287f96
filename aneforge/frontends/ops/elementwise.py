"""Arithmetic, comparisons, logic and activations."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from aneforge.frontends import LoadError, forms
from aneforge.frontends.forms import as_number, truth
from aneforge.frontends.forms.pointwise import BINARY, UNARY
from aneforge.frontends.importer.op import Op, Rule
from aneforge.frontends.records import is_whole
from aneforge.frontends.values import NoForm, Value
from aneforge.graph import builders as af
from aneforge.graph.ops.leaf import const
from aneforge.graph.tensor import Tensor

__all__ = ["ACTIVATIONS", "RULES"]


def _unary(function: Callable[[Tensor], Tensor]) -> Rule:
    return lambda op: function(as_number(op.value("x")))


def _of_two(function: Callable[[Value, Value], Tensor]) -> Rule:
    return lambda op: function(op.value("x"), op.value("y"))


def _bitwise(function: Callable[[Tensor, Tensor], Tensor]) -> Rule:
    def rule(op: Op) -> Tensor:
        if op.dtype("x") != "bool":
            raise NoForm("bits of integers are not supported by the engine; use truth values")
        return function(truth(op.value("x")), truth(op.value("y")))

    return rule


def _cast(op: Op) -> Tensor:
    """The graph holds every number as fp16, also integers and truth values. A cast to an integer type removes the
    fraction. This is exact, because the integer part of an fp16 number is an fp16 number."""
    x, dtype = op.tensor(), op.text("dtype")
    if dtype == "bool":
        return truth(x)
    if dtype == "string":
        raise LoadError("a cast to string is not supported; leave strings to the host")
    if x.dtype == "bool":
        return x.cast()
    if is_whole(dtype) and not is_whole(op.dtype("x")):
        return forms.truncated(x)
    return x


def _clip(op: Op) -> Tensor:
    return forms.clamped(op.tensor(), op.number("alpha"), op.number("beta"))


def _by_channel(op: Op, name: str, rank: int) -> np.ndarray:
    values = op.known(name).reshape(-1)
    return values.reshape(1, -1, *(1,) * (rank - 2)) if values.size > 1 else values


def _prelu(op: Op) -> Tensor:
    return forms.prelu(op.tensor(), _by_channel(op, "alpha", op.tensor().ndim))


def _parametric_softplus(op: Op) -> Tensor:
    """alpha * log(1 + exp(beta * x)), with one alpha and one beta for each channel."""
    x = op.tensor()
    alpha, beta = (const(_by_channel(op, name, x.ndim)) for name in ("alpha", "beta"))
    return alpha * (x * beta).softplus()


def _select(op: Op) -> Tensor:
    a, b = op.value("a"), op.value("b")
    computed = [value for value in (a, b) if isinstance(value, Tensor)]
    truths = op.dtype("a") == "bool" or op.dtype("b") == "bool"
    return forms.chosen(op.value("cond"), a, b, truths and all(value.dtype == "bool" for value in computed))


def _with_alpha(name: str) -> Rule:
    return lambda op: getattr(op.tensor(), name)(op.number("alpha"))


def _with_alpha_beta(name: str) -> Rule:
    return lambda op: getattr(op.tensor(), name)(op.number("alpha"), op.number("beta"))


def _with_epsilon(function: Callable[[Tensor, float], Tensor], eps: float) -> Rule:
    return lambda op: function(op.tensor(), op.number("epsilon", eps))


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": Tensor.relu,
    "sigmoid": Tensor.sigmoid,
    "tanh": Tensor.tanh,
    "linear": lambda x: x,
    "sigmoid_hard": lambda x: x.sigmoid_hard(0.2, 0.5),
    "scaled_tanh": lambda x: x.scaled_tanh(1.0, 1.0),
}
"""The activations that a recurrent op may name."""

_UNARY = (
    "abs acos acosh asin asinh atan atanh ceil cos cosh erf exp exp2 floor relu relu6 round sigmoid sign silu sin "
    "sinh softplus softsign sqrt square tan tanh"
)

RULES: dict[str, Rule] = {
    **{name: _unary(UNARY[name]) for name in _UNARY.split()},
    **{name: _of_two(function) for name, function in BINARY.items()},
    "logical_not": lambda op: truth(op.value("x")).logical_not(),
    "bitwise_and": _bitwise(af.logical_and),
    "bitwise_or": _bitwise(af.logical_or),
    "bitwise_xor": _bitwise(af.logical_xor),
    "cast": _cast,
    "clamped_relu": _with_alpha_beta("clamped_relu"),
    "clip": _clip,
    "elu": lambda op: forms.elu(op.tensor(), op.number("alpha")),
    "gelu": lambda op: forms.gelu(op.tensor(), op.text("mode", "EXACT")),
    "inverse": _with_epsilon(forms.inverse, 1e-4),
    "leaky_relu": lambda op: forms.leaky_relu(op.tensor(), op.number("alpha")),
    "linear_activation": _with_alpha_beta("linear_activation"),
    "log": _with_epsilon(forms.log, 1e-45),
    "prelu": _prelu,
    "rsqrt": _with_epsilon(forms.rsqrt, 1e-12),
    "scaled_tanh": _with_alpha_beta("scaled_tanh"),
    "select": _select,
    "sigmoid_hard": lambda op: forms.hard_sigmoid(op.tensor(), op.number("alpha"), op.number("beta")),
    "softplus_parametric": _parametric_softplus,
    "threshold": _with_alpha("threshold"),
    "thresholded_relu": _with_alpha("thresholded_relu"),
}
