"""Room for what is read at once and thrown away: kept by each thread, because a fresh array costs more than its use.

A large array comes from the system page by page, each cleared; a run would ask for hundreds of them. What is handed
out under a name is overwritten by the next request for that name in the same thread: it must not outlive its caller.
"""

from __future__ import annotations

import math
import threading
from typing import Any

import numpy as np

__all__ = ["scratch"]

Array = np.ndarray


class _Rooms(threading.local):
    def __init__(self) -> None:
        self.held: dict[str, Array] = {}


_rooms = _Rooms()


def scratch(name: str, shape: tuple[int, ...], kind: Any = np.float32) -> Array:
    """A dense array of any content."""
    size = math.prod(shape) * np.dtype(kind).itemsize
    held = _rooms.held.get(name)
    if held is None or held.nbytes < size:
        held = _rooms.held[name] = np.empty(size, np.uint8)
    return held[:size].view(kind).reshape(shape)
