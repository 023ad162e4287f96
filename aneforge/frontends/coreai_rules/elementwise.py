"""Arithmetic, comparisons, logic and activations."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from aneforge.frontends import LoadError
from aneforge.frontends.coreai_rules.op import Op, Rule, as_condition, as_number
from aneforge.frontends.coreai_rules.products import biased
from aneforge.frontends.coreai_rules.records import is_whole
from aneforge.frontends.coreai_rules.spatial import averaged
from aneforge.frontends.values import Value
from aneforge.graph import builders as af
from aneforge.graph.encoding import Encoded
from aneforge.graph.tensor import Tensor

__all__ = ["RULES"]


def _unary(function: Callable[[Tensor], Tensor]) -> Rule:
    return lambda op: function(op.tensor())


def _binary(function: Callable[[Tensor, Tensor], Tensor]) -> Rule:
    return lambda op: function(op.tensor(0), op.tensor(1))


def _logical(function: Callable[[Tensor, Tensor], Tensor]) -> Rule:
    return lambda op: function(as_condition(op.value(0)), as_condition(op.value(1)))


def _single(value: Value) -> float | None:
    """The number that a known operand is everywhere."""
    if isinstance(value, (Tensor, Encoded)) or value.size == 0:
        return None
    first = value.reshape(-1)[0] if 0 not in value.strides else value[(0,) * value.ndim]
    return float(first) if (value == first).all() else None


def _add(op: Op) -> Tensor:
    """What is added to every channel of a product is the bias of that op."""
    for product, bias in ((0, 1), (1, 0)):
        found = biased(op, product, bias)
        if found is not None:
            return found
    return op.tensor(0) + op.tensor(1)


def _mul(op: Op) -> Tensor:
    for pool, count in ((0, 1), (1, 0)):
        found = averaged(op, pool, count, inverse=True)
        if found is not None:
            return found
    return op.tensor(0) * op.tensor(1)


def _divide(op: Op) -> Tensor:
    found = averaged(op, 0, 1, inverse=False)
    if found is not None:
        return found
    if _single(op.value(0)) == 1.0 and op.rank(0) <= op.rank(1) and op.shape == op.types[1].static:
        return op.tensor(1).inverse(0.0)
    return op.tensor(0) / op.tensor(1)


def _floor_divide(op: Op) -> Tensor:
    """The language has no floor of its own: it divides by one."""
    if _single(op.value(1)) == 1.0 and op.shape == op.types[0].static:
        return op.tensor(0).floor()
    return af.floor_div(op.tensor(0), op.tensor(1))


def _truncated(x: Tensor) -> Tensor:
    return x.sign() * x.abs().floor()


def _modulo(op: Op) -> Tensor:
    """With the sign of the dividend."""
    a, b = op.tensor(0), op.tensor(1)
    return a - b * _truncated(a / b)


def _power(op: Op) -> Tensor:
    power = _single(op.value(1))
    x = op.tensor(0)
    ways: dict[float, Callable[[Tensor], Tensor]] = {
        2.0: Tensor.square,
        0.5: Tensor.sqrt,
        -0.5: lambda t: t.rsqrt(0.0),
        -1.0: lambda t: t.inverse(0.0),
        3.0: lambda t: t * t.square(),
    }
    if power in ways and op.shape == op.types[0].static:
        return ways[power](x)
    return x.pow(op.tensor(1))


def _gelu(op: Op) -> Tensor:
    x, way = op.tensor(), op.text("approximate", "none")
    if way == "none":
        return x.gelu()
    if way == "sigmoid":
        return x * (x * 1.702).sigmoid()
    if way == "tanh":
        inner = (x + (x * x * x) * 0.044715).scaled_tanh(1.0, math.sqrt(2 / math.pi))
        return x * (inner * 0.5 + 0.5)
    raise LoadError(f"no gelu by {way!r}")


def _cast(op: Op) -> Tensor:
    """Every float is fp16 here; whole numbers are held as such, from which a cast cuts the fraction off."""
    given, before, after = op.value(0), op.types[0].dtype, op.dtype
    if after == "i1":
        return as_condition(given)
    x = as_number(given)
    if is_whole(after) and not is_whole(before) and before != "i1":
        if after not in ("si16", "si32", "si64"):
            raise LoadError(f"numbers that are computed as {after}, which wraps around where the engine does not")
        return _truncated(x)
    if is_whole(after) and is_whole(before) and not _holds(after, before):
        raise LoadError(f"whole numbers of {before} as {after}, which wraps around where the engine does not")
    return x


def _holds(wide: str, narrow: str) -> bool:
    limits = [np.iinfo(f"{'u' if each[0] == 'u' else ''}int{max(8, int(each[2:]))}") for each in (wide, narrow)]
    return limits[0].min <= limits[1].min and limits[0].max >= limits[1].max


def _where(op: Op) -> Tensor:
    mask = as_condition(op.value(0))
    if op.dtype == "i1":
        a, b = as_condition(op.value(1)), as_condition(op.value(2))
        return af.logical_or(af.logical_and(mask, a), af.logical_and(mask.logical_not(), b))
    return af.where(mask, op.tensor(1), op.tensor(2))


def _bitwise(function: Callable[[Tensor, Tensor], Tensor]) -> Rule:
    def rule(op: Op) -> Tensor:
        if op.dtype != "i1":
            raise LoadError("bits of whole numbers, which the engine does not compute")
        return function(as_condition(op.value(0)), as_condition(op.value(1)))

    return rule


RULES: dict[str, Rule] = {
    "abs": _unary(Tensor.abs),
    "acos": _unary(Tensor.acos),
    "acosh": _unary(Tensor.acosh),
    "add": _add,
    "and": _logical(af.logical_and),
    "asin": _unary(Tensor.asin),
    "asinh": _unary(Tensor.asinh),
    "atan": _unary(Tensor.atan),
    "atanh": _unary(Tensor.atanh),
    "bitwise_and": _bitwise(af.logical_and),
    "bitwise_or": _bitwise(af.logical_or),
    "bitwise_xor": _bitwise(af.logical_xor),
    "cast": _cast,
    "cos": _unary(Tensor.cos),
    "cosh": _unary(Tensor.cosh),
    "divide": _divide,
    "equal": _binary(Tensor.equal),
    "erf": _unary(Tensor.erf),
    "exp": _unary(Tensor.exp),
    "floor_divide": _floor_divide,
    "gelu": _gelu,
    "greater": _binary(Tensor.greater),
    "log": _unary(lambda x: x.log(0.0)),
    "maximum": _binary(af.maximum),
    "minimum": _binary(af.minimum),
    "modulo": _modulo,
    "mul": _mul,
    "not": lambda op: as_condition(op.value(0)).logical_not(),
    "not_equal": _binary(Tensor.not_equal),
    "or": _logical(af.logical_or),
    "pow": _power,
    "relu": _unary(Tensor.relu),
    "round": _unary(Tensor.round),
    "rsqrt": _unary(lambda x: x.rsqrt(0.0)),
    "sigmoid": _unary(Tensor.sigmoid),
    "silu": _unary(Tensor.silu),
    "sin": _unary(Tensor.sin),
    "sinh": _unary(Tensor.sinh),
    "sqrt": _unary(Tensor.sqrt),
    "sub": _binary(lambda a, b: a - b),
    "tan": _unary(Tensor.tan),
    "tanh": _unary(Tensor.tanh),
    "where": _where,
    "xor": _logical(af.logical_xor),
}
