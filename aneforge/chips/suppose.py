"""Other values for facts and constants while something is worked out: what a measurement would show if another
hypothesis held.

Only the look-ups of :mod:`aneforge.chips.assumed` and the activation tables of the simulator ask here. Build the graph
inside the block: what was worked out for a graph before is kept with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

_EMPTY: Mapping[str, Any] = {}
_supposed: ContextVar[Mapping[str, Any]] = ContextVar("supposed facts", default=_EMPTY)


@contextmanager
def supposing(values: Mapping[str, Any]) -> Iterator[None]:
    """Facts and constants by name, with the values that hold for this thread inside the block."""
    token = _supposed.set({**_supposed.get(), **values})
    try:
        yield
    finally:
        _supposed.reset(token)


def supposed() -> Mapping[str, Any]:
    """What is supposed now, by the names of facts and constants."""
    return _supposed.get()
