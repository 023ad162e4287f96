"""Scratch arrays, kept by each thread, because a fresh array costs more than its use.

The system provides a large array page by page, each cleared, and a run would ask for hundreds of them. The array of a
name is overwritten by the next request for that name in the same thread, so it must not outlive its caller.
"""

from __future__ import annotations

import math
import threading
from typing import Any

import numpy as np

Array = np.ndarray


class _Buffers(threading.local):
    def __init__(self) -> None:
        self.by_name: dict[str, Array] = {}


_buffers = _Buffers()


def scratch(name: str, shape: tuple[int, ...], dtype: Any = np.float32) -> Array:
    """A dense array with arbitrary content."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    buffer = _buffers.by_name.get(name)
    if buffer is None or buffer.nbytes < size:
        buffer = _buffers.by_name[name] = np.empty(size, np.uint8)
    return buffer[:size].view(dtype).reshape(shape)
