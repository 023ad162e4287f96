"""Reductions over axes, positions of extremes, and what sorts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from aneforge.frontends.forms import position, truth
from aneforge.frontends.forms.sorting import argsort, sort, topk
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


def _topk(node: Node, x: Any, k: int, dim: int = -1, largest: bool = True, *_: Any) -> list[Any]:
    given = numeric(x)
    axis = axes_of(dim, given.ndim)[0]
    values = topk(given, axis, int(k), bool(largest)) if 0 in node.wanted else None
    return [values, argsort(given, axis, bool(largest), int(k)) if 1 in node.wanted else None]


def _direction(node: Node, dim: Any, descending: Any) -> tuple[Any, bool]:
    if node.kind.endswith(".stable"):  # (x, stable, dim, descending), by name
        dim, descending = node.options.get("dim", -1), node.options.get("descending", False)
    return dim, bool(descending)


def _sort(node: Node, x: Any, dim: Any = -1, descending: Any = False, *_: Any) -> list[Any]:
    given, (dim, down) = numeric(x), _direction(node, dim, descending)
    axis = axes_of(dim, given.ndim)[0]
    values = sort(given, axis, down) if 0 in node.wanted else None
    return [values, argsort(given, axis, down) if 1 in node.wanted else None]


def _argsort(node: Node, x: Any, dim: Any = -1, descending: Any = False, *_: Any) -> Any:
    given, (dim, down) = numeric(x), _direction(node, dim, descending)
    return argsort(given, axes_of(dim, given.ndim)[0], down)


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
