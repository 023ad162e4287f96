"""Reductions over axes, positions of extremes, and what sorts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from aneforge.frontends.forms import position, truth
from aneforge.frontends.torch.node import Node, Rule
from aneforge.frontends.torch.values import axes_of, numeric, shaped
from aneforge.frontends.values import NoForm
from aneforge.graph import builders as af
from aneforge.graph.ops.leaf import const
from aneforge.graph.tensor import Tensor

__all__ = ["RULES"]


def _reduction(function: Callable[[Tensor, tuple[int, ...]], Tensor]) -> Rule:
    def rule(node: Node, x: Any, dim: Any = None, *_: Any) -> Any:
        given = numeric(x)
        return shaped(function(given, tuple(axes_of(dim, given.ndim))), node.shape)

    return rule


def _whole(function: Callable[[Tensor, tuple[int, ...]], Tensor]) -> Rule:
    """Over every axis."""
    return lambda node, x, *_: _reduction(function)(node, x)


def _any(node: Node, x: Any, dim: Any = None, *_: Any) -> Any:
    given = truth(x).cast()
    return shaped(truth(given.amax(tuple(axes_of(dim, given.ndim)))), node.shape)


def _all(node: Node, x: Any, dim: Any = None, *_: Any) -> Any:
    given = truth(x).cast()
    return shaped(truth(given.amin(tuple(axes_of(dim, given.ndim)))), node.shape)


def _count(node: Node, x: Any, dim: Any = None, *_: Any) -> Any:
    given = truth(x).cast()
    return shaped(given.sum(tuple(axes_of(dim, given.ndim))), node.shape)


def _extreme(largest: bool) -> Rule:
    """The largest element along an axis, and where it is."""

    def rule(node: Node, x: Any, dim: int, *_: Any) -> list[Any]:
        given = numeric(x)
        axis = axes_of(dim, given.ndim)[0]
        value = given.amax((axis,)) if largest else given.amin((axis,))
        where = shaped(position(given, axis, True, largest), node.shapes[1]) if 1 in node.wanted else None
        return [shaped(value, node.shapes[0]), where]

    return rule


def _position(largest: bool) -> Rule:
    def rule(node: Node, x: Any, dim: Any = None, *_: Any) -> Any:
        given = numeric(x)
        if dim is None:
            return shaped(position(given.reshape(given.size), 0, True, largest), node.shape)
        return shaped(position(given, axes_of(dim, given.ndim)[0], True, largest), node.shape)

    return rule


def _both_ends(node: Node, x: Any) -> list[Any]:
    given = numeric(x)
    dim = node.options.get("dim")
    axes = tuple(axes_of(dim, given.ndim))
    return [shaped(given.amin(axes), node.shapes[0]), shaped(given.amax(axes), node.shapes[1])]


# Sorting works on rows: the axis goes last, the others become one.


def _rows(x: Tensor, axis: int) -> Tensor:
    order = [*(i for i in range(x.ndim) if i != axis), axis]
    lines = x if axis == x.ndim - 1 else x.transpose(order)
    return lines if lines.ndim == 2 else lines.reshape(-1, x.shape[axis])


def _back(rows: Tensor, shape: tuple[int, ...], axis: int) -> Tensor:
    kept = [*(extent for i, extent in enumerate(shape) if i != axis), shape[axis]]
    lines = rows.reshape(*kept) if rows.shape != tuple(kept) else rows
    order = [*(i for i in range(len(shape)) if i != axis), axis]
    return lines if axis == len(shape) - 1 else lines.transpose([order.index(i) for i in range(len(shape))])


def _topk(node: Node, x: Any, k: int, dim: int = -1, largest: bool = True, *_: Any) -> list[Any]:
    """Positions are those of a full sort, cut off."""
    given = numeric(x)
    axis = axes_of(dim, given.ndim)[0]
    rows = _rows(given, axis)
    shape = tuple(int(k) if i == axis else extent for i, extent in enumerate(given.shape))
    values = _back(af.topk(rows, int(k), bool(largest)), shape, axis) if 0 in node.wanted else None
    if 1 not in node.wanted:
        return [values, None]
    order = af.sort(rows, bool(largest), return_indices=True)
    return [values, _back(order.slice_by_size([0, 0], [rows.shape[0], int(k)]), shape, axis)]


def _sort(node: Node, x: Any, dim: Any = -1, descending: Any = False, *_: Any) -> list[Any]:
    if node.kind.endswith(".stable"):  # (x, stable, dim, descending), by name
        dim, descending = node.options.get("dim", -1), node.options.get("descending", False)
    given = numeric(x)
    axis = axes_of(dim, given.ndim)[0]
    rows = _rows(given, axis)
    values = _back(af.sort(rows, bool(descending)), given.shape, axis) if 0 in node.wanted else None
    if 1 not in node.wanted:
        return [values, None]
    return [values, _back(af.sort(rows, bool(descending), return_indices=True), given.shape, axis)]


def _argsort(node: Node, x: Any, dim: Any = -1, descending: Any = False, *_: Any) -> Any:
    if node.kind.endswith(".stable"):
        dim, descending = node.options.get("dim", -1), node.options.get("descending", False)
    given = numeric(x)
    axis = axes_of(dim, given.ndim)[0]
    return _back(af.sort(_rows(given, axis), bool(descending), return_indices=True), given.shape, axis)


def _nan_sum(node: Node, x: Any, dim: Any = None, *_: Any) -> Any:
    given = numeric(x)
    whole = af.where(given.equal(given), given, const(np.zeros((1,) * given.ndim)))
    return shaped(whole.sum(tuple(axes_of(dim, given.ndim))), node.shape)


def _trace(node: Node, x: Any) -> Any:
    given = numeric(x)
    eye = np.eye(given.shape[0], given.shape[1])
    return shaped(af.where(truth(eye), given, const(np.zeros((1, 1)))).sum((0, 1)), node.shape)


def _median(node: Node, *_: Any) -> Any:
    raise NoForm("takes the middle of a sorted line, and where it stood")


RULES: dict[str, Rule] = {
    "all": _all,
    "amax": _reduction(lambda x, axes: x.amax(axes)),
    "amin": _reduction(lambda x, axes: x.amin(axes)),
    "aminmax": _both_ends,
    "any": _any,
    "argmax": _position(True),
    "argmin": _position(False),
    "argsort": _argsort,
    "count_nonzero": _count,
    "logsumexp": _reduction(lambda x, axes: x.reduce_log_sum_exp(axes)),
    "max.default": _whole(lambda x, axes: x.amax(axes)),
    "max.dim": _extreme(True),
    "mean": _reduction(lambda x, axes: x.mean(axes)),
    "median": _median,
    "min.default": _whole(lambda x, axes: x.amin(axes)),
    "min.dim": _extreme(False),
    "nansum": _nan_sum,
    "prod": _reduction(lambda x, axes: x.prod(axes)),
    "sort": _sort,
    "sum": _reduction(lambda x, axes: x.sum(axes)),
    "topk": _topk,
    "trace": _trace,
}
