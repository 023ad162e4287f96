"""One door for models that people hold: a file in, the graph object out, with the file's own names on its nodes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aneforge.errors import AneforgeError
from aneforge.graph.graph import Graph, load_graph

__all__ = ["FORMATS", "LoadError", "load"]

FORMATS = {".onnx": "ONNX"}
"""What is read besides our own archive, by the end of the name."""


class LoadError(AneforgeError):
    """A model that cannot become a graph: which file, which node, and what to do."""


def load(path: str | Path, dims: Mapping[str, int] | None = None, fixed: Mapping[str, Any] | None = None) -> Graph:
    """The graph in a model file. ``dims`` gives values to the symbolic dimensions of its inputs, ``fixed`` to whole
    inputs that are the same for every run: sizes, axes, masks."""
    file = Path(path)
    if not file.is_file():
        raise LoadError(f"no file {str(path)!r}")
    if file.suffix.casefold() == ".onnx":
        from aneforge.frontends.onnx_reader import read

        return read(file, dims or {}, fixed or {})
    if dims or fixed:
        raise LoadError(f"{file.name}: a saved graph has nothing to fix; that is for {', '.join(FORMATS.values())}")
    return load_graph(file)
