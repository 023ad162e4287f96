"""Arithmetic, comparisons and logic, element by element."""

from __future__ import annotations

from typing import Any

import numpy as np

from aneforge.frontends import LoadError, forms
from aneforge.frontends.forms import scaled, truth
from aneforge.frontends.pytorch.hosted import RANDOM
from aneforge.frontends.pytorch.node import Node, Rule
from aneforge.frontends.pytorch.values import numeric
from aneforge.graph import builders as af
from aneforge.graph.halves import FP16_MAX
from aneforge.graph.ops.leaf import const
from aneforge.graph.tensor import Tensor

# Sums and products.


def _add(node: Node, a: Any, b: Any, alpha: Any = 1) -> Tensor:
    if node.gives_bool:
        return af.logical_or(truth(a), truth(b))
    return forms.added(a, _times(b, float(node.options.get("alpha", alpha) or 0)))


def _sub(node: Node, a: Any, b: Any, alpha: Any = 1) -> Tensor:
    return forms.subtracted(a, _times(b, float(node.options.get("alpha", alpha) or 0)))


def _times(value: Any, factor: float) -> Any:
    if factor == 1.0:
        return value
    return factor * value if isinstance(value, (int, float)) else scaled(numeric(value), factor)


def _mul(node: Node, a: Any, b: Any) -> Tensor:
    if node.gives_bool:
        return af.logical_and(truth(a), truth(b))
    return forms.multiplied(a, b)


# Comparisons and choices.


def _where(node: Node, mask: Any, a: Any, b: Any) -> Tensor:
    return forms.chosen(mask, a, b, node.gives_bool)


def _masked_fill(node: Node, x: Any, mask: Any, value: Any) -> Tensor:
    return _where(node, mask, value, x)


def _nan_to_num(node: Node, x: Any, nan: Any = None, high: Any = None, low: Any = None) -> Tensor:
    """Infinities become the largest fp16 numbers."""
    tensor = numeric(x)
    upper = FP16_MAX if high is None else min(float(high), FP16_MAX)
    lower = -FP16_MAX if low is None else max(float(low), -FP16_MAX)
    numbers = af.where(tensor.equal(tensor), tensor, const(np.full((1,) * tensor.ndim, float(nan or 0.0))))
    return numbers.clip(lower, upper)


# Combined ops of PyTorch.


def _addcmul(node: Node, x: Any, a: Any, b: Any, value: Any = 1) -> Tensor:
    factor = float(node.options.get("value", value))
    return numeric(x) + scaled(numeric(a) * numeric(b), factor)


def _addcdiv(node: Node, x: Any, a: Any, b: Any, value: Any = 1) -> Tensor:
    factor = float(node.options.get("value", value))
    return numeric(x) + scaled(numeric(a) / numeric(b), factor)


def _lerp(node: Node, a: Any, b: Any, weight: Any) -> Tensor:
    start, step = numeric(a), numeric(b) - numeric(a)
    return start + forms.multiplied(step, weight)


def _round(node: Node, x: Any, decimals: Any = 0) -> Tensor:
    places = int(node.options.get("decimals", decimals))
    if places == 0:
        return numeric(x).round()
    return scaled(scaled(numeric(x), 10.0**places).round(), 10.0**-places)


def _logit(node: Node, x: Any, eps: Any = None) -> Tensor:
    tensor = numeric(x) if eps is None else numeric(x).clip(float(eps), 1.0 - float(eps))
    return (tensor / (1.0 - tensor)).log()


def _random(node: Node, *_: Any) -> Tensor:
    raise LoadError("it draws new random numbers in every run; make them an input of the model")


RULES: dict[str, Rule] = {
    "add": _add,
    "addcdiv": _addcdiv,
    "addcmul": _addcmul,
    "lerp": _lerp,
    "logit": _logit,
    "masked_fill": _masked_fill,
    "mul": _mul,
    "nan_to_num": _nan_to_num,
    "round": _round,
    "rsub": lambda node, a, b, alpha=1: _sub(node, b, a, alpha),
    "sub": _sub,
    "where": _where,
    **dict.fromkeys(RANDOM, _random),
}
