"""Matrix products."""

from __future__ import annotations

import numpy as np

import aneforge as af
from aneforge.frontends import LoadError
from aneforge.frontends.onnx_node import Node, Rule, Value
from aneforge.frontends.onnx_rules.values import along_axis, as_tensor, axis_of, number
from aneforge.graph.tensor import Tensor

__all__ = ["RULES"]


def _gemm(node: Node, a: Value, b: Value, c: Value | None = None) -> Tensor:
    left = as_tensor(a).transpose([1, 0]) if node.attr("transA", 0) else as_tensor(a)
    alpha, beta = float(node.attr("alpha", 1.0)), float(node.attr("beta", 1.0))
    if isinstance(b, np.ndarray):
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


def _matmul(node: Node, a: Value, b: Value) -> Tensor:
    left, right = as_tensor(a), as_tensor(b)
    if left.ndim == 1 and right.ndim == 1:
        return (left * right).sum((0,)).reshape(())
    if left.ndim == 1:
        found = left.reshape(1, left.shape[0]) @ right
        return found.squeeze([found.ndim - 2])
    if right.ndim == 1:
        found = left @ right.reshape(right.shape[0], 1)
        return found.squeeze([found.ndim - 1])
    if isinstance(b, np.ndarray) and b.ndim == 2:
        rows = left if left.ndim == 2 else left.reshape(-1, left.shape[-1])
        found = rows.linear(np.asarray(b).T)
        return found if left.ndim == 2 else found.reshape(*left.shape[:-1], b.shape[1])
    return left @ right


def _einsum(node: Node, *given: Value) -> Tensor:
    equation = node.attr("equation").replace(" ", "")
    letters = [each for each in equation.partition("->")[0] if each.isalpha()]
    axes = equation.partition("->")[2] if "->" in equation else [each for each in letters if letters.count(each) == 1]
    if not axes:
        raise LoadError("an einsum over every axis: its result has none")
    return af.einsum(equation, *(as_tensor(each) for each in given))


def _cumulative(node: Node, x: Value, axis: Value) -> Tensor:
    """A product with a triangle of ones, along the axis."""
    given = as_tensor(x)
    place = axis_of(int(number(axis, "the axis")), given.ndim)
    size = given.shape[place]
    triangle = np.tril(np.ones((size, size)), -1 if node.attr("exclusive", 0) else 0)
    triangle = triangle.T if node.attr("reverse", 0) else triangle
    return along_axis(given, place, triangle)


RULES: dict[str, Rule] = {
    "CumSum": _cumulative,
    "Einsum": _einsum,
    "Gemm": _gemm,
    "MatMul": _matmul,
}
