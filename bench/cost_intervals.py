"""How wide an interval has to be: from errors of rows that a fit did not see, for three parts of a call apart.

An error is the logarithm of estimated over measured. Its scale is made of three parts, each weighted with its share of
the call: layers of the engine, those of attention among them (products of computed values, norms and copies), and the
host, which is the machine around it. The ratios of the three are those under which the errors are most likely; their
size is such that eight rows of ten lie inside. A row is judged with a size that the rows of its own group (its source,
chip, machine or family) had no part in.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

CLAIM = 0.8
"""Of the rows lie in the interval."""
_HOST = np.exp(np.linspace(np.log(0.25), np.log(4.0), 25))
_ATTENTION = np.exp(np.linspace(0.0, np.log(4.0), 13))  # never better known than the other layers
_FEW = 8  # rows from which a size can be taken

Ratios = tuple[float, float]
"""The scales of attention and of the host over that of the engine's other layers."""


def shape(shares: np.ndarray, ratios: Ratios) -> np.ndarray:
    """The scale of each row up to a factor; ``shares`` are a column each for the engine and, of that, attention."""
    engine, attention = shares.T
    parts = engine - attention, ratios[0] * attention, ratios[1] * (1 - engine)
    return np.sqrt(sum(part**2 for part in parts))


def ratios_of(errors: np.ndarray, shares: np.ndarray) -> Ratios:
    """The ratios under which the errors are most likely."""

    def surprise(ratios: Ratios) -> float:
        scales = shape(shares, ratios)
        return float(np.log(scales).mean() + np.log(np.abs(errors / scales).mean()))

    known = [(float(one), float(other)) for one in _ATTENTION for other in _HOST]
    return min(known, key=surprise) if len(errors) else (1.0, 1.0)


def quantile(sizes: np.ndarray) -> float:
    """The size that eight of ten do not exceed, one more row counted."""
    place = int(np.ceil(CLAIM * (len(sizes) + 1))) - 1
    return float(np.sort(sizes)[min(place, len(sizes) - 1)])


def widths(errors: np.ndarray, shares: np.ndarray) -> dict[str, float]:
    """The logarithm of the half-width of a call that is all engine, all attention, and all host."""
    ratios = ratios_of(errors, shares)
    size = quantile(np.abs(errors) / shape(shares, ratios))
    return {"engine": size, "attention": size * ratios[0], "host": size * ratios[1]}


def inside(errors: np.ndarray, shares: np.ndarray, groups: Sequence[str]) -> np.ndarray:
    """Which rows lie in the interval that the other groups' rows give; a group that leaves too few is not judged."""
    owned, found = np.array(groups), np.full(len(errors), np.nan)
    for group in sorted(set(owned)):
        mine = owned == group
        if (~mine).sum() < _FEW:
            continue
        width = widths(errors[~mine], shares[~mine])
        ratios = width["attention"] / width["engine"], width["host"] / width["engine"]
        found[mine] = np.abs(errors[mine]) <= width["engine"] * shape(shares[mine], ratios)
    return found
