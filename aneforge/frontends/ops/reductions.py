"""Reductions, positions of extremes, and sorting."""

from __future__ import annotations

from collections.abc import Callable

from aneforge.frontends.forms import as_number, cumulative_sum, position, reduced, truth
from aneforge.frontends.forms.reductions import REDUCTIONS
from aneforge.frontends.forms.sorting import argsort, sort, topk
from aneforge.frontends.importer.op import Op, Rule
from aneforge.frontends.ops.known import ascending
from aneforge.graph.tensor import Tensor

__all__ = ["RULES"]


def _reduction(function: Callable[[Tensor, tuple[int, ...]], Tensor]) -> Rule:
    def rule(op: Op) -> Tensor:
        x = as_number(op.value())
        axes = op.axes(x.ndim)
        return reduced(x, function, axes, op.truth("keep_dims")) if axes else x

    return rule


def _truths(function: Callable[[Tensor, tuple[int, ...]], Tensor]) -> Rule:
    def rule(op: Op) -> Tensor:
        x = as_number(op.value())
        return truth(reduced(x, function, op.axes(x.ndim), op.truth("keep_dims")))

    return rule


def _position(largest: bool) -> Rule:
    def rule(op: Op) -> Tensor:
        x = op.tensor()
        axis = op.axis(x.ndim, -1)
        return position(x, axis, op.truth("keep_dims"), largest)

    return rule


def _sorted(function: Callable[[Tensor, int, bool], Tensor]) -> Rule:
    def rule(op: Op) -> Tensor:
        x = op.tensor()
        return function(x, op.axis(x.ndim, -1), not ascending(op))

    return rule


def _topk(op: Op) -> list[Tensor]:
    x, largest, count = op.tensor(), not ascending(op), op.whole("k", 1)
    axis = op.axis(x.ndim, -1)
    values = topk(x, axis, count, largest)
    return [values, argsort(x, axis, largest, count)] if op.used(1) else [values]


def _cumsum(op: Op) -> Tensor:
    x = op.tensor()
    exclusive, reverse = op.truth("exclusive"), op.truth("reverse")
    axis = op.axis(x.ndim, 0)
    return cumulative_sum(x, axis, exclusive, reverse)


RULES: dict[str, Rule] = {
    "argsort": _sorted(argsort),
    "cumsum": _cumsum,
    "reduce_all": _truths(Tensor.amin),
    "reduce_any": _truths(Tensor.amax),
    "reduce_argmax": _position(True),
    "reduce_argmin": _position(False),
    **{f"reduce_{name}": _reduction(function) for name, function in REDUCTIONS.items()},
    "sort": _sorted(sort),
    "topk": _topk,
}
