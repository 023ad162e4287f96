"""A cache that threads may share and that cannot grow without end."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from itertools import islice
from threading import Lock
from typing import Generic, TypeVar

V = TypeVar("V")


class SharedCache(Generic[V]):
    """At most ``most`` values by key; the oldest are forgotten first.

    Values are made by the caller, outside the lock: two threads may make the same one, and both get the one that was
    stored first. Reading takes no lock, because one look-up in a dictionary is atomic.
    """

    __slots__ = ("_lock", "_values", "get", "most")

    def __init__(self, most: int) -> None:
        self.most = most
        self._values: dict[Hashable, V] = {}
        self.get: Callable[[Hashable], V | None] = (
            self._values.get
        )  # the dictionary's own, because every node calls it
        self._lock = Lock()

    def keep(self, key: Hashable, value: V) -> V:
        """Store a value, unless another thread was faster; returns the one that is stored."""
        with self._lock:
            values = self._values
            if key not in values and len(values) >= self.most:
                # Several at a time: finding the oldest of many means stepping over all that were dropped before.
                for oldest in list(islice(values, max(1, self.most // 8))):
                    del values[oldest]
            return values.setdefault(key, value)

    def __len__(self) -> int:
        return len(self._values)
