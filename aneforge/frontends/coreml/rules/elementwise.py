"""Arithmetic, comparisons, logic and activations."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from aneforge.frontends import LoadError
from aneforge.frontends.coreml.op import Op, Rule, is_whole
from aneforge.frontends.values import Value, as_tensor
from aneforge.graph import builders as af
from aneforge.graph.ops.leaf import const
from aneforge.graph.tensor import Tensor

__all__ = ["ACTIVATIONS", "RULES", "as_condition", "as_number"]

_LARGEST = 65504.0  # of fp16: a bound beyond it bounds nothing


def as_number(value: Value) -> Tensor:
    """Truth values as 0 and 1."""
    found = as_tensor(value)
    return found.cast() if found.dtype != "fp16" else found


def as_condition(value: Value) -> Tensor:
    """Anything but zero is true."""
    if not isinstance(value, Tensor):
        return const((np.asarray(value) != 0).astype(np.float64)).greater(0.5)
    return value if value.dtype == "bool" else value.not_equal(0.0)


def _unary(function: Callable[[Tensor], Tensor]) -> Rule:
    return lambda op: function(as_number(op.value("x")))


def _binary(function: Callable[[Tensor, Tensor], Tensor]) -> Rule:
    return lambda op: function(as_number(op.value("x")), as_number(op.value("y")))


def _logical(function: Callable[[Tensor, Tensor], Tensor]) -> Rule:
    return lambda op: function(as_condition(op.value("x")), as_condition(op.value("y")))


def _power(op: Op) -> Tensor:
    x, exponent = op.tensor(), op.value("y")
    if isinstance(exponent, np.ndarray) and exponent.size == 1:
        power = float(exponent.reshape(-1)[0])
        if exponent.ndim <= x.ndim and power in (1.0, 2.0, 0.5):
            return {1.0: lambda t: t, 2.0: Tensor.square, 0.5: Tensor.sqrt}[power](x)
    return x.pow(as_tensor(exponent))


def _cast(op: Op) -> Tensor:
    """Every number is fp16 here; whole numbers and truth values are held as such numbers. A cast to whole numbers
    cuts the fraction off, which is exact: what an fp16 number keeps then is an fp16 number."""
    x, wanted = op.tensor(), op.text("dtype")
    if wanted == "bool":
        return as_condition(x)
    if wanted == "string":
        raise LoadError("a cast to text")
    if x.dtype == "bool":
        return x.cast()
    if is_whole(wanted) and not is_whole(op.dtype("x")):
        return x.sign() * x.abs().floor()
    return x


def _clip(op: Op) -> Tensor:
    low, high = op.number("alpha"), op.number("beta")
    return op.tensor().clip(max(low, -_LARGEST), min(high, _LARGEST))


def _gelu(op: Op) -> Tensor:
    x, mode = op.tensor(), op.text("mode", "EXACT")
    if mode == "EXACT":
        return x.gelu()
    if mode == "SIGMOID_APPROXIMATION":
        return x * (x * 1.702).sigmoid()
    if mode == "TANH_APPROXIMATION":
        inner = (x + (x * x * x) * 0.044715).scaled_tanh(1.0, math.sqrt(2 / math.pi))
        return x * (inner * 0.5 + 0.5)
    raise LoadError(f"no gelu of mode {mode!r}")


def _by_channel(op: Op, name: str, rank: int) -> np.ndarray:
    values = op.known(name).reshape(-1)
    return values.reshape(1, -1, *(1,) * (rank - 2)) if values.size > 1 else values


def _prelu(op: Op) -> Tensor:
    x, alpha = op.tensor(), op.known("alpha").reshape(-1)
    if x.ndim >= 3 and alpha.size == x.shape[1]:
        return x.prelu(alpha)
    return x.relu() - const(_by_channel(op, "alpha", x.ndim)) * (-x).relu()


def _parametric_softplus(op: Op) -> Tensor:
    """alpha * log(1 + exp(beta * x)), one of each for a channel."""
    x = op.tensor()
    alpha, beta = (const(_by_channel(op, name, x.ndim)) for name in ("alpha", "beta"))
    return alpha * (x * beta).softplus()


def _select(op: Op) -> Tensor:
    condition, a, b = op.value("cond"), op.value("a"), op.value("b")
    if all(as_tensor(each).dtype == "bool" for each in (a, b) if isinstance(each, Tensor)) and (
        op.dtype("a") == "bool" or op.dtype("b") == "bool"
    ):
        mask = as_condition(condition)
        return af.logical_or(
            af.logical_and(mask, as_condition(a)), af.logical_and(mask.logical_not(), as_condition(b))
        )
    return af.where(as_condition(condition), as_number(a), as_number(b))


def _shrunk(name: str) -> Rule:
    return lambda op: getattr(op.tensor(), name)(op.number("alpha"))


def _scaled(name: str) -> Rule:
    return lambda op: getattr(op.tensor(), name)(op.number("alpha"), op.number("beta"))


def _shifted(name: str, eps: float) -> Rule:
    return lambda op: getattr(op.tensor(), name)(op.number("epsilon", eps))


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
            "add": lambda a, b: a + b,
            "sub": lambda a, b: a - b,
            "mul": lambda a, b: a * b,
            "real_div": lambda a, b: a / b,
            "floor_div": af.floor_div,
            "mod": af.mod,
            "maximum": af.maximum,
            "minimum": af.minimum,
            "equal": lambda a, b: a.equal(b),
            "not_equal": lambda a, b: a.not_equal(b),
            "less": lambda a, b: a.less(b),
            "less_equal": lambda a, b: a.less_equal(b),
            "greater": lambda a, b: a.greater(b),
            "greater_equal": lambda a, b: a.greater_equal(b),
        }.items()
    },
    "logical_and": _logical(af.logical_and),
    "logical_or": _logical(af.logical_or),
    "logical_xor": _logical(af.logical_xor),
    "logical_not": lambda op: as_condition(op.value("x")).logical_not(),
    "cast": _cast,
    "clamped_relu": _scaled("clamped_relu"),
    "clip": _clip,
    "elu": _shrunk("elu"),
    "gelu": _gelu,
    "inverse": _shifted("inverse", 1e-4),
    "leaky_relu": _shrunk("leaky_relu"),
    "linear_activation": _scaled("linear_activation"),
    "log": _shifted("log", 1e-45),
    "pow": _power,
    "prelu": _prelu,
    "rsqrt": _shifted("rsqrt", 1e-12),
    "scaled_tanh": _scaled("scaled_tanh"),
    "select": _select,
    "sigmoid_hard": _scaled("sigmoid_hard"),
    "softplus_parametric": _parametric_softplus,
    "threshold": _shrunk("threshold"),
    "thresholded_relu": _shrunk("thresholded_relu"),
}
