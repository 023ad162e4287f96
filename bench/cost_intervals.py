"""How wide an interval has to be: from errors of rows that a fit did not see, for the engine and for the host apart.

An error is the logarithm of estimated over measured. Its scale is made of two parts, each weighted with its share of
the call: the engine's and that of the host, which is the machine around it. The ratio of the two is the one under
which the errors are most likely; their size is such that eight rows of ten lie inside. A row is judged with a size
that the rows of its own group (its source, chip, machine or family) had no part in.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

CLAIM = 0.8
"""Of the rows lie in the interval."""
_RATIOS = np.exp(np.linspace(np.log(0.25), np.log(4.0), 25))
_FEW = 8  # rows from which a size can be taken


def shape(shares: np.ndarray, ratio: float) -> np.ndarray:
    """The scale of each row up to a factor: ``shares`` are the engine's of each call, ``ratio`` the host's scale over
    the engine's."""
    return np.hypot(shares, ratio * (1 - shares))


def ratio_of(errors: np.ndarray, shares: np.ndarray) -> float:
    """The host's scale over the engine's under which the errors are most likely."""

    def surprise(ratio: float) -> float:
        scales = shape(shares, ratio)
        return float(np.log(scales).mean() + np.log(np.abs(errors / scales).mean()))

    return float(min(_RATIOS, key=surprise)) if len(errors) else 1.0


def quantile(sizes: np.ndarray) -> float:
    """The size that eight of ten do not exceed, one more row counted."""
    place = int(np.ceil(CLAIM * (len(sizes) + 1))) - 1
    return float(np.sort(sizes)[min(place, len(sizes) - 1)])


def widths(errors: np.ndarray, shares: np.ndarray) -> tuple[float, float]:
    """The logarithm of the half-width of a call that is all engine, and of one that is all host."""
    ratio = ratio_of(errors, shares)
    size = quantile(np.abs(errors) / shape(shares, ratio))
    return size, size * ratio


def inside(errors: np.ndarray, shares: np.ndarray, groups: Sequence[str]) -> np.ndarray:
    """Which rows lie in the interval that the other groups' rows give; a group that leaves too few is not judged."""
    owned, found = np.array(groups), np.full(len(errors), np.nan)
    for group in sorted(set(owned)):
        mine = owned == group
        if (~mine).sum() < _FEW:
            continue
        engine, host = widths(errors[~mine], shares[~mine])
        found[mine] = np.abs(errors[mine]) <= np.hypot(shares[mine] * engine, (1 - shares[mine]) * host)
    return found
