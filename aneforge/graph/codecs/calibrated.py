"""Weights fitted to the inputs that a layer really reads, as its second moments describe them.

Every function takes a weight [outputs, ...] and :class:`Moments`, and gives the stored form. Plain encoders treat all
errors of a weight alike. Here an error counts by the inputs that meet it, and what one number loses, later numbers of
the same output make good (see :mod:`aneforge.graph.codecs.calibrated`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from aneforge.errors import GraphError
from aneforge.graph.codecs.palettes import palette_table
from aneforge.graph.encoding import SMALLEST_NORMAL, Encoded

# Rounding that makes good what it loses: after each number of an output, the numbers that are not rounded yet are
# moved so that the outputs stay as near as they can.


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


Array = np.ndarray

_SHARES = np.linspace(1.0, 0.4, 25)  # of the largest number: what lies beyond is clipped


@dataclass(frozen=True, eq=False)
class Moments:
    """The mean of x x^T over the inputs of a layer, for each group of channels.

    ``matrix`` [groups, depth, depth] is None where it would be too large; the diagonal is always there. The order of
    ``depth`` is that of a weight's axes behind the first.
    """

    diagonal: Array
    """[groups, depth]."""
    matrix: Array | None = None
    rows: int = 0
    """How many inputs they are the mean of; 0 where that is not known."""

    @classmethod
    def of_inputs(cls, inputs: Any) -> Moments:
        """Of one group, from rows of inputs [rows, depth]."""
        rows = np.asarray(inputs, np.float64)
        matrix = rows.T @ rows / len(rows)
        return cls(np.diag(matrix).copy()[None], matrix[None], len(rows))

    @cached_property
    def compensations(self) -> list[Compensation] | None:
        """One for each group, from what can be trusted of the matrix; None without a matrix."""
        matrix = self.trusted.matrix
        return None if matrix is None else [Compensation(group) for group in matrix]

    @cached_property
    def trusted(self) -> Moments:
        """The same with what lies off the diagonal made smaller by the share of it that is chance (U121).

        Inputs that have nothing to do with one another still have a squared correlation of 1 / rows by chance. What
        the mean squared correlation has beyond that is real. Weights fitted to chance are worse than plain ones.
        """
        depth = self.diagonal.shape[1]
        if self.matrix is None or not self.rows or depth < 2:
            return self
        lengths = np.sqrt(np.maximum(self.diagonal, np.finfo(np.float64).tiny))
        correlation = self.matrix / (lengths[:, :, None] * lengths[:, None, :])
        squares = (np.sum(correlation**2, axis=(1, 2)) - depth) / (depth * (depth - 1))
        share = np.clip(1 - 1 / (self.rows * np.maximum(squares, 1 / self.rows)), 0.0, 1.0)
        shrunk = self.matrix * share[:, None, None]
        places = np.arange(depth)
        shrunk[:, places, places] = self.diagonal
        return Moments(self.diagonal, shrunk)

    @property
    def groups(self) -> int:
        return len(self.diagonal)

    def importance(self, shape: tuple[int, ...]) -> Array:
        """How much an error of each number of a weight counts, in the weight's shape."""
        self.check(shape)
        return np.repeat(self.diagonal, shape[0] // self.groups, axis=0).reshape(shape)

    def check(self, shape: tuple[int, ...]) -> None:
        """Refuse a weight of another layer."""
        groups, depth = self.diagonal.shape
        if shape[0] % groups or math.prod(shape[1:]) != depth:
            raise GraphError(
                f"weight {list(shape)}: the second moments are of {groups} groups of {depth} inputs; give those of "
                "the layer that reads it"
            )


def output_error(weight: Array, stored: Array, moments: Moments) -> float:
    """The error of a layer's outputs with other weights: root of the mean square, relative to that of the outputs."""
    gap = np.asarray(stored, np.float64) - np.asarray(weight, np.float64)
    lost, whole = _energy(gap, moments), _energy(np.asarray(weight, np.float64), moments)
    if lost == 0:
        return 0.0
    return float(np.sqrt(lost / whole)) if whole > 0 else float("inf")


def _energy(weight: Array, moments: Moments) -> float:
    """The mean square of the outputs, summed over them."""
    rows = _by_group(weight, moments)
    if moments.matrix is None:
        return float(np.einsum("gok,gk->", rows**2, moments.diagonal))
    return float(max(0.0, np.sum((rows @ moments.matrix) * rows)))


def _by_group(weight: Array, moments: Moments) -> Array:
    """[groups, outputs of a group, depth]."""
    moments.check(weight.shape)
    return weight.reshape(moments.groups, len(weight) // moments.groups, -1)


def finite_weight(weight: Any) -> Array:
    """A weight as float64; NaN and infinity have no code and are refused."""
    numbers = np.asarray(weight, np.float64)
    wrong = int(numbers.size - np.isfinite(numbers).sum())
    if wrong:
        raise GraphError(
            f"weight {list(numbers.shape)}: {wrong} of {numbers.size} numbers are NaN or infinite and have no code. "
            "Correct the weight first"
        )
    if numbers.ndim < 2 or numbers.size == 0:
        raise GraphError(f"weight {list(numbers.shape)}: a layer's weight has outputs first, then inputs")
    return numbers


# One scale for each output.


def searched_scales(rows: Array, importance: Array, levels: int) -> Array:
    """The fp16 scale of each row that rounds it with the least error; the error of a number counts by its importance.

    Tried are shares of the scale at which nothing is clipped: a few clipped numbers often cost less than coarser steps
    for all the others.
    """
    peaks = np.abs(rows).max(axis=1)
    best = np.full(len(rows), np.inf)
    chosen = np.empty(len(rows), np.float16)
    for share in _SHARES:
        scale = np.maximum(peaks * share / levels, SMALLEST_NORMAL).astype(np.float16)
        error = (importance * (_rounded(rows, scale.astype(np.float64)[:, None], levels) - rows) ** 2).sum(axis=1)
        better = error < best
        best[better], chosen[better] = error[better], scale[better]
    return chosen


def _rounded(rows: Array, scale: Array, levels: int) -> Array:
    return np.clip(np.rint(rows / scale), -levels, levels) * scale


def calibrated_affine(weight: Any, moments: Moments, bits: int = 8) -> Encoded:
    """Symmetric codes with one scale for each output, searched for these inputs (N51: zero point 0)."""
    numbers = finite_weight(weight)
    levels = (1 << (bits - 1)) - 1
    importance = moments.importance(numbers.shape).reshape(len(numbers), -1)
    scale = searched_scales(numbers.reshape(len(numbers), -1), importance, levels)
    steps = np.broadcast_to(scale.astype(np.float64)[:, None], importance.shape)
    rounded = _fitted(numbers, moments, lambda column, step: _rounded(column, step, levels), steps)
    codes = np.rint(rounded.reshape(len(numbers), -1) / steps).astype(np.int8).reshape(numbers.shape)
    return Encoded.affine(codes, scale, axis=0, bits=bits)


def calibrated_blockwise(weight: Any, moments: Moments, block_size: int = 32, bits: int = 8) -> Encoded:
    """Symmetric codes with one searched scale for each run of ``block_size`` numbers along the second axis."""
    numbers = finite_weight(weight)
    outputs, inputs, *rest = numbers.shape
    if block_size < 1 or inputs % block_size:
        raise GraphError(f"weight {list(numbers.shape)}: {inputs} inputs do not divide into blocks of {block_size}")
    levels, blocks = (1 << (bits - 1)) - 1, inputs // block_size
    rows, importance = (
        array.reshape(outputs * blocks, -1) for array in (numbers, moments.importance(numbers.shape))
    )  # a block's numbers lie next to one another: it has all places of the kernel
    scale = searched_scales(rows, importance, levels)
    steps = np.repeat(scale.astype(np.float64), rows.shape[1]).reshape(outputs, -1)
    rounded = _fitted(numbers, moments, lambda column, step: _rounded(column, step, levels), steps)
    codes = np.rint(rounded.reshape(outputs, -1) / steps).astype(np.int8).reshape(numbers.shape)
    return Encoded.blockwise(codes, scale.reshape(outputs, blocks, *(1,) * len(rest)), bits=bits)


# Palettes.


def _places(values: Array, table: Array) -> Array:
    return np.searchsorted((table[1:] + table[:-1]) / 2, values)


def calibrated_palette(weight: Any, moments: Moments, bits: int = 4) -> Encoded:
    """Indices into a table of 2^bits fp16 numbers, which lie closer where the inputs are large."""
    numbers = finite_weight(weight)
    table = palette_table(numbers, bits, importance=moments.importance(numbers.shape))
    none = np.broadcast_to(0.0, (len(numbers), numbers[0].size))
    rounded = _fitted(numbers, moments, lambda column, _: table[_places(column, table)], none)
    codes = _places(rounded, table).astype(np.uint8)
    return Encoded.palette(codes, table.astype(np.float16), bits)


# Rounding with compensation, where it pays.


def _fitted(numbers: Array, moments: Moments, rounding: Callable[[Array, Array], Array], setting: Array) -> Array:
    """A weight rounded number by number, or with what is lost made good by later numbers: the one with less error.

    ``rounding`` takes numbers and what ``setting`` [outputs, depth] has at their places.
    """
    plain = rounding(numbers.reshape(len(numbers), -1), setting).reshape(numbers.shape)
    if moments.compensations is None:
        return plain
    rows, settings = _by_group(numbers, moments), setting.reshape(moments.groups, -1, setting.shape[1])
    parts = []
    for group, by in enumerate(moments.compensations):
        own = settings[group]
        parts.append(compensated(rows[group], by, lambda column, place, own=own: rounding(column, own[:, place])))
    better = np.stack(parts).reshape(numbers.shape)
    return min((better, plain), key=lambda rounded: output_error(numbers, rounded, moments.trusted))


# Weights with zeros made in them: the numbers whose loss is felt least, of one layer or of several together.


def kept_by_magnitude(weight: Any, sparsity: float, importance: Array | None = None) -> Array:
    """Which numbers stay where a share ``sparsity`` of them becomes zero: the largest, by the square of the number
    times its importance. Equal ones stay in order, so that the count is exact."""
    return kept_in_all([weight], sparsity, None if importance is None else [importance])[0]


def kept_in_all(weights: Sequence[Any], sparsity: float, importances: Sequence[Array] | None = None) -> list[Array]:
    """The same over several weights together: a layer whose numbers matter less loses more of them.

    A layer's own size of numbers says nothing about another layer, so numbers count relative to the mean square of
    their layer.
    """
    _check_share(sparsity)
    arrays = [finite_weight(weight) for weight in weights]
    scores = []
    for place, numbers in enumerate(arrays):
        score = numbers**2 if importances is None else numbers**2 * importances[place]
        mean = float(score.mean())
        scores.append((score / mean if mean > 0 else score).reshape(-1))
    joined = np.concatenate(scores)
    zeros = round(sparsity * joined.size)
    kept = np.ones(joined.size, bool)
    kept[np.argsort(joined, kind="stable")[:zeros]] = False
    ends = np.cumsum([array.size for array in arrays])[:-1]
    return [part.reshape(array.shape) for part, array in zip(np.split(kept, ends), arrays, strict=True)]


def pruned(weight: Any, sparsity: float, moments: Moments | None = None, kept: Array | None = None) -> Encoded:
    """A weight with a share of zeros, in the sparse form.

    Without ``moments`` the smallest numbers go. With them the numbers go whose loss is felt least, and those that stay
    are moved to make it good, where that pays. ``kept`` says which numbers stay, where that is decided already.
    """
    _check_share(sparsity)
    numbers = finite_weight(weight)
    if moments is None:
        mask = kept_by_magnitude(numbers, sparsity) if kept is None else kept
        return _sparse(np.where(mask, numbers, 0.0), mask)
    mask = kept_by_magnitude(numbers, sparsity, _cost_of_loss(numbers, moments)) if kept is None else kept
    plain = np.where(mask, numbers, 0.0)
    choices = [plain]
    if kept is None:
        choices.append(numbers * kept_by_magnitude(numbers, sparsity, moments.importance(numbers.shape)))
    if moments.compensations is not None:
        choices.append(_moved(numbers, mask, moments))
    best = min(choices, key=lambda array: output_error(numbers, array, moments.trusted))
    return _sparse(best, best != 0)


def _cost_of_loss(numbers: Array, moments: Moments) -> Array:
    """What a number's square is to be multiplied by: how much the outputs lose when it is zero and others make it
    good; without the matrix, when nothing does."""
    if moments.compensations is None:
        return moments.importance(numbers.shape)
    return Moments(np.stack([by.loss for by in moments.compensations])).importance(numbers.shape)


def _moved(numbers: Array, mask: Array, moments: Moments) -> Array:
    assert moments.compensations is not None
    rows, kept = (array.reshape(moments.groups, -1, moments.diagonal.shape[1]) for array in (numbers, mask))
    parts = [
        compensated(rows[group], by, lambda column, place, own=kept[group]: np.where(own[:, place], column, 0.0))
        for group, by in enumerate(moments.compensations)
    ]
    return np.stack(parts).reshape(numbers.shape)


def _sparse(numbers: Array, mask: Array) -> Encoded:
    kept = mask & (numbers.astype(np.float16) != 0)
    return Encoded.sparse(kept, numbers[kept].astype(np.float16))


def _check_share(sparsity: float) -> None:
    if not isinstance(sparsity, (int, float)) or isinstance(sparsity, bool) or not 0 <= sparsity < 1:
        raise GraphError(f"sparsity is {sparsity!r}; it is the share of zeros: give a number from 0 to below 1")
