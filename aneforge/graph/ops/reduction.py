"""Reductions, all with kept axes as on the engine, and the running sum."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from aneforge.errors import GraphError
from aneforge.graph.node import OpDef, Shape, make, op
from aneforge.graph.ops.elementwise import times
from aneforge.graph.shapes import axes_of, axis_of, same_shape
from aneforge.graph.traits import GraphTrait as T

if TYPE_CHECKING:
    from aneforge.graph.tensor import Tensor


def _keep_dims(x: Shape, axes: tuple[int, ...]) -> Shape:
    return tuple(1 if i in axes else extent for i, extent in enumerate(x))


def _reduce(
    name: str,
    doc: str,
    reference: Callable,
    derivative: Callable,
    mil: str,
    kind: str = "",
    settings: str = "",
    diverges_as: str = "",
) -> OpDef:
    """A reduction, with its name in MIL and that of the one backend op that computes it."""

    def run(x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
        with np.errstate(all="ignore"):
            return reference(x, axis=axes, keepdims=True)

    body: dict[str, Any] = {"__doc__": doc, "shape": _keep_dims, "reference": run}
    body["derivative"] = lambda g, y, x, axes: [derivative(g, y, x, axes)]
    row = f"{kind} x | axes:places {settings}" if kind else ""
    spelled = f"{mil} x | axes keep_dims=True"
    options = {"gate": mil, "mil": spelled, "backend": row, "diverges_as": diverges_as}
    return op(name, "x", "axes", T.REDUCTION, **options)(type(name, (), body))


def _spread(g: Tensor, x: Tensor) -> Tensor:
    """A gradient of kept axes, repeated to the shape of ``x``: nothing of that size is stored."""
    repeats = [extent // kept for extent, kept in zip(x.shape, g.shape, strict=True)]
    return g.tile(repeats) if any(repeat > 1 for repeat in repeats) else g


def _of_extreme(g: Tensor, y: Tensor, x: Tensor, axes: tuple[int, ...]) -> Tensor:
    """The gradient of a maximum or minimum: equal parts for ties."""
    mask = x.equal(y).cast()
    return g * (mask / mask.sum(axes))


REDUCTIONS: dict[str, OpDef] = {
    declared.name: declared
    for declared in (
        _reduce("sum", "sum", np.sum, lambda g, y, x, a: _spread(g, x), "reduce_sum", "reduce_sum"),
        _reduce(
            "mean",
            "arithmetic mean",
            np.mean,
            lambda g, y, x, a: _spread(times(g, y.size / x.size), x),
            "reduce_mean",
            "reduce_avg",
        ),
        _reduce("amax", "largest element", np.max, _of_extreme, "reduce_max", "reduce_max"),
        _reduce("amin", "smallest element", np.min, _of_extreme, "reduce_min", "reduce_min"),
        _reduce(
            "sum_square",
            "sum of squares",
            lambda x, **over: np.square(x).sum(**over),
            lambda g, y, x, a: g * x * 2.0,
            "reduce_sum_square",
            "reduce_sum",
            "square_input=True",
        ),
        _reduce(
            "l1_norm",
            "sum of magnitudes",
            lambda x, **over: np.abs(x).sum(**over),
            lambda g, y, x, a: g * x.sign(),
            "reduce_l1_norm",
        ),
        _reduce(
            "log_sum",
            "logarithm of the sum",
            lambda x, **over: np.log(x.sum(**over)),
            lambda g, y, x, a: _spread(g / x.sum(a), x),
            "reduce_log_sum",
        ),
        _reduce(
            "reduce_log_sum_exp",
            "logarithm of the sum of exponentials",
            lambda x, **over: np.log(np.exp(x - x.max(**over)).sum(**over)) + x.max(**over),
            lambda g, y, x, a: g * (x - y).exp(),
            "reduce_log_sum_exp",
        ),
        _reduce("prod", "product", np.prod, lambda g, y, x, a: g * y / x, "reduce_prod", diverges_as="mul"),
    )
}


@op("cumsum", "x", "axis", mil="cumsum x | axis", diverges_as="matmul")
class CUMSUM:
    """Running sum along one axis."""

    shape = same_shape

    @staticmethod
    def reference(x, axis):
        return np.cumsum(x, axis=axis)

    @staticmethod
    def derivative(g, y, x, axis):
        return [g.reverse(axis).cumsum(axis).reverse(axis)]


def reduce(name: str, x: Tensor, axes: Any) -> Tensor:
    return make(REDUCTIONS[name], (x,), {"axes": axes_of(axes, len(x.shape))})


def cumsum(x: Tensor, axis: int = -1) -> Tensor:
    """Running sum. The engine has no such op: it runs as a product with a triangle of ones."""
    index = axis_of(axis, len(x.shape))
    if x.dtype != "fp16":
        raise GraphError(f"cumsum needs fp16 values, not {x.dtype}; cast it first")
    return make(CUMSUM, (x,), {"axis": index})
