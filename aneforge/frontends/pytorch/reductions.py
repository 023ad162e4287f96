"""Reductions over axes, argmax and argmin, and sorts."""

from __future__ import annotations

from typing import Any

import numpy as np

from aneforge.frontends.forms import position, truth
from aneforge.frontends.forms.sorting import argsort, sort, topk
from aneforge.frontends.pytorch.node import Node, Rule
from aneforge.frontends.pytorch.values import axes_of, numeric, shaped
from aneforge.frontends.values import NoForm
from aneforge.graph import builders as af
from aneforge.graph.ops.leaf import const


def _any(node: Node, x: Any, dim: Any = None, *_: Any) -> Any:
    truths = truth(x).cast()
    return shaped(truth(truths.amax(tuple(axes_of(dim, truths.ndim)))), node.shape)


def _all(node: Node, x: Any, dim: Any = None, *_: Any) -> Any:
    truths = truth(x).cast()
    return shaped(truth(truths.amin(tuple(axes_of(dim, truths.ndim)))), node.shape)


def _count(node: Node, x: Any, dim: Any = None, *_: Any) -> Any:
    truths = truth(x).cast()
    return shaped(truths.sum(tuple(axes_of(dim, truths.ndim))), node.shape)


def _extreme(largest: bool) -> Rule:
    """Return the largest or smallest element along an axis, and its index."""

    def rule(node: Node, x: Any, dim: int, *_: Any) -> list[Any]:
        tensor = numeric(x)
        axis = axes_of(dim, tensor.ndim)[0]
        value = tensor.amax((axis,)) if largest else tensor.amin((axis,))
        where = shaped(position(tensor, axis, True, largest), node.shapes[1]) if 1 in node.used_results else None
        return [shaped(value, node.shapes[0]), where]

    return rule


def _position(largest: bool) -> Rule:
    def rule(node: Node, x: Any, dim: Any = None, *_: Any) -> Any:
        tensor = numeric(x)
        if dim is None:
            return shaped(position(tensor.reshape(tensor.size), 0, True, largest), node.shape)
        return shaped(position(tensor, axes_of(dim, tensor.ndim)[0], True, largest), node.shape)

    return rule


def _aminmax(node: Node, x: Any) -> list[Any]:
    tensor = numeric(x)
    dim = node.options.get("dim")
    axes = tuple(axes_of(dim, tensor.ndim))
    return [shaped(tensor.amin(axes), node.shapes[0]), shaped(tensor.amax(axes), node.shapes[1])]


def _topk(node: Node, x: Any, k: int, dim: int = -1, largest: bool = True, *_: Any) -> list[Any]:
    tensor = numeric(x)
    axis = axes_of(dim, tensor.ndim)[0]
    values = topk(tensor, axis, int(k), bool(largest)) if 0 in node.used_results else None
    return [values, argsort(tensor, axis, bool(largest), int(k)) if 1 in node.used_results else None]


def _sort_direction(node: Node, dim: Any, descending: Any) -> tuple[Any, bool]:
    if node.kind.endswith(".stable"):  # (x, *, stable, dim, descending): keyword-only
        dim, descending = node.options.get("dim", -1), node.options.get("descending", False)
    return dim, bool(descending)


def _sort(node: Node, x: Any, dim: Any = -1, descending: Any = False, *_: Any) -> list[Any]:
    tensor, (dim, down) = numeric(x), _sort_direction(node, dim, descending)
    axis = axes_of(dim, tensor.ndim)[0]
    values = sort(tensor, axis, down) if 0 in node.used_results else None
    return [values, argsort(tensor, axis, down) if 1 in node.used_results else None]


def _argsort(node: Node, x: Any, dim: Any = -1, descending: Any = False, *_: Any) -> Any:
    tensor, (dim, down) = numeric(x), _sort_direction(node, dim, descending)
    return argsort(tensor, axes_of(dim, tensor.ndim)[0], down)


def _nan_sum(node: Node, x: Any, dim: Any = None, *_: Any) -> Any:
    tensor = numeric(x)
    numbers = af.where(tensor.equal(tensor), tensor, const(np.zeros((1,) * tensor.ndim)))
    return shaped(numbers.sum(tuple(axes_of(dim, tensor.ndim))), node.shape)


def _trace(node: Node, x: Any) -> Any:
    tensor = numeric(x)
    eye = np.eye(tensor.shape[0], tensor.shape[1])
    return shaped(af.where(truth(eye), tensor, const(np.zeros((1, 1)))).sum((0, 1)), node.shape)


def _median(node: Node, *_: Any) -> Any:
    raise NoForm("it gives the median and its position; the engine has no op for it")


RULES: dict[str, Rule] = {
    "all": _all,
    "aminmax": _aminmax,
    "any": _any,
    "argmax": _position(True),
    "argmin": _position(False),
    "argsort": _argsort,
    "count_nonzero": _count,
    "max.dim": _extreme(True),
    "median": _median,
    "min.dim": _extreme(False),
    "nansum": _nan_sum,
    "sort": _sort,
    "topk": _topk,
    "trace": _trace,
}
