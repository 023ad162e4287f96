"""Matrix products."""

from __future__ import annotations

import numpy as np

import aneforge as af
from aneforge.frontends import LoadError, forms
from aneforge.frontends.onnx_node import Node, Rule, Value
from aneforge.frontends.values import as_tensor, axis_of, number
from aneforge.graph.encoding import Encoded
from aneforge.graph.tensor import Tensor

__all__ = ["RULES"]


def _gemm(node: Node, a: Value, b: Value, c: Value | None = None) -> Tensor:
    left = as_tensor(a).transpose([1, 0]) if node.attr("transA", 0) else as_tensor(a)
    alpha, beta = float(node.attr("alpha", 1.0)), float(node.attr("beta", 1.0))
    if isinstance(b, (np.ndarray, Encoded)):
        weight = b if alpha == 1.0 else np.asarray(b, np.float64) * alpha
        weight = weight if node.attr("transB", 0) else weight.T
        plain = c is None or (isinstance(c, np.ndarray) and c.size == weight.shape[0])
        bias = None if c is None or not plain else np.asarray(c, np.float64).reshape(-1) * beta
        found = left.linear(weight, bias)
        return found if plain or c is None else found + as_tensor(c) * beta
    right = as_tensor(b).transpose([1, 0]) if node.attr("transB", 0) else as_tensor(b)
    found = left @ right
    found = found if alpha == 1.0 else found * alpha
    return found if c is None else found + (as_tensor(c) if beta == 1.0 else as_tensor(c) * beta)


def _einsum(node: Node, *given: Value) -> Tensor:
    equation = node.attr("equation").replace(" ", "")
    letters = [each for each in equation.partition("->")[0] if each.isalpha()]
    axes = equation.partition("->")[2] if "->" in equation else [each for each in letters if letters.count(each) == 1]
    if not axes:
        raise LoadError("an einsum over every axis: its result has none")
    return af.einsum(equation, *(as_tensor(each) for each in given))


def _cumulative(node: Node, x: Value, axis: Value) -> Tensor:
    given = as_tensor(x)
    place = axis_of(int(number(axis, "the axis")), given.ndim)
    return forms.cumulative_sum(given, place, bool(node.attr("exclusive", 0)), bool(node.attr("reverse", 0)))


RULES: dict[str, Rule] = {
    "CumSum": _cumulative,
    "Einsum": _einsum,
    "Gemm": _gemm,
    "MatMul": lambda node, a, b: forms.matmul(a, b),
}
