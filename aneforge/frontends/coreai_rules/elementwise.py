"""Arithmetic, comparisons, logic and activations."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from aneforge.frontends import LoadError, forms
from aneforge.frontends.coreai_rules.op import Op, Rule
from aneforge.frontends.coreai_rules.products import biased
from aneforge.frontends.coreai_rules.records import is_whole
from aneforge.frontends.coreai_rules.spatial import averaged
from aneforge.frontends.forms import as_number, truncated, truth
from aneforge.frontends.values import Value
from aneforge.graph import builders as af
from aneforge.graph.encoding import Encoded
from aneforge.graph.tensor import Tensor

__all__ = ["RULES"]


def _unary(function: Callable[[Tensor], Tensor]) -> Rule:
    return lambda op: function(op.tensor())


def _binary(function: Callable[[Value, Value], Tensor]) -> Rule:
    """A constant that the file spreads over the whole shape is a number again."""
    return lambda op: function(*_operands(op))


def _operands(op: Op) -> list[Value]:
    given = [op.value(0), op.value(1)]
    for place, other in ((0, 1), (1, 0)):
        single = _single(given[place])
        if single is not None and op.types[other].static == op.shape:
            given[place] = np.asarray(single)
    return given


def _compared(name: str) -> Rule:
    return lambda op: forms.compared(name, *_operands(op))


def _plane(function: Callable[[Tensor, Tensor], Tensor]) -> Rule:
    return lambda op: function(op.tensor(0), op.tensor(1))


def _logical(function: Callable[[Tensor, Tensor], Tensor]) -> Rule:
    return lambda op: function(truth(op.value(0)), truth(op.value(1)))


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
    return forms.added(*_operands(op))


def _mul(op: Op) -> Tensor:
    for pool, count in ((0, 1), (1, 0)):
        found = averaged(op, pool, count, inverse=True)
        if found is not None:
            return found
    return forms.multiplied(*_operands(op))


def _divide(op: Op) -> Tensor:
    found = averaged(op, 0, 1, inverse=False)
    if found is not None:
        return found
    a, b = _operands(op)
    return forms.divided(a, b)


def _floor_divide(op: Op) -> Tensor:
    """The language has no floor of its own: it divides by one."""
    if _single(op.value(1)) == 1.0 and op.shape == op.types[0].static:
        return op.tensor(0).floor()
    return forms.divided(op.tensor(0), op.tensor(1), "floor")


def _cast(op: Op) -> Tensor:
    """Every float is fp16 here; whole numbers are held as such, from which a cast cuts the fraction off."""
    given, before, after = op.value(0), op.types[0].dtype, op.dtype
    if after == "i1":
        return truth(given)
    x = as_number(given)
    if is_whole(after) and not is_whole(before) and before != "i1":
        if after not in ("si16", "si32", "si64"):
            raise LoadError(f"numbers that are computed as {after}, which wraps around where the engine does not")
        return truncated(x)
    if is_whole(after) and is_whole(before) and not _holds(after, before):
        raise LoadError(f"whole numbers of {before} as {after}, which wraps around where the engine does not")
    return x


def _holds(wide: str, narrow: str) -> bool:
    limits = [np.iinfo(f"{'u' if each[0] == 'u' else ''}int{max(8, int(each[2:]))}") for each in (wide, narrow)]
    return limits[0].min <= limits[1].min and limits[0].max >= limits[1].max


def _where(op: Op) -> Tensor:
    return forms.chosen(op.value(0), op.value(1), op.value(2), op.dtype == "i1")


def _bitwise(function: Callable[[Tensor, Tensor], Tensor]) -> Rule:
    def rule(op: Op) -> Tensor:
        if op.dtype != "i1":
            raise LoadError("bits of whole numbers, which the engine does not compute")
        return function(truth(op.value(0)), truth(op.value(1)))

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
    "equal": _compared("equal"),
    "erf": _unary(Tensor.erf),
    "exp": _unary(Tensor.exp),
    "floor_divide": _floor_divide,
    "gelu": lambda op: forms.gelu(op.tensor(), op.text("approximate", "none")),
    "greater": _compared("greater"),
    "log": _unary(forms.log),
    "maximum": _plane(af.maximum),
    "minimum": _plane(af.minimum),
    "modulo": _binary(lambda a, b: forms.remainder(a, b, of_dividend=True)),
    "mul": _mul,
    "not": lambda op: truth(op.value(0)).logical_not(),
    "not_equal": _compared("not_equal"),
    "or": _logical(af.logical_or),
    "pow": _binary(forms.power),
    "relu": _unary(Tensor.relu),
    "round": _unary(Tensor.round),
    "rsqrt": _unary(forms.rsqrt),
    "sigmoid": _unary(Tensor.sigmoid),
    "silu": _unary(Tensor.silu),
    "sin": _unary(Tensor.sin),
    "sinh": _unary(Tensor.sinh),
    "sqrt": _unary(Tensor.sqrt),
    "sub": _binary(forms.subtracted),
    "tan": _unary(Tensor.tan),
    "tanh": _unary(Tensor.tanh),
    "where": _where,
    "xor": _logical(af.logical_xor),
}
