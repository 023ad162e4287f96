"""Matrix products."""

from __future__ import annotations

import string

import numpy as np

from aneforge.frontends import forms
from aneforge.frontends.onnx.node import Node, Rule, Value
from aneforge.frontends.values import NoForm, as_tensor, axis_of, number
from aneforge.graph import builders as af
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
        found = forms.linear(left, weight, bias)
        return found if plain or c is None else found + as_tensor(c) * beta
    right = as_tensor(b).transpose([1, 0]) if node.attr("transB", 0) else as_tensor(b)
    found = left @ right
    found = found if alpha == 1.0 else found * alpha
    return found if c is None else found + (as_tensor(c) if beta == 1.0 else as_tensor(c) * beta)


def _einsum(node: Node, *given: Value) -> Tensor:
    """Sums of products, two operands at a time."""
    equation = node.attr("equation").replace(" ", "")
    operands = [as_tensor(each) for each in given]
    if len(operands) > 2:
        return _chained(equation, operands)
    letters = [each for each in equation.partition("->")[0] if each.isalpha()]
    axes = equation.partition("->")[2] if "->" in equation else [each for each in letters if letters.count(each) == 1]
    if axes or "..." in equation:
        return af.einsum(equation, *operands)
    spare = next(each for each in string.ascii_letters if each not in equation)  # the engine's results have an axis
    first, comma, rest = equation.partition("->")[0].partition(",")
    raised = operands[0].reshape(1, *operands[0].shape)
    return af.einsum(f"{spare}{first}{comma}{rest}->{spare}", raised, *operands[1:])


def _chained(equation: str, operands: list[Tensor]) -> Tensor:
    """What no later operand and no result names is summed as soon as it can be."""
    left, arrow, output = equation.partition("->")
    if not arrow or "." in equation:
        raise NoForm(f"an einsum of {len(operands)} operands that does not name its result: {equation!r}")
    terms = left.split(",")
    term, found = terms[0], operands[0]
    for place in range(1, len(operands)):
        later = set("".join(terms[place + 1 :]) + output)
        joined = "".join(dict.fromkeys(each for each in term + terms[place] if each in later))
        if not joined:
            raise NoForm(f"an einsum whose parts have no axis left: {equation!r}")
        found = af.einsum(f"{term},{terms[place]}->{joined}", found, operands[place])
        term = joined
    return found if term == output else af.einsum(f"{term}->{output}", found)


def _cumulative(node: Node, x: Value, axis: Value) -> Tensor:
    given = as_tensor(x)
    place = axis_of(int(number(axis, "the axis")), given.ndim)
    return forms.cumulative_sum(given, place, bool(node.attr("exclusive", 0)), bool(node.attr("reverse", 0)))


def _cumulative_product(node: Node, x: Value, axis: Value) -> Tensor:
    """Each round multiplies what lies twice as far behind as in the round before."""
    given = as_tensor(x)
    place = axis_of(int(number(axis, "the axis")), given.ndim)
    turned = bool(node.attr("reverse", 0))
    found = given.reverse([place]) if turned else given
    if node.attr("exclusive", 0):
        found = _behind(found, place, 1)
    reach = 1
    while reach < given.shape[place]:
        found = found * _behind(found, place, reach)
        reach *= 2
    return found.reverse([place]) if turned else found


def _behind(x: Tensor, axis: int, distance: int) -> Tensor:
    """What lies some places before each element, and ones before the first."""
    widths = [(distance, -distance) if i == axis else (0, 0) for i in range(x.ndim)]
    return forms.padded(x, widths, "constant", 1.0)


RULES: dict[str, Rule] = {
    "CumProd": _cumulative_product,
    "CumSum": _cumulative,
    "Einsum": _einsum,
    "Gemm": _gemm,
    "MatMul": lambda node, a, b: forms.matmul(a, b),
}
