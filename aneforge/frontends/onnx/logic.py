"""Booleans: comparisons, selection, and casts between booleans and numbers."""

from __future__ import annotations

import numpy as np

from aneforge.frontends.forms import are_truths, as_number, chosen, truncated, truth
from aneforge.frontends.forms.pointwise import BINARY, UNARY, is_infinite
from aneforge.frontends.onnx.node import Node, Rule, Value
from aneforge.frontends.values import NoForm
from aneforge.graph.tensor import Tensor

__all__ = ["RULES", "is_whole"]

_FLOATS = (1, 10, 11, 16)
_WHOLE = (2, 3, 4, 5, 6, 7, 12, 13)
_BOOL = 9


def is_whole(*operands: Value | None) -> bool:
    """Whether the op computes integers. One known integer operand is enough, since all operands have one type."""
    return any(isinstance(operand, np.ndarray) and operand.dtype.kind in "iu" for operand in operands)


def _binary(name: str) -> Rule:
    return lambda node, a, b: BINARY[name](a, b)


def _where(node: Node, condition: Value, a: Value, b: Value) -> Tensor:
    return chosen(condition, a, b, are_truths(a, b))


def _cast(node: Node, x: Value, *_: Value) -> Tensor:
    """All numbers are fp16 in the graph; a cast to integers drops the fraction."""
    return _as_type(x, int(node.attr("to", 1)))


def _as_type(x: Value, to: int) -> Tensor:
    if to == _BOOL:
        return truth(x)
    numbers = as_number(x)
    if to in _FLOATS:
        return numbers
    if to not in _WHOLE:
        raise NoForm("a cast to a type of fewer bits is not supported; the engine has fp16 rounding only")
    from_bool = isinstance(x, Tensor) and x.dtype == "bool"
    return numbers if from_bool else truncated(numbers)


def _cast_like(node: Node, x: Value, like: Value, *_: Value) -> Value:
    """Cast to the type of another value."""
    if isinstance(like, Tensor):
        to = _BOOL if like.dtype == "bool" else 1
        if isinstance(x, np.ndarray):
            return x.astype(bool if to == _BOOL else np.float32)
        return _as_type(x, to)
    kind = np.asarray(like).dtype
    if kind.kind == "b":
        return _as_type(x, _BOOL)
    if kind.name in ("float16", "float32", "float64", "bfloat16"):
        return _as_type(x, 1)
    if kind.name.removeprefix("u") in ("int8", "int16", "int32", "int64"):
        return _as_type(x, 7)
    raise NoForm(f"a cast to {kind.name} is not supported; the engine has fp16 rounding only")


def _is_infinite(node: Node, x: Value) -> Tensor:
    return is_infinite(as_number(x), bool(node.attr("detect_positive", 1)), bool(node.attr("detect_negative", 1)))


RULES: dict[str, Rule] = {
    "And": _binary("logical_and"),
    "Cast": _cast,
    "CastLike": _cast_like,
    "Equal": _binary("equal"),
    "Greater": _binary("greater"),
    "GreaterOrEqual": _binary("greater_equal"),
    "IsInf": _is_infinite,
    "IsNaN": lambda node, x: UNARY["isnan"](as_number(x)),
    "Less": _binary("less"),
    "LessOrEqual": _binary("less_equal"),
    "Not": lambda node, x: truth(x).logical_not(),
    "Or": _binary("logical_or"),
    "Where": _where,
    "Xor": _binary("logical_xor"),
}
