"""Reductions over axes."""

from __future__ import annotations

from collections.abc import Callable

from aneforge.frontends import forms
from aneforge.frontends.forms.reductions import REDUCTIONS
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


def _position(largest: bool) -> Rule:
    def rule(node: Node, x: Value) -> Tensor:
        tensor, last = as_tensor(x), bool(node.attr("select_last_index", 0))
        axis = axis_of(int(node.attr("axis", 0)), tensor.ndim)
        return forms.position(tensor, axis, bool(node.attr("keepdims", 1)), largest, last)

    return rule


_KINDS = {"L1": "l1_norm", "L2": "l2_norm", "LogSum": "log_sum", "LogSumExp": "log_sum_exp", "Max": "max"}
_KINDS |= {"Mean": "mean", "Min": "min", "Prod": "prod", "Sum": "sum", "SumSquare": "sum_square"}

RULES: dict[str, Rule] = {
    "ArgMax": _position(True),
    "ArgMin": _position(False),
    **{f"Reduce{kind}": _reduction(REDUCTIONS[name]) for kind, name in _KINDS.items()},
}
