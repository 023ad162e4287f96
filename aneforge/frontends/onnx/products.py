"""Matrix products and cumulative sums and products."""

from __future__ import annotations

import numpy as np

from aneforge.frontends import forms
from aneforge.frontends.onnx.node import Node, Rule, Value
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
        by_column = c is None or (isinstance(c, np.ndarray) and c.size == weight.shape[0])
        bias = None if c is None or not by_column else np.asarray(c, np.float64).reshape(-1) * beta
        product = forms.linear(left, weight, bias)
        return product if by_column or c is None else product + as_tensor(c) * beta
    right = as_tensor(b).transpose([1, 0]) if node.attr("transB", 0) else as_tensor(b)
    product = left @ right
    product = product if alpha == 1.0 else product * alpha
    return product if c is None else product + (as_tensor(c) if beta == 1.0 else as_tensor(c) * beta)


def _cumulative_sum(node: Node, x: Value, axis: Value) -> Tensor:
    tensor = as_tensor(x)
    place = axis_of(int(number(axis, "input 'axis'")), tensor.ndim)
    return forms.cumulative_sum(tensor, place, bool(node.attr("exclusive", 0)), bool(node.attr("reverse", 0)))


def _cumulative_product(node: Node, x: Value, axis: Value) -> Tensor:
    """Each round multiplies by the elements at twice the distance of the round before."""
    tensor = as_tensor(x)
    place = axis_of(int(number(axis, "input 'axis'")), tensor.ndim)
    backwards = bool(node.attr("reverse", 0))
    products = tensor.reverse([place]) if backwards else tensor
    if node.attr("exclusive", 0):
        products = _shift(products, place, 1)
    reach = 1
    while reach < tensor.shape[place]:
        products = products * _shift(products, place, reach)
        reach *= 2
    return products.reverse([place]) if backwards else products


def _shift(x: Tensor, axis: int, distance: int) -> Tensor:
    """Shift elements along an axis and fill the start with ones."""
    widths = [(distance, -distance) if i == axis else (0, 0) for i in range(x.ndim)]
    return forms.padded(x, widths, "constant", 1.0)


RULES: dict[str, Rule] = {
    "CumProd": _cumulative_product,
    "CumSum": _cumulative_sum,
    "Einsum": lambda node, *operands: forms.einsum(node.attr("equation"), [as_tensor(value) for value in operands]),
    "Gemm": _gemm,
    "MatMul": lambda node, a, b: forms.matmul(a, b),
}
