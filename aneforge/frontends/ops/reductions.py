"""Reductions, positions of extremes, and orders."""

from __future__ import annotations

from collections.abc import Callable

from aneforge.frontends.forms import as_number, cumulative_sum, position, reduced, sliced, truth
from aneforge.frontends.forms.reductions import EXACT
from aneforge.frontends.importer.op import Op, Rule
from aneforge.frontends.ops.known import ascending
from aneforge.frontends.values import NoForm, shaped
from aneforge.graph import builders as af
from aneforge.graph.tensor import Tensor

__all__ = ["RULES", "ordered"]

_SUMMED = 8192


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


def _rows(x: Tensor, axis: int) -> tuple[Tensor, list[int]]:
    """Lines along an axis as rows, and the order of axes that put it last."""
    order = [*(i for i in range(x.ndim) if i != axis), axis]
    lines = x if axis == x.ndim - 1 else x.transpose(order)
    return lines.reshape(-1, x.shape[axis]), order


def _back(rows: Tensor, x: Tensor, order: list[int], extent: int) -> Tensor:
    found = shaped(rows, [*(x.shape[i] for i in order[:-1]), extent])
    return found if order[-1] == x.ndim - 1 else found.transpose([order.index(i) for i in range(x.ndim)])


def _exact(x: Tensor, axis: int) -> None:
    """fp16 counts to 2048 and not further."""
    if x.shape[axis] - 1 > EXACT:
        raise NoForm(f"positions along {x.shape[axis]:,} elements are not exact in fp16, which counts to {EXACT:,}")


def _position(largest: bool) -> Rule:
    def rule(op: Op) -> Tensor:
        x = op.tensor()
        axis = op.axis(x.ndim, -1)
        _exact(x, axis)
        return position(x, axis, op.truth("keep_dims"), largest)

    return rule


def ordered(x: Tensor, axis: int, ascending: bool, count: int) -> tuple[Tensor, Tensor]:
    """The first of each line by size, and where they were."""
    rows, order = _rows(x, axis)
    values = af.topk(rows, count, largest=not ascending)
    places = sliced(af.sort(rows, descending=not ascending, return_indices=True), 1, 0, count)
    return _back(values, x, order, count), _back(places, x, order, count)


def _argsort(op: Op) -> Tensor:
    x = op.tensor()
    axis = op.axis(x.ndim, -1)
    _exact(x, axis)
    rows, order = _rows(x, axis)
    places = af.sort(rows, descending=not ascending(op), return_indices=True)
    return _back(places, x, order, x.shape[axis])


def _sort(op: Op) -> Tensor:
    x = op.tensor()
    axis = op.axis(x.ndim, -1)
    rows, order = _rows(x, axis)
    return _back(af.sort(rows, descending=not ascending(op)), x, order, x.shape[axis])


def _topk(op: Op) -> list[Tensor]:
    x = op.tensor()
    if op.used(1):
        _exact(x, op.axis(x.ndim, -1))
    found = ordered(x, op.axis(x.ndim, -1), ascending(op), op.whole("k", 1))
    return list(found) if len(op.outputs) > 1 else [found[0]]


def _cumsum(op: Op) -> Tensor:
    x = op.tensor()
    exclusive, reverse = op.truth("exclusive"), op.truth("reverse")
    axis = op.axis(x.ndim, 0)
    if x.shape[axis] > _SUMMED:
        raise NoForm(f"a running sum of {x.shape[axis]:,} elements needs a triangle of ones that is too large")
    return cumulative_sum(x, axis, exclusive, reverse)


RULES: dict[str, Rule] = {
    "argsort": _argsort,
    "cumsum": _cumsum,
    "reduce_all": _truths(Tensor.amin),
    "reduce_any": _truths(Tensor.amax),
    "reduce_argmax": _position(True),
    "reduce_argmin": _position(False),
    "reduce_l1_norm": _reduction(lambda x, axes: x.l1_norm(axes)),
    "reduce_l2_norm": _reduction(lambda x, axes: x.sum_square(axes).sqrt()),
    "reduce_log_sum": _reduction(lambda x, axes: x.log_sum(axes)),
    "reduce_log_sum_exp": _reduction(lambda x, axes: x.reduce_log_sum_exp(axes)),
    "reduce_max": _reduction(lambda x, axes: x.amax(axes)),
    "reduce_mean": _reduction(lambda x, axes: x.mean(axes)),
    "reduce_min": _reduction(lambda x, axes: x.amin(axes)),
    "reduce_prod": _reduction(lambda x, axes: x.prod(axes)),
    "reduce_sum": _reduction(lambda x, axes: x.sum(axes)),
    "reduce_sum_square": _reduction(lambda x, axes: x.sum_square(axes)),
    "sort": _sort,
    "topk": _topk,
}
