"""Arithmetic, comparisons, logic and activations."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from aneforge.frontends import LoadError, forms
from aneforge.frontends.forms import as_number, truth
from aneforge.frontends.importer.op import Op, Rule
from aneforge.frontends.records import is_whole
from aneforge.frontends.values import NoForm, Value
from aneforge.graph import builders as af
from aneforge.graph.ops.leaf import const
from aneforge.graph.tensor import Tensor

__all__ = ["ACTIVATIONS", "RULES"]


def _unary(function: Callable[[Tensor], Tensor]) -> Rule:
    return lambda op: function(as_number(op.value("x")))


def _binary(function: Callable[[Tensor, Tensor], Tensor]) -> Rule:
    return lambda op: function(as_number(op.value("x")), as_number(op.value("y")))


def _of_two(function: Callable[[Value, Value], Tensor]) -> Rule:
    return lambda op: function(op.value("x"), op.value("y"))


def _compared(name: str) -> Rule:
    return lambda op: forms.compared(name, op.value("x"), op.value("y"))


def _logical(function: Callable[[Tensor, Tensor], Tensor]) -> Rule:
    return lambda op: function(truth(op.value("x")), truth(op.value("y")))


def _bitwise(function: Callable[[Tensor, Tensor], Tensor]) -> Rule:
    def rule(op: Op) -> Tensor:
        if op.dtype("x") != "bool":
            raise NoForm("the engine does not compute the bits of integers")
        return function(truth(op.value("x")), truth(op.value("y")))

    return rule


def _cast(op: Op) -> Tensor:
    """Every number is fp16 here; whole numbers and truth values are held as such numbers. A cast to whole numbers
    cuts the fraction off, which is exact: what an fp16 number keeps then is an fp16 number."""
    x, wanted = op.tensor(), op.text("dtype")
    if wanted == "bool":
        return truth(x)
    if wanted == "string":
        raise LoadError("a cast to text")
    if x.dtype == "bool":
        return x.cast()
    if is_whole(wanted) and not is_whole(op.dtype("x")):
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
    """alpha * log(1 + exp(beta * x)), one of each for a channel."""
    x = op.tensor()
    alpha, beta = (const(_by_channel(op, name, x.ndim)) for name in ("alpha", "beta"))
    return alpha * (x * beta).softplus()


def _select(op: Op) -> Tensor:
    a, b = op.value("a"), op.value("b")
    computed = [each for each in (a, b) if isinstance(each, Tensor)]
    truths = op.dtype("a") == "bool" or op.dtype("b") == "bool"
    return forms.chosen(op.value("cond"), a, b, truths and all(each.dtype == "bool" for each in computed))


def _shrunk(name: str) -> Rule:
    return lambda op: getattr(op.tensor(), name)(op.number("alpha"))


def _scaled(name: str) -> Rule:
    return lambda op: getattr(op.tensor(), name)(op.number("alpha"), op.number("beta"))


def _shifted(function: Callable[[Tensor, float], Tensor], eps: float) -> Rule:
    return lambda op: function(op.tensor(), op.number("epsilon", eps))


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": Tensor.relu,
    "sigmoid": Tensor.sigmoid,
    "tanh": Tensor.tanh,
    "linear": lambda x: x,
    "sigmoid_hard": lambda x: x.sigmoid_hard(0.2, 0.5),
    "scaled_tanh": lambda x: x.scaled_tanh(1.0, 1.0),
}
"""What a recurrent op may name."""

RULES: dict[str, Rule] = {
    **{
        name: _unary(function)
        for name, function in {
            "abs": Tensor.abs,
            "acos": Tensor.acos,
            "acosh": Tensor.acosh,
            "asin": Tensor.asin,
            "asinh": Tensor.asinh,
            "atan": Tensor.atan,
            "atanh": Tensor.atanh,
            "ceil": Tensor.ceil,
            "cos": Tensor.cos,
            "cosh": Tensor.cosh,
            "erf": Tensor.erf,
            "exp": Tensor.exp,
            "exp2": Tensor.exp2,
            "floor": Tensor.floor,
            "relu": Tensor.relu,
            "relu6": Tensor.relu6,
            "round": Tensor.round,
            "sigmoid": Tensor.sigmoid,
            "sign": Tensor.sign,
            "silu": Tensor.silu,
            "sin": Tensor.sin,
            "sinh": Tensor.sinh,
            "softplus": Tensor.softplus,
            "softsign": Tensor.softsign,
            "sqrt": Tensor.sqrt,
            "square": Tensor.square,
            "tan": Tensor.tan,
            "tanh": Tensor.tanh,
        }.items()
    },
    **{
        name: _binary(function)
        for name, function in {
            "maximum": af.maximum,
            "minimum": af.minimum,
        }.items()
    },
    **{
        name: _of_two(function)
        for name, function in {
            "add": forms.added,
            "sub": forms.subtracted,
            "mul": forms.multiplied,
            "real_div": forms.divided,
            "floor_div": lambda a, b: forms.divided(a, b, "floor"),
            "mod": forms.remainder,
            "fmod": lambda a, b: forms.remainder(a, b, of_dividend=True),
            "pow": forms.power,
        }.items()
    },
    **{name: _compared(name) for name in ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")},
    "logical_and": _logical(af.logical_and),
    "logical_or": _logical(af.logical_or),
    "logical_xor": _logical(af.logical_xor),
    "logical_not": lambda op: truth(op.value("x")).logical_not(),
    "bitwise_and": _bitwise(af.logical_and),
    "bitwise_or": _bitwise(af.logical_or),
    "bitwise_xor": _bitwise(af.logical_xor),
    "cast": _cast,
    "clamped_relu": _scaled("clamped_relu"),
    "clip": _clip,
    "elu": lambda op: forms.elu(op.tensor(), op.number("alpha")),
    "gelu": lambda op: forms.gelu(op.tensor(), op.text("mode", "EXACT")),
    "inverse": _shifted(forms.inverse, 1e-4),
    "leaky_relu": lambda op: forms.leaky_relu(op.tensor(), op.number("alpha")),
    "linear_activation": _scaled("linear_activation"),
    "log": _shifted(forms.log, 1e-45),
    "prelu": _prelu,
    "rsqrt": _shifted(forms.rsqrt, 1e-12),
    "scaled_tanh": _scaled("scaled_tanh"),
    "select": _select,
    "sigmoid_hard": lambda op: forms.hard_sigmoid(op.tensor(), op.number("alpha"), op.number("beta")),
    "softplus_parametric": _parametric_softplus,
    "threshold": _shrunk("threshold"),
    "thresholded_relu": _shrunk("thresholded_relu"),
}
