"""Truth values: comparisons, choices, and casts between them and numbers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from aneforge.frontends import LoadError
from aneforge.frontends.onnx_node import Node, Rule, Value
from aneforge.frontends.values import as_tensor
from aneforge.graph import builders as af
from aneforge.graph.encoding import Encoded
from aneforge.graph.tensor import Tensor

__all__ = ["RULES", "is_whole", "masks", "numbers", "truth"]

_LARGEST = 65504.0
_ENDLESS = 1e9  # a constant beyond it stands for infinity where it is added or chosen: masks hold the largest number
_BEYOND = 1e30  # and beyond this wherever it stands
_FLOATS = (1, 10, 11, 16)
_WHOLE = (2, 3, 4, 5, 6, 7, 12, 13)
_BOOL = 9


def numbers(value: Value, limit: float = _BEYOND) -> Tensor:
    """A value to compute with; a constant that stands for infinity is the largest number that fp16 holds."""
    if isinstance(value, Tensor):
        return value.cast() if value.dtype == "bool" else value
    if isinstance(value, np.ndarray) and value.dtype.kind in "fiu" and value.size:
        return as_tensor(_finite(value, limit))
    return as_tensor(value)


def masks(value: Value) -> Tensor:
    """A value that is added or chosen: what it would push out of range may as well be at its end."""
    return numbers(value, _ENDLESS)


def _finite(value: np.ndarray, limit: float) -> np.ndarray:
    if max(float(value.max()), -float(value.min())) < limit:
        return value
    wide = value.astype(np.float64)
    endless = np.isfinite(wide) & (np.abs(wide) >= limit)
    return np.where(endless, np.sign(wide) * _LARGEST, wide)


def truth(value: Value) -> Tensor:
    """A value as truth values: what is not zero."""
    if isinstance(value, Tensor) and value.dtype == "bool":
        return value
    if isinstance(value, Tensor):
        return value.not_equal(0.0)
    return as_tensor(np.asarray(value).astype(bool)).greater(0.5)


def is_whole(*given: Value | None) -> bool:
    """Whether a known operand says that the op computes whole numbers: all its operands are of one type."""
    return any(isinstance(each, np.ndarray) and each.dtype.kind in "iu" for each in given)


def _are_truths(*given: Value) -> bool:
    return any(
        each.dtype == "bool" if isinstance(each, Tensor) else not isinstance(each, Encoded) and each.dtype == bool
        for each in given
    )


def _compared(function: Callable[[Tensor, Tensor], Tensor]) -> Rule:
    return lambda node, a, b: function(numbers(a), numbers(b))


def _equal(node: Node, a: Value, b: Value) -> Tensor:
    if _are_truths(a, b):
        return af.logical_xor(truth(a), truth(b)).logical_not()
    return numbers(a).equal(numbers(b))


def _joined(function: Callable[[Tensor, Tensor], Tensor]) -> Rule:
    return lambda node, a, b: function(truth(a), truth(b))


def _where(node: Node, condition: Value, a: Value, b: Value) -> Tensor:
    chosen = truth(condition)
    if not _are_truths(a, b):
        return af.where(chosen, masks(a), masks(b))
    yes, no = af.logical_and(chosen, truth(a)), af.logical_and(chosen.logical_not(), truth(b))
    return af.logical_or(yes, no)


def cut_off(x: Tensor) -> Tensor:
    """The whole part."""
    return x.sign() * x.abs().floor()


def _cast(node: Node, x: Value, *_: Value) -> Tensor:
    """Every number is fp16 here; a cast to whole numbers cuts the fraction off."""
    return _as_type(x, int(node.attr("to", 1)))


def _as_type(x: Value, to: int) -> Tensor:
    if to == _BOOL:
        return truth(x)
    given = numbers(x)
    if to in _FLOATS:
        return given
    if to not in _WHOLE:
        raise LoadError("a cast to a type of fewer bits rounds as the engine's fp16 does not")
    plain = isinstance(x, Tensor) and x.dtype == "bool"
    return given if plain else cut_off(given)


def _cast_like(node: Node, x: Value, like: Value, *_: Value) -> Value:
    """The type is that of another value."""
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
    raise LoadError(f"a cast to {kind.name} rounds as the engine's fp16 does not")


def _is_endless(node: Node, x: Value) -> Tensor:
    """Beyond the largest number, on the sides that are asked for."""
    given = numbers(x)
    above, below = bool(node.attr("detect_positive", 1)), bool(node.attr("detect_negative", 1))
    if above and below:
        return given.abs().greater(_LARGEST)
    if above or below:
        return given.greater(_LARGEST) if above else given.less(-_LARGEST)
    return given.abs().less(-1.0)  # on neither: nothing is


def _is_nan(node: Node, x: Value) -> Tensor:
    given = numbers(x)
    return given.not_equal(given)


RULES: dict[str, Rule] = {
    "And": _joined(af.logical_and),
    "Cast": _cast,
    "CastLike": _cast_like,
    "Equal": _equal,
    "Greater": _compared(lambda a, b: a.greater(b)),
    "GreaterOrEqual": _compared(lambda a, b: a.greater_equal(b)),
    "IsInf": _is_endless,
    "IsNaN": _is_nan,
    "Less": _compared(lambda a, b: a.less(b)),
    "LessOrEqual": _compared(lambda a, b: a.less_equal(b)),
    "Not": lambda node, x: truth(x).logical_not(),
    "Or": _joined(af.logical_or),
    "Where": _where,
    "Xor": _joined(af.logical_xor),
}
