"""Normalisations and softmax where ONNX has more results, or an older meaning of the axis."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from aneforge.frontends import forms
from aneforge.frontends.importer.op import Op
from aneforge.frontends.values import Numeric, Value, axis_of
from aneforge.graph.tensor import Tensor


def _lp_norm(x: Numeric, axis: int = -1, p: int = 2) -> Tensor:
    return forms.lp_normalised(x, axis_of(axis, x.ndim), p)


def _mean_variance(x: Numeric, axes: list[int]) -> Tensor:
    return forms.mean_variance_normalised(x, [axis_of(axis, x.ndim) for axis in axes])


def _of_rows(function: Callable[[Tensor, int], Tensor]) -> Callable[..., Tensor]:
    """Before opset 13 the axis and all after it are one row."""

    def of_rows(x: Numeric, axis: int = 1) -> Tensor:
        rows = x.reshape(math.prod(x.shape[: axis_of(axis, x.ndim)]), -1)
        return function(rows, 1).reshape(*x.shape)

    return of_rows


def _batch_norm(
    op: Op,
    x: Numeric,
    gamma: Value,
    beta: Value,
    mean: Value,
    variance: Value,
    epsilon: float = 1e-5,
    training_mode: bool = False,
    momentum: float = 0.9,
) -> Tensor | list[Tensor]:
    """In inference the statistics are inputs. In training mode they come from the batch, and the running statistics
    are updated."""
    if not training_mode:
        return forms.batch_norm(x, gamma, beta, mean, variance, epsilon)
    return forms.batch_norm_in_training(x, gamma, beta, mean, variance, epsilon, momentum)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "batch_norm_of": _batch_norm,
    "log_softmax_of_rows": _of_rows(forms.log_softmax),
    "lp_norm": _lp_norm,
    "mean_variance_norm": _mean_variance,
    "softmax_of_rows": _of_rows(Tensor.softmax),
}
