"""Weights with zeros made in them: the numbers whose loss is felt least, of one layer or of several together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from aneforge.codecs.calibrated import Moments, finite_weight, output_error
from aneforge.codecs.calibrated_rounding import compensated
from aneforge.errors import GraphError
from aneforge.graph.encoding import Encoded

Array = np.ndarray


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
