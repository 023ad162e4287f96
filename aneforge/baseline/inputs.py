"""The numbers of a file that a model is run on, and hashes of numbers."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import numpy as np

from aneforge.errors import AneforgeError
from aneforge.graph.graph import Graph

Array = np.ndarray


def given_inputs(graph: Graph, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """Somebody's own arrays, in the order of the inputs, if they fit these."""
    names = graph.names()
    ports = {names[port.uid]: port for port in graph.inputs}
    takes = ", ".join(f"{name} {list(port.shape)}" for name, port in ports.items())
    for name in feeds:
        if name not in ports:
            raise AneforgeError(f"{name}: not an input of the model. Choose from: {takes}.")
    for name, port in ports.items():
        if name not in feeds:
            raise AneforgeError(f"{name}: this input has no value. The model takes {takes}.")
        if feeds[name].shape != port.shape or feeds[name].dtype.kind not in "fiub":
            shown = f"{feeds[name].dtype} {list(feeds[name].shape)}"
            raise AneforgeError(f"{name}: {shown} was given; the input takes numbers of shape {list(port.shape)}.")
    return {name: feeds[name] for name in ports}


def array_hash(array: Array) -> str:
    """Equal for the same numbers in the same type and shape, on every machine."""
    contiguous = np.ascontiguousarray(array)
    little = contiguous.astype(contiguous.dtype.newbyteorder("<"), copy=False)
    digest = hashlib.blake2b(f"{little.dtype.str} {contiguous.shape}".encode(), digest_size=12)
    digest.update(little.tobytes())
    return digest.hexdigest()


def shape_text(shape: tuple[int, ...]) -> str:
    """``1x3x8x8``: one word, so that a shape is one line of a file."""
    return "x".join(map(str, shape)) or "scalar"
