"""Reductions over axes."""

from __future__ import annotations

from collections.abc import Callable

from aneforge.frontends import forms
from aneforge.frontends.onnx.node import Node, Rule, Value
from aneforge.frontends.values import as_tensor, axis_of, whole_numbers
from aneforge.graph.tensor import Tensor

__all__ = ["RULES"]


def _reduction(function: Callable[[Tensor, tuple[int, ...]], Tensor]) -> Rule:
    def rule(node: Node, x: Value, axes: Value | None = None) -> Tensor:
        tensor = forms.as_number(x)
        stated = node.attr("axes") if axes is None else whole_numbers(axes, "input 'axes'")
        if stated is None or len(stated) == 0:
            if node.attr("noop_with_empty_axes", 0):
                return tensor
            stated = range(tensor.ndim)
        reduced = [axis_of(int(axis), tensor.ndim) for axis in stated]
        result = forms.reduced(tensor, function, reduced, bool(node.attr("keepdims", 1)))
        return forms.truth(result) if isinstance(x, Tensor) and x.dtype == "bool" else result

    return rule


def _product_of(x: Tensor, axes: tuple[int, ...]) -> Tensor:
    return x.prod(axes)


def _position(largest: bool) -> Rule:
    def rule(node: Node, x: Value) -> Tensor:
        tensor, last = as_tensor(x), bool(node.attr("select_last_index", 0))
        axis = axis_of(int(node.attr("axis", 0)), tensor.ndim)
        return forms.position(tensor, axis, bool(node.attr("keepdims", 1)), largest, last)

    return rule


RULES: dict[str, Rule] = {
    "ArgMax": _position(True),
    "ArgMin": _position(False),
    "ReduceL1": _reduction(lambda x, axes: x.l1_norm(axes)),
    "ReduceL2": _reduction(lambda x, axes: x.sum_square(axes).sqrt()),
    "ReduceLogSum": _reduction(lambda x, axes: x.log_sum(axes)),
    "ReduceLogSumExp": _reduction(lambda x, axes: x.reduce_log_sum_exp(axes)),
    "ReduceMax": _reduction(lambda x, axes: x.amax(axes)),
    "ReduceMean": _reduction(lambda x, axes: x.mean(axes)),
    "ReduceMin": _reduction(lambda x, axes: x.amin(axes)),
    "ReduceProd": _reduction(_product_of),
    "ReduceSum": _reduction(lambda x, axes: x.sum(axes)),
    "ReduceSumSquare": _reduction(lambda x, axes: x.sum_square(axes)),
}
