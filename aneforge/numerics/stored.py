"""What is needed of stored weights, worked out once for each: their keys name their content, so it holds for good.

A walk asks for the same weights several times and in several programs, and derived ones are made anew whenever they
are read. What is kept is small: sums and digests of rows, not the numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TypeVar

import numpy as np

from aneforge.anec.interpret import laid_out
from aneforge.anec.ir import Module, Op
from aneforge.errors import AneforgeError
from aneforge.graph.weights import Weight

__all__ = ["numbers_of", "remembered", "weight_of"]

T = TypeVar("T")
_MOST = 16384
_known: dict[Hashable, object] = {}


def remembered(key: Hashable, make: Callable[[], T]) -> T:
    """What was made for a key before, or is made now; all is forgotten when there is much of it."""
    if key not in _known:
        if len(_known) >= _MOST:
            _known.clear()
        _known[key] = make()
    return _known[key]  # type: ignore[return-value]


def weight_of(module: Module, op: Op) -> Weight:
    """The weight behind a ``const_in``."""
    found = module.weights.get(op.attrs["weight"])
    if found is None:
        raise AneforgeError(f"the program does not hold weight {op.attrs['weight']!r}: compile the graph again")
    return found


def numbers_of(module: Module, op: Op) -> np.ndarray:
    """A constant in the layout that its op states."""
    return laid_out(weight_of(module, op).array, op.shape)
