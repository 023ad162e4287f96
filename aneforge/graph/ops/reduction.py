"""Reductions, all with kept axes as on the engine, and the running sum."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from aneforge.errors import GraphError
from aneforge.graph.node import OpDef, Shape, make, op
from aneforge.graph.ops.elementwise import times
from aneforge.graph.shapes import axes_of, axis_of
from aneforge.graph.traits import GraphTrait as T

if TYPE_CHECKING:
    from aneforge.graph.tensor import Tensor


def _keep_dims(x: Shape, axes: tuple[int, ...]) -> Shape:
    return tuple(1 if i in axes else extent for i, extent in enumerate(x))


def _reduce(
    name: str, doc: str, reference: Callable, derivative: Callable, gate: str = "", backend: str = ""
) -> OpDef:
    def run(x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
        with np.errstate(all="ignore"):
            return reference(x, axes)

    body: dict[str, Any] = {"__doc__": doc, "shape": _keep_dims, "reference": run}
    body["derivative"] = lambda g, y, x, axes: [derivative(g, y, x, axes)]
    mil = f"{gate or name} x | axes keep_dims=True"
    return op(name, "x", "axes", T.REDUCTION, gate=gate or name, mil=mil, backend=backend)(type(name, (), body))


def _spread(g: Tensor, x: Tensor) -> Tensor:
    """A gradient of kept axes, repeated to the shape of ``x``: nothing of that size is stored."""
    repeats = [extent // kept for extent, kept in zip(x.shape, g.shape, strict=True)]
    return g.tile(repeats) if any(repeat > 1 for repeat in repeats) else g


def _share(mask: Tensor, axes: tuple[int, ...]) -> Tensor:
    """Equal parts for ties, as the gradient of a maximum."""
    return mask / mask.sum(axes)


REDUCTIONS: dict[str, OpDef] = {
    declared.name: declared
    for declared in (
        _reduce(
            "sum",
            "sum",
            lambda x, a: x.sum(axis=a, keepdims=True),
            lambda g, y, x, a: _spread(g, x),
            "reduce_sum",
            "reduce_sum x | axes:places",
        ),
        _reduce(
            "mean",
            "arithmetic mean",
            lambda x, a: x.mean(axis=a, keepdims=True),
            lambda g, y, x, a: _spread(times(g, y.size / x.size), x),
            "reduce_mean",
            "reduce_avg x | axes:places",
        ),
        _reduce(
            "amax",
            "largest element",
            lambda x, a: x.max(axis=a, keepdims=True),
            lambda g, y, x, a: g * _share(x.equal(y).cast(), a),
            "reduce_max",
            "reduce_max x | axes:places",
        ),
        _reduce(
            "amin",
            "smallest element",
            lambda x, a: x.min(axis=a, keepdims=True),
            lambda g, y, x, a: g * _share(x.equal(y).cast(), a),
            "reduce_min",
            "reduce_min x | axes:places",
        ),
        _reduce(
            "sum_square",
            "sum of squares",
            lambda x, a: np.square(x).sum(axis=a, keepdims=True),
            lambda g, y, x, a: g * x * 2.0,
            "reduce_sum_square",
            "reduce_sum x | axes:places square_input=True",
        ),
        _reduce(
            "l1_norm",
            "sum of magnitudes",
            lambda x, a: np.abs(x).sum(axis=a, keepdims=True),
            lambda g, y, x, a: g * x.sign(),
            "reduce_l1_norm",
        ),
        _reduce(
            "log_sum",
            "logarithm of the sum",
            lambda x, a: np.log(x.sum(axis=a, keepdims=True)),
            lambda g, y, x, a: _spread(g / x.sum(a), x),
            "reduce_log_sum",
        ),
        _reduce(
            "reduce_log_sum_exp",
            "logarithm of the sum of exponentials",
            lambda x, a: (
                np.log(np.exp(x - x.max(axis=a, keepdims=True)).sum(axis=a, keepdims=True))
                + x.max(axis=a, keepdims=True)
            ),
            lambda g, y, x, a: g * (x - y).exp(),
        ),
        _reduce(
            "prod",
            "product",
            lambda x, a: x.prod(axis=a, keepdims=True),
            lambda g, y, x, a: g * y / x,
            "reduce_prod",
        ),
    )
}


@op("cumsum", "x", "axis", mil="cumsum x | axis")
class CUMSUM:
    """Running sum along one axis."""

    @staticmethod
    def shape(x: Shape, axis: int) -> Shape:
        return x

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
