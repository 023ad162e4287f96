"""Rounding that makes good what it loses: after each number of an output, the numbers that are not rounded yet are
moved so that the outputs stay as near as they can.

This is the optimal brain surgeon's step, one input after the other for all outputs together, as GPTQ and SparseGPT
order it: with the second moments H of the inputs, the best answer to an error e of input i is to move input j by
-e * U[i, j] / U[i, i], where U is the upper Cholesky factor of the inverse of H.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Array = np.ndarray

_DAMPING = 0.01  # of the mean of the diagonal: inputs that hardly occur must not move others far
_AT_ONCE = 64


def inverse_factor(matrix: Array) -> Array:
    """The upper Cholesky factor of the inverse of second moments, damped."""
    mean = float(np.trace(matrix)) / len(matrix)
    damped = matrix + np.eye(len(matrix)) * (_DAMPING * mean if mean > 0 else 1.0)
    return np.linalg.cholesky(np.linalg.inv(damped)).T


class Compensation:
    """How losses are made good, by the second moments of one group of inputs; several weights may share it."""

    def __init__(self, matrix: Array) -> None:
        self.order = np.argsort(-np.diag(matrix), kind="stable")
        """The input that occurs most comes first."""
        self.factor = inverse_factor(matrix[np.ix_(self.order, self.order)])

    @property
    def loss(self) -> Array:
        """For each input, what the square of a number costs that becomes zero while others make it good."""
        costs = np.empty(len(self.order))
        costs[self.order] = 1 / np.sum(self.factor**2, axis=0)
        return costs


def compensated(rows: Array, by: Compensation, rounding: Callable[[Array, int], Array]) -> Array:
    """Rows [outputs, depth] rounded one input at a time.

    ``rounding`` takes the numbers of one input, as they are by then, and its place.
    """
    order, factor = by.order, by.factor
    waiting = rows[:, order].astype(np.float64)
    rounded = np.empty_like(waiting)
    depth = waiting.shape[1]
    for start in range(0, depth, _AT_ONCE):
        stop = min(start + _AT_ONCE, depth)
        errors = np.empty((len(waiting), stop - start))
        for place in range(start, stop):
            rounded[:, place] = rounding(waiting[:, place], int(order[place]))
            errors[:, place - start] = (waiting[:, place] - rounded[:, place]) / factor[place, place]
            waiting[:, place + 1 : stop] -= np.outer(errors[:, place - start], factor[place, place + 1 : stop])
        waiting[:, stop:] -= errors @ factor[start:stop, stop:]
    back = np.empty_like(rounded)
    back[:, order] = rounded
    return back
