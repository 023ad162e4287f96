"""The numbers a model is run on: drawn so that every machine draws the same, or read from a file."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping

import numpy as np

from aneforge.errors import AneforgeError
from aneforge.graph.graph import Graph
from aneforge.graph.tensor import Tensor

__all__ = ["array_hash", "drawn_inputs", "given_inputs", "shape_text"]

Array = np.ndarray
_MIDDLE = 2 * 65535  # of a sum of four 16-bit numbers
_SPREAD = 37837.0  # its standard deviation, 65536 / sqrt(3)
_FARTHEST = 3.47  # what the sum reaches at most, in standard deviations


def drawn_inputs(graph: Graph, seed: int) -> dict[str, Array]:
    """Every input by name, about normal with a spread of one and within what the graph promises of it.

    The bits come from a hash of the seed and the name, and the rest is whole numbers and one rounding: a later NumPy,
    another machine or one more input of the model change nothing.
    """
    names = graph.names()
    return {names[each.uid]: _drawn(each, f"{seed} {names[each.uid]}") for each in graph.inputs}


def _drawn(port: Tensor, key: str) -> Array:
    raw = hashlib.shake_128(key.encode()).digest(8 * math.prod(port.shape))
    parts = np.frombuffer(raw, "<u2").reshape(-1, 4).astype(np.int64)
    if port.dtype != "fp16":
        # Small whole numbers for integers, so that they are likely places of a look-up.
        found = parts[:, 0] >> 8 if port.dtype == "uint8" else parts[:, 0] & 1
        return found.reshape(port.shape)
    promised = port.attrs.get("max_abs")
    scale = 1.0 if promised is None else min(1.0, promised / _FARTHEST)
    bell = (parts.sum(axis=1) - _MIDDLE) / _SPREAD * scale
    return bell.astype(np.float16).reshape(port.shape)


def given_inputs(graph: Graph, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """Somebody's own arrays, in the order of the inputs, if they fit these."""
    names = graph.names()
    ports = {names[each.uid]: each for each in graph.inputs}
    takes = ", ".join(f"{name} {list(port.shape)}" for name, port in ports.items())
    for name in feeds:
        if name not in ports:
            raise AneforgeError(f"no input {name!r}; the model takes {takes}")
    for name, port in ports.items():
        if name not in feeds:
            raise AneforgeError(f"no value for input {name!r}; the model takes {takes}")
        if feeds[name].shape != port.shape or feeds[name].dtype.kind not in "fiub":
            shown = f"{feeds[name].dtype} {list(feeds[name].shape)}"
            raise AneforgeError(f"input {name!r} takes numbers of shape {list(port.shape)}, {shown} was given")
    return {name: feeds[name] for name in ports}


def array_hash(array: Array) -> str:
    """Equal for the same numbers in the same type and shape, on every machine."""
    held = np.ascontiguousarray(array)
    little = held.astype(held.dtype.newbyteorder("<"), copy=False)
    digest = hashlib.blake2b(f"{little.dtype.str} {held.shape}".encode(), digest_size=12)
    digest.update(little.tobytes())
    return digest.hexdigest()


def shape_text(shape: tuple[int, ...]) -> str:
    """``1x3x8x8``: one word, so that a shape is one line of a file."""
    return "x".join(map(str, shape)) or "scalar"
