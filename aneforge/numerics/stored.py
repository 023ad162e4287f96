"""What is needed of stored weights, worked out once for each: their keys name their content, so it holds for good.

A walk asks for the same weights several times and in several programs, and derived ones are made anew whenever they
are read. What is kept is small: sums and digests of rows, not the numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import numpy as np

from aneforge.anec.interpret import laid_out
from aneforge.anec.ir import Module, Op
from aneforge.errors import AneforgeError
from aneforge.graph.cache import SharedCache
from aneforge.graph.weights import Weight

T = TypeVar("T")
_known: SharedCache[Any] = SharedCache(16384)


def remembered(key: Hashable, make: Callable[[], T]) -> T:
    """What was made for a key before, or is made now; of very much, the oldest is forgotten."""
    entry = _known.get(key)
    return _known.keep(key, make()) if entry is None else entry


def weight_of(module: Module, op: Op) -> Weight:
    """The weight behind a ``const_in``."""
    weight = module.weights.get(op.attrs["weight"])
    if weight is None:
        raise AneforgeError(
            f"weight {op.attrs['weight']!r}: the program does not contain it. Compile the graph again."
        )
    return weight


def numbers_of(module: Module, op: Op) -> np.ndarray:
    """A constant in the layout that its op states."""
    return laid_out(weight_of(module, op).array, op.shape)
